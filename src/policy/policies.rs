//! The policies of one generation, and how the next one is made.

use std::sync::Arc;

use super::content::Declared;
use super::generation::Generation;
use super::source::{Problems, Source};

/// One generation of policies, with the facts of content that they may read. It never changes: a
/// reload makes the next one.
#[derive(Debug)]
pub struct Policies {
    current: Arc<Generation>,
    declared: Arc<Declared>,
}

impl Policies {
    /// Loads the first generation, number 1, which may read the declared facts of content. Without
    /// any source, nothing is permitted.
    ///
    /// # Errors
    /// Every problem of the sources.
    pub fn load(sources: &[Source], declared: Declared) -> Result<Self, Problems> {
        Self::numbered(1, sources, declared)
    }

    /// Loads the generation after this one.
    ///
    /// # Errors
    /// Every problem of the sources.
    pub fn next(&self, sources: &[Source], declared: Declared) -> Result<Self, Problems> {
        Self::numbered(self.current.number() + 1, sources, declared)
    }

    fn numbered(number: u64, sources: &[Source], declared: Declared) -> Result<Self, Problems> {
        Ok(Self {
            current: Arc::new(Generation::load(number, sources, &declared)?),
            declared: Arc::new(declared),
        })
    }

    /// The generation that judges.
    pub fn current(&self) -> Arc<Generation> {
        Arc::clone(&self.current)
    }

    /// The generation that judges, for a short look.
    pub fn generation(&self) -> &Generation {
        &self.current
    }

    /// The declared facts of content.
    pub fn declared(&self) -> &Arc<Declared> {
        &self.declared
    }
}
