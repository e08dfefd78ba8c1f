//! The policies in force, and how one generation replaces another.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};

use super::content::Declared;
use super::generation::Generation;
use super::source::{Problems, Source};

/// The policies in force, replaced whole or not at all.
#[derive(Debug)]
pub struct Policies {
    current: ArcSwap<Generation>,
    declared: Arc<Declared>,
    /// Held while a set is replaced, so that numbers rise in the order of the swaps.
    replacing: Mutex<()>,
}

impl Policies {
    /// Loads the first generation, number 1, which may read what is declared of content. No source
    /// at all permits nothing.
    ///
    /// # Errors
    /// Every problem of the sources.
    pub fn load(sources: &[Source], declared: Declared) -> Result<Self, Problems> {
        Ok(Self {
            current: ArcSwap::from_pointee(Generation::load(1, sources, &declared)?),
            declared: Arc::new(declared),
            replacing: Mutex::new(()),
        })
    }

    /// The generation in force. Judge one request by one of these, from its first question to its
    /// last.
    #[must_use]
    pub fn current(&self) -> Arc<Generation> {
        self.current.load_full()
    }

    /// The same for one look, without a count that every thread would write to.
    pub(super) fn look(&self) -> Guard<Arc<Generation>> {
        self.current.load()
    }

    /// What is declared of content.
    #[must_use]
    pub fn declared(&self) -> &Arc<Declared> {
        &self.declared
    }

    /// Replaces the policies by those of the sources, and gives the new generation.
    ///
    /// # Errors
    /// Every problem of the sources; the old generation then stays in force, under its old number.
    pub fn replace(&self, sources: &[Source]) -> Result<Arc<Generation>, Problems> {
        let _one_at_a_time = self
            .replacing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let next = Arc::new(Generation::load(
            self.current.load().number() + 1,
            sources,
            &self.declared,
        )?);
        self.current.store(Arc::clone(&next));
        Ok(next)
    }
}
