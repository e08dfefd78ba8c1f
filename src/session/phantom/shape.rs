//! The shape of a credential: its prefix, length, alphabet and checksum, without its value.

use super::draw::Stream;
use super::jwt::JwtShape;
use super::known;
use super::slots::{Alphabet, CHECKSUM_DIGITS, Crc32, Slot, fill_slots, uuid_slots};
use super::written;

/// The shape of a credential, so that a phantom can have the same shape.
///
/// A shape keeps the public parts (a known prefix, punctuation, a JWT's header). For every other
/// position it keeps only the alphabet.
#[derive(Clone, PartialEq, Eq)]
pub struct Shape(Body);

gateway_names::serde_as_text!(Shape, Shape::to_text, |text| Shape::from_text(text).ok());

#[derive(Clone, PartialEq, Eq)]
enum Body {
    Slots {
        slots: Vec<Slot>,
        check: Option<Crc32>,
    },
    Jwt(JwtShape),
}

/// Why a text is not a shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeMalformed {
    /// A bracket is not closed, or its content is not `COUNT CLASS`.
    #[error(
        "a shape is literal text with `[COUNT CLASS]` groups, such as `ghp_[30 alnum][6 crc32]`"
    )]
    Group,
    /// The class is unknown.
    #[error(
        "a shape's class is upper, lower, digit, alpha, alnum, word, base64, hex, HEX, base32, uuid or crc32"
    )]
    Class,
    /// A checksum is not six digits long, is not the last group, or is the first.
    #[error("`[6 crc32]` must be the last group and must follow another group")]
    Checksum,
    /// It is empty, longer than 16 KiB, or contains a character that is not visible ASCII.
    #[error("a shape has 1 to 16384 visible ASCII characters")]
    Size,
    /// A phantom of that shape could be guessed.
    #[error("a phantom of this shape would have fewer than {MIN_BITS} random bits")]
    Guessable,
    /// The text is not that of a kept shape.
    #[error("the kept shape cannot be read")]
    Kept,
}

impl Shape {
    /// Derives the shape of a credential from its bytes, which must be visible ASCII.
    ///
    /// Known formats keep their prefix, alphabet and checksum. A JWT keeps its header and the
    /// claims that clients read. In anything else, each letter or digit is replaced by one of its
    /// class, and all punctuation is kept.
    pub fn of(credential: &[u8]) -> Self {
        Self::of_claims(credential, None)
    }

    /// Derives the shape of a login's token: a JWT keeps these claims as well, and ends in 2100,
    /// because the gateway renews it.
    pub fn of_login(token: &[u8], claims: &[String]) -> Self {
        Self::of_claims(token, Some(claims))
    }

    fn of_claims(credential: &[u8], login: Option<&[String]>) -> Self {
        if let Some(jwt) = JwtShape::of(credential, login) {
            return Self(Body::Jwt(jwt));
        }
        let (slots, check) = known::slots_of(credential);
        Self(Body::Slots { slots, check })
    }

    /// Parses a declared shape, such as `glpat-[20 alnum]` or `ghp_[30 alnum][6 crc32]`.
    ///
    /// `[uuid]` needs no count. The alphabets `word` and `base64` include punctuation, but a
    /// phantom uses only their letters and digits: punctuation would change the length of encoded
    /// forms.
    ///
    /// # Errors
    /// [`ShapeMalformed`] by cause.
    pub fn parse(text: &str) -> Result<Self, ShapeMalformed> {
        let mut slots = Vec::new();
        let mut check = None;
        let mut last_group = None;
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if check.is_some() {
                return Err(ShapeMalformed::Checksum);
            }
            if first != '[' {
                let byte = u8::try_from(first)
                    .ok()
                    .filter(u8::is_ascii_graphic)
                    .ok_or(ShapeMalformed::Size)?;
                slots.push(Slot::Fixed(byte));
                rest = &rest[1..];
                continue;
            }
            let (group, after) = rest[1..].split_once(']').ok_or(ShapeMalformed::Group)?;
            rest = after;
            let start = slots.len();
            if group.trim() == "uuid" {
                slots.extend(uuid_slots(Alphabet::HexLower, b'4'));
            } else {
                let (count, class) = group.trim().split_once(' ').ok_or(ShapeMalformed::Group)?;
                let count: usize = count.parse().map_err(|_| ShapeMalformed::Group)?;
                if count == 0 || slots.len() + count > MAX_BYTES {
                    return Err(ShapeMalformed::Size);
                }
                if class.trim() == "crc32" {
                    let over = last_group.clone().filter(|_| count == CHECKSUM_DIGITS);
                    check = Some(Crc32 {
                        over: over.ok_or(ShapeMalformed::Checksum)?,
                    });
                }
                let letters = Alphabet::named(class.trim()).ok_or(ShapeMalformed::Class)?;
                slots.extend(std::iter::repeat_n(Slot::Draw(letters), count));
            }
            last_group = Some(start..slots.len());
        }
        if slots.is_empty() || slots.len() > MAX_BYTES {
            return Err(ShapeMalformed::Size);
        }
        let shape = Self(Body::Slots { slots, check });
        if shape.entropy_bits() < MIN_BITS {
            Err(ShapeMalformed::Guessable)
        } else {
            Ok(shape)
        }
    }

    /// Whether a phantom of this kept shape shows the same as the secret, whose shape is now `now`:
    /// in a JSON Web Token the claims except times, else the prefix. The rest is not compared,
    /// because each renewal changes it. Where the secret is a key, the phantom must be as hard to
    /// guess.
    pub fn shows(&self, now: &Self) -> bool {
        let prefix = |slots: &[Slot]| -> Vec<u8> {
            let fixed = slots.iter().map_while(Slot::fixed);
            fixed.filter(u8::is_ascii_alphanumeric).collect()
        };
        let is_same = match (&self.0, &now.0) {
            (Body::Jwt(kept), Body::Jwt(now)) => kept.shown() == now.shown(),
            (Body::Slots { slots: kept, .. }, Body::Slots { slots: now, .. }) => {
                prefix(kept) == prefix(now)
            }
            _ => false,
        };
        let is_key = |shape: &Self| f64::from(shape.entropy_bits()) >= known::KEY_BITS;
        is_same && (is_key(self) || !is_key(now))
    }

    /// Returns the shape's text for a session's record: what every phantom of the shape shows.
    pub fn to_text(&self) -> String {
        match &self.0 {
            Body::Slots { slots, check } => written::write(slots, check.as_ref()),
            Body::Jwt(jwt) => jwt.to_text(),
        }
    }

    /// Reads a shape from a session's record.
    ///
    /// # Errors
    /// [`ShapeMalformed::Kept`] if the text is not one of [`Shape::to_text`].
    pub fn from_text(text: &str) -> Result<Self, ShapeMalformed> {
        let body = match text.strip_prefix("jwt ") {
            Some(token) => JwtShape::from_text(token, MAX_BYTES).map(Body::Jwt),
            None => slots_from(text),
        };
        body.map(Self).ok_or(ShapeMalformed::Kept)
    }

    /// Returns the length of every credential of this shape, in bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Body::Slots { slots, .. } => slots.len(),
            Body::Jwt(jwt) => jwt.len(),
        }
    }

    /// Whether the shape has no positions. No constructor makes such a shape.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how hard a phantom of this shape is to guess, in bits, rounded down.
    pub fn entropy_bits(&self) -> u32 {
        match &self.0 {
            Body::Slots { slots, check } => {
                let drawn = slots.len() - check.as_ref().map_or(0, |_| CHECKSUM_DIGITS);
                let bits: f64 = slots[..drawn].iter().map(|slot| slot.bits()).sum();
                bits as u32
            }
            Body::Jwt(jwt) => jwt.entropy_bits(),
        }
    }

    /// Fills every open position with letters from the stream.
    pub(super) fn fill(&self, stream: &mut Stream) -> String {
        match &self.0 {
            Body::Slots { slots, check } => {
                let mut bytes = fill_slots(slots, stream);
                if let Some(check) = check {
                    let sum = known::base62_crc32(&bytes[check.over.clone()]);
                    let at = bytes.len() - CHECKSUM_DIGITS;
                    bytes[at..].copy_from_slice(&sum);
                }
                bytes.into_iter().map(char::from).collect()
            }
            Body::Jwt(jwt) => jwt.fill(stream),
        }
    }
}

fn slots_from(text: &str) -> Option<Body> {
    let (slots, check) = written::read(text.split(' '), MAX_BYTES)?;
    let graphic = |slot: &Slot| match slot {
        Slot::Fixed(byte) => byte.is_ascii_graphic(),
        Slot::Draw(_) => true,
    };
    let fits = |check: &Crc32| {
        let over = &check.over;
        over.start < over.end && over.end + CHECKSUM_DIGITS == slots.len()
    };
    let sound = !slots.is_empty() && slots.iter().all(graphic) && check.as_ref().is_none_or(fits);
    sound.then_some(Body::Slots { slots, check })
}

impl std::fmt::Debug for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Shape({} bytes, {} bits)",
            self.len(),
            self.entropy_bits()
        )
    }
}

const MAX_BYTES: usize = 16 * 1024;

/// The least randomness a phantom must have, in bits.
pub(super) const MIN_BITS: u32 = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declared_shape_has_the_length_and_the_bits_that_it_says() {
        let shape = Shape::parse("glpat-[20 alnum]").unwrap();
        assert_eq!(shape.len(), 26);
        assert_eq!(shape.entropy_bits(), 119);
        assert_eq!(Shape::parse("[uuid]").unwrap().len(), 36);
        assert_eq!(
            Shape::parse("ghp_[30 alnum][6 crc32]")
                .unwrap()
                .entropy_bits(),
            178
        );
    }

    #[test]
    fn a_malformed_shape_is_refused_by_cause() {
        assert_eq!(Shape::parse(""), Err(ShapeMalformed::Size));
        assert_eq!(Shape::parse("foo"), Err(ShapeMalformed::Guessable));
        assert_eq!(Shape::parse("x[4 hex]"), Err(ShapeMalformed::Guessable));
        assert_eq!(Shape::parse("a b"), Err(ShapeMalformed::Size));
        assert_eq!(Shape::parse("é"), Err(ShapeMalformed::Size));
        assert_eq!(Shape::parse("x[0 alnum]"), Err(ShapeMalformed::Size));
        assert_eq!(Shape::parse("x[20000 alnum]"), Err(ShapeMalformed::Size));
        assert_eq!(Shape::parse("x[4 alnum"), Err(ShapeMalformed::Group));
        assert_eq!(Shape::parse("x[alnum]"), Err(ShapeMalformed::Group));
        assert_eq!(Shape::parse("x[4 klingon]"), Err(ShapeMalformed::Class));
        assert_eq!(Shape::parse("x[6 crc32]"), Err(ShapeMalformed::Checksum));
        assert_eq!(
            Shape::parse("x[30 alnum][5 crc32]"),
            Err(ShapeMalformed::Checksum)
        );
        assert_eq!(
            Shape::parse("x[30 alnum][6 crc32]y"),
            Err(ShapeMalformed::Checksum)
        );
    }

    #[test]
    fn a_kept_shape_stays_until_its_prefix_or_its_strength_is_another() {
        let shows = |kept: &str, now: &str| {
            let [kept, now] = [kept, now].map(|secret| Shape::of(secret.as_bytes()));
            kept.shows(&now)
        };
        let key = "sk_test_4f8Kq2LmZx90TbVnRs7YcW1e";
        assert!(shows(key, "sk_test_x90TbVnRs7Y-cW1e4f8Kq2LmZ0q"));
        assert!(!shows(key, "sk_live_4f8Kq2LmZx90TbVnRs7YcW1e"));
        assert!(shows(
            "-f8Kq2LmZx90TbVnRs7YcW1e",
            "4_8Kq2LmZx90TbVnRs7YcW1eA"
        ));
        assert!(!shows("12345678", "4f8Kq2LmZx90TbVnRs7YcW1e"));
        assert!(shows("12345678", "123456789"));
    }

    #[test]
    fn debug_shows_sizes_and_no_letter() {
        let shown = format!(
            "{:?}",
            Shape::of(b"ghp_CanaryCanaryCanaryCanaryCanary123456")
        );
        assert_eq!(shown, "Shape(40 bytes, 178 bits)");
    }
}
