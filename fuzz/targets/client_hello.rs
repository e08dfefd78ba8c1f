//! ClientHellos: however they are cut, they are read alike; and the name is the one that a plain
//! reader of RFC 8446 finds in them.
#![no_main]

use std::io::{self, Read};
use std::net::IpAddr;

use gateway_fuzz::ends;
use gateway_wire::hello::{HelloFault, HelloReader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let whole = read(bytes, [bytes.len()]);
    assert_eq!(read(bytes, ends(bytes)), whole);
    let Ok(seen) = whole else { return };
    let name = sni(bytes).expect("what rustls accepts has the form of a hello");
    let name = name
        .as_ref()
        .map(|name| std::str::from_utf8(name).expect("it is ASCII"));
    match seen {
        Some(seen) => assert!(name.is_some_and(|name| name.eq_ignore_ascii_case(&seen))),
        // rustls passes over a name that is an address, which RFC 6066 forbids.
        None => assert!(name.is_none_or(|name| name.parse::<IpAddr>().is_ok())),
    }
});

/// A stream that has this much, and then nothing yet.
struct Arrived<'a>(&'a [u8]);

impl Read for Arrived<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            read => Ok(read),
        }
    }
}

/// The name in the hello, or in a word why there is no hello.
fn read(
    bytes: &[u8],
    ends: impl IntoIterator<Item = usize>,
) -> Result<Option<String>, &'static str> {
    let mut reader = HelloReader::default();
    let mut at = 0;
    for end in ends {
        let mut arrived = Arrived(&bytes[at..end]);
        at = end;
        loop {
            match reader.read(&mut arrived) {
                Ok(Some(accepted)) => {
                    return Ok(accepted.client_hello().server_name().map(str::to_owned));
                }
                Ok(None) => {}
                Err(HelloFault::Io(_)) => break,
                Err(HelloFault::NotTls) => return Err("not TLS"),
                Err(HelloFault::Tls(..) | HelloFault::TooLong) => return Err("no hello"),
            }
        }
    }
    Err("not whole")
}

/// The name in a hello, if it has one; `None` if it is not a hello.
fn sni(mut records: &[u8]) -> Option<Option<Vec<u8>>> {
    let mut message = Vec::new();
    while let Some(part) = take(&mut records, 3).and_then(|_| counted(&mut records, 2)) {
        message.extend_from_slice(part);
    }
    let message = &mut &message[..];
    take(message, 1)?;
    let body = &mut counted(message, 3)?;
    take(body, 2 + 32)?;
    counted(body, 1)?;
    counted(body, 2)?;
    counted(body, 1)?;
    let mut extensions = counted(body, 2).unwrap_or_default();
    while !extensions.is_empty() {
        let kind = take(&mut extensions, 2)?;
        let extension = &mut counted(&mut extensions, 2)?;
        if kind == [0, 0] {
            let names = &mut counted(extension, 2)?;
            return Some(match take(names, 1)? {
                [0] => Some(counted(names, 2)?.to_vec()),
                _ => None,
            });
        }
    }
    Some(None)
}

fn take<'b>(bytes: &mut &'b [u8], count: usize) -> Option<&'b [u8]> {
    bytes.split_off(..count)
}

fn counted<'b>(bytes: &mut &'b [u8], width: usize) -> Option<&'b [u8]> {
    let length = take(bytes, width)?.iter();
    take(
        bytes,
        length.fold(0, |length, byte| length << 8 | usize::from(*byte)),
    )
}
