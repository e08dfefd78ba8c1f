//! The relay inside the sandbox: connects where it is told, and carries bytes over its standard
//! streams.
//!
//! Frames: number (4 bytes), kind (1 byte), length (4 bytes), content. Each direction of a
//! connection has a window of its own, so that one which nobody reads stops no other.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::{ChildStdin, ChildStdout, ExitCode};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::way::Raw;

const OPEN: u8 = 0;
const OPENED: u8 = 1;
const CLOSED: u8 = 2;
const DATA: u8 = 3;
const ENDED: u8 = 4;
const UDP: u8 = 5;
const ENVIRONMENT: u8 = 6;
/// So many bytes of `DATA` were taken.
const TAKEN: u8 = 7;

/// Bytes of one direction that may be under way.
const WINDOW: usize = 64 << 10;

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

/// How much of a window is left; none of one that is closed.
struct Window(Mutex<Option<usize>>, Condvar);

impl Window {
    fn give(&self, count: usize) {
        if let Some(left) = &mut *self.0.lock().unwrap() {
            *left += count;
        }
        self.1.notify_all();
    }

    fn close(&self) {
        *self.0.lock().unwrap() = None;
        self.1.notify_all();
    }

    fn is_closed(&self) -> bool {
        self.0.lock().unwrap().is_none()
    }

    /// Waits for room, and takes at most so much of it.
    fn take(&self, most: usize) -> Option<usize> {
        let mut left = self.0.lock().unwrap();
        while *left == Some(0) {
            left = self.1.wait(left).unwrap();
        }
        let count = (*left)?.min(most);
        *left = left.map(|left| left - count);
        Some(count)
    }
}

/// One end's part of a connection.
struct Line {
    stream: Raw,
    window: Arc<Window>,
    /// Until the other end has said that nothing more comes.
    content: Option<Sender<Vec<u8>>>,
}

/// The connections of one end, and the way to the other.
struct Lines<W> {
    pipe: Mutex<W>,
    open: Mutex<HashMap<u32, Line>>,
    /// What the other end is told where nobody takes what it sends.
    untaken: u8,
}

impl<W: Write + Send + 'static> Lines<W> {
    fn new(pipe: W, untaken: u8) -> Arc<Self> {
        Arc::new(Self {
            pipe: Mutex::new(pipe),
            open: Mutex::default(),
            untaken,
        })
    }

    fn send(&self, number: u32, kind: u8, content: &[u8]) -> io::Result<()> {
        let mut pipe = self.pipe.lock().unwrap();
        pipe.write_all(&frame(number, kind, content))?;
        pipe.flush()
    }

    /// Takes in what comes for a stream; its own bytes are carried from [`Self::carry`] on.
    fn open(self: &Arc<Self>, number: u32, stream: Raw) {
        let (content, coming) = channel::<Vec<u8>>();
        let (lines, mut to) = (self.clone(), stream.twin());
        let line = Line {
            stream,
            window: Arc::new(Window(Mutex::new(Some(WINDOW)), Condvar::new())),
            content: Some(content),
        };
        self.open.lock().unwrap().insert(number, line);
        std::thread::spawn(move || {
            for content in coming {
                let kind = match to.write_all(&content) {
                    Ok(()) => TAKEN,
                    Err(_) => lines.untaken,
                };
                let count = u32::try_from(content.len()).unwrap();
                // At the very end the sandbox is gone before this thread.
                if lines.send(number, kind, &count.to_be_bytes()).is_err() {
                    return;
                }
            }
            to.finish();
        });
    }

    /// Carries what a stream gives to the other end.
    fn carry(self: &Arc<Self>, number: u32) {
        let lines = self.clone();
        let (mut from, window) = {
            let open = self.open.lock().unwrap();
            (open[&number].stream.twin(), open[&number].window.clone())
        };
        std::thread::spawn(move || {
            let mut buffer = [0; 16384];
            while let Some(most) = window.take(buffer.len()) {
                let count = from.read(&mut buffer[..most]).unwrap_or(0);
                window.give(most - count);
                if count == 0 || lines.send(number, DATA, &buffer[..count]).is_err() {
                    break;
                }
            }
            window.close();
            let _ = lines.send(number, ENDED, b"");
            lines.forget(number);
        });
    }

    /// Does what a frame says; whether it was one of an open connection.
    fn take(&self, number: u32, kind: u8, content: &[u8]) -> bool {
        let mut open = self.open.lock().unwrap();
        let Some(line) = open.get_mut(&number) else {
            return false;
        };
        match kind {
            DATA => drop(line.content.as_ref().map(|to| to.send(content.to_vec()))),
            TAKEN => line
                .window
                .give(u32::from_be_bytes(content.try_into().unwrap()) as usize),
            ENDED => line.content = None,
            CLOSED => {
                line.window.close();
                line.content = None;
                line.stream.close();
            }
            _ => return false,
        }
        drop(open);
        self.forget(number);
        true
    }

    /// Forgets a connection both directions of which are over.
    fn forget(&self, number: u32) {
        let mut open = self.open.lock().unwrap();
        let is_over = |line: &Line| line.content.is_none() && line.window.is_closed();
        if open.get(&number).is_some_and(is_over) {
            open.remove(&number);
        }
    }
}

fn connect(to: &str) -> io::Result<TcpStream> {
    let all: Vec<_> = to.to_socket_addrs()?.collect();
    let first = all.iter().find(|one| one.is_ipv4()).or(all.first());
    let first = first.ok_or(io::ErrorKind::NotFound)?;
    let stream = TcpStream::connect_timeout(first, Duration::from_secs(2))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn ask(to: &str, question: &[u8]) -> io::Result<Vec<u8>> {
    let local = if to.starts_with('[') {
        "[::]:0"
    } else {
        "0.0.0.0:0"
    };
    let socket = UdpSocket::bind(local)?;
    socket.set_read_timeout(Some(Duration::from_millis(700)))?;
    socket.send_to(question, to)?;
    let mut buffer = [0; 4096];
    let length = socket.recv(&mut buffer)?;
    Ok(buffer[..length].to_vec())
}

/// Role: the program that the sandbox runs.
pub fn run() -> ExitCode {
    // What the gateway does not take is dropped: the end of its answer is told by the reader.
    let lines = Lines::new(io::stdout(), TAKEN);
    let environment: String = std::env::vars()
        .map(|(name, value)| format!("{name}={value}\n"))
        .collect();
    lines.send(0, ENVIRONMENT, environment.as_bytes()).unwrap();
    let mut input = io::stdin().lock();
    while let Some((number, kind, content)) = read(&mut input) {
        match kind {
            OPEN => match connect(std::str::from_utf8(&content).unwrap()) {
                Ok(stream) => {
                    lines.open(number, Raw::Tcp(stream));
                    lines.send(number, OPENED, b"").unwrap();
                    lines.carry(number);
                }
                Err(error) => lines
                    .send(number, CLOSED, error.to_string().as_bytes())
                    .unwrap(),
            },
            UDP => {
                let split = content.iter().position(|byte| *byte == b' ').unwrap();
                let lines = lines.clone();
                std::thread::spawn(move || {
                    let to = std::str::from_utf8(&content[..split]).unwrap();
                    match ask(to, &content[split + 1..]) {
                        Ok(answer) => lines.send(number, DATA, &answer).unwrap(),
                        Err(error) => lines
                            .send(number, CLOSED, error.to_string().as_bytes())
                            .unwrap(),
                    }
                });
            }
            // Where it is not open, it is over by now.
            _ => drop(lines.take(number, kind, &content)),
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
    lines: Arc<Lines<ChildStdin>>,
    waiting: Arc<Mutex<HashMap<u32, Sender<Back>>>>,
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
        // A test that has dropped its end is a client that has closed.
        let lines = Lines::new(input, CLOSED);
        let (told, carried) = (waiting.clone(), lines.clone());
        std::thread::spawn(move || {
            while let Some((number, kind, content)) = read(&mut output) {
                if let Some(sender) = told.lock().unwrap().remove(&number) {
                    let _ = sender.send(match kind {
                        OPENED => Back::Opened,
                        DATA => Back::Data(content),
                        _ => Back::Closed(String::from_utf8_lossy(&content).into_owned()),
                    });
                } else {
                    carried.take(number, kind, &content);
                }
            }
        });
        Some(Self {
            lines,
            waiting,
            next: Mutex::new(1),
            environment,
            environment_bytes,
        })
    }

    fn number(&self) -> (u32, Receiver<Back>) {
        let mut next = self.next.lock().unwrap();
        *next += 1;
        let (sender, receiver) = channel();
        self.waiting.lock().unwrap().insert(*next, sender);
        (*next, receiver)
    }

    /// Connects from inside to `host:port`.
    pub fn connect(&self, to: &str) -> Result<UnixStream, String> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (number, receiver) = self.number();
        // Known before it is asked for: its first bytes may come at once.
        self.lines.open(number, Raw::Relay(theirs));
        self.lines.send(number, OPEN, to.as_bytes()).unwrap();
        match receiver.recv_timeout(Duration::from_secs(8)) {
            Ok(Back::Opened) => {
                self.lines.carry(number);
                Ok(ours)
            }
            other => {
                self.lines.take(number, CLOSED, b"");
                Err(match other {
                    Ok(Back::Closed(why)) => why,
                    _ => "the relay did not answer".to_owned(),
                })
            }
        }
    }

    /// Sends one datagram from inside, and gives what comes back.
    pub fn datagram(&self, to: &str, content: &[u8]) -> Result<Vec<u8>, String> {
        let (number, receiver) = self.number();
        let question = [to.as_bytes(), b" ", content].concat();
        self.lines.send(number, UDP, &question).unwrap();
        match receiver.recv_timeout(Duration::from_secs(3)) {
            Ok(Back::Data(answer)) => Ok(answer),
            Ok(Back::Closed(why)) => Err(why),
            _ => Err("nothing".to_owned()),
        }
    }
}
