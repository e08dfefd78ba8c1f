//! A sampled lookup of blocks.
//!
//! Every form is long, so each occurrence contains a whole block at a multiple of a stride nearly
//! as long as the shortest form. Only those blocks of a text are read. A bit filter rejects most of
//! them; a sorted list tells which forms contain the rest, and where. The cost does not depend on
//! how the forms begin, and hardly on how many there are.

use std::ops::Range;

use zeroize::Zeroizing;

/// The blocks of all forms, and their positions. Wiped on drop.
pub(super) struct BlockIndex {
    filter: Filter,
    /// Sorted, parallel to `places`: which form contains the block, and how far from its start.
    blocks: Zeroizing<Vec<u64>>,
    places: Vec<(u32, u32)>,
    grid: Grid,
}

/// The blocks of a text that are read: those of one width, a stride apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grid {
    width: usize,
    stride: usize,
    /// Its index in [`GRIDS`].
    number: usize,
}

/// The blocks of one secret's forms, sorted: the block, the form that contains it, and its offset.
pub(super) type Blocks = Zeroizing<Vec<(u64, u32, u32)>>;

/// A form, and the range in it from which blocks are taken.
pub(super) struct IndexedForm<'f> {
    pub(super) form: usize,
    pub(super) bytes: &'f [u8],
    /// Which bytes depend on the secret. The others belong to the spelling.
    pub(super) telling: &'f [bool],
    pub(super) within: Range<usize>,
    /// Any run of this many bytes contains a block that is read.
    pub(super) least: usize,
}

impl Grid {
    /// Returns the widest grid with a block in every run of `shortest` bytes.
    pub(super) fn of(shortest: usize) -> Self {
        let fits = |&(width, stride): &(usize, usize)| width + stride - 1 <= shortest;
        let number = GRIDS.iter().position(fits).unwrap_or(GRIDS.len() - 1);
        let (width, stride) = GRIDS[number];
        Self {
            width,
            stride,
            number,
        }
    }

    /// Returns its number, below [`GRID_COUNT`].
    pub(super) fn number(self) -> usize {
        self.number
    }

    /// Returns the blocks that find every entry's shortest run, wherever it begins in a text.
    pub(super) fn blocks<'f>(self, entries: impl IntoIterator<Item = IndexedForm<'f>>) -> Blocks {
        let mut all = Zeroizing::new(Vec::new());
        for entry in entries {
            // The blocks that are read are a stride apart, with any offset. So for each offset
            // within the stride, every shortest run contains a block at that offset.
            for at in (0..self.stride).flat_map(|place| entry.chosen(place, self)) {
                let block = match self.width {
                    WIDE => block::<WIDE>(entry.bytes, at),
                    _ => block::<NARROW>(entry.bytes, at),
                };
                all.extend(block.map(|block| (block, entry.form as u32, at as u32)));
            }
        }
        all.sort_unstable();
        all
    }
}

impl IndexedForm<'_> {
    /// Picks blocks at one offset within the stride, one in every shortest run.
    fn chosen(&self, place: usize, grid: Grid) -> Vec<usize> {
        let mut chosen = Vec::new();
        let (mut from, row) = (self.within.start, self.least - grid.width + 1);
        while from + row + grid.width <= self.within.end + 1 {
            let ahead = (from - self.within.start + grid.stride - place) % grid.stride;
            let first = from + (grid.stride - ahead) % grid.stride;
            let starts = (first..from + row).step_by(grid.stride);
            // Blocks of bytes that every letter's spelling has would match constantly. Of the best,
            // take the last, which is farthest on.
            let Some(best) = starts.max_by_key(|at| self.telling(*at, grid.width)) else {
                break;
            };
            chosen.push(best);
            from = best + 1;
        }
        chosen
    }

    /// Returns how many bytes of a block depend on the secret.
    fn telling(&self, at: usize, width: usize) -> usize {
        let told = self.telling[at..at + width].iter();
        told.filter(|tells| **tells).count()
    }
}

impl BlockIndex {
    /// Joins the blocks of several secrets; each comes with the number of its first form.
    pub(super) fn of<'b>(
        grid: Grid,
        secrets: impl Iterator<Item = (u32, &'b Blocks)> + Clone,
    ) -> Self {
        let count = secrets.clone().map(|(_, blocks)| blocks.len()).sum();
        let mut all = Zeroizing::new(Vec::with_capacity(count));
        for (first, blocks) in secrets {
            all.extend(
                blocks
                    .iter()
                    .map(|&(block, form, at)| (block, first + form, at)),
            );
        }
        // A stable sort is fast here, because the input consists of sorted runs.
        all.sort();
        let mut filter = Filter::new(all.len());
        all.iter().for_each(|&(block, ..)| filter.add(block));
        let mut blocks = Zeroizing::new(Vec::with_capacity(all.len()));
        blocks.extend(all.iter().map(|&(block, ..)| block));
        Self {
            filter,
            blocks,
            places: all.iter().map(|&(_, form, at)| (form, at)).collect(),
            grid,
        }
    }

    /// Reports every form that contains a block of the text: the block's offset in the text, the
    /// form, and the offset in the form.
    pub(super) fn each(&self, text: &[u8], mut hit: impl FnMut(usize, usize, usize)) {
        match self.grid.width {
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
            at += self.grid.stride;
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

/// Returns the block at an offset, if it is complete.
#[inline(always)]
fn block<const WIDTH: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut block = [0; 8];
    block[..WIDTH].copy_from_slice(bytes.get(at..)?.get(..WIDTH)?);
    Some(u64::from_le_bytes(block))
}

/// A set of blocks with false positives: one bit per block, in 64 bits of space each.
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

    /// Returns the word and the bit: high bits of a product that depends on all bits of the block.
    #[inline(always)]
    fn slot(&self, block: u64) -> (usize, u64) {
        let product = block.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((product >> self.shift) as usize, 1 << (product >> 42 & 63))
    }
}

/// 8 KiB: enough for a few secrets, well inside the first-level cache.
const LEAST_WORDS: usize = 1 << 10;

/// 512 KiB: hundreds of secrets.
const MOST_WORDS: usize = 1 << 16;

const WIDE: usize = 8;
const NARROW: usize = 4;

/// The number of grids.
pub(super) const GRID_COUNT: usize = GRIDS.len();

/// The width and stride of each grid. There are few, so that secrets of similar length share one. A
/// longer stride gains nothing, since every cache line is touched anyway. Blocks of 8 bytes match
/// less often by chance and on common words.
const GRIDS: [(usize, usize); 10] = [
    (WIDE, 64),
    (WIDE, 48),
    (WIDE, 32),
    (WIDE, 28),
    (WIDE, 24),
    (WIDE, 16),
    (WIDE, 13),
    (NARROW, 8),
    (NARROW, 5),
    (NARROW, 3),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scrub::forms::SecretForms;

    /// The bytes that writers put around each letter are the same for all letters, and must not
    /// cause closer checks.
    #[test]
    fn text_in_escapes_is_looked_up_seldom() {
        let (secret, phantom) = (
            b"ghp_A1b2C3d4E5f6G7h8I9j0K1l2",
            b"ghp_Z9y8X7w6V5u4T3s2R1q0P9o8",
        );
        let forms = SecretForms::of(secret, phantom, phantom).unwrap();
        let (whole, pieces) = (
            Grid::of(forms.needles().shortest()),
            Grid::of(forms.needles().shortest_piece()),
        );
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
            let needles = forms.needles();
            for (grid, blocks) in [
                (whole, needles.whole(whole)),
                (pieces, needles.pieces(pieces)),
            ] {
                let index = BlockIndex::of(grid, [(0, blocks)].into_iter());
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
