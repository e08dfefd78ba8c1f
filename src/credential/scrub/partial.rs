//! Determines how much of the received bytes could begin an incomplete echo.

use std::cmp::Reverse;

use super::form::{SecretForm, alike};

/// Recognizes a possible beginning by its shape: which bytes a form may contain, and where it has
/// punctuation.
///
/// INVARIANT: this depends only on phantoms and lengths, which the holder of the phantoms knows. If
/// it depended on a secret's own bytes, a workload could choose content, watch which of its ends
/// arrive late, and learn the secret byte by byte.
#[derive(PartialEq, Eq)]
pub(super) struct PartialMatcher {
    /// The shape of each form: its stand-in with every letter and digit replaced by one letter.
    shapes: Vec<Box<[u8]>>,
    /// Which bytes an unseparated form may contain.
    usual: [bool; 256],
    /// The length of the longest form.
    pub(super) longest: usize,
    /// Which bytes a form of any kind may contain.
    any: [bool; 256],
    /// The separators of forms in separated hex.
    between: Vec<&'static [u8]>,
    /// Which bytes those forms may contain.
    apart: [bool; 256],
    /// Sorted: a byte that base64 never contains, its offset in a form (later offsets first), and
    /// the form.
    marks: Vec<(u8, Reverse<u32>, u32)>,
}

impl PartialMatcher {
    pub(super) fn of(forms: &[SecretForm]) -> Self {
        let coded = || (0..=u8::MAX).filter(is_coded);
        let all = forms.iter().flat_map(|form| form.stand_in.iter().copied());
        let unbroken = unbroken_forms(forms).flat_map(|(_, form)| form.stand_in.iter().copied());
        let mut between: Vec<_> = forms.iter().filter_map(|form| form.between).collect();
        between.sort_unstable();
        between.dedup();
        let lengths = forms.iter().map(|form| form.stand_in.len());
        Self {
            usual: set_of(coded().chain(unbroken)),
            any: set_of(coded().chain(all)),
            apart: bytes_in_hex(&between),
            between,
            longest: lengths.max().unwrap_or(0),
            marks: marks(forms),
            shapes: forms.iter().map(|form| shape(&form.stand_in)).collect(),
        }
    }

    /// Whether a form may continue after this byte.
    pub(super) fn may_hold(&self, byte: u8) -> bool {
        self.any[usize::from(byte)]
    }

    /// Returns the length of the tail that could be the beginning of a form.
    pub(super) fn length(&self, bytes: &[u8]) -> usize {
        let unbroken = self.unbroken(bytes);
        // Most content ends with another byte.
        match bytes.last() {
            Some(last) if self.apart[usize::from(*last)] => {
                let apart = self.between.iter().map(|between| in_hex(bytes, between));
                unbroken.max(apart.max().unwrap_or(0).min(self.longest))
            }
            _ => unbroken,
        }
    }

    /// Returns the length of the tail that could begin a form without separators.
    ///
    /// Base64 can be cut after any letter, so after a letter the tail is the whole run of usual
    /// bytes. After another byte, such as the bracket that ends most JSON, it is the longest match
    /// of a form up to there.
    fn unbroken(&self, bytes: &[u8]) -> usize {
        let usual = |byte: &&u8| self.usual[usize::from(**byte)];
        let run = bytes.iter().rev().take(self.longest).take_while(usual);
        let run = run.count();
        let (_, run) = bytes.split_at(bytes.len() - run);
        match run.last() {
            Some(last) if !is_coded(last) => self.up_to_mark(run, *last),
            _ => run.len(),
        }
    }

    /// Returns how much of a run matches some form up to the mark at the end of the run.
    fn up_to_mark(&self, run: &[u8], last: u8) -> usize {
        let first = self.marks.partition_point(|(mark, ..)| *mark < last);
        let places = self.marks[first..]
            .iter()
            .take_while(|(mark, ..)| *mark == last);
        let mut steps = 0;
        for (_, Reverse(at), index) in places {
            let length = *at as usize + 1;
            let Some((_, tail)) = run.len().checked_sub(length).map(|from| run.split_at(from))
            else {
                continue;
            };
            let shape = &self.shapes[*index as usize][..length];
            let same = shape.iter().zip(tail).rev();
            let same = same.take_while(|(p, b)| alike(**p, **b));
            let same = same.count();
            if same == length {
                return length;
            }
            steps += same;
            if steps > MOST_STEPS {
                return run.len();
            }
        }
        0
    }
}

/// Returns the forms without separators, numbered. All text has spaces and colons, so separated hex
/// is recognized in another way.
fn unbroken_forms(forms: &[SecretForm]) -> impl Iterator<Item = (usize, &SecretForm)> {
    let numbered = forms.iter().enumerate();
    numbered.filter(|(_, form)| form.between.is_none())
}

fn set_of(bytes: impl Iterator<Item = u8>) -> [bool; 256] {
    let mut set = [false; 256];
    bytes.for_each(|byte| set[usize::from(byte)] = true);
    set
}

/// Returns the set of bytes that separated hex may contain.
fn bytes_in_hex(between: &[&'static [u8]]) -> [bool; 256] {
    let digits = (0..=u8::MAX).filter(|byte| byte.is_ascii_hexdigit() && !between.is_empty());
    set_of(between.iter().copied().flatten().copied().chain(digits))
}

/// Returns the bytes of forms that base64 never contains, with their offsets, sorted.
fn marks(forms: &[SecretForm]) -> Vec<(u8, Reverse<u32>, u32)> {
    let mut marks = Vec::new();
    for (index, form) in unbroken_forms(forms) {
        for (at, &byte) in form.stand_in.iter().enumerate() {
            // After the last byte of a form there is nothing to wait for.
            if !is_coded(&byte) && at + 1 < form.stand_in.len() {
                marks.push((byte, Reverse(at as u32), index as u32));
            }
        }
    }
    marks.sort_unstable();
    marks
}

/// Returns the length of the tail that is separated hex; its last byte may be incomplete.
fn in_hex(bytes: &[u8], between: &[u8]) -> usize {
    let is_pair = |pair: &[u8]| pair.iter().all(u8::is_ascii_hexdigit);
    let pair_before = |end: usize| {
        let start = end.checked_sub(2)?;
        is_pair(&bytes[start..end]).then_some(start)
    };
    // Pairs and separators, backwards from an end.
    let pairs = |mut end: usize| {
        while let Some(start) = bytes[..end]
            .strip_suffix(between)
            .and_then(|rest| pair_before(rest.len()))
        {
            end = start;
        }
        bytes.len() - end
    };
    let digits = bytes.iter().rev().take(2);
    let digits = digits.take_while(|byte| byte.is_ascii_hexdigit()).count();
    let cut_in_a_pair = (0..=digits).map(|digits| match pairs(bytes.len() - digits) {
        alone if alone == digits => 0,
        more => more,
    });
    let cut_between = (1..between.len()).filter_map(|shown| {
        let rest = bytes.strip_suffix(&between[..shown])?;
        Some(pairs(pair_before(rest.len())?))
    });
    cut_in_a_pair.chain(cut_between).max().unwrap_or(0)
}

/// Returns the shape that recognizes a beginning: any letter or digit may stand for any other.
fn shape(stand_in: &[u8]) -> Box<[u8]> {
    let letter = |byte: &u8| {
        if byte.is_ascii_alphanumeric() {
            b'a'
        } else {
            *byte
        }
    };
    stand_in.iter().map(letter).collect()
}

/// Whether base64 or base64url may contain the byte.
fn is_coded(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/-_".contains(byte)
}

/// The most bytes that are compared; if more were needed, the whole run is held back.
const MOST_STEPS: usize = 4096;
