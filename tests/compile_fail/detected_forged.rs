//! Only `session` finds what a request presents, and that cannot be made up.

pub fn forged() -> gateway::session::DetectedCredentials {
    gateway::session::DetectedCredentials { lends: Vec::new(), strip: Default::default(), cookies: None, watch: None, batch: false, bound: Default::default() }
}
