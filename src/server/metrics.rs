//! Counts what the gateway does, for `/metrics`. Every count is one relaxed addition.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gateway_intercept::dns::DnsVerdict;
use gateway_intercept::{Entry, leaves_minted};
use http::Version;

/// The counts of one process.
#[derive(Default)]
pub struct Metrics {
    exchanges: [[[AtomicU64; 2]; PROTOCOLS.len()]; Entry::ALL.len()],
    names: [AtomicU64; DnsVerdict::ALL.len()],
    reloads: [AtomicU64; 2],
    bytes: [AtomicU64; 2],
    /// The gateway's own part of the time to a response.
    pub own: Histogram,
    /// The origin's part: to connect, and to respond.
    pub origin: Histogram,
}

/// Counts of durations, by length.
#[derive(Default)]
pub struct Histogram {
    counts: [AtomicU64; BUCKETS.len() + 1],
    microseconds: AtomicU64,
}

/// The content of a histogram.
pub struct Distribution {
    /// The bounds, and how many durations were at most that long.
    pub buckets: Vec<(f64, u64)>,
    /// How many there were.
    pub count: u64,
    /// Their sum, in seconds.
    pub sum: f64,
}

impl Metrics {
    /// Counts an exchange that was answered by the origin, or refused.
    pub(super) fn exchange(&self, entry: Entry, version: Version, answered: bool) {
        let protocol = usize::from(version == Version::HTTP_2);
        add(&self.exchanges[entry as usize][protocol][usize::from(answered)]);
    }

    /// Counts an answered DNS query of a sandbox.
    pub(super) fn name(&self, verdict: DnsVerdict) {
        add(&self.names[verdict as usize]);
    }

    /// Counts the content of an exchange, when it ends.
    pub(super) fn bytes(&self, up: u64, down: u64) {
        for (counter, bytes) in self.bytes.iter().zip([up, down]) {
            counter.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts a reload, and whether it was applied.
    pub fn reload(&self, applied: bool) {
        add(&self.reloads[usize::from(applied)]);
    }

    /// Returns exchanges: how the client connected, its protocol, whether answered, and how many.
    pub fn exchanges(&self) -> impl Iterator<Item = (&'static str, &'static str, bool, u64)> {
        Entry::ALL.into_iter().flat_map(move |entry| {
            let of_entry = PROTOCOLS.iter().zip(&self.exchanges[entry as usize]);
            of_entry.flat_map(move |(protocol, counts)| {
                let named = move |answered: bool| {
                    let count = read(&counts[usize::from(answered)]);
                    (entry.as_str(), *protocol, answered, count)
                };
                [named(true), named(false)]
            })
        })
    }

    /// Returns DNS queries of sandboxes: the verdict, how many.
    pub fn names(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = DnsVerdict::ALL.into_iter();
        all.map(|verdict| (verdict.as_str(), read(&self.names[verdict as usize])))
    }

    /// Returns how many leaf certificates were minted.
    #[must_use]
    pub fn leaves(&self) -> u64 {
        leaves_minted()
    }

    /// Returns how many reloads were refused, and how many were applied.
    #[must_use]
    pub fn reloads(&self) -> [u64; 2] {
        self.reloads.each_ref().map(read)
    }

    /// Returns the bytes of content to origins and to clients.
    #[must_use]
    pub fn content(&self) -> [u64; 2] {
        self.bytes.each_ref().map(read)
    }
}

impl Histogram {
    pub(super) fn observe(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = BUCKETS.partition_point(|bound| *bound < micros);
        add(&self.counts[bucket]);
        self.microseconds.fetch_add(micros, Ordering::Relaxed);
    }

    /// Returns the current content of the histogram.
    #[must_use]
    pub fn read(&self) -> Distribution {
        let mut count = 0;
        let mut cumulative = self.counts.iter().map(|bucket| {
            count += read(bucket);
            count
        });
        let seconds = |micros: u64| micros as f64 / 1e6;
        let buckets = BUCKETS
            .iter()
            .map(|bound| seconds(*bound))
            .zip(cumulative.by_ref())
            .collect();
        Distribution {
            buckets,
            count: cumulative.next().unwrap_or_default(),
            sum: seconds(read(&self.microseconds)),
        }
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// The protocols of clients, in the order of the counters.
const PROTOCOLS: [&str; 2] = ["http/1.1", "h2"];

/// The bounds of the histograms, in microseconds.
const BUCKETS: [u64; 13] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000, 5_000_000,
    30_000_000,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_each_duration_under_every_bound_that_holds_it() {
        let histogram = Histogram::default();
        for micros in [50, 51, 1_000, 40_000_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        let read = histogram.read();
        let under = |bound: f64| read.buckets.iter().find(|(at, _)| *at == bound).unwrap().1;
        assert_eq!((under(0.000_05), under(0.000_1), under(0.001)), (1, 2, 3));
        assert_eq!((under(30.0), read.count), (3, 4));
        assert!((read.sum - 40.001_101).abs() < 1e-9);
    }
}
