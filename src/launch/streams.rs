//! Standard streams that are files of the host: the command gets pipes, and the launcher copies.
//!
//! A file descriptor grants more than the user intended. `/proc/self/fd/1` reopens the file for
//! reading or writing on the host's own mount, whatever it was opened for. Anyone who shares the
//! descriptor can also seek and truncate. So the command gets no file and no disk of the host as a
//! stream. Terminals, pipes, sockets and devices pass unchanged. Copying from a pipe would take
//! data that the reader leaves to others.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FileType, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Gid, Uid};

use super::failure::{AtStep, Failure, Step};
use super::identity::User;

/// The streams to copy, and the command's ends.
#[derive(Debug)]
pub struct Streams {
    user: User,
    input: Option<Input>,
    outputs: Vec<Output>,
    ends: Vec<End>,
    buffer: Vec<u8>,
}

/// The command's end of a pipe, and the streams that use it.
#[derive(Debug)]
struct End {
    pipe: OwnedFd,
    becomes: Vec<Stream>,
}

/// One of the three streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Number 0.
    Input,
    /// Number 1.
    Output,
    /// Number 2.
    Error,
}

impl std::fmt::Display for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Input => "standard input",
            Self::Output => "standard output",
            Self::Error => "standard error",
        })
    }
}

/// The command ran, but its output in the file is incomplete.
#[derive(Debug, thiserror::Error)]
#[error("{stream} cannot be written")]
pub struct LostOutput {
    stream: Stream,
    source: std::io::Error,
}

/// A file that the command reads. Others share its offset. At the end, the offset advances by what
/// the command read.
#[derive(Debug)]
struct Input {
    begin: u64,
    read: u64,
    pending: Vec<u8>,
    /// `None` once everything has been written.
    pipe: Option<OwnedFd>,
    /// A copy of the command's end, to find the unread rest at the end.
    rest: OwnedFd,
}

/// A file that the command writes.
#[derive(Debug)]
struct Output {
    stream: Stream,
    /// `None` once nothing more arrives, or can be written.
    pipe: Option<OwnedFd>,
    lost: Option<Errno>,
}

impl Streams {
    /// Checks the streams of this process, and creates a pipe for each that is a file. The pipes
    /// belong to the command's user, who may open `/dev/stdout`.
    ///
    /// # Errors
    /// A [`Step::Prepare`] failure that names the stream.
    pub fn open(user: User) -> Result<Self, Failure> {
        let mut streams = Self {
            user,
            input: None,
            outputs: Vec::new(),
            ends: Vec::new(),
            buffer: vec![0; BUFFER],
        };
        if file_of(Stream::Input).is_some() {
            streams.feed()?;
        }
        let (output, error) = (file_of(Stream::Output), file_of(Stream::Error));
        // One pipe for both if they are one file, so that the order of writes is kept.
        let both = matches!((&output, &error), (Some(a), Some(b)) if is_same(a, b));
        if output.is_some() {
            let also = both.then_some(Stream::Error);
            streams.collect([Stream::Output].into_iter().chain(also).collect())?;
        }
        if error.is_some() && !both {
            streams.collect(vec![Stream::Error])?;
        }
        Ok(streams)
    }

    /// Makes the pipes' ends the streams of this process, which is to become the command.
    ///
    /// # Errors
    /// A [`Step::Files`] failure that names the stream.
    pub fn place(&self) -> Result<(), Failure> {
        for end in &self.ends {
            for stream in &end.becomes {
                match stream {
                    Stream::Input => rustix::stdio::dup2_stdin(&end.pipe),
                    Stream::Output => rustix::stdio::dup2_stdout(&end.pipe),
                    Stream::Error => rustix::stdio::dup2_stderr(&end.pipe),
                }
                .at(Step::Files, stream.to_string())?;
            }
        }
        Ok(())
    }

    /// Returns the command's three streams: those of this process, or pipes.
    pub fn passed(&self) -> [BorrowedFd<'_>; 3] {
        [Stream::Input, Stream::Output, Stream::Error].map(|stream| {
            let end = self.ends.iter().find(|end| end.becomes.contains(&stream));
            end.map_or_else(|| stream.file(), |end| end.pipe.as_fd())
        })
    }

    /// Closes the command's ends in this process, the one that copies.
    pub fn keep_own_ends(&mut self) {
        self.ends.clear();
    }

    /// Returns the events to wait for.
    pub fn events(&self) -> impl Iterator<Item = PollFd<'_>> {
        let input = self.input.iter().filter_map(|input| input.pipe.as_ref());
        let outputs = self.outputs.iter().filter_map(|one| one.pipe.as_ref());
        input
            .map(|pipe| PollFd::new(pipe, PollFlags::OUT))
            .chain(outputs.map(|pipe| PollFd::new(pipe, PollFlags::IN)))
    }

    /// Copies what can be copied without waiting for the command, one piece of each stream.
    pub fn copy(&mut self) {
        if let Some(input) = &mut self.input {
            input.copy(&mut self.buffer);
        }
        for output in &mut self.outputs {
            output.copy(&mut self.buffer);
        }
    }

    /// Copies the rest once the command has ended, and moves the input's offset past the bytes that
    /// were read. Processes that it left may write on: only the present content is copied.
    ///
    /// # Errors
    /// [`LostOutput`] if something could not be written.
    pub fn finish(&mut self) -> Result<(), LostOutput> {
        for output in &mut self.outputs {
            let mut left = output.waiting();
            while left > 0 {
                match output.copy(&mut self.buffer) {
                    0 => break,
                    count => left = left.saturating_sub(count as u64),
                }
            }
        }
        if let Some(input) = &self.input {
            input.move_offset();
        }
        let lost = self.outputs.iter().find_map(|output| {
            Some(LostOutput {
                stream: output.stream,
                source: output.lost?.into(),
            })
        });
        lost.map_or(Ok(()), Err)
    }

    fn feed(&mut self) -> Result<(), Failure> {
        let (end, pipe) = pipe(Stream::Input, self.user)?;
        let rest = rustix::io::fcntl_dupfd_cloexec(&end, 3)
            .at(Step::Prepare, Stream::Input.to_string())?;
        // An input without an offset, such as the kernel's message log, has no other reader either.
        let begin = rustix::fs::tell(Stream::Input.file()).unwrap_or(0);
        self.input = Some(Input {
            begin,
            read: begin,
            pending: Vec::new(),
            pipe: Some(nonblocking(pipe, Stream::Input)?),
            rest,
        });
        self.ends.push(End {
            pipe: end,
            becomes: vec![Stream::Input],
        });
        Ok(())
    }

    fn collect(&mut self, becomes: Vec<Stream>) -> Result<(), Failure> {
        let stream = becomes[0];
        let (pipe, end) = pipe(stream, self.user)?;
        self.outputs.push(Output {
            stream,
            pipe: Some(nonblocking(pipe, stream)?),
            lost: None,
        });
        self.ends.push(End { pipe: end, becomes });
        Ok(())
    }
}

impl Stream {
    fn file(self) -> BorrowedFd<'static> {
        match self {
            Self::Input => rustix::stdio::stdin(),
            Self::Output => rustix::stdio::stdout(),
            Self::Error => rustix::stdio::stderr(),
        }
    }
}

impl Input {
    /// Reads a piece of the file if none is pending, and writes as much of it as the pipe takes.
    fn copy(&mut self, buffer: &mut [u8]) {
        let Some(pipe) = &self.pipe else { return };
        if self.pending.is_empty() {
            match read_at(buffer, self.read) {
                Err(Errno::INTR) => return,
                // Ends the stream at a read error, as for a reader that stops there.
                Ok(0) | Err(_) => {
                    self.pipe = None;
                    return;
                }
                Ok(count) => self.pending.extend_from_slice(&buffer[..count]),
            }
        }
        // A full pipe takes nothing. It has a reader, if only this process.
        if let Ok(count) = rustix::io::write(pipe, &self.pending) {
            self.read += count as u64;
            self.pending.drain(..count);
        }
    }

    fn move_offset(&self) {
        let left = rustix::io::ioctl_fionread(&self.rest).unwrap_or(0);
        let taken = self.read.saturating_sub(left).max(self.begin);
        if taken > self.begin {
            // If there is no offset, no process relies on one.
            let _ = rustix::fs::seek(Stream::Input.file(), SeekFrom::Start(taken));
        }
    }
}

impl Output {
    /// Returns how many bytes wait to be copied.
    fn waiting(&self) -> u64 {
        let pipe = self.pipe.as_ref();
        pipe.map_or(0, |pipe| rustix::io::ioctl_fionread(pipe).unwrap_or(0))
    }

    /// Copies a piece; returns its length, which is 0 if there is none now.
    fn copy(&mut self, buffer: &mut [u8]) -> usize {
        let Some(pipe) = &self.pipe else { return 0 };
        match rustix::io::retry_on_intr(|| rustix::io::read(pipe, &mut *buffer)) {
            Err(Errno::AGAIN) => 0,
            Ok(0) | Err(_) => {
                self.pipe = None;
                0
            }
            Ok(count) => match write_all(self.stream.file(), &buffer[..count]) {
                Ok(()) => count,
                Err(error) => {
                    // Without a reader, the pipe itself signals the command.
                    self.pipe = None;
                    self.lost = Some(error);
                    0
                }
            },
        }
    }
}

/// Returns the status of a stream, if it is a file or a disk.
fn file_of(stream: Stream) -> Option<Stat> {
    let found = rustix::fs::fstat(stream.file()).ok()?;
    let kind = FileType::from_raw_mode(found.st_mode);
    matches!(kind, FileType::RegularFile | FileType::BlockDevice).then_some(found)
}

/// Whether output and error are one file, written in the same mode.
fn is_same(output: &Stat, error: &Stat) -> bool {
    let flags = |stream: Stream| rustix::fs::fcntl_getfl(stream.file()).ok();
    (output.st_dev, output.st_ino) == (error.st_dev, error.st_ino)
        && flags(Stream::Output) == flags(Stream::Error)
}

fn pipe(stream: Stream, user: User) -> Result<(OwnedFd, OwnedFd), Failure> {
    let (read, write) =
        rustix::pipe::pipe_with(PipeFlags::CLOEXEC).at(Step::Prepare, stream.to_string())?;
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    rustix::fs::fchown(&write, Some(uid), Some(gid)).at(Step::Prepare, stream.to_string())?;
    // A larger pipe is faster. A user with many pipes keeps the usual size.
    let _ = rustix::pipe::fcntl_setpipe_size(&write, BUFFER);
    Ok((read, write))
}

fn nonblocking(pipe: OwnedFd, stream: Stream) -> Result<OwnedFd, Failure> {
    rustix::fs::fcntl_setfl(&pipe, OFlags::NONBLOCK).at(Step::Prepare, stream.to_string())?;
    Ok(pipe)
}

fn read_at(buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    match rustix::io::pread(Stream::Input.file(), &mut *buffer, offset) {
        Err(Errno::SPIPE) => rustix::io::read(Stream::Input.file(), buffer),
        answer => answer,
    }
}

/// Writes all bytes, and continues after interruptions.
pub(super) fn write_all(file: impl AsFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(&file, bytes) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

const BUFFER: usize = 256 * 1024;
