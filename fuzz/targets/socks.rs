//! SOCKS5 messages: what is read was written so, and nothing less of it reads.
#![no_main]

use std::net::SocketAddr;

use gateway_wire::socks::{SocksFault, SocksRequest, SocksTarget, greeting, login};
use gateway_wire::{Cursor, Incomplete};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let counted = |bytes: &[u8]| [&[bytes.len() as u8][..], bytes].concat();
    if let Some((greeting, length)) = read(bytes, |cursor| Ok(greeting(cursor)?.to_vec())) {
        assert_eq!(bytes[..length], [&[5][..], &counted(&greeting)].concat());
    }
    let both = |cursor: &mut Cursor<'_>| {
        let (user, password) = login(cursor)?;
        Ok([counted(user), counted(password)].concat())
    };
    if let Some((login, length)) = read(bytes, both) {
        assert_eq!(bytes[..length], [&[1][..], &login].concat());
    }
    let Some((request, length)) = read(bytes, SocksRequest::read) else {
        return;
    };
    let Some(target) = request.target else { return };
    let (kind, address, port) = match target {
        // A name is read in its canonical form.
        SocksTarget::Named(to) => {
            let name = to.host.as_str().as_bytes();
            assert!(name.len() <= 255 && length >= 8);
            (3, bytes[4..length - 2].to_vec(), to.port)
        }
        SocksTarget::Address(SocketAddr::V4(to)) => (1, to.ip().octets().to_vec(), to.port()),
        SocksTarget::Address(SocketAddr::V6(to)) => (4, to.ip().octets().to_vec(), to.port()),
    };
    let written = [
        &[5, request.command, bytes[2], kind][..],
        &address,
        &port.to_be_bytes(),
    ];
    assert_eq!(bytes[..length], written.concat());
});

/// A message and its length, if the bytes begin with one.
fn read<T: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    read: impl Fn(&mut Cursor<'_>) -> Result<T, SocksFault>,
) -> Option<(T, usize)> {
    let mut cursor = Cursor::new(bytes);
    let message = read(&mut cursor).ok()?;
    let length = bytes.len() - cursor.left();
    for end in 0..length {
        let cut = read(&mut Cursor::new(&bytes[..end]));
        assert_eq!(cut, Err(SocksFault::Incomplete(Incomplete)));
    }
    assert_eq!(
        read(&mut Cursor::new(&bytes[..length])).as_ref(),
        Ok(&message)
    );
    Some((message, length))
}
