//! DNS messages: questions are read, replies written. What a reply says is not decided here.

use gateway_message::Host;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::SOA;
use hickory_proto::rr::{Name, RData, Record};
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};

use super::cursor::{Cursor, Incomplete};

/// The transport of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// One query per datagram.
    Udp,
    /// Length-prefixed (RFC 7766).
    Tcp,
}

/// Why a message is not a question, with a reply that is only a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unread {
    /// It gets no reply: it has no header, or is a reply itself. If replies were answered (RFC 5452
    /// §3), two servers could talk for ever.
    Silent,
    /// It is an operation that is not for clients.
    Operation(Option<Vec<u8>>),
    /// It is not well-formed.
    Malformed(Option<Vec<u8>>),
}

/// Reads a message with one question.
///
/// # Errors
/// [`Unread`]
pub fn read(bytes: &[u8], transport: Transport) -> Result<Message, Unread> {
    let header = Header::read(&mut Cursor::new(bytes)).map_err(|_| Unread::Silent)?;
    if header.is_response {
        return Err(Unread::Silent);
    }
    if header.op_code != OpCode::Query {
        return Err(Unread::Operation(header.reply(ResponseCode::NotImp)));
    }
    let most = match transport {
        Transport::Udp => UDP_QUESTION_MAX,
        Transport::Tcp => TCP_QUESTION_MAX,
    };
    // Resolvers send one question and no answers, followed by an OPT and at most a TSIG. Checked
    // before decoding, so that the counts cannot demand work.
    let is_usual = matches!(header.counts, [1, 0, 0, 0..=2]) && bytes.len() <= most;
    let mut decoder = BinDecoder::new(bytes);
    let message = is_usual.then(|| Message::read(&mut decoder).ok()).flatten();
    message
        .filter(|message| decoder.is_empty() && message.queries.len() == 1)
        .ok_or_else(|| Unread::Malformed(header.reply(ResponseCode::FormErr)))
}

/// The host that a DNS name spells; `None` if a label contains anything but letters, digits, hyphen
/// and underscore.
///
/// Checks label by label: a label may contain a dot, which must not become a border between labels.
#[must_use]
pub fn host(name: &Name) -> Option<Host> {
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

/// A reply to a message that was read, with its question and EDNS; `None` if it cannot be written.
#[must_use]
pub fn reply(message: &Message, code: ResponseCode, data: Option<RData>) -> Option<Vec<u8>> {
    let question = message.queries.first()?;
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
    reply.to_vec().ok()
}

/// Makes a negative answer cacheable (RFC 2308), but only for one second, so that a changed policy
/// takes effect at once.
fn negative() -> SOA {
    SOA::new(Name::root(), Name::root(), 1, 1, 1, 1, NEGATIVE_TTL_SECONDS)
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
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Incomplete> {
        let (id, [high, _low]) = (cursor.u16()?, cursor.array()?);
        let counts = [cursor.u16()?, cursor.u16()?, cursor.u16()?, cursor.u16()?];
        Ok(Self {
            id,
            is_response: high & 0x80 != 0,
            op_code: OpCode::from_u8((high >> 3) & 0x0f),
            recursion_desired: high & 1 != 0,
            counts,
        })
    }

    /// A reply to a message that was not decoded.
    fn reply(&self, code: ResponseCode) -> Option<Vec<u8>> {
        let mut reply = Message::new(self.id, MessageType::Response, self.op_code);
        reply.metadata.recursion_desired = self.recursion_desired;
        reply.metadata.response_code = code;
        reply.to_vec().ok()
    }
}

/// Short, so that a program that outlives the session notices the change.
const TTL_SECONDS: u32 = 30;
const NEGATIVE_TTL_SECONDS: u32 = 1;
/// A size that fits every network path (DNS flag day 2020).
const UDP_PAYLOAD: u16 = 1232;
const UDP_QUESTION_MAX: usize = 1232;
const TCP_QUESTION_MAX: usize = 4096;
