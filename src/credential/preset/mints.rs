//! A service's requests that mint credentials which outlive the session, as data.

use std::str::FromStr;

use gateway_message::{HostPattern, OriginPattern, PatternMalformed};

/// A pattern of requests: `[GET ][HOST]/PATH[$]`, in which `*` stands for any one segment.
///
/// Matches all paths below the path, or with `$` at its end only the path itself, with every method
/// that changes something; with `GET`, with every method. Without a host, it matches at each host
/// of the service's credentials.
#[derive(Debug, Clone)]
pub struct MintPattern {
    /// Whether a request that only reads mints one, too.
    pub by_reading: bool,
    /// The path.
    pub path: String,
    host: Option<HostPattern>,
}

/// Why a text is not such a pattern.
#[derive(Debug, thiserror::Error)]
pub enum MintPatternMalformed {
    /// It has no path.
    #[error("it has no path")]
    Path,
    /// Its host cannot be read.
    #[error(transparent)]
    Host(#[from] PatternMalformed),
}

impl FromStr for MintPattern {
    type Err = MintPatternMalformed;

    fn from_str(text: &str) -> Result<Self, MintPatternMalformed> {
        let read = text.strip_prefix("GET ");
        let rest = read.unwrap_or(text);
        let (host, path) = rest.split_at(rest.find('/').ok_or(MintPatternMalformed::Path)?);
        let host = (!host.is_empty()).then(|| HostPattern::with_port(host, 443));
        Ok(Self {
            by_reading: read.is_some(),
            path: path.to_owned(),
            host: host.transpose()?.map(|(host, _)| host),
        })
    }
}

impl MintPattern {
    /// Returns the hosts at which a credential of these origins can mint one. `is_own` returns
    /// whether an origin belongs to the service.
    pub fn hosts<'a>(
        &'a self,
        origins: &'a [&'a OriginPattern],
        is_own: impl Fn(&OriginPattern) -> bool + 'a,
    ) -> impl Iterator<Item = &'a HostPattern> {
        origins.iter().filter_map(move |origin| match &self.host {
            None => is_own(origin).then_some(&origin.hosts),
            host => host.as_ref().filter(|host| origin.hosts.overlaps(host)),
        })
    }
}
