//! Only policy makes an authorized request, and none gets more grants afterwards.

use gateway::policy::Authorized;

pub fn forged(one: Authorized, other: Authorized) -> Authorized {
    Authorized {
        allowed: other.allowed,
        ..one
    }
}
