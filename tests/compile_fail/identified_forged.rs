//! Only `session` identifies who makes a request.

use std::sync::Arc;

use gateway::intercept::Request;
use gateway::session::{Identified, DetectedCredentials, Session};

pub fn forged(request: Box<Request>, session: Arc<Session>, presented: DetectedCredentials) -> Identified {
    Identified { request, session, presented }
}
