//! An authoritative name server under the test's control, which remembers every query.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};

/// The server: names have addresses, or a sequence of answers, the last of which repeats.
#[derive(Clone)]
pub struct Names {
    /// Where it listens.
    pub address: SocketAddr,
    zone: Arc<Mutex<HashMap<String, Vec<Vec<IpAddr>>>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

/// One port for UDP and TCP: a port that is free for one may be taken for the other.
fn both() -> (UdpSocket, TcpListener) {
    for _ in 0..100 {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        if let Ok(listener) = TcpListener::bind(socket.local_addr().unwrap()) {
            return (socket, listener);
        }
    }
    panic!("no port is free for UDP and TCP alike");
}

impl Names {
    /// Starts the server on UDP.
    pub fn start() -> Self {
        let (socket, tcp) = both();
        let names = Self {
            address: socket.local_addr().unwrap(),
            zone: Arc::default(),
            asked: Arc::default(),
        };
        // Queries over TCP are recorded, too, although none is answered.
        let seen = names.asked.clone();
        std::thread::spawn(move || {
            for _ in tcp.incoming() {
                seen.lock().unwrap().push("over tcp".to_owned());
            }
        });
        let server = names.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
                if let Some(answer) = server.answer(&buffer[..length]) {
                    socket.send_to(&answer, peer).unwrap();
                }
            }
        });
        names
    }

    /// Gives a name its addresses.
    pub fn set(&self, name: &str, addresses: &[&str]) {
        self.turns(name, &[addresses]);
    }

    /// Gives a name a sequence of answers. A and AAAA share them by family, and each query of type
    /// A advances.
    pub fn turns(&self, name: &str, answers: &[&[&str]]) {
        let parse = |all: &&[&str]| all.iter().map(|one| one.parse().unwrap()).collect();
        self.zone
            .lock()
            .unwrap()
            .insert(name.to_owned(), answers.iter().map(parse).collect());
    }

    /// Every name that was queried since the last call.
    pub fn take_asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    fn answer(&self, question: &[u8]) -> Option<Vec<u8>> {
        let mut at = 12;
        let mut labels = Vec::new();
        while *question.get(at)? != 0 {
            let length = usize::from(question[at]);
            labels.push(
                String::from_utf8_lossy(question.get(at + 1..at + 1 + length)?).to_lowercase(),
            );
            at += 1 + length;
        }
        let kind = u16::from_be_bytes([*question.get(at + 1)?, *question.get(at + 2)?]);
        let end = at + 5;
        let name = labels.join(".");
        self.asked.lock().unwrap().push(name.clone());
        let mut zone = self.zone.lock().unwrap();
        let addresses = match zone.get_mut(&name) {
            None => None,
            Some(turns) => {
                let now = turns[0].clone();
                if kind == 1 && turns.len() > 1 {
                    turns.remove(0);
                }
                Some(now)
            }
        };
        let mut records = Vec::new();
        for address in addresses.iter().flatten() {
            let data = match (address, kind) {
                (IpAddr::V4(v4), 1) => v4.octets().to_vec(),
                (IpAddr::V6(v6), 28) => v6.octets().to_vec(),
                _ => continue,
            };
            // A pointer to the name, the type, class IN, TTL 0.
            let mut record = [&[0xc0, 12][..], &kind.to_be_bytes(), &[0, 1, 0, 0, 0, 0]].concat();
            record.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
            record.extend(data);
            records.push(record);
        }
        let code = if addresses.is_none() { 3 } else { 0 };
        let mut answer = question.get(..2)?.to_vec();
        answer.extend([0x85, 0x80 | code, 0, 1, 0, records.len() as u8, 0, 0, 0, 0]);
        answer.extend(question.get(12..end)?);
        answer.extend(records.concat());
        Some(answer)
    }
}
