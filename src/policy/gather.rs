//! Content, read before a request is judged where its verdict depends on it.

use std::sync::Arc;

use super::content::{ContentFacts, Declared};
use super::generation::Generation;
use super::judged::JudgedRequest;
use super::policies::Policies;
use crate::body::fact::{Plain, plain};
use crate::body::{HoldBudget, HoldFault, Limit, Share};
use crate::intercept::Request;
use crate::session::{DetectedCredentials, Identified};
use arc_swap::Guard;

/// What reading content may take.
#[derive(Clone, Copy, Debug)]
pub struct ContentBudget<'a> {
    /// The longest content of one request, with its coding and without.
    pub limit: Limit,
    /// For the content of all requests.
    pub held: &'a Arc<HoldBudget>,
    /// For what undoes codings.
    pub decoding: &'a Arc<HoldBudget>,
}

/// A request with all that its verdict depends on.
pub struct Gathered {
    pub(super) request: Box<Request>,
    pub(super) presented: DetectedCredentials,
    pub(super) judged: JudgedRequest,
    /// The policies that judge it: those that said whether its content is needed, or newer ones
    /// where it was read.
    pub(super) generation: Guard<Arc<Generation>>,
}

impl Policies {
    /// Reads the content of a request where some policy that reads content may apply to it by its
    /// head, and no other policy denies it already. Every other request goes on as it came.
    ///
    /// # Errors
    /// [`HoldFault`] where the content cannot be judged whole; nothing of it was sent.
    pub async fn gather(
        &self,
        identified: Identified,
        budget: ContentBudget<'_>,
    ) -> Result<Gathered, HoldFault> {
        let (mut request, session, presented) = identified.into_parts();
        let mut judged = JudgedRequest::new(&request, session, &presented);
        let mut generation = self.look();
        if generation.needs_content(&judged, &request.head.fields) {
            drop(generation);
            // Large, and not for every request.
            let (held, content) = Box::pin(self.read(request, &judged, budget)).await?;
            request = held;
            judged.keep_content(content);
            generation = self.look();
        }
        Ok(Gathered {
            request,
            presented,
            judged,
            generation,
        })
    }

    /// Holds the content, and reads what is declared of it.
    async fn read(
        &self,
        request: Box<Request>,
        judged: &JudgedRequest,
        budget: ContentBudget<'_>,
    ) -> Result<(Box<Request>, ContentFacts), HoldFault> {
        let held = judged.session().part_of(budget.held);
        let request = request.hold(budget.limit, held).await?;
        let mut share = Share::of(held.clone());
        let decoding = Share::of(judged.session().decoding_of(budget.decoding).clone());
        let fields = &request.head.fields;
        let plain = match request.content.held() {
            Some(held) => plain(fields, held, budget.limit, &mut share, decoding).await?,
            None => None,
        };
        let content = match plain {
            Some(plain) => facts_of(self.declared(), &request, plain, share).await,
            None => ContentFacts::default(),
        };
        Ok((request, content))
    }
}

/// Reads what is declared; `share` is what of the budget the content takes beside the held one.
async fn facts_of(
    declared: &Arc<Declared>,
    request: &Request,
    content: Plain,
    share: Share,
) -> ContentFacts {
    let head = &request.head;
    let query = head.target.query().unwrap_or_default();
    if content.bytes.len() + content.coded.len() <= SHORT {
        return declared.read(&head.origin, &head.fields, query, &content);
    }
    // Other exchanges run on this thread.
    let (declared, origin) = (declared.clone(), head.origin.clone());
    let (fields, query) = (head.fields.clone(), query.to_owned());
    let read = move || {
        let facts = declared.read(&origin, &fields, &query, &content);
        // Not before: this goes on where the client leaves, and the next one's content would come
        // on top of it.
        drop((content, share));
        facts
    };
    // What is not read is left out, so that a failure denies.
    tokio::task::spawn_blocking(read).await.unwrap_or_default()
}

/// What is read in less time than a thread is woken in.
const SHORT: usize = 64 << 10;
