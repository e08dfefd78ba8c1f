//! What is signed for git: the data of a signature in the format `SSHSIG` (OpenSSH's
//! PROTOCOL.sshsig). It holds the digest of the commit or tag, which it does not show.

use gateway_wire::{Cursor, ReadError};

use super::message::string;

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
        /// It ends too early, or more follows it.
        Length = "it is not as long as it says",
    }
}

/// Checks that data is of a signature for git: the whole of it, in its one form.
///
/// # Errors
/// [`NotOfGit`]
pub fn check(data: &[u8]) -> Result<(), NotOfGit> {
    read(&mut Cursor::new(data)).map_err(|error| match error {
        ReadError::Incomplete => NotOfGit::Length,
        ReadError::Malformed(fault) => fault,
    })
}

fn read(cursor: &mut Cursor<'_>) -> Result<(), ReadError<NotOfGit>> {
    let is = |holds, fault| match holds {
        true => Ok(()),
        false => Err(ReadError::Malformed(fault)),
    };
    // What is shorter than the magic is no `SSHSIG` either.
    is(cursor.array() == Ok(*b"SSHSIG"), NotOfGit::Format)?;
    is(string(cursor)? == b"git", NotOfGit::Namespace)?;
    is(string(cursor)?.is_empty(), NotOfGit::Reserved)?;
    let digest = (string(cursor)?, string(cursor)?.len());
    let is_known = matches!(digest, (b"sha256", 32) | (b"sha512", 64));
    is(is_known, NotOfGit::Digest)?;
    is(cursor.rest().is_empty(), NotOfGit::Length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message::counted;

    fn data(parts: [&[u8]; 4]) -> Vec<u8> {
        [&b"SSHSIG"[..], &parts.map(counted).concat()].concat()
    }

    #[test]
    fn only_what_git_has_signed_passes() {
        let digest = [7; 64];
        let known = data([b"git", b"", b"sha512", &digest]);
        assert_eq!(check(&known), Ok(()));
        assert_eq!(
            check(&data([b"git", b"", b"sha256", &digest[..32]])),
            Ok(())
        );
        for namespace in [&b"file"[..], b"", b"GIT", b"git\0", b"gitx"] {
            let other = data([namespace, b"", b"sha512", &digest]);
            assert_eq!(check(&other), Err(NotOfGit::Namespace));
        }
        let reserved = data([b"git", b"x", b"sha512", &digest]);
        assert_eq!(check(&reserved), Err(NotOfGit::Reserved));
        for (algorithm, length) in [("sha256", 64), ("sha512", 32), ("sha1", 20), ("", 0)] {
            let other = data([b"git", b"", algorithm.as_bytes(), &digest[..length]]);
            assert_eq!(check(&other), Err(NotOfGit::Digest), "{algorithm}");
        }
        assert_eq!(check(&[&known[..], b"\0"].concat()), Err(NotOfGit::Length));
        for end in 0..known.len() {
            assert!(check(&known[..end]).is_err(), "{end}");
        }
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
        for data in [&login[..], b"", b"SSHSI"] {
            assert_eq!(check(data), Err(NotOfGit::Format));
        }
    }

    proptest! {
        #[test]
        fn what_passes_is_of_one_form(bytes: Vec<u8>, rest: Vec<u8>, digest: [u8; 32]) {
            let begun = [&b"SSHSIG"[..], &counted(b"git"), &rest].concat();
            for written in [bytes, begun] {
                prop_assert!(check(&written).is_err());
            }
            prop_assert_eq!(check(&data([b"git", b"", b"sha256", &digest])), Ok(()));
        }
    }
}
