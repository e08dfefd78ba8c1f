//! DNS messages: questions are read, replies written. The caller decides the content of a reply.

use gateway_message::Host;
use hickory_proto::op::{Edns, Header, Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::SOA;
use hickory_proto::rr::{Name, RData, Record};
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};

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
    // The header comes first, so that a message can be refused before its rest is decoded.
    let header = Header::read(&mut BinDecoder::new(bytes)).map_err(|_| Unread::Silent)?;
    let bare = |code| {
        let mut reply = Message::error_msg(header.id, header.op_code, code);
        reply.metadata.recursion_desired = header.recursion_desired;
        reply.to_vec().ok()
    };
    if header.message_type == MessageType::Response {
        return Err(Unread::Silent);
    }
    if header.op_code != OpCode::Query {
        return Err(Unread::Operation(bare(ResponseCode::NotImp)));
    }
    let most = match transport {
        Transport::Udp => UDP_QUESTION_MAX,
        Transport::Tcp => TCP_QUESTION_MAX,
    };
    // Resolvers send one question and no answers, followed by an OPT and at most a TSIG. Checked
    // before decoding, so that the counts cannot demand work.
    let counts = [header.counts.answers, header.counts.authorities];
    let is_usual = header.counts.queries == 1 && counts == [0; 2] && header.counts.additionals <= 2;
    let malformed = || Unread::Malformed(bare(ResponseCode::FormErr));
    if !is_usual || bytes.len() > most {
        return Err(malformed());
    }
    let mut decoder = BinDecoder::new(bytes);
    match Message::read(&mut decoder) {
        Ok(message) if decoder.is_empty() && message.queries.len() == 1 => Ok(message),
        _ => Err(malformed()),
    }
}

/// The host that a DNS name spells; `None` if a label contains anything but letters, digits, hyphen
/// and underscore.
///
/// Checks label by label: a label may contain a dot, which must not become a border between labels.
pub fn host(name: &Name) -> Option<Host> {
    let is_plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let labels: Vec<&[u8]> = name.iter().collect();
    if labels.iter().all(|label| label.iter().all(is_plain)) {
        Host::parse(&labels.join(&b'.')).ok()
    } else {
        None
    }
}

/// A reply to a message that was read, with its question and EDNS; `None` if it cannot be written.
pub fn reply(message: &Message, code: ResponseCode, data: Option<RData>) -> Option<Vec<u8>> {
    let question = message.queries.first()?;
    let mut reply = Message::error_msg(message.metadata.id, OpCode::Query, code);
    reply.metadata.recursion_desired = message.metadata.recursion_desired;
    reply.metadata.checking_disabled = message.metadata.checking_disabled;
    reply.metadata.recursion_available = true;
    reply.add_query(question.clone());
    if let Some(data) = data {
        let name = question.name().clone();
        reply.add_answer(Record::from_rdata(name, TTL_SECONDS, data));
    } else if matches!(code, ResponseCode::NXDomain | ResponseCode::NoError) {
        // Makes a negative answer cacheable (RFC 2308), but only for one second, so that a changed
        // policy takes effect at once.
        let negative = SOA::new(Name::root(), Name::root(), 1, 1, 1, 1, NEGATIVE_TTL_SECONDS);
        let data = RData::SOA(negative);
        reply.add_authority(Record::from_rdata(Name::root(), NEGATIVE_TTL_SECONDS, data));
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

/// Short, so that a program that outlives the session notices the change.
const TTL_SECONDS: u32 = 30;
const NEGATIVE_TTL_SECONDS: u32 = 1;
/// A size that fits every network path (DNS flag day 2020).
const UDP_PAYLOAD: u16 = 1232;
const UDP_QUESTION_MAX: usize = 1232;
const TCP_QUESTION_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use hickory_proto::op::Query;
    use hickory_proto::rr::RecordType;
    use hickory_proto::rr::rdata::A;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_question_that_is_written_is_read_and_its_reply_too(
            id: u16, name in "[a-z0-9]{1,9}(\\.[A-Z0-9_]{1,9}){1,4}", kind in 1..60_u16, edns: bool, v4: [u8; 4],
        ) {
            let mut question = Message::new(id, MessageType::Query, OpCode::Query);
            let spelled = Name::from_ascii(format!("{name}.")).unwrap();
            question.add_query(Query::query(spelled.clone(), RecordType::from(kind)));
            if edns {
                question.set_edns(Edns::new());
            }
            let bytes = question.to_vec().unwrap();
            let read = read(&bytes, Transport::Udp).unwrap();
            prop_assert_eq!(&read.queries, &question.queries);
            prop_assert_eq!(host(&spelled), Host::parse(name.as_bytes()).ok());
            let data = RData::A(A(Ipv4Addr::from(v4)));
            let reply = reply(&read, ResponseCode::NoError, Some(data.clone())).unwrap();
            let reply = Message::from_vec(&reply).unwrap();
            prop_assert_eq!((reply.metadata.id, &reply.queries), (id, &question.queries));
            prop_assert_eq!((&reply.answers[0].data, reply.edns.is_some()), (&data, edns));
        }
    }
}
