//! The destination of a captured connection before the kernel redirected it to the gateway.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use socket2::SockRef;
use tokio::net::TcpStream;

/// Returns the address and port that the client dialled.
///
/// For REDIRECT, it is in connection tracking (`SO_ORIGINAL_DST`). For TPROXY, or a socket inside
/// the sandbox, it is the connection's own local address. An IPv4-mapped address is returned as
/// IPv4.
///
/// # Errors
/// If the socket no longer has a local address.
pub fn original_destination(stream: &TcpStream) -> io::Result<SocketAddr> {
    let local = canonical(stream.local_addr()?);
    let socket = SockRef::from(stream);
    let tracked = match local {
        SocketAddr::V4(_) => socket.original_dst_v4(),
        SocketAddr::V6(_) => socket.original_dst_v6(),
    };
    // No entry, or no connection tracking in this kernel: nothing was translated.
    Ok(tracked
        .ok()
        .and_then(|address| address.as_socket())
        .map_or(local, canonical))
}

/// Whether an address belongs to this machine, so that no captured connection and no other machine
/// has it. In doubt it does, as for a link-local address without its interface.
pub fn is_of_this_machine(address: IpAddr) -> bool {
    let bound = UdpSocket::bind((address, 0));
    bound.map_or_else(
        |error| error.kind() != io::ErrorKind::AddrNotAvailable,
        |_| true,
    )
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn an_untranslated_connection_went_where_it_arrived() {
        for bind in ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
            let listener = TcpListener::bind(bind).await.unwrap();
            let address = listener.local_addr().unwrap();
            let client = TcpStream::connect(address).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            assert_eq!(
                original_destination(&stream).unwrap(),
                canonical(address),
                "{bind}"
            );
            drop(client);
        }
    }
}
