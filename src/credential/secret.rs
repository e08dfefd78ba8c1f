//! The secret itself: bytes that no other module can read, print, copy or compare.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway_intercept::UserPassword;
use gateway_recipe::{Algorithm, KeyFault, KeyForm};
use gateway_session::phantom::{Phantom, Shape};
use gateway_state::SealingKey;
use http::HeaderValue;
use subtle::ConstantTimeEq as _;
use zeroize::{Zeroize as _, Zeroizing};

use super::scrub;

/// A real credential. Has no Debug, Display, Clone, `PartialEq` or Serialize, and is wiped on drop.
///
/// Only the credential module sees its bytes. They are visible ASCII without spaces, so no header,
/// query or cookie that contains them can be split in two. A private key may have several lines,
/// because it is never sent. Pages are not locked in memory: the process must forbid core dumps and
/// tracing as a whole.
pub struct Secret {
    bytes: Box<[u8]>,
    private_key: bool,
    needles: scrub::SharedNeedles,
}

/// Why a value cannot be used as a secret. The message names the remedy, and never contains the
/// value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretUnsafe {
    /// It is empty.
    #[error("the secret is empty")]
    Empty,
    /// It is shorter than [`MIN_BYTES`]: an echo could not be told from other text.
    #[error(
        "the secret has fewer than {MIN_BYTES} characters; use a longer one, or set `allow_short = true` in its `[[credential]]`"
    )]
    TooShort,
    /// It is longer than [`MAX_BYTES`].
    #[error(
        "the secret has more than {MAX_BYTES} bytes; name the credential itself, not a file that contains it"
    )]
    TooLong,
    /// It has a line break, a control character, a space or a byte outside ASCII.
    #[error(
        "the secret has a line break, space, control or non-ASCII character; store the bare credential, and an application password without the blanks that it is shown with"
    )]
    Character,
    /// It is an address or a document: only a part of it is secret.
    #[error(
        "the secret is a URL or JSON, of which only a part is secret: put that part into a variable of its own and lend it (`--secret NAME@HOST`), and the rest into another, which `--pass-env` passes"
    )]
    Composed,
    /// It is a private key, but the credential needs a value that can be sent.
    #[error(
        "the secret is a private key, which is never put into a request: name the way of signing with it, `sign = \"…\"`"
    )]
    PrivateKey,
    /// It is not the required private key.
    #[error(transparent)]
    Key(#[from] KeyFault),
    /// It equals the session's phantom, by chance or by someone's choice.
    #[error("the secret is the phantom that the session holds; start another session")]
    Phantom,
    /// It has a character that would end its place: a colon in a Basic user name, a semicolon in a
    /// cookie.
    #[error("the secret has a character that its place cannot hold")]
    Place,
}

/// Whether a value is a URL or an object of JSON.
fn is_composed(value: &[u8]) -> bool {
    let is_url = || {
        let scheme = memchr::memmem::find(value, b"://").map(|at| &value[..at]);
        let is_one = |byte: &u8| byte.is_ascii_alphanumeric() || b"+.-".contains(byte);
        scheme.is_some_and(|scheme| !scheme.is_empty() && scheme.iter().all(is_one))
    };
    let is_object = || serde_json::from_slice::<serde::de::IgnoredAny>(value).is_ok();
    is_url() || value.starts_with(b"{") && is_object()
}

impl Secret {
    /// Makes a secret of a value from a store, after checking it.
    ///
    /// # Errors
    /// [`SecretUnsafe`] by cause. `allow_short` lifts only the minimum length.
    pub fn new(value: Zeroizing<Vec<u8>>, allow_short: bool) -> Result<Self, SecretUnsafe> {
        if value.is_empty() {
            return Err(SecretUnsafe::Empty);
        }
        if value.len() > MAX_BYTES {
            return Err(SecretUnsafe::TooLong);
        }
        if KeyForm::is_pem(&value) {
            return Err(SecretUnsafe::PrivateKey);
        }
        if is_composed(&value) {
            return Err(SecretUnsafe::Composed);
        }
        if !value.iter().all(u8::is_ascii_graphic) {
            return Err(SecretUnsafe::Character);
        }
        if value.len() < MIN_BYTES && !allow_short {
            return Err(SecretUnsafe::TooShort);
        }
        Ok(Self {
            bytes: Box::from(&value[..]),
            private_key: false,
            needles: scrub::SharedNeedles::default(),
        })
    }

    /// Makes a secret of a private key that the algorithm can sign with.
    ///
    /// # Errors
    /// [`SecretUnsafe`] by cause.
    pub fn private_key(
        value: &Zeroizing<Vec<u8>>,
        algorithm: Algorithm,
    ) -> Result<Self, SecretUnsafe> {
        if value.is_empty() {
            return Err(SecretUnsafe::Empty);
        }
        if value.len() > MAX_BYTES {
            return Err(SecretUnsafe::TooLong);
        }
        KeyForm::of(algorithm, value)?;
        Ok(Self {
            bytes: Box::from(&value[..]),
            private_key: true,
            needles: scrub::SharedNeedles::default(),
        })
    }

    /// Whether it is a private key. Nothing that reveals a private key is ever sent, so no answer
    /// can contain it.
    pub(crate) fn is_private_key(&self) -> bool {
        self.private_key
    }

    /// Returns the form of the private key, from which a phantom is made.
    ///
    /// # Errors
    /// [`SecretUnsafe::Key`] if the algorithm does not sign with it.
    pub fn key_form(&self, algorithm: Algorithm) -> Result<KeyForm, SecretUnsafe> {
        Ok(KeyForm::of(algorithm, &self.bytes)?)
    }

    /// Returns the credentials that a proxy's client may present, with this secret as the password.
    pub fn password_of(&self, user: &str) -> UserPassword {
        UserPassword::new(user, self.expose())
    }

    /// Returns a field value with this secret after a word such as `Bearer `, for a request of the
    /// gateway's own. `Debug` does not print the value.
    pub fn own_field(&self, before: &str) -> Option<HeaderValue> {
        let whole = Zeroizing::new([before.as_bytes(), self.expose()].concat());
        let mut value = HeaderValue::from_bytes(&whole).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Returns the signature of a message of the gateway's own with this secret as the key, as
    /// Standard Webhooks does it; `None` if it is no such key: 24 to 64 bytes in base64.
    pub fn webhook_signature(&self, message: &[u8]) -> Option<String> {
        let encoded = self.expose();
        let encoded = encoded.strip_prefix(b"whsec_").unwrap_or(encoded);
        let key = Zeroizing::new(STANDARD.decode(encoded).ok()?);
        let key = (24..=64).contains(&key.len()).then_some(key)?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        Some(format!("v1,{}", STANDARD.encode(hmac::sign(&key, message))))
    }

    /// Returns the field value for Basic (RFC 7617), with this secret as `user:password`; `None` if
    /// it has no colon.
    pub fn basic_field(&self) -> Option<HeaderValue> {
        let is_pair = self.expose().contains(&b':');
        let encoded = Zeroizing::new(STANDARD.encode(self.expose()));
        let mut value = HeaderValue::try_from(format!("Basic {}", &*encoded)).ok()?;
        value.set_sensitive(true);
        is_pair.then_some(value)
    }

    /// Returns the field value for Bearer (RFC 6750); `None` if it is not valid in a field.
    pub fn bearer_field(&self) -> Option<HeaderValue> {
        let text = Zeroizing::new([b"Bearer ", self.expose()].concat());
        let mut value = HeaderValue::from_bytes(&text).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Returns the password of the gateway's own login to the server of its state.
    pub fn state_password(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(self.expose().to_vec())
    }

    /// Returns the key that seals the gateway's state, with this secret as its text; `None` if the
    /// text is not a key.
    pub fn sealing_key(&self) -> Option<SealingKey> {
        SealingKey::from_text(self.expose())
    }

    /// Returns the secret's shape, from which a phantom is made; `claims` for a token of a login.
    pub fn shape(&self, claims: Option<&[String]>) -> Shape {
        match claims {
            Some(claims) => Shape::of_login(&self.bytes, claims),
            None => Shape::of(&self.bytes),
        }
    }

    /// Whether a text equals the secret. Takes the same time wherever the two differ.
    #[must_use]
    pub fn is(&self, text: &[u8]) -> bool {
        self.bytes.ct_eq(text).into()
    }

    /// Returns the text that overwrites echoes of the secret and of its parts: its phantom, or a
    /// mask of the same length.
    ///
    /// The mask is used if the two differ in length or in the position of punctuation: renewed
    /// secrets, web tokens, and declared alphabets with `-` and `_`.
    pub(crate) fn stand_in(&self, phantom: &Phantom) -> Zeroizing<Vec<u8>> {
        let text = phantom.reveal().as_bytes();
        if text.len() == self.bytes.len()
            && text
                .iter()
                .zip(&self.bytes)
                .all(|(p, s)| scrub::alike(*p, *s))
        {
            return Zeroizing::new(text.to_vec());
        }
        mask(&self.bytes)
    }

    /// What answers are searched for, which all sessions share.
    pub(crate) fn needles(&self) -> &scrub::SharedNeedles {
        &self.needles
    }

    /// The text, for a store's own login. Every secret is text: visible ASCII, or PEM.
    pub(crate) fn text(&self) -> Zeroizing<String> {
        Zeroizing::new(String::from_utf8_lossy(&self.bytes).into_owned())
    }

    /// The bytes, for the credential module only.
    pub(crate) fn expose(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

/// Masks a text: same length, same punctuation, no value.
pub(crate) fn mask(text: &[u8]) -> Zeroizing<Vec<u8>> {
    let mask = |byte: &u8| match byte {
        b'A'..=b'Z' => b'X',
        b'a'..=b'z' => b'x',
        b'0'..=b'9' => b'0',
        other => *other,
    };
    Zeroizing::new(text.iter().map(mask).collect())
}

/// Removes one line break from the end, as editors and commands add one.
pub(crate) fn trim_line_end(value: &mut Vec<u8>) {
    if value.last() == Some(&b'\n') {
        value.pop();
        if value.last() == Some(&b'\r') {
            value.pop();
        }
    }
}

/// The shortest secret accepted without `allow_short`, in bytes.
pub const MIN_BYTES: usize = 8;
/// The longest secret, in bytes.
pub const MAX_BYTES: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use gateway_names::CredentialName;
    use gateway_session::phantom::{Issue, PhantomKey};

    use super::*;
    use crate::scrub::EchoSearch;

    fn refused(value: &[u8]) -> SecretUnsafe {
        Secret::new(Zeroizing::new(value.to_vec()), false)
            .err()
            .unwrap()
    }

    #[test]
    fn a_value_that_could_break_out_of_its_place_is_refused() {
        for bad in [
            &b"abcdefgh\r\nx: y"[..],
            b"abcdefgh\n",
            b"abcd\0efgh",
            b"abcd efgh",
            b"abcdefgh\x7f",
            b"abcdefg\xc3\xa9",
        ] {
            assert_eq!(refused(bad), SecretUnsafe::Character);
        }
        assert_eq!(refused(b""), SecretUnsafe::Empty);
        assert_eq!(refused(b"1234567"), SecretUnsafe::TooShort);
        assert_eq!(refused(&[b'a'; MAX_BYTES + 1]), SecretUnsafe::TooLong);
    }

    #[test]
    fn a_short_value_is_taken_only_where_that_is_said() {
        assert!(Secret::new(Zeroizing::new(b"1234".to_vec()), true).is_ok());
        assert!(Secret::new(Zeroizing::new(b"12\n4".to_vec()), true).is_err());
    }

    #[test]
    fn one_line_end_is_trimmed_once() {
        for (value, left) in [
            ("a\n", "a"),
            ("a\r\n", "a"),
            ("a\n\n", "a\n"),
            ("a\r", "a\r"),
            ("a", "a"),
        ] {
            let mut bytes = value.as_bytes().to_vec();
            trim_line_end(&mut bytes);
            assert_eq!(bytes, left.as_bytes());
        }
    }

    #[test]
    fn an_echo_can_be_replaced_wherever_the_secret_has_its_punctuation() {
        // Phantoms of web tokens and declared alphabets have `-` and `_` in other places, or not at
        // all.
        let declared = Shape::parse("sk-ant-api03-[93 word]AA").unwrap();
        let real = format!("sk-ant-api03-{}AA", "Kx9-mPq_RtV2".repeat(8).split_at(93).0);
        let token =
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.-_-_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        for (shape, real) in [(declared, &*real), (Shape::of(token.as_bytes()), token)] {
            let key = PhantomKey::from_bytes([7; 32]);
            let name = CredentialName::new("x").unwrap();
            let phantom = Issue::new(&key).issue(&name, &shape, |_| false).unwrap();
            let secret = Secret::new(Zeroizing::new(real.as_bytes().to_vec()), false).unwrap();
            let stand_in = secret.stand_in(&phantom);
            assert!(
                EchoSearch::new([(secret.expose(), &stand_in[..])]).is_ok(),
                "{real}"
            );
            assert!(EchoSearch::new([(secret.expose(), phantom.reveal().as_bytes())]).is_err());
        }
    }

    #[test]
    fn no_refusal_holds_the_value() {
        for bad in [&b"CANARY-7\n"[..], b"CANARY7"] {
            let shown = format!("{0} {0:?}", refused(bad));
            assert!(!shown.contains("CANARY"));
        }
    }
}
