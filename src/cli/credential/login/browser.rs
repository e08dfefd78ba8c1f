//! A login in a browser on this machine: a code with PKCE (RFC 7636), which returns to a loopback
//! address (RFC 8252 §7.3).

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::percent_decode_str;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::{LoginIssuer, refused};
use crate::app::Failure;
use crate::credential::login::{Tokens, form, random};

/// The browser's return: a code, or the error code of a refusal.
type RedirectResult = Result<Zeroizing<String>, String>;

impl LoginIssuer<'_> {
    pub(crate) async fn in_a_browser(&self, page: &str) -> Result<Tokens, Failure> {
        let failed = |error: std::io::Error| Failure::of("the login cannot return here", &error);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let returns = Zeroizing::new(format!("http://127.0.0.1:{port}{CALLBACK}"));
        let drawn = || random(32).ok_or_else(|| Failure::new("the system gives no random bytes"));
        let (state, verifier) = (drawn()?, drawn()?);
        let said = |text: &str| Zeroizing::new(text.to_owned());
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
        let mut asked = vec![
            ("response_type", said("code")),
            (
                "client_id",
                said(self.issuer.client.as_deref().unwrap_or_default()),
            ),
            ("redirect_uri", returns.clone()),
            ("state", state.clone()),
            ("code_challenge", said(&challenge)),
            ("code_challenge_method", said("S256")),
        ];
        asked.extend(self.issuer.scope());
        let between = if page.contains('?') { '&' } else { '?' };
        let address = format!("{page}{between}{}", &*form(&asked));
        self.terminal.note(format!(
            "open this address in a browser on this machine:\n{address}"
        ));
        let code = timeout(LONGEST, returned(&listener, &state)).await;
        let late = |_| Failure::new("nobody logged in").next("begin again: `gateway login add`");
        let code = code.map_err(late)?.map_err(|word| refused(&word))?;
        let members = vec![
            ("grant_type", said("authorization_code")),
            ("code", code),
            ("redirect_uri", returns),
            ("code_verifier", verifier),
        ];
        let answer = self.ask(&self.issuer.endpoint, members).await?;
        self.tokens(&answer)?.map_err(|word| refused(&word))
    }
}

/// Waits for the browser's return. Each connection is served separately, since browsers also open
/// some that they do not use.
async fn returned(listener: &TcpListener, state: &str) -> RedirectResult {
    let (found, mut back) = mpsc::channel(1);
    loop {
        tokio::select! {
            Some(returned) = back.recv() => return returned,
            Ok((stream, _)) = listener.accept() => {
                let (found, state) = (found.clone(), Zeroizing::new(state.to_owned()));
                tokio::spawn(async move {
                    if let Ok(Some(returned)) = timeout(HEAD, serve(stream, &state)).await {
                        let _ = found.send(returned).await;
                    }
                });
            }
        }
    }
}

/// Serves one request. Returns `None` if it is not the browser's return.
async fn serve(mut stream: TcpStream, state: &str) -> Option<RedirectResult> {
    let mut head = Zeroizing::new(Vec::with_capacity(LARGEST));
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() == LARGEST || stream.read_buf(&mut *head).await.ok()? == 0 {
            return None;
        }
    }
    let returned = returned_in(std::str::from_utf8(&head).ok()?, state);
    let (status, words) = match &returned {
        Some(Ok(_)) => ("200 OK", "You are logged in, and may close this page."),
        Some(Err(_)) => ("200 OK", "The login was refused. You may close this page."),
        None => ("404 Not Found", "This is no page of a login."),
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n\r\n{words}",
        words.len()
    );
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
    returned
}

/// Returns the code or error in a request, if the request returns to this login.
fn returned_in(head: &str, state: &str) -> Option<RedirectResult> {
    let target = head.strip_prefix("GET ")?.split(' ').next()?;
    let query = target.strip_prefix(CALLBACK)?.strip_prefix('?')?;
    let value = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|(known, _)| *known == name)?;
        let decoded = percent_decode_str(value).decode_utf8().ok()?;
        Some(Zeroizing::new(decoded.into_owned()))
    };
    if value("state")?.as_str() != state {
        return None;
    }
    match (value("code"), value("error")) {
        (Some(code), None) => Some(Ok(code)),
        (_, Some(word)) => Some(Err(word.to_string())),
        (None, None) => None,
    }
}

const CALLBACK: &str = "/callback";
const LONGEST: Duration = Duration::from_secs(10 * 60);
const HEAD: Duration = Duration::from_secs(10);
const LARGEST: usize = 16 * 1024;
