//! `jwt`: a token of another issuer (RFC 7519), with claims that name the user and its groups.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use gateway_names::User;
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::live_evidence::LiveEvidence;
use crate::proxy_tls::now;

/// Which JWTs a listener accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtSettings {
    /// The issuer (`iss`).
    pub issuer: String,
    /// The audience (`aud`).
    pub audience: String,
    /// The claim that names the user.
    pub user: String,
    /// The claims whose values are groups.
    pub groups: Vec<String>,
}

/// The keys of an issuer (RFC 7517 §5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtKeys(JwkSet);

impl JwtKeys {
    /// Reads a key set as an issuer publishes it. Keys of unsupported kinds are left out.
    ///
    /// # Errors
    /// What is wrong with the key set.
    pub fn read(text: &[u8]) -> Result<Self, &'static str> {
        let mut set: JwkSet = serde_json::from_slice(text).map_err(|_| "it is no JWKS")?;
        let signs = |key: &Jwk| !algorithms(key).is_empty() && DecodingKey::from_jwk(key).is_ok();
        set.keys.retain(signs);
        let is_empty = set.keys.is_empty();
        (!is_empty)
            .then_some(Self(set))
            .ok_or("it has no public key of RSA, EC or Ed25519")
    }
}

/// Returns the algorithms of a key: none that uses a shared secret, and not `none`.
fn algorithms(key: &Jwk) -> Vec<Algorithm> {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    let of_kind: &[Algorithm] = match &key.algorithm {
        AlgorithmParameters::RSA(_) => &[RS256, RS384, RS512, PS256, PS384, PS512],
        AlgorithmParameters::EllipticCurve(known) => match known.curve {
            EllipticCurve::P256 => &[ES256],
            EllipticCurve::P384 => &[ES384],
            _ => &[],
        },
        AlgorithmParameters::OctetKeyPair(known) if known.curve == EllipticCurve::Ed25519 => {
            &[EdDSA]
        }
        _ => &[],
    };
    let common = &key.common;
    let signs = common.public_key_use.as_ref();
    let signs = signs.is_none_or(|is_for| *is_for == PublicKeyUse::Signature);
    let is_named = |one: &&Algorithm| {
        let named = common.key_algorithm;
        named.is_none_or(|named| named == KeyAlgorithm::from(**one))
    };
    of_kind
        .iter()
        .filter(|_| signs)
        .filter(is_named)
        .copied()
        .collect()
}

/// Verifies JWTs.
pub struct JwtVerifier {
    settings: JwtSettings,
    /// The issuer's current keys; `None` while they are not known.
    keys: ArcSwapOption<JwtKeys>,
    asked: Mutex<FetchTimes>,
}

/// When fetching the issuer's keys was last tried, and when it last succeeded.
#[derive(Default)]
struct FetchTimes {
    last: Option<Instant>,
    answered: Option<Instant>,
    /// Whether a JWT names a key that is not known.
    is_wanted: bool,
}

impl JwtVerifier {
    /// Verifies JWTs of this issuer, with its keys if they are known already.
    #[must_use]
    pub fn new(settings: JwtSettings, keys: Option<JwtKeys>) -> Self {
        Self {
            settings,
            keys: ArcSwapOption::from_pointee(keys),
            asked: Mutex::default(),
        }
    }

    /// Replaces the keys. Connections whose JWT the new keys do not verify end.
    pub fn replace(&self, keys: JwtKeys) {
        if self.keys.load().as_deref() != Some(&keys) {
            self.keys.store(Some(Arc::new(keys)));
        }
    }

    /// Whether the keys are known.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        self.keys.load().is_some()
    }

    /// Whether the issuer's keys are to be fetched now.
    #[must_use]
    pub fn asks(&self, now: Instant) -> bool {
        let asked = self.asked.lock();
        let is_wanted = asked.is_wanted || asked.answered < asked.last;
        let after = if is_wanted { SOONEST } else { AGAIN };
        asked.last.is_none_or(|last| now >= last + after)
    }

    /// Notes the result of a fetch. After failures, the keys count for an hour. Returns whether the
    /// outcome differs from the one before.
    pub fn answered(&self, keys: Option<JwtKeys>, now: Instant) -> bool {
        let mut asked = self.asked.lock();
        let (had, failed) = (self.has_keys(), asked.answered < asked.last);
        asked.last = Some(now);
        asked.is_wanted = false;
        let has_failed = keys.is_none();
        if let Some(keys) = keys {
            asked.answered = Some(now);
            self.replace(keys);
        } else if asked.answered.is_none_or(|since| now >= since + COUNTS) {
            self.keys.store(None);
        }
        (had, failed) != (self.has_keys(), has_failed)
    }

    /// Verifies a JWT that a client presents now.
    ///
    /// # Errors
    /// Why the JWT is refused.
    pub(super) fn take(self: &Arc<Self>, text: Zeroizing<String>) -> Result<HeldJwt, JwtDenied> {
        let keys = self.keys.load_full();
        let keys = keys.ok_or("the keys of its issuer are not known")?;
        let claims = self.claims(&text, &keys)?;
        let ends = claims.get("exp").and_then(Value::as_u64);
        let held = HeldJwt {
            user: self.user(&claims)?,
            groups: self.groups(&claims)?,
            ends: ends.unwrap_or_default(),
            text,
            by: self.clone(),
            keys: Mutex::new(keys),
        };
        held.holds().then_some(held).ok_or(OVER)
    }

    /// Returns the claims of a JWT that these keys verify.
    fn claims(&self, text: &str, keys: &JwtKeys) -> Result<Map<String, Value>, JwtDenied> {
        if text.len() > LONGEST {
            return Err("it is longer than 8 KiB");
        }
        let head = decode_header(text).map_err(|_| "it is malformed, or of another algorithm")?;
        if head.crit.is_some() {
            return Err("it needs what no gateway knows");
        }
        let mut named = keys
            .0
            .keys
            .iter()
            .filter(|key| key.common.key_id == head.kid)
            .peekable();
        if named.peek().is_none() {
            self.asked.lock().is_wanted = true;
            return Err("no key of its issuer has its `kid`");
        }
        let key = named.find(|key| algorithms(key).contains(&head.alg));
        let key = key.ok_or("its algorithm is not that of its key")?;
        let key = DecodingKey::from_jwk(key).map_err(|error| cause(&error))?;
        let mut validation = Validation::new(head.alg);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.set_issuer(&[&self.settings.issuer]);
        validation.set_audience(&[&self.settings.audience]);
        let read = decode::<Map<String, Value>>(text, &key, &validation);
        let claims = read.map_err(|error| cause(&error))?.claims;
        // The library also accepts a list of issuers, and ignores a time that is not a number.
        let is_one = claims.get("iss").is_some_and(Value::is_string);
        let is_time = |name: &&str| claims.get(*name).is_none_or(Value::is_number);
        let is_typed = is_one && ["exp", "nbf", "iat"].iter().all(is_time);
        is_typed
            .then_some(claims)
            .ok_or("a claim is of another type")
    }

    fn user(&self, claims: &Map<String, Value>) -> Result<User, JwtDenied> {
        let named = claims.get(&self.settings.user).and_then(Value::as_str);
        let named = named.filter(|name| !name.is_empty());
        let user = named.and_then(|name| User::new(&format!("jwt:{name}")));
        user.ok_or("its claim for the user is none, or no name of a user")
    }

    /// Refuses a claim that is neither text nor a list of texts: it might be what a rule forbids.
    fn groups(&self, claims: &Map<String, Value>) -> Result<Vec<Arc<str>>, JwtDenied> {
        let mut groups = Vec::new();
        for claim in &self.settings.groups {
            let values = match claims.get(claim) {
                None | Some(Value::Null) => &[],
                Some(Value::Array(values)) => &values[..],
                Some(value) => std::slice::from_ref(value),
            };
            for value in values {
                let fits = |byte: u8| matches!(byte, b' '..=b'~') && !b"\"\\".contains(&byte);
                let name = value.as_str().filter(|name| name.bytes().all(fits));
                let name = name.ok_or("a claim for groups has a value that is no name of one")?;
                groups.push(Arc::from(format!("{claim}:{name}")));
            }
        }
        let is_few = groups.len() <= MOST_GROUPS;
        is_few.then_some(groups).ok_or("it has too many groups")
    }
}

/// Why a JWT is refused, without any text of it.
pub(super) type JwtDenied = &'static str;

fn cause(error: &Error) -> JwtDenied {
    match error.kind() {
        ErrorKind::InvalidSignature => "its signature is not of the key that it names",
        ErrorKind::InvalidIssuer => "it is of another issuer",
        ErrorKind::InvalidAudience => "it is for another audience",
        ErrorKind::ExpiredSignature => OVER,
        ErrorKind::ImmatureSignature => "it is not valid yet",
        ErrorKind::MissingRequiredClaim(_) => "it lacks `exp`, `iss` or `aud`",
        _ => "it is malformed",
    }
}

/// An accepted JWT. It holds until it expires, while the keys of its issuer verify it. Its text is
/// overwritten when dropped, and never shown.
pub struct HeldJwt {
    /// The user that the JWT names.
    pub user: User,
    /// The values of the claims for groups.
    pub groups: Vec<Arc<str>>,
    text: Zeroizing<String>,
    ends: u64,
    by: Arc<JwtVerifier>,
    /// The keys by which it was last verified.
    keys: Mutex<Arc<JwtKeys>>,
}

/// It is verified again whenever the issuer's keys change.
impl LiveEvidence for HeldJwt {
    fn holds(&self) -> bool {
        let Some(latest) = self.by.keys.load_full() else {
            return false;
        };
        let mut keys = self.keys.lock();
        let is_same = Arc::ptr_eq(&keys, &latest);
        let holds = now() < self.ends && (is_same || self.by.claims(&self.text, &latest).is_ok());
        if holds {
            *keys = latest;
        }
        holds
    }
}

gateway_names::concealed!(HeldJwt);

/// How the text of a JWT begins: `{"`, encoded.
pub(super) const JWT_PREFIX: &str = "eyJ";
const OVER: JwtDenied = "its time is over";
const LONGEST: usize = 8 << 10;
const MOST_GROUPS: usize = 256;
/// By how many seconds the issuer's clock may be ahead of ours.
const LEEWAY: u64 = 30;
/// How often an issuer's keys are fetched, and how soon again if there is a need.
const AGAIN: Duration = Duration::from_secs(10 * 60);
const SOONEST: Duration = Duration::from_secs(30);
/// How long the keys count while fetches fail.
const COUNTS: Duration = Duration::from_secs(60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_is_asked_now_and_then_and_its_keys_count_for_an_hour_without_it() {
        let settings = JwtSettings {
            issuer: "https://issuer.test".to_owned(),
            audience: "gateway".to_owned(),
            user: "sub".to_owned(),
            groups: Vec::new(),
        };
        let keys = || {
            let text = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"one","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
            JwtKeys::read(text.as_bytes()).ok()
        };
        let by = Arc::new(JwtVerifier::new(settings, None));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let asks = |seconds| by.asks(at(seconds));
        // At once, and every half minute after a failure. The failure is reported once.
        assert!(asks(0) && by.answered(None, at(0)));
        assert!(!asks(29) && asks(30) && !by.answered(None, at(30)));
        assert!(asks(60) && by.answered(keys(), at(60)) && by.has_keys());
        assert!(!asks(659) && asks(660) && !by.answered(keys(), at(660)));
        // An unknown key is a reason to ask sooner.
        let unknown = "eyJhbGciOiJFZERTQSIsImtpZCI6InR3byJ9.e30.AAAA";
        let refused = by.take(Zeroizing::new(unknown.to_owned()));
        assert_eq!(refused.unwrap_err(), "no key of its issuer has its `kid`");
        assert!(!asks(689) && asks(690) && !by.answered(keys(), at(690)));
        assert!(!asks(1289) && asks(1290));
        // The issuer becomes unavailable.
        assert!(by.answered(None, at(1290)) && by.has_keys());
        assert!(asks(1320) && !by.answered(None, at(690 + 3599)) && by.has_keys());
        assert!(by.answered(None, at(690 + 3600)) && !by.has_keys());
        assert!(by.answered(keys(), at(690 + 3630)) && by.has_keys());
    }
}
