//! What a request presents is found by the session room and cannot be made up.

pub fn forged() -> gateway::session::Presented {
    gateway::session::Presented { lends: Vec::new(), strip: Vec::new(), cookies: None, watch: None, batch: false }
}
