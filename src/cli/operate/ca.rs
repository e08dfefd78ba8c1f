//! `gateway session ca`: the CA certificate that clients of `gateway serve` must trust.

use clap::Args;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::config::Config;
use crate::names::{SessionId, hex};

use crate::app::client_environment::{certificate, damaged};
use crate::app::{Code, ConfigFile, Failure, Terminal};

/// Prints the certificate.
#[derive(Args)]
pub(crate) struct CaCommand {
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
    pub(crate) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
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

    /// Returns the named session, or the only one that has a listener.
    fn session<'a>(&self, config: &'a Config) -> Result<&'a SessionId, Failure> {
        let sessions = config.listeners.iter();
        let sessions = sessions.filter_map(|listener| listener.session.one());
        let mut sessions: Vec<&SessionId> = sessions.collect();
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
