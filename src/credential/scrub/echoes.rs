//! The search for echoes: every form of every secret, whole and in pieces.

use std::cmp::Reverse;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::beginnings::Beginnings;
use super::index::{Entry, Index};
use super::{Guessed, Unscrubbable};
use crate::credential::echo::{Form, Piece, forms, usual_forms};
use crate::credential::guesses::Guesses;
use crate::credential::part::Part;

/// Everything by which the secrets that a session's origins know could come back; built once for a
/// set of secrets and shared.
///
/// Its memory is wiped when it goes. Has no `Debug`.
pub struct Echoes {
    forms: Vec<Form>,
    /// Finds whole forms, and costs little.
    whole: Index,
    /// Finds pieces, too. `None` where no secret is looked for in pieces.
    pieces: Option<Index>,
    beginnings: Beginnings,
    /// The length of the shortest text that could hold an echo.
    shortest: usize,
    /// The same, of a whole one.
    shortest_whole: usize,
    /// The length of the longest piece that is still none.
    reach: usize,
    guesses: Arc<Guesses>,
}

/// What is looked for, and what stands in its place.
pub struct Sought<'a> {
    /// The secret.
    pub secret: &'a [u8],
    /// As long as the secret: the phantom, or what hides it.
    pub stand_in: &'a [u8],
    /// What the workload holds, by which it knows as much of the secret.
    pub phantom: &'a [u8],
}

/// An echo in a buffer, or a piece of one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Echo {
    length: usize,
    /// From the start of the buffer; negative where it began in bytes that are gone.
    pub(super) start: isize,
    form: usize,
    /// Where in the form it begins.
    from: usize,
    /// What to write as the last of `length` bytes, where that is a base64 tail.
    tail: Option<u8>,
}

impl Echo {
    /// Counts from a later byte; `false` if the echo ends before it.
    pub(super) fn advance(&mut self, bytes: usize) -> bool {
        self.start -= bytes as isize;
        self.end() > 0
    }

    /// Whether another stands inside it.
    pub(super) fn covers(&self, other: &Echo) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }

    pub(super) fn end(&self) -> isize {
        self.start + self.length as isize
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
    /// [`Unscrubbable`] by cause; the caller must then not lend that secret, or not show the
    /// answer.
    pub fn new<'a>(
        lent: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Self, Unscrubbable> {
        let sought = lent.into_iter().map(|(secret, phantom)| Sought {
            secret,
            stand_in: phantom,
            phantom,
        });
        Self::of(sought, [], Arc::new(Guesses::new(None)))
    }

    /// The same for one session, whose guesses are counted; and for texts that services repeat as
    /// they are, each with its mask.
    ///
    /// # Errors
    /// As [`Echoes::new`].
    pub fn of<'a>(
        sought: impl IntoIterator<Item = Sought<'a>>,
        whole: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        guesses: Arc<Guesses>,
    ) -> Result<Self, Unscrubbable> {
        let mut all = Vec::new();
        for one in sought {
            let part = Part::of(one.secret, one.phantom);
            all.append(&mut forms(one.secret, one.stand_in, part.as_ref())?);
        }
        for (text, mask) in whole {
            all.append(&mut usual_forms(text, mask)?);
        }
        Ok(Self::index(all, guesses))
    }

    /// Whether there is nothing to search for.
    pub fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    /// What the session met so far.
    pub fn guesses(&self) -> &Guesses {
        &self.guesses
    }

    /// A whole small text (field value, reason phrase) with phantoms in place of echoes; `None` if
    /// it holds none.
    pub fn scrub(&self, text: &[u8]) -> Option<Vec<u8>> {
        // Most fields are shorter than any form.
        if text.len() < self.shortest {
            return None;
        }
        let mut scan = self.scan(text, true, text.len());
        if scan.found.is_empty() {
            return None;
        }
        self.count(&scan.found);
        let mut text = text.to_vec();
        self.write(&mut scan.found, &mut text);
        Some(text)
    }

    /// A field value with phantoms in place of echoes; `None` if it holds none.
    pub fn scrub_field(&self, value: &HeaderValue) -> Option<HeaderValue> {
        let scrubbed = self.scrub(value.as_bytes())?;
        // A phantom has the classes of its secret, so this is a value; if it ever were not, nothing
        // may stand there.
        let mut scrubbed = HeaderValue::from_maybe_shared(Bytes::from(scrubbed))
            .unwrap_or_else(|_| HeaderValue::from_static(""));
        scrubbed.set_sensitive(value.is_sensitive());
        Some(scrubbed)
    }

    /// Replaces echoes in all values of a head or trailer section; gives the number of fields that
    /// held any.
    ///
    /// A field whose name holds one is taken away.
    ///
    /// # Errors
    /// [`Guessed`], where the session may be shown nothing of it.
    pub fn scrub_fields(&self, fields: &mut HeaderMap) -> Result<u64, Guessed> {
        let mut changed = 0;
        for value in fields.values_mut() {
            if let Some(scrubbed) = self.scrub_field(value) {
                *value = scrubbed;
                changed += 1;
            }
        }
        let names: Vec<_> = fields
            .keys()
            .filter(|name| self.stands_in_name(name))
            .cloned()
            .collect();
        for name in names {
            fields.remove(name);
            changed += 1;
        }
        if self.guesses.are_spent() {
            return Err(Guessed);
        }
        Ok(changed)
    }

    /// Whether a field's name holds a form of a secret. Names have lost their case on the way (RFC
    /// 9110 §5.1).
    fn stands_in_name(&self, name: &HeaderName) -> bool {
        let name = name.as_str().as_bytes();
        let holds = |form: &Form| {
            let length = form.secret.len();
            name.windows(length)
                .any(|text| text.eq_ignore_ascii_case(&form.secret))
        };
        // Few names are as long as a secret.
        (name.len() >= self.shortest_whole && self.forms.iter().any(holds))
            || self.scrub(name).is_some()
    }

    /// Finds the echoes in a buffer, and pieces of them in its first `fine` bytes. `ended` says
    /// that nothing follows it.
    pub(super) fn scan(&self, bytes: &[u8], ended: bool, fine: usize) -> Scan {
        let mut search = Search {
            echoes: self,
            bytes,
            found: Vec::new(),
        };
        if !self.forms.is_empty() {
            search.run(fine);
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

    /// The most that is ever of use of what was given out.
    pub(super) fn reach(&self) -> usize {
        self.reach
    }

    /// What of what was given out before could, with what follows it, be a piece.
    pub(super) fn past<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        match bytes.last() {
            Some(last) if self.pieces.is_some() && self.beginnings.may_hold(*last) => {
                &bytes[bytes.len().saturating_sub(self.reach)..]
            }
            _ => &[],
        }
    }

    /// Finds the pieces that begin in what was given out before and go on in a buffer.
    pub(super) fn scan_border(&self, past: &[u8], bytes: &[u8], found: &mut Vec<Echo>) {
        let joined = [past, &bytes[..bytes.len().min(2 * self.reach)]].concat();
        let scan = self.scan(&joined, true, joined.len());
        found.extend(scan.found.into_iter().filter_map(|mut echo| {
            let crosses = echo.start < past.len() as isize;
            (echo.advance(past.len()) && crosses).then_some(echo)
        }));
    }

    /// Has the session's guesses counted.
    pub(super) fn count(&self, found: &[Echo]) {
        for echo in found {
            let form = &self.forms[echo.form];
            let length = echo.length - usize::from(echo.tail.is_some());
            match &form.piece {
                // Nobody guesses so much at once.
                Some(piece) if length < form.secret.len() && 3 * length < 10 * piece.least => {
                    self.guesses
                        .part(&form.secret[echo.from..echo.from + length]);
                }
                _ if length == form.secret.len() => self.guesses.whole(),
                _ => {}
            }
        }
    }

    /// Writes phantoms over echoes, as far as they lie in the buffer.
    ///
    /// Where echoes overlap, the longer one is written last, then the later one: of every echo each
    /// byte is overwritten.
    pub(super) fn write(&self, found: &mut [Echo], bytes: &mut [u8]) {
        found.sort_unstable();
        for echo in found {
            let phantom = &self.forms[echo.form].phantom[echo.from..];
            let length = echo.length - usize::from(echo.tail.is_some());
            let written = phantom.iter().take(length).copied().chain(echo.tail);
            for (at, byte) in (echo.start..).zip(written) {
                if let Some(place) = usize::try_from(at).ok().and_then(|at| bytes.get_mut(at)) {
                    *place = byte;
                }
            }
        }
    }

    /// By what whole forms are found, and by what pieces are, too.
    pub(super) fn indices(forms: &[Form]) -> (Index, Option<Index>) {
        let in_pieces = forms.iter().any(|form| form.piece.is_some());
        let all: Vec<Entry> = forms.iter().enumerate().map(whole_of).collect();
        let pieces = || {
            forms
                .iter()
                .enumerate()
                .map(pieces_of)
                .collect::<Vec<Entry>>()
        };
        (Index::new(&all), in_pieces.then(|| Index::new(&pieces())))
    }

    fn index(forms: Vec<Form>, guesses: Arc<Guesses>) -> Self {
        let least = forms.iter().enumerate().map(|one| pieces_of(one).least);
        let whole = forms.iter().map(|form| form.secret.len());
        let pieces = forms.iter().filter_map(|form| form.piece.as_ref());
        let shortest_whole = whole.min().unwrap_or(usize::MAX);
        let (whole, in_pieces) = Self::indices(&forms);
        Self {
            whole,
            pieces: in_pieces,
            beginnings: Beginnings::of(&forms),
            shortest: least.min().unwrap_or(usize::MAX),
            shortest_whole,
            reach: pieces.map(Piece::longest_that_is_none).max().unwrap_or(0),
            forms,
            guesses,
        }
    }
}

fn whole_of((at, form): (usize, &Form)) -> Entry<'_> {
    Entry {
        form: at,
        within: 0..form.secret.len(),
        least: form.secret.len(),
        bytes: &form.secret,
        others: &form.phantom,
    }
}

fn pieces_of((at, form): (usize, &Form)) -> Entry<'_> {
    match &form.piece {
        Some(piece) => Entry {
            within: piece.within.clone(),
            least: piece.least,
            ..whole_of((at, form))
        },
        None => whole_of((at, form)),
    }
}

/// One pass over one buffer.
struct Search<'a> {
    echoes: &'a Echoes,
    bytes: &'a [u8],
    found: Vec<Echo>,
}

impl Search<'_> {
    fn run(&mut self, fine: usize) {
        let echoes = self.echoes;
        let fine = self.bytes.len().min(fine);
        let pieces = echoes.pieces.as_ref().filter(|_| fine > 0);
        if let Some(pieces) = pieces {
            pieces.each(&self.bytes[..fine], |at, form, offset| {
                self.piece(at, form, offset)
            });
        }
        if pieces.is_none() || fine < self.bytes.len() {
            echoes.whole.each(self.bytes, |at, form, offset| {
                if let Some(start) = at.checked_sub(offset) {
                    self.whole(start, form);
                }
            });
        }
        // What stands inside another echo is that one's.
        let is_piece = |echo: &Echo| echo.length < echoes.forms[echo.form].secret.len();
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

    /// Notes the echo that begins here, if it is whole.
    fn whole(&mut self, start: usize, index: usize) {
        let form = &self.echoes.forms[index];
        if self.bytes[start..].starts_with(&form.secret) {
            self.note(start, index, 0, form.secret.len());
        }
    }

    /// Notes the piece that stands here, as long as it is; or the whole, where it is all.
    #[inline(never)]
    fn piece(&mut self, at: usize, index: usize, offset: usize) {
        let form = &self.echoes.forms[index];
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
        let letters = form.secret[within.clone()]
            .iter()
            .zip(&form.phantom[within.clone()]);
        if length == form.secret.len()
            || within.len() >= piece.least_in(&within)
                && letters.filter(|(s, p)| s != p).count() >= piece.differing
        {
            self.note(start, index, from, length);
        }
    }

    /// An echo whose tail is still to come lies in what is held back.
    fn note(&mut self, start: usize, index: usize, from: usize, length: usize) {
        let form = &self.echoes.forms[index];
        let ends = from + length == form.secret.len();
        let tail = form
            .tail
            .filter(|_| ends)
            .zip(self.bytes.get(start + length))
            .and_then(|(tail, &character)| tail.replace(character));
        let echo = Echo {
            start: start as isize,
            form: index,
            from,
            length: length + usize::from(tail.is_some()),
            tail,
        };
        if self.found.last() != Some(&echo) {
            self.found.push(echo);
        }
    }
}
