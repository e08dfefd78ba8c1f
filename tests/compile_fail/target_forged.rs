//! A request target is canonical, because there is no other way to one than through its parser.

pub fn forged(target: gateway::message::RequestTarget) {
    let gateway::message::RequestTarget { canonical: _inside, .. } = target;
}
