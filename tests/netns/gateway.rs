//! A minimal gateway: it reports where each connection wanted to go, and answers every DNS query.

use std::io::{Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use gateway::launch::enroll::{Capture, GatewayEnd, Ready};
use gateway::launch::repository::RepositoryCheck;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// Role: serves one sandbox until its end.
pub fn serve(socket: &str, manner: &str) -> ExitCode {
    // SAFETY: the driver left this one open under this number for us.
    let socket = unsafe { OwnedFd::from_raw_fd(socket.parse().unwrap()) };
    let launcher = GatewayEnd::from(socket);
    if manner == "die" {
        return ExitCode::FAILURE;
    }
    let Ok((hello, listeners)) = launcher.hello() else {
        return ExitCode::FAILURE;
    };
    if manner == "refuse" {
        launcher.refuse("no session for you").unwrap();
        return ExitCode::FAILURE;
    }
    if manner == "plain" {
        // The cost of the launch alone: the system's certificates, and nothing that serves.
        let ca_bundle_pem = std::fs::read("/etc/ssl/certs/ca-certificates.crt").unwrap();
        launcher
            .ready(&Ready {
                ca_bundle_pem,
                ..Ready::default()
            })
            .unwrap();
        launcher.ended();
        return ExitCode::SUCCESS;
    }
    let (tls, ca_pem) = authority();
    let mut ca_bundle_pem = std::fs::read("/etc/ssl/certs/ca-certificates.crt").unwrap();
    ca_bundle_pem.extend_from_slice(ca_pem.as_bytes());
    let tcp = TcpListener::from(listeners.tcp);
    thread::spawn(move || {
        for connection in tcp.incoming().flatten() {
            let tls = tls.clone();
            thread::spawn(move || answer(connection, hello.capture, tls));
        }
    });
    let dns_tcp = TcpListener::from(listeners.dns_tcp);
    thread::spawn(move || {
        for connection in dns_tcp.incoming().flatten() {
            thread::spawn(move || answer_over_tcp(connection));
        }
    });
    let dns = listeners.dns_udp;
    thread::spawn(move || while answer_question(&dns).is_some() {});
    let ready = Ready {
        ca_bundle_pem,
        ca_pem: ca_pem.into_bytes(),
        ca_nss: Vec::new(),
        set: vec![("GITHUB_TOKEN".into(), "ghp_phantom".into())],
        unset: vec!["UNWANTED".into()],
        files: Vec::new(),
    };
    let mut check = RepositoryCheck::adopt(std::io::stdout());
    if let Some(check) = &mut check {
        check.begin(|| {}).unwrap();
    }
    launcher.ready(&ready).unwrap();
    launcher.ended();
    if let Some(check) = check {
        check.end();
    }
    ExitCode::SUCCESS
}

fn answer(mut connection: TcpStream, capture: Capture, tls: Arc<rustls::ServerConfig>) {
    let wanted = match capture {
        Capture::Tproxy => connection.local_addr().unwrap().to_string(),
        Capture::Redirect => original_destination(&connection),
    };
    let mut first = [0; 1];
    if matches!(connection.peek(&mut first), Ok(1)) && first[0] == 22 {
        let session = rustls::ServerConnection::new(tls).unwrap();
        let mut stream = rustls::StreamOwned::new(session, connection);
        let mut request = [0; 4096];
        let _ = stream.read(&mut request);
        let _ = stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\ntrusted\n",
        );
        stream.conn.send_close_notify();
        let _ = stream.flush();
        return;
    }
    let body = format!("reached {wanted}\n");
    let mut request = [0; 4096];
    let _ = connection.read(&mut request);
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = connection.write_all((head + &body).as_bytes());
    let _ = connection.read(&mut request); // Until the client closes.
}

/// Answers one query over TCP (RFC 7766).
fn answer_over_tcp(mut connection: TcpStream) -> Option<()> {
    let mut length = [0; 2];
    connection.read_exact(&mut length).ok()?;
    let mut question = vec![0; u16::from_be_bytes(length).into()];
    connection.read_exact(&mut question).ok()?;
    let answer = reply(&question);
    let length = u16::try_from(answer.len()).ok()?.to_be_bytes();
    let framed = [&length[..], &answer].concat();
    connection.write_all(&framed).ok()
}

fn original_destination(connection: &TcpStream) -> String {
    use std::os::fd::AsRawFd;
    // SAFETY: `sockaddr_in6` is plain data, and the kernel writes at most the size it is told.
    let address = unsafe {
        let mut address: libc::sockaddr_in6 = std::mem::zeroed();
        let mut size = size_of::<libc::sockaddr_in6>() as u32;
        let fd = connection.as_raw_fd();
        if libc::getsockopt(
            fd,
            libc::SOL_IP,
            80,
            (&raw mut address).cast(),
            &raw mut size,
        ) == 0
        {
            let v4 = (&raw const address).cast::<libc::sockaddr_in>().read();
            let ip = std::net::Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            return format!("{ip}:{}", u16::from_be(v4.sin_port));
        }
        assert_eq!(
            libc::getsockopt(
                fd,
                libc::SOL_IPV6,
                80,
                (&raw mut address).cast(),
                &raw mut size
            ),
            0
        );
        address
    };
    format!(
        "[{}]:{}",
        Ipv6Addr::from(address.sin6_addr.s6_addr),
        u16::from_be(address.sin6_port)
    )
}

/// Answers a query with 198.18.0.1 or fd65::1, from the address that was asked.
fn answer_question(socket: &OwnedFd) -> Option<()> {
    use std::os::fd::AsRawFd;
    let mut question = [0_u8; 1500];
    let mut control = [0_u64; 16]; // Control messages are aligned.
    // SAFETY: every pointer in the header is to a live buffer of the length beside it; the answer
    // goes back with the very control message that came, but for its interface index.
    unsafe {
        let mut from: libc::sockaddr_in6 = std::mem::zeroed();
        let mut part = libc::iovec {
            iov_base: question.as_mut_ptr().cast(),
            iov_len: question.len(),
        };
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of::<libc::sockaddr_in6>() as u32;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        let bytes = libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, 0);
        let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes > 0)?;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if !header.is_null() && (*header).cmsg_type == libc::IPV6_PKTINFO {
            let info = libc::CMSG_DATA(header).cast::<libc::in6_pktinfo>();
            let address = info.read_unaligned().ipi6_addr;
            info.write_unaligned(libc::in6_pktinfo {
                ipi6_addr: address,
                ipi6_ifindex: 0,
            });
        }
        let mut answer = reply(&question[..bytes]);
        let mut part = libc::iovec {
            iov_base: answer.as_mut_ptr().cast(),
            iov_len: answer.len(),
        };
        message.msg_iov = &raw mut part;
        libc::sendmsg(socket.as_raw_fd(), &raw const message, 0);
    }
    Some(())
}

fn reply(question: &[u8]) -> Vec<u8> {
    let name_end = question
        .iter()
        .skip(12)
        .position(|b| *b == 0)
        .map_or(question.len(), |p| p + 12);
    let mut answer = question[..(name_end + 5).min(question.len())].to_vec();
    answer[2] = 0x81;
    answer[3] = 0x80;
    answer[6..12].copy_from_slice(&[0; 6]);
    let kind = answer[answer.len() - 3];
    let data: &[u8] = match kind {
        1 => &[198, 18, 0, 1],
        28 => &[0xfd, 0x65, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        _ => return answer,
    };
    answer[7] = 1;
    answer.extend_from_slice(&[0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 1, 0, data.len() as u8]);
    answer.extend_from_slice(data);
    answer
}

/// Makes a CA and a leaf for `trusted.test`.
fn authority() -> (Arc<rustls::ServerConfig>, String) {
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let mut ca = rcgen::CertificateParams::new(vec![]).unwrap();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    ca.distinguished_name
        .push(rcgen::DnType::CommonName, "gateway test CA");
    let ca_certificate = ca.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(vec!["trusted.test".into()])
        .unwrap()
        .signed_by(&key, &issuer)
        .unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = rustls::ServerConfig::builder().with_no_client_auth();
    let config = config
        .with_single_cert(vec![leaf.der().clone()], key)
        .unwrap();
    (Arc::new(config), ca_certificate.pem())
}
