//! A host is canonical, because only its parser can create one.

use std::sync::Arc;

pub fn forged(text: Arc<str>) -> gateway::message::Host {
    gateway::message::Host { text, ip: None }
}
