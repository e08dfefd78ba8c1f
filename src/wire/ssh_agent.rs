//! The messages of SSH agents that the gateway reads and writes: which keys there are, and to sign
//! (draft-ietf-sshm-ssh-agent, 3.2 and 3.6). And the data that git has signed: `SSHSIG` (OpenSSH's
//! PROTOCOL.sshsig) with the digest of a commit or tag, which it does not show.

use super::cursor::{Cursor, ReadError};

/// The longest message, without its length.
pub const MOST: usize = 16 * 1024;

const FAILURE: u8 = 5;
const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES_ANSWER: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGN_RESPONSE: u8 = 14;
/// The most keys that an agent may list.
const MOST_KEYS: u32 = 256;

/// Bytes that are no message: more follows it, its kind is not known, or it lists more keys than an
/// agent has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// A request to an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'b> {
    /// Which keys there are.
    Identities,
    /// Sign data with a key.
    Sign(SignRequest<'b>),
    /// A request that no client of the gateway's needs.
    Other,
}

/// A request to sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignRequest<'b> {
    /// The public key, as SSH encodes it.
    pub key: &'b [u8],
    /// What is to be signed.
    pub data: &'b [u8],
    /// Which hash a key of RSA uses.
    pub flags: u32,
}

/// An agent's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer<'b> {
    /// It refuses.
    Failure,
    /// Its public keys, as SSH encodes them.
    Identities(Vec<&'b [u8]>),
    /// A signature, as SSH encodes it.
    Signature(&'b [u8]),
}

impl<'b> Request<'b> {
    /// Reads a whole request, without the length before it.
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn read(message: &'b [u8]) -> Result<Self, ReadError<Malformed>> {
        let mut cursor = Cursor::new(message);
        let [kind] = cursor.array()?;
        let request = match kind {
            REQUEST_IDENTITIES => Self::Identities,
            SIGN_REQUEST => Self::Sign(SignRequest {
                key: cursor.vec32()?,
                data: cursor.vec32()?,
                flags: cursor.u32()?,
            }),
            _ => return Ok(Self::Other),
        };
        ends(&cursor).map(|()| request)
    }

    /// Writes the request, with its length.
    pub fn write(&self) -> Vec<u8> {
        match self {
            Self::Identities => message(REQUEST_IDENTITIES, &[]),
            Self::Sign(sign) => message(
                SIGN_REQUEST,
                &[
                    &counted(sign.key),
                    &counted(sign.data),
                    &sign.flags.to_be_bytes(),
                ],
            ),
            Self::Other => message(0, &[]),
        }
    }
}

impl<'b> Answer<'b> {
    /// Reads a whole answer, without the length before it. Comments of keys are not kept.
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn read(message: &'b [u8]) -> Result<Self, ReadError<Malformed>> {
        let mut cursor = Cursor::new(message);
        let [kind] = cursor.array()?;
        let answer = match kind {
            FAILURE => Self::Failure,
            IDENTITIES_ANSWER => {
                let count = cursor.u32()?;
                if count > MOST_KEYS {
                    return Err(ReadError::Malformed(Malformed));
                }
                let mut keys = Vec::new();
                for _ in 0..count {
                    keys.push(cursor.vec32()?);
                    cursor.vec32()?;
                }
                Self::Identities(keys)
            }
            SIGN_RESPONSE => Self::Signature(cursor.vec32()?),
            _ => return Err(ReadError::Malformed(Malformed)),
        };
        ends(&cursor).map(|()| answer)
    }

    /// Writes the answer, with its length. Keys get no comments.
    pub fn write(&self) -> Vec<u8> {
        match self {
            Self::Failure => message(FAILURE, &[]),
            Self::Identities(keys) => {
                let each = keys.iter().flat_map(|key| [counted(key), counted(b"")]);
                let all: Vec<u8> = each.flatten().collect();
                let count = keys.len() as u32;
                message(IDENTITIES_ANSWER, &[&count.to_be_bytes(), &all])
            }
            Self::Signature(signature) => message(SIGN_RESPONSE, &[&counted(signature)]),
        }
    }
}

/// Writes bytes with their count before them.
fn counted(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

fn ends(cursor: &Cursor<'_>) -> Result<(), ReadError<Malformed>> {
    match cursor.rest() {
        [] => Ok(()),
        _ => Err(ReadError::Malformed(Malformed)),
    }
}

fn message(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    counted(&[&[kind][..], &parts.concat()].concat())
}

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
pub fn check_signed(data: &[u8]) -> Result<(), NotOfGit> {
    signed(&mut Cursor::new(data)).map_err(|error| match error {
        ReadError::Incomplete => NotOfGit::Length,
        ReadError::Malformed(fault) => fault,
    })
}

fn signed(cursor: &mut Cursor<'_>) -> Result<(), ReadError<NotOfGit>> {
    let is = |holds, fault| match holds {
        true => Ok(()),
        false => Err(ReadError::Malformed(fault)),
    };
    // What is shorter than the magic is no `SSHSIG` either.
    is(cursor.array() == Ok(*b"SSHSIG"), NotOfGit::Format)?;
    is(cursor.vec32()? == b"git", NotOfGit::Namespace)?;
    is(cursor.vec32()?.is_empty(), NotOfGit::Reserved)?;
    let digest = (cursor.vec32()?, cursor.vec32()?.len());
    let is_known = matches!(digest, (b"sha256", 32) | (b"sha512", 64));
    is(is_known, NotOfGit::Digest)?;
    is(cursor.rest().is_empty(), NotOfGit::Length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(key: Vec<u8>, data: Vec<u8>, flags: u32, keys: Vec<Vec<u8>>) {
            let sign = SignRequest { key: &key, data: &data, flags };
            for request in [Request::Identities, Request::Sign(sign), Request::Other] {
                let written = request.write();
                prop_assert_eq!(Request::read(&written[4..]), Ok(request));
            }
            let keys = keys.iter().map(Vec::as_slice).collect();
            for answer in [Answer::Failure, Answer::Identities(keys), Answer::Signature(&data)] {
                let written = answer.write();
                prop_assert_eq!(Answer::read(&written[4..]), Ok(answer));
            }
        }

        #[test]
        fn a_cut_or_longer_message_is_none(key: Vec<u8>, data: Vec<u8>, more in 1..9_usize) {
            let sign = Request::Sign(SignRequest { key: &key, data: &data, flags: 4 }).write();
            let answer = Answer::Signature(&data).write();
            for end in 4..sign.len() {
                prop_assert_eq!(Request::read(&sign[4..end]), Err(ReadError::Incomplete));
            }
            let longer = [&sign[4..], &vec![0; more]].concat();
            let trailing = ReadError::Malformed(Malformed);
            prop_assert_eq!(Request::read(&longer), Err(trailing));
            let longer = [&answer[4..], &vec![0; more]].concat();
            prop_assert_eq!(Answer::read(&longer), Err(trailing));
        }

        #[test]
        fn no_bytes_make_the_readers_panic(bytes: Vec<u8>) {
            let _ = Request::read(&bytes);
            let _ = Answer::read(&bytes);
        }
    }

    #[test]
    fn a_list_of_more_keys_than_an_agent_has_is_refused_before_it_is_read() {
        let many = [&[IDENTITIES_ANSWER][..], &257_u32.to_be_bytes()].concat();
        let too_many = Err(ReadError::Malformed(Malformed));
        assert_eq!(Answer::read(&many), too_many);
    }

    fn data(parts: [&[u8]; 4]) -> Vec<u8> {
        [&b"SSHSIG"[..], &parts.map(counted).concat()].concat()
    }

    #[test]
    fn only_what_git_has_signed_passes() {
        let digest = [7; 64];
        let known = data([b"git", b"", b"sha512", &digest]);
        assert_eq!(check_signed(&known), Ok(()));
        assert_eq!(
            check_signed(&data([b"git", b"", b"sha256", &digest[..32]])),
            Ok(())
        );
        for namespace in [&b"file"[..], b"", b"GIT", b"git\0", b"gitx"] {
            let other = data([namespace, b"", b"sha512", &digest]);
            assert_eq!(check_signed(&other), Err(NotOfGit::Namespace));
        }
        let reserved = data([b"git", b"x", b"sha512", &digest]);
        assert_eq!(check_signed(&reserved), Err(NotOfGit::Reserved));
        for (algorithm, length) in [("sha256", 64), ("sha512", 32), ("sha1", 20), ("", 0)] {
            let other = data([b"git", b"", algorithm.as_bytes(), &digest[..length]]);
            assert_eq!(check_signed(&other), Err(NotOfGit::Digest), "{algorithm}");
        }
        assert_eq!(
            check_signed(&[&known[..], b"\0"].concat()),
            Err(NotOfGit::Length)
        );
        for end in 0..known.len() {
            assert!(check_signed(&known[..end]).is_err(), "{end}");
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
            assert_eq!(check_signed(data), Err(NotOfGit::Format));
        }
    }

    proptest! {
        #[test]
        fn what_passes_is_of_one_form(bytes: Vec<u8>, rest: Vec<u8>, digest: [u8; 32]) {
            let begun = [&b"SSHSIG"[..], &counted(b"git"), &rest].concat();
            for written in [bytes, begun] {
                prop_assert!(check_signed(&written).is_err());
            }
            prop_assert_eq!(check_signed(&data([b"git", b"", b"sha256", &digest])), Ok(()));
        }
    }
}
