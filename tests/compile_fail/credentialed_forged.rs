//! Only the credential room makes a request that may be forwarded, and none changes its head
//! afterwards.

use gateway::credential::Credentialed;
use gateway::message::RequestHead;

pub fn forged(one: Credentialed, head: Box<RequestHead>) -> Credentialed {
    Credentialed { head, ..one }
}
