//! What a request has reserved of budgets, from before it is sent to the end of its answer.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use gateway_body::read::ModelCall;
use gateway_spend::{OverBudget, Price, Reservation, Unit, UsageReader, worst_case};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body::Frame;
use parking_lot::Mutex;

gateway_names::faults! {
    /// Why budgets do not let a request go on.
    #[derive(Debug, thiserror::Error)]
    pub enum SpendFault {
        /// A budget has not enough left.
        Spent(Box<OverBudget>) = BudgetSpent "{0}",
        /// The same, and it begins anew within a minute.
        Soon(Box<OverBudget>, Duration) = BudgetSoon "{0}",
        /// What is left is not known.
        Unkept(Box<OverBudget>) = StateUnavailable "{0}",
        /// The most that the request could use is not known.
        Unbounded(String) = BudgetUnbounded "{0}",
        /// The gateway stops, and the request waited.
        Stopping = GatewayStopping "the gateway stops, and the request waited for a budget",
    }
}

impl From<OverBudget> for SpendFault {
    fn from(over: OverBudget) -> Self {
        let wait = over
            .again
            .and_then(|at| at.duration_since(SystemTime::now()).ok());
        if over.failure.is_some() {
            return Self::Unkept(Box::new(over));
        }
        match wait.filter(|wait| *wait <= SOON) {
            Some(wait) => Self::Soon(Box::new(over), wait),
            None => Self::Spent(Box::new(over)),
        }
    }
}

/// What a request has reserved, until its answer ends.
pub(crate) struct Spending {
    /// `None` while it grows.
    reservation: Option<Reservation>,
    /// Never locked: it makes this value `Sync`.
    growing: Mutex<Option<Growing>>,
    /// Bytes of content that are reserved and have not moved; `None` if no budget counts them.
    room: Option<u64>,
    /// The bytes of the request's head, which count as content does.
    head: u64,
    /// A frame of the answer that waits until there is room for it.
    pub(crate) waiting: Option<Frame<Bytes>>,
    asked: Option<Asked>,
    reader: Option<UsageReader>,
    /// The bytes of an answer that says that the request failed, and is not coded.
    failed: Option<u64>,
}

/// The reservation while it grows by some bytes.
type Growing = Pin<Box<dyn Future<Output = (Reservation, u64, Result<(), OverBudget>)> + Send>>;

/// What a request asks of a model.
pub(super) struct Asked {
    pub(super) call: ModelCall,
    pub(super) price: Option<Price>,
}

impl Spending {
    /// Begins with what is reserved. If a budget counts bytes, `head` is how many the head has.
    pub(super) fn new(reservation: Reservation, head: Option<u64>, asked: Option<Asked>) -> Self {
        Self {
            reservation: Some(reservation),
            growing: Mutex::default(),
            room: head.map(|_| 0),
            head: head.unwrap_or(0),
            waiting: None,
            asked,
            reader: None,
            failed: None,
        }
    }

    /// Notes that the request is sent: from now on, dropping this spends all that is reserved.
    pub(crate) fn sent(&mut self) {
        if let Some(reservation) = &mut self.reservation {
            reservation.sent();
        }
    }

    /// Takes note of the answer's head. One that says how long it is needs room for all of it.
    pub(crate) async fn answered(
        &mut self,
        (status, fields): (StatusCode, &HeaderMap),
        length: Option<u64>,
    ) -> Result<(), SpendFault> {
        if let (Some(room), Some(length), Some(reservation)) =
            (&mut self.room, length, &mut self.reservation)
        {
            reservation.grow(Unit::Bytes, length).await?;
            *room += length;
        }
        if self.asked.is_some() && !fields.contains_key(CONTENT_ENCODING) {
            let kind = fields.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
            self.reader = Some(UsageReader::of(kind));
            let is_refused = REFUSED.contains(&status.as_u16()) || status.is_server_error();
            self.failed = is_refused.then_some(0);
        }
        Ok(())
    }

    /// Reads a piece of the answer, once every budget of bytes has room for it.
    pub(crate) fn poll_room(
        &mut self,
        cx: &mut Context<'_>,
        piece: &[u8],
    ) -> Poll<Result<(), SpendFault>> {
        let needed = piece.len() as u64;
        while let Some(room) = &mut self.room {
            let growing = self.growing.get_mut();
            if let Some(under_way) = growing {
                let (reservation, by, grown) = ready!(under_way.as_mut().poll(cx));
                *growing = None;
                self.reservation = Some(reservation);
                grown?;
                *room += by;
            } else if let Some(left) = room.checked_sub(needed) {
                *room = left;
                break;
            } else if let Some(reservation) = self.reservation.take() {
                *growing = Some(Box::pin(grow(reservation, needed - *room)));
            } else {
                return Poll::Ready(Err(SpendFault::Unbounded("its budget is gone".into())));
            }
        }
        if let Some(bytes) = &mut self.failed {
            *bytes += needed;
        }
        if let Some(reader) = &mut self.reader {
            reader.feed(piece);
        }
        Poll::Ready(Ok(()))
    }

    /// Settles by an answer that has ended, and by the bytes of content that moved.
    pub(crate) fn settle(self, is_whole: bool, moved: u64) {
        let Some(reservation) = self.reservation else {
            return;
        };
        let moved = moved.saturating_add(self.head);
        let usage = self
            .reader
            .and_then(UsageReader::finish)
            .filter(|_| is_whole);
        let (asked, failed) = (self.asked, self.failed.filter(|_| is_whole));
        reservation.settle(|charge| {
            let unit = charge.budget.unit;
            let Some(Asked { call, price }) = &asked else {
                return if unit == Unit::Bytes {
                    moved
                } else {
                    charge.amount
                };
            };
            let price = price.as_ref();
            // No model answered: a token of what came has a byte at least.
            let by_bytes = || {
                let call = ModelCall {
                    most_output: Some(failed?),
                    answers: 1,
                    ..call.clone()
                };
                Some(worst_case(unit, &call, price).ok()?.min(charge.amount))
            };
            match unit {
                Unit::Requests => charge.amount,
                Unit::Bytes => moved,
                Unit::Tokens | Unit::Usd => {
                    let said = usage.and_then(|usage| usage.amount(unit, price));
                    said.or_else(by_bytes).unwrap_or(charge.amount)
                }
            }
        });
    }
}

/// Reserves more bytes: as many as are needed, and if there is room, those that come next.
async fn grow(
    mut reservation: Reservation,
    needed: u64,
) -> (Reservation, u64, Result<(), OverBudget>) {
    let ahead = needed.max(AHEAD);
    if reservation.grow(Unit::Bytes, ahead).await.is_ok() {
        return (reservation, ahead, Ok(()));
    }
    let grown = reservation.grow(Unit::Bytes, needed).await;
    (reservation, needed, grown)
}

/// The statuses of services that asked no model.
const REFUSED: [u16; 6] = [401, 403, 404, 413, 422, 429];
/// The longest wait for a new window for which a client is told to try again.
const SOON: Duration = Duration::from_secs(60);
/// How many bytes of an answer of unknown length are reserved at a time.
const AHEAD: u64 = 64 << 10;
