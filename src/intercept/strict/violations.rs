//! The state that the service and the connection share: violations and upgrades.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use gateway_wire::WireMalformed;

/// The state that the service and the connection share.
#[derive(Debug, Clone)]
pub struct ViolationHandle(Arc<ViolationState>);

#[derive(Debug, Default)]
pub(super) struct ViolationState {
    /// How many requests the service has begun.
    pub(super) begun: AtomicU64,
    pub(super) upgraded: AtomicBool,
    pub(super) mid_head: AtomicBool,
    pub(super) violation: OnceLock<Violation>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Violation {
    /// Counts the connection's requests from zero.
    pub(super) request: u64,
    pub(super) malformed: WireMalformed,
    pub(super) in_content: bool,
}

impl ViolationHandle {
    pub(super) fn new(shared: Arc<ViolationState>) -> Self {
        Self(shared)
    }

    /// Starts a request: the service calls this once for each request that hyper passes to it, in
    /// order.
    ///
    /// # Errors
    /// The fault of the request, if hyper passed on the placeholder in its place (`GET /` on
    /// `malformed.invalid`, with `Connection: close`). The service responds with its
    /// [`WireMalformed::reason`] and does nothing else.
    pub fn begin(&self) -> Result<(), WireMalformed> {
        let request = self.0.begun.fetch_add(1, Ordering::AcqRel);
        match self.0.violation.get() {
            Some(violation) if !violation.in_content && violation.request == request => {
                Err(violation.malformed)
            }
            _ => Ok(()),
        }
    }

    /// Returns the fault in the content of the connection's last request, if that made reading
    /// fail.
    pub fn in_content(&self) -> Option<WireMalformed> {
        self.0
            .violation
            .get()
            .filter(|violation| violation.in_content)
            .map(|violation| violation.malformed)
    }

    /// Whether a head has started and not ended, so that its deadline runs.
    pub fn is_mid_head(&self) -> bool {
        self.0.mid_head.load(Ordering::Relaxed)
    }

    /// Passes on all further bytes unchanged; the service calls this before it returns 101, or 2xx
    /// to CONNECT.
    pub fn upgraded(&self) {
        self.0.upgraded.store(true, Ordering::Release);
    }
}
