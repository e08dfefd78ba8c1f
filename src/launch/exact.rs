//! Paths of any bytes, for messages between processes: serde accepts only UTF-8 paths.

/// A path.
pub mod one {
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes the path.
    ///
    /// # Errors
    /// Those of the format.
    pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().serialize(to)
    }

    /// Reads the path.
    ///
    /// # Errors
    /// Those of the format.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        OsString::deserialize(from).map(PathBuf::from)
    }
}

/// Several paths, in any collection.
pub mod list {
    use std::ffi::OsString;
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes the paths.
    ///
    /// # Errors
    /// Those of the format.
    pub fn serialize<'a, C, S>(paths: &'a C, to: S) -> Result<S::Ok, S::Error>
    where
        &'a C: IntoIterator<Item = &'a PathBuf>,
        S: Serializer,
    {
        to.collect_seq(paths.into_iter().map(|path| path.as_os_str()))
    }

    /// Reads the paths.
    ///
    /// # Errors
    /// Those of the format.
    pub fn deserialize<'de, C, D>(from: D) -> Result<C, D::Error>
    where
        C: FromIterator<PathBuf>,
        D: Deserializer<'de>,
    {
        let paths = Vec::<OsString>::deserialize(from)?;
        Ok(paths.into_iter().map(PathBuf::from).collect())
    }
}

/// Values by path.
pub mod map {
    use std::collections::BTreeMap;
    use std::ffi::{OsStr, OsString};
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes the map.
    ///
    /// # Errors
    /// Those of the format.
    pub fn serialize<V: Serialize, S: Serializer>(
        map: &BTreeMap<PathBuf, V>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let pairs: Vec<(&OsStr, &V)> = map
            .iter()
            .map(|(path, of)| (path.as_os_str(), of))
            .collect();
        pairs.serialize(to)
    }

    /// Reads the map.
    ///
    /// # Errors
    /// Those of the format.
    pub fn deserialize<'de, V: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<PathBuf, V>, D::Error> {
        let pairs = Vec::<(OsString, V)>::deserialize(from)?;
        Ok(pairs
            .into_iter()
            .map(|(path, of)| (path.into(), of))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;
    use std::path::{Path, PathBuf};

    use crate::request::KeptFolder;

    #[test]
    fn a_path_of_any_bytes_stays_what_it_is() {
        let odd = OsString::from_vec((1..=255).collect());
        let kept = KeptFolder {
            name: PathBuf::from(&odd),
            folder: Path::new("/").join(&odd),
        };
        let read = serde_json::from_slice(&serde_json::to_vec(&kept).unwrap());
        assert_eq!(kept, read.unwrap());
    }
}
