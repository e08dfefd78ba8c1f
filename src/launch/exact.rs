//! Paths as text without loss, for what one process hands to another: each byte is one character.

/// A path.
pub mod one {
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes it.
    ///
    /// # Errors
    /// Those of the format.
    pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&super::text(path))
    }

    /// Reads it.
    ///
    /// # Errors
    /// Those of the format, and a character that is no byte.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        super::path(&String::deserialize(from)?)
    }
}

/// Several paths, in any collection.
pub mod list {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes them.
    ///
    /// # Errors
    /// Those of the format.
    pub fn serialize<'a, C, S>(paths: &'a C, to: S) -> Result<S::Ok, S::Error>
    where
        &'a C: IntoIterator<Item = &'a PathBuf>,
        S: Serializer,
    {
        to.collect_seq(paths.into_iter().map(|path| super::text(path)))
    }

    /// Reads them.
    ///
    /// # Errors
    /// Those of the format, and a character that is no byte.
    pub fn deserialize<'de, C, D>(from: D) -> Result<C, D::Error>
    where
        C: FromIterator<PathBuf>,
        D: Deserializer<'de>,
    {
        let texts = Vec::<String>::deserialize(from)?;
        texts.iter().map(|text| super::path(text)).collect()
    }
}

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

fn text(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes().iter();
    bytes.map(|byte| char::from(*byte)).collect()
}

fn path<E: serde::de::Error>(text: &str) -> Result<PathBuf, E> {
    let bytes = text.chars().map(|byte| u8::try_from(u32::from(byte)));
    let bytes: Result<Vec<u8>, _> = bytes.collect();
    Ok(PathBuf::from(OsString::from_vec(bytes.map_err(E::custom)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_any_bytes_stays_what_it_is() {
        let odd = OsString::from_vec((1..=255).collect());
        let read: Result<PathBuf, serde_json::Error> = path(&text(Path::new(&odd)));
        assert_eq!(read.unwrap(), Path::new(&odd));
        assert!(path::<serde_json::Error>("\u{100}").is_err());
    }
}
