//! `gateway demo`: shows the main use offline, with what each side saw.

use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::Response;
use http::header::AUTHORIZATION;
use http_body_util::Full;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tokio::runtime::Runtime;

use crate::app::{Code, Color, Failure, Paint, Terminal, safe};
use crate::cli::doctor::embedded;
use crate::cli::doctor::embedded::Handler;
use crate::cli::exec::launching;
use crate::cli::log;
use crate::launch::enroll::GatewayEnd;
use crate::launch::{Launch, trust};

/// The first argument of the sandboxed client.
pub const CLIENT: &str = "__demo-client";
/// The variable that holds the secret outside and the phantom inside.
const VARIABLE: &str = "DEMO_TOKEN";
const HOST: &str = "api.demo.test";
const OTHER_HOST: &str = "attacker.demo.test";

/// Show the main job, offline
///
/// It has an embedded origin and a sandboxed client, and shows what each side saw.
#[derive(Args)]
pub struct Demo {}

impl Demo {
    /// Runs the demo's client in a sandbox. Returns only if the sandbox cannot be started.
    ///
    /// # Errors
    /// Returns a [`Failure`] with the step that failed, and a remedy.
    pub fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let secret = secret()?;
        terminal.note(format!(
            "{} {VARIABLE}={} is the real secret, made for this run; only the gateway process has it",
            terminal.paint(Paint::Bold, "outside "),
            terminal.paint(Paint::Red, &secret)
        ));
        let secrets = [(VARIABLE, secret.as_str())];
        launching::start_own(Launch::default(), &[CLIENT], false, &secrets, serve)
    }
}

/// Serves the demo in the gateway process, together with its origin.
///
/// # Errors
/// Returns a [`Failure`] that was already sent to the launcher.
fn serve(runtime: &Runtime, gateway: GatewayEnd) -> Result<Code, Failure> {
    let terminal = Terminal::new(false, Color::Auto);
    let text = format!(
        "[[credential]]\nname = \"demo\"\nfrom = \"env:{VARIABLE}\"\norigins = [\"https://{HOST}\"]\n\
         places = [\"header:authorization:Bearer\"]\nenv = [\"{VARIABLE}\"]\n"
    );
    let answer: Handler = Arc::new(move |request| answer(&terminal, request));
    embedded::serve_sandbox(runtime, gateway, log::DEMO, &text, Some((HOST, answer)))
}

/// Generates a secret in the form of a well-known token, so that its phantom is easy to tell apart.
///
/// # Errors
/// Returns a [`Failure`] if the system provides no random bytes.
pub(crate) fn secret() -> Result<String, Failure> {
    let mut bytes = [0; 36];
    getrandom::fill(&mut bytes).map_err(Failure::no_randomness)?;
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let letter = |byte: &u8| char::from(letters[usize::from(*byte) % letters.len()]);
    let text: String = bytes.iter().map(letter).collect();
    Ok(format!("demo_{text}"))
}

/// Prints what the origin saw, and answers. The answer echoes the credential like a debugging page.
fn answer(
    terminal: &Terminal,
    request: &http::Request<hyper::body::Incoming>,
) -> Response<Full<Bytes>> {
    let seen = request
        .headers()
        .get(AUTHORIZATION)
        .map_or("nothing", |value| value.to_str().unwrap_or("?"));
    let word = terminal.paint(Paint::Bold, "origin  ");
    let shown = terminal.paint(Paint::Red, &safe(seen));
    terminal.note(format!("{word} saw authorization: {shown}"));
    Response::new(Full::new(Bytes::from(format!(
        "{{\"you_sent\":\"{seen}\"}}\n"
    ))))
}

/// Runs inside the sandbox: a plain HTTPS client that knows nothing of the gateway.
///
/// # Errors
/// Returns a [`Failure`] if the demo does not work as it should.
pub fn client(terminal: &Terminal) -> Result<Code, Failure> {
    let phantom = std::env::var(VARIABLE)
        .map_err(|_| Failure::usage(format!("`{CLIENT}` is for the demo itself")))?;
    let say = |text: String| {
        let word = terminal.paint(Paint::Bold, "sandbox ");
        terminal.note(format!("{word} {text}"))
    };
    let shown = terminal.paint(Paint::Green, &phantom);
    say(format!("holds {VARIABLE}={shown}"));
    say(format!("asks  https://{HOST}/user with it"));
    let (status, content) = get(HOST, "/user", &phantom)?;
    let shown = terminal.paint(Paint::Green, safe(content.trim()).as_str());
    say(format!("got   {status} {shown}"));
    if status != 200 || !content.contains(&phantom) {
        return Err(Failure::new("the demo failed")
            .because("the answer should hold the phantom in place of the secret"));
    }
    say(format!(
        "asks  https://{HOST}/?q=PHANTOM, where that credential has no place"
    ));
    let refused = |(status, content): (u16, String), what: &str| {
        let answer = serde_json::from_str::<serde_json::Value>(&content).unwrap_or_default();
        let word = |key: &str| safe(answer[key].as_str().unwrap_or_default());
        say(format!("got   {status} {}", word("reason")));
        if status == 403 {
            return Ok(());
        }
        Err(Failure::new("the demo failed").because(format!("{what} should be refused")))
    };
    let misplaced = get(HOST, &format!("/?q={phantom}"), "")?;
    refused(misplaced, "a misplaced phantom")?;
    say(format!(
        "asks  https://{OTHER_HOST}/ with it, which nothing allows"
    ));
    let elsewhere = get(OTHER_HOST, "/", &phantom)?;
    refused(elsewhere, "a host that nothing allows")?;
    Ok(Code::Ok)
}

fn get(host: &str, target: &str, token: &str) -> Result<(u16, String), Failure> {
    let fields = match token {
        "" => String::new(),
        token => format!("Authorization: Bearer {token}\r\n"),
    };
    let (head, content) = exchange((host, 443), target, &fields).map_err(|error| {
        Failure::new(format!("the sandbox's client could not ask {host}"))
            .because(error.to_string())
    })?;
    Ok((status(&head), content))
}

/// Returns the status of an answer's head, or 0.
pub(super) fn status(head: &str) -> u16 {
    let status = head.split(' ').nth(1);
    status.and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// Sends a `GET` with these lines of fields from inside the sandbox; gives the answer's head and
/// its content.
pub(super) fn exchange(
    (host, port): (&str, u16),
    target: &str,
    fields: &str,
) -> Result<(String, String), Box<dyn std::error::Error>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(trust::CERTIFICATE)? {
        roots.add(certificate?)?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect((host, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let connection =
        ClientConnection::new(Arc::new(config), ServerName::try_from(host.to_owned())?)?;
    let mut stream = StreamOwned::new(connection, stream);
    let request =
        format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(MOST_ANSWER).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, content) = answer
        .split_once("\r\n\r\n")
        .ok_or("the answer has no head")?;
    Ok((head.to_owned(), content.to_owned()))
}

/// The most of an answer that is read, in bytes.
const MOST_ANSWER: u64 = 1 << 20;
