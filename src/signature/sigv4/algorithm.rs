//! The two algorithms of Signature Version 4.

use super::fault::Fault;

/// The signing algorithm of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// `AWS4-HMAC-SHA256`, for one region.
    V4,
    /// `AWS4-ECDSA-P256-SHA256` (SigV4a), for a set of regions.
    V4a,
}

impl Algorithm {
    /// The name in `Authorization` and `X-Amz-Algorithm`.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::V4 => "AWS4-HMAC-SHA256",
            Algorithm::V4a => "AWS4-ECDSA-P256-SHA256",
        }
    }

    pub(super) fn named(name: &str) -> Result<Algorithm, Fault> {
        [Algorithm::V4, Algorithm::V4a]
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
            .ok_or(Fault::Algorithm)
    }
}
