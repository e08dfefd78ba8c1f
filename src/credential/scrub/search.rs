//! The search for echoes: every form of every secret, whole and in pieces.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::fault::{Guessed, Unscrubbable};
use super::forms::{Replacement, SecretForms};
use super::needles::{Needle, NeedleSet, sort, split};
use super::partial::PartialMatcher;
use crate::guesses::Guesses;

/// Finds echoes of all secrets that a session's origins know.
///
/// The needles are shared with the sessions that search for the same secrets. The replacements are
/// this session's own.
///
/// Its memory is wiped on drop. Has no `Debug`.
pub struct EchoSearch {
    /// In the order of the set.
    secrets: Vec<Arc<SecretForms>>,
    pub(super) set: Arc<NeedleSet>,
    /// The distinct matchers: secrets of one shape share one.
    pub(super) partial: Vec<Arc<PartialMatcher>>,
    /// Whether an echo can be replaced by text of another length.
    resizes: bool,
    guesses: Arc<Guesses>,
}

/// An echo in a buffer, or a piece of one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Echo {
    length: usize,
    /// Relative to the start of the buffer; negative if it began in bytes already passed on.
    pub(super) start: isize,
    form: usize,
    /// The offset in the form at which the echo begins.
    from: usize,
    /// The character to write as the last of `length` bytes, if the last byte is a base64 tail.
    tail: Option<u8>,
    /// Whether the phantom's spelling replaces it, rather than the stand-in.
    whole: bool,
}

impl Echo {
    /// Counts from a later byte; `false` if the echo ends before it.
    pub(super) fn advance(&mut self, bytes: usize) -> bool {
        self.start -= bytes as isize;
        self.end() > 0
    }

    /// Whether this echo contains another.
    pub(super) fn covers(&self, other: &Echo) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }

    pub(super) fn end(&self) -> isize {
        self.start + self.length as isize
    }
}

/// The findings in a buffer.
pub(super) struct Scan {
    pub(super) found: Vec<Echo>,
    /// The offset from which the bytes could, by their shape, be an incomplete echo.
    pub(super) hold: usize,
}

impl EchoSearch {
    /// Builds a search for secrets, each with a phantom of its shape.
    ///
    /// # Errors
    /// [`Unscrubbable`] by cause. The caller must then not lend that secret, or not show the
    /// response.
    pub fn new<'a>(
        lent: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Self, Unscrubbable> {
        let forms = |(secret, phantom)| Ok(Arc::new(SecretForms::of(secret, phantom, phantom)?));
        let secrets: Result<Vec<_>, _> = lent.into_iter().map(forms).collect();
        Ok(Self::of(secrets?, Arc::new(Guesses::new(None))))
    }

    /// Builds a search for one session, whose guesses are counted.
    pub fn of(mut secrets: Vec<Arc<SecretForms>>, guesses: Arc<Guesses>) -> Self {
        sort(&mut secrets, |forms| forms.needles());
        let each = || secrets.iter();
        let mut partial: Vec<Arc<PartialMatcher>> = Vec::new();
        for one in each().map(|forms| forms.partial()) {
            if !partial.contains(one) {
                partial.push(one.clone());
            }
        }
        Self {
            set: NeedleSet::of(each().map(|forms| forms.needles().clone()).collect()),
            partial,
            resizes: each().any(|forms| forms.resizes()),
            guesses,
            secrets,
        }
    }

    /// Whether there is nothing to search for.
    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    /// Whether an echo can be replaced by text of another length.
    pub(crate) fn resizes(&self) -> bool {
        self.resizes
    }

    /// The secrets that are searched for.
    pub(crate) fn secrets(&self) -> &[Arc<SecretForms>] {
        &self.secrets
    }

    fn needle(&self, number: usize) -> &Needle {
        self.set.needle(number)
    }

    fn replacement(&self, number: usize) -> &Replacement {
        let (secret, form) = split(number);
        self.secrets[secret].replacement(form)
    }

    /// Returns the counter of the parts of secrets that the session received.
    pub fn guesses(&self) -> &Guesses {
        &self.guesses
    }

    /// Scrubs a short, complete text (field value, reason phrase); `None` if it has no echo.
    pub fn scrub(&self, text: &[u8]) -> Option<Vec<u8>> {
        let (mut found, text) = self.overwritten(text, true)?;
        Some(self.resized(&mut found, &text).into())
    }

    /// Scrubs a text whose length must not change; `None` if it has no echo.
    pub(super) fn scrub_in_place(&self, text: &[u8]) -> Option<Vec<u8>> {
        self.overwritten(text, false).map(|(_, text)| text)
    }

    fn overwritten(&self, text: &[u8], resize: bool) -> Option<(Vec<Echo>, Vec<u8>)> {
        // Most fields are shorter than any form.
        if text.len() < self.set.shortest {
            return None;
        }
        let mut found = self.scan(text, true, text.len()).found;
        if found.is_empty() {
            return None;
        }
        self.count(&found);
        self.name_whole(&mut found, &[], resize);
        let mut text = text.to_vec();
        self.write(&mut found, &mut text);
        Some((found, text))
    }

    /// Scrubs a field value; `None` if it has no echo.
    pub fn scrub_field(&self, value: &HeaderValue) -> Option<HeaderValue> {
        let scrubbed = self.scrub(value.as_bytes())?;
        // Phantoms are visible ASCII, so this is a valid value. If it ever were not, show nothing.
        let mut scrubbed = HeaderValue::from_maybe_shared(Bytes::from(scrubbed))
            .unwrap_or_else(|_| HeaderValue::from_static(""));
        scrubbed.set_sensitive(value.is_sensitive());
        Some(scrubbed)
    }

    /// Replaces echoes in all values of a head or trailer section, and returns how many fields had
    /// any.
    ///
    /// Removes a field whose name contains an echo.
    ///
    /// # Errors
    /// [`Guessed`] if the session may see no part of the section.
    pub fn scrub_fields(&self, fields: &mut HeaderMap) -> Result<u64, Guessed> {
        let mut changed = 0;
        for value in fields.values_mut() {
            if let Some(scrubbed) = self.scrub_field(value) {
                *value = scrubbed;
                changed += 1;
            }
        }
        let names = fields.keys().filter(|name| self.stands_in_name(name));
        let names: Vec<_> = names.cloned().collect();
        for name in names {
            fields.remove(name);
            changed += 1;
        }
        if self.guesses.are_spent() {
            return Err(Guessed);
        }
        Ok(changed)
    }

    /// Whether a field's name contains a form of a secret, or a piece of the secret as it is.
    /// Ignores case, which field names lose in transit (RFC 9110 §5.1).
    fn stands_in_name(&self, name: &HeaderName) -> bool {
        let name = name.as_str().as_bytes();
        let holds = |needle: &Needle| {
            let length = needle.secret.len();
            name.windows(length)
                .any(|text| text.eq_ignore_ascii_case(&needle.secret))
        };
        let mut needles = self.set.needles();
        // Few names are as long as a secret.
        (name.len() >= self.set.shortest_whole && needles.any(holds))
            || self.scrub(name).is_some()
            || (name.len() >= self.set.shortest && self.has_piece_in_any_case(name))
    }

    /// Whether a name contains a piece of a secret, whatever the case of its letters.
    fn has_piece_in_any_case(&self, name: &[u8]) -> bool {
        let plain = self.secrets.iter().filter_map(|forms| {
            let form = forms.needles().first()?;
            Some((forms, &form.secret, form.piece.as_ref()?))
        });
        let mut found = false;
        for (forms, secret, piece) in plain {
            let text = &secret[piece.within.clone()];
            let rows = common_rows(name, text, self.set.shortest).into_iter();
            for row in rows.map(|row| row.start + piece.within.start..row.end + piece.within.start)
            {
                let stand_in = &forms.replacement(0).stand_in[row.clone()];
                let pairs = secret[row.clone()].iter().zip(stand_in);
                let differing = pairs.filter(|(one, other)| one != other).count();
                if row.len() >= piece.least_in(&row) && differing >= piece.differing {
                    self.guesses.part(&secret[row]);
                    found = true;
                }
            }
        }
        found
    }

    /// Finds the echoes in a buffer, and pieces of them in its first `fine` bytes.
    ///
    /// `ended` means that nothing follows the buffer.
    pub(super) fn scan(&self, bytes: &[u8], ended: bool, fine: usize) -> Scan {
        let mut pass = SearchPass {
            search: self,
            bytes,
            found: Vec::new(),
        };
        if !self.is_empty() {
            pass.run(fine);
        }
        let lengths = self.partial.iter().map(|one| one.length(bytes));
        let begun = if ended { 0 } else { lengths.max().unwrap_or(0) };
        Scan {
            found: pass.found,
            hold: bytes.len() - begun,
        }
    }

    /// Returns where whole forms stand in a buffer, and of which secrets.
    pub(crate) fn whole(&self, bytes: &[u8]) -> Vec<(Range<usize>, &Arc<SecretForms>)> {
        if bytes.len() < self.set.shortest_whole {
            return Vec::new();
        }
        let scan = self.scan(bytes, true, 0);
        let place = |echo: &Echo| {
            let start = usize::try_from(echo.start).ok()?;
            Some((
                start..start + echo.length,
                &self.secrets[split(echo.form).0],
            ))
        };
        scan.found.iter().filter_map(place).collect()
    }

    /// Returns the length of the longest form.
    pub fn longest(&self) -> usize {
        let lengths = self.partial.iter().map(|one| one.longest);
        lengths.max().unwrap_or(0)
    }

    /// Returns the most bytes already passed on that can matter.
    pub(super) fn reach(&self) -> usize {
        self.set.reach
    }

    /// Returns the end of the bytes passed on that could form a piece with the following bytes.
    pub(super) fn past<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        match bytes.last() {
            Some(last)
                if self.set.pieces.is_some()
                    && self.partial.iter().any(|one| one.may_hold(*last)) =>
            {
                &bytes[bytes.len().saturating_sub(self.set.reach)..]
            }
            _ => &[],
        }
    }

    /// Finds the pieces that begin in bytes already passed on and continue in a buffer.
    pub(super) fn scan_border(&self, past: &[u8], bytes: &[u8], found: &mut Vec<Echo>) {
        let joined = [past, &bytes[..bytes.len().min(2 * self.set.reach)]].concat();
        let scan = self.scan(&joined, true, joined.len());
        found.extend(scan.found.into_iter().filter_map(|mut echo| {
            let crosses = echo.start < past.len() as isize;
            (echo.advance(past.len()) && crosses).then_some(echo)
        }));
    }

    /// Counts the session's guesses.
    pub(super) fn count(&self, found: &[Echo]) {
        for echo in found {
            let form = self.needle(echo.form);
            let length = echo.length - usize::from(echo.tail.is_some());
            match &form.piece {
                // A guess cannot be that long.
                Some(piece) if length < form.secret.len() && 3 * length < 10 * piece.least => {
                    self.guesses
                        .part(&form.secret[echo.from..echo.from + length]);
                }
                _ if length == form.secret.len() => self.guesses.whole(),
                _ => {}
            }
        }
    }

    /// Decides which echoes are replaced by their phantom as a whole.
    ///
    /// Those are the complete echoes that overlap no other echo, including `open` ones. If the
    /// length must not change, only echoes as long as their phantom qualify.
    pub(super) fn name_whole(&self, found: &mut [Echo], open: &[Echo], resize: bool) {
        found.sort_unstable_by_key(|echo| echo.start);
        let mut covered = open.iter().map(Echo::end).max().unwrap_or(isize::MIN);
        for at in 0..found.len() {
            let next = found.get(at + 1).map_or(isize::MAX, |next| next.start);
            let echo = &mut found[at];
            let phantom = self.replacement(echo.form).phantom.as_deref();
            let fits = |phantom: &[u8]| resize || phantom.len() == echo.length;
            echo.whole = echo.length == self.needle(echo.form).secret.len()
                && covered.max(0) <= echo.start
                && echo.end() <= next
                && phantom.is_some_and(fits);
            covered = covered.max(echo.end());
        }
    }

    /// Overwrites echoes with stand-ins and phantoms, as far as they lie in the buffer.
    ///
    /// Where echoes overlap, the longer one is written last, then the later one, so that every byte
    /// of every echo is overwritten.
    pub(super) fn write(&self, found: &mut [Echo], bytes: &mut [u8]) {
        found.sort_unstable();
        for echo in found {
            let form = self.replacement(echo.form);
            let written = match &form.phantom {
                Some(phantom) if echo.whole && phantom.len() == echo.length => phantom,
                _ => &form.stand_in[echo.from..],
            };
            let length = echo.length - usize::from(echo.tail.is_some());
            let written = written.iter().take(length).copied().chain(echo.tail);
            for (at, byte) in (echo.start..).zip(written) {
                if let Some(place) = usize::try_from(at).ok().and_then(|at| bytes.get_mut(at)) {
                    *place = byte;
                }
            }
        }
    }

    /// Replaces whole echoes with phantoms of another length. These echoes overlap no other.
    ///
    /// If an echo continues after the buffer, its complete phantom is written here.
    pub(super) fn resized(&self, found: &mut [Echo], bytes: &[u8]) -> Bytes {
        found.sort_unstable_by_key(|echo| echo.start);
        let mut resized = BytesMut::with_capacity(bytes.len());
        let mut copied = 0;
        for echo in found.iter().filter(|echo| echo.whole) {
            let phantom = self.replacement(echo.form).phantom.as_deref();
            let phantom = phantom.filter(|phantom| phantom.len() != echo.length);
            let Some(phantom) = phantom else { continue };
            let start = usize::try_from(echo.start);
            resized.extend_from_slice(&bytes[copied..start.unwrap_or(0)]);
            if start.is_ok() {
                resized.extend_from_slice(phantom);
            }
            copied = bytes.len().min(echo.end() as usize);
        }
        resized.extend_from_slice(&bytes[copied..]);
        resized.freeze()
    }
}

/// Returns the ranges of `text` that also occur in `name`, ignoring case, of at least this length.
fn common_rows(name: &[u8], text: &[u8], least: usize) -> Vec<Range<usize>> {
    let mut rows = Vec::new();
    let mut add = |row: Range<usize>| rows.extend((row.len() >= least).then_some(row));
    for shift in 0..(name.len() + text.len()).saturating_sub(1) {
        // The first byte of the name is aligned with this byte of the text, or comes after it.
        let (at, from) = (
            text.len().saturating_sub(shift + 1),
            (shift + 1).saturating_sub(text.len()),
        );
        let pairs = name[from..].iter().zip(&text[at..]);
        let mut begin = at;
        for (nth, (one, other)) in pairs.enumerate() {
            if !one.eq_ignore_ascii_case(other) {
                add(begin..at + nth);
                begin = at + nth + 1;
            }
        }
        let end = text.len().min(at + name.len() - from);
        add(begin..end);
    }
    rows
}

/// One pass over one buffer.
struct SearchPass<'a> {
    search: &'a EchoSearch,
    bytes: &'a [u8],
    found: Vec<Echo>,
}

impl SearchPass<'_> {
    fn run(&mut self, fine: usize) {
        let search = self.search;
        let fine = self.bytes.len().min(fine);
        let pieces = search.set.pieces.as_ref().filter(|_| fine > 0);
        if let Some(pieces) = pieces {
            pieces.each(&self.bytes[..fine], |at, form, offset| {
                self.piece(at, form, offset)
            });
        }
        if pieces.is_none() || fine < self.bytes.len() {
            search.set.whole.each(self.bytes, |at, form, offset| {
                if let Some(start) = at.checked_sub(offset) {
                    self.whole(start, form);
                }
            });
        }
        // An echo inside another echo is part of that one.
        let is_piece = |echo: &Echo| echo.length < search.needle(echo.form).secret.len();
        self.found.sort_unstable_by_key(|echo| {
            (echo.start, Reverse(echo.length), is_piece(echo), echo.form)
        });
        let mut covered = isize::MIN;
        self.found.retain(|echo| {
            let is_its_own = echo.end() > covered;
            covered = covered.max(echo.end());
            is_its_own
        });
    }

    /// Records the echo that begins here, if it is complete.
    fn whole(&mut self, start: usize, index: usize) {
        let form = self.search.needle(index);
        if self.bytes[start..].starts_with(&form.secret) {
            self.note(start, index, 0, form.secret.len());
        }
    }

    /// Records the piece here at its full length, or the complete echo.
    #[inline(never)]
    fn piece(&mut self, at: usize, index: usize, offset: usize) {
        let form = self.search.needle(index);
        let Some(piece) = &form.piece else {
            if let Some(start) = at.checked_sub(offset) {
                self.whole(start, index);
            }
            return;
        };
        let same = |pair: &(&u8, &u8)| pair.0 == pair.1;
        let before = self.bytes[..at]
            .iter()
            .rev()
            .zip(form.secret[..offset].iter().rev());
        let before = before.take_while(same).count();
        let behind = self.bytes[at..].iter().zip(&form.secret[offset..]);
        let (start, from) = (at - before, offset - before);
        let length = before + behind.take_while(same).count();
        let within = piece.within.start.max(from)..piece.within.end.min(from + length);
        let differing = || {
            let stand_in = &self.search.replacement(index).stand_in[within.clone()];
            let letters = form.secret[within.clone()].iter().zip(stand_in);
            letters.filter(|(s, p)| s != p).count()
        };
        if length == form.secret.len()
            || within.len() >= piece.least_in(&within) && differing() >= piece.differing
        {
            self.note(start, index, from, length);
        }
    }

    /// Records an echo. If its tail is still to come, it lies in the held bytes.
    fn note(&mut self, start: usize, index: usize, from: usize, length: usize) {
        let ends = from + length == self.search.needle(index).secret.len();
        let tail = (ends.then(|| self.search.replacement(index).tail).flatten())
            .zip(self.bytes.get(start + length))
            .and_then(|(tail, &character)| tail.replace(character));
        let echo = Echo {
            start: start as isize,
            form: index,
            from,
            length: length + usize::from(tail.is_some()),
            tail,
            whole: false,
        };
        if self.found.last() != Some(&echo) {
            self.found.push(echo);
        }
    }
}
