//! A credential use comes from the request, and cannot be changed to another phantom or place.

use gateway::session::CredentialUse;
use gateway::session::phantom::Phantom;

pub fn forged(one: CredentialUse, phantom: Phantom) -> CredentialUse {
    CredentialUse { phantom, ..one }
}

pub fn moved(mut one: CredentialUse) {
    one.place = 1;
}
