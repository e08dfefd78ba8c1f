//! `gateway doctor`: whether what the gateway promises holds on this machine.

mod checks;
mod credentials;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clap::Args;
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;

use super::assembly::Assembly;
use super::demo;
use super::embedded::Embedded;
use super::escape;
use super::exec;
use super::expand::Expanded;
use super::failure::{Code, Failure};
use super::screen::Screen;
use crate::config::Config;
use crate::launch::Launch;
use crate::launch::enroll::GatewayEnd;

/// The first argument of what runs in the sandbox.
pub const CLIENTS: &str = "__doctor-clients";
/// The variable that holds the secret outside, the phantom inside.
const VARIABLE: &str = "DOCTOR_TOKEN";
const HOST: &str = "doctor.gateway.test";
/// What a client's output holds if the origin took its credential.
const MARK: &str = "gateway-doctor-ok";

/// Tell which of your clients get through, with a phantom and no setting of theirs; or whether the
/// sandbox holds; or what the credentials of a configuration lack
#[derive(Args)]
pub struct Doctor {
    /// Try every known way out of the sandbox instead, and print each verdict
    #[arg(long)]
    escape: bool,
    /// Fetch each credential of a configuration instead, and tell what it lacks; nothing is sent
    #[arg(long, value_name = "FILE", conflicts_with = "escape")]
    config: Option<PathBuf>,
}

impl Doctor {
    /// Examines what was asked for.
    ///
    /// # Errors
    /// A [`Failure`] where nothing could be examined.
    pub fn run(self, screen: &mut Screen) -> Result<Code, Failure> {
        if self.escape {
            return escape::check(screen);
        }
        if let Some(config) = &self.config {
            return credentials::run(config, screen);
        }
        let secret = demo::secret()?;
        let mut arguments = vec![
            "gateway".into(),
            CLIENTS.into(),
            checks::found().join(",").into(),
        ];
        if screen.json() {
            arguments.push("--json".into());
        }
        let launch = Launch {
            arguments,
            own_program: true,
            ..Launch::default()
        };
        exec::start(launch, &[(VARIABLE, &secret)])
    }

    /// Serves the clients' sandbox: the gateway process, with the origin beside it.
    ///
    /// # Errors
    /// A [`Failure`], which the launcher was told.
    pub fn serve(self, gateway: GatewayEnd) -> Result<Code, Failure> {
        let runtime = super::serving::runtime()?;
        let secret = std::env::var(VARIABLE).map_err(|_| {
            Failure::usage("the gateway process of `doctor` is for `doctor` itself")
        })?;
        let assembly = runtime.block_on(async {
            let origin = Embedded::serve(HOST, Arc::new(move |request| answer(&secret, request))).await?;
            let text = format!(
                "[[credential]]\nname = \"doctor\"\nfrom = \"env:{VARIABLE}\"\norigins = [\"https://{HOST}\"]\n\
                 places = [\"header:authorization:Bearer\", \"header:authorization\", \"basic:password\"]\nenv = [\"{VARIABLE}\"]\n"
            );
            let config = Config::from_str(&text, Path::new("the doctor's configuration"))?;
            let expanded = Expanded::of(&config, false)?;
            Assembly::with_origins(config, expanded, vec![origin.rule()])
        });
        exec::serve_on(&runtime, gateway, assembly, None)
    }
}

/// Runs every client that is here: the sandbox's command. `outside` names those that are there
/// outside it, with commas.
///
/// # Errors
/// A [`Failure`] where it is not run by `doctor`.
pub fn clients(screen: &Screen, outside: &str) -> Result<Code, Failure> {
    if std::env::var_os(VARIABLE).is_none() {
        return Err(Failure::usage(format!(
            "`{CLIENTS}` is for `doctor` itself"
        )));
    }
    checks::run(screen, &outside.split(',').collect::<Vec<_>>())
}

/// The origin: to whoever shows the secret, as much of each protocol as its client asks for.
fn answer(secret: &str, request: &http::Request<hyper::body::Incoming>) -> Response<Full<Bytes>> {
    if !shows(secret, request.headers().get(AUTHORIZATION)) {
        let mut response = Response::new(Full::new(Bytes::from_static(
            b"no credential, or another one\n",
        )));
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        let challenge = HeaderValue::from_static("Basic realm=\"doctor\"");
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        return response;
    }
    let (status, kind, content) = page(request.uri().path());
    let mut response = Response::new(Full::new(Bytes::from(content)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn shows(secret: &str, field: Option<&HeaderValue>) -> bool {
    let Some(field) = field.and_then(|value| value.to_str().ok()) else {
        return false;
    };
    match field.split_once(' ') {
        None => field == secret,
        Some(("Bearer", token)) => token == secret,
        Some(("Basic", coded)) => STANDARD
            .decode(coded)
            .is_ok_and(|text| text.split(|&byte| byte == b':').nth(1) == Some(secret.as_bytes())),
        Some(_) => false,
    }
}

fn page(path: &str) -> (StatusCode, &'static str, String) {
    let json = "application/json";
    let (kind, content) = match path {
        "/token" => ("text/plain", format!("{MARK}\n")),
        // One branch, as git's "smart" protocol of version 0 advertises it.
        "/git/info/refs" => {
            let line = format!(
                "{} refs/heads/{MARK}\0 agent=doctor\n",
                "0".repeat(39) + "1"
            );
            let content = format!(
                "001e# service=git-upload-pack\n0000{:04x}{line}0000",
                line.len() + 4
            );
            ("application/x-git-upload-pack-advertisement", content)
        }
        "/npm/-/ping" => (json, String::from("{}")),
        "/simple/gateway-doctor-ok/" => {
            let name = "gateway_doctor_ok-1.0-py3-none-any.whl";
            (
                "text/html",
                format!("<!DOCTYPE html><a href=\"/none/{name}\">{name}</a>"),
            )
        }
        "/cargo/config.json" => {
            let base = format!("https://{HOST}/cargo");
            (
                json,
                format!("{{\"dl\":\"{base}\",\"api\":\"{base}\",\"auth-required\":true}}"),
            )
        }
        "/cargo/api/v1/crates" => (json, String::from("{\"crates\":[],\"meta\":{\"total\":0}}")),
        "/go/gateway.test/gateway-doctor-ok/@v/list" => ("text/plain", String::from("v1.0.0\n")),
        "/go/gateway.test/gateway-doctor-ok/@v/v1.0.0.info" => (
            json,
            String::from("{\"Version\":\"v1.0.0\",\"Time\":\"2026-01-01T00:00:00Z\"}"),
        ),
        "/go/gateway.test/gateway-doctor-ok/@v/v1.0.0.mod" => (
            "text/plain",
            String::from("module gateway.test/gateway-doctor-ok\n"),
        ),
        _ => {
            return (
                StatusCode::NOT_FOUND,
                "text/plain",
                String::from("there is nothing\n"),
            );
        }
    };
    (StatusCode::OK, kind, content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origin_takes_the_secret_in_each_usual_place_and_nothing_else() {
        let secret = "doctor_0123456789";
        let shown = |text: &str| shows(secret, Some(&HeaderValue::from_str(text).unwrap()));
        assert!(shown("doctor_0123456789"));
        assert!(shown("Bearer doctor_0123456789"));
        assert!(shown(&format!(
            "Basic {}",
            STANDARD.encode("x:doctor_0123456789")
        )));
        for other in [
            "",
            "Bearer doctor_0123456780",
            "Basic ZG9jdG9y",
            "Digest doctor_0123456789",
        ] {
            assert!(!shown(other), "{other}");
        }
        assert!(!shows(secret, None));
    }
}
