//! Only the session room says who asks.

use std::sync::Arc;

use gateway::intercept::Accepted;
use gateway::session::{Identified, Presented, Session};

pub fn forged(accepted: Accepted, session: Arc<Session>, presented: Presented) -> Identified {
    Identified { accepted, session, presented }
}
