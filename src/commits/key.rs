//! A public key, as `ssh-keygen` writes it.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use gateway_wire::Cursor;
use sha2::{Digest as _, Sha256};

/// Why a text is not a public key with which commits are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyMalformed {
    /// It is not a type and its base64.
    #[error("it is no public key of SSH, as `ssh-keygen` writes one")]
    Form,
    /// A certificate, or a type that ssh-keygen does not sign with.
    #[error("keys of this type do not sign commits")]
    Type,
}

/// A public key in its one form: its type and its base64, without a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    text: String,
    blob: Vec<u8>,
    fingerprint: String,
}

impl PublicKey {
    /// Reads a key, which a comment may follow.
    ///
    /// # Errors
    /// [`KeyMalformed`]
    pub fn parse(text: &str) -> Result<Self, KeyMalformed> {
        let mut words = text.split_ascii_whitespace();
        let (kind, base64) = words.next().zip(words.next()).ok_or(KeyMalformed::Form)?;
        if !TYPES.contains(&kind) {
            return Err(KeyMalformed::Type);
        }
        let blob = STANDARD.decode(base64).map_err(|_| KeyMalformed::Form)?;
        let inner = Cursor::new(&blob).vec32();
        if inner != Ok(kind.as_bytes()) || blob.len() > MOST {
            return Err(KeyMalformed::Form);
        }
        Ok(Self {
            text: format!("{kind} {base64}"),
            fingerprint: fingerprint(&blob),
            blob,
        })
    }

    /// Returns the key as SSH encodes it.
    pub fn blob(&self) -> &[u8] {
        &self.blob
    }

    /// Returns the fingerprint, as ssh-keygen prints it: `SHA256:…`.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Whether these flags of a request have the key sign by a hash that `SSHSIG` allows.
    pub(crate) fn signs_by(&self, flags: u32) -> bool {
        match self.text.starts_with("ssh-rsa ") {
            true => matches!(flags, RSA_SHA2_256 | RSA_SHA2_512),
            false => flags == 0,
        }
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns the fingerprint of a key.
pub(crate) fn fingerprint(blob: &[u8]) -> String {
    format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(blob)))
}

/// The types with which ssh-keygen signs. A certificate is none of them.
const TYPES: [&str; 7] = [
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];
/// A key of RSA with 16,384 bits has 2,071 bytes.
const MOST: usize = 4096;
const RSA_SHA2_256: u32 = 2;
const RSA_SHA2_512: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIhwtN4lKvnIq5yNvbQNPMOCsfT4k/1jITIBg7L/F0oJ";

    #[test]
    fn a_key_has_one_form_and_the_fingerprint_of_ssh_keygen() {
        let key = PublicKey::parse(&format!("  {KEY}\tann@example.com of work\n")).unwrap();
        assert_eq!(key.to_string(), KEY);
        // `ssh-keygen -lf` of this key.
        let printed = "SHA256:eE/t9q2H3xPc5e0UFv8SWQnTud1pw0x+Zb1YsdDCmjM";
        assert_eq!(key.fingerprint(), printed);
        assert!(key.signs_by(0) && !key.signs_by(4));
    }

    #[test]
    fn what_is_no_key_that_signs_is_refused() {
        for (text, fault) in [
            ("", KeyMalformed::Form),
            ("ssh-ed25519", KeyMalformed::Form),
            ("ssh-ed25519 AAAA", KeyMalformed::Form),
            ("ssh-ed25519 =", KeyMalformed::Form),
            ("-----BEGIN OPENSSH PRIVATE KEY-----", KeyMalformed::Type),
            ("ssh-dss AAAAB3NzaC1kc3M=", KeyMalformed::Type),
            ("ssh-rsa AAAAC3NzaC1lZDI1NTE5", KeyMalformed::Form),
            ("ssh-ed25519-cert-v01@openssh.com AAAA", KeyMalformed::Type),
        ] {
            assert_eq!(PublicKey::parse(text), Err(fault), "{text}");
        }
    }
}
