//! What a trail has gathered, and how it becomes the fields of a record.

use std::fmt::{self, Write as _};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use http::Version;

use super::encode::{self, decimal, key, name, number, string, time, word};
use super::trail::{Conceal, Decision, Dialled, End, Length, Outcome, Phase};
use crate::names::{Blame, CredentialName, ExchangeId, PolicyId, SessionId};

/// Where a kept text stands in [`Draft::texts`].
#[derive(Clone, Copy, Default)]
pub(super) struct Span {
    start: usize,
    end: usize,
}

/// Everything known of one exchange; reused, so that its buffers stay.
pub(super) struct Draft {
    pub(super) id: ExchangeId,
    entry: &'static str,
    at: SystemTime,
    began: Instant,
    texts: Vec<u8>,
    pub(super) conceal: Option<Arc<dyn Conceal>>,
    pub(super) session: Option<SessionId>,
    pub(super) protocol: Option<Version>,
    pub(super) method: Span,
    pub(super) scheme: Option<&'static str>,
    pub(super) host: Span,
    pub(super) port: Option<u16>,
    pub(super) path: Span,
    names: Vec<Span>,
    more_names: u64,
    pub(super) phase: Phase,
    /// Microseconds until each phase, where its bit is in `phases`.
    reached: [u64; 7],
    phases: u8,
    pub(super) decision: Option<Decision>,
    pub(super) policies: Option<Arc<[PolicyId]>>,
    pub(super) generation: Option<u64>,
    pub(super) lent: Vec<(CredentialName, Span)>,
    pub(super) notes: Vec<(&'static str, Option<CredentialName>, Option<Span>)>,
    pub(super) dialled: Option<(Dialled, Version)>,
    pub(super) origin_status: Option<u16>,
    pub(super) refusal: Option<(&'static str, Blame)>,
    pub(super) cut: Option<&'static str>,
    pub(super) request_bytes: Option<u64>,
    pub(super) response_bytes: Option<u64>,
    pub(super) scrubbed: u64,
}

impl Default for Draft {
    /// One without an exchange; the time is replaced when one begins.
    fn default() -> Self {
        Self {
            id: ExchangeId::from_bytes([0; 10]),
            entry: "",
            at: SystemTime::UNIX_EPOCH,
            began: Instant::now(),
            texts: Vec::new(),
            conceal: None,
            session: None,
            protocol: None,
            method: Span::default(),
            scheme: None,
            host: Span::default(),
            port: None,
            path: Span::default(),
            names: Vec::new(),
            more_names: 0,
            phase: Phase::Accept,
            reached: [0; 7],
            phases: 0,
            decision: None,
            policies: None,
            generation: None,
            lent: Vec::new(),
            notes: Vec::new(),
            dialled: None,
            origin_status: None,
            refusal: None,
            cut: None,
            request_bytes: None,
            response_bytes: None,
            scrubbed: 0,
        }
    }
}

impl Draft {
    pub(super) fn begin(&mut self, id: ExchangeId, entry: &'static str) {
        (self.id, self.entry, self.at, self.began) = (id, entry, SystemTime::now(), Instant::now());
    }

    pub(super) fn reach(&mut self, phase: Phase) {
        if phase > self.phase {
            self.phase = phase;
            self.reached[phase as usize] = self.elapsed_us();
            self.phases |= 1 << phase as u8;
        }
    }

    /// Keeps a text, up to the length beyond which no part of it can be shown.
    pub(super) fn keep(&mut self, text: &[u8]) -> Span {
        let start = self.texts.len();
        self.texts
            .extend_from_slice(&text[..text.len().min(MOST_KEPT)]);
        Span {
            start,
            end: self.texts.len(),
        }
    }

    pub(super) fn keep_shown(&mut self, shown: &dyn fmt::Display) -> Span {
        let start = self.texts.len();
        // Only a Display that errs by itself fails here; what it wrote until then is kept.
        let _ = write!(Bounded(&mut self.texts, start + MOST_KEPT), "{shown}");
        Span {
            start,
            end: self.texts.len(),
        }
    }

    pub(super) fn query(&mut self, query: &[u8]) {
        self.names.clear();
        self.more_names = 0;
        for pair in query
            .split(|&byte| byte == b'&')
            .filter(|pair| !pair.is_empty())
        {
            if self.names.len() == MOST_NAMES {
                self.more_names += 1;
                continue;
            }
            let name = pair.split(|&byte| byte == b'=').next().unwrap_or(pair);
            let span = self.keep(name);
            self.names.push(span);
        }
    }

    /// More bytes than this exchange's records will have, healing included, if little more becomes
    /// known.
    pub(super) fn most_bytes(&self) -> u64 {
        let lists = self.policies().len().min(MOST_LISTED) + 2 * self.lent.len().min(MOST_LISTED);
        (6 * self.texts.len().min(2 * MOST_PATH) + 160 * lists + 4096) as u64
    }

    /// Whether the record made at the answer already tells this end.
    pub(super) fn said_all(&self, length: Length, end: &End) -> bool {
        let as_announced =
            |said: Option<u64>, counted: Option<u64>| counted.is_none() || counted == said;
        matches!(length, Length::Known(_))
            && end.outcome == Outcome::Whole
            && end.scrubbed == self.scrubbed
            && as_announced(self.response_bytes, end.response_bytes)
            && as_announced(self.request_bytes.or(Some(0)), end.request_bytes)
    }

    fn policies(&self) -> &[PolicyId] {
        self.policies.as_deref().unwrap_or_default()
    }

    /// Forgets the exchange; `false` where the buffers grew too large to be kept.
    pub(super) fn clear(&mut self) -> bool {
        // Every field by name, so that none that is added is forgotten here; in place, for most are
        // empty.
        let Self {
            id: _,
            entry: _,
            at: _,
            began: _,
            texts,
            conceal,
            session,
            protocol,
            method,
            scheme,
            host,
            port,
            path,
            names,
            more_names,
            phase,
            reached: _,
            phases,
            decision,
            policies,
            generation,
            lent,
            notes,
            dialled,
            origin_status,
            refusal,
            cut,
            request_bytes,
            response_bytes,
            scrubbed,
        } = self;
        (*conceal, *session, *policies) = (None, None, None);
        (*method, *host, *path) = Default::default();
        (*protocol, *scheme, *port, *decision, *generation) = Default::default();
        (*dialled, *origin_status, *refusal, *cut) = Default::default();
        (*request_bytes, *response_bytes, *scrubbed, *more_names) = Default::default();
        (*phase, *phases) = (Phase::Accept, 0);
        texts.clear();
        names.clear();
        lent.clear();
        notes.clear();
        texts.capacity() <= MOST_SPARE_BYTES && lent.capacity().max(notes.capacity()) <= 64
    }

    fn has_reached(&self, phase: usize) -> bool {
        self.phases & 1 << phase != 0
    }

    fn elapsed_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn text(&self, span: Span) -> &[u8] {
        &self.texts[span.start..span.end]
    }

    /// Appends a client's text as JSON: concealed first, then cut to `most` bytes.
    fn string(&self, out: &mut Vec<u8>, span: Span, most: usize) {
        let whole = self.text(span);
        let mut places = Vec::new();
        if let Some(conceal) = &self.conceal {
            conceal.conceal(whole, &mut places);
        }
        if places.is_empty() {
            return string(out, cut(whole, most));
        }
        string(out, cut(&concealed(whole, &places), most));
    }
}

/// Writes the fields of an `exchange` record.
pub(super) fn write_exchange(
    out: &mut Vec<u8>,
    draft: &Draft,
    status: Option<u16>,
    outcome: Outcome,
) {
    out.extend_from_slice(b"\"kind\":\"exchange\"");
    word(out, name!("id"), &draft.id.to_hex());
    time(out, draft.at);
    if let Some(session) = &draft.session {
        word(out, name!("session"), session.as_str().as_bytes());
    }
    word(out, name!("entry"), draft.entry.as_bytes());
    write_target(out, draft);
    word(out, name!("phase"), draft.phase.name().as_bytes());
    write_judgement(out, draft);
    if let Some((address, protocol)) = draft.dialled {
        encode::address(out, name!("dialled"), address);
        word(out, name!("origin_protocol"), protocol_name(protocol));
    }
    word(out, name!("outcome"), outcome.name().as_bytes());
    optional(out, name!("status"), status);
    optional(out, name!("origin_status"), draft.origin_status);
    let reason = draft.refusal.map(|(reason, _)| reason).or(draft.cut);
    if let Some(reason) = reason {
        word(out, name!("reason"), reason.as_bytes());
    }
    if let Some((_, blame)) = draft.refusal {
        word(out, name!("blame"), blame.as_str().as_bytes());
    }
    optional(out, name!("request_bytes"), draft.request_bytes);
    optional(out, name!("response_bytes"), draft.response_bytes);
    if draft.scrubbed > 0 {
        number(out, name!("scrubbed"), draft.scrubbed);
    }
    write_times(out, draft);
}

/// Writes the fields of an `end` record.
pub(super) fn write_end(out: &mut Vec<u8>, draft: &Draft, status: Option<u16>, end: &End) {
    out.extend_from_slice(b"\"kind\":\"end\"");
    word(out, name!("id"), &draft.id.to_hex());
    time(out, SystemTime::now());
    if let Some(session) = &draft.session {
        word(out, name!("session"), session.as_str().as_bytes());
    }
    word(out, name!("outcome"), end.outcome.name().as_bytes());
    optional(out, name!("status"), status);
    if let Some(reason) = end.reason {
        word(out, name!("reason"), reason.as_bytes());
    }
    optional(out, name!("request_bytes"), end.request_bytes);
    optional(out, name!("response_bytes"), end.response_bytes);
    number(out, name!("scrubbed"), end.scrubbed);
    key(out, name!("us"));
    out.push(b'{');
    out.extend_from_slice(b"\"total\":");
    decimal(out, draft.elapsed_us());
    out.push(b'}');
}

fn write_target(out: &mut Vec<u8>, draft: &Draft) {
    if let Some(protocol) = draft.protocol {
        word(out, name!("protocol"), protocol_name(protocol));
    }
    client_text(out, draft, name!("method"), draft.method, MOST_METHOD);
    if let Some(scheme) = draft.scheme {
        word(out, name!("scheme"), scheme.as_bytes());
    }
    client_text(out, draft, name!("host"), draft.host, MOST_HOST);
    optional(out, name!("port"), draft.port);
    client_text(out, draft, name!("path"), draft.path, MOST_PATH);
    if draft.text(draft.path).len() > MOST_PATH {
        number(
            out,
            name!("path_bytes"),
            draft.text(draft.path).len() as u64,
        );
    }
    if !draft.names.is_empty() {
        list(out, name!("query"), &draft.names, |out, &name| {
            match draft.text(name).len() {
                // A long name is more likely data than a name.
                long if long > MOST_NAME => string(out, format!("[{long} bytes]").as_bytes()),
                _ => draft.string(out, name, usize::MAX),
            }
        });
    }
    if draft.more_names > 0 {
        number(out, name!("query_more"), draft.more_names);
    }
}

fn write_judgement(out: &mut Vec<u8>, draft: &Draft) {
    if let Some(decision) = draft.decision {
        word(out, name!("decision"), decision.name().as_bytes());
        bounded_list(
            out,
            name!("policies"),
            name!("policies_more"),
            draft.policies(),
            |out, policy| {
                out.push(b'"');
                out.extend_from_slice(policy.as_str().as_bytes());
                out.push(b'"');
            },
        );
    }
    optional(out, name!("generation"), draft.generation);
    bounded_list(
        out,
        name!("lent"),
        name!("lent_more"),
        &draft.lent,
        |out, (credential, place)| {
            out.extend_from_slice(b"{\"credential\":\"");
            out.extend_from_slice(credential.as_str().as_bytes());
            out.push(b'"');
            key(out, name!("place"));
            draft.string(out, *place, MOST_PLACE);
            out.push(b'}');
        },
    );
    bounded_list(
        out,
        name!("notes"),
        name!("notes_more"),
        &draft.notes,
        |out, (note, credential, place)| {
            out.extend_from_slice(b"{\"note\":");
            string(out, note.as_bytes());
            if let Some(credential) = credential {
                word(out, name!("credential"), credential.as_str().as_bytes());
            }
            if let Some(place) = place {
                key(out, name!("place"));
                draft.string(out, *place, MOST_PLACE);
            }
            out.push(b'}');
        },
    );
}

fn write_times(out: &mut Vec<u8>, draft: &Draft) {
    key(out, name!("us"));
    out.push(b'{');
    for (at, name) in PHASE_KEYS.iter().enumerate() {
        if draft.has_reached(at) {
            out.extend_from_slice(name);
            decimal(out, draft.reached[at]);
            out.push(b',');
        }
    }
    out.extend_from_slice(b"\"total\":");
    decimal(out, draft.elapsed_us());
    out.push(b'}');
}

#[inline(always)]
fn client_text(out: &mut Vec<u8>, draft: &Draft, name: &'static [u8], span: Span, most: usize) {
    if span.end > span.start {
        key(out, name);
        draft.string(out, span, most);
    }
}

#[inline(always)]
fn optional(out: &mut Vec<u8>, name: &'static [u8], value: Option<impl Into<u64>>) {
    if let Some(value) = value {
        number(out, name, value.into());
    }
}

fn list<T>(out: &mut Vec<u8>, name: &'static [u8], items: &[T], write: impl Fn(&mut Vec<u8>, &T)) {
    key(out, name);
    out.push(b'[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(b']');
}

fn bounded_list<T>(
    out: &mut Vec<u8>,
    name: &'static [u8],
    more: &'static [u8],
    items: &[T],
    write: impl Fn(&mut Vec<u8>, &T),
) {
    let (shown, rest) = items.split_at(items.len().min(MOST_LISTED));
    if !shown.is_empty() {
        list(out, name, shown, write);
    }
    if !rest.is_empty() {
        number(out, more, rest.len() as u64);
    }
}

/// The text with each place replaced; places that overlap or run over are taken together.
fn concealed(whole: &[u8], places: &[Range<usize>]) -> Vec<u8> {
    let mut out = Vec::with_capacity(whole.len());
    let mut at = 0;
    for place in places {
        let (start, end) = (
            place.start.clamp(at, whole.len()),
            place.end.clamp(at, whole.len()),
        );
        out.extend_from_slice(&whole[at..start]);
        if end > start {
            out.extend_from_slice(CONCEALED);
        }
        at = end;
    }
    out.extend_from_slice(&whole[at..]);
    out
}

/// At most so many bytes, and no part of a letter at the end.
fn cut(whole: &[u8], most: usize) -> &[u8] {
    if whole.len() <= most {
        return whole;
    }
    let back = whole[..=most]
        .iter()
        .rev()
        .take(4)
        .position(|byte| byte & 0xc0 != 0x80)
        .unwrap_or(0);
    &whole[..most - back]
}

fn protocol_name(version: Version) -> &'static [u8] {
    match version {
        Version::HTTP_10 => b"http/1.0",
        Version::HTTP_11 => b"http/1.1",
        Version::HTTP_2 => b"h2",
        _ => b"unknown",
    }
}

impl Phase {
    fn name(self) -> &'static str {
        PHASES[self as usize]
    }
}

impl Decision {
    fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Whole => "whole",
            Self::Cut => "cut",
            Self::Aborted => "aborted",
        }
    }
}

struct Bounded<'a>(&'a mut Vec<u8>, usize);

impl fmt::Write for Bounded<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.1.saturating_sub(self.0.len());
        self.0
            .extend_from_slice(&text.as_bytes()[..text.len().min(room)]);
        Ok(())
    }
}

const PHASES: [&str; 7] = [
    "accept",
    "identify",
    "authorize",
    "open",
    "attach",
    "forward",
    "answer",
];
const PHASE_KEYS: [&[u8]; 7] = [
    b"\"accept\":",
    b"\"identify\":",
    b"\"authorize\":",
    b"\"open\":",
    b"\"attach\":",
    b"\"forward\":",
    b"\"answer\":",
];
const CONCEALED: &[u8] = b"[phantom]";
/// Longer than any phantom beyond what is shown, so that none is cut before it is found.
const MOST_KEPT: usize = 32 * 1024;
const MOST_METHOD: usize = 32;
const MOST_HOST: usize = 255;
const MOST_PATH: usize = 2048;
const MOST_NAME: usize = 64;
const MOST_NAMES: usize = 32;
const MOST_LISTED: usize = 16;
const MOST_PLACE: usize = 128;
const MOST_SPARE_BYTES: usize = 8192;
