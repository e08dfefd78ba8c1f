//! `gateway ca`: the CA certificate that clients of `gateway serve` must trust.

use clap::Args;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::config::Config;
use crate::names::{SessionId, hex};

use super::failure::{Code, Failure};
use super::flags::ConfigFile;
use super::terminal::Terminal;

/// Prints the certificate.
#[derive(Args)]
pub(super) struct CaCommand {
    /// Print the file's path instead
    #[arg(long)]
    path: bool,
    /// The session whose CA is meant [default: the only one]
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    #[command(flatten)]
    config: ConfigFile,
}

impl CaCommand {
    pub(super) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let config = self.config.read(terminal)?;
        let (path, pem) = certificate(&config, self.session(&config)?)?;
        if terminal.json() {
            let der = CertificateDer::from_pem_slice(&pem).map_err(|_| damaged(&path))?;
            let digest = hex(&Sha256::digest(&der));
            let text = String::from_utf8_lossy(&pem);
            terminal.document(&json!({ "path": path, "sha256": digest, "certificate": text }));
        } else if self.path {
            terminal.line(path.display().to_string());
        } else {
            terminal.line(String::from_utf8_lossy(&pem).trim_end());
        }
        Ok(Code::Ok)
    }
}

impl CaCommand {
    /// Returns the named session, or the only one that has a listener.
    fn session<'a>(&self, config: &'a Config) -> Result<&'a SessionId, Failure> {
        let mut sessions: Vec<&SessionId> = config
            .listeners
            .iter()
            .map(|listener| &listener.session)
            .collect();
        sessions.sort();
        sessions.dedup();
        sessions.retain(|session| {
            self.session
                .as_deref()
                .is_none_or(|name| name == session.as_str())
        });
        match sessions[..] {
            [session] => Ok(session),
            [] => {
                Err(Failure::usage("no listener has that session")
                    .next("name one of a [[listener]]"))
            }
            _ => Err(Failure::usage("several sessions have a listener")
                .next("name one: `--session NAME`")),
        }
    }
}

/// Returns a session's certificate file and its content, which must be exactly one certificate.
///
/// # Errors
/// Returns a [`Failure`] if no file is configured, it does not exist, or it is not a certificate.
pub(super) fn certificate(
    config: &Config,
    session: &SessionId,
) -> Result<(std::path::PathBuf, Vec<u8>), Failure> {
    let path = config.ca.certificate_of(session).ok_or_else(|| {
        Failure::usage("the configuration writes no CA certificate")
            .because(
                "`certificate` of [ca] is not set, and the CA lives in the gateway's memory alone",
            )
            .next("add `[ca]` with `certificate = \"ca.pem\"` and start `gateway serve` again")
    })?;
    let pem = std::fs::read(&path).map_err(|error| {
        Failure::new(format!("`{}` cannot be read", path.display()))
            .because(error.to_string())
            .next("`gateway serve` writes it when it starts: is it running?")
    })?;
    CertificateDer::from_pem_slice(&pem).map_err(|_| damaged(&path))?;
    Ok((path, pem))
}

fn damaged(path: &std::path::Path) -> Failure {
    Failure::new(format!("`{}` is no certificate", path.display()))
        .next("remove it and start `gateway serve` again")
}
