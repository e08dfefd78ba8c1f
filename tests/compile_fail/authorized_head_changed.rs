//! What was judged is what is forwarded: its head cannot be changed any more.

use gateway::message::Origin;
use gateway::policy::Authorized;

pub fn moved(authorized: &mut Authorized, elsewhere: Origin) {
    authorized.head().origin = elsewhere;
}

pub fn dressed(authorized: &mut Authorized) {
    authorized.head().fields.clear();
}

pub fn reached(authorized: &mut Authorized, elsewhere: Origin) {
    authorized.request.head.origin = elsewhere;
}
