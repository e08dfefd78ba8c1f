//! Canaries: random secrets, and the search for them in every form.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

/// A secret that must be seen at the origin's pinned place and nowhere else.
#[derive(Clone)]
pub struct Canary {
    /// The credential's name.
    pub name: &'static str,
    /// The secret itself.
    pub secret: String,
    needles: Vec<(&'static str, Vec<u8>)>,
}

/// Random letters and digits.
pub fn random(length: usize) -> String {
    const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut bytes = vec![0; length];
    getrandom::fill(&mut bytes).unwrap();
    bytes
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]))
        .collect()
}

impl Canary {
    /// A canary with this name; `%` in the pattern stands for 20 random letters.
    pub fn new(name: &'static str, pattern: &str) -> Self {
        let mut secret = String::new();
        for (at, piece) in pattern.split('%').enumerate() {
            if at > 0 {
                secret.push_str(&random(20));
            }
            secret.push_str(piece);
        }
        let needles = forms(secret.as_bytes());
        Self {
            name,
            secret,
            needles,
        }
    }
}

/// The forms of a secret, each with its name.
pub fn forms(secret: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let text = std::str::from_utf8(secret).unwrap();
    let mut forms = vec![
        ("raw", secret.to_vec()),
        ("hex", hex(secret).into_bytes()),
        ("HEX", hex(secret).to_uppercase().into_bytes()),
        (
            "percent",
            percent(secret, |byte| byte.is_ascii_alphanumeric()).into_bytes(),
        ),
        ("percent of all", percent(secret, |_| false).into_bytes()),
        (
            "json unicode",
            secret
                .iter()
                .map(|b| format!("\\u{b:04x}"))
                .collect::<String>()
                .into_bytes(),
        ),
        ("json slashes", text.replace('/', "\\/").into_bytes()),
        ("utf-16", secret.iter().flat_map(|b| [*b, 0]).collect()),
        ("reversed", secret.iter().rev().copied().collect()),
    ];
    for shift in 0..3 {
        forms.push((
            "base64",
            inside(
                STANDARD.encode([vec![0; shift], secret.to_vec()].concat()),
                shift,
            ),
        ));
        forms.push((
            "base64url",
            inside(
                URL_SAFE.encode([vec![0; shift], secret.to_vec()].concat()),
                shift,
            ),
        ));
    }
    forms
}

/// The characters of base64 that only the secret determines.
fn inside(text: String, shift: usize) -> Vec<u8> {
    let text = text.trim_end_matches('=');
    text.as_bytes()[[0, 2, 3][shift]..text.len() - 1].to_vec()
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Escapes everything that `plain` does not accept.
pub fn percent(bytes: &[u8], plain: impl Fn(u8) -> bool) -> String {
    bytes
        .iter()
        .map(|byte| {
            if plain(*byte) {
                char::from(*byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

/// The canaries found in the bytes, as `name (form)`.
pub fn seen(canaries: &[Canary], bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for canary in canaries {
        for (form, needle) in &canary.needles {
            if memchr::memmem::find(bytes, needle).is_some() {
                found.push(format!("{} ({form})", canary.name));
            }
        }
    }
    found
}

/// How often canaries appear in the bytes of an origin, plain or in Basic credentials.
pub fn count(canaries: &[Canary], bytes: &[u8]) -> usize {
    let mut ends = std::collections::BTreeSet::new();
    for canary in canaries {
        for (form, needle) in &canary.needles {
            if matches!(*form, "raw" | "percent" | "base64") {
                ends.extend(memchr::memmem::find_iter(bytes, needle));
            }
        }
    }
    ends.len()
}
