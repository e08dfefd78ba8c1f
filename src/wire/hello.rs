//! A TLS client's hello, read with a size limit before anything is answered.

use std::io::{self, Read};

use rustls::server::{Accepted, AcceptedAlert, Acceptor};

/// Why there is no hello.
#[derive(Debug, thiserror::Error)]
pub enum HelloFault {
    /// The first byte does not start a TLS handshake record.
    #[error("the client does not speak TLS")]
    NotTls,
    /// The hello is longer than 64 KiB.
    #[error("the client hello is too long")]
    TooLong,
    /// It is not a hello, or not one that can be answered; the alert, if rustls made one.
    #[error("the TLS handshake failed")]
    Tls(#[source] rustls::Error, Vec<u8>),
    /// The connection failed, ended, or has nothing to read yet.
    #[error("the connection failed during the handshake")]
    Io(#[from] io::Error),
}

/// Reads a hello in any number of segments and records.
#[derive(Default)]
pub struct HelloReader {
    acceptor: Acceptor,
    taken: usize,
}

impl HelloReader {
    /// Reads once; `None` if more must arrive. Every byte after the hello stays in the result.
    ///
    /// # Errors
    /// [`HelloFault`], after which the reader has no use, except after
    /// [`io::ErrorKind::WouldBlock`].
    pub fn read(&mut self, source: &mut dyn Read) -> Result<Option<Accepted>, HelloFault> {
        let mut source = FirstByte {
            source,
            first: None,
        };
        // rustls takes as much as it can buffer, so nothing that is read gets lost.
        let read = self.acceptor.read_tls(&mut source);
        // No socket returns this kind: rustls does when its buffer for one message is full.
        let read = read.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => HelloFault::TooLong,
            _ => HelloFault::Io(error),
        })?;
        if read == 0 {
            return Err(HelloFault::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        if self.taken == 0 && source.first != Some(HANDSHAKE_RECORD) {
            return Err(HelloFault::NotTls);
        }
        self.taken += read;
        match self.acceptor.accept() {
            Ok(None) if self.taken > HELLO_MAX => Err(HelloFault::TooLong),
            Ok(accepted) => Ok(accepted),
            Err((error, alert)) => Err(HelloFault::Tls(error, written(alert))),
        }
    }
}

/// Remembers the first byte of a read.
struct FirstByte<'a> {
    source: &'a mut dyn Read,
    first: Option<u8>,
}

impl Read for FirstByte<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.source.read(buffer)?;
        self.first = self.first.or(buffer[..length].first().copied());
        Ok(length)
    }
}

fn written(mut alert: AcceptedAlert) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Writing to memory does not fail.
    let _ = alert.write_all(&mut bytes);
    bytes
}

const HANDSHAKE_RECORD: u8 = 22;
const HELLO_MAX: usize = 64 * 1024;
