//! Nonces in the formats of the services.

/// The ingredients of nonces. The caller provides them, because this module has neither randomness
/// nor state.
#[derive(Clone, Copy)]
pub struct Nonce {
    /// Fresh random bytes.
    pub random: [u8; 32],
    /// A number greater than every one used before with this credential; only
    /// [`NonceKind::Increasing`] recipes read it.
    pub counter: u64,
}

/// The kind of [`Nonce`] that a recipe needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NonceKind {
    /// The recipe has no nonce.
    None,
    /// Any value that was not used before.
    Random,
    /// A number that must increase with every request of a credential, across all senders; the
    /// recipe chooses the unit.
    Increasing {
        /// How much the client's own numbers grow per second, so that ours have the same magnitude:
        /// 1,000 for milliseconds, 1,000,000 for microseconds.
        a_second: u64,
    },
}

/// The format of a nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NonceFormat {
    Hex(usize),
    Alphanumeric(usize),
    Uuid,
    Increasing(u64),
}

impl NonceFormat {
    /// `hex N`, `alphanumeric N`, `uuid`, `milliseconds`, `microseconds`; `N` is the length in
    /// characters.
    pub(super) fn parse(text: &str) -> Option<NonceFormat> {
        let length = |text: &str, most: usize| {
            text.parse::<usize>()
                .ok()
                .filter(|length| (16..=most).contains(length))
        };
        Some(match text.split_once(' ') {
            Some(("hex", text)) => NonceFormat::Hex(length(text, 64)?),
            Some(("alphanumeric", text)) => NonceFormat::Alphanumeric(length(text, 32)?),
            None if text == "uuid" => NonceFormat::Uuid,
            None if text == "milliseconds" => NonceFormat::Increasing(1000),
            None if text == "microseconds" => NonceFormat::Increasing(1_000_000),
            _ => return None,
        })
    }

    pub(super) fn kind(self) -> NonceKind {
        match self {
            NonceFormat::Increasing(a_second) => NonceKind::Increasing { a_second },
            _ => NonceKind::Random,
        }
    }

    pub(super) fn write(self, nonce: &Nonce) -> String {
        const LETTERS: &[u8; 62] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        let hex = base16ct::lower::encode_string(&nonce.random);
        match self {
            NonceFormat::Hex(length) => hex[..length].to_owned(),
            NonceFormat::Alphanumeric(length) => nonce
                .random
                .iter()
                .take(length)
                .map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]))
                .collect(),
            // RFC 9562 §5.4: version 4, variant 10.
            NonceFormat::Uuid => format!(
                "{}-{}-4{}-{:x}{}-{}",
                &hex[..8],
                &hex[8..12],
                &hex[13..16],
                8 | (nonce.random[8] >> 4 & 3),
                &hex[17..20],
                &hex[20..32]
            ),
            NonceFormat::Increasing(_) => nonce.counter.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_has_the_form_that_was_asked_for() {
        let nonce = Nonce {
            random: [0xab; 32],
            counter: 17,
        };
        let written = |form: &str| NonceFormat::parse(form).unwrap().write(&nonce);
        assert_eq!(written("hex 16"), "abababababababab");
        assert_eq!(written("uuid"), "abababab-abab-4bab-abab-abababababab");
        assert_eq!(written("alphanumeric 20").len(), 20);
        assert_eq!(written("microseconds"), "17");
        assert!(
            NonceFormat::parse("hex 8").is_none(),
            "too short to be fresh"
        );
    }
}
