//! Gathers what is known about one exchange, and makes its records.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::encode::timestamp;
use super::record::{Injected, Record, Text, Word};
use super::redact::Redact;
use super::words::{End, Length, Outcome, Phase};
use gateway_names::{CredentialName, ExchangeId, PolicyId};

/// The record of an exchange in progress.
///
/// Client text is kept unchanged until the record is made, because only then is it certain what
/// must be redacted.
pub(super) struct RecordBuilder {
    pub(super) record: Record,
    pub(super) redact: Option<Arc<dyn Redact>>,
    phase: Phase,
    pub(super) began: Instant,
}

impl RecordBuilder {
    pub(super) fn new(id: ExchangeId, entry: &'static str) -> Self {
        Self {
            record: Record {
                kind: "exchange".into(),
                id: Some(hex(id)),
                time: Some(timestamp(SystemTime::now()).into()),
                entry: Some(entry.into()),
                ..Record::default()
            },
            redact: None,
            phase: Phase::Accept,
            began: Instant::now(),
        }
    }

    pub(super) fn reach(&mut self, phase: Phase) -> Instant {
        let now = Instant::now();
        if phase > self.phase {
            self.phase = phase;
            self.record.us.add(phase.name(), self.us_until(now));
        }
        now
    }

    /// Keeps the client's trace if it is well-formed: W3C Trace Context §3.2.
    pub(super) fn traceparent(&mut self, field: &[u8]) {
        let hex = |part: &[u8]| {
            part.iter()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let parts: Vec<&[u8]> = field.split(|byte| *byte == b'-').collect();
        let is_set = |part: &[u8]| part.iter().any(|byte| *byte != b'0');
        let fits = match parts[..] {
            [b"00", trace, parent, flags] => {
                (trace.len(), parent.len(), flags.len()) == (32, 16, 2)
                    && [trace, parent, flags].into_iter().all(hex)
                    && is_set(trace)
                    && is_set(parent)
            }
            _ => false,
        };
        self.record.traceparent = kept(field).filter(|_| fits);
    }

    pub(super) fn path(&mut self, path: &[u8]) {
        self.record.path = kept(path);
        self.record.path_bytes = (path.len() > MOST_PATH).then_some(path.len() as u64);
    }

    pub(super) fn cause(&mut self, mut words: String) {
        words.truncate(words.floor_char_boundary(MOST_CAUSE));
        self.record.cause = Some(words.into());
    }

    /// The method and the path, redacted and cut.
    pub(super) fn request(&self) -> Option<(String, String)> {
        let redact = self.redact.as_deref();
        let shown = |text: &Option<Text>, most| {
            let mut text = text.clone()?;
            show(&mut text, most, redact);
            Some(text.into())
        };
        let method = shown(&self.record.method, MOST_METHOD)?;
        Some((method, shown(&self.record.path, MOST_PATH)?))
    }

    pub(super) fn query(&mut self, query: &[u8]) {
        self.record.query.clear();
        self.record.query_more = None;
        let pairs = query.split(|&byte| byte == b'&');
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            let name = pair.split(|&byte| byte == b'=').next().unwrap_or(pair);
            if self.record.query.len() == MOST_NAMES {
                *self.record.query_more.get_or_insert(0) += 1;
                continue;
            }
            self.record.query.push(match name.len() {
                // A long name is more likely data than a name.
                long if long > MOST_NAME => format!("[{long} bytes]").into(),
                _ => String::from_utf8_lossy(name).into(),
            });
        }
    }

    pub(super) fn policies(&mut self, policies: &[PolicyId]) {
        (self.record.policies, self.record.policies_more) = listed(policies, PolicyId::as_str);
    }

    pub(super) fn facts(&mut self, names: &[String]) {
        (self.record.facts, self.record.facts_more) = listed(names, String::as_str);
    }

    pub(super) fn lend(&mut self, credential: &CredentialName, place: &Text) {
        if self.record.lent.len() == MOST_LISTED {
            *self.record.lent_more.get_or_insert(0) += 1;
            return;
        }
        self.record.lent.push(injected(credential, place.clone()));
    }

    pub(super) fn withhold(&mut self, credential: &CredentialName, place: &str) {
        let place = kept(place.as_bytes()).unwrap_or_default();
        self.record.unlent = Some(injected(credential, place));
    }

    /// An upper bound for this exchange's records in bytes, including recovery, if little more is
    /// learned.
    pub(super) fn most_bytes(&mut self) -> u64 {
        let record = &self.record;
        let loans = record.lent.len() + usize::from(record.unlent.is_some());
        let lists = record.policies.len() + record.facts.len() + 2 * loans;
        let texts: usize = self
            .texts()
            .map(|(text, most)| text.len().min(most) * LONGEST_ESCAPE)
            .sum();
        // An `end` record may name the request once more.
        (2 * texts + 160 * lists + 4096) as u64
    }

    /// Whether the record made at the answer already describes this end.
    pub(super) fn said_all(&self, length: Length, end: &End) -> bool {
        let as_announced =
            |said: Option<u64>, counted: Option<u64>| counted.is_none() || counted == said;
        let record = &self.record;
        matches!(length, Length::Known(_))
            && end.outcome == Outcome::Whole
            && end.scrubbed == 0
            && as_announced(record.response_bytes, end.response_bytes)
            && as_announced(record.request_bytes.or(Some(0)), end.request_bytes)
    }

    /// Makes the `exchange` record. Redacts each client text first, then cuts it.
    pub(super) fn exchange(&mut self, status: Option<u16>, outcome: Outcome) -> Vec<u8> {
        let redact = self.redact.clone();
        for (text, most) in self.texts() {
            show(text, most, redact.as_deref());
        }
        let total = self.elapsed_us();
        let record = &mut self.record;
        record.phase = Some(self.phase.name().into());
        record.status = status;
        record.outcome = Some(outcome.name().into());
        record.us.end(TOTAL, total);
        record.encode()
    }

    /// Makes the `end` record. Unless the content was whole, it names the request.
    pub(super) fn end(&self, status: Option<u16>, end: &End) -> Vec<u8> {
        let about = match end.outcome {
            Outcome::Whole => Record::default(),
            _ => Record {
                method: self.record.method.clone(),
                host: self.record.host.clone(),
                port: self.record.port,
                path: self.record.path.clone(),
                path_bytes: self.record.path_bytes,
                ..Record::default()
            },
        };
        Record {
            kind: "end".into(),
            id: self.record.id.clone(),
            time: Some(timestamp(SystemTime::now()).into()),
            session: self.record.session.clone(),
            traceparent: self.record.traceparent.clone(),
            outcome: Some(end.outcome.name().into()),
            status,
            reason: end.reason.map(Word::Borrowed),
            request_bytes: end.request_bytes,
            response_bytes: end.response_bytes,
            scrubbed: Some(end.scrubbed),
            us: [(TOTAL.into(), self.elapsed_us())].into(),
            ..about
        }
        .encode()
    }

    fn elapsed_us(&self) -> u64 {
        self.us_until(Instant::now())
    }

    fn us_until(&self, at: Instant) -> u64 {
        u64::try_from((at - self.began).as_micros()).unwrap_or(u64::MAX)
    }

    /// Every text chosen by the client, and how many bytes of it to show.
    fn texts(&mut self) -> impl Iterator<Item = (&mut Text, usize)> {
        let record = &mut self.record;
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
        let loans = record.lent.iter_mut().chain(&mut record.unlent);
        let places = loans.map(|lent| &mut lent.place);
        heads
            .chain(names)
            .chain(places.map(|place| (place, MOST_PLACE)))
    }
}

/// The first items of a list, and how many are left out.
fn listed<T>(all: &[T], text: impl Fn(&T) -> &str) -> (Vec<Text>, Option<u64>) {
    let (shown, rest) = all.split_at(all.len().min(MOST_LISTED));
    let more = (!rest.is_empty()).then_some(rest.len() as u64);
    (shown.iter().map(|one| text(one).into()).collect(), more)
}

fn injected(credential: &CredentialName, place: Text) -> Injected {
    Injected {
        credential: credential.as_str().into(),
        place,
    }
}

fn hex(id: ExchangeId) -> Text {
    let digits = id.to_hex();
    std::str::from_utf8(&digits)
        .expect("hexadecimal digits are ASCII")
        .into()
}

/// Keeps the part of a text that could be shown. Invalid UTF-8 becomes U+FFFD.
pub(super) fn kept(text: &[u8]) -> Option<Text> {
    let kept = &text[..text.len().min(MOST_KEPT)];
    (!kept.is_empty()).then(|| match std::str::from_utf8(kept) {
        Ok(text) => text.into(),
        Err(_) => String::from_utf8_lossy(kept).into(),
    })
}

/// Redacts the text, then cuts it to `most` bytes.
fn show(text: &mut Text, most: usize, redact: Option<&dyn Redact>) {
    let mut places = Vec::new();
    if let Some(redact) = redact {
        redact.redact(text.as_bytes(), &mut places);
    }
    places.sort_unstable_by_key(|place| place.start);
    if !places.is_empty() {
        *text = redacted(text.as_bytes(), &places).into();
    }
    if text.len() > most {
        *text = text[..text.floor_char_boundary(most)].into();
    }
}

/// Replaces each place in the text; overlapping places are merged, and places past the end are cut.
fn redacted(whole: &[u8], places: &[Range<usize>]) -> String {
    let mut out = Vec::with_capacity(whole.len());
    let mut at = 0;
    for place in places {
        let start = place.start.clamp(at, whole.len());
        let end = place.end.clamp(at, whole.len());
        out.extend_from_slice(&whole[at..start]);
        if end > start {
            out.extend_from_slice(CONCEALED);
        }
        at = end;
    }
    out.extend_from_slice(&whole[at..]);
    String::from_utf8_lossy(&out).into_owned()
}

const TOTAL: &str = "total";
const CONCEALED: &[u8] = b"[phantom]";
/// More than the shown part plus any phantom, so that no phantom is cut before it is found.
const MOST_KEPT: usize = 32 * 1024;
const TRACEPARENT_BYTES: usize = 55;
const MOST_METHOD: usize = 32;
/// The cause of a refusal, in bytes.
const MOST_CAUSE: usize = 400;
const MOST_HOST: usize = 255;
const MOST_PATH: usize = 2048;
const MOST_NAME: usize = 64;
const MOST_NAMES: usize = 32;
const MOST_LISTED: usize = 16;
const MOST_PLACE: usize = 128;
/// The length of one escaped byte, as in `\u001b`.
const LONGEST_ESCAPE: usize = 6;
