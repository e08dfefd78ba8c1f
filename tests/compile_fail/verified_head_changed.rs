//! What was verified is what is signed again: its head cannot be changed any more.

use gateway::credential::Verified;
use gateway::message::Origin;

pub fn moved(verified: &mut Verified, elsewhere: Origin) {
    verified.head().origin = elsewhere;
}

pub fn dressed(verified: &mut Verified) {
    verified.head().fields.clear();
}
