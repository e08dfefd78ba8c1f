//! Standard error. `serve` writes it on its own thread: the reader, for example a pager or a
//! terminal, may stop reading, and workloads cause lines.

use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Writes whole lines to standard error, or leaves them to the writing thread.
pub struct StandardError;

impl Write for StandardError {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if !WAITING.push(text) {
            io::stderr().write_all(text)?;
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// While this lives, no writer waits for the reader of standard error.
pub struct BackgroundOutput(());

impl BackgroundOutput {
    /// Starts the thread.
    pub fn start() -> io::Result<Self> {
        // Not std's own handle: it would stay locked for as long as a write takes.
        let file = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        let thread = std::thread::Builder::new().name("standard-error".to_owned());
        thread.spawn(move || WAITING.write_out(file))?;
        WAITING.text.lock().is_background = true;
        Ok(Self(()))
    }
}

impl Drop for BackgroundOutput {
    /// Waits a while for unwritten lines. If the reader does not read them, later lines do not wait
    /// for it either.
    fn drop(&mut self) {
        let deadline = Instant::now() + WRITTEN_WITHIN;
        let mut text = WAITING.text.lock();
        while text.is_unwritten() {
            if WAITING.written.wait_until(&mut text, deadline).timed_out() {
                return;
            }
        }
        text.is_background = false;
    }
}

/// The queue of lines to be written.
struct LineQueue {
    text: Mutex<PendingLines>,
    filled: Condvar,
    written: Condvar,
}

struct PendingLines {
    lines: Vec<u8>,
    /// How many lines were dropped for lack of room.
    missed: u64,
    is_background: bool,
    is_being_written: bool,
}

impl PendingLines {
    fn is_unwritten(&self) -> bool {
        self.is_being_written || !self.lines.is_empty()
    }
}

impl LineQueue {
    const fn new() -> Self {
        Self {
            text: Mutex::new(PendingLines {
                lines: Vec::new(),
                missed: 0,
                is_background: false,
                is_being_written: false,
            }),
            filled: Condvar::new(),
            written: Condvar::new(),
        }
    }

    /// Queues a line; `false` if it must be written at once instead.
    fn push(&self, line: &[u8]) -> bool {
        let mut text = self.text.lock();
        if !text.is_background {
            return false;
        }
        if text.lines.len() + line.len() > MOST_BYTES {
            text.missed += 1;
            return true;
        }
        text.lines.extend_from_slice(line);
        self.filled.notify_one();
        true
    }

    fn write_out(&self, mut file: File) {
        let mut text = self.text.lock();
        loop {
            while text.lines.is_empty() {
                self.filled.wait(&mut text);
            }
            let mut lines = mem::take(&mut text.lines);
            let missed = mem::take(&mut text.missed);
            text.is_being_written = true;
            drop(text);
            if missed > 0 {
                let note = "lines are missing here, because standard error was not read";
                lines.extend_from_slice(format!("gateway: {missed} {note}\n").as_bytes());
            }
            // A reader that has gone cannot be helped.
            file.write_all(&lines).unwrap_or(());
            text = self.text.lock();
            text.is_being_written = false;
            self.written.notify_all();
        }
    }
}

static WAITING: LineQueue = LineQueue::new();

/// The largest amount that waits for a reader.
const MOST_BYTES: usize = 1 << 20;
/// How long the end waits for a reader.
const WRITTEN_WITHIN: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn lines_that_find_no_room_are_counted_and_the_others_arrive_in_order() {
        static ONE: LineQueue = LineQueue::new();
        assert!(!ONE.push(b"at once"));
        ONE.text.lock().is_background = true;
        let (reader, writer) = io::pipe().unwrap();
        let line = |nth: usize| format!("{nth:099}\n");
        let room = MOST_BYTES / line(0).len();
        for nth in 0..room + 7 {
            assert!(ONE.push(line(nth).as_bytes()));
        }
        std::thread::spawn(|| ONE.write_out(File::from(OwnedFd::from(writer))));
        let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
        for nth in 0..room {
            assert_eq!(lines.next().unwrap(), line(nth).trim_end());
        }
        assert!(lines.next().unwrap().starts_with("gateway: 7 lines"));
        assert!(ONE.push(b"again\n"));
        assert_eq!(lines.next().unwrap(), "again");
    }
}
