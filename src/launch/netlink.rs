//! Netlink messages: written, sent, and their acknowledgements read, as far as the launcher needs
//! them.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::syscall;

/// A batch of netlink messages under construction.
#[derive(Debug, Default, Clone)]
pub struct Batch {
    bytes: Vec<u8>,
    messages: u32,
    acknowledgements: usize,
}

/// `NLM_F_REQUEST`: for messages that are not acknowledged (the brackets of an nf_tables batch).
pub const REQUEST: u16 = 1;
/// `NLM_F_REQUEST | NLM_F_ACK`.
pub const ACK: u16 = 1 | 4;
/// `NLM_F_EXCL`.
pub const EXCL: u16 = 0x200;
/// `NLM_F_CREATE`.
pub const CREATE: u16 = 0x400;
/// `NLM_F_APPEND`.
pub const APPEND: u16 = 0x800;

impl Batch {
    /// Adds one message: its type, flags, family header, and whatever `body` appends.
    pub fn message(&mut self, kind: u16, flags: u16, header: &[u8], body: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
        self.messages += 1;
        self.bytes.extend_from_slice(&self.messages.to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(header);
        self.align();
        body(self);
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
        if flags & ACK == ACK {
            self.acknowledgements += 1;
        }
    }

    /// Adds an attribute.
    pub fn attribute(&mut self, kind: u16, data: &[u8]) {
        self.bytes
            .extend_from_slice(&((data.len() + 4) as u16).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(data);
        self.align();
    }

    /// Adds a string attribute, with its terminating zero.
    pub fn text(&mut self, kind: u16, text: &str) {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes);
    }

    /// Adds a 32-bit attribute in network order, as nf_tables expects.
    pub fn be32(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_be_bytes());
    }

    /// Adds a nested attribute that contains whatever `body` appends.
    pub fn nest(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes
            .extend_from_slice(&(kind | NLA_F_NESTED).to_ne_bytes());
        body(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    }

    /// Adds the attributes of another batch.
    pub(super) fn extend(&mut self, other: &Self) {
        self.bytes.extend_from_slice(&other.bytes);
    }

    /// Returns the messages of a type, without their headers.
    pub(super) fn bodies(&self, kind: u16, header: usize) -> Vec<&[u8]> {
        let all = messages(&self.bytes).flatten();
        let of_kind = all.filter(|(known, _)| *known == kind);
        of_kind.filter_map(|(_, body)| body.get(header..)).collect()
    }

    /// Returns the messages in the order in which they were added.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Sends all messages as one datagram and waits for every acknowledgement. The socket is for
    /// rtnetlink (`None`: its protocol number is 0) or another family.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` if the kernel lacks the family, or the first errno that it returns.
    pub fn commit(&self, protocol: Option<Protocol>) -> io::Result<()> {
        let socket = self.send(protocol)?;
        let mut datagram = vec![0; 16 * 1024];
        let mut acknowledged = 0;
        while acknowledged < self.acknowledgements {
            let (length, _) = rustix::net::recv(&socket, &mut datagram[..], RecvFlags::empty())?;
            acknowledged += read(&datagram[..length])?;
        }
        Ok(())
    }

    fn send(&self, protocol: Option<Protocol>) -> io::Result<OwnedFd> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?;
        // Short acknowledgements. This is only a convenience.
        let _ = syscall::set_option(&socket, libc::SOL_NETLINK, libc::NETLINK_CAP_ACK, 1);
        let kernel = SocketAddrNetlink::new(0, 0);
        rustix::net::sendto(&socket, &self.bytes, SendFlags::empty(), &kernel)?;
        Ok(socket)
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// Returns how many messages a datagram from the kernel acknowledges.
///
/// # Errors
/// The first errno in it; `EBADMSG` if a length is wrong.
pub fn read(datagram: &[u8]) -> io::Result<usize> {
    let mut acknowledged = 0;
    for message in messages(datagram) {
        let (kind, body) = message?;
        if kind == NLMSG_ERROR {
            let code = body.first_chunk().ok_or_else(malformed)?;
            match i32::from_ne_bytes(*code) {
                0 => acknowledged += 1,
                code => return Err(io::Error::from_raw_os_error(code.wrapping_neg())),
            }
        }
    }
    Ok(acknowledged)
}

/// Requests a dump of one type, and returns what follows the header of each message. The header is
/// as long as the request's.
///
/// # Errors
/// The first errno that the kernel returns; `EBADMSG` if a length is wrong.
pub(super) fn dump(
    protocol: Option<Protocol>,
    kind: u16,
    header: &[u8],
) -> io::Result<Vec<Vec<u8>>> {
    let mut question = Batch::default();
    question.message(kind, REQUEST | DUMP, header, |_| {});
    let socket = question.send(protocol)?;
    let (mut found, mut datagram) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        let (length, _) = rustix::net::recv(&socket, &mut datagram[..], RecvFlags::empty())?;
        read(&datagram[..length])?;
        for message in messages(&datagram[..length]) {
            match message? {
                (NLMSG_DONE, _) => return Ok(found),
                (_, body) => found.extend(body.get(header.len()..).map(<[u8]>::to_vec)),
            }
        }
    }
}

/// Returns the messages of a datagram: the type of each, and the bytes after its header.
fn messages(mut datagram: &[u8]) -> impl Iterator<Item = io::Result<(u16, &[u8])>> {
    std::iter::from_fn(move || {
        let (length, rest) = datagram.split_first_chunk()?;
        let length = u32::from_ne_bytes(*length) as usize;
        let kind = rest.first_chunk().copied().map(u16::from_ne_bytes);
        let body = datagram.get(HEADER_BYTES..length);
        let next = length.next_multiple_of(4).max(HEADER_BYTES);
        datagram = datagram.get(next..).unwrap_or_default();
        Some(kind.zip(body).ok_or_else(malformed))
    })
}

/// Returns the attributes of a message or of a nest: type and data.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (head, _) = bytes.split_first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let data = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([head[2], head[3]]), data))
    })
}

/// Whether attributes hold all `wanted` ones, in any order. A list must have the same elements.
pub fn holds(all: &[u8], wanted: &[u8]) -> bool {
    let is_it = |(known, found): (u16, &[u8]), (kind, data): (u16, &[u8])| {
        let is_same = match kind & NLA_F_NESTED {
            0 => found == data,
            _ => holds(found, data),
        };
        known & NLA_TYPE_MASK == kind & NLA_TYPE_MASK && is_same
    };
    if attributes(wanted).all(|(kind, _)| kind == NLA_F_NESTED | NFTA_LIST_ELEM) {
        let mut pairs = attributes(all).zip(attributes(wanted));
        return attributes(all).count() == attributes(wanted).count()
            && pairs.all(|(found, one)| is_it(found, one));
    }
    attributes(wanted).all(|one| attributes(all).any(|found| is_it(found, one)))
}

fn malformed() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADMSG)
}

const NLMSG_DONE: u16 = 3;
const DUMP: u16 = 0x300;

const HEADER_BYTES: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLA_F_NESTED: u16 = 0x8000;
const NLA_TYPE_MASK: u16 = 0x3fff;
/// An element of a list, in a nest.
pub(crate) const NFTA_LIST_ELEM: u16 = 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lengths_cover_padding_and_nesting() {
        let mut batch = Batch::default();
        batch.message(16, ACK, &[0; 4], |n| {
            n.nest(1, |n| n.text(2, "ab"));
        });
        let bytes = batch.bytes();
        assert_eq!(bytes.len(), 16 + 4 + 4 + 8);
        assert_eq!(bytes[0], 32);
        assert_eq!(&bytes[20..24], &[12, 0, 1, 0x80]);
        assert_eq!(&bytes[24..], &[7, 0, 2, 0, b'a', b'b', 0, 0]);
    }

    #[test]
    fn the_kernels_errno_is_reported() {
        let mut batch = Batch::default();
        let mut header = [0; 16];
        header[4..8].copy_from_slice(&i32::MAX.to_ne_bytes());
        batch.message(18, ACK, &header, |_| {}); // RTM_GETLINK of an interface that is not there
        let refused = batch.commit(None).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENODEV));
    }

    proptest! {
        #[test]
        fn acknowledgements_that_are_written_are_read(
            codes in proptest::collection::vec(prop_oneof![Just(0), any::<i32>()], 0..9), cut in 1..99_usize,
        ) {
            let mut batch = Batch::default();
            for code in &codes {
                batch.message(NLMSG_ERROR, 0, &code.to_ne_bytes(), |n| n.text(1, "ab"));
                batch.message(3, 0, &[], |_| {}); // NLMSG_DONE
            }
            let bytes = batch.bytes();
            let fault = codes.iter().find(|code| **code != 0);
            let outcome = read(bytes).map_err(|error| error.raw_os_error());
            prop_assert_eq!(outcome, match fault {
                Some(code) => Err(Some(code.wrapping_neg())),
                None => Ok(codes.len()),
            });
            // Of the last message, at least its length is left.
            let cut = cut % 13;
            if cut > 0 && !codes.is_empty() && fault.is_none() {
                prop_assert!(read(&bytes[..bytes.len() - cut]).is_err());
            }
        }
    }
}
