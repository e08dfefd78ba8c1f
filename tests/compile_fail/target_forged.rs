//! A request target is canonical, because only its parser can create one.

pub fn forged(target: gateway::message::RequestTarget) {
    let gateway::message::RequestTarget { canonical: _inside, .. } = target;
}
