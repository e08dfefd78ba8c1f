//! A request target stays as it was judged.

pub fn changed(mut target: gateway::message::RequestTarget, other: gateway::message::RequestTarget) {
    target.canonical = other.canonical;
}
