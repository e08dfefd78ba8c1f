//! What is signed for git: the data of a signature in the format `SSHSIG` (OpenSSH's
//! PROTOCOL.sshsig). It holds the digest of the commit or tag, which it does not show.

use gateway_wire::{Cursor, ReadError};

use super::message::{counted, string};

const MAGIC: &[u8; 6] = b"SSHSIG";
/// What git signs. A signature of one namespace verifies in no other.
const NAMESPACE: &[u8] = b"git";

gateway_names::words! {
    /// Why data is not what git has signed.
    pub enum NotOfGit {
        /// It is no `SSHSIG`: a login, above all.
        Format = "it is no `SSHSIG`: no login is signed",
        /// It is for another purpose than git's.
        Namespace = "its namespace is not `git`",
        /// It has a part that readers ignore.
        Reserved = "its reserved part is not empty",
        /// The digest is not of a known algorithm, or not as long as its digests are.
        Digest = "its digest is no SHA-256 and no SHA-512",
        /// More follows it.
        Trailing = "more follows it",
    }
}

gateway_names::words! {
    /// The algorithm of a digest.
    pub enum HashAlgorithm {
        /// SHA-256.
        Sha256 = "sha256",
        /// SHA-512.
        Sha512 = "sha512",
    }
}

/// The data of a signature for git.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignedCommit<'b> {
    /// The algorithm of the digest.
    pub algorithm: HashAlgorithm,
    /// The digest of the commit or tag.
    pub digest: &'b [u8],
}

impl<'b> SignedCommit<'b> {
    /// Reads the whole data.
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn read(data: &'b [u8]) -> Result<Self, ReadError<NotOfGit>> {
        let mut cursor = Cursor::new(data);
        // What is shorter than the magic is no `SSHSIG` either.
        match cursor.array() {
            Ok(magic) if magic == *MAGIC => {}
            _ => return Err(ReadError::Malformed(NotOfGit::Format)),
        }
        let is = |holds, fault| match holds {
            true => Ok(()),
            false => Err(ReadError::Malformed(fault)),
        };
        is(string(&mut cursor)? == NAMESPACE, NotOfGit::Namespace)?;
        is(string(&mut cursor)?.is_empty(), NotOfGit::Reserved)?;
        let algorithm = match string(&mut cursor)? {
            b"sha256" => HashAlgorithm::Sha256,
            b"sha512" => HashAlgorithm::Sha512,
            _ => return Err(ReadError::Malformed(NotOfGit::Digest)),
        };
        let digest = string(&mut cursor)?;
        is(digest.len() == algorithm.length(), NotOfGit::Digest)?;
        is(cursor.rest().is_empty(), NotOfGit::Trailing)?;
        Ok(Self { algorithm, digest })
    }

    /// Writes the data.
    pub fn write(&self) -> Vec<u8> {
        let algorithm = self.algorithm.as_str().as_bytes();
        let parts = [NAMESPACE, b"", algorithm, self.digest].map(counted);
        [&MAGIC[..], &parts.concat()].concat()
    }
}

impl HashAlgorithm {
    /// Returns the length of a digest in bytes.
    pub const fn length(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn data(namespace: &[u8], reserved: &[u8], algorithm: &[u8], digest: &[u8]) -> Vec<u8> {
        let parts = [namespace, reserved, algorithm, digest].map(counted);
        [&MAGIC[..], &parts.concat()].concat()
    }

    fn fault(data: &[u8]) -> NotOfGit {
        match SignedCommit::read(data) {
            Err(ReadError::Malformed(fault)) => fault,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_what_git_has_signed_is_read() {
        let digest = [7; 64];
        assert!(SignedCommit::read(&data(b"git", b"", b"sha512", &digest)).is_ok());
        for namespace in [&b"file"[..], b"", b"GIT", b"git\0", b"gitx"] {
            let other = data(namespace, b"", b"sha512", &digest);
            assert_eq!(fault(&other), NotOfGit::Namespace);
        }
        let reserved = data(b"git", b"x", b"sha512", &digest);
        assert_eq!(fault(&reserved), NotOfGit::Reserved);
        for (algorithm, length) in [("sha256", 64), ("sha512", 32), ("sha1", 20), ("", 0)] {
            let other = data(b"git", b"", algorithm.as_bytes(), &digest[..length]);
            assert_eq!(fault(&other), NotOfGit::Digest, "{algorithm}");
        }
        let mut longer = data(b"git", b"", b"sha512", &digest);
        longer.push(0);
        assert_eq!(fault(&longer), NotOfGit::Trailing);
    }

    /// RFC 4252 §7: what a client signs to log in, which begins with the session's id.
    #[test]
    fn a_login_is_no_commit() {
        let login = [
            &counted(&[9; 32])[..],
            &[50],
            &counted(b"git"),
            &counted(b"ssh-connection"),
            &counted(b"publickey"),
            &[1],
            &counted(b"ssh-ed25519"),
            &counted(&[1; 51]),
        ]
        .concat();
        assert_eq!(fault(&login), NotOfGit::Format);
        assert_eq!(fault(b""), NotOfGit::Format);
        assert_eq!(fault(b"SSHSI"), NotOfGit::Format);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_nothing_less(digest: [u8; 32]) {
            let digest = [digest, digest].concat();
            for algorithm in HashAlgorithm::ALL {
                let commit = SignedCommit { algorithm, digest: &digest[..algorithm.length()] };
                let written = commit.write();
                prop_assert_eq!(SignedCommit::read(&written), Ok(commit));
                for end in 0..written.len() {
                    prop_assert!(SignedCommit::read(&written[..end]).is_err());
                }
            }
        }

        #[test]
        fn what_is_read_was_written_so(bytes: Vec<u8>, rest: Vec<u8>) {
            for data in [bytes.clone(), [&MAGIC[..], &counted(b"git"), &rest].concat()] {
                if let Ok(commit) = SignedCommit::read(&data) {
                    prop_assert_eq!(commit.write(), data);
                }
            }
        }
    }
}
