//! The encodings of a private key as text: PEM (RFC 7468), base64 or hexadecimal.

use base64::Engine as _;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use pkcs8::LineEnding;
use pkcs8::der::pem;
use zeroize::Zeroizing;

use super::key_fault::KeyFault;

/// Bytes that may be those of a key; wiped on drop.
pub(super) type Bytes = Zeroizing<Vec<u8>>;

/// The coding of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Coding {
    Pem {
        label: &'static str,
        /// The line separator. In JSON files and in variables it is often the two characters `\n`.
        line: &'static str,
        /// Whether the separator follows the last line, too.
        ended: bool,
    },
    /// By its index in [`BASE64`].
    Base64(usize),
    Hex {
        upper: bool,
    },
}

impl Coding {
    /// Decodes a text. Outside of PEM it must have 32 or 64 bytes; nothing else is known of them.
    pub(super) fn read(text: &[u8]) -> Result<(Coding, Bytes), KeyFault> {
        let text = std::str::from_utf8(text).map_err(|_| KeyFault::Form)?;
        if text.contains("-----BEGIN ") {
            return read_pem(text);
        }
        if matches!(text.len(), 64 | 128)
            && let Ok(bytes) = base16ct::mixed::decode_vec(text)
        {
            let upper = text.bytes().any(|byte| byte.is_ascii_uppercase());
            return Ok((Coding::Hex { upper }, Zeroizing::new(bytes)));
        }
        let found = BASE64.iter().enumerate().find_map(|(at, engine)| {
            let bytes = decoded(engine, text)?;
            matches!(bytes.len(), 32 | 64).then_some((Coding::Base64(at), bytes))
        });
        found.ok_or(KeyFault::Form)
    }

    /// Writes bytes in this coding.
    pub(super) fn write(&self, bytes: &[u8]) -> Zeroizing<String> {
        Zeroizing::new(match self {
            Coding::Base64(at) => BASE64[*at].encode(bytes),
            Coding::Hex { upper: true } => base16ct::upper::encode_string(bytes),
            Coding::Hex { upper: false } => base16ct::lower::encode_string(bytes),
            Coding::Pem { label, line, ended } => {
                let whole = pem::encode_string(label, LineEnding::LF, bytes).map(Zeroizing::new);
                let whole = whole.expect("a key's label and length are within PEM's bounds");
                let kept = if *ended { &whole } else { whole.trim_end() };
                kept.replace('\n', line)
            }
        })
    }
}

fn read_pem(text: &str) -> Result<(Coding, Bytes), KeyFault> {
    let mut keys = text
        .split("-----BEGIN ")
        .skip(1)
        .filter_map(|block| block.split_once("-----"))
        // `EC PARAMETERS` may stand first (OpenSSL).
        .filter(|(label, _)| label.ends_with("PRIVATE KEY"));
    let (found, rest) = keys.next().ok_or(KeyFault::Public)?;
    if keys.next().is_some() {
        return Err(KeyFault::Several);
    }
    let label = match found {
        "ENCRYPTED PRIVATE KEY" => return Err(KeyFault::Encrypted),
        "OPENSSH PRIVATE KEY" => return Err(KeyFault::OpenSsh),
        _ => *LABELS
            .iter()
            .find(|label| **label == found)
            .ok_or(KeyFault::Form)?,
    };
    // RFC 1421 §4.6.1.1: fields before the key, which OpenSSL writes for encrypted keys.
    if rest.contains("Proc-Type:") {
        return Err(KeyFault::Encrypted);
    }
    let (body, after) = rest.split_once("-----END ").ok_or(KeyFault::Damaged)?;
    let after = after
        .strip_prefix(label)
        .and_then(|after| after.strip_prefix("-----"));
    let after = after.ok_or(KeyFault::Damaged)?;
    let line = LINES
        .iter()
        .find(|line| body.starts_with(**line))
        .ok_or(KeyFault::Damaged)?;
    let mut joined = Zeroizing::new(String::with_capacity(body.len()));
    let pieces = body.split(line).flat_map(str::split_ascii_whitespace);
    pieces.for_each(|piece| joined.push_str(piece));
    let bytes = decoded(&STANDARD, &joined).ok_or(KeyFault::Damaged)?;
    let coding = Coding::Pem {
        label,
        line,
        ended: after.starts_with(line),
    };
    Ok((coding, bytes))
}

fn decoded(engine: &GeneralPurpose, text: &str) -> Option<Bytes> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len()));
    engine.decode_vec(text, &mut bytes).ok()?;
    Some(bytes)
}

const LABELS: [&str; 3] = ["PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY"];
const LINES: [&str; 4] = ["\r\n", "\n", "\\n", " "];
const BASE64: [GeneralPurpose; 4] = [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD];
