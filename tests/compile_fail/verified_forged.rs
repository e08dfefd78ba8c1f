//! Only `credential` says that a request's signature was verified.

use gateway::credential::Verified;
use gateway::policy::Authorized;

pub fn forged(one: Verified, authorized: Authorized) -> Verified {
    Verified { authorized, ..one }
}
