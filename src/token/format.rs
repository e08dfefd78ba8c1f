//! The text of a token: `gwt1_`, then the macaroon's V2 form, with an empty location, in base64url
//! without padding.

use gateway_names::SessionId;
use libmacaroon::{Format, Macaroon};
use zeroize::Zeroizing;

use super::caveat::{Caveat, CaveatMalformed};
use super::chain::PrefixId;

/// A token's text. It is overwritten when dropped, and has no `Debug`.
pub struct Token(Zeroizing<String>);

impl Token {
    /// The text, which whoever has it can use.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a text is not a token, for whoever holds it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenMalformed {
    /// It begins otherwise.
    #[error("a token begins with `{PREFIX}`")]
    Prefix,
    /// It is longer than 4 KiB.
    #[error("a token has at most {LONGEST} bytes")]
    TooLong,
    /// It has more than 64 caveats.
    #[error("a token has at most {MOST_CAVEATS} caveats")]
    TooManyCaveats,
    /// It is cut or changed, or not written as tokens are.
    #[error("it is not whole, or not written as a gateway writes tokens")]
    Form,
    /// It has a caveat of a third party.
    #[error("it has a caveat of a third party, which no gateway takes")]
    ThirdParty,
    /// It has a caveat that is none.
    #[error("its caveat {0:?} is none: {1}")]
    Caveat(String, CaveatMalformed),
}

/// What a token says. Nothing of it is verified.
#[derive(Debug)]
pub struct UnverifiedToken {
    /// The number of the key that signs it.
    pub key: u8,
    /// The session that it is for.
    pub session: SessionId,
    /// What narrows it.
    pub caveats: Box<[Caveat]>,
    /// The id by which it is revoked, with all that is derived from it.
    pub id: PrefixId,
}

/// Reads a token without its key.
///
/// # Errors
/// [`TokenMalformed`] by cause.
pub fn inspect(text: &str) -> Result<UnverifiedToken, TokenMalformed> {
    let (macaroon, key, session) = read(text)?;
    Ok(UnverifiedToken {
        key,
        session,
        caveats: typed(&macaroon)?,
        id: PrefixId::of(macaroon.signature().as_ref()),
    })
}

/// Narrows a token, without its key and without asking anybody.
///
/// # Errors
/// [`TokenMalformed`] by cause.
pub fn attenuate(text: &str, caveats: &[Caveat]) -> Result<Token, TokenMalformed> {
    let (macaroon, ..) = read(text)?;
    typed(&macaroon)?;
    written(macaroon, caveats)
}

/// Reads a text that is in the one spelling of what it says: with its key's number and session.
pub(crate) fn read(text: &str) -> Result<(Macaroon, u8, SessionId), TokenMalformed> {
    if text.len() > LONGEST {
        return Err(TokenMalformed::TooLong);
    }
    let body = text.strip_prefix(PREFIX).ok_or(TokenMalformed::Prefix)?;
    let macaroon = Macaroon::deserialize(body).map_err(|_| TokenMalformed::Form)?;
    if macaroon.caveats().len() > MOST_CAVEATS {
        return Err(TokenMalformed::TooManyCaveats);
    }
    let (key, session) = identified(macaroon.identifier()).ok_or(TokenMalformed::Form)?;
    // The library also reads other forms, alphabets and padding.
    if macaroon.location() != Some("") || encoded(&macaroon)?.trim_end_matches('=') != body {
        return Err(TokenMalformed::Form);
    }
    if predicates(&macaroon).count() < macaroon.caveats().len() {
        return Err(TokenMalformed::ThirdParty);
    }
    Ok((macaroon, key, session))
}

/// Writes a macaroon with further caveats.
pub(crate) fn written(mut macaroon: Macaroon, caveats: &[Caveat]) -> Result<Token, TokenMalformed> {
    if macaroon.caveats().len() + caveats.len() > MOST_CAVEATS {
        return Err(TokenMalformed::TooManyCaveats);
    }
    for caveat in caveats {
        let added = macaroon.add_first_party_caveat(caveat.to_string());
        added.map_err(|_| TokenMalformed::TooLong)?;
    }
    let encoded = encoded(&macaroon)?;
    let text = [PREFIX, encoded.trim_end_matches('=')].concat();
    let token = Token(Zeroizing::new(text));
    if token.as_str().len() > LONGEST {
        return Err(TokenMalformed::TooLong);
    }
    Ok(token)
}

fn encoded(macaroon: &Macaroon) -> Result<Zeroizing<String>, TokenMalformed> {
    let text = macaroon.serialize(Format::V2);
    text.map(Zeroizing::new).map_err(|_| TokenMalformed::Form)
}

/// The texts of the caveats that are not of a third party.
pub(crate) fn predicates(macaroon: &Macaroon) -> impl Iterator<Item = &[u8]> {
    let caveats = macaroon.caveats().iter();
    caveats.filter_map(|caveat| Some(caveat.as_first_party()?.predicate()))
}

/// The caveats, each by its one spelling.
pub(crate) fn typed(macaroon: &Macaroon) -> Result<Box<[Caveat]>, TokenMalformed> {
    let typed = predicates(macaroon).map(|predicate| {
        let text = std::str::from_utf8(predicate).map_err(|_| CaveatMalformed::Unknown);
        let caveat = text.and_then(str::parse);
        caveat.map_err(|malformed| {
            let shown = String::from_utf8_lossy(predicate).into_owned();
            TokenMalformed::Caveat(shown, malformed)
        })
    });
    typed.collect()
}

/// The identifier: the version, the key's number, the session, and 12 random bytes.
pub(crate) fn identifier(key: u8, session: &SessionId, random: [u8; 12]) -> Vec<u8> {
    [&[VERSION, key], session.as_str().as_bytes(), &random].concat()
}

fn identified(identifier: &[u8]) -> Option<(u8, SessionId)> {
    let [VERSION, key, rest @ ..] = identifier else {
        return None;
    };
    let (session, _) = rest.split_last_chunk::<12>()?;
    let session = SessionId::new(std::str::from_utf8(session).ok()?).ok()?;
    Some((*key, session))
}

/// How the text of a token begins.
pub const PREFIX: &str = gateway_names::TOKEN_PREFIX;
/// No proxy's field is longer.
const LONGEST: usize = 4096;
const MOST_CAVEATS: usize = 64;
const VERSION: u8 = 1;
