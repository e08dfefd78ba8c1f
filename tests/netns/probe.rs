//! What runs inside the sandbox, one small act each; each prints the result.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::process::ExitCode;
use std::time::Duration;

pub fn run(words: &[&str]) -> ExitCode {
    match words {
        ["tcp", addresses @ ..] => addresses
            .iter()
            .for_each(|address| println!("{}", tcp(address))),
        ["dns", servers @ ..] => servers
            .iter()
            .for_each(|server| println!("{}", dns(server))),
        ["dns-tcp", servers @ ..] => servers
            .iter()
            .for_each(|server| println!("{}", dns_over_tcp(server))),
        ["resolve", name] => println!(
            "{:?}",
            (*name, 80)
                .to_socket_addrs()
                .map(Iterator::collect::<Vec<_>>)
        ),
        ["udp", addresses @ ..] => addresses
            .iter()
            .for_each(|address| println!("{}", udp(address))),
        ["unix", paths @ ..] => paths.iter().for_each(|path| println!("{}", unix(path))),
        ["unix-after", seconds, paths @ ..] => {
            let seconds: f64 = seconds.parse().unwrap();
            if seconds > 0.0 {
                println!("waiting");
                std::io::stdout().flush().unwrap();
                std::thread::sleep(Duration::from_secs_f64(seconds));
            }
            paths.iter().for_each(|path| println!("{}", unix(path)));
        }
        ["wait-tcp", address] => {
            // Reports its presence, then waits until the gateway is gone.
            println!("{}", tcp(address));
            std::io::stdout().flush().unwrap();
            let mut line = String::new();
            for _ in 0..500 {
                line = tcp(address);
                if line == "ConnectionRefused" {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            println!("{line} / {} / {}", dns("8.8.8.8:53"), udp("9.9.9.9:443"));
        }
        ["fds"] => {
            let mut fds: Vec<i32> = std::fs::read_dir("/proc/self/fd")
                .unwrap()
                .map(|entry| {
                    entry
                        .unwrap()
                        .file_name()
                        .to_str()
                        .unwrap()
                        .parse()
                        .unwrap()
                })
                .collect();
            fds.sort_unstable();
            println!("{fds:?}");
        }
        ["spoil"] => (0..3).for_each(spoil),
        ["renice"] => {
            // SAFETY: no memory is passed.
            let answer = unsafe { libc::setpriority(libc::PRIO_PGRP, 0, 7) };
            // SAFETY: as before.
            let session = unsafe { libc::getsid(0) };
            println!(
                "{answer} {} {session}",
                rustix::process::getpgrp().as_raw_nonzero()
            );
        }
        ["sleep", seconds] => {
            println!("sleeping");
            std::io::stdout().flush().unwrap();
            std::thread::sleep(Duration::from_secs(seconds.parse().unwrap()));
        }
        _ => return ExitCode::from(64),
    }
    ExitCode::SUCCESS
}

/// Tries to empty, forge and read the file of a standard stream, by its descriptor and by its name.
fn spoil(fd: i32) {
    let path = format!("/proc/self/fd/{fd}");
    // SAFETY: the pointer is to bytes that live across the calls, of the length beside it.
    let direct = unsafe {
        libc::ftruncate(fd, 0) == 0 || libc::pwrite(fd, c"FORGED".as_ptr().cast(), 6, 0) > 0
    };
    let is_file = std::fs::metadata(&path).unwrap().is_file();
    let anew = is_file && std::fs::write(&path, "FORGED").is_ok();
    let text = if is_file {
        std::fs::read_to_string(&path).unwrap_or_default()
    } else {
        String::new()
    };
    println!("{fd} {direct} {anew} {text}");
    eprintln!("erred");
}

fn tcp(address: &str) -> String {
    let address: SocketAddr = address.parse().unwrap();
    let mut stream = match TcpStream::connect_timeout(&address, Duration::from_secs(3)) {
        Ok(stream) => stream,
        Err(error) => return format!("{:?}", error.kind()),
    };
    stream
        .set_read_timeout(Some(Duration::from_secs(3)))
        .unwrap();
    let _ = stream.write_all(b"GET / HTTP/1.0\r\n\r\n");
    let mut answer = vec![0; 1024];
    match stream.read(&mut answer) {
        Ok(bytes) => String::from_utf8_lossy(&answer[..bytes])
            .lines()
            .last()
            .unwrap_or("EOF")
            .to_owned(),
        Err(error) => format!("{:?}", error.kind()),
    }
}

fn question() -> Vec<u8> {
    let name = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x04name\x04test\0\0";
    [name.as_slice(), &[1, 0, 1]].concat()
}

fn dns_over_tcp(server: &str) -> String {
    let server: SocketAddr = server.parse().unwrap();
    let asked = || {
        let mut stream = TcpStream::connect_timeout(&server, Duration::from_secs(3))?;
        stream.set_read_timeout(Some(Duration::from_secs(3)))?;
        let question = question();
        let length = (question.len() as u16).to_be_bytes();
        stream.write_all(&[&length[..], &question].concat())?;
        stream.read_exact(&mut [0; 2])?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        std::io::Result::Ok(answer)
    };
    match asked() {
        Ok(answer) => format!("answered {:?}", &answer[answer.len() - 4..]),
        Err(error) => format!("{:?}", error.kind()),
    }
}

fn dns(server: &str) -> String {
    let server: SocketAddr = server.parse().unwrap();
    let socket = UdpSocket::bind(if server.is_ipv6() {
        "[::]:0"
    } else {
        "0.0.0.0:0"
    })
    .unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    let question = question();
    if let Err(error) = socket.send_to(&question, server) {
        return format!("{:?}", error.kind());
    }
    let mut answer = [0; 512];
    match socket.recv_from(&mut answer) {
        Ok((bytes, from)) if from == server => format!("answered {:?}", &answer[bytes - 4..bytes]),
        Ok((_, from)) => format!("answered by {from}"),
        Err(error) => format!("{:?}", error.kind()),
    }
}

fn udp(address: &str) -> String {
    let address: SocketAddr = address.parse().unwrap();
    let socket = UdpSocket::bind(if address.is_ipv6() {
        "[::]:0"
    } else {
        "0.0.0.0:0"
    })
    .unwrap();
    let begun = std::time::Instant::now();
    match socket.send_to(b"hello", address) {
        Err(error) => format!(
            "{:?} at once: {}",
            error.kind(),
            begun.elapsed() < Duration::from_millis(200)
        ),
        Ok(_) => "sent".into(),
    }
}

fn unix(path: &str) -> String {
    let address = match path.strip_prefix('@') {
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap()
        }
        None => std::os::unix::net::SocketAddr::from_pathname(path).unwrap(),
    };
    match std::os::unix::net::UnixStream::connect_addr(&address) {
        Ok(_) => "CONNECTED".into(),
        Err(error) => format!("{:?}", error.kind()),
    }
}
