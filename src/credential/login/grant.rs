//! How new tokens are requested: how the client authenticates, and what it signs.

use gateway_recipe::Algorithm;
use zeroize::Zeroizing;

use super::super::store::SecretRef;

/// The grant with which an issuer is asked for new tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TokenGrant {
    /// The refresh token of the last response (RFC 6749 §6).
    #[default]
    Refresh,
    /// The client's secret alone (RFC 6749 §4.4).
    ClientCredentials,
    /// An assertion that the client signs (RFC 7523 §2.1).
    JwtBearer(SignedAssertion),
    /// A JSON Web Token that a GitHub App signs with this RSA key. The App's id is that of the
    /// client, and the endpoint is that of one of its installations.
    GithubApp(SecretRef),
}

/// The contents of a signed assertion (RFC 7523 §3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedAssertion {
    /// A reference to its private key, of this algorithm.
    pub key: SecretRef,
    /// The algorithm.
    pub algorithm: KeyAlgorithm,
    /// The id of the key, if the issuer knows several.
    pub key_id: Option<String>,
    /// The `iss` claim: the signer.
    pub issuer: String,
    /// The `sub` claim: the account that tokens are for. Google omits it for the signer's own.
    pub subject: Option<String>,
    /// The `aud` claim: the recipient of the assertion.
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
    /// It is in its program's file, or part of the program, and is sent as a member.
    Known(Zeroizing<String>),
    /// The secret of the operator's own client.
    Kept {
        /// Where it is stored.
        from: SecretRef,
        /// How it is presented.
        shown: ClientAuthentication,
    },
}

impl std::fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientSecret")
    }
}

/// How a client presents its secret (RFC 6749 §2.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientAuthentication {
    /// As the password of Basic credentials.
    #[default]
    Basic,
    /// As a member of the content.
    Post,
}

impl KeyAlgorithm {
    /// Returns its name in the header of an assertion.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
        }
    }

    /// Returns the algorithm as the signing library names it.
    pub fn signs(self) -> Algorithm {
        match self {
            Self::Rs256 => Algorithm::RsaPkcs1Sha256,
            Self::Es256 => Algorithm::EcdsaP256,
        }
    }
}

impl TokenGrant {
    /// Returns the private key that the grant signs with, if any.
    pub fn key(&self) -> Option<&SecretRef> {
        match self {
            Self::Refresh | Self::ClientCredentials => None,
            Self::JwtBearer(assertion) => Some(&assertion.key),
            Self::GithubApp(key) => Some(key),
        }
    }
}
