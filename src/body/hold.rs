//! Content that is held as a whole before any of it goes on: bounded each, and all together.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::HeaderMap;

use super::Limit;

/// What all held content together may take.
#[derive(Debug)]
pub struct HoldBudget {
    most: usize,
    taken: AtomicUsize,
}

/// Why content is not held; nothing of it was sent.
#[derive(Debug, thiserror::Error)]
pub enum HoldFault {
    /// It is longer than one request may have held.
    #[error("the content must be held before it is sent, and is longer than {0}")]
    TooLong(Limit),
    /// All requests together hold as much as they may.
    #[error("too much content of other requests is held just now")]
    Busy,
    /// The client's side failed.
    #[error("the client's content broke off")]
    Client(#[source] hyper::Error),
}

impl HoldFault {
    /// The reason code in refusals and audit.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TooLong(_) => "content_too_long",
            Self::Busy => "content_budget",
            Self::Client(_) => "content_broke_off",
        }
    }
}

impl HoldBudget {
    /// A budget of so many bytes.
    #[must_use]
    pub fn new(most: Limit) -> Arc<Self> {
        Arc::new(Self {
            most: usize::try_from(most.as_bytes()).unwrap_or(usize::MAX),
            taken: AtomicUsize::new(0),
        })
    }

    /// What is taken of it now, in bytes.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

/// Held content: its pieces in order, and what it takes of the budget until it is gone.
pub struct Held {
    pub(super) pieces: VecDeque<Bytes>,
    pub(super) trailers: Option<HeaderMap>,
    length: usize,
    budget: Arc<HoldBudget>,
}

impl Held {
    pub(super) fn new(budget: Arc<HoldBudget>) -> Self {
        Self {
            pieces: VecDeque::new(),
            trailers: None,
            length: 0,
            budget,
        }
    }

    /// Takes one more piece, if the limit and the budget have room for it.
    pub(super) fn take(&mut self, piece: Bytes, limit: Limit) -> Result<(), HoldFault> {
        let length = self.length + piece.len();
        if limit.is_passed_by(length as u64) {
            return Err(HoldFault::TooLong(limit));
        }
        let before = self.budget.taken.fetch_add(piece.len(), Ordering::Relaxed);
        // What was added is counted even where it is refused: dropping this gives all of it back.
        self.length = length;
        if before + piece.len() > self.budget.most {
            return Err(HoldFault::Busy);
        }
        if !piece.is_empty() {
            self.pieces.push_back(piece);
        }
        Ok(())
    }

    /// The pieces in order.
    pub fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        self.pieces.iter()
    }

    /// The length of all pieces, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// All of it in one piece.
    #[must_use]
    pub fn whole(&self) -> Bytes {
        match self.pieces.len() {
            0 => Bytes::new(),
            1 => self.pieces[0].clone(),
            _ => self
                .pieces
                .iter()
                .flat_map(|piece| piece.iter().copied())
                .collect(),
        }
    }

    /// Puts other content in its place: what is signed may be another form of what came.
    pub fn replace(&mut self, content: Bytes) {
        self.budget.taken.fetch_sub(self.length, Ordering::Relaxed);
        self.length = content.len();
        self.budget.taken.fetch_add(self.length, Ordering::Relaxed);
        self.pieces.clear();
        if !content.is_empty() {
            self.pieces.push_back(content);
        }
    }

    /// What is still to be given out, in bytes.
    pub(super) fn left(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.length, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_content_is_bounded_each_and_all_together_and_gives_its_room_back() {
        let budget = HoldBudget::new(Limit::bytes(10));
        let mut one = Held::new(budget.clone());
        one.take(Bytes::from_static(b"123456"), Limit::bytes(6)).unwrap();
        let over = one.take(Bytes::from_static(b"7"), Limit::bytes(6));
        assert!(matches!(over, Err(HoldFault::TooLong(_))));
        let mut two = Held::new(budget.clone());
        let busy = two.take(Bytes::from_static(b"12345"), Limit::bytes(6));
        assert!(matches!(busy, Err(HoldFault::Busy)));
        drop(two);
        assert_eq!(budget.taken(), 6);
        assert_eq!(one.whole(), "123456");
        one.replace(Bytes::from_static(b"12"));
        assert_eq!((budget.taken(), one.len(), one.left()), (2, 2, 2));
        drop(one);
        assert_eq!(budget.taken(), 0);
    }
}
