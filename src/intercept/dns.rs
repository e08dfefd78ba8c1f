//! Answers DNS queries. Names get synthetic addresses, and no query is ever forwarded. A name that
//! no policy reaches gets one too, so that the connection to it is refused with an explanation; or
//! it does not exist (ADR 38).

use std::net::{Ipv4Addr, Ipv6Addr};

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, SOA};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};

use super::synthetic::{Addresses, GATEWAY, GATEWAY_NAME, Synthetic};
use crate::message::Host;

/// The transport of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// One query per datagram.
    Udp,
    /// Length-prefixed (RFC 7766).
    Tcp,
}

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

/// Why a query was answered as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DnsVerdict {
    /// An allowed name: its synthetic address.
    Synthetic,
    /// A name of the machine or of the gateway itself.
    Local,
    /// An allowed name, but a type that does not exist here (HTTPS, SVCB, TXT, MX …): no data.
    NoData,
    /// A name that no policy reaches: an address where the gateway says so.
    Unlisted,
    /// A name that no policy reaches, or that is not a host name: it does not exist.
    NameRefused,
    /// A class, a zone transfer or an operation that is not for clients.
    Refused,
    /// Not a well-formed query.
    Malformed,
    /// The session has used up its addresses.
    Full,
}

impl DnsVerdict {
    /// Every verdict, in the order of the declaration.
    pub const ALL: [Self; 8] = [
        Self::Synthetic,
        Self::Local,
        Self::NoData,
        Self::Unlisted,
        Self::NameRefused,
        Self::Refused,
        Self::Malformed,
        Self::Full,
    ];

    /// The verdict in a word, for counters.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Synthetic => "answered",
            Self::Local => "local",
            Self::NoData => "no_data",
            Self::Unlisted => "unlisted",
            Self::NameRefused => "name_refused",
            Self::Refused => "refused",
            Self::Malformed => "malformed",
            Self::Full => "full",
        }
    }
}

/// Answers one DNS message. Pure: no clock, no socket, and no other server is ever asked.
///
/// `allowed` says whether any policy could permit a request to a name. An allowed name gets its
/// synthetic address, whether or not it exists in the world: the gateway resolves it after the
/// request is authorized. A name that is not allowed gets what the pool has for such names.
///
/// A reply is always shorter than 512 bytes, so none is ever truncated.
pub fn answer(
    query: &[u8],
    transport: Transport,
    allowed: &dyn Fn(&Host) -> bool,
    pool: &mut Synthetic,
) -> Answer {
    let Some(header) = Header::read(query) else {
        return Answer {
            reply: None,
            verdict: DnsVerdict::Malformed,
            host: None,
        };
    };
    if header.is_response {
        // Never answer an answer (RFC 5452 §3), or two servers could talk for ever.
        return Answer {
            reply: None,
            verdict: DnsVerdict::Malformed,
            host: None,
        };
    }
    if header.op_code != OpCode::Query {
        return bare(&header, ResponseCode::NotImp, DnsVerdict::Refused);
    }
    let bound = match transport {
        Transport::Udp => UDP_QUESTION_MAX,
        Transport::Tcp => TCP_QUESTION_MAX,
    };
    // Resolvers send one question and no answers, followed by an OPT and at most a TSIG. Checked
    // before decoding, so that the counts cannot demand work.
    let usual = header.counts[0] == 1 && header.counts[1..3] == [0, 0] && header.counts[3] <= 2;
    if !usual || query.len() > bound {
        return bare(&header, ResponseCode::FormErr, DnsVerdict::Malformed);
    }
    let mut decoder = BinDecoder::new(query);
    match Message::read(&mut decoder) {
        Ok(message) if decoder.is_empty() && message.queries.len() == 1 => {
            judge(&message, allowed, pool)
        }
        _ => bare(&header, ResponseCode::FormErr, DnsVerdict::Malformed),
    }
}

fn judge(message: &Message, allowed: &dyn Fn(&Host) -> bool, pool: &mut Synthetic) -> Answer {
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
    // RFC 8482: nobody needs ANY, and amplification attacks use it most.
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

/// Refuses a question for what it asks, whatever name it is about.
fn refused(message: &Message, code: ResponseCode) -> Answer {
    full(message, code, DnsVerdict::Refused, None, None)
}

/// Says that a name does not exist; `None` for one that is no host's.
fn no_such_name(message: &Message, host: Option<Host>) -> Answer {
    let code = ResponseCode::NXDomain;
    full(message, code, DnsVerdict::NameRefused, host, None)
}

/// Answers a name that no policy reaches. Other types than addresses have no data, because the name
/// exists.
fn unlisted(message: &Message, host: Host, pool: &mut Synthetic) -> Answer {
    let top = host.domains().last();
    let is_nowhere = top.is_some_and(|top| NOWHERE.contains(&top));
    match pool.unlisted(&host).filter(|_| !is_nowhere) {
        Some(addresses) => addressed(message, addresses, DnsVerdict::Unlisted, host),
        None => no_such_name(message, Some(host)),
    }
}

fn addressed(message: &Message, addresses: Addresses, verdict: DnsVerdict, host: Host) -> Answer {
    let data = match message.queries[0].query_type() {
        RecordType::A => RData::A(A(addresses.v4)),
        RecordType::AAAA => RData::AAAA(AAAA(addresses.v6)),
        _ => {
            let verdict = match verdict {
                DnsVerdict::Unlisted => DnsVerdict::Unlisted,
                _ => DnsVerdict::NoData,
            };
            return full(message, ResponseCode::NoError, verdict, Some(host), None);
        }
    };
    full(
        message,
        ResponseCode::NoError,
        verdict,
        Some(host),
        Some(data),
    )
}

/// The host that a DNS name spells; `None` if a label contains anything but letters, digits, hyphen
/// and underscore.
///
/// Checks label by label: a label may contain a dot, which must not become a border between labels.
fn host(name: &Name) -> Option<Host> {
    let mut text = Vec::with_capacity(name.len());
    for label in name.iter() {
        if !label
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        {
            return None;
        }
        if !text.is_empty() {
            text.push(b'.');
        }
        text.extend_from_slice(label);
    }
    Host::parse(&text).ok()
}

/// The addresses of `localhost` (RFC 6761 §6.3) and of the gateway's own name.
fn local(host: &Host) -> Option<Addresses> {
    match host.as_str() {
        GATEWAY_NAME => Some(GATEWAY),
        _ if host.domains().last() == Some("localhost") => Some(Addresses {
            v4: Ipv4Addr::LOCALHOST,
            v6: Ipv6Addr::LOCALHOST,
        }),
        _ => None,
    }
}

/// A reply to a decoded message. It repeats the message's question and EDNS.
fn full(
    message: &Message,
    code: ResponseCode,
    verdict: DnsVerdict,
    host: Option<Host>,
    data: Option<RData>,
) -> Answer {
    let question: &Query = &message.queries[0];
    let mut reply = Message::new(message.metadata.id, MessageType::Response, OpCode::Query);
    reply.metadata.recursion_desired = message.metadata.recursion_desired;
    reply.metadata.checking_disabled = message.metadata.checking_disabled;
    reply.metadata.recursion_available = true;
    reply.metadata.response_code = code;
    reply.add_query(question.clone());
    match data {
        Some(data) => {
            reply.add_answer(Record::from_rdata(
                question.name().clone(),
                TTL_SECONDS,
                data,
            ));
        }
        None if matches!(code, ResponseCode::NXDomain | ResponseCode::NoError) => {
            reply.add_authority(Record::from_rdata(
                Name::root(),
                NEGATIVE_TTL_SECONDS,
                RData::SOA(negative()),
            ));
        }
        None => {}
    }
    if let Some(asked) = &message.edns {
        let mut edns = Edns::new();
        edns.set_max_payload(UDP_PAYLOAD);
        edns.set_dnssec_ok(asked.flags().dnssec_ok);
        edns.set_rcode_high((u16::from(code) >> 4) as u8);
        reply.set_edns(edns);
    }
    match reply.to_vec() {
        Ok(bytes) => Answer {
            reply: Some(bytes),
            verdict,
            host,
        },
        Err(_) => Answer {
            reply: None,
            verdict: DnsVerdict::Malformed,
            host,
        },
    }
}

/// Makes a negative answer cacheable (RFC 2308), but only for one second, so that a changed policy
/// takes effect at once.
fn negative() -> SOA {
    SOA::new(Name::root(), Name::root(), 1, 1, 1, 1, NEGATIVE_TTL_SECONDS)
}

/// A reply to a message that was not decoded: only a header.
fn bare(header: &Header, code: ResponseCode, verdict: DnsVerdict) -> Answer {
    let mut reply = Message::new(header.id, MessageType::Response, header.op_code);
    reply.metadata.recursion_desired = header.recursion_desired;
    reply.metadata.response_code = code;
    Answer {
        reply: reply.to_vec().ok(),
        verdict,
        host: None,
    }
}

/// The header of RFC 1035 §4.1.1. It is parsed by hand, so that a message can be refused before the
/// rest of it is read.
struct Header {
    id: u16,
    is_response: bool,
    op_code: OpCode,
    recursion_desired: bool,
    counts: [u16; 4],
}

impl Header {
    fn read(message: &[u8]) -> Option<Self> {
        let (header, _) = message.split_first_chunk::<12>()?;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        Some(Self {
            id: word(0),
            is_response: header[2] & 0x80 != 0,
            op_code: OpCode::from_u8((header[2] >> 3) & 0x0f),
            recursion_desired: header[2] & 1 != 0,
            counts: [word(4), word(6), word(8), word(10)],
        })
    }
}

/// Firefox queries it to learn whether it may use DNS over HTTPS; NXDOMAIN means no.
const CANARY: &str = "use-application-dns.net";
/// Top-level domains that never have an address: reverse lookups (RFC 1035 §3.5), and names that
/// resolvers must not know (RFC 6761 §6.4, RFC 7686).
const NOWHERE: [&str; 3] = ["arpa", "invalid", "onion"];
/// Short, so that a program that outlives the session notices the change.
const TTL_SECONDS: u32 = 30;
const NEGATIVE_TTL_SECONDS: u32 = 1;
/// A size that fits every network path (DNS flag day 2020).
const UDP_PAYLOAD: u16 = 1232;
const UDP_QUESTION_MAX: usize = 1232;
const TCP_QUESTION_MAX: usize = 4096;

#[cfg(test)]
mod tests;
