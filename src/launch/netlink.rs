//! A netlink socket and the encoding of its messages and attributes, as far as the launcher needs
//! them.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::syscall;

/// A batch of netlink messages under construction, and the socket that will take it.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
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

impl Netlink {
    /// Opens a socket for rtnetlink (`None`: its protocol number is 0) or another family.
    ///
    /// # Errors
    /// The error of `socket`: `EPROTONOSUPPORT` if the kernel lacks the family.
    pub fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )?;
        // Short acknowledgements, and the kernel's own explanation of an error. Both are only
        // conveniences.
        let _ = syscall::set_option(&socket, libc::SOL_NETLINK, libc::NETLINK_CAP_ACK, 1);
        let _ = syscall::set_option(&socket, libc::SOL_NETLINK, libc::NETLINK_EXT_ACK, 1);
        Ok(Self {
            socket,
            sequence: 1,
            buffer: Vec::with_capacity(4096),
            acknowledgements: 0,
        })
    }

    /// Adds one message: its type, flags, family header, and whatever `body` appends.
    pub fn message(&mut self, kind: u16, flags: u16, header: &[u8], body: impl FnOnce(&mut Self)) {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; 4]);
        self.buffer.extend_from_slice(&kind.to_ne_bytes());
        self.buffer.extend_from_slice(&flags.to_ne_bytes());
        self.buffer.extend_from_slice(&self.sequence.to_ne_bytes());
        self.buffer.extend_from_slice(&[0; 4]);
        self.buffer.extend_from_slice(header);
        self.align();
        body(self);
        let length = (self.buffer.len() - start) as u32;
        self.buffer[start..start + 4].copy_from_slice(&length.to_ne_bytes());
        self.sequence += 1;
        if flags & ACK == ACK {
            self.acknowledgements += 1;
        }
    }

    /// Adds an attribute.
    pub fn attribute(&mut self, kind: u16, data: &[u8]) {
        self.buffer
            .extend_from_slice(&((data.len() + 4) as u16).to_ne_bytes());
        self.buffer.extend_from_slice(&kind.to_ne_bytes());
        self.buffer.extend_from_slice(data);
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
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; 2]);
        self.buffer
            .extend_from_slice(&(kind | NLA_F_NESTED).to_ne_bytes());
        body(self);
        let length = (self.buffer.len() - start) as u16;
        self.buffer[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    }

    /// Sends all messages as one datagram and waits for every acknowledgement.
    ///
    /// # Errors
    /// The first errno that the kernel returns, with its own explanation if it has one.
    pub fn commit(&mut self) -> io::Result<()> {
        let kernel = SocketAddrNetlink::new(0, 0);
        rustix::net::sendto(&self.socket, &self.buffer, SendFlags::empty(), &kernel)?;
        self.buffer.clear();
        let mut datagram = vec![0; 16 * 1024];
        while self.acknowledgements > 0 {
            let (bytes, _) =
                rustix::net::recv(&self.socket, &mut datagram[..], RecvFlags::empty())?;
            self.judge(&datagram[..bytes])?;
        }
        Ok(())
    }

    fn judge(&mut self, mut datagram: &[u8]) -> io::Result<()> {
        while let Some(header) = datagram.first_chunk::<HEADER_BYTES>() {
            let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
            let kind = u16::from_ne_bytes([header[4], header[5]]);
            if length < HEADER_BYTES || length > datagram.len() {
                return Err(io::Error::from_raw_os_error(libc::EBADMSG));
            }
            if kind == NLMSG_ERROR {
                let code = datagram[HEADER_BYTES..length]
                    .first_chunk()
                    .map_or(-libc::EBADMSG, |c| i32::from_ne_bytes(*c));
                if code != 0 {
                    return Err(io::Error::from_raw_os_error(-code));
                }
                self.acknowledgements = self.acknowledgements.saturating_sub(1);
            }
            datagram = datagram
                .get(length.next_multiple_of(4)..)
                .unwrap_or_default();
        }
        Ok(())
    }

    fn align(&mut self) {
        self.buffer.resize(self.buffer.len().next_multiple_of(4), 0);
    }
}

const HEADER_BYTES: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLA_F_NESTED: u16 = 0x8000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_cover_padding_and_nesting() {
        let mut netlink = Netlink::open(None).unwrap();
        netlink.message(16, ACK, &[0; 4], |n| {
            n.nest(1, |n| n.text(2, "ab"));
        });
        assert_eq!(netlink.buffer.len(), 16 + 4 + 4 + 8);
        assert_eq!(netlink.buffer[0], 32);
        assert_eq!(&netlink.buffer[20..24], &[12, 0, 1, 0x80]);
        assert_eq!(&netlink.buffer[24..], &[7, 0, 2, 0, b'a', b'b', 0, 0]);
    }

    #[test]
    fn the_kernels_errno_is_reported() {
        let mut netlink = Netlink::open(None).unwrap();
        let mut header = [0; 16];
        header[4..8].copy_from_slice(&i32::MAX.to_ne_bytes());
        netlink.message(18, ACK, &header, |_| {}); // RTM_GETLINK of an interface that is not there
        assert_eq!(
            netlink.commit().unwrap_err().raw_os_error(),
            Some(libc::ENODEV)
        );
    }
}
