//! The messages of SSH agents that the gateway reads and writes: which keys there are, and to sign
//! (draft-ietf-sshm-ssh-agent, §3.2 and §3.6). Every other request gets a failure.

use gateway_wire::{Cursor, ReadError};

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
                key: string(&mut cursor)?,
                data: string(&mut cursor)?,
                flags: u32::from_be_bytes(cursor.array()?),
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
                let count = u32::from_be_bytes(cursor.array()?);
                if count > MOST_KEYS {
                    return Err(ReadError::Malformed(Malformed));
                }
                let mut keys = Vec::new();
                for _ in 0..count {
                    keys.push(string(&mut cursor)?);
                    string(&mut cursor)?;
                }
                Self::Identities(keys)
            }
            SIGN_RESPONSE => Self::Signature(string(&mut cursor)?),
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

/// Reads bytes whose count comes before them, in four.
pub(crate) fn string<'b, M>(cursor: &mut Cursor<'b>) -> Result<&'b [u8], ReadError<M>> {
    let length = u32::from_be_bytes(cursor.array()?);
    // A length that no message has is beyond the bytes on every machine.
    Ok(cursor.bytes(usize::try_from(length).unwrap_or(usize::MAX))?)
}

/// Writes bytes with their count before them.
pub(crate) fn counted(bytes: &[u8]) -> Vec<u8> {
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
            let trailing = Err(ReadError::Malformed(Malformed));
            prop_assert_eq!(Request::read(&longer), trailing);
            let longer = [&answer[4..], &vec![0; more]].concat();
            prop_assert_eq!(Answer::read(&longer).unwrap_err(), trailing.unwrap_err());
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
}
