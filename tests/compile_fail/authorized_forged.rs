//! Only policy makes an authorized request, and none gets more grants afterwards.

use gateway::policy::{Authorized, Grant};

pub fn forged(one: Authorized, grant: Grant) -> Authorized {
    Authorized { grants: std::iter::once(grant).collect(), ..one }
}
