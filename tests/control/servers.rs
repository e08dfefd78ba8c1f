//! Servers that a gateway cannot get an answer from.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use socket2::{Domain, Socket, Type};
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, Stream};

/// A server that answers by the path, and never as HTTP has it.
pub fn broken() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 4096];
            let read = stream.read(&mut head).unwrap_or(0);
            let is_for = |path: &[u8]| head[..read].starts_with(path);
            let answer = match () {
                () if is_for(b"GET /socket") => "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n".to_owned(),
                () if is_for(b"GET /long") => format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(300)),
                () if is_for(b"GET /gone") => String::new(),
                () => "what is HTTP?\r\n\r\n".to_owned(),
            };
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

/// A server that accepts connections, and says nothing.
pub fn silent() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let held: Vec<_> = listener.incoming().flatten().collect();
        drop(held);
    });
    address
}

/// A server whose queue of connections is full, so that none more is made.
pub fn full() -> SocketAddr {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any.into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    std::thread::spawn(move || {
        let waiting: Vec<Socket> = (0..4)
            .map(|_| {
                let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
                client.set_nonblocking(true).unwrap();
                // It is under way; the later ones never get further.
                let _ = client.connect(&address.into());
                client
            })
            .collect();
        std::thread::park();
        drop((socket, waiting));
    });
    address
}

/// A server of HTTP/1.1 with its own certificate, which answers in a coding that nobody knows.
pub fn sound() -> (String, SocketAddr) {
    let names = ["sound.test", "gone.test", "newer.test", "unsafe.test"];
    let of_aws = ["reports.s3", "sts"].map(|name| format!("{name}.eu-central-1.amazonaws.com"));
    let names = [names.map(str::to_owned).to_vec(), of_aws.to_vec()].concat();
    let own = rcgen::generate_simple_self_signed(names).unwrap();
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let config = Arc::clone(&config);
            // The gateway may cut it at any time.
            std::thread::spawn(move || drop(coded(stream, config)));
        }
    });
    (own.cert.pem(), address)
}

fn coded(mut stream: TcpStream, config: Arc<ServerConfig>) -> std::io::Result<()> {
    let mut tls = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut tls = Stream::new(&mut tls, &mut stream);
    let mut head = [0; 4096];
    while tls.read(&mut head)? > 0 {
        tls.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: exotic\r\nContent-Length: 2\r\n\r\nok",
        )?;
    }
    Ok(())
}
