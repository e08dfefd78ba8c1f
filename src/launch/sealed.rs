//! Sealed memory files: messages between processes of the gateway that no process can change.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{MemfdFlags, SealFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::syscall;

/// Makes a file of these parts, close-on-exec.
///
/// # Errors
/// The error of making or writing it.
pub fn of<const N: usize>(name: &str, parts: [&[u8]; N]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create(name, flags)?);
    for part in parts {
        file.write_all(&(part.len() as u64).to_be_bytes())?;
        file.write_all(part)?;
    }
    rustix::fs::fcntl_add_seals(&file, SEALS)?;
    Ok(file.into())
}

/// Reads the parts of a file.
///
/// # Errors
/// `InvalidData` if it is not sealed, has more than 16 MiB, or has other parts.
pub fn parts<const N: usize>(file: OwnedFd) -> io::Result<[Vec<u8>; N]> {
    // The seal makes it safe to check first and read afterwards.
    let is_sealed = rustix::fs::fcntl_get_seals(&file)?.contains(SEALS);
    let file = File::from(file);
    let bytes = file.metadata()?.len();
    if !is_sealed || bytes > MOST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut content = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
    file.read_exact_at(&mut content, 0)?;
    split(&content).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn split<const N: usize>(mut rest: &[u8]) -> Option<[Vec<u8>; N]> {
    let mut parts = Vec::with_capacity(N);
    for _ in 0..N {
        let (length, after) = rest.split_first_chunk()?;
        let length = usize::try_from(u64::from_be_bytes(*length)).ok()?;
        let (part, after) = after.split_at_checked(length)?;
        parts.push(part.to_vec());
        rest = after;
    }
    parts.try_into().ok().filter(|_| rest.is_empty())
}

/// Makes a file that the next program inherits, by its number.
///
/// # Errors
/// As [`of`].
pub fn pass<T: Serialize>(name: &str, message: &T) -> io::Result<OwnedFd> {
    let file = of(name, [&serde_json::to_vec(message)?])?;
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty())?;
    Ok(file)
}

/// Takes over the file that [`pass`] left open under a number, an argument of this program.
///
/// # Errors
/// `InvalidInput` if the argument is not the number of an open file; otherwise as [`parts`].
pub fn take<T: DeserializeOwned>(number: &OsStr) -> io::Result<T> {
    let [message] = parts(adopt(number)?)?;
    Ok(serde_json::from_slice(&message)?)
}

/// Takes over the file that a number names.
///
/// # Errors
/// `InvalidInput` if the number is not that of an open file.
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
        let sealed = of("test", [b"ab", b""]).unwrap();
        assert_eq!(parts(sealed).unwrap(), [b"ab".to_vec(), Vec::new()]);
        assert!(parts::<3>(of("test", [b"ab", b""]).unwrap()).is_err());
        let open = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(parts::<0>(open).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes: Vec<u8>) {
            let _ = split::<2>(&bytes);
        }
    }
}
