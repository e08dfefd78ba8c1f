//! Content, read before a request is judged where its verdict depends on it.

use std::sync::Arc;

use arc_swap::Guard;
use bytes::Bytes;

use super::content::{ContentFacts, Declared};
use super::generation::{Generation, Policies};
use super::stages::Asked;
use crate::body::fact::plain;
use crate::body::{HoldBudget, HoldFault, Limit, Share};
use crate::session::Identified;

/// What reading content may take.
#[derive(Clone, Copy, Debug)]
pub struct Room<'a> {
    /// The longest content of one request, with its coding and without.
    pub limit: Limit,
    /// For the content of all requests.
    pub held: &'a Arc<HoldBudget>,
    /// For what undoes codings.
    pub decoding: &'a Arc<HoldBudget>,
}

/// A request with all that its verdict depends on.
pub struct Gathered {
    pub(super) asked: Asked,
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
        room: Room<'_>,
    ) -> Result<Gathered, HoldFault> {
        let asked = Asked::new(identified.into_parts());
        let generation = self.look();
        if !asked.needs_content(&generation) {
            return Ok(Gathered { asked, generation });
        }
        drop(generation);
        // Large, and not for every request.
        let asked = Box::pin(asked.read(self.declared(), room)).await?;
        Ok(Gathered {
            asked,
            generation: self.look(),
        })
    }
}

impl Asked {
    /// Whether the verdict on the request, or on one of its loans, depends on content that has not
    /// been read.
    fn needs_content(&self, generation: &Generation) -> bool {
        let facts = self.facts();
        let loans = || {
            let mut lends = self.parts.lends.iter();
            lends.any(|lend| generation.needs_content(&facts, Some(lend)))
        };
        generation.reads_content() && (generation.needs_content(&facts, None) || loans())
    }

    /// Holds the content, and reads what is declared of it.
    async fn read(mut self, declared: &Arc<Declared>, room: Room<'_>) -> Result<Self, HoldFault> {
        let session = self.parts.session.clone();
        let budget = session.part_of(room.held);
        self.parts.content = self.parts.content.hold(room.limit, budget).await?;
        let mut share = Share::of(budget.clone());
        let decoding = Share::of(session.decoding_of(room.decoding).clone());
        let fields = &self.parts.head.fields;
        let bytes = match self.parts.content.held() {
            Some(held) => plain(fields, held, room.limit, &mut share, decoding).await?,
            None => None,
        };
        self.content = Some(match bytes {
            Some(bytes) => self.facts_of(declared, bytes).await,
            None => ContentFacts::default(),
        });
        Ok(self)
    }

    async fn facts_of(&self, declared: &Arc<Declared>, bytes: Bytes) -> ContentFacts {
        let head = &self.parts.head;
        let query = head.target.query().unwrap_or_default();
        if bytes.len() <= SHORT {
            return declared.read(&head.origin, &head.fields, query, &bytes);
        }
        // Other exchanges run on this thread.
        let (declared, origin) = (declared.clone(), head.origin.clone());
        let (fields, query) = (head.fields.clone(), query.to_owned());
        let read = move || declared.read(&origin, &fields, &query, &bytes);
        // What is not read is left out, so that a failure denies.
        tokio::task::spawn_blocking(read).await.unwrap_or_default()
    }
}

/// What is read in less time than a thread is woken in.
const SHORT: usize = 64 << 10;
