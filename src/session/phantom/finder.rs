//! Finds phantoms in bytes, plain or disguised, in one pass of one automaton.

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, AhoCorasickKind, Input, MatchKind, packed};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use gateway_message::pairs::ESCAPED;
use gateway_names::hex;
use percent_encoding::utf8_percent_encode;

/// The form in which a phantom appears in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As it was issued.
    Plain,
    /// Inside base64 or base64url, at any alignment, encoded once or twice.
    Base64,
    /// As hexadecimal digits.
    Hex,
    /// Escaped: percent-encoding, JSON `\u`, HTML character references.
    Escaped,
    /// In a different letter case than issued.
    Folded,
}

/// An occurrence of a phantom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhantomMatch {
    /// The phantom's index among the session's phantoms.
    pub index: usize,
    /// The range in the searched text. For [`Form::Escaped`], the range in the unescaped text.
    pub at: std::ops::Range<usize>,
    /// The form in which it appears.
    pub form: Form,
}

/// The automata that match every form of a set of phantoms. Each is built at its first use, because
/// most sessions of a gateway are idle.
pub(super) struct Finder {
    phantoms: Vec<Box<str>>,
    /// The length of the shortest pattern, which is a phantom itself: every other form is longer.
    pub(super) shortest: usize,
    /// The number of base64 layers that are seen through.
    times: usize,
    exact: OnceLock<FormFinder>,
    passing: OnceLock<StreamFinder>,
    folded: OnceLock<Option<AhoCorasick>>,
}

/// The search of content in transit. The automaton of [`FormFinder`] would take milliseconds a MiB.
struct StreamFinder {
    /// A vector search for each [`GROUP`] patterns; empty if the processor supports none.
    groups: Vec<packed::Searcher>,
    otherwise: Option<AhoCorasick>,
    /// The phantom of each pattern.
    indexes: Vec<usize>,
    /// The length of the longest pattern.
    longest: usize,
}

/// The automaton of all forms, and the phantom and form of each pattern.
struct FormFinder {
    automaton: Option<AhoCorasick>,
    forms: Vec<(usize, Form)>,
}

impl Finder {
    /// Returns a search for these phantoms that sees through `times` layers of base64.
    pub(super) fn new<'p>(phantoms: impl Iterator<Item = &'p str>, times: usize) -> Self {
        let phantoms: Vec<Box<str>> = phantoms.map(Box::from).collect();
        Self {
            shortest: phantoms
                .iter()
                .map(|text| text.len())
                .min()
                .unwrap_or(usize::MAX),
            phantoms,
            times,
            exact: OnceLock::new(),
            passing: OnceLock::new(),
            folded: OnceLock::new(),
        }
    }

    pub(super) fn find<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = PhantomMatch> + 'a {
        let exact = self.exact();
        exact
            .automaton
            .iter()
            .flat_map(move |automaton| automaton.find_iter(Input::new(text)))
            .map(|found| {
                let (index, form) = exact.forms[found.pattern().as_usize()];
                PhantomMatch {
                    index,
                    at: found.range(),
                    form,
                }
            })
    }

    /// Finds the phantoms in a piece of content: as issued, or as forms and JSON encode them.
    pub(super) fn find_passing<'a>(&'a self, part: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
        let StreamFinder {
            groups,
            otherwise,
            indexes,
            ..
        } = self.passing();
        let grouped = groups.iter().enumerate().flat_map(move |(nth, group)| {
            let found = group.find_iter(part);
            found.map(move |found| nth * GROUP + found.pattern().as_usize())
        });
        let others = otherwise.iter().flat_map(move |all| all.find_iter(part));
        let others = others.map(|found| found.pattern().as_usize());
        grouped.chain(others).map(|pattern| indexes[pattern])
    }

    /// The length of the longest text that [`Self::find_passing`] finds.
    pub(super) fn longest_passing(&self) -> usize {
        self.passing().longest
    }

    fn passing(&self) -> &StreamFinder {
        self.passing.get_or_init(|| {
            let (mut patterns, mut indexes) = (Vec::new(), Vec::new());
            for (index, phantom) in self.phantoms.iter().enumerate() {
                let spellings = spellings(phantom);
                indexes.extend(spellings.iter().map(|_| index));
                patterns.extend(spellings);
            }
            let groups: Option<Vec<_>> =
                patterns.chunks(GROUP).map(packed::Searcher::new).collect();
            StreamFinder {
                otherwise: match groups {
                    Some(_) => None,
                    None => automaton(&patterns, false),
                },
                groups: groups.unwrap_or_default(),
                indexes,
                longest: patterns.iter().map(String::len).max().unwrap_or_default(),
            }
        })
    }

    pub(super) fn find_folded(&self, text: &[u8]) -> Option<PhantomMatch> {
        let folded = self.folded.get_or_init(|| {
            let phantoms: Vec<&str> = self.phantoms.iter().map(|phantom| &**phantom).collect();
            automaton(&phantoms, true)
        });
        let found = folded.as_ref()?.find(text)?;
        Some(PhantomMatch {
            index: found.pattern().as_usize(),
            at: found.range(),
            form: Form::Folded,
        })
    }

    fn exact(&self) -> &FormFinder {
        self.exact.get_or_init(|| {
            let mut patterns: Vec<Vec<u8>> = Vec::new();
            let mut forms = Vec::new();
            for (index, phantom) in self.phantoms.iter().enumerate() {
                for (pattern, form) in forms_of(phantom.as_bytes(), self.times) {
                    if !patterns.contains(&pattern) {
                        patterns.push(pattern);
                        forms.push((index, form));
                    }
                }
            }
            let automaton = automaton(&patterns, false);
            FormFinder { automaton, forms }
        })
    }

    pub(super) fn find_unescaped(&self, text: &[u8]) -> Option<PhantomMatch> {
        let mut text = std::borrow::Cow::Borrowed(text);
        for _ in 0..MAX_DEPTH {
            let undone = unescape(&text)?;
            if let Some(found) = self.find(&undone).next() {
                return Some(PhantomMatch {
                    form: Form::Escaped,
                    ..found
                });
            }
            text = std::borrow::Cow::Owned(undone);
        }
        None
    }
}

fn automaton<P: AsRef<[u8]>>(patterns: &[P], fold: bool) -> Option<AhoCorasick> {
    if patterns.is_empty() {
        return None;
    }
    AhoCorasickBuilder::new()
        .match_kind(MatchKind::LeftmostLongest)
        .ascii_case_insensitive(fold)
        // The patterns are few and long, so a contiguous automaton is fast and stays small.
        .kind(Some(AhoCorasickKind::ContiguousNFA))
        .build(patterns)
        .ok()
}

/// Returns every form of a phantom that is searched for as a pattern. The plain form comes first.
fn forms_of(phantom: &[u8], times: usize) -> Vec<(Vec<u8>, Form)> {
    let mut forms = vec![(phantom.to_vec(), Form::Plain)];
    let mut coded = vec![phantom.to_vec()];
    for _ in 0..times {
        coded = coded.iter().flat_map(|text| base64_cores(text)).collect();
        forms.extend(coded.iter().map(|text| (text.clone(), Form::Base64)));
    }
    let lower = hex(phantom);
    forms.push((lower.to_ascii_uppercase().into_bytes(), Form::Hex));
    forms.push((lower.into_bytes(), Form::Hex));
    forms
}

/// Returns a phantom as it was issued, as forms encode it, and as JSON does.
fn spellings(phantom: &str) -> Vec<String> {
    let form = utf8_percent_encode(phantom, ESCAPED).to_string();
    let json = phantom.replace('\\', "\\\\").replace('"', "\\\"");
    let mut all = vec![
        phantom.to_owned(),
        lower_escapes(&form),
        form,
        json.replace('/', "\\/"),
        json,
    ];
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns the text with its percent-escapes in lower case.
fn lower_escapes(text: &str) -> String {
    let mut parts = text.split('%');
    let mut lower = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (digits, rest) = part.split_at(part.len().min(2));
        lower.extend(["%", &digits.to_ascii_lowercase(), rest]);
    }
    lower
}

/// Returns the digits shared by every base64 text that contains the bytes, for each of the three
/// alignments (RFC 4648 §4, §5).
///
/// Digits at either end also encode bits of neighbouring bytes, so they are left out.
fn base64_cores(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut cores = Vec::new();
    for lead in 0..3_usize {
        let shifted: Vec<u8> = std::iter::repeat_n(0, lead)
            .chain(bytes.iter().copied())
            .collect();
        let from = (lead * 8).div_ceil(6);
        let to = shifted.len() * 8 / 6;
        for engine in [&STANDARD, &URL_SAFE] {
            let text = engine.encode(&shifted);
            if to - from >= MIN_CORE {
                cores.push(text.as_bytes()[from..to].to_vec());
            }
        }
    }
    cores.dedup();
    cores
}

/// Removes one layer of escapes. `None` if there are none.
fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let escaped =
        memchr::memchr2(b'%', b'\\', text).is_some() || memchr::memmem::find(text, b"&#").is_some();
    if !escaped {
        return None;
    }
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let (byte, width) = escape_at(&text[at..]).unwrap_or((text[at], 1));
        out.push(byte);
        at += width;
    }
    (out.len() < text.len()).then_some(out)
}

/// Decodes one escape of an ASCII character. Returns the byte and the width of the escape.
fn escape_at(text: &[u8]) -> Option<(u8, usize)> {
    match text {
        [b'%', high, low, ..] => Some((hex_pair(*high, *low)?, 3)),
        [b'\\', b'u' | b'U', b'0', b'0', high, low, ..] => Some((hex_pair(*high, *low)?, 6)),
        [b'\\', b'x', high, low, ..] => Some((hex_pair(*high, *low)?, 4)),
        [b'\\', b'/', ..] => Some((b'/', 2)),
        [b'&', b'#', rest @ ..] => {
            let width = rest
                .iter()
                .take(MAX_REFERENCE)
                .position(|byte| *byte == b';')?;
            let digits = std::str::from_utf8(&rest[..width]).ok()?;
            let value = match digits.strip_prefix(['x', 'X']) {
                Some(hex) => u8::from_str_radix(hex, 16).ok()?,
                None => digits.parse().ok()?,
            };
            Some((value, width + 3))
        }
        _ => None,
    }
}

fn hex_pair(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    Some(digit(high)? << 4 | digit(low)?)
}

/// How many patterns are searched for at once. More would slow the vector search.
const GROUP: usize = 32;
/// The fewest base64 digits to search for. Fewer would match by chance.
const MIN_CORE: usize = 8;
/// How many layers of escapes are removed.
const MAX_DEPTH: usize = 3;
/// The most digits read from an HTML character reference.
const MAX_REFERENCE: usize = 8;
