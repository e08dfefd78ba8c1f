//! The credential scope of a signature: access key, day, region and service.

use super::algorithm::Algorithm;
use super::fault::Fault;

/// The regions for which the signature claims to be valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Regions<'a> {
    /// The region of a SigV4 scope.
    One(&'a str),
    /// SigV4a's `*`, which multi-region access points use: all of them (J13).
    Any,
    /// SigV4a's list, at least one.
    Set(&'a [Box<str>]),
}

/// `KEY/20150830/us-east-1/s3/aws4_request`, parsed from its end.
pub(super) struct CredentialScope<'a> {
    pub(super) access_key: &'a str,
    pub(super) day: &'a str,
    pub(super) region: &'a str,
    pub(super) service: &'a str,
}

impl<'a> CredentialScope<'a> {
    pub(super) fn parse(text: &'a str, algorithm: Algorithm) -> Result<CredentialScope<'a>, Fault> {
        const MALFORMED: Fault = Fault::Malformed("Credential");
        let mut pieces = text.rsplit('/');
        let mut next = || pieces.next().ok_or(MALFORMED);
        if next()? != "aws4_request" {
            return Err(MALFORMED);
        }
        let service = next()?;
        let region = match algorithm {
            Algorithm::V4 => next()?,
            Algorithm::V4a => "",
        };
        let day = next()?;
        let access_key = next()?;
        // Nothing may be left: a slash in an access key would let two readers see two scopes.
        if pieces.next().is_some() || !is_access_key(access_key) {
            return Err(MALFORMED);
        }
        if !is_label(service) || (algorithm == Algorithm::V4 && !is_label(region)) {
            return Err(Fault::Scope);
        }
        Ok(CredentialScope {
            access_key,
            day,
            region,
            service,
        })
    }
}

fn is_access_key(text: &str) -> bool {
    (1..=LONGEST_ACCESS_KEY).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_graphic() && b != b',')
}

/// The name of a region or a service (J12).
fn is_label(text: &str) -> bool {
    (1..=LONGEST_LABEL).contains(&text.len())
        && text
            .bytes()
            .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

/// The set of `X-Amz-Region-Set`; empty for SigV4, and for all regions.
pub(super) fn region_set(
    algorithm: Algorithm,
    text: Option<&str>,
) -> Result<Box<[Box<str>]>, Fault> {
    match (algorithm, text) {
        (Algorithm::V4, None) | (Algorithm::V4a, Some("*")) => Ok(Box::default()),
        (Algorithm::V4, Some(_)) => Err(Fault::Scope),
        (Algorithm::V4a, None) => Err(Fault::Missing("X-Amz-Region-Set")),
        (Algorithm::V4a, Some(text)) => text
            .split(',')
            .map(|region| {
                if is_label(region) {
                    Ok(region.into())
                } else {
                    Err(Fault::Scope)
                }
            })
            .collect(),
    }
}

const LONGEST_ACCESS_KEY: usize = 128;
const LONGEST_LABEL: usize = 64;
