//! Only the session room says who asks.

use std::sync::Arc;

use gateway::intercept::Request;
use gateway::session::{Identified, Presented, Session};

pub fn forged(request: Box<Request>, session: Arc<Session>, presented: Presented) -> Identified {
    Identified { request, session, presented }
}
