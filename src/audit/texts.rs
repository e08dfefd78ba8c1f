//! The texts of a record that a client chose: redacted, cut, and of bounded number.

use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::record::{Record, Text};
use super::redact::Redact;
use gateway_names::TOKEN_PREFIX;

/// Every text chosen by the client, and how many bytes of it to show.
pub(super) fn texts(record: &mut Record) -> impl Iterator<Item = (&mut Text, usize)> {
    let heads = [
        (record.traceparent.as_mut(), TRACEPARENT_BYTES),
        (record.method.as_mut(), MOST_METHOD),
        (record.host.as_mut(), MOST_HOST),
        (record.path.as_mut(), MOST_PATH),
    ];
    let heads = heads
        .into_iter()
        .filter_map(|(text, most)| Some((text?, most)));
    let names = record.query.iter_mut().map(|name| (name, usize::MAX));
    let lent = record.lent.iter_mut().chain(&mut record.unlent);
    let lent = lent.chain(&mut record.misplaced);
    let places = lent.map(|lent| (&mut lent.place, MOST_PLACE));
    heads.chain(names).chain(places)
}

/// An upper bound for an exchange's records in bytes, including recovery, if little more is
/// learned. `noted` is how many credentials may yet be noted in its content, in either record.
pub(super) fn most_bytes(record: &mut Record, noted: usize) -> u64 {
    let lent = record.lent.len() + usize::from(record.unlent.is_some());
    let lists = record.policies.len() + record.facts.len() + 2 * (lent + noted);
    let texts: usize = texts(record)
        .map(|(text, most)| text.len().min(most) * LONGEST_ESCAPE)
        .sum();
    // An `end` record may name the request once more.
    (2 * texts + 160 * lists + 4096) as u64
}

/// Keeps the part of a text that could be shown. Invalid UTF-8 becomes U+FFFD.
pub(super) fn kept(text: &[u8]) -> Option<Text> {
    let kept = &text[..text.len().min(MOST_KEPT)];
    (!kept.is_empty()).then(|| String::from_utf8_lossy(kept).into())
}

/// The first items of a list, and how many are left out.
pub(super) fn listed<T>(all: &[T], text: impl Fn(&T) -> &str) -> (Vec<Text>, Option<u64>) {
    let (shown, rest) = all.split_at(all.len().min(MOST_LISTED));
    let more = (!rest.is_empty()).then_some(rest.len() as u64);
    (shown.iter().map(|one| text(one).into()).collect(), more)
}

/// Adds to a list of bounded length, or counts what is left out.
pub(super) fn push<T>(list: &mut Vec<T>, more: &mut Option<u64>, most: usize, item: T) {
    if list.len() < most {
        list.push(item);
    } else {
        *more.get_or_insert(0) += 1;
    }
}

/// The name of a query's parameter. A long one is more likely data than a name.
pub(super) fn parameter(pair: &[u8]) -> Text {
    let name = pair.split(|&byte| byte == b'=').next().unwrap_or(pair);
    match name.len() {
        long if long > MOST_NAME => format!("[{long} bytes]").into(),
        _ => String::from_utf8_lossy(name).into(),
    }
}

/// Whether a trace is well-formed: W3C Trace Context §3.2.
pub(super) fn is_trace(field: &[u8]) -> bool {
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_set = |part: &[u8]| part.iter().any(|byte| *byte != b'0');
    let parts: Vec<&[u8]> = field.split(|byte| *byte == b'-').collect();
    let [b"00", trace, parent, flags] = parts[..] else {
        return false;
    };
    (trace.len(), parent.len(), flags.len()) == (32, 16, 2)
        && [trace, parent, flags].into_iter().flatten().all(is_hex)
        && is_set(trace)
        && is_set(parent)
}

/// Returns a text for a person: redacted, then cut to `most` bytes.
pub fn redacted_for(redact: &dyn Redact, text: &str, most: usize) -> String {
    let mut text = text.into();
    show(&mut text, most, Some(redact));
    text.into()
}

/// The text as it is shown: redacted, then cut to `most` bytes.
pub(super) fn show(text: &mut Text, most: usize, redact: Option<&dyn Redact>) {
    let mut places = Vec::new();
    if let Some(redact) = redact {
        redact.redact(text.as_bytes(), &mut places);
    }
    conceal(text, places, PHANTOM);
    conceal(text, evidence(text.as_bytes()), EVIDENCE);
    if text.len() > most {
        *text = text[..text.floor_char_boundary(most)].into();
    }
}

/// The ranges of tokens of gateways and signed JWTs that a client wrote in a place where none is
/// read. Any reader of the record could use them.
fn evidence(text: &[u8]) -> Vec<Range<usize>> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.=".contains(byte);
    // Few texts have a letter of either start that is rare.
    if memchr::memchr2(b'J', b'_', text).is_none() {
        return Vec::new();
    }
    let of = |start: &'static Finder<'_>, is_token: bool| {
        start.find_iter(text).filter_map(move |at| {
            let rest = text[at..].iter().take_while(|byte| is_part(byte));
            let whole = &text[at..at + rest.count()];
            let is_jwt = || whole.iter().filter(|byte| **byte == b'.').count() >= 2;
            (is_token || is_jwt()).then_some(at..at + whole.len())
        })
    };
    let [token, jwt] = &*EVIDENCE_STARTS;
    of(token, true).chain(of(jwt, false)).collect()
}

fn conceal(text: &mut Text, mut places: Vec<Range<usize>>, concealed: &[u8]) {
    if !places.is_empty() {
        places.sort_unstable_by_key(|place| place.start);
        *text = redacted(text.as_bytes(), &places, concealed).into();
    }
}

/// Replaces each place in the text; overlapping places are merged, and places past the end are cut.
fn redacted(whole: &[u8], places: &[Range<usize>], concealed: &[u8]) -> String {
    let mut out = Vec::with_capacity(whole.len());
    let mut at = 0;
    for place in places {
        let start = place.start.clamp(at, whole.len());
        let end = place.end.clamp(at, whole.len());
        out.extend_from_slice(&whole[at..start]);
        if end > start {
            out.extend_from_slice(concealed);
        }
        at = end;
    }
    out.extend_from_slice(&whole[at..]);
    String::from_utf8_lossy(&out).into_owned()
}

const PHANTOM: &[u8] = b"[phantom]";
const EVIDENCE: &[u8] = b"[evidence]";
/// How a token of gateways begins, and the head of a JWT: `{"` in base64.
static EVIDENCE_STARTS: LazyLock<[Finder<'static>; 2]> =
    LazyLock::new(|| [TOKEN_PREFIX, "eyJ"].map(Finder::new));
/// More than the shown part plus any phantom, so that no phantom is cut before it is found.
const MOST_KEPT: usize = 32 * 1024;
const TRACEPARENT_BYTES: usize = 55;
pub(super) const MOST_METHOD: usize = 32;
const MOST_HOST: usize = 255;
pub(super) const MOST_PATH: usize = 2048;
const MOST_NAME: usize = 64;
pub(super) const MOST_NAMES: usize = 32;
pub(super) const MOST_LISTED: usize = 16;
const MOST_PLACE: usize = 128;
/// The length of one escaped byte, as in `\u001b`.
const LONGEST_ESCAPE: usize = 6;
