//! A host is canonical, because there is no other way to one than through its parser.

use std::sync::Arc;

pub fn forged(text: Arc<str>) -> gateway::message::Host {
    gateway::message::Host { text, ip: None }
}
