//! SOCKS5 messages: what is read was written so, and nothing less of it reads.
#![no_main]

use gateway_wire::socks::{CONNECT, SocksFault, SocksRequest, greeting, login};
use gateway_wire::{Cursor, ReadError};
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
    let mut written = Vec::new();
    target.write(&mut written);
    let again = read(&written, SocksRequest::read).expect("it is a request");
    assert_eq!(again.0.target, Some(target));
    // A name is read in its canonical form, and the byte that is reserved is not read.
    if bytes[3] != 3 && request.command == CONNECT {
        written[2] = bytes[2];
        assert_eq!(bytes[..length], written);
    }
});

/// A message and its length, if the bytes begin with one.
fn read<T: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    read: impl Fn(&mut Cursor<'_>) -> Result<T, ReadError<SocksFault>>,
) -> Option<(T, usize)> {
    let mut cursor = Cursor::new(bytes);
    let message = read(&mut cursor).ok()?;
    let length = bytes.len() - cursor.rest().len();
    for end in 0..length {
        let cut = read(&mut Cursor::new(&bytes[..end]));
        assert_eq!(cut, Err(ReadError::Incomplete));
    }
    assert_eq!(
        read(&mut Cursor::new(&bytes[..length])).as_ref(),
        Ok(&message)
    );
    Some((message, length))
}
