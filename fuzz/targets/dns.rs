//! DNS: what is read as a question, hickory reads as that question; and each reply is short, is for
//! the one who asked, and is read by hickory.
#![no_main]

use std::net::Ipv6Addr;

use gateway_wire::dns::{Transport, Unread, host, read, reply};
use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::RData;
use hickory_proto::rr::rdata::AAAA;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let udp = read(bytes, Transport::Udp);
    let message = match read(bytes, Transport::Tcp) {
        Ok(message) => message,
        Err(Unread::Silent) => return assert!(bytes.len() < 12 || bytes[2] & 0x80 != 0),
        Err(Unread::Operation(bare) | Unread::Malformed(bare)) => {
            let bare = bare.expect("a header can be written");
            assert_eq!((bare.len(), &bare[..2]), (12, &bytes[..2]));
            assert_eq!(bare[2] & 0xf8, bytes[2] & 0x78 | 0x80);
            return assert!(udp.is_err());
        }
    };
    assert_eq!(udp.is_ok(), bytes.len() <= 1232);
    let other = Message::from_vec(bytes).expect("hickory reads it");
    assert_eq!(other.metadata.message_type, MessageType::Query);
    assert_eq!(other.queries, message.queries);
    let question = &message.queries[0];
    if let Some(host) = host(question.name()) {
        // A host's labels hold no dot, so that their text has one reading.
        let text = question.name().to_ascii().to_ascii_lowercase();
        assert!(host.ip().is_some() || host.as_str() == text.trim_end_matches('.'));
    }
    let data = RData::AAAA(AAAA(Ipv6Addr::LOCALHOST));
    for (code, data) in [
        (ResponseCode::NoError, Some(data)),
        (ResponseCode::NXDomain, None),
        (ResponseCode::BADVERS, None),
    ] {
        let Some(bytes) = reply(&message, code, data) else {
            continue;
        };
        assert!(bytes.len() <= 512);
        let reply = Message::from_vec(&bytes).expect("hickory reads the reply");
        assert_eq!(reply.metadata.id, message.metadata.id);
        assert_eq!(reply.queries, message.queries);
        assert_eq!(reply.edns.is_some(), message.edns.is_some());
    }
});
