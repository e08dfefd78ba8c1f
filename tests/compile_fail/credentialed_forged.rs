//! Only `credential` makes a request that may be forwarded, and nothing changes its head
//! afterwards.

use gateway::credential::Credentialed;
use gateway::intercept::Request;

pub fn forged(one: Credentialed, request: Box<Request>) -> Credentialed {
    Credentialed { request, ..one }
}
