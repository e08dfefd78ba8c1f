//! Only `session` finds what a request presents, and that cannot be made up.

pub fn forged(here: std::sync::Arc<gateway::session::OriginBindings>) -> gateway::session::DetectedCredentials {
    gateway::session::DetectedCredentials { lends: Default::default(), strip: Default::default(), cookies: None, watch: None, batch: false, here }
}
