//! Reads the content of a request before it is judged, if the verdict depends on it.

use std::sync::Arc;

use gateway_audit::SeenCredentials;
use gateway_body::fact::{FormRemainder, PlainContent, is_multipart_name, plain};
use gateway_body::read::Prefix;
use gateway_body::{Document, FormFault, HoldBudget, HoldFault, Limit, Questions, Share};
use gateway_intercept::Request;
use gateway_message::RequestHead;
use gateway_session::{
    ContentSearch, CredentialRefusal, CredentialUse, DetectedCredentials, Identified, Session,
};

use super::applicable::KnownRules;
use super::content::{ContentFacts, Declared};
use super::generation::{Generation, Policies};
use super::judged::{JudgedRequest, RefusedQuestion};

/// The limits for reading content.
#[derive(Clone, Copy, Debug)]
pub struct ContentBudget<'a> {
    /// The longest content of one request, both encoded and decoded.
    pub limit: Limit,
    /// The budget for the content of all requests.
    pub held: &'a Arc<HoldBudget>,
    /// The budget for decoders.
    pub decoding: &'a Arc<HoldBudget>,
}

/// Why a request is not judged. Nothing of it was sent.
#[derive(Debug, thiserror::Error)]
pub enum GatherFailure {
    /// Its content cannot be buffered.
    #[error(transparent)]
    Held(#[from] HoldFault),
    /// A credential must not be in its content, or the content cannot be searched.
    #[error(transparent)]
    Refused(#[from] CredentialRefusal),
}

/// A request with everything its verdict depends on.
pub struct Gathered {
    pub(super) request: Box<Request>,
    pub(super) presented: DetectedCredentials,
    pub(super) judged: Arc<JudgedRequest>,
    /// The policies that judge it: those by which it was decided whether to read its content.
    pub(super) generation: Arc<Generation>,
    /// The denial by its head, if its content was not read because of that.
    pub(super) refused: Option<RefusedQuestion>,
}

impl Gathered {
    /// Returns the session that makes the request.
    pub fn session(&self) -> &Session {
        self.judged.session()
    }
}

impl Policies {
    /// Reads the content of a request, if its verdict may depend on it, or if the service accepts
    /// credentials in it.
    ///
    /// Any other request passes through unchanged, and so does one that a policy denies by its
    /// head. The applicable rules are looked up in `known`.
    ///
    /// # Errors
    /// [`GatherFailure`] by cause.
    pub async fn gather(
        &self,
        identified: Identified,
        known: &KnownRules,
        budget: ContentBudget<'_>,
    ) -> Result<Gathered, GatherFailure> {
        let (mut request, session, mut presented) = identified.into_parts();
        let generation = self.current();
        let rules = known.of(
            generation.number(),
            (&session, request.connection.caller.as_ref()),
            &request.head.origin.authority.host,
        );
        let mut judged = JudgedRequest::new(&request, session, rules, &presented);
        let search = if request.content.is_empty() {
            Ok(None)
        } else {
            presented.in_content(&request.head)
        };
        // A token may be for one content, or have a budget of what contents ask for.
        let is_searched = !matches!(search, Ok(None)) || judged.is_counted_by_content();
        let fields = &request.head.fields;
        let (is_read, refused) = match generation.asks_for_content(&judged, is_searched, fields) {
            Some(Ok(_)) => (is_searched, None),
            Some(Err(refused)) if refused.is_for_content() => (true, None),
            Some(Err(refused)) => (false, Some(refused)),
            None => (false, None),
        };
        if is_read {
            let search = search?;
            // Boxed because the future is large and most requests do not need it.
            let read = self.read(request, &mut judged, &mut presented, search, budget);
            request = Box::pin(read).await?;
        }
        Ok(Gathered {
            request,
            presented,
            judged: Arc::new(judged),
            generation,
            refused,
        })
    }

    /// Buffers the content, or the beginning if that is enough, and reads the declared facts and
    /// the credentials in it.
    async fn read(
        &self,
        request: Box<Request>,
        judged: &mut JudgedRequest,
        presented: &mut DetectedCredentials,
        search: Option<ContentSearch>,
        budget: ContentBudget<'_>,
    ) -> Result<Box<Request>, GatherFailure> {
        let session = judged.session().clone();
        let held = session.part_of(budget.held);
        let commands = match &search {
            Some(_) => None,
            None => self.declared().prefix(&request.head),
        };
        let is_form = commands.is_none();
        // A signature covers all of the content.
        let prefix = commands.or_else(|| {
            if presented.is_signed() {
                None
            } else {
                Prefix::of_parts(&request.head.fields, budget.limit)
            }
        });
        let mut request = request.hold(budget.limit, held, prefix).await?;
        let streams = is_form && request.content.held().is_none();
        let mut share = Share::of(held.clone());
        let decoding = Share::of(session.decoding_of(budget.decoding).clone());
        let fields = &request.head.fields;
        let plain = match request.content.ahead() {
            Some(held) => plain(fields, held, budget.limit, &mut share, decoding).await?,
            None => None,
        };
        let is_searched = search.is_some();
        let Some(plain) = plain.map(|plain| PlainContent { streams, ..plain }) else {
            judged.keep_content(ContentFacts::default());
            return if is_searched {
                Err(unreadable(FormFault::Coded).into())
            } else {
                Ok(request)
            };
        };
        let (bytes, is_coded) = (plain.bytes.clone(), !plain.coded.is_empty());
        // Encoded content is noted here; other content is searched as it is sent.
        let noted = request.noted.clone().filter(|_| is_coded && !is_searched);
        let search = search.map(Arc::new);
        let read = ContentReader {
            declared: self.declared().clone(),
            head: request.head.clone(),
            upgrades: request.upgrade.is_some(),
            search: search.clone(),
            noted,
            session,
        };
        let (facts, found) = read.of(plain, share).await;
        judged.keep_content(facts);
        presented.lend(found?)?;
        let parts = self.declared().parts(&request.head.origin);
        if streams && (is_searched || !parts.is_empty()) {
            let is_part = move |name: &str| parts.iter().any(|part| is_multipart_name(part, name));
            let is_asked = move |name: &str| {
                search.as_ref().is_some_and(|search| search.is_asked(name)) || is_part(name)
            };
            follow(&mut request, &bytes, Box::new(is_asked), presented)?;
        }
        if presented.is_in_content() || is_searched && is_coded {
            presented.allow_change(&request)?;
        }
        if is_searched && is_coded {
            request.decoded(bytes);
        }
        judged.present(presented);
        Ok(request)
    }
}

/// What to read from the content.
struct ContentReader {
    declared: Arc<Declared>,
    head: RequestHead,
    upgrades: bool,
    search: Option<Arc<ContentSearch>>,
    noted: Option<Arc<SeenCredentials>>,
    session: Arc<Session>,
}

/// The facts that were read, and the credentials that were found.
type ReadOutcome = (ContentFacts, Result<Vec<CredentialUse>, CredentialRefusal>);

impl ContentReader {
    /// Reads the content. `share` is the memory from the budget besides the buffered content.
    async fn of(self, content: PlainContent, share: Share) -> ReadOutcome {
        if content.bytes.len() + content.coded.len() <= SHORT {
            return self.at_once(&content);
        }
        // Other exchanges run on this thread.
        let read = move || {
            let read = self.at_once(&content);
            // Released only now: this continues after the client has left, and the next request's
            // content would come on top of it.
            drop((content, share));
            read
        };
        // If reading fails, no fact is read, so a policy that needs one denies.
        let failed = |_| {
            (
                ContentFacts::default(),
                Err(unreadable(FormFault::Disputed)),
            )
        };
        tokio::task::spawn_blocking(read)
            .await
            .unwrap_or_else(failed)
    }

    fn at_once(&self, content: &PlainContent) -> ReadOutcome {
        let search = self.search.as_deref();
        let is_asked = |name: &str| search.is_some_and(|search| search.is_asked(name));
        let mut questions = Questions::default();
        self.declared.ask(&self.head, &mut questions);
        if let Some(search) = search {
            search.ask(&mut questions, &is_asked);
        }
        let query = self.head.target.query().unwrap_or_default();
        let document = Document::read(&self.head.fields, query, content, &questions);
        let facts = self.declared.said(&self.head, self.upgrades, &document);
        let found = match search {
            Some(search) => self.session.find_in(search, &document),
            None => Ok(Vec::new()),
        };
        if let Some(noted) = &self.noted {
            self.session.note_in(&content.bytes, noted);
        }
        (facts, found)
    }
}

/// Lets the rest of the content pass only if it has none of the fields that were read.
fn follow(
    request: &mut Request,
    beginning: &[u8],
    is_asked: Box<dyn Fn(&str) -> bool + Send + Sync>,
    presented: &DetectedCredentials,
) -> Result<(), CredentialRefusal> {
    let behind = FormRemainder::new(&request.head.fields, beginning, is_asked);
    let behind = behind.ok_or_else(|| unreadable(FormFault::Disputed))?;
    request.content.follow(Box::new(behind));
    if presented.is_in_content() {
        // A digest there would be a digest of other bytes.
        request.content.drop_trailers();
    }
    Ok(())
}

fn unreadable(why: FormFault) -> CredentialRefusal {
    CredentialRefusal::Unreadable { why }
}

/// Content up to this size is read faster than a thread is woken, or as GraphQL within three
/// milliseconds.
const SHORT: usize = 16 << 10;
