//! A sampled look-up of blocks.
//!
//! What is looked for is long, so a block of it stands at some multiple of a stride that is nearly
//! as long as the shortest. Only those blocks are looked at: a filter of bits says of most that
//! they are in no form, a sorted list says of the rest in which and where. Cost does not depend on
//! how the forms begin, nor much on how many there are.

use zeroize::Zeroizing;

/// Blocks, and where they stand. Its memory is wiped when it goes.
pub(super) struct Index {
    filter: Filter,
    /// Sorted, beside `places`: which form holds this block, and how far from its start.
    blocks: Zeroizing<Vec<u64>>,
    places: Vec<(u32, u32)>,
    width: usize,
    stride: usize,
}

/// A form and where in it blocks are taken from.
pub(super) struct Entry<'f> {
    pub(super) form: usize,
    pub(super) bytes: &'f [u8],
    /// As long, of another secret of its shape: where both are alike, all text of that spelling is.
    pub(super) others: &'f [u8],
    pub(super) within: std::ops::Range<usize>,
    /// So many bytes of it in a row hold a block that is looked at.
    pub(super) least: usize,
}

impl Entry<'_> {
    /// Where blocks stand that begin at one place of a stride, one in every least row of bytes.
    fn chosen(&self, place: usize, stride: usize, width: usize) -> Vec<usize> {
        let mut chosen = Vec::new();
        let (mut from, row) = (self.within.start, self.least - width + 1);
        while from + row + width <= self.within.end + 1 {
            let starts = (from..from + row).filter(|at| (at - self.within.start) % stride == place);
            // What is alike in every letter's spelling would be met all the time. Of the best, the
            // last is the farthest.
            let Some(best) = starts.max_by_key(|at| self.telling(*at, width)) else {
                break;
            };
            chosen.push(best);
            from = best + 1;
        }
        chosen
    }

    /// How many bytes of a block hang on the secret.
    fn telling(&self, at: usize, width: usize) -> usize {
        let (bytes, others) = (&self.bytes[at..at + width], &self.others[at..at + width]);
        bytes
            .iter()
            .zip(others)
            .filter(|(one, other)| one != other)
            .count()
    }
}

impl Index {
    /// An index by which every entry's least row of bytes is met, wherever in a text it begins.
    pub(super) fn new(entries: &[Entry<'_>]) -> Self {
        let shortest = entries.iter().map(|entry| entry.least).min();
        let shortest = shortest.unwrap_or(WIDE_FROM);
        let width = if shortest >= WIDE_FROM { WIDE } else { NARROW };
        let stride = (shortest - width + 1).min(LONGEST_STRIDE);
        let mut all = Zeroizing::new(Vec::new());
        for entry in entries {
            // Whatever stands before, the blocks that are looked at are a stride apart: so for each
            // place in the stride, every least row of bytes holds a block of that place.
            for at in (0..stride).flat_map(|place| entry.chosen(place, stride, width)) {
                let block = match width {
                    WIDE => block::<WIDE>(entry.bytes, at),
                    _ => block::<NARROW>(entry.bytes, at),
                };
                all.extend(block.map(|block| (block, entry.form as u32, at as u32)));
            }
        }
        all.sort_unstable();
        let mut filter = Filter::new(all.len());
        all.iter().for_each(|&(block, ..)| filter.add(block));
        let mut blocks = Zeroizing::new(Vec::with_capacity(all.len()));
        blocks.extend(all.iter().map(|&(block, ..)| block));
        Self {
            filter,
            blocks,
            places: all.iter().map(|&(_, form, at)| (form, at)).collect(),
            width,
            stride,
        }
    }

    /// Every form that holds a block of the text: where the block stands in the text, which form,
    /// and where in it.
    pub(super) fn each(&self, text: &[u8], mut hit: impl FnMut(usize, usize, usize)) {
        match self.width {
            WIDE => self.run::<WIDE>(text, &mut hit),
            _ => self.run::<NARROW>(text, &mut hit),
        }
    }

    fn run<const WIDTH: usize>(&self, text: &[u8], hit: &mut impl FnMut(usize, usize, usize)) {
        let mut at = 0;
        while let Some(block) = block::<WIDTH>(text, at) {
            if self.filter.may_hold(block) {
                self.look_up(block, at, hit);
            }
            at += self.stride;
        }
    }

    #[cold]
    fn look_up(&self, block: u64, at: usize, hit: &mut impl FnMut(usize, usize, usize)) {
        let first = self.blocks.partition_point(|&known| known < block);
        let same = self.blocks[first..]
            .iter()
            .take_while(|&&known| known == block);
        for (_, &(form, offset)) in same.zip(&self.places[first..]) {
            hit(at, form as usize, offset as usize);
        }
    }
}

/// The block at an offset, if it is whole.
#[inline(always)]
fn block<const WIDTH: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut block = [0; 8];
    block[..WIDTH].copy_from_slice(bytes.get(at..)?.get(..WIDTH)?);
    Some(u64::from_le_bytes(block))
}

/// A set of blocks that may err by holding more: one bit a block, 64 bits of room for each.
struct Filter {
    words: Zeroizing<Vec<u64>>,
    shift: u32,
}

impl Filter {
    fn new(entries: usize) -> Self {
        let words = entries.next_power_of_two().clamp(LEAST_WORDS, MOST_WORDS);
        Self {
            words: Zeroizing::new(vec![0; words]),
            shift: u64::BITS - words.trailing_zeros(),
        }
    }

    fn add(&mut self, block: u64) {
        let (word, bit) = self.slot(block);
        self.words[word] |= bit;
    }

    #[inline(always)]
    fn may_hold(&self, block: u64) -> bool {
        let (word, bit) = self.slot(block);
        self.words[word] & bit != 0
    }

    /// Word and bit: the high bits of a product, into which all bits of the block flow.
    #[inline(always)]
    fn slot(&self, block: u64) -> (usize, u64) {
        let product = block.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((product >> self.shift) as usize, 1 << (product >> 42 & 63))
    }
}

/// 8 KiB: one or a few secrets, well inside the first cache.
const LEAST_WORDS: usize = 1 << 10;

/// 512 KiB: hundreds of secrets.
const MOST_WORDS: usize = 1 << 16;

const WIDE: usize = 8;
const NARROW: usize = 4;

/// From which length on blocks are of 8 bytes, which chance and common words hit less; else of 4.
const WIDE_FROM: usize = 20;

/// A longer stride gains nothing: every cache line is touched anyway.
const LONGEST_STRIDE: usize = 64;

#[cfg(test)]
mod tests {
    use crate::credential::echo::forms;
    use crate::credential::part::Part;
    use crate::credential::scrub::Echoes;

    /// What writers put around each letter stands in every letter's spelling, and is no reason to
    /// look further.
    #[test]
    fn text_in_escapes_is_looked_up_seldom() {
        let (secret, phantom) = (
            b"ghp_A1b2C3d4E5f6G7h8I9j0K1l2",
            b"ghp_Z9y8X7w6V5u4T3s2R1q0P9o8",
        );
        let part = Part::of(secret, phantom);
        let forms = forms(secret, phantom, part.as_ref()).unwrap();
        let (whole, pieces) = Echoes::indices(&forms);
        for (before, after) in [
            ("\\u00", ""),
            ("&#x", ";"),
            ("\\x", ""),
            ("%", ""),
            ("", ", 0x"),
        ] {
            let text: String = (0..4096_u32)
                .map(|at| format!("{before}{:02x}{after}", b'G' + (at * 7 % 50) as u8))
                .collect();
            for index in [&whole].into_iter().chain(&pieces) {
                let mut hits = 0;
                index.each(text.as_bytes(), |_, _, _| hits += 1);
                assert!(
                    hits < 2 * 4096,
                    "{before}..{after}: {hits} hits in 4096 letters"
                );
            }
        }
    }
}
