//! Reads the content of a request before it is judged, if the verdict depends on it.

use std::sync::Arc;

use super::applicable::KnownRules;
use super::content::{ContentFacts, Declared};
use super::generation::Generation;
use super::judged::JudgedRequest;
use super::policies::Policies;
use crate::body::fact::{Plain, plain};
use crate::body::{HoldBudget, HoldFault, Limit, Share};
use crate::intercept::Request;
use crate::session::{DetectedCredentials, Identified};

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

/// A request with everything its verdict depends on.
pub struct Gathered {
    pub(super) request: Box<Request>,
    pub(super) presented: DetectedCredentials,
    pub(super) judged: Arc<JudgedRequest>,
    /// The policies that judge it: those that decided whether to read its content.
    pub(super) generation: Arc<Generation>,
}

impl Policies {
    /// Reads the content of a request, if its verdict may depend on it.
    ///
    /// That is so if, judging by the head, a policy that reads content may apply, and no other
    /// policy already denies the request. Any other request passes through unchanged. `known` is
    /// where the rules are looked up that can apply.
    ///
    /// # Errors
    /// [`HoldFault`] if the content cannot be held whole. None of it was sent.
    pub async fn gather(
        &self,
        identified: Identified,
        known: &KnownRules,
        budget: ContentBudget<'_>,
    ) -> Result<Gathered, HoldFault> {
        let (mut request, session, presented) = identified.into_parts();
        let generation = self.current();
        let rules = known.of(
            generation.number(),
            (&session, request.connection.caller.as_ref()),
            &request.head.origin.authority.host,
        );
        let judged = Arc::new(JudgedRequest::new(&request, session, rules, &presented));
        if generation.needs_content(&judged, &request.head.fields) {
            // Boxed because the future is large and most requests do not need it.
            let (held, content) = Box::pin(self.read(request, &judged, budget)).await?;
            request = held;
            judged.keep_content(content);
        }
        Ok(Gathered {
            request,
            presented,
            judged,
            generation,
        })
    }

    /// Holds the content, and reads the declared facts from it.
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

/// Reads the declared facts. `share` is what the content takes from the budget, besides the held
/// content.
async fn facts_of(
    declared: &Arc<Declared>,
    request: &Request,
    content: Plain,
    share: Share,
) -> ContentFacts {
    let (head, upgrades) = (&request.head, request.upgrade.is_some());
    if content.bytes.len() + content.coded.len() <= SHORT {
        return declared.read(head, upgrades, &content);
    }
    // Other exchanges run on this thread.
    let (declared, head) = (declared.clone(), head.clone());
    let read = move || {
        let facts = declared.read(&head, upgrades, &content);
        // Released only now: this continues after the client has left, and the next request's
        // content would come on top of it.
        drop((content, share));
        facts
    };
    // If reading fails, no fact is read, so a policy that needs one denies.
    tokio::task::spawn_blocking(read).await.unwrap_or_default()
}

/// Content up to this size is read faster than a thread is woken, or as GraphQL within three
/// milliseconds.
const SHORT: usize = 16 << 10;
