//! Only `session` identifies who makes a request.

use std::sync::Arc;

use gateway::intercept::Accepted;
use gateway::session::{Identified, Presented, Session};

pub fn forged(accepted: Accepted, session: Arc<Session>, presented: Presented) -> Identified {
    Identified { accepted, session, presented }
}
