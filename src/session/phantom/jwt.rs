//! The shape of a JSON Web Token: three base64url parts that still decode (RFC 7515 §7.1).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::draw::{PhantomKey, Stream};
use super::slots::{Alphabet, Slot, fill_slots};
use super::written;

/// A JWT's shape: the header unchanged, the payload with masked values, and the signature's length.
///
/// These top-level claims are kept because clients read them: `iss aud exp nbf iat scope scp role
/// typ token_type ref`. In every other string, each letter and digit is replaced by one of its
/// class. In every other whole number, the digits are replaced. Keys, punctuation, literals and
/// fractions are kept. The signature, which alone makes the token valid, is drawn in full.
///
/// The token of a login also keeps the claims that its preset names, and its `exp` is 2100.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct JwtShape {
    header: String,
    payload: Vec<Slot>,
    signature_bytes: usize,
}

impl JwtShape {
    /// Returns the token's shape, if it is a signed JWT whose signature has at least 16 bytes.
    pub(super) fn of(token: &[u8], login: Option<&[String]>) -> Option<Self> {
        let text = std::str::from_utf8(token).ok()?;
        let mut parts = text.split('.');
        let (header, payload, signature) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let head: serde_json::Map<_, _> = serde_json::from_slice(&decode(header)?).ok()?;
        let signature_bytes = decode(signature)?.len();
        if !head.contains_key("alg") || signature_bytes < MIN_SIGNATURE_BYTES {
            return None;
        }
        let claims = decode(payload)?;
        serde_json::from_slice::<serde_json::Map<_, _>>(&claims).ok()?;
        Some(Self {
            header: header.to_owned(),
            payload: mask(&claims, login),
            signature_bytes,
        })
    }

    /// Returns the shape as text: header, length of the signature, positions of the payload.
    pub(super) fn to_text(&self) -> String {
        let payload = written::write(&self.payload, None);
        format!("jwt {} {} {payload}", self.header, self.signature_bytes)
    }

    /// Parses the text of [`JwtShape::to_text`], after its first word.
    pub(super) fn from_text(text: &str, most: usize) -> Option<Self> {
        let mut words = text.split(' ');
        let (header, signature) = (words.next()?, words.next()?);
        let signature_bytes = signature.parse().ok()?;
        let head: serde_json::Map<_, _> = serde_json::from_slice(&decode(header)?).ok()?;
        let (payload, None) = written::read(words, most)? else {
            return None;
        };
        let fits = (MIN_SIGNATURE_BYTES..=most).contains(&signature_bytes);
        (fits && head.contains_key("alg")).then(|| Self {
            header: header.to_owned(),
            payload,
            signature_bytes,
        })
    }

    /// Returns the claims that every phantom of the shape shows, without times.
    pub(super) fn shown(&self) -> serde_json::Map<String, serde_json::Value> {
        let claims = |seed| -> serde_json::Map<_, _> {
            let key = PhantomKey::from_bytes([seed; 32]);
            let filled = fill_slots(&self.payload, &mut key.stream("", 0));
            serde_json::from_slice(&filled).unwrap_or_default()
        };
        // Drawn values differ from one key to another.
        let (mut shown, others) = (claims(0), [1, 2, 3, 4].map(claims));
        shown.retain(|name, value| {
            let is_same = |other: &serde_json::Map<_, _>| other.get(name) == Some(value);
            !TIMES.contains(&&**name) && others.iter().all(is_same)
        });
        shown
    }

    pub(super) fn len(&self) -> usize {
        self.header.len() + encoded_len(self.payload.len()) + encoded_len(self.signature_bytes) + 2
    }

    pub(super) fn entropy_bits(&self) -> u32 {
        u32::try_from(self.signature_bytes * 8).unwrap_or(u32::MAX)
    }

    pub(super) fn fill(&self, stream: &mut Stream) -> String {
        let payload = URL_SAFE_NO_PAD.encode(fill_slots(&self.payload, stream));
        let signature: Vec<u8> = (0..self.signature_bytes).map(|_| stream.byte()).collect();
        let (header, signature) = (&self.header, URL_SAFE_NO_PAD.encode(signature));
        format!("{header}.{payload}.{signature}")
    }
}

fn decode(part: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(part).ok()
}

fn encoded_len(bytes: usize) -> usize {
    (bytes * 4).div_ceil(3)
}

/// Masks a JSON object's values, byte for byte. The text has already been parsed, so this walk
/// need not check the grammar.
fn mask(json: &[u8], login: Option<&[String]>) -> Vec<Slot> {
    let mut slots = Vec::with_capacity(json.len());
    let mut objects: Vec<bool> = Vec::new();
    let mut key_next = false;
    let mut kept = false;
    let mut is_end = false;
    let is_kept = |name: &str| {
        let mut own = login.unwrap_or_default().iter();
        KEPT.contains(&name) || own.any(|claim| claim == name)
    };
    let mut at = 0;
    while at < json.len() {
        match json[at] {
            b'"' => {
                let end = string_end(json, at);
                let text = &json[at..end];
                if key_next {
                    if objects.len() == 1 {
                        let name = serde_json::from_slice::<String>(text).unwrap_or_default();
                        kept = is_kept(&name);
                        is_end = login.is_some() && name == "exp";
                    }
                    slots.extend(text.iter().copied().map(Slot::Fixed));
                } else {
                    mask_string(text, kept, &mut slots);
                }
                key_next = false;
                at = end;
                continue;
            }
            b'-' | b'0'..=b'9' => {
                let end = at
                    + json[at..]
                        .iter()
                        .take_while(|byte| b"+-.eE0123456789".contains(byte))
                        .count();
                let number = if is_end { FAR_END } else { &json[at..end] };
                mask_number(number, kept, &mut slots);
                at = end;
                continue;
            }
            b'{' => {
                objects.push(true);
                key_next = true;
            }
            b'[' => objects.push(false),
            b'}' | b']' => {
                objects.pop();
            }
            b',' => key_next = objects.last() == Some(&true),
            _ => {}
        }
        slots.push(Slot::Fixed(json[at]));
        at += 1;
    }
    slots
}

/// Returns the index after a string's closing quote.
fn string_end(json: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < json.len() && json[at] != b'"' {
        at += if json[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(json.len())
}

fn mask_string(text: &[u8], kept: bool, slots: &mut Vec<Slot>) {
    let mut at = 0;
    while at < text.len() {
        // Escapes are kept whole: `\n` is two bytes, `\u00e9` is six.
        let escape = match (text[at], text.get(at + 1)) {
            (b'\\', Some(b'u')) => 6,
            (b'\\', _) => 2,
            _ => 0,
        };
        let end = (at + escape.max(1)).min(text.len());
        let fixed = kept || escape > 0;
        slots.extend(text[at..end].iter().map(|byte| {
            if fixed {
                Slot::Fixed(*byte)
            } else {
                Slot::of_class(*byte)
            }
        }));
        at = end;
    }
}

fn mask_number(text: &[u8], kept: bool, slots: &mut Vec<Slot>) {
    let whole = text.iter().all(u8::is_ascii_digit);
    for (at, byte) in text.iter().enumerate() {
        slots.push(match (kept || !whole, at) {
            (true, _) => Slot::Fixed(*byte),
            (false, 0) => Slot::Draw(Alphabet::NonZero),
            (false, _) => Slot::Draw(Alphabet::Digit),
        });
    }
}

const KEPT: &[&str] =
    &gateway_names::word_list::<11>("iss aud exp nbf iat scope scp role typ token_type ref");
/// Those that each renewal changes.
const TIMES: [&str; 3] = ["exp", "nbf", "iat"];
/// 2100, in seconds.
const FAR_END: &[u8] = b"4102444800";
const MIN_SIGNATURE_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::super::PhantomKey;
    use super::*;

    fn token(payload: &str) -> String {
        format!(
            "{}.{}.{}",
            URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#),
            URL_SAFE_NO_PAD.encode(payload),
            URL_SAFE_NO_PAD.encode([0xA5; 32])
        )
    }

    fn phantom_claims(token: &str, login: Option<&[String]>) -> serde_json::Value {
        let shape = JwtShape::of(token.as_bytes(), login).unwrap();
        assert!(JwtShape::from_text(&shape.to_text()[4..], 16 * 1024).unwrap() == shape);
        let made = shape.fill(&mut PhantomKey::from_bytes([7; 32]).stream("x", 0));
        assert_eq!(made.len(), token.len());
        assert_eq!(shape.len(), token.len());
        let mut parts = made.split('.');
        assert_eq!(parts.next(), token.split('.').next());
        let claims = serde_json::from_slice(&decode(parts.next().unwrap()).unwrap()).unwrap();
        assert_eq!(decode(parts.next().unwrap()).unwrap().len(), 32);
        claims
    }

    #[test]
    fn a_phantom_jwt_decodes_keeps_what_clients_read_and_hides_the_rest() {
        let payload = r#"{"iss":"supabase","exp":1983812996,"role":"service_role","sub":"Canary77","n":12345,
            "deep":{"iss":"Canary77","list":["Canary77",{"k":"a\\\"b\u00e9Q"}]},"f":-1.5e3,"t":true}"#;
        let claims = phantom_claims(&token(payload), None);
        assert_eq!(claims["iss"], "supabase");
        assert_eq!(claims["exp"], 1_983_812_996);
        assert_eq!(claims["role"], "service_role");
        assert_eq!(claims["f"], -1500.0);
        assert_ne!(claims["sub"], "Canary77");
        assert_ne!(claims["deep"]["iss"], "Canary77");
        assert_ne!(claims["deep"]["list"][0], "Canary77");
        assert!(
            claims["deep"]["list"][1]["k"]
                .as_str()
                .unwrap()
                .contains("\\\"")
        );
        assert!(claims["n"].as_u64().unwrap() >= 10_000);
    }

    #[test]
    fn the_token_of_a_login_keeps_the_claims_that_its_client_reads_and_ends_in_2100() {
        let payload = r#"{"exp":1763000000,"sub":"Canary77","email":"Canary77",
            "https://a.example/auth":{"account":"acc-77","plans":["a",7,{"exp":8}]}}"#;
        let claims = ["https://a.example/auth".to_owned()];
        let claims = phantom_claims(&token(payload), Some(&claims));
        assert_eq!(claims["exp"], 4_102_444_800_u64);
        let account = &claims["https://a.example/auth"];
        assert_eq!(account["account"], "acc-77");
        assert_eq!(account["plans"], serde_json::json!(["a", 7, {"exp": 8}]));
        assert_ne!(claims["sub"], "Canary77");
        assert_ne!(claims["email"], "Canary77");
    }

    #[test]
    fn what_is_not_a_signed_token_has_no_jwt_shape() {
        assert!(JwtShape::of(b"a.b.c", None).is_none());
        assert!(
            JwtShape::of(
                b"SG.abcdefghijklmnopqrstuv.0123456789012345678901234567890123456789012",
                None
            )
            .is_none()
        );
        let unsigned = token("{}").rsplit_once('.').unwrap().0.to_owned() + ".";
        assert!(JwtShape::of(unsigned.as_bytes(), None).is_none());
    }
}
