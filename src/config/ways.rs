//! How the gateway's own requests reach their servers, and the logins to proxies between.

use std::sync::Arc;

use gateway_credential::UpstreamLogin;
use gateway_export::ExportSettings;
use gateway_message::Origin;
use gateway_origin::{OriginRule, OriginSettings, StoreWay, UpstreamProxy, Via};

use super::Config;

impl Config {
    /// Returns how the gateway's own requests reach these servers.
    pub fn store_way(&self, servers: &[Origin]) -> StoreWay {
        let rules = self.origins.iter().map(|origin| OriginRule {
            identity: None,
            ..origin.rule.clone()
        });
        // This fails only for an unreadable client key, and there is none.
        let settings = OriginSettings::default().with_rules(rules.collect());
        let mut settings = settings.unwrap_or_default();
        settings.resolver = self.resolver.clone();
        settings.defaults = self.defaults.settings.clone();
        StoreWay::of(&settings, servers)
    }

    /// Returns how an export reaches its server.
    pub fn export_way(&self, export: &ExportSettings) -> StoreWay {
        self.store_way(std::slice::from_ref(&export.server))
    }

    /// Returns the logins to upstream proxies.
    pub(super) fn upstream_logins(&self) -> impl Iterator<Item = &UpstreamLogin> {
        self.proxies().filter_map(|proxy| proxy.login.as_ref())
    }

    /// Returns the upstream proxies.
    pub(super) fn proxies(&self) -> impl Iterator<Item = &Arc<UpstreamProxy>> {
        let own = self.origins.iter();
        let own = own.filter_map(|origin| match &origin.rule.via {
            Some(Via::Proxy(proxy)) => Some(proxy),
            _ => None,
        });
        own.chain(&self.defaults.settings.via)
    }
}
