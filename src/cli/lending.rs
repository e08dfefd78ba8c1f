//! What flags, presets and variables permit, beside the policies of files.
//!
//! A flag adds. Policy files decide about what they speak of: a host or a credential for which one
//! of their permits is written. Everything else stays permitted as without them.

use std::collections::BTreeSet;

use super::resolve::ResolvedConfig;
use crate::config::{Allowed, Config};
use crate::message::{HostPattern, OriginPattern};
use crate::policy::{Source, Spoken, generate};
use crate::session::{Binding, Bindings, Role};

/// Writes flags, presets and lent variables as Cedar: what is allowed, and what is lent where it is
/// bound. For credentials of a configuration with policies, those say which is lent to whom.
pub(super) fn policies(
    config: &Config,
    resolved: &ResolvedConfig,
    bindings: &Bindings,
    files: &[Source],
) -> String {
    let spoken = Spoken::of(files);
    let mut permits = BTreeSet::new();
    let offered = resolved.offered.iter();
    let offered = offered.filter(|one| !spoken.about(one.host.host().as_str()));
    for Allowed { host, port } in resolved.allowed.iter().chain(offered) {
        permits.insert(generate::permit_host(None, &host.to_string(), Some(*port)));
    }
    let lent = |binding: &&Binding| is_lent(config, &spoken, binding);
    for binding in bindings.all().filter(lent) {
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
pub(super) fn is_lent(config: &Config, spoken: &Spoken, binding: &Binding) -> bool {
    if matches!(binding.role, Role::Part(_)) {
        return false;
    }
    if config.policy.files.is_empty() {
        return true;
    }
    let mut configured = config.credentials.iter().filter(|one| !one.by_flag);
    let is_configured = configured.any(|one| one.name == binding.credential);
    let hosts = binding.origins.iter().map(|origin| origin.hosts.host());
    let mut names = hosts
        .map(|host| host.as_str())
        .chain([binding.credential.as_str()]);
    !is_configured && !names.any(|name| spoken.about(name))
}

/// Permits the requests to one origin of a credential, and to lend it there.
fn lend(binding: &Binding, origin: &OriginPattern) -> [String; 2] {
    let (host, port) = (origin.hosts.to_string(), Some(origin.port));
    // Strangers also have names below a cloud's domain. Only signed requests may go there.
    let ask = match (binding.signing(), &origin.hosts) {
        (Some(_), HostPattern::Below(_)) => {
            generate::permit_with(None, &binding.credential, &host, port)
        }
        _ => generate::permit_host(None, &host, port),
    };
    [
        ask,
        generate::permit_lend(None, &binding.credential, &host, port),
    ]
}
