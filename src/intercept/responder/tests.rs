//! The DNS tasks on loopback sockets.

use std::net::{SocketAddr, UdpSocket as Blocking};
use std::sync::atomic::{AtomicUsize, Ordering};

use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RecordType};
use socket2::{Domain, Socket, Type};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::*;

fn responder() -> Arc<Responder> {
    Arc::new(Responder::new(
        AddressPool::default(),
        Box::new(|host, _| host.as_str() == "good.test"),
        Box::new(|_| {}),
    ))
}

fn query(id: u16, name: &str) -> Vec<u8> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    message.to_vec().unwrap()
}

fn framed(query: &[u8]) -> Vec<u8> {
    [&(query.len() as u16).to_be_bytes()[..], query].concat()
}

/// A dual-stack socket on every address, as the launcher makes it.
fn dual_stack() -> (Blocking, u16) {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, None).unwrap();
    socket.set_only_v6(false).unwrap();
    socket
        .bind(&"[::]:0".parse::<SocketAddr>().unwrap().into())
        .unwrap();
    let socket = Blocking::from(socket);
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

/// Queries from a connected socket, which accepts answers only from the address it is connected to.
async fn ask(to: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let any = if to.is_ipv4() {
        "127.0.0.1:0"
    } else {
        "[::1]:0"
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(to).await?;
    socket.send(query).await?;
    let mut reply = vec![0; 1500];
    let length = timeout(Duration::from_secs(2), socket.recv(&mut reply)).await??;
    reply.truncate(length);
    Ok(reply)
}

#[tokio::test]
async fn an_answer_comes_from_the_address_that_was_asked() {
    let (socket, port) = dual_stack();
    let server = tokio::spawn(serve_udp(socket, responder()));
    for to in ["127.0.0.1", "127.0.0.53", "127.8.8.8", "::1"] {
        let to = SocketAddr::new(to.parse().unwrap(), port);
        let reply = ask(to, &query(7, "good.test."))
            .await
            .unwrap_or_else(|error| panic!("{to}: {error}"));
        assert_eq!(Message::from_vec(&reply).unwrap().answers.len(), 1, "{to}");
    }
    server.abort();
}

#[tokio::test]
async fn an_ipv4_socket_works_too() {
    let socket = Blocking::bind("0.0.0.0:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let server = tokio::spawn(serve_udp(socket, responder()));
    let reply = ask(
        SocketAddr::new("127.0.0.77".parse().unwrap(), port),
        &query(7, "good.test."),
    )
    .await
    .unwrap();
    assert_eq!(Message::from_vec(&reply).unwrap().answers.len(), 1);
    server.abort();
}

#[tokio::test]
async fn garbage_and_large_datagrams_stop_nothing() {
    let (socket, port) = dual_stack();
    let server = tokio::spawn(serve_udp(socket, responder()));
    let to = SocketAddr::new("127.0.0.1".parse().unwrap(), port);
    let noise = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for bytes in [&b""[..], b"\0", &[0xff; 12], &[0; 60_000]] {
        noise.send_to(bytes, to).await.unwrap();
    }
    assert!(ask(to, &query(9, "good.test.")).await.is_ok());
    server.abort();
}

#[tokio::test]
async fn answers_lead_from_the_address_back_to_the_name() {
    let (socket, port) = dual_stack();
    let responder = responder();
    let server = tokio::spawn(serve_udp(socket, Arc::clone(&responder)));
    let reply = ask(
        SocketAddr::new("127.0.0.1".parse().unwrap(), port),
        &query(7, "good.test."),
    )
    .await
    .unwrap();
    let reply = Message::from_vec(&reply).unwrap();
    let address = reply.answers[0].data.ip_addr().unwrap();
    assert_eq!(responder.name(address).unwrap().as_str(), "good.test");
    server.abort();
}

/// A server whose deadline is 300 ms.
async fn tcp() -> (SocketAddr, JoinHandle<io::Result<()>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut responder = Responder::new(
        AddressPool::default(),
        Box::new(|host, _| host.as_str() == "good.test"),
        Box::new(|_| {}),
    );
    assert_eq!(responder.deadline, Duration::from_secs(10));
    responder.deadline = Duration::from_millis(300);
    (
        address,
        tokio::spawn(serve_tcp(listener, Arc::new(responder))),
    )
}

async fn read_reply(stream: &mut TcpStream) -> io::Result<Message> {
    let length = stream.read_u16().await?;
    let mut reply = vec![0; usize::from(length)];
    stream.read_exact(&mut reply).await?;
    Ok(Message::from_vec(&reply).unwrap())
}

#[tokio::test]
async fn one_connection_asks_many_questions_in_any_cut() {
    let (address, server) = tcp().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let both = [
        framed(&query(1, "good.test.")),
        framed(&query(2, "evil.test.")),
    ]
    .concat();
    stream.write_all(&both).await.unwrap();
    for id in [1, 2] {
        assert_eq!(read_reply(&mut stream).await.unwrap().metadata.id, id);
    }
    for byte in framed(&query(3, "good.test.")) {
        stream.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(read_reply(&mut stream).await.unwrap().metadata.id, 3);
    server.abort();
}

#[tokio::test]
async fn a_length_that_lies_ends_the_connection() {
    let (address, server) = tcp().await;
    for opening in [&[0, 0][..], &[0, 11], &[0xff, 0xff], &[0x10, 0x01]] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(opening).await.unwrap();
        let mut byte = [0];
        let read = timeout(Duration::from_secs(2), stream.read(&mut byte))
            .await
            .unwrap();
        assert!(matches!(read, Ok(0) | Err(_)), "{opening:?}");
    }
    server.abort();
}

#[tokio::test]
async fn a_stalled_connection_ends_at_its_deadline() {
    let (address, server) = tcp().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&[0, 40, 1, 2]).await.unwrap();
    let start = Instant::now();
    let mut byte = [0];
    assert_eq!(stream.read(&mut byte).await.unwrap_or(0), 0);
    assert!(
        start.elapsed() >= Duration::from_millis(290) && start.elapsed() < Duration::from_secs(2)
    );
    server.abort();
}

#[tokio::test]
async fn idle_connections_hold_up_others_for_one_deadline_at_most() {
    let (address, server) = tcp().await;
    let mut idle = Vec::new();
    for _ in 0..CONNECTIONS_MAX + 8 {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(&framed(&query(5, "good.test.")))
        .await
        .unwrap();
    let reply = timeout(Duration::from_secs(3), read_reply(&mut stream))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(reply.metadata.id, 5);
    server.abort();
}

#[tokio::test]
async fn each_answer_is_observed_and_a_flood_is_slowed() {
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&seen);
    let responder = Arc::new(Responder::new(
        AddressPool::default(),
        Box::new(|_, _| true),
        Box::new(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
        }),
    ));
    let (socket, port) = dual_stack();
    let server = tokio::spawn(serve_udp(socket, Arc::clone(&responder)));
    let to = SocketAddr::new("127.0.0.1".parse().unwrap(), port);
    let noise = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(500) {
        for n in 0..100 {
            let _ = noise.try_send_to(&query(n, "good.test."), to);
        }
        tokio::task::yield_now().await;
    }
    let most = f64::from(QUESTIONS_BURST)
        + f64::from(QUESTIONS_PER_SECOND) * start.elapsed().as_secs_f64()
        + 1.0;
    let seen = seen.load(Ordering::SeqCst);
    assert!(seen > 100 && (seen as f64) <= most, "{seen} of {most}");
    server.abort();
}
