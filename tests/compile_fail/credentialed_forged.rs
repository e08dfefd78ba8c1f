//! Only the credential room makes a request that may be forwarded, and none changes its head
//! afterwards.

use gateway::credential::Credentialed;
use gateway::intercept::Request;

pub fn forged(one: Credentialed, request: Box<Request>) -> Credentialed {
    Credentialed { request, ..one }
}
