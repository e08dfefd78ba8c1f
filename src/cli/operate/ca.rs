//! `gateway session ca`: the CA certificate that clients of `gateway serve` must trust.

use clap::Args;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::cli::operate::env::listener;
use crate::config::Listener;
use crate::names::hex;

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
        let has_one = |one: &Listener| one.session.one().is_some();
        let found = listener(&config, self.session.as_deref(), has_one)?;
        let none = || Failure::usage("no listener has that session");
        let session = found.and_then(|one| one.session.one());
        let session = session.ok_or_else(|| none().next("name one of a [[listener]]"))?;
        let (path, pem) = certificate(&config, session)?;
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
