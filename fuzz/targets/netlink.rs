//! Netlink: no datagram makes the reader panic; and what is written is found again by its lengths.
#![no_main]

use gateway_launch::netlink::{Batch, read};
use libfuzzer_sys::fuzz_target;

type Written = (u16, u16, Vec<u8>, Vec<(u16, Vec<u8>)>);

fuzz_target!(|input: (Vec<u8>, Vec<Written>)| {
    let (datagram, messages) = input;
    if read(&datagram).is_ok_and(|acknowledged| acknowledged > 0) {
        assert!(datagram.len() >= 20);
    }
    let mut batch = Batch::default();
    for (kind, flags, header, attributes) in &messages {
        batch.message(*kind, *flags, header, |n| {
            n.nest(1, |n| {
                attributes
                    .iter()
                    .for_each(|(kind, data)| n.attribute(*kind, data))
            });
        });
    }
    let mut rest = batch.bytes();
    for (nth, (kind, flags, header, attributes)) in (1_u32..).zip(&messages) {
        let length = u32::from_ne_bytes(rest[..4].try_into().unwrap()) as usize;
        let (message, behind) = rest.split_at(length);
        rest = behind;
        assert_eq!(length % 4, 0);
        assert_eq!(message[4..6], kind.to_ne_bytes());
        assert_eq!(message[6..8], flags.to_ne_bytes());
        assert_eq!(message[8..12], nth.to_ne_bytes());
        assert_eq!(message[16..16 + header.len()], header[..]);
        let mut nest = &message[16 + header.len().next_multiple_of(4)..];
        assert_eq!(attribute(&mut nest), (0x8001, nest_of(message, header)));
        let mut inner = nest_of(message, header);
        for (kind, data) in attributes {
            assert_eq!(attribute(&mut inner), (*kind, &data[..]));
        }
        assert!(inner.is_empty() && nest.is_empty());
    }
    assert!(rest.is_empty());
    let outcome = read(batch.bytes());
    assert!(outcome.is_ok() || messages.iter().any(|(kind, ..)| *kind == 2));
});

fn nest_of<'b>(message: &'b [u8], header: &[u8]) -> &'b [u8] {
    &message[16 + header.len().next_multiple_of(4) + 4..]
}

/// Takes an attribute: its kind and its data.
fn attribute<'b>(bytes: &mut &'b [u8]) -> (u16, &'b [u8]) {
    let number = |at| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    let (length, kind) = (usize::from(number(0)), number(2));
    let data = &bytes[4..length];
    *bytes = &bytes[length.next_multiple_of(4)..];
    (kind, data)
}
