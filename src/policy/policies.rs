//! The policies in force, and how one generation replaces another.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};

use super::content::Declared;
use super::generation::Generation;
use super::source::{Problems, Source};

/// The policies in force. They are replaced as a whole, or not at all.
#[derive(Debug)]
pub struct Policies {
    current: ArcSwap<Generation>,
    declared: Arc<Declared>,
    /// Locked during a replacement, so that generation numbers rise in order.
    replacing: Mutex<()>,
}

impl Policies {
    /// Loads the first generation, number 1, which may read the declared facts of content. Without
    /// any source, nothing is permitted.
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

    /// The generation in force. Use one generation for a request, from its first question to its
    /// last.
    #[must_use]
    pub fn current(&self) -> Arc<Generation> {
        self.current.load_full()
    }

    /// Like [`Self::current`], but for a short look: it does not touch the shared reference count.
    pub(super) fn look(&self) -> Guard<Arc<Generation>> {
        self.current.load()
    }

    /// The declared facts of content.
    #[must_use]
    pub fn declared(&self) -> &Arc<Declared> {
        &self.declared
    }

    /// Replaces the policies with those of the sources, and returns the new generation.
    ///
    /// # Errors
    /// Every problem of the sources. The old generation then stays in force, with its number.
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
