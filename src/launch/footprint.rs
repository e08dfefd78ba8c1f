//! Gives back the memory that only a start needs.
//!
//! Reading policies, presets and configuration touches most of the program's code, and serving
//! little of it. The pages are the file's own and stay in the system's cache; they only stop
//! counting as this process's, until it uses one again.

use std::ops::Range;

use super::syscall;

/// Unmaps the program's code and constants until they are used again, and returns free heap to the
/// system.
///
/// A convenience: where it cannot be done, the process is as large as before.
pub fn shed() {
    let here = shed as *const () as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for range in unwritten(&maps, here) {
        syscall::forget(range);
    }
    syscall::trim_heap();
}

/// The mappings that are of the file whose code is at `here`, and never written to: that code, and
/// what lies below it.
///
/// What lies above it is left alone: there the loader has written addresses, which would be lost.
fn unwritten(maps: &str, here: usize) -> Vec<Range<usize>> {
    let lines: Vec<Mapping<'_>> = maps.lines().filter_map(Mapping::parse).collect();
    let Some(code) = lines
        .iter()
        .find(|line| line.range.contains(&here) && line.access == "r-xp")
    else {
        return Vec::new();
    };
    let of_file = lines
        .iter()
        .filter(|line| line.file == code.file && line.range.end <= code.range.start);
    let constants = of_file.filter(|line| line.access == "r--p");
    constants
        .chain([code])
        .map(|line| line.range.clone())
        .collect()
}

/// A line of `/proc/self/maps` (proc_pid_maps(5)).
struct Mapping<'a> {
    range: Range<usize>,
    access: &'a str,
    /// Device and inode.
    file: (&'a str, &'a str),
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        let access = words.next()?;
        let _offset = words.next()?;
        let file = (words.next()?, words.next()?);
        // Inode 0: memory that is of no file.
        (file.1 != "0").then_some(())?;
        Some(Self {
            range: address(start)?..address(end)?,
            access,
            file,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
5000-6000 r--p 00000000 fe:00 7 /usr/bin/gateway
6000-9000 r-xp 00001000 fe:00 7 /usr/bin/gateway
9000-a000 r--p 00004000 fe:00 7 /usr/bin/gateway
a000-b000 rw-p 00005000 fe:00 7 /usr/bin/gateway
b000-c000 rw-p 00000000 00:00 0 [heap]
c000-d000 r--p 00000000 fe:00 8 /lib/libc.so.6
d000-e000 r-xp 00001000 fe:00 8 /lib/libc.so.6
e000-f000 r-xp 00000000 00:00 0 [vdso]
";

    #[test]
    fn only_what_is_never_written_is_given_back() {
        assert_eq!(unwritten(MAPS, 0x6800), [0x5000..0x6000, 0x6000..0x9000]);
        assert_eq!(unwritten(MAPS, 0xd000), [0xc000..0xd000, 0xd000..0xe000]);
        for nowhere in [0x5800, 0x9800, 0xa800, 0xe800, 0x1] {
            assert!(unwritten(MAPS, nowhere).is_empty(), "{nowhere:x}");
        }
        assert!(unwritten("", 0x6800).is_empty());
    }

    #[test]
    fn the_program_goes_on_and_is_smaller() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!unwritten(&maps, shed as *const () as usize).is_empty());
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("Rss:"))
                .unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        // Other tests run beside this one and need pages meanwhile: it must be seen once in a
        // while, not each time.
        let smaller = (0..100).any(|_| {
            let before = resident();
            shed();
            resident() < before
        });
        assert!(smaller);
    }
}
