//! Only policy grants a credential.

use gateway::message::Origin;
use gateway::policy::Grant;
use gateway::session::CredentialUse;

pub fn forged(lend: CredentialUse, origin: Origin) -> Grant {
    Grant { lend, origin }
}
