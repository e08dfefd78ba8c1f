//! How new tokens are asked for: what the client shows, and what it signs.

use gateway_recipe::Algorithm;
use zeroize::Zeroizing;

use super::super::store::SecretRef;

/// How an issuer is asked for new tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TokenGrant {
    /// With the refresh token of the last answer (RFC 6749 §6).
    #[default]
    Refresh,
    /// With the client's secret alone (RFC 6749 §4.4).
    ClientCredentials,
    /// With an assertion that the client signs (RFC 7523 §2.1).
    JwtBearer(SignedAssertion),
    /// With a JSON Web Token that a GitHub App signs with this RSA key. Its id is the client's, and
    /// the endpoint that of one of its installations.
    GithubApp(SecretRef),
}

/// What a signed assertion says (RFC 7523 §3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedAssertion {
    /// Where its private key is kept, a reference to one of the algorithm.
    pub key: SecretRef,
    /// The algorithm.
    pub algorithm: KeyAlgorithm,
    /// The id of that key, if the issuer knows several.
    pub key_id: Option<String>,
    /// Who signs.
    pub issuer: String,
    /// For whom tokens are asked. Google's own leaves it out, unless it is another account.
    pub subject: Option<String>,
    /// For whom the assertion is.
    pub audience: String,
}

/// The algorithm of an assertion's key (RFC 7518 §3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyAlgorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    #[default]
    Rs256,
    /// ECDSA over P-256 with SHA-256.
    Es256,
}

/// The secret of a client. Its `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub enum ClientSecret {
    /// It is in its program's file, or part of the program, and is shown as a member.
    Known(Zeroizing<String>),
    /// The secret of a client of the operator's own.
    Kept {
        /// Where it is kept.
        from: SecretRef,
        /// How it is shown.
        shown: ClientAuthentication,
    },
}

impl std::fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientSecret")
    }
}

/// How a client shows its secret (RFC 6749 §2.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientAuthentication {
    /// As a password of Basic.
    #[default]
    Basic,
    /// As a member of the content.
    Post,
}

impl KeyAlgorithm {
    /// Its name in the header of an assertion.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
        }
    }

    /// The same, as signers have it.
    pub fn signs(self) -> Algorithm {
        match self {
            Self::Rs256 => Algorithm::RsaPkcs1Sha256,
            Self::Es256 => Algorithm::EcdsaP256,
        }
    }
}

impl TokenGrant {
    /// The private key that it signs with, if it does.
    pub fn key(&self) -> Option<&SecretRef> {
        match self {
            Self::Refresh | Self::ClientCredentials => None,
            Self::JwtBearer(assertion) => Some(&assertion.key),
            Self::GithubApp(key) => Some(key),
        }
    }
}
