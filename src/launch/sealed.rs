//! Sealed memory files: what one process of the gateway hands to another, and nobody can change.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{MemfdFlags, SealFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::syscall;

/// Makes a file of these parts, one after the other, close-on-exec.
///
/// # Errors
/// The error of making or writing it.
pub fn of(name: &str, parts: &[&[u8]]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create(name, flags)?);
    parts.iter().try_for_each(|part| file.write_all(part))?;
    rustix::fs::fcntl_add_seals(&file, SEALS)?;
    Ok(file.into())
}

/// Reads a whole file.
///
/// # Errors
/// `InvalidData` if it is not sealed, or has more bytes than `most`.
pub fn content(file: OwnedFd, most: u64) -> io::Result<Vec<u8>> {
    // The seal makes it safe to check first and read afterwards.
    let is_sealed = rustix::fs::fcntl_get_seals(&file)?.contains(SEALS);
    let file = File::from(file);
    let bytes = file.metadata()?.len();
    if !is_sealed || bytes > most {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut content = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
    file.read_exact_at(&mut content, 0)?;
    Ok(content)
}

/// Makes a file that the next program inherits, by its number.
///
/// # Errors
/// As [`of`].
pub fn pass<T: Serialize>(name: &str, message: &T) -> io::Result<OwnedFd> {
    let file = of(name, &[&serde_json::to_vec(message)?])?;
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty())?;
    Ok(file)
}

/// Takes over what [`pass`] left open under a number, an argument of this program.
///
/// # Errors
/// `InvalidInput` if it is no number of a file; otherwise as [`content`].
pub fn take<T: DeserializeOwned>(number: &OsStr) -> io::Result<T> {
    Ok(serde_json::from_slice(&content(adopt(number)?, MOST)?)?)
}

/// Takes over the file that a number names.
///
/// # Errors
/// `InvalidInput` if it is none.
pub fn adopt(number: &OsStr) -> io::Result<OwnedFd> {
    let number = number.to_str().and_then(|text| text.parse().ok());
    let number = number.filter(|number| *number > 2);
    syscall::adopt(number.ok_or(io::ErrorKind::InvalidInput)?)
}

const SEALS: SealFlags = SealFlags::WRITE
    .union(SealFlags::SHRINK)
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);
const MOST: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_sealed_is_not_read() {
        let sealed = of("test", &[b"ab", b"c"]).unwrap();
        assert_eq!(content(sealed, 3).unwrap(), b"abc");
        assert!(content(of("test", &[b"abcd"]).unwrap(), 3).is_err());
        let open = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(content(open, 3).is_err());
    }
}
