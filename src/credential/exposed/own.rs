//! Finds, in what a workload sends, the real secrets that its session has phantoms for.
//!
//! A workload that has such a secret got it past the gateway: from a file of the project, or from a
//! process outside. Whole secrets are searched for, in every spelling that responses are searched
//! for, in the head and in the content as it arrives. This finds accidents. A workload that means
//! to hide a secret can encrypt it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use gateway_audit::Redact;
use gateway_body::{
    ArrivalCheck, Coding, Decoder, HoldBudget, HoldFault, Share, Step, TransformFault,
};
use gateway_message::{Origin, OriginPattern, RequestHead};
use gateway_names::{CredentialName, ReasonCode};
use gateway_session::phantom::Phantoms;
use gateway_session::{
    Bindings, CredentialRefusal, Foreign, Identified, PassingText, RequestPart, Session,
};
use http::HeaderMap;
use http::header::CONTENT_RANGE;
use memchr::memchr3;
use tokio::time::{Instant, sleep};

use crate::credentials::Credentials;
use crate::error::Error;
use crate::guesses::Guesses;
use crate::scrub::{EchoSearch, FINE, SecretForms};
use crate::search_snapshot::forms;
use crate::secret::Secret;
use crate::secret_history::SecretHistory;

/// What the requests of one session are searched for.
#[derive(Default)]
pub(crate) struct OwnSecrets {
    /// What they were collected from; `None` if they never were.
    from: Option<Sources>,
    secrets: Vec<OwnSecret>,
    echoes: Option<EchoSearch>,
}

/// What secrets were collected from.
struct Sources {
    changes: u64,
    bindings: Arc<Bindings>,
    phantoms: Arc<Phantoms>,
}

#[derive(Clone)]
struct OwnSecret {
    credential: CredentialName,
    secret: Arc<Secret>,
    forms: Arc<SecretForms>,
    /// The origins to which clients may send what they have from elsewhere.
    passes: Vec<OriginPattern>,
}

impl OwnSecrets {
    /// Returns where secrets stand in a text.
    fn find(&self, text: &[u8]) -> impl Iterator<Item = (Range<usize>, &OwnSecret)> {
        let found = self.echoes.as_ref().map(|echoes| echoes.whole(text));
        found
            .unwrap_or_default()
            .into_iter()
            .filter_map(|(place, forms)| {
                let mut secrets = self.secrets.iter();
                let one = secrets.find(|one| Arc::ptr_eq(&one.forms, forms))?;
                Some((place, one))
            })
    }

    /// Refuses a text that has a secret which may not be sent to the origin.
    fn refuse(
        &self,
        text: &[u8],
        to: &Origin,
        part: impl FnOnce() -> RequestPart,
    ) -> Result<(), CredentialRefusal> {
        let mut found = self.find(text).map(|(_, one)| one);
        match found.find(|one| !one.passes.iter().any(|bound| bound.matches(to))) {
            Some(one) => Err(CredentialRefusal::Secret {
                credential: one.credential.clone(),
                part: part(),
            }),
            None => Ok(()),
        }
    }

    fn refuse_head(&self, head: &RequestHead) -> Result<(), CredentialRefusal> {
        let to = &head.origin;
        self.refuse(head.target.path().as_bytes(), to, || RequestPart::Path)?;
        // A secret with a question mark ends the path.
        let target = head.target.path_and_query().as_str();
        self.refuse(target.as_bytes(), to, || RequestPart::Query)?;
        for (name, value) in &head.fields {
            let part = || RequestPart::Named(name.clone());
            self.refuse(value.as_bytes(), to, part)?;
        }
        Ok(())
    }
}

/// Keeps the secrets out of the session's records.
pub(super) struct HiddenSecrets(pub(super) Arc<ArcSwap<OwnSecrets>>);

impl Redact for HiddenSecrets {
    fn redact(&self, text: &[u8], places: &mut Vec<Range<usize>>) {
        places.extend(self.0.load().find(text).map(|(place, _)| place));
    }
}

/// The search of what one request sends.
pub(crate) struct OwnSearch {
    own: Arc<OwnSecrets>,
    to: Origin,
    sent: SearchedText,
    /// What control frames carry.
    control: SearchedText,
    coded: Option<CodedText>,
    /// The piece that is to be searched.
    piece: Option<Bytes>,
}

/// Coded content.
struct CodedText {
    decoder: Decoder,
    made: SearchedText,
    /// How many bytes may still be made of what came.
    room: u64,
}

impl OwnSearch {
    pub(crate) fn new(own: Arc<OwnSecrets>, to: Origin) -> Self {
        Self {
            own,
            to,
            sent: SearchedText::default(),
            control: SearchedText::default(),
            coded: None,
            piece: None,
        }
    }

    /// Searches the next part of a message. A control frame may interrupt another message.
    ///
    /// # Errors
    /// [`CredentialRefusal::Secret`].
    pub(crate) fn message(
        &mut self,
        piece: &[u8],
        is_control: bool,
    ) -> Result<(), CredentialRefusal> {
        let text = match is_control {
            true => &mut self.control,
            false => &mut self.sent,
        };
        in_content(&self.own, &self.to, text, piece)
    }

    fn decode(&mut self) -> Result<bool, TransformFault> {
        let Some(coded) = &mut self.coded else {
            return Ok(true);
        };
        for _ in 0..STEPS {
            match coded.decoder.step() {
                Ok(Step::Piece(piece)) => {
                    let room = coded.room.checked_sub(piece.len() as u64);
                    coded.room = room.ok_or_else(|| unreadable("it decodes to far more"))?;
                    in_content(&self.own, &self.to, &mut coded.made, &piece).map_err(fault)?;
                }
                // It had nothing to show for much work.
                Ok(Step::Busy) => {
                    let room = coded.room.checked_sub(BUSY);
                    coded.room = room.ok_or_else(|| unreadable("it decodes to nothing"))?;
                }
                Ok(Step::Starved | Step::End) => return Ok(true),
                Err(error) => return Err(unreadable(&error)),
            }
        }
        Ok(false)
    }
}

/// Searches the next piece of a text in the content.
fn in_content(
    own: &OwnSecrets,
    to: &Origin,
    text: &mut SearchedText,
    piece: &[u8],
) -> Result<(), CredentialRefusal> {
    let reach = own.echoes.as_ref().map_or(0, EchoSearch::longest);
    let refuse = |text: &[u8]| own.refuse(text, to, || RequestPart::Content).err();
    let joined = text.join(piece);
    let whole = text.whole.pass(piece, reach, refuse);
    let found = whole.or_else(|| text.joined.as_mut()?.pass(&joined, reach, refuse));
    found.map_or(Ok(()), Err)
}

/// A text in pieces, and its first part without line breaks, so that a secret is found that base64
/// wraps into lines.
#[derive(Default)]
struct SearchedText {
    whole: PassingText,
    /// `None` as long as it is the same.
    joined: Option<PassingText>,
    before: Before,
    /// How many bytes came.
    passed: usize,
}

/// What the last byte of a text was.
#[derive(Clone, Copy, Default)]
enum Before {
    #[default]
    Other,
    /// It began an escape.
    Escape,
    /// It ended a line, or was the indentation of one.
    Break,
}

impl SearchedText {
    /// Returns the next piece without line breaks, as they are and as string literals write them,
    /// and without the indentation behind them; nothing if the text has had none yet, or is past
    /// its first part.
    fn join(&mut self, piece: &[u8]) -> Vec<u8> {
        let is_first_part = self.passed < FINE;
        self.passed = self.passed.saturating_add(piece.len());
        let next_break = |text: &[u8]| memchr3(b'\n', b'\r', b'\\', text);
        if !is_first_part || self.joined.is_none() && next_break(piece).is_none() {
            return Vec::new();
        }
        if self.joined.is_none() {
            self.joined = Some(self.whole.clone());
        }
        let (mut joined, mut rest) = (Vec::with_capacity(piece.len()), piece);
        while let [first, behind @ ..] = rest {
            match (self.before, first) {
                (Before::Break, b' ' | b'\t') => rest = behind,
                (Before::Escape, b'n' | b'r') => (self.before, rest) = (Before::Break, behind),
                (Before::Escape, _) => {
                    joined.extend([b'\\', *first]);
                    (self.before, rest) = (Before::Other, behind);
                }
                _ => {
                    let (line, end) = rest.split_at(next_break(rest).unwrap_or(rest.len()));
                    joined.extend_from_slice(line);
                    self.before = match end.first() {
                        Some(b'\\') => Before::Escape,
                        Some(_) => Before::Break,
                        None => Before::Other,
                    };
                    rest = end.get(1..).unwrap_or_default();
                }
            }
        }
        joined
    }
}

impl ArrivalCheck for OwnSearch {
    fn take(&mut self, piece: Bytes) {
        if let Some(coded) = &mut self.coded {
            let room = (piece.len() as u64).saturating_mul(MOST_OF_A_BYTE);
            coded.room = coded.room.saturating_add(room);
            coded.decoder.feed(piece.clone());
        }
        self.piece = Some(piece);
    }

    fn step(&mut self) -> Result<bool, TransformFault> {
        if let Some(piece) = self.piece.take() {
            in_content(&self.own, &self.to, &mut self.sent, &piece).map_err(fault)?;
        }
        self.decode()
    }

    fn trailers(&mut self, fields: &HeaderMap) -> Result<(), TransformFault> {
        for value in fields.values() {
            let refused = self
                .own
                .refuse(value.as_bytes(), &self.to, || RequestPart::Field);
            refused.map_err(fault)?;
        }
        Ok(())
    }
}

/// Returns a decoder, once there is memory for it.
async fn decoder(codings: &[Coding], budget: &Arc<HoldBudget>) -> Result<Decoder, HoldFault> {
    let until = Instant::now() + MEMORY_WITHIN;
    loop {
        // `parse_list` returns no more than a decoder takes.
        let decoder = Decoder::new(codings).map_err(|_| HoldFault::Busy)?;
        match decoder.within(Share::of(budget.clone())) {
            Err(HoldFault::Busy) if Instant::now() < until => sleep(MEMORY_EACH).await,
            made => return made,
        }
    }
}

fn unreadable(why: &(impl fmt::Display + ?Sized)) -> TransformFault {
    TransformFault {
        reason: ReasonCode::ContentUnreadable,
        text: format!("the coded content cannot be searched: {why}"),
    }
}

fn fault(why: CredentialRefusal) -> TransformFault {
    TransformFault {
        reason: why.reason(),
        text: why.to_string(),
    }
}

impl Credentials {
    /// Refuses a request whose head has a secret of its session, and has its content searched as it
    /// arrives. Costs nothing in a session without credentials.
    ///
    /// # Errors
    /// [`Error::Misplaced`] if a secret was found; [`Error::Held`] if its content needs a decoder
    /// and there is no memory for one.
    pub async fn search_sent(&self, identified: &mut Identified) -> Result<(), Error> {
        let (request, session) = (identified.request(), identified.session());
        let Some(own) = self.own(session).await? else {
            return Ok(());
        };
        own.refuse_head(&request.head).map_err(Error::Misplaced)?;
        if request.content.is_empty() {
            return Ok(());
        }
        let mut search = OwnSearch::new(own, request.head.origin.clone());
        // Content in another coding is searched as it is, and so is a part of what is coded.
        let fields = &request.head.fields;
        let codings = Coding::parse_list(fields).unwrap_or_default();
        if !codings.is_empty() && !fields.contains_key(CONTENT_RANGE) {
            let budget = session.decoding_of(&self.holding().decoding);
            let decoder = decoder(&codings, budget).await.map_err(Error::Held)?;
            search.coded = Some(CodedText {
                decoder,
                made: SearchedText::default(),
                room: ROOM,
            });
        }
        identified.check_content(Box::new(search));
        Ok(())
    }

    /// Collects what a session's requests are searched for, and records must not show.
    pub async fn know(&self, session: &Arc<Session>) {
        // Whoever searches a request is told.
        let _ = self.own(session).await;
    }

    /// Returns what a session's requests are searched for; `None` without anything to find.
    pub(crate) async fn own(
        &self,
        session: &Arc<Session>,
    ) -> Result<Option<Arc<OwnSecrets>>, Error> {
        let own = &self.exposed(session)?.own;
        let mut now = own.load_full();
        let is_known = now
            .from
            .as_ref()
            .is_some_and(|from| self.is_from(from, session));
        if !is_known {
            // Boxed because it is large and rare.
            Box::pin(self.read_at_hand(session)).await?;
            now = Arc::new(self.collected(&now, self.sources(session))?);
            own.store(now.clone());
        }
        Ok(now.echoes.is_some().then_some(now))
    }

    fn is_from(&self, from: &Sources, session: &Session) -> bool {
        from.changes == SecretHistory::changes()
            && Arc::ptr_eq(&from.bindings, self.bindings())
            && Arc::ptr_eq(&from.phantoms, &session.phantoms())
    }

    fn sources(&self, session: &Session) -> Sources {
        Sources {
            changes: SecretHistory::changes(),
            bindings: self.bindings().clone(),
            phantoms: session.phantoms(),
        }
    }

    /// Reads the secrets of a session that a read costs nothing of, and that nothing has read.
    async fn read_at_hand(&self, session: &Session) -> Result<(), Error> {
        let phantoms = session.phantoms();
        for (at, binding) in self.bindings().all().enumerate() {
            let slot = self.slot(at)?;
            let is_unread = || slot.had().next().is_none();
            if phantoms.of(&binding.credential).is_some()
                && slot.source.reference().is_at_hand()
                && is_unread()
                && let Ok(read) = slot.source.resolve(Some(session.id())).await
            {
                self.note(at, &read.secret);
            }
        }
        Ok(())
    }

    /// Collects the secrets of the credentials that a session has phantoms for, as far as they were
    /// read.
    fn collected(&self, before: &OwnSecrets, from: Sources) -> Result<OwnSecrets, Error> {
        let mut secrets: Vec<OwnSecret> = Vec::new();
        for (at, binding) in self.bindings().all().enumerate() {
            let Some(phantom) = from.phantoms.of(&binding.credential) else {
                continue;
            };
            for secret in self.slot(at)?.had() {
                if secret.expose().len() < LEAST {
                    continue;
                }
                let passes = match binding.foreign {
                    Foreign::Pass => binding.origins.clone(),
                    Foreign::Refuse | Foreign::Strip => Vec::new(),
                };
                let is_it = |one: &OwnSecret| one.secret.expose() == secret.expose();
                if let Some(same) = secrets.iter_mut().find(|one| is_it(one)) {
                    same.passes.extend(passes);
                    continue;
                }
                let mut known = before.secrets.iter().filter(|one| is_it(one));
                let known = known.find(|one| one.credential == binding.credential);
                let made = || {
                    let forms = forms(&secret, Some(phantom)).or_else(|_| forms(&secret, None));
                    forms.map(|forms| OwnSecret {
                        credential: binding.credential.clone(),
                        secret: secret.clone(),
                        passes: Vec::new(),
                        forms,
                    })
                };
                let one = known.cloned().map_or_else(made, Ok)?;
                secrets.push(OwnSecret { passes, ..one });
            }
        }
        let forms = secrets.iter().map(|one| one.forms.clone()).collect();
        let echoes = EchoSearch::of(forms, Arc::new(Guesses::new(None)));
        Ok(OwnSecrets {
            from: Some(from),
            echoes: (!secrets.is_empty()).then_some(echoes),
            secrets,
        })
    }
}

/// The shortest secret that is searched for, in bytes. Shorter ones are often common words.
const LEAST: usize = 12;

/// How many bytes coded content may be at first, and by how many each byte that comes raises that:
/// gzip makes at most 1,032 of one, and other codings more only of what repeats itself.
const ROOM: u64 = 16 << 20;
const MOST_OF_A_BYTE: u64 = 2048;

/// How many pieces of at most 32 KiB are decoded before other tasks run.
const STEPS: usize = 4;

/// What a step without a piece takes of the room.
const BUSY: u64 = 64 << 10;

/// How long coded content waits for memory to decode it, and how often it is tried.
const MEMORY_WITHIN: Duration = Duration::from_secs(10);
const MEMORY_EACH: Duration = Duration::from_millis(20);
