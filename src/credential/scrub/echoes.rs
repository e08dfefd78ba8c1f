//! The search for echoes: a sampled look-up of blocks.
//!
//! Every form is long, so a block of it stands at some multiple of a stride that is nearly as long as the shortest form. Only
//! those blocks are looked at: a filter of bits says of most that they are in no form, a sorted list says of the rest in
//! which and where, and the form is then compared in full. Cost does not depend on how the forms begin, nor much on how many
//! there are.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use zeroize::Zeroizing;

use super::{Unscrubbable, beginnings::Beginnings};
use crate::credential::echo::{Form, forms};

/// Everything by which the secrets lent to one exchange could come back; built once for a set of grants and shared.
///
/// Its memory is wiped when it goes. Has no `Debug`.
pub struct Echoes {
    forms: Vec<Form>,
    filter: Filter,
    /// Sorted, beside `places`: which form holds this block, and how far from its start.
    blocks: Zeroizing<Vec<u64>>,
    places: Vec<(u32, u32)>,
    beginnings: Beginnings,
    /// The length of the shortest form.
    shortest: usize,
    wide: bool,
    stride: usize,
}

/// An echo in a buffer.
#[derive(Clone, Copy)]
pub(super) struct Echo {
    /// From the start of the buffer; negative where it began in bytes that are gone.
    pub(super) start: isize,
    form: usize,
    length: usize,
    /// What to write as the last of `length` bytes, where that is a base64 tail.
    tail: Option<u8>,
}

impl Echo {
    /// Counts from a later byte; `false` if the echo ends before it.
    pub(super) fn advance(&mut self, bytes: usize) -> bool {
        self.start -= bytes as isize;
        self.start + self.length as isize > 0
    }
}

/// What stands in a buffer.
pub(super) struct Scan {
    pub(super) found: Vec<Echo>,
    /// From where on what is there could, by its shape, be an echo that is not yet complete.
    pub(super) hold: usize,
}

impl Echoes {
    /// Prepares the search for echoes of secrets, each with its phantom.
    ///
    /// # Errors
    /// [`Unscrubbable`] by cause; the caller must then not lend that secret, or not show the answer.
    pub fn new<'a>(lent: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Result<Self, Unscrubbable> {
        let mut all = Vec::new();
        for (secret, phantom) in lent {
            all.append(&mut forms(secret, phantom)?);
        }
        Ok(Self::index(all))
    }

    /// Whether there is nothing to search for.
    pub fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    /// A whole small text (field value, reason phrase) with phantoms in place of echoes; `None` if it holds none.
    pub fn scrub(&self, text: &[u8]) -> Option<Vec<u8>> {
        // Most fields are shorter than any form.
        if text.len() < self.shortest {
            return None;
        }
        let mut scan = self.scan(text, true);
        if scan.found.is_empty() {
            return None;
        }
        let mut text = text.to_vec();
        self.write(&mut scan.found, &mut text);
        Some(text)
    }

    /// A field value with phantoms in place of echoes; `None` if it holds none.
    pub fn scrub_field(&self, value: &HeaderValue) -> Option<HeaderValue> {
        let scrubbed = self.scrub(value.as_bytes())?;
        // A phantom has the classes of its secret, so this is a value; if it ever were not, nothing may stand there.
        let mut scrubbed = HeaderValue::from_maybe_shared(Bytes::from(scrubbed))
            .unwrap_or_else(|_| HeaderValue::from_static(""));
        scrubbed.set_sensitive(value.is_sensitive());
        Some(scrubbed)
    }

    /// Replaces echoes in all values of a head or trailer section; gives the number of fields that held any.
    ///
    /// A field whose name holds one is taken away.
    pub fn scrub_fields(&self, fields: &mut HeaderMap) -> u64 {
        let mut changed = 0;
        for value in fields.values_mut() {
            if let Some(scrubbed) = self.scrub_field(value) {
                *value = scrubbed;
                changed += 1;
            }
        }
        let names: Vec<_> = fields
            .keys()
            .filter(|name| self.scrub(name.as_str().as_bytes()).is_some())
            .cloned()
            .collect();
        for name in names {
            fields.remove(name);
            changed += 1;
        }
        changed
    }

    /// Finds the echoes in a buffer. `ended` says that nothing follows it.
    pub(super) fn scan(&self, bytes: &[u8], ended: bool) -> Scan {
        let mut search = Search {
            echoes: self,
            bytes,
            found: Vec::new(),
        };
        match (self.forms.is_empty(), self.wide) {
            (true, _) => {}
            (false, true) => search.run::<8>(),
            (false, false) => search.run::<4>(),
        }
        let begun = if ended {
            0
        } else {
            self.beginnings.length(&self.forms, bytes)
        };
        Scan {
            found: search.found,
            hold: bytes.len() - begun,
        }
    }

    /// Writes phantoms over echoes, as far as they lie in the buffer.
    ///
    /// Where echoes overlap, the longer one is written last, then the later one: the result does not depend on how the stream
    /// was cut, and of every echo each byte is overwritten.
    pub(super) fn write(&self, found: &mut [Echo], bytes: &mut [u8]) {
        found.sort_unstable_by_key(|echo| (echo.length, echo.start, echo.form));
        for echo in found {
            let phantom = &self.forms[echo.form].phantom;
            let written = phantom.iter().take(echo.length).copied().chain(echo.tail);
            for (at, byte) in (echo.start..).zip(written) {
                if let Some(place) = usize::try_from(at).ok().and_then(|at| bytes.get_mut(at)) {
                    *place = byte;
                }
            }
        }
    }

    fn index(forms: Vec<Form>) -> Self {
        let shortest = forms
            .iter()
            .map(|form| form.secret.len())
            .min()
            .unwrap_or(WIDE_FROM);
        let wide = shortest >= WIDE_FROM;
        let width = if wide { 8 } else { 4 };
        let stride = (shortest - width + 1).min(LONGEST_STRIDE);
        let beginnings = Beginnings::of(&forms);
        let mut entries = Zeroizing::new(Vec::with_capacity(forms.len() * stride));
        for (index, form) in forms.iter().enumerate() {
            for offset in 0..stride {
                let block = if wide {
                    block::<8>(&form.secret, offset)
                } else {
                    block::<4>(&form.secret, offset)
                };
                let Some(block) = block else { continue };
                entries.push((block, index as u32, offset as u32));
            }
        }
        entries.sort_unstable();
        let mut filter = Filter::new(entries.len());
        entries.iter().for_each(|&(block, ..)| filter.add(block));
        let mut blocks = Zeroizing::new(Vec::with_capacity(entries.len()));
        blocks.extend(entries.iter().map(|&(block, ..)| block));
        let places = entries.iter().map(|&(_, form, offset)| (form, offset)).collect();
        Self {
            forms,
            filter,
            blocks,
            places,
            beginnings,
            shortest,
            wide,
            stride,
        }
    }
}

/// One pass over one buffer.
struct Search<'a> {
    echoes: &'a Echoes,
    bytes: &'a [u8],
    found: Vec<Echo>,
}

impl Search<'_> {
    fn run<const WIDTH: usize>(&mut self) {
        let (bytes, stride) = (self.bytes, self.echoes.stride);
        let filter = &self.echoes.filter;
        let mut at = 0;
        while let Some(block) = block::<WIDTH>(bytes, at) {
            if filter.may_hold(block) {
                self.look_up(block, at);
            }
            at += stride;
        }
    }

    /// Compares all forms that hold this block.
    #[cold]
    fn look_up(&mut self, block: u64, at: usize) {
        let echoes = self.echoes;
        let first = echoes.blocks.partition_point(|&known| known < block);
        let same = echoes.blocks[first..].iter().take_while(|&&known| known == block);
        for (_, &(form, offset)) in same.zip(&echoes.places[first..]) {
            if let Some(start) = at.checked_sub(offset as usize) {
                self.compare(start, form as usize);
            }
        }
    }

    /// Notes the echo that begins here, if it is whole. One whose tail is still to come lies in what is held back.
    fn compare(&mut self, start: usize, index: usize) {
        let form = &self.echoes.forms[index];
        let rest = &self.bytes[start..];
        let length = form.secret.len();
        if !rest.starts_with(&form.secret) {
            return;
        }
        let tail = form
            .tail
            .zip(rest.get(length))
            .and_then(|(tail, &character)| tail.replace(character));
        self.found.push(Echo {
            start: start as isize,
            form: index,
            length: length + usize::from(tail.is_some()),
            tail,
        });
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

/// From which length of the shortest form on blocks are of 8 bytes, which chance and common words hit less; else of 4.
const WIDE_FROM: usize = 20;

/// A longer stride gains nothing: every cache line is touched anyway.
const LONGEST_STRIDE: usize = 64;
