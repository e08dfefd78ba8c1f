//! Writes the files that a workload reads: the CA's certificate, and its phantoms.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::login::login_files;
use crate::write::WrittenFile;
use gateway_config::Config;
use gateway_credential::login::{Login, LoginPlace};
use gateway_intercept::SessionCa;
use gateway_session::phantom::Phantoms;
use gateway_session::{Bindings, Session};

/// Files for workloads, written next to the ones that they replace. No workload reads them yet.
#[derive(Default)]
pub struct Publication {
    written: Vec<WrittenFile>,
    /// Files that are removed from workloads.
    removed: Vec<PathBuf>,
}

impl Publication {
    /// Writes the CA's certificate of a session, if the configuration names a file for it.
    ///
    /// # Errors
    /// Returns a [`Failure`] that names the file.
    pub fn certificate(
        &mut self,
        config: &Config,
        session: &Session,
        ca: &SessionCa,
    ) -> Result<(), Failure> {
        let file = config.ca.certificate_of(session.id());
        let Some(path) = file else { return Ok(()) };
        let written = WrittenFile::new(&path, ca.certificate_pem().as_bytes(), 0o644)?;
        self.written.extend(written);
        Ok(())
    }

    /// Writes the phantoms of a session, if the configuration names a file for them, and next to it
    /// the files of these logins. Files of former logins are removed.
    ///
    /// # Errors
    /// As [`Publication::certificate`].
    pub fn phantoms(
        &mut self,
        config: &Config,
        (bindings, logins, former): (&Bindings, &[Login], &[Login]),
        (session, phantoms): (&Session, &Phantoms),
    ) -> Result<(), Failure> {
        let file = config.phantoms.file_of(session.id());
        let Some(path) = file else { return Ok(()) };
        let lines: String = bindings
            .environment(phantoms)
            .map(|(name, phantom)| quoted(name, phantom))
            .collect();
        let written = WrittenFile::new(&path, lines.as_bytes(), 0o600)?;
        self.written.extend(written);
        let files = login_files::of(logins, phantoms)?;
        for file in &files {
            let beside = login_files::beside(&path, &file.path);
            self.written
                .extend(WrittenFile::new(&beside, &file.content, 0o600)?);
        }
        let known = logins.iter().chain(former);
        let known = known.filter_map(|login| match &login.place {
            LoginPlace::File(file) => Some(&file.inside),
            LoginPlace::State => None,
        });
        let gone = known.filter(|known| files.iter().all(|file| file.path != **known));
        let gone = gone.map(|known| login_files::beside(&path, known));
        self.removed.extend(gone);
        Ok(())
    }

    /// Puts all of them in place. Returns the failures, which are rare: the folders were written to
    /// a moment ago.
    pub fn publish(self) -> Vec<Failure> {
        let replaced = self.written.into_iter().map(WrittenFile::replace);
        let removed = self.removed.iter().map(|file| removed(file));
        replaced.chain(removed).filter_map(Result::err).collect()
    }
}

fn removed(file: &Path) -> Result<(), Failure> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            let what = format!("`{}` cannot be removed", file.display());
            Err(Failure::new(what).because(error.to_string()))
        }
        _ => Ok(()),
    }
}

/// Returns one line for the phantom file. The value is written as it is, except a multi-line
/// private key: it is in double quotes, with `\n` for each line end, as readers of such files
/// expect.
pub fn quoted(name: &str, value: &str) -> String {
    if !value.starts_with('"') && !value.contains(char::is_control) {
        return format!("{name}={value}\n");
    }
    let escaped: String = value
        .chars()
        .map(|char| match char {
            '\n' => String::from("\\n"),
            '\r' => String::from("\\r"),
            '\\' | '"' => format!("\\{char}"),
            other => String::from(other),
        })
        .collect();
    format!("{name}=\"{escaped}\"\n")
}

/// Reads a value as [`quoted`] wrote it.
pub fn unquoted(value: &str) -> String {
    let Some(inner) = value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
    else {
        return value.to_owned();
    };
    let mut chars = inner.chars();
    let mut text = String::with_capacity(inner.len());
    while let Some(char) = chars.next() {
        let char = match char {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some(other) => other,
                None => '\\',
            },
            other => other,
        };
        text.push(char);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_file_of_phantoms_reads_as_it_was_written() {
        for (value, wanted) in [
            ("ghp_x\\n", "N=ghp_x\\n\n"),
            ("a\n\\\"b\r\n", "N=\"a\\n\\\\\\\"b\\r\\n\"\n"),
            ("\"", "N=\"\\\"\"\n"),
        ] {
            let line = quoted("N", value);
            assert_eq!(line, wanted);
            let (_, read) = line.trim_end().split_once('=').unwrap();
            assert_eq!(unquoted(read), value);
        }
    }
}
