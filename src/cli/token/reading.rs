//! Reads a token, which is never an argument.

use std::path::PathBuf;

use clap::Args;
use zeroize::Zeroizing;

use crate::app::{Context as _, Failure, safe};
use crate::credential::ring;
use crate::token::TokenMalformed;

/// Where a token is read from.
#[derive(Args)]
pub(crate) struct TokenSource {
    /// The file that has the token [default: standard input]
    #[arg(value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
}

impl TokenSource {
    pub(super) fn read(&self) -> Result<Zeroizing<String>, Failure> {
        let bytes = match &self.file {
            None => ring::read_secret("token: ").context("no token was read")?,
            Some(file) if file.to_string_lossy().starts_with("gwt1_") => return Err(typed()),
            Some(file) => {
                let what = format!("{} cannot be read", safe(&file.to_string_lossy()));
                Zeroizing::new(std::fs::read(file).context(what)?)
            }
        };
        let text = std::str::from_utf8(&bytes).context("the token is not text")?;
        Ok(text.trim_end_matches(['\r', '\n']).to_owned().into())
    }
}

fn typed() -> Failure {
    Failure::usage("a token is never an argument")
        .because("every process of this machine can read the arguments of another, and the shell keeps them")
        .next("give it on standard input, or name a file; and revoke the one that was typed")
}

pub(super) fn malformed(malformed: TokenMalformed) -> Failure {
    Failure::of("this is not a token", &malformed).next("take it as its gateway printed it, whole")
}
