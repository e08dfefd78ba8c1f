//! Answers DNS queries. Names get synthetic addresses, and no query is ever forwarded. A name that
//! no policy reaches also gets one, so that the gateway can refuse the connection with an
//! explanation; or it does not exist (ADR 38).

use std::net::{Ipv4Addr, Ipv6Addr};

use gateway_message::Host;
use gateway_wire::dns::{Transport, Unread, host, read, reply};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{DNSClass, RData, RecordType};

use super::synthetic::{AddressPair, AddressPool, GATEWAY, GATEWAY_NAME};

/// The outcome of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The message to send back; `None` to send nothing.
    pub reply: Option<Vec<u8>>,
    /// Why this is the outcome.
    pub verdict: DnsVerdict,
    /// The queried name, if it is a host name.
    pub host: Option<Host>,
}

gateway_names::words! {
    /// Why a query was answered as it was.
    pub enum DnsVerdict {
        /// An allowed name: its synthetic address.
        Synthetic = "answered",
        /// A name of the machine or of the gateway itself.
        Local = "local",
        /// An allowed name, but a type that does not exist here (HTTPS, SVCB, TXT, MX …): no data.
        NoData = "no_data",
        /// A name that no policy reaches: an address at which the gateway explains that.
        Unlisted = "unlisted",
        /// A name that no policy reaches, or that is not a host name: it does not exist.
        NameRefused = "name_refused",
        /// A class, a zone transfer or an operation that clients may not use.
        Refused = "refused",
        /// Not a well-formed query.
        Malformed = "malformed",
        /// The session has used up its addresses.
        Full = "full",
    }
}

/// Answers one DNS message. Pure: no clock, no socket, no forwarding.
///
/// `allowed` says whether any policy could permit a request to a name. An allowed name gets its
/// synthetic address, whether or not it exists: the gateway resolves it after the request is
/// authorized. A name that is not allowed gets what the pool has for such names.
///
/// A reply is always shorter than 512 bytes, so none is ever truncated.
pub fn answer(
    query: &[u8],
    transport: Transport,
    allowed: &dyn Fn(&Host) -> bool,
    pool: &mut AddressPool,
) -> Answer {
    let (verdict, reply) = match read(query, transport) {
        Ok(message) => return judge(&message, allowed, pool),
        Err(Unread::Silent) => (DnsVerdict::Malformed, None),
        Err(Unread::Operation(reply)) => (DnsVerdict::Refused, reply),
        Err(Unread::Malformed(reply)) => (DnsVerdict::Malformed, reply),
    };
    Answer {
        reply,
        verdict,
        host: None,
    }
}

fn judge(message: &Message, allowed: &dyn Fn(&Host) -> bool, pool: &mut AddressPool) -> Answer {
    let question = &message.queries[0];
    let kind = question.query_type();
    if message.edns.as_ref().is_some_and(|edns| edns.version() > 0) {
        // RFC 6891 §6.1.3.
        return refused(message, ResponseCode::BADVERS);
    }
    if question.query_class() != DNSClass::IN || matches!(kind, RecordType::AXFR | RecordType::IXFR)
    {
        return refused(message, ResponseCode::Refused);
    }
    // RFC 8482: no client needs ANY, and amplification attacks use it most.
    if kind == RecordType::ANY || matches!(u16::from(kind), 128..=255) {
        return refused(message, ResponseCode::NotImp);
    }
    if question.name().is_root() {
        // NXDOMAIN for the root would say that no name exists at all (RFC 8020).
        return refused(message, ResponseCode::Refused);
    }
    let Some(host) = host(question.name()) else {
        return no_such_name(message, None);
    };
    if let Some(addresses) = local(&host) {
        return addressed(message, addresses, DnsVerdict::Local, host);
    }
    if host.ip().is_some() || host.as_str() == CANARY {
        return no_such_name(message, Some(host));
    }
    let (code, verdict) = if !allowed(&host) {
        return unlisted(message, host, pool);
    } else if !matches!(kind, RecordType::A | RecordType::AAAA) {
        (ResponseCode::NoError, DnsVerdict::NoData)
    } else if let Some(addresses) = pool.addresses(&host) {
        return addressed(message, addresses, DnsVerdict::Synthetic, host);
    } else {
        (ResponseCode::ServFail, DnsVerdict::Full)
    };
    full(message, code, verdict, Some(host), None)
}

/// Refuses a query for its type or class, whatever its name.
fn refused(message: &Message, code: ResponseCode) -> Answer {
    full(message, code, DnsVerdict::Refused, None, None)
}

/// Answers that a name does not exist; `host` is `None` if the name is no host name.
fn no_such_name(message: &Message, host: Option<Host>) -> Answer {
    let code = ResponseCode::NXDomain;
    full(message, code, DnsVerdict::NameRefused, host, None)
}

/// Answers a query for a name that no policy reaches. Types other than addresses have no data,
/// since the name exists.
fn unlisted(message: &Message, host: Host, pool: &mut AddressPool) -> Answer {
    let top = host.domains().last();
    let is_nowhere = top.is_some_and(|top| NOWHERE.contains(&top));
    match pool.unlisted(&host).filter(|_| !is_nowhere) {
        Some(addresses) => addressed(message, addresses, DnsVerdict::Unlisted, host),
        None => no_such_name(message, Some(host)),
    }
}

fn addressed(message: &Message, addresses: AddressPair, verdict: DnsVerdict, host: Host) -> Answer {
    let (verdict, data) = match message.queries[0].query_type() {
        RecordType::A => (verdict, Some(RData::A(A(addresses.v4)))),
        RecordType::AAAA => (verdict, Some(RData::AAAA(AAAA(addresses.v6)))),
        _ if verdict == DnsVerdict::Unlisted => (verdict, None),
        _ => (DnsVerdict::NoData, None),
    };
    full(message, ResponseCode::NoError, verdict, Some(host), data)
}

/// Returns the addresses of `localhost` (RFC 6761 §6.3) and of the gateway's own name.
fn local(host: &Host) -> Option<AddressPair> {
    match host.as_str() {
        GATEWAY_NAME => Some(GATEWAY),
        _ if host.domains().last() == Some("localhost") => Some(AddressPair {
            v4: Ipv4Addr::LOCALHOST,
            v6: Ipv6Addr::LOCALHOST,
        }),
        _ => None,
    }
}

fn full(
    message: &Message,
    code: ResponseCode,
    verdict: DnsVerdict,
    host: Option<Host>,
    data: Option<RData>,
) -> Answer {
    Answer {
        reply: reply(message, code, data),
        verdict,
        host,
    }
}

/// Firefox queries it to learn whether it may use DNS over HTTPS; NXDOMAIN means no.
const CANARY: &str = "use-application-dns.net";
/// Top-level domains that never have an address: reverse lookups (RFC 1035 §3.5), and names that
/// resolvers must not know (RFC 6761 §6.4, RFC 7686).
const NOWHERE: [&str; 3] = ["arpa", "invalid", "onion"];

#[cfg(test)]
mod tests;
