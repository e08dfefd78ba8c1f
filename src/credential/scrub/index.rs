//! A sampled look-up of blocks.
//!
//! What is looked for is long, so a block of it stands at some multiple of a stride that is nearly as long as the shortest. Only
//! those blocks are looked at: a filter of bits says of most that they are in no form, a sorted list says of the rest in
//! which and where. Cost does not depend on how the forms begin, nor much on how many there are.

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
    pub(super) within: std::ops::Range<usize>,
    /// So many bytes of it in a row hold a block that is looked at.
    pub(super) least: usize,
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
            // As many blocks in a row as the stride is long, again and again: one of each row is looked at, whatever stands before,
            // and the least row of bytes holds one such row.
            let starts = entry
                .within
                .clone()
                .take((entry.within.len() + 1).saturating_sub(width));
            let period = match entry.within.len() == entry.least {
                // Found as a whole alone, so the first row is enough.
                true => usize::MAX,
                false => entry.least - width + 2 - stride,
            };
            for at in starts.filter(|at| (at - entry.within.start) % period < stride) {
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

    /// Every form that holds a block of the text: where the block stands in the text, which form, and where in it.
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
        let same = self.blocks[first..].iter().take_while(|&&known| known == block);
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
