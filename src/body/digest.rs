//! Fields that depend on the bytes of the content: digests (RFC 9530) and signatures over them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::CONTENT_RANGE;
use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest as _, Sha256, Sha512};

/// Whether content may be changed: every digest of it can be recomputed.
pub fn may_change(fields: &HeaderMap, trailers: Option<&HeaderMap>) -> bool {
    let has = |fields: &HeaderMap, names: &[HeaderName]| {
        names.iter().any(|name| fields.contains_key(name))
    };
    let in_trailers = trailers.is_some_and(|fields| has(fields, &FIXED) || has(fields, &ANEW));
    let is_part = fields.contains_key(CONTENT_RANGE) && has(fields, &ANEW);
    let are_known = ANEW.iter().all(|name| algorithms(fields, name).is_some());
    !has(fields, &FIXED) && !in_trailers && !is_part && are_known
}

/// Whether there are digests of the whole content, which can be recomputed.
pub fn is_stated(fields: &HeaderMap) -> bool {
    ANEW.iter().any(|name| fields.contains_key(name))
}

/// Recomputes the digests of the content.
pub fn make_anew(fields: &mut HeaderMap, content: &[u8]) {
    for name in &ANEW {
        let digests: Vec<String> = algorithms(fields, name)
            .into_iter()
            .flatten()
            .map(|algorithm| {
                let digest = match algorithm {
                    SHA_256 => STANDARD.encode(Sha256::digest(content)),
                    _ => STANDARD.encode(Sha512::digest(content)),
                };
                format!("{algorithm}=:{digest}:")
            })
            .collect();
        if let (false, Ok(value)) = (
            digests.is_empty(),
            HeaderValue::try_from(digests.join(", ")),
        ) {
            fields.insert(name.clone(), value);
        }
    }
}

/// The algorithms of a field's digests, if all of them are known.
fn algorithms(fields: &HeaderMap, name: &HeaderName) -> Option<Vec<&'static str>> {
    let mut all = Vec::new();
    for value in fields.get_all(name) {
        for digest in value.to_str().ok()?.split(',') {
            let key = digest.split_once('=')?.0.trim();
            all.push(*[SHA_256, SHA_512].iter().find(|known| **known == key)?);
        }
    }
    Some(all)
}

const SHA_256: &str = "sha-256";
const SHA_512: &str = "sha-512";
const ANEW: [HeaderName; 2] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
];
const FIXED: [HeaderName; 3] = [
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("signature-input"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(all: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        all.iter().map(pair).collect()
    }

    #[test]
    fn known_digests_are_made_anew_and_nothing_else_may_stand_there() {
        let mut known = fields(&[
            ("content-digest", "sha-256=:x:, sha-512=:y:"),
            ("repr-digest", "sha-256=:x:"),
        ]);
        assert!(may_change(&known, None) && may_change(&HeaderMap::new(), None));
        make_anew(&mut known, b"{\"hello\": \"world\"}\n");
        // RFC 9530 §2.
        let sha_256 = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:";
        assert_eq!(known["repr-digest"], sha_256);
        let both = known["content-digest"].to_str().unwrap();
        assert!(
            both.starts_with(&format!("{sha_256}, sha-512=:YMAam51Jz/jOATT6/zvH")),
            "{both}"
        );
        let mut none = HeaderMap::new();
        make_anew(&mut none, b"x");
        assert!(none.is_empty());
        for strange in [
            ("content-digest", "md5=:x:"),
            ("content-digest", "sha-256=:x:, unixsum=1"),
            ("repr-digest", "x"),
            ("digest", "SHA-256=x"),
            ("content-md5", "x"),
            ("signature-input", "sig1=()"),
        ] {
            assert!(!may_change(&fields(&[strange]), None), "{strange:?}");
        }
        let digest = fields(&[("content-digest", "sha-256=:x:")]);
        assert!(!may_change(&HeaderMap::new(), Some(&digest)));
        let part = fields(&[
            ("content-range", "bytes 0-1/2"),
            ("repr-digest", "sha-256=:x:"),
        ]);
        assert!(!may_change(&part, None));
    }
}
