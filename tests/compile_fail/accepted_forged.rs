//! A request is accepted by being read, and not by being put together.

use gateway::intercept::{Accepted, Request};

pub fn forged(request: Box<Request>) -> Accepted {
    Accepted(request)
}
