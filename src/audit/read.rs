//! Reads the records of a log: the existing ones, and new ones as they are written.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::chain::{ChainHead, MAX_LINE_BYTES, unseal};
use super::error::Error;
use super::file::files;
use super::private::opening;
use super::record::Record;
use super::scan::{Lines, find_in, open, scan};

/// Passes each record of the files to `each`, in their order. Skips lines that do not match their
/// hash: [`super::verify()`] reports those.
///
/// # Errors
/// [`Error::Open`] for the first file that cannot be read.
pub fn read(paths: &[PathBuf], mut each: impl FnMut(Record)) -> Result<(), Error> {
    for path in paths {
        find_in(path, |piece| -> Option<()> {
            piece.record().map(&mut each);
            None
        })?;
    }
    Ok(())
}

/// Follows a log that another handle writes, also into the files after a rotation.
pub struct Follower {
    path: PathBuf,
    file: File,
    /// The beginning of a line whose end is not written yet.
    part: Vec<u8>,
    /// The number of the last record that was read.
    last: Option<u64>,
}

impl Follower {
    /// Follows the log from its end: the next record is the first that is read.
    ///
    /// # Errors
    /// [`Error::Open`] if the file cannot be read.
    pub fn at_end(path: &Path) -> Result<Self, Error> {
        let mut file = open(path)?;
        file.seek(SeekFrom::End(0)).map_err(opening(path))?;
        Ok(Self::of(path, file, None))
    }

    fn of(path: &Path, file: File, last: Option<u64>) -> Self {
        Self {
            path: path.to_owned(),
            file,
            part: Vec::new(),
            last,
        }
    }

    /// Follows the log from its first record that is still there.
    ///
    /// # Errors
    /// [`Error::Open`] if a file cannot be read.
    pub fn at_start(path: &Path) -> Result<Self, Error> {
        steady(path, |all| {
            let file = open(all.first().map_or(path, PathBuf::as_path))?;
            Ok(Self::of(path, file, None))
        })
    }

    /// Follows the log from after this record; `None` if the log does not have it. A log that has
    /// another record of the same number is another log.
    ///
    /// # Errors
    /// [`Error::Open`] if a file cannot be read.
    pub fn behind(path: &Path, head: ChainHead) -> Result<Option<Self>, Error> {
        steady(path, |all| {
            for one in all.iter().rev() {
                let mut file = open(one)?;
                let found = scan(&file).map_err(opening(one))?;
                if found.first_seq.is_none_or(|first| first > head.seq) {
                    continue;
                }
                let end = end_of(&file, head).map_err(opening(one))?;
                let Some(end) = end else { break };
                file.seek(SeekFrom::Start(end)).map_err(opening(one))?;
                return Ok(Some(Self::of(path, file, Some(head.seq))));
            }
            Ok(None)
        })
    }

    /// Returns the records that were written since the last call, one a line; empty if there are
    /// none. A call returns about 64 KiB at most.
    ///
    /// # Errors
    /// The I/O error if a file cannot be read.
    pub fn next_lines(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let lines = self.next_whole_lines()?;
            let mut records = Vec::with_capacity(lines.len());
            for line in lines.split_inclusive(|byte| *byte == b'\n') {
                if let Ok(link) = unseal(line) {
                    self.last = Some(link.head.seq);
                    records.extend_from_slice(line);
                }
            }
            if lines.is_empty() || !records.is_empty() {
                return Ok(records);
            }
        }
    }

    /// Returns nothing only if nothing more is written.
    fn next_whole_lines(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let turned = self.has_turned();
            let mut read = self.fill()?;
            if read == 0 && turned {
                self.turn()?;
                read = self.fill()?;
            }
            let lines = self.whole_lines();
            if read == 0 || !lines.is_empty() {
                return Ok(lines);
            }
        }
    }

    fn whole_lines(&mut self) -> Vec<u8> {
        let whole = memchr::memrchr(b'\n', &self.part).map_or(0, |at| at + 1);
        let rest = self.part.split_off(whole);
        let lines = std::mem::replace(&mut self.part, rest);
        if self.part.len() > MAX_LINE_BYTES {
            self.part.clear();
        }
        lines
    }

    fn fill(&mut self) -> io::Result<usize> {
        (&self.file).take(READ_BYTES).read_to_end(&mut self.part)
    }

    /// Whether the log continues in another file; this one is then complete. An empty file at the
    /// path does not count: the log has written nothing to it.
    fn has_turned(&self) -> bool {
        let current = std::fs::metadata(&self.path);
        current.is_ok_and(|about| about.len() > 0 && Some(about.ino()) != inode(&self.file))
    }

    /// Continues with the next file. The current one may have been removed or moved.
    fn turn(&mut self) -> io::Result<()> {
        let of_this = inode(&self.file);
        let following = steady(&self.path, |all| {
            let this = all.iter().position(|path| {
                let about = std::fs::metadata(path).map(|about| about.ino());
                about.ok() == of_this
            });
            let next = match this {
                Some(this) => all.get(this + 1),
                None => all.iter().find(|path| first_of(path) > self.last),
            };
            open(next.unwrap_or(&self.path))
        });
        self.file = following.map_err(io::Error::other)?;
        self.part.clear();
        Ok(())
    }
}

/// Runs `find` on the files of a log, and again if they changed meanwhile.
pub(super) fn steady<T, E: From<Error>>(
    path: &Path,
    find: impl Fn(&[PathBuf]) -> Result<T, E>,
) -> Result<T, E> {
    let mut all = files(path)?;
    for _ in 0..MOST_CHANGES {
        let found = find(&all);
        let now = files(path)?;
        if now == all {
            return found;
        }
        all = now;
    }
    find(&all)
}

/// The number of the first record of a full file, by its name.
fn first_of(path: &Path) -> Option<u64> {
    path.extension()?.to_str()?.parse().ok()
}

/// Where a record of a file ends; `None` if the file does not have it.
fn end_of(mut file: &File, head: ChainHead) -> io::Result<Option<u64>> {
    file.rewind()?;
    // Only lines with the hash's digits are hashed.
    let digits = memchr::memmem::Finder::new(head.hash());
    Lines::new(file).find(|piece| {
        digits.find(piece.bytes)?;
        (piece.link()?.head == head).then(|| piece.offset + piece.bytes.len() as u64)
    })
}

/// How often the files of a log may change during one search.
const MOST_CHANGES: usize = 8;

fn inode(file: &File) -> Option<u64> {
    file.metadata().ok().map(|about| about.ino())
}

const READ_BYTES: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt as _;

    use super::*;
    use crate::{Event, Log, Settings};

    fn event(log: &Log, subject: &str) {
        log.event(Event {
            name: "dns_refused",
            session: None,
            subject: subject.as_bytes(),
            reason: None,
            count: 1,
        })
        .unwrap();
    }

    fn subjects(lines: &[u8]) -> Vec<String> {
        let lines = lines.split(|byte| *byte == b'\n');
        let records = lines.filter_map(|line| serde_json::from_slice::<Record>(line).ok());
        let subjects = records.filter_map(|record| record.subject);
        subjects.map(|subject| subject.to_string()).collect()
    }

    /// A log that turns to another file after each 64 KiB.
    fn rotating(folder: &Path) -> Settings {
        Settings {
            rotate_bytes: 64 << 10,
            ..Settings::at(&folder.join("a.jsonl"))
        }
    }

    #[test]
    fn a_follower_begins_behind_a_record_and_in_no_other_log() {
        let folder = tempfile::tempdir().unwrap();
        let log_at = |name: &str| {
            let settings = rotating(&folder.path().join(name));
            (Log::open(&settings).unwrap(), settings.path)
        };
        let ((one, path), (other, elsewhere)) = (log_at("one"), log_at("other"));
        let mut heads = Vec::new();
        for number in 0..1_000 {
            event(&one, &number.to_string());
            event(&other, &number.to_string());
            heads.push(one.head().unwrap());
        }
        assert!(files(&path).unwrap().len() > 2);
        for at in [0, 1, 499, 998] {
            let mut follower = Follower::behind(&path, heads[at]).unwrap().unwrap();
            let lines = follower.next_lines().unwrap();
            let next = subjects(&lines).into_iter().next();
            // The last record of a file is followed by those of the next one.
            assert_eq!(next, Some((at + 1).to_string()));
            assert!(Follower::behind(&elsewhere, heads[at]).unwrap().is_none());
        }
        let mut all = Follower::at_start(&path).unwrap();
        assert_eq!(subjects(&all.next_lines().unwrap())[0], "0");
    }

    fn drained(follower: &mut Follower) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let lines = follower.next_lines().unwrap();
            if lines.is_empty() {
                return all;
            }
            all.extend(subjects(&lines));
        }
    }

    #[test]
    fn a_follower_misses_no_file_behind_one_that_was_removed() {
        let folder = tempfile::tempdir().unwrap();
        let settings = rotating(&folder.path().join("log"));
        let log = Log::open(&settings).unwrap();
        event(&log, "first");
        let mut follower = Follower::at_start(&settings.path).unwrap();
        assert_eq!(drained(&mut follower), ["first"]);
        for number in 0..2_000 {
            event(&log, &number.to_string());
        }
        let all = files(&settings.path).unwrap();
        assert!(all.len() > 3);
        std::fs::remove_file(&all[0]).unwrap();
        let wanted: Vec<String> = (0..2_000).map(|number| number.to_string()).collect();
        assert_eq!(drained(&mut follower), wanted);
    }

    #[test]
    fn a_follower_waits_until_the_log_goes_on_in_an_empty_file() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings::at(&folder.path().join("log/a.jsonl"));
        let log = Log::open(&settings).unwrap();
        event(&log, "first");
        let mut follower = Follower::at_start(&settings.path).unwrap();
        std::fs::rename(&settings.path, folder.path().join("moved")).unwrap();
        let empty = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&settings.path);
        empty.unwrap();
        assert_eq!(drained(&mut follower), ["first"]);
        event(&log, "second");
        assert_eq!(drained(&mut follower), ["second"]);
    }

    #[test]
    fn a_follower_reads_each_record_once_over_rotations() {
        let folder = tempfile::tempdir().unwrap();
        let settings = rotating(&folder.path().join("log"));
        let log = Log::open(&settings).unwrap();
        event(&log, "before");
        let mut follower = Follower::at_end(&settings.path).unwrap();
        let mut seen = Vec::new();
        for number in 0..2_000 {
            event(&log, &number.to_string());
            if number % 7 == 0 {
                seen.extend(subjects(&follower.next_lines().unwrap()));
            }
        }
        loop {
            let lines = follower.next_lines().unwrap();
            if lines.is_empty() && !follower.has_turned() {
                break;
            }
            seen.extend(subjects(&lines));
        }
        let wanted: Vec<String> = (0..2_000).map(|number| number.to_string()).collect();
        assert_eq!(seen, wanted);
        let all = files(&settings.path).unwrap();
        assert!(all.len() > 3);
        let mut read_again = Vec::new();
        let subject = |record: Record| record.subject.map(|subject| subject.to_string());
        read(&all, |record| read_again.extend(subject(record))).unwrap();
        assert_eq!(read_again[0], "before");
        assert_eq!(read_again[1..], wanted);
    }
}
