//! The relay inside the sandbox: connects where it is told, and carries bytes over its standard
//! streams.
//!
//! Frames: number (4 bytes), kind (1 byte), length (4 bytes), content.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::{ChildStdin, ChildStdout, ExitCode};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const OPEN: u8 = 0;
const OPENED: u8 = 1;
const CLOSED: u8 = 2;
const DATA: u8 = 3;
const ENDED: u8 = 4;
const UDP: u8 = 5;
const ENVIRONMENT: u8 = 6;

fn frame(number: u32, kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap();
    [
        &number.to_be_bytes()[..],
        &[kind],
        &length.to_be_bytes(),
        content,
    ]
    .concat()
}

fn read(from: &mut impl Read) -> Option<(u32, u8, Vec<u8>)> {
    let mut head = [0; 9];
    from.read_exact(&mut head).ok()?;
    let number = u32::from_be_bytes(head[..4].try_into().unwrap());
    let mut content = vec![0; u32::from_be_bytes(head[5..].try_into().unwrap()) as usize];
    from.read_exact(&mut content).ok()?;
    Some((number, head[4], content))
}

/// Role: the program that the sandbox runs.
pub fn run() -> ExitCode {
    let out = Arc::new(Mutex::new(std::io::stdout()));
    let send = {
        let out = out.clone();
        Arc::new(move |number: u32, kind: u8, content: &[u8]| {
            let mut out = out.lock().unwrap();
            out.write_all(&frame(number, kind, content)).unwrap();
            out.flush().unwrap();
        })
    };
    let environment: String = std::env::vars()
        .map(|(name, value)| format!("{name}={value}\n"))
        .collect();
    send(0, ENVIRONMENT, environment.as_bytes());
    let open: Arc<Mutex<HashMap<u32, TcpStream>>> = Arc::default();
    let mut input = std::io::stdin().lock();
    while let Some((number, kind, content)) = read(&mut input) {
        match kind {
            OPEN => {
                let (send, open) = (send.clone(), open.clone());
                let to = String::from_utf8(content).unwrap();
                let connected = to.to_socket_addrs().and_then(|addresses| {
                    let all: Vec<_> = addresses.collect();
                    let first = all.iter().find(|one| one.is_ipv4()).or(all.first());
                    TcpStream::connect_timeout(
                        first.ok_or(std::io::ErrorKind::NotFound)?,
                        Duration::from_secs(2),
                    )
                });
                let stream = match connected {
                    Ok(stream) => stream,
                    Err(error) => {
                        send(number, CLOSED, error.to_string().as_bytes());
                        continue;
                    }
                };
                stream.set_nodelay(true).unwrap();
                let mut from = stream.try_clone().unwrap();
                open.lock().unwrap().insert(number, stream);
                send(number, OPENED, b"");
                std::thread::spawn(move || {
                    let mut buffer = [0; 16384];
                    loop {
                        match from.read(&mut buffer) {
                            Ok(0) | Err(_) => return send(number, ENDED, b""),
                            Ok(count) => send(number, DATA, &buffer[..count]),
                        }
                    }
                });
            }
            DATA => {
                let stream = open
                    .lock()
                    .unwrap()
                    .get(&number)
                    .map(|stream| stream.try_clone().unwrap());
                if let Some(mut stream) = stream {
                    // A refused connection may be closed already; its end is told by the reader.
                    let _ = stream.write_all(&content);
                }
            }
            ENDED => {
                if let Some(stream) = open.lock().unwrap().remove(&number) {
                    let _ = stream.shutdown(Shutdown::Write);
                }
            }
            UDP => {
                let split = content.iter().position(|byte| *byte == b' ').unwrap();
                let to = std::str::from_utf8(&content[..split]).unwrap().to_owned();
                let question = content[split + 1..].to_vec();
                let send = send.clone();
                std::thread::spawn(move || {
                    let local = if to.starts_with('[') {
                        "[::]:0"
                    } else {
                        "0.0.0.0:0"
                    };
                    let asked = UdpSocket::bind(local).and_then(|socket| {
                        socket.set_read_timeout(Some(Duration::from_millis(700)))?;
                        socket.send_to(&question, &to)?;
                        let mut buffer = [0; 4096];
                        let length = socket.recv(&mut buffer)?;
                        Ok(buffer[..length].to_vec())
                    });
                    match asked {
                        Ok(answer) => send(number, DATA, &answer),
                        Err(error) => send(number, CLOSED, error.to_string().as_bytes()),
                    }
                });
            }
            _ => unreachable!("the rig sends no such frame"),
        }
    }
    ExitCode::SUCCESS
}

/// What comes back for one number.
enum Back {
    Opened,
    Closed(String),
    Data(Vec<u8>),
}

/// The rig's end of the relay.
pub struct Relay {
    input: Arc<Mutex<ChildStdin>>,
    waiting: Arc<Mutex<HashMap<u32, Sender<Back>>>>,
    streams: Arc<Mutex<HashMap<u32, UnixStream>>>,
    next: Mutex<u32>,
    /// The workload's variables.
    pub environment: HashMap<String, String>,
    /// The same, as they came.
    pub environment_bytes: Vec<u8>,
}

impl Relay {
    /// Waits for the relay to greet from inside; `None` where it never does.
    pub fn new(input: ChildStdin, mut output: ChildStdout) -> Option<Self> {
        let (_, kind, environment_bytes) = read(&mut output)?;
        assert_eq!(kind, ENVIRONMENT);
        let text = String::from_utf8(environment_bytes.clone()).unwrap();
        let pair = |line: &str| {
            line.split_once('=')
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        let environment = text.lines().filter_map(pair).collect();
        let waiting: Arc<Mutex<HashMap<u32, Sender<Back>>>> = Arc::default();
        let streams: Arc<Mutex<HashMap<u32, UnixStream>>> = Arc::default();
        let (told, carried) = (waiting.clone(), streams.clone());
        std::thread::spawn(move || {
            while let Some((number, kind, content)) = read(&mut output) {
                let stream = carried
                    .lock()
                    .unwrap()
                    .get(&number)
                    .map(|stream| stream.try_clone().unwrap());
                match (kind, stream) {
                    // The test may have dropped its end.
                    (DATA, Some(mut stream)) => drop(stream.write_all(&content)),
                    (ENDED, Some(stream)) => {
                        let _ = stream.shutdown(Shutdown::Write);
                        carried.lock().unwrap().remove(&number);
                    }
                    (kind, _) => {
                        let back = match kind {
                            OPENED => Back::Opened,
                            DATA => Back::Data(content),
                            _ => Back::Closed(String::from_utf8_lossy(&content).into_owned()),
                        };
                        if let Some(sender) = told.lock().unwrap().remove(&number) {
                            let _ = sender.send(back);
                        }
                    }
                }
            }
        });
        Some(Self {
            input: Arc::new(Mutex::new(input)),
            waiting,
            streams,
            next: Mutex::new(1),
            environment,
            environment_bytes,
        })
    }

    fn ask(&self, kind: u8, content: &[u8]) -> (u32, Receiver<Back>) {
        let mut next = self.next.lock().unwrap();
        *next += 1;
        let (sender, receiver) = channel();
        self.waiting.lock().unwrap().insert(*next, sender);
        self.input
            .lock()
            .unwrap()
            .write_all(&frame(*next, kind, content))
            .unwrap();
        (*next, receiver)
    }

    /// Connects from inside to `host:port`.
    pub fn connect(&self, to: &str) -> Result<UnixStream, String> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let number = {
            // Known before it is asked for: its first bytes may come at once.
            let next = self.next.lock().unwrap();
            self.streams
                .lock()
                .unwrap()
                .insert(*next + 1, theirs.try_clone().unwrap());
            *next + 1
        };
        let (given, receiver) = self.ask(OPEN, to.as_bytes());
        assert_eq!(given, number, "one thread at a time opens connections");
        match receiver.recv_timeout(Duration::from_secs(8)) {
            Ok(Back::Opened) => {}
            Ok(Back::Closed(why)) => {
                self.streams.lock().unwrap().remove(&number);
                return Err(why);
            }
            _ => return Err("the relay did not answer".to_owned()),
        }
        let input = self.input.clone();
        let mut from = theirs;
        std::thread::spawn(move || {
            let mut buffer = [0; 16384];
            loop {
                let (kind, content) = match from.read(&mut buffer) {
                    Ok(0) | Err(_) => (ENDED, &[][..]),
                    Ok(count) => (DATA, &buffer[..count]),
                };
                // At the very end the sandbox is gone before this thread.
                if input
                    .lock()
                    .unwrap()
                    .write_all(&frame(number, kind, content))
                    .is_err()
                    || kind == ENDED
                {
                    return;
                }
            }
        });
        Ok(ours)
    }

    /// Sends one datagram from inside, and gives what comes back.
    pub fn datagram(&self, to: &str, content: &[u8]) -> Result<Vec<u8>, String> {
        let (_, receiver) = self.ask(UDP, &[to.as_bytes(), b" ", content].concat());
        match receiver.recv_timeout(Duration::from_secs(3)) {
            Ok(Back::Data(answer)) => Ok(answer),
            Ok(Back::Closed(why)) => Err(why),
            _ => Err("nothing".to_owned()),
        }
    }
}
