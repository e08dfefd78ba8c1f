//! One generation of the state that requests read and reloads may change.

use std::sync::Arc;

use gateway_credential::Credentials;
use gateway_credential::login::Login;
use gateway_origin::OriginSettings;
use gateway_policy::Policies;
use gateway_spend::Prices;

use super::limits::Limits;

/// One generation of the configuration.
///
/// It never changes: a reload makes another. An exchange takes one when it begins and keeps it, so
/// that it is not judged by one generation and served by another.
pub struct Snapshot {
    /// The policies that judge requests.
    pub policies: Policies,
    /// The credentials that may be used.
    pub credentials: Credentials,
    /// The limits of the data path.
    pub limits: Limits,
    /// The settings for origins.
    pub origins: Arc<OriginSettings>,
    /// The prices of models.
    pub prices: Arc<Prices>,
    /// The logins whose files workloads may have.
    pub logins: Vec<Login>,
}

impl Snapshot {
    /// Returns the generation's number. It rises by one with every reload.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.policies.generation().number()
    }

    /// Whether the settings for origins are the same as `other`'s.
    pub(super) fn origins_are(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.origins, &other.origins)
    }
}
