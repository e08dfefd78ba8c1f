//! Only the session room says who asks.

use std::sync::Arc;

use gateway::intercept::Accepted;
use gateway::session::{Identified, Lend, Session};

pub fn forged(accepted: Accepted, session: Arc<Session>, lends: Vec<Lend>) -> Identified {
    Identified { accepted, session, lends }
}
