//! Reads git's settings files.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::failure::{At, Failure, Step};

/// One setting.
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    /// The name of its section without a subsection, in lower case.
    pub section: String,
    /// The name, in lower case.
    pub key: String,
    /// The value as written.
    pub value: String,
}

/// Reads the settings of a file, if it exists and can be read at all.
///
/// # Errors
/// A [`Step::Git`] failure if it is not a settings file.
pub fn settings(file: &Path) -> Result<Vec<Setting>, Failure> {
    match read(file) {
        Ok(text) => Ok(parse(&String::from_utf8_lossy(&text))),
        Err(error) if is_out_of_reach(&error) => Ok(Vec::new()),
        Err(error) => Err(error).at(Step::Git, file.display().to_string()),
    }
}

/// Whether there is no such file, or none that this user can read.
pub fn is_out_of_reach(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::NotADirectory
    )
}

/// Reads settings as far as they are ones.
pub fn parse(text: &str) -> Vec<Setting> {
    let joined = text.replace("\\\r\n", "").replace("\\\n", "");
    let mut section = String::new();
    let mut found = Vec::new();
    for line in joined.lines().map(str::trim) {
        let rest = match line.strip_prefix('[').map(end_of_header) {
            None => line,
            Some((header, rest)) => {
                let name = header
                    .split([' ', '\t', '"', '.'])
                    .next()
                    .unwrap_or_default();
                section = name.to_ascii_lowercase();
                rest
            }
        };
        if let Some((key, value)) = rest.split_once('=') {
            found.push(Setting {
                section: section.clone(),
                key: key.trim().to_ascii_lowercase(),
                value: value.trim().to_owned(),
            });
        }
    }
    found
}

/// Splits the line after a `[` at the first `]` outside quotes.
fn end_of_header(line: &str) -> (&str, &str) {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in line.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            ']' if !quoted => return (&line[..at], &line[at + 1..]),
            _ => {}
        }
    }
    (line, "")
}

/// Reads a settings file that a command may have created.
///
/// # Errors
/// As [`read_within`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_within(path, FILE_BYTES)
}

/// Reads a file that a command may have created: a regular file, no link, up to a size limit.
///
/// # Errors
/// Returns an error if it cannot be opened or is no such file.
pub fn read_within(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let mut content = Vec::new();
    let found = file.metadata()?;
    if found.is_file() && found.len() <= most {
        // A large one takes no more memory than it has bytes.
        content.reserve_exact(found.len() as usize + 1);
        file.take(most + 1).read_to_end(&mut content)?;
        if content.len() as u64 <= most {
            return Ok(content);
        }
    }
    Err(ErrorKind::InvalidData.into())
}

/// The most bytes that are read from a file. A larger file is not a settings file.
const FILE_BYTES: u64 = 1 << 20;
