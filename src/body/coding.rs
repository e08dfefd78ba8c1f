//! The content codings that can be decoded, as `Content-Encoding` and `Accept-Encoding` name them.

use std::fmt;

use http::{
    HeaderMap, HeaderValue,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING},
};

use super::Limit;

gateway_names::words! {
    /// A content coding that can be decoded while it streams.
    pub enum Coding {
        /// `gzip` and its old name `x-gzip`: RFC 1952, several members allowed.
        Gzip = "gzip",
        /// `deflate`: RFC 1950 (zlib), or the raw RFC 1951 format that some servers send under this
        /// name.
        Deflate = "deflate",
        /// `br`: RFC 7932, windows up to 16 MiB. The large-window format is a different coding.
        Brotli = "br",
        /// `zstd`: RFC 8878 with the 8 MiB window of RFC 9659, several frames allowed.
        Zstd = "zstd",
    }
}

impl Coding {
    /// The most stacked codings that are decoded. More are refused.
    pub const MOST: usize = 2;

    /// The coding with this name, case-insensitively (RFC 9110 §8.4.1).
    pub fn from_name(name: &[u8]) -> Option<Self> {
        [
            (&b"gzip"[..], Self::Gzip),
            (b"x-gzip", Self::Gzip),
            (b"deflate", Self::Deflate),
            (b"br", Self::Brotli),
            (b"zstd", Self::Zstd),
        ]
        .into_iter()
        .find_map(|(known, coding)| name.eq_ignore_ascii_case(known).then_some(coding))
    }

    /// The codings of a message, in the order they were applied, without `identity` and empty
    /// elements.
    ///
    /// RFC 9110 §8.4: all fields of the name form one list.
    ///
    /// # Errors
    /// [`Error::UnknownCoding`] for any other name, [`Error::TooManyCodings`] for more than
    /// [`Coding::MOST`].
    pub fn parse_list(fields: &HeaderMap) -> Result<Vec<Self>, Error> {
        Self::list(fields, &[b"identity"])
    }

    /// As [`Coding::parse_list`], for a response: servers also write names there that are no
    /// codings.
    ///
    /// # Errors
    /// As [`Coding::parse_list`].
    pub fn parse_answer(fields: &HeaderMap) -> Result<Vec<Self>, Error> {
        Self::list(fields, &[b"identity", b"aws-chunked", b"utf-8", b"none"])
    }

    fn list(fields: &HeaderMap, none: &[&[u8]]) -> Result<Vec<Self>, Error> {
        let mut codings = Vec::new();
        for field in fields.get_all(CONTENT_ENCODING) {
            for name in field.as_bytes().split(|&b| b == b',').map(trim) {
                if name.is_empty() || none.iter().any(|none| name.eq_ignore_ascii_case(none)) {
                    continue;
                }
                codings.push(Self::from_name(name).ok_or(Error::UnknownCoding)?);
            }
        }
        if codings.len() > Self::MOST {
            return Err(Error::TooManyCodings);
        }
        Ok(codings)
    }
}

/// Why content could not be decoded to its identity form.
///
/// No variant contains bytes of the message: a label may itself be a reflected secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `Content-Encoding` names a coding that cannot be decoded here, or is not a list of tokens.
    #[error("content coding is not one of gzip, deflate, br, zstd")]
    UnknownCoding,
    /// More codings are stacked than can be decoded ([`Coding::MOST`]).
    #[error("more than {} content codings are stacked", Coding::MOST)]
    TooManyCodings,
    /// The content does not match its label, is damaged, or needs a window larger than the coding
    /// allows.
    #[error("content is not valid {0}")]
    Corrupt(Coding),
    /// The content ended inside the coded form.
    #[error("content ended inside its {0} form")]
    Truncated(Coding),
    /// Bytes follow the end of the coded form.
    #[error("bytes follow the end of the {0} form")]
    Trailing(Coding),
    /// The identity form is longer than the limit.
    #[error("content is longer than {0}")]
    TooLong(Limit),
}

/// The codings that the client accepts and we can decode, with the client's weights.
///
/// RFC 9110 §12.5.3. `*` covers the known codings that the client did not name.
pub(super) fn asked_for(fields: &HeaderMap) -> Vec<(Coding, Weight)> {
    let mut wanted: Vec<(Coding, Weight)> = Vec::new();
    let mut rest = None;
    for element in fields
        .get_all(ACCEPT_ENCODING)
        .iter()
        .flat_map(|f| f.as_bytes().split(|&b| b == b','))
    {
        let Some((name, weight)) = parse_element(element) else {
            continue;
        };
        match Coding::from_name(name) {
            Some(coding) if !wanted.iter().any(|(known, _)| *known == coding) => {
                wanted.push((coding, weight))
            }
            None if name == b"*" => rest = Some(weight),
            _ => {}
        }
    }
    if let Some(weight) = rest {
        for coding in [Coding::Gzip, Coding::Brotli, Coding::Zstd, Coding::Deflate] {
            if !wanted.iter().any(|(known, _)| *known == coding) {
                wanted.push((coding, weight));
            }
        }
    }
    wanted.retain(|(_, weight)| weight.0 > 0);
    wanted
}

/// The `Accept-Encoding` for the origin. It says `identity` if nothing remains, and is never
/// absent, because absence would allow any coding. A refusal of `identity` is not passed on.
pub(super) fn written(asked: &[(Coding, Weight)]) -> HeaderValue {
    if asked.is_empty() {
        return HeaderValue::from_static("identity");
    }
    let listed: Vec<String> = asked
        .iter()
        .map(|(coding, weight)| format!("{coding}{weight}"))
        .collect();
    HeaderValue::try_from(listed.join(", ")).unwrap_or(HeaderValue::from_static("identity"))
}

/// A quality value in thousandths, 0 to 1000.
#[derive(Clone, Copy)]
pub(super) struct Weight(u16);

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1000 => Ok(()),
            thousandths => f.write_str(format!(";q=0.{thousandths:03}").trim_end_matches('0')),
        }
    }
}

/// Splits `name;q=weight`. `None` for anything else.
fn parse_element(element: &[u8]) -> Option<(&[u8], Weight)> {
    let mut parts = element.split(|&b| b == b';').map(trim);
    let name = parts.next().filter(|name| !name.is_empty())?;
    let weight = match parts.next() {
        None => Weight(1000),
        Some(parameter) => parse_weight(parameter)?,
    };
    parts.next().is_none().then_some((name, weight))
}

/// `q=` and a qvalue of RFC 9110 §12.4.2: at most three decimals, at most 1.
fn parse_weight(parameter: &[u8]) -> Option<Weight> {
    let value = parameter
        .strip_prefix(b"q=")
        .or_else(|| parameter.strip_prefix(b"Q="))?;
    let (whole, decimals) = match value {
        [whole] => (*whole, &[][..]),
        [whole, b'.', decimals @ ..] if decimals.len() <= 3 => (*whole, decimals),
        _ => return None,
    };
    let mut thousandths = match whole {
        b'0' => 0,
        b'1' => 1000,
        _ => return None,
    };
    for (digit, worth) in decimals.iter().zip([100, 10, 1]) {
        thousandths += u16::from(digit.is_ascii_digit().then(|| digit - b'0')?) * worth;
    }
    (thousandths <= 1000).then_some(Weight(thousandths))
}

fn trim(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(name: http::HeaderName, values: &[&'static str]) -> HeaderMap {
        values
            .iter()
            .map(|v| (name.clone(), HeaderValue::from_static(v)))
            .collect()
    }

    fn list(values: &[&'static str]) -> Result<Vec<Coding>, Error> {
        Coding::parse_list(&fields(CONTENT_ENCODING, values))
    }

    fn accept(values: &[&'static str]) -> String {
        written(&asked_for(&fields(ACCEPT_ENCODING, values)))
            .to_str()
            .expect("ascii")
            .to_owned()
    }

    #[test]
    fn codings_are_listed_over_fields_and_commas_in_any_case() {
        assert_eq!(list(&[]), Ok(vec![]));
        assert_eq!(list(&["GZip"]), Ok(vec![Coding::Gzip]));
        assert_eq!(
            list(&["x-gzip , BR"]),
            Ok(vec![Coding::Gzip, Coding::Brotli])
        );
        assert_eq!(
            list(&["deflate,, identity", "\tzstd "]),
            Ok(vec![Coding::Deflate, Coding::Zstd])
        );
    }

    #[test]
    fn a_coding_that_cannot_be_undone_is_refused() {
        for label in [
            "rot13",
            "compress",
            "gzip rot13",
            "gzip;q=1",
            "aes128gcm",
            "*",
            "gzip\t,dcz",
        ] {
            assert_eq!(list(&[label]), Err(Error::UnknownCoding), "{label}");
        }
        assert_eq!(list(&["gzip, gzip", "br"]), Err(Error::TooManyCodings));
    }

    #[test]
    fn only_what_can_be_undone_is_asked_for() {
        assert_eq!(
            accept(&["gzip, deflate, br, zstd, dcb, compress"]),
            "gzip, deflate, br, zstd"
        );
        assert_eq!(
            accept(&["gzip;q=0.5, br;q=1.0, zstd;q=0.125, deflate; q=0"]),
            "gzip;q=0.5, br, zstd;q=0.125"
        );
        assert_eq!(accept(&["br", "X-GZIP;Q=0.250"]), "br, gzip;q=0.25");
    }

    #[test]
    fn where_nothing_remains_identity_is_asked_for() {
        for values in [
            &[][..],
            &[""],
            &["dcb"],
            &["identity;q=0"],
            &["*;q=0"],
            &["gzip;q=2"],
            &["gzip;v=1"],
        ] {
            assert_eq!(accept(values), "identity", "{values:?}");
        }
    }

    #[test]
    fn a_star_means_the_known_codings_that_were_not_named() {
        assert_eq!(
            accept(&["br;q=0, *;q=0.1"]),
            "gzip;q=0.1, zstd;q=0.1, deflate;q=0.1"
        );
    }
}
