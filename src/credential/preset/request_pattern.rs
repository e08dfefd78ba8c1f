//! A service's requests as data: those that mint credentials which outlive the session, and those
//! that a named permission is about.

use std::fmt;
use std::str::FromStr;

use gateway_message::{HostPattern, OriginPattern, PathPattern, PatternMalformed};

/// A pattern of requests: `[METHOD ][HOST]/PATH[$]`, in which `*` stands for any one segment.
///
/// Matches all paths below the path, or with `$` at its end only the path itself. Without a host,
/// it matches at each host of the service's credentials. Whoever reads the pattern says what it
/// means without a method: for what mints, each that changes something; for what a permission
/// leaves, each.
#[derive(Debug, Clone)]
pub struct RequestPattern {
    /// The method.
    pub method: Option<String>,
    /// The path.
    pub path: String,
    host: Option<HostPattern>,
}

/// Why a text is not such a pattern.
#[derive(Debug, thiserror::Error)]
pub enum RequestPatternMalformed {
    /// It has no path.
    #[error("it has no path")]
    Path,
    /// Its path is none that a request can have.
    #[error("its path is {0}")]
    Segments(String),
    /// Its path names no segment.
    #[error("its path names no segment")]
    Anything,
    /// Its method is none that is known.
    #[error("its method is one of {}", METHODS.join(", "))]
    Method,
    /// Its host cannot be read.
    #[error(transparent)]
    Host(#[from] PatternMalformed),
}

impl FromStr for RequestPattern {
    type Err = RequestPatternMalformed;

    fn from_str(text: &str) -> Result<Self, RequestPatternMalformed> {
        let (method, rest) = match text.split_once(' ') {
            Some((method, _)) if !METHODS.contains(&method) => {
                return Err(RequestPatternMalformed::Method);
            }
            Some((method, rest)) => (Some(method.to_owned()), rest),
            None => (None, text),
        };
        let (host, path) = rest.split_at(rest.find('/').ok_or(RequestPatternMalformed::Path)?);
        let plain = path.strip_suffix('$').unwrap_or(path);
        plain
            .parse::<PathPattern>()
            .map_err(|error| RequestPatternMalformed::Segments(error.to_string()))?;
        if plain
            .split('/')
            .all(|segment| segment.is_empty() || segment == "*")
        {
            return Err(RequestPatternMalformed::Anything);
        }
        let host = (!host.is_empty()).then(|| HostPattern::with_port(host, 443));
        Ok(Self {
            method,
            path: path.to_owned(),
            host: host.transpose()?.map(|(host, _)| host),
        })
    }
}

impl fmt::Display for RequestPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = self.method.iter().map(|method| format!("{method} "));
        let host = self.host.iter().map(ToString::to_string);
        let before: String = method.chain(host).collect();
        write!(formatter, "{before}{}", self.path)
    }
}

impl RequestPattern {
    /// Whether it is about all requests to its path, or all that change something.
    #[must_use]
    pub fn is_by_path(&self) -> bool {
        self.method.is_none() || self.by_reading()
    }

    /// Whether it matches requests that only read, too.
    #[must_use]
    pub fn by_reading(&self) -> bool {
        self.method.as_deref() == Some("GET")
    }

    /// Returns the hosts, of these origins, at which it matches. `is_own` returns whether an origin
    /// belongs to the service.
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

/// The methods of patterns.
const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
