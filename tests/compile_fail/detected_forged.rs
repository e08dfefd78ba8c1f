//! Only `session` finds what a request presents, and that cannot be made up.

pub fn forged(here: std::sync::Arc<gateway::session::OriginBindings>) -> gateway::session::DetectedCredentials {
    gateway::session::DetectedCredentials { lends: Default::default(), target: None, strip: Default::default(), cookies: None, batch: false, here }
}
