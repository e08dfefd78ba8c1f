//! `gateway demo`: the main job, offline, with what each side saw.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
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

use super::assembly::Assembly;
use super::embedded::Embedded;
use super::exec;
use super::expand::Expanded;
use super::failure::{Code, Failure};
use super::screen::{Paint, Screen, safe};
use crate::config::Config;
use crate::launch::enroll::GatewayEnd;
use crate::launch::{Launch, trust};

/// The first argument of the sandboxed client.
pub const CLIENT: &str = "__demo-client";
/// The variable that holds the secret outside, the phantom inside.
const VARIABLE: &str = "DEMO_TOKEN";
const HOST: &str = "api.demo.test";
const OTHER_HOST: &str = "attacker.demo.test";

/// Show the main job, offline: an embedded origin, a sandboxed client, and what each side saw
#[derive(Args)]
pub struct Demo {}

impl Demo {
    /// Runs the demo's client in a sandbox; returns only where that cannot be started.
    ///
    /// # Errors
    /// A [`Failure`] with the step that failed, and what would help.
    pub fn run(self, screen: &mut Screen) -> Result<Code, Failure> {
        let secret = secret()?;
        screen.note(format!(
            "{} {VARIABLE}={} is the real secret, made for this run; only the gateway process has it",
            screen.paint(Paint::Bold, "outside "),
            screen.paint(Paint::Red, &secret)
        ));
        let launch = Launch {
            arguments: vec!["gateway".into(), CLIENT.into()],
            own_program: true,
            ..Launch::default()
        };
        exec::start(launch, &[(VARIABLE, &secret)])
    }

    /// Serves the demo: the gateway process, with the origin beside it.
    ///
    /// # Errors
    /// A [`Failure`], which the launcher was told.
    pub fn serve(self, gateway: GatewayEnd) -> Result<Code, Failure> {
        let runtime = super::serving::runtime()?;
        let assembly = runtime.block_on(async {
            let screen = Screen::new(false, super::Color::Auto);
            let origin = Embedded::serve(HOST, Arc::new(move |request| answer(&screen, request))).await?;
            let text = format!(
                "[[credential]]\nname = \"demo\"\nfrom = \"env:{VARIABLE}\"\norigins = [\"https://{HOST}\"]\n\
                 places = [\"header:authorization:Bearer\"]\nenv = [\"{VARIABLE}\"]\n"
            );
            let config = Config::from_str(&text, Path::new("the demo's configuration"))?;
            let expanded = Expanded::of(&config, false)?;
            Assembly::with_origins(config, expanded, vec![origin.rule()])
        });
        exec::serve_on(&runtime, gateway, assembly, None)
    }
}

/// A secret of the shape of a well-known token, so that its phantom can be told by eye.
///
/// # Errors
/// A [`Failure`] where the system gives no random bytes.
pub(super) fn secret() -> Result<String, Failure> {
    let mut bytes = [0; 36];
    getrandom::fill(&mut bytes).map_err(|error| {
        Failure::new("the system gives no random bytes").because(error.to_string())
    })?;
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let letter = |byte: &u8| char::from(letters[usize::from(*byte) % letters.len()]);
    Ok(bytes
        .iter()
        .map(letter)
        .fold(String::from("demo_"), |text, letter| {
            text + &letter.to_string()
        }))
}

/// What the origin saw, and its answer, which echoes the credential as a debugging page would.
fn answer(
    screen: &Screen,
    request: &http::Request<hyper::body::Incoming>,
) -> Response<Full<Bytes>> {
    let seen = request
        .headers()
        .get(AUTHORIZATION)
        .map_or("nothing", |value| value.to_str().unwrap_or("?"));
    screen.note(format!(
        "{} saw authorization: {}",
        screen.paint(Paint::Bold, "origin  "),
        screen.paint(Paint::Red, &safe(seen))
    ));
    Response::new(Full::new(Bytes::from(format!(
        "{{\"you_sent\":\"{seen}\"}}\n"
    ))))
}

/// What runs inside: a plain HTTPS client that knows nothing of a gateway.
///
/// # Errors
/// A [`Failure`] where what the demo is to show does not hold.
pub fn client(screen: &Screen) -> Result<Code, Failure> {
    let phantom = std::env::var(VARIABLE)
        .map_err(|_| Failure::usage(format!("`{CLIENT}` is for the demo itself")))?;
    let say =
        |text: String| screen.note(format!("{} {text}", screen.paint(Paint::Bold, "sandbox ")));
    say(format!(
        "holds {VARIABLE}={}",
        screen.paint(Paint::Green, &phantom)
    ));
    say(format!("asks  https://{HOST}/user with it"));
    let (status, content) = get(HOST, "/user", &phantom)?;
    say(format!(
        "got   {status} {}",
        screen.paint(Paint::Green, safe(content.trim()).as_str())
    ));
    if status != 200 || !content.contains(&phantom) {
        return Err(Failure::new("the demo failed")
            .because("the answer should hold the phantom in place of the secret"));
    }
    say(format!(
        "asks  https://{HOST}/?q=PHANTOM, where that credential has no place"
    ));
    let (status, content) = get(HOST, &format!("/?q={phantom}"), "")?;
    let reason = serde_json::from_str::<serde_json::Value>(&content)
        .ok()
        .and_then(|answer| answer["reason"].as_str().map(str::to_owned))
        .unwrap_or_default();
    say(format!("got   {status} {}", safe(&reason)));
    if status != 403 {
        return Err(
            Failure::new("the demo failed").because("a misplaced phantom should be refused")
        );
    }
    say(format!("asks  https://{OTHER_HOST}/, which nothing allows"));
    match (OTHER_HOST, 443).to_socket_addrs() {
        Ok(_) => {
            return Err(
                Failure::new("the demo failed").because("a name that nothing allows was resolved")
            );
        }
        Err(_) => say(String::from("got   no such name")),
    }
    Ok(Code::Ok)
}

fn get(host: &str, target: &str, token: &str) -> Result<(u16, String), Failure> {
    exchange(host, target, token).map_err(|error| {
        Failure::new(format!("the sandbox's client could not ask {host}"))
            .because(error.to_string())
    })
}

fn exchange(
    host: &str,
    target: &str,
    token: &str,
) -> Result<(u16, String), Box<dyn std::error::Error>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(trust::CERTIFICATE)? {
        roots.add(certificate?)?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect((host, 443))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let connection =
        ClientConnection::new(Arc::new(config), ServerName::try_from(host.to_owned())?)?;
    let mut stream = StreamOwned::new(connection, stream);
    let mut request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    if !token.is_empty() {
        write!(request, "Authorization: Bearer {token}\r\n")?;
    }
    stream.write_all(format!("{request}\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, content) = answer
        .split_once("\r\n\r\n")
        .ok_or("the answer has no head")?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .ok_or("the answer has no status")?;
    Ok((status, content.to_owned()))
}
