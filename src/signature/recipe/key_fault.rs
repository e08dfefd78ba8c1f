//! Why a text is refused as a private key.

/// Why a text is refused as a private key. Contains none of its bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    /// It has none of the known forms.
    #[error(
        "it is no private key: that is PEM (`PRIVATE KEY`, `EC PRIVATE KEY` or `RSA PRIVATE KEY`), or of Ed25519 its 32 bytes, \
         or 64 with the public key, in base64 or hexadecimal"
    )]
    Form,
    /// It is encrypted with a passphrase.
    #[error(
        "the private key is encrypted; keep it without a passphrase: `openssl pkey -in KEY -out PLAIN`"
    )]
    Encrypted,
    /// It is in OpenSSH's own form.
    #[error(
        "the private key is in OpenSSH's form; write it as PEM: `ssh-keygen -p -m PKCS8 -f KEY`"
    )]
    OpenSsh,
    /// It is a public key or a certificate.
    #[error("it is a public key or a certificate; the private key is needed")]
    Public,
    /// There are several keys.
    #[error("there is more than one private key in it")]
    Several,
    /// It is another kind of key than the algorithm signs with.
    #[error("it is {is}, and the service is signed for with {wanted}")]
    Kind {
        /// The kind of the key.
        is: &'static str,
        /// The kind that the algorithm needs.
        wanted: &'static str,
    },
    /// It is too small or too large, or of an odd size.
    #[error("it is an RSA key of {0} bits; those of 2048, 3072 and 4096 bits are taken")]
    Size(usize),
    /// It is cut off, or its numbers do not belong together.
    #[error("the private key is damaged")]
    Damaged,
}
