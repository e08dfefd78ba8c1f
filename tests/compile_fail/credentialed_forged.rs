//! Only `credential` makes a request that may be forwarded, and nothing changes its head
//! afterwards.

use gateway::credential::Credentialed;
use gateway::message::RequestHead;

pub fn forged(one: Credentialed, head: Box<RequestHead>) -> Credentialed {
    Credentialed { head, ..one }
}
