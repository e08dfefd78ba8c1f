//! The ways of the gateway's own requests, and the logins to proxies on them.

use super::Config;
use crate::credential::UpstreamLogin;
use crate::export::ExportSettings;
use crate::message::Origin;
use crate::origin::{OriginRule, OriginSettings, StoreWay, Via};

impl Config {
    /// Returns how servers of the gateway's own requests are reached.
    pub fn store_way(&self, servers: &[Origin]) -> StoreWay {
        let rules = self.origins.iter().map(|origin| OriginRule {
            identity: None,
            ..origin.rule.clone()
        });
        // It fails only for a key that cannot be read, and there is none.
        let settings = OriginSettings::default().with_rules(rules.collect());
        let mut settings = settings.unwrap_or_default();
        settings.resolver = self.resolver.clone();
        settings.defaults = self.defaults.settings.clone();
        StoreWay::of(&settings, servers)
    }

    /// Returns the same for an export.
    pub fn export_way(&self, export: &ExportSettings) -> StoreWay {
        self.store_way(std::slice::from_ref(&export.server))
    }

    /// Returns the logins to upstream proxies.
    pub(super) fn upstream_logins(&self) -> impl Iterator<Item = &UpstreamLogin> {
        let own = self.origins.iter();
        let own = own.filter_map(|origin| match &origin.rule.via {
            Some(Via::Proxy(proxy)) => Some(proxy),
            _ => None,
        });
        let all = own.chain(&self.defaults.settings.via);
        all.filter_map(|proxy| proxy.login.as_ref())
    }
}
