//! Content that is buffered for exchanges, and the memory of decoders. Each is bounded, and so is
//! their sum.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use super::{Limit, TransformFault};

/// The memory budget of all exchanges together, or of one session.
#[derive(Debug)]
pub struct HoldBudget {
    most: AtomicUsize,
    taken: AtomicUsize,
    /// The budget that this is a part of.
    all: Option<Arc<HoldBudget>>,
}

gateway_names::faults! {
    /// Why content was not buffered. None of it was sent.
    #[derive(Debug, thiserror::Error)]
    pub enum HoldFault {
        /// It is longer than one request may buffer.
        TooLong(Limit) = ContentTooLong
            "the content must be held before it is sent, and is longer than {0}",
        /// All requests together have buffered as much as they may.
        Busy = ContentBudget "too much content is held just now",
        /// The client's side failed.
        Client(#[source] hyper::Error) = ContentBrokeOff "the client's content broke off",
        /// It failed a check as it arrived.
        Cut(TransformFault) = inner transparent,
    }
}

impl HoldBudget {
    /// Creates a budget of this many bytes.
    pub fn new(most: Limit) -> Arc<Self> {
        let budget = Self {
            most: AtomicUsize::default(),
            taken: AtomicUsize::new(0),
            all: None,
        };
        budget.resize(most);
        Arc::new(budget)
    }

    /// Changes the size. Taken space stays taken.
    pub fn resize(&self, most: Limit) {
        let most = usize::try_from(most.as_bytes()).unwrap_or(usize::MAX);
        self.most.store(most, Ordering::Relaxed);
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Creates one session's part of this budget. A session may take no more than it leaves free,
    /// so the first one takes at most half. However many sessions take their maximum, there is
    /// space for one more (the dynamic thresholds of Choudhury and Hahne, 1998).
    #[must_use]
    pub fn part(self: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self {
            most: AtomicUsize::new(self.most()),
            taken: AtomicUsize::new(0),
            all: Some(self.clone()),
        })
    }

    /// How many bytes are taken now.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes more bytes. Even if there was no space for them, they count as taken and must be given
    /// back.
    fn take(&self, bytes: usize) -> Result<(), HoldFault> {
        let taken = self.taken.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let free = match &self.all {
            Some(all) => {
                all.take(bytes)?;
                all.most().saturating_sub(all.taken())
            }
            None => self.most(),
        };
        if bytes > 0 && taken > free {
            return Err(HoldFault::Busy);
        }
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(all) = &self.all {
            all.give_back(bytes);
        }
    }
}

/// One request's share of the budget, for a part that is buffered while the rest streams.
#[derive(Debug)]
pub struct Share {
    taken: usize,
    budget: Arc<HoldBudget>,
}

impl Share {
    /// Creates an empty share.
    pub fn of(budget: Arc<HoldBudget>) -> Self {
        Self { taken: 0, budget }
    }

    /// Moves the share to another owner, leaving an empty one here.
    #[must_use]
    pub fn take(&mut self) -> Self {
        Self {
            taken: std::mem::take(&mut self.taken),
            budget: self.budget.clone(),
        }
    }

    /// Takes or gives back bytes until the share has this size.
    ///
    /// # Errors
    /// [`HoldFault::Busy`] if the budget has no space for more.
    pub fn set(&mut self, bytes: usize) -> Result<(), HoldFault> {
        let before = std::mem::replace(&mut self.taken, bytes);
        match bytes.checked_sub(before) {
            Some(more) => self.budget.take(more),
            None => {
                self.budget.give_back(before - bytes);
                Ok(())
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.give_back(self.taken);
    }
}

/// Buffered content: its pieces in order, and its share of the budget until it is dropped.
pub struct HeldBody {
    pub(super) pieces: VecDeque<Bytes>,
    pub(super) trailers: Option<HeaderMap>,
    length: usize,
    budget: Arc<HoldBudget>,
}

impl HeldBody {
    pub(super) fn new(budget: Arc<HoldBudget>) -> Self {
        Self {
            pieces: VecDeque::new(),
            trailers: None,
            length: 0,
            budget,
        }
    }

    /// Adds one more piece, if the budget allows it.
    pub(super) fn take(&mut self, piece: Bytes) -> Result<(), HoldFault> {
        // Count a refused piece too, because dropping this gives everything back.
        self.length += piece.len();
        self.budget.take(piece.len())?;
        if !piece.is_empty() {
            self.push(piece);
        }
        Ok(())
    }

    /// Joins a small piece to the previous one. Each piece has overhead and keeps the buffer it
    /// arrived in, so content that arrives byte by byte would take many times its length.
    fn push(&mut self, piece: Bytes) {
        if piece.len() >= SMALL {
            self.pieces.push_back(piece);
            return;
        }
        let last = self.pieces.pop_back();
        let mut joined = match last.map(|last| (last.len() + piece.len() <= JOINED, last)) {
            Some((true, last)) => match last.try_into_mut() {
                Ok(joined) => joined,
                Err(shared) => {
                    self.pieces.push_back(shared);
                    BytesMut::new()
                }
            },
            Some((false, full)) => {
                self.pieces.push_back(full);
                BytesMut::new()
            }
            None => BytesMut::new(),
        };
        joined.extend_from_slice(&piece);
        self.pieces.push_back(joined.freeze());
    }

    /// The pieces in order.
    pub fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        self.pieces.iter()
    }

    /// The trailer fields, if there are any.
    pub fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }

    /// The length of all pieces, in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// All of it in one piece.
    pub fn whole(&self) -> Bytes {
        match self.pieces.len() {
            0 => Bytes::new(),
            1 => self.pieces[0].clone(),
            _ => {
                let mut whole = BytesMut::with_capacity(self.left());
                self.pieces
                    .iter()
                    .for_each(|piece| whole.extend_from_slice(piece));
                whole.freeze()
            }
        }
    }

    /// Replaces the content. The signed form may be longer than what arrived, and is not refused
    /// for that.
    pub fn replace(&mut self, content: Bytes) {
        self.budget.give_back(self.length);
        self.length = content.len();
        let _ = self.budget.take(self.length);
        self.pieces.clear();
        if !content.is_empty() {
            self.pieces.push_back(content);
        }
    }

    /// How many bytes have not been read yet.
    pub(super) fn left(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }
}

/// Pieces shorter than this are copied and joined.
const SMALL: usize = 4 * 1024;
/// The most bytes in joined pieces.
const JOINED: usize = 64 * 1024;

impl Drop for HeldBody {
    fn drop(&mut self) {
        self.budget.give_back(self.length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_that_comes_byte_by_byte_is_held_in_few_pieces() {
        let budget = HoldBudget::new(Limit::mib(1));
        let came = Bytes::from(
            (0..300_000_u32)
                .map(|n| n.to_le_bytes()[0])
                .collect::<Vec<u8>>(),
        );
        let mut held = HeldBody::new(budget);
        let (small, large) = came.split_at(200_000);
        for at in 0..small.len() {
            held.take(came.slice(at..=at)).unwrap();
        }
        for at in (small.len()..came.len()).step_by(10_000) {
            held.take(came.slice(at..at + 10_000)).unwrap();
        }
        assert_eq!(
            held.pieces().count(),
            200_000_usize.div_ceil(JOINED) + large.len() / 10_000
        );
        assert_eq!((held.len(), held.whole()), (came.len(), came));
    }

    #[test]
    fn held_content_is_bounded_all_together_and_gives_its_room_back() {
        let budget = HoldBudget::new(Limit::bytes(10));
        let mut one = HeldBody::new(budget.clone());
        one.take(Bytes::from_static(b"123456")).unwrap();
        let mut two = HeldBody::new(budget.clone());
        let busy = two.take(Bytes::from_static(b"12345"));
        assert!(matches!(busy, Err(HoldFault::Busy)));
        drop(two);
        assert_eq!(budget.taken(), 6);
        assert_eq!(one.whole(), "123456");
        let (mut three, mut four) = (Share::of(budget.clone()), Share::of(budget.clone()));
        three.set(4).unwrap();
        assert!(matches!(four.set(1), Err(HoldFault::Busy)));
        three.set(3).unwrap();
        assert_eq!(budget.taken(), 6 + 3 + 1);
        four.set(1).unwrap();
        drop((three, four));
        assert_eq!(budget.taken(), 6);
        one.replace(Bytes::from_static(b"12"));
        assert_eq!((budget.taken(), one.len(), one.left()), (2, 2, 2));
        drop(one);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn one_session_takes_no_more_than_it_leaves_to_the_others() {
        let all = HoldBudget::new(Limit::bytes(100));
        let (greedy, modest) = (all.part(), all.part());
        let piece = |bytes: usize| Bytes::from(vec![0; bytes]);
        let mut most = HeldBody::new(greedy.clone());
        most.take(piece(50)).unwrap();
        let mut over = Share::of(greedy.clone());
        assert!(matches!(over.set(1), Err(HoldFault::Busy)));
        drop(over);
        let mut other = HeldBody::new(modest.clone());
        other.take(piece(25)).unwrap();
        assert!(matches!(
            Share::of(modest.clone()).set(1),
            Err(HoldFault::Busy)
        ));
        let mut third = Share::of(all.part());
        third.set(12).unwrap();
        assert_eq!((greedy.taken(), modest.taken(), all.taken()), (50, 25, 87));
        drop((most, other, third));
        assert_eq!((greedy.taken(), modest.taken(), all.taken()), (0, 0, 0));
        let mut again = HeldBody::new(modest);
        again.take(piece(50)).unwrap();
    }
}
