//! What each caveat allows.

use std::net::IpAddr;

use gateway_message::{Host, HostPattern, RequestTarget, path_pattern};
use gateway_names::{CredentialName, PolicyId};
use http::Method;

use super::caveat::Caveat;

/// What is known of a connection when a token comes in.
pub struct ConnectionEvidence<'a> {
    /// The peer's address, if it has one.
    pub peer: Option<IpAddr>,
    /// The names that other evidence gives the peer.
    pub evidence: &'a [&'a str],
    /// The second of Unix time.
    pub now: u64,
}

/// What a request uses a token for.
pub struct TokenUse<'a, C, P> {
    /// The host that it is for.
    pub host: &'a Host,
    /// The port.
    pub port: u16,
    /// The method.
    pub method: &'a Method,
    /// The canonical path.
    pub path: &'a str,
    /// The further paths that its fields name: what it copies or moves. `None` stands for one that
    /// cannot be judged.
    pub named: &'a [Option<RequestTarget>],
    /// Whether it has others inside, whose methods and paths nobody sees.
    pub is_batch: bool,
    /// The credentials that it would be lent.
    pub credentials: C,
    /// The policies that allowed it. Without any, a token that names policies allows nothing.
    pub policies: P,
    /// The second of Unix time.
    pub now: u64,
}

/// Which caveat refuses, in words for the gateway's own record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CaveatDenied {
    /// `host`
    #[error("the token is not for this host and port")]
    Host,
    /// `method`
    #[error("the token is not for this method")]
    Method,
    /// `path`
    #[error("the token is not for this path")]
    Path,
    /// `method` or `path`, of a batch
    #[error("the token is for some methods or paths, and those in a batch are not seen")]
    Batch,
    /// `credential`
    #[error("the token may not be lent this credential")]
    Credential,
    /// `before`
    #[error("the token has ended")]
    Before,
    /// `after`
    #[error("the token is not yet valid")]
    After,
    /// No `before` within a year
    #[error("the token does not end within a year")]
    Endless,
    /// `from`
    #[error("the token is not for this peer's address")]
    From,
    /// `as`
    #[error("the token needs other evidence beside it")]
    As,
    /// `policy`
    #[error("the token is not for what this policy allows")]
    Policy,
    /// More than four of `budget`, `once` and `request`
    #[error("the token has more than four budgets")]
    TooMany,
    /// `request`
    #[error("the token is for another request")]
    Request,
}

impl Caveat {
    /// Judges what a connection shows: when, where from, and what stands beside the token.
    pub(crate) fn admits(&self, door: &ConnectionEvidence<'_>) -> Result<(), CaveatDenied> {
        let (holds, denied) = match self {
            Self::From(networks) => {
                let peer = door.peer.map(|peer| peer.to_canonical());
                let is_within = |peer| networks.iter().any(|network| network.contains(&peer));
                (peer.is_some_and(is_within), CaveatDenied::From)
            }
            Self::As(name) => (door.evidence.contains(&&**name), CaveatDenied::As),
            other => return other.lasts(door.now),
        };
        holds.then_some(()).ok_or(denied)
    }

    /// Judges a request. Allocates nothing.
    pub(crate) fn allows<'a, C, P>(&self, of: &TokenUse<'a, C, P>) -> Result<(), CaveatDenied>
    where
        C: Iterator<Item = &'a CredentialName> + Clone,
        P: Iterator<Item = &'a PolicyId> + Clone,
    {
        let (holds, denied) = match self {
            Self::Host(hosts) => {
                let is_one =
                    |(host, port): &(HostPattern, u16)| *port == of.port && host.matches(of.host);
                (hosts.iter().any(is_one), CaveatDenied::Host)
            }
            Self::Method(_) | Self::Path(_) if of.is_batch => (false, CaveatDenied::Batch),
            Self::Method(methods) => (methods.contains(of.method), CaveatDenied::Method),
            Self::Path(paths) => {
                let is_below =
                    |path: &str| paths.iter().any(|above| below(path, above)) && !climbs(path);
                let mut named = of.named.iter().map(Option::as_ref);
                let is_named = named.all(|one| one.is_some_and(|one| is_below(one.path())));
                (is_below(of.path) && is_named, CaveatDenied::Path)
            }
            Self::Credential(names) => {
                let mut used = of.credentials.clone();
                (
                    used.all(|name| names.contains(name)),
                    CaveatDenied::Credential,
                )
            }
            Self::Policy(ids) => {
                let mut allowed = of.policies.clone().peekable();
                let is_any = allowed.peek().is_some();
                (
                    is_any && allowed.all(|id| ids.contains(id)),
                    CaveatDenied::Policy,
                )
            }
            other => return other.lasts(of.now),
        };
        holds.then_some(()).ok_or(denied)
    }

    /// Judges what is the same for a connection and for each of its requests. What was judged with
    /// the connection holds.
    fn lasts(&self, now: u64) -> Result<(), CaveatDenied> {
        match self {
            Self::Before(end) if now >= *end => Err(CaveatDenied::Before),
            Self::After(start) if now < *start => Err(CaveatDenied::After),
            _ => Ok(()),
        }
    }
}

/// Whether a path is another, or below it by whole segments.
fn below(path: &str, above: &str) -> bool {
    let rest = path.strip_prefix(above);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || above == "/")
}

/// Whether some server takes a segment for one that leads upwards, as in an object's key. A
/// canonical path hides none behind an encoded slash.
fn climbs(path: &str) -> bool {
    let is_dots = |one: &str| one == "." || one == "..";
    let mut segments = path.split('/').filter(|one| one.starts_with('.'));
    path.contains('.') && segments.any(|one| path_pattern::segments(one).any(is_dots))
}
