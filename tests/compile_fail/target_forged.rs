//! A request target is canonical, because there is no other way to one than through its parser.

pub fn forged(target: gateway::message::RequestTarget) {
    let gateway::message::RequestTarget(_inside) = target;
}

pub fn changed(mut target: gateway::message::RequestTarget, other: gateway::message::RequestTarget) {
    target.0 = other.0;
}
