//! Caveats: what narrows a token. One grammar, and one spelling of each.

use std::fmt;
use std::str::FromStr;

use gateway_message::{EncodedSlash, HostPattern, RequestTarget, method};
use gateway_names::{Amount, CredentialName, Period, PolicyId, Unit, read_amount, written};
use http::Method;
use ipnet::IpNet;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// One narrowing. All of a token's must allow what is done with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caveat {
    /// `host in api.github.com *.example.com:8443`: these hosts, at port 443 or that written.
    Host(Box<[(HostPattern, u16)]>),
    /// `method in GET HEAD`: these methods.
    Method(Box<[Method]>),
    /// `path under /repos/octo /user`: these canonical paths and what is below them.
    Path(Box<[Box<str>]>),
    /// `credential in github` or `credential none`: no credential but these is lent.
    Credential(Box<[CredentialName]>),
    /// `before 2026-12-01T00:00:00Z`: until this second of Unix time.
    Before(u64),
    /// `after 2026-12-01T00:00:00Z`: from this second of Unix time on.
    After(u64),
    /// `from 100.64.0.0/10`: peers with an address of these networks.
    From(Box<[IpNet]>),
    /// `as spiffe://example.com/ns/ci`: other evidence that must stand beside the token.
    As(Box<str>),
    /// `policy in github/read`: what these policies alone allow.
    Policy(Box<[PolicyId]>),
    /// `budget requests 1000`, `budget usd 5.00 per day`, `once`, `request sha256:…`
    Limit(TokenLimit),
}

/// What a token and all that is derived from it may use up together, or be used for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TokenLimit {
    /// `budget UNIT AMOUNT [per PERIOD]`: so much, in each period or at all.
    Budget(Unit, Amount, Option<Period>),
    /// `once`: one request.
    Once,
    /// `request sha256:…`: the request whose method, space, URL, newline and content have this
    /// hash.
    Request([u8; 32]),
}

/// Why a text is not a caveat.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaveatMalformed {
    /// It begins like no caveat.
    #[error("there is no such caveat")]
    Unknown,
    /// What it names is not what it should name.
    #[error("{0:?} is not {1}")]
    Value(String, &'static str),
    /// It names something twice.
    #[error("{0:?} is there twice")]
    Twice(String),
    /// It names too much.
    #[error("it names more than {MOST_ITEMS}")]
    TooMany,
    /// It has another spelling.
    #[error("its one spelling is `{0}`")]
    Spelling(String),
}

impl FromStr for Caveat {
    type Err = CaveatMalformed;

    fn from_str(text: &str) -> Result<Self, CaveatMalformed> {
        let caveat = read(text)?;
        let spelling = caveat.to_string();
        if spelling == text {
            Ok(caveat)
        } else {
            Err(CaveatMalformed::Spelling(spelling))
        }
    }
}

fn read(text: &str) -> Result<Caveat, CaveatMalformed> {
    let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
    let after = |word| rest.strip_prefix(word).ok_or(CaveatMalformed::Unknown);
    let name = |text: &str| CredentialName::new(text).ok();
    let id = |text: &str| PolicyId::new(text).ok();
    Ok(match kind {
        "host" => Caveat::Host(list(after("in ")?, "a host or `*.domain`", host)?),
        "method" => Caveat::Method(list(after("in ")?, "a method", method_token)?),
        "path" => Caveat::Path(list(after("under ")?, "a plain path", path)?),
        "credential" if rest == "none" => Caveat::Credential(Box::default()),
        "credential" => Caveat::Credential(list(after("in ")?, "a name", name)?),
        "before" => Caveat::Before(one(rest, "a time such as 2026-12-01T00:00:00Z", seconds)?),
        "after" => Caveat::After(one(rest, "a time such as 2026-12-01T00:00:00Z", seconds)?),
        "from" => Caveat::From(list(rest, "a network such as 10.0.0.0/8", network)?),
        "as" => Caveat::As(one(rest, "a name without spaces", word)?),
        "policy" => Caveat::Policy(list(after("in ")?, "a policy's id", id)?),
        "budget" => Caveat::Limit(one(rest, "a budget such as requests 1000 per day", budget)?),
        "request" => Caveat::Limit(one(rest, "the SHA-256 of a request", request)?),
        "once" if text == "once" => Caveat::Limit(TokenLimit::Once),
        _ => return Err(CaveatMalformed::Unknown),
    })
}

fn one<T>(
    text: &str,
    what: &'static str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<T, CaveatMalformed> {
    read(text).ok_or_else(|| CaveatMalformed::Value(text.to_owned(), what))
}

fn list<T: PartialEq>(
    text: &str,
    what: &'static str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Box<[T]>, CaveatMalformed> {
    let mut items = Vec::new();
    for item in text.split(' ') {
        let value = one(item, what, &read)?;
        if items.contains(&value) {
            return Err(CaveatMalformed::Twice(item.to_owned()));
        }
        if items.len() == MOST_ITEMS {
            return Err(CaveatMalformed::TooMany);
        }
        items.push(value);
    }
    Ok(items.into())
}

fn host(text: &str) -> Option<(HostPattern, u16)> {
    HostPattern::with_port(text, PORT).ok()
}

fn method_token(text: &str) -> Option<Method> {
    let method = Method::from_bytes(text.as_bytes()).ok()?;
    method::check(&method).is_ok().then_some(method)
}

/// A canonical path without what servers read differently: a doubled slash, a slash at the end, a
/// segment's parameters.
fn path(text: &str) -> Option<Box<str>> {
    let target = RequestTarget::judged(text.as_bytes(), EncodedSlash::Refuse).ok()?;
    let is_plain = text == "/" || !text.ends_with('/');
    let is_plain = is_plain && !text.contains("//") && !text.contains(';') && !text.contains("%3B");
    let path = target.path();
    (is_plain && target.query().is_none()).then(|| path.into())
}

fn seconds(text: &str) -> Option<u64> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    time.unix_timestamp().try_into().ok()
}

fn network(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>().ok().map(|network| network.trunc())
}

fn word(text: &str) -> Option<Box<str>> {
    let fits = (1..=LONGEST_WORD).contains(&text.len());
    (fits && text.bytes().all(|byte| byte.is_ascii_graphic())).then(|| text.into())
}

fn budget(text: &str) -> Option<TokenLimit> {
    let (unit, rest) = text.split_once(' ')?;
    let (amount, per) = match rest.split_once(" per ") {
        Some((amount, per)) => (amount, Some(Period::named(per)?)),
        None => (rest, None),
    };
    let unit = Unit::named(unit)?;
    let amount = read_amount(unit, amount).filter(|amount| (1..=MOST_AMOUNT).contains(amount))?;
    let lasts = per.is_none_or(|per| per != Period::Session);
    lasts.then_some(TokenLimit::Budget(unit, amount, per))
}

fn request(text: &str) -> Option<TokenLimit> {
    let mut hash = [0; 32];
    let hex = text.strip_prefix("sha256:")?;
    base16ct::lower::decode(hex, &mut hash)
        .ok()
        .filter(|all| all.len() == 32)?;
    Some(TokenLimit::Request(hash))
}

/// Writes the caveat in its one spelling.
impl fmt::Display for Caveat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(hosts) => {
                f.write_str("host in")?;
                hosts.iter().try_for_each(|(host, port)| match *port {
                    PORT => write!(f, " {host}"),
                    port => write!(f, " {host}:{port}"),
                })
            }
            Self::Method(methods) => listed(f, "method in", methods),
            Self::Path(paths) => listed(f, "path under", paths),
            Self::Credential(none) if none.is_empty() => f.write_str("credential none"),
            Self::Credential(names) => listed(f, "credential in", names),
            Self::Before(time) => write!(f, "before {}", utc(*time)?),
            Self::After(time) => write!(f, "after {}", utc(*time)?),
            Self::From(networks) => listed(f, "from", networks),
            Self::As(evidence) => write!(f, "as {evidence}"),
            Self::Policy(policies) => listed(f, "policy in", policies),
            Self::Limit(TokenLimit::Once) => f.write_str("once"),
            Self::Limit(TokenLimit::Request(hash)) => {
                let hex = base16ct::lower::encode_string(hash);
                write!(f, "request sha256:{hex}")
            }
            Self::Limit(TokenLimit::Budget(unit, amount, per)) => {
                write!(f, "budget {unit} {}", written(*unit, *amount))?;
                per.map_or(Ok(()), |per| write!(f, " per {per}"))
            }
        }
    }
}

fn listed(f: &mut fmt::Formatter<'_>, kind: &str, items: &[impl fmt::Display]) -> fmt::Result {
    f.write_str(kind)?;
    items.iter().try_for_each(|item| write!(f, " {item}"))
}

/// A second of Unix time as RFC 3339 writes it, which has no year after 9999.
fn utc(seconds: u64) -> Result<String, fmt::Error> {
    let time = OffsetDateTime::from_unix_timestamp(seconds.min(LAST_SECOND) as i64);
    let text = time.ok().and_then(|time| time.format(&Rfc3339).ok());
    text.ok_or(fmt::Error)
}

/// The port of a host without one, as in the configuration.
const PORT: u16 = 443;
/// A caveat is judged with each request.
const MOST_ITEMS: usize = 64;
const LONGEST_WORD: usize = 255;
/// The state counts up to this.
const MOST_AMOUNT: Amount = i64::MAX as Amount;
/// 9999-12-31T23:59:59Z
const LAST_SECOND: u64 = 253_402_300_799;

#[cfg(test)]
#[path = "caveat_tests.rs"]
mod tests;
