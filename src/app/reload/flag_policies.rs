//! What flags, presets and variables permit, beside the policies of files.
//!
//! Policy files decide alone: with them, only `--allow` adds a permit. A credential is then lent
//! only where one of their permits says so.

use std::collections::BTreeSet;

use crate::app::settings::resolve::ResolvedConfig;
use crate::config::{Allowed, Config};
use crate::message::{HostPattern, OriginPattern};
use crate::policy::generate;
use crate::session::{Binding, Role};

/// Writes flags, presets and lent variables as Cedar: what is allowed, and what is lent where it is
/// bound.
pub(crate) fn policies(config: &Config, resolved: &ResolvedConfig) -> String {
    let mut permits = BTreeSet::new();
    let offered = resolved.offered.iter();
    let offered = offered.filter(|_| !config.policy.decide());
    for Allowed { host, port } in resolved.allowed.iter().chain(offered) {
        permits.insert(generate::permit_host(None, &host.to_string(), Some(*port)));
    }
    for binding in resolved
        .bindings()
        .filter(|binding| is_lent(config, binding))
    {
        permits.extend(
            binding
                .origins
                .iter()
                .flat_map(|origin| lend(binding, origin)),
        );
    }
    permits.into_iter().map(|permit| permit + "\n").collect()
}

/// Whether a credential is lent without a policy file that says so.
pub(crate) fn is_lent(config: &Config, binding: &Binding) -> bool {
    !matches!(binding.role, Role::Part(_) | Role::Kept) && !config.policy.decide()
}

/// Permits the requests to one origin of a credential, and to lend it there.
fn lend(binding: &Binding, origin: &OriginPattern) -> [String; 2] {
    let (host, port) = (origin.hosts.to_string(), Some(origin.port));
    // Strangers also have names below a cloud's domain. Only signed requests may go there.
    let ask = match (binding.signing(), &origin.hosts) {
        (Some(_), HostPattern::Below(_)) => {
            generate::permit_with(None, Some(&binding.credential), &host, port)
        }
        _ => generate::permit_host(None, &host, port),
    };
    [
        ask,
        generate::permit_lend(None, &binding.credential, &host, port),
    ]
}
