//! Only policy makes an authorized request, and none gets more grants afterwards.

use gateway::policy::{Authorized, Grant};

pub fn forged(one: Authorized, grants: Vec<Grant>) -> Authorized {
    Authorized { grants, ..one }
}
