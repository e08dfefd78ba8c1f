//! Decides which content codings a response may use, by the memory that decoding them takes.

use http::HeaderMap;
use http::header::ACCEPT_ENCODING;

use super::coding::{asked_for, written};
use super::{Coding, Share};

impl Coding {
    /// The most bytes that decoding takes: window, tables, and the pieces passing through.
    pub const fn memory(self) -> usize {
        match self {
            // 32 KiB of window, one piece, and the last chunk that was fed.
            Self::Gzip | Self::Deflate => 192 << 10,
            // RFC 7932 §9.1: 16 MiB of window, and three groups of up to 256 prefix codes.
            Self::Brotli => 20 << 20,
            // RFC 9659 §3: 8 MiB of window, two blocks, and the tables of the entropy decoders.
            Self::Zstd => 9 << 20,
        }
    }
}

/// Reserves memory to decode the costliest coding in `Accept-Encoding`. If there is not enough,
/// removes that coding and tries the next, so that a session that has used its share still gets
/// responses.
pub fn ask_for_affordable(fields: &mut HeaderMap, share: &mut Share) {
    let mut asked = asked_for(fields);
    let all = asked.len();
    while let Some(most) = asked.iter().map(|(coding, _)| coding.memory()).max() {
        if share.set(most).is_ok() {
            break;
        }
        // Memory beyond the budget still counts as taken until it is released.
        let _ = share.set(0);
        asked.retain(|(coding, _)| coding.memory() < most);
    }
    if asked.len() < all {
        fields.insert(ACCEPT_ENCODING, written(&asked));
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::{HoldBudget, Limit};

    #[test]
    fn where_memory_is_short_cheaper_codings_are_asked_for_and_then_none() {
        let all = HoldBudget::new(Limit::mib(64));
        let session = all.part();
        let mut held = Vec::new();
        let mut ask = || {
            let accepted = HeaderValue::from_static("gzip, deflate, br, zstd, dcb");
            let mut fields = HeaderMap::from_iter([(ACCEPT_ENCODING, accepted)]);
            let mut share = Share::of(session.clone());
            ask_for_affordable(&mut fields, &mut share);
            held.push(share);
            fields[ACCEPT_ENCODING].to_str().unwrap().to_owned()
        };
        assert_eq!(
            ask(),
            "gzip, deflate, br, zstd, dcb",
            "what fits is left as it is"
        );
        assert_eq!(ask(), "gzip, deflate, zstd");
        let cheap = (0..1000).map(|_| ask()).collect::<Vec<_>>();
        let gzip = cheap
            .iter()
            .filter(|asked| *asked == "gzip, deflate")
            .count();
        assert!((10..100).contains(&gzip), "{gzip}");
        assert_eq!(cheap.last().unwrap(), "identity");
        assert!(all.taken() <= 32 << 20, "{}", all.taken());
        let mut fields =
            HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("zstd"))]);
        let mut other = Share::of(all.part());
        ask_for_affordable(&mut fields, &mut other);
        assert_eq!(
            fields[ACCEPT_ENCODING], "zstd",
            "another session has its own share"
        );
        held.clear();
        drop(other);
        assert_eq!(all.taken(), 0);
    }
}
