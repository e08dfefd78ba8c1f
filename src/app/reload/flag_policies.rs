//! The rules of flags, presets and variables, in addition to the policy files.
//!
//! Policy files, where they decide, decide about everything that configurations name. Whatever
//! flags and an agent's profile name is permitted all the same.

use std::collections::{BTreeMap, BTreeSet};

use crate::settings::resolve::ResolvedConfig;
use gateway_config::{Config, HostPort};
use gateway_credential::preset::{PresetEndpoint, RequestPattern};
use gateway_credential::{ConfiguredCredential, preset};
use gateway_message::{HostPattern, OriginPattern};
use gateway_policy::generate::LeftRequests;
use gateway_policy::{Source, generate};
use gateway_session::{Binding, Role};

/// Writes flags, presets and lent variables as Cedar: the hosts that are allowed, and the loans at
/// the origins of each credential.
pub fn policies(config: &Config, resolved: &ResolvedConfig) -> String {
    let mut permits = BTreeSet::new();
    let offered = resolved.offered.iter();
    let offered = offered.filter(|_| !config.policy.decide());
    for HostPort { host, port } in resolved.allowed.iter().chain(offered) {
        permits.insert(generate::permit_host(None, &host.to_string(), Some(*port)));
    }
    for binding in resolved
        .bindings()
        .filter(|binding| is_lent(config, resolved, binding))
    {
        permits.extend(
            binding
                .origins
                .iter()
                .flat_map(|origin| lend(binding, origin)),
        );
    }
    let key = config.commit_key.as_ref();
    let key = key.filter(|_| !config.policy.decide());
    permits.extend(key.map(|key| generate::permit_sign(None, key, None)));
    permits.into_iter().map(|permit| permit + "\n").collect()
}

/// Forbids, whatever else permits it, what presets block, what is beyond their named permissions,
/// and that a lent credential mints others at their services, which would outlive the session.
/// Replaces the earlier source of these rules.
pub fn guard(
    sources: &mut Vec<Source>,
    resolved: &ResolvedConfig,
    stored: &[ConfiguredCredential],
) {
    let origins = stored.iter().flat_map(|one| &one.binding.origins);
    let origins: Vec<&OriginPattern> = origins.collect();
    let own = &resolved.own_origins;
    let named = own.iter().map(|(preset, _)| *preset);
    let mut found: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    let mut mutations = BTreeSet::new();
    for preset in preset::minting_at(&origins).chain(named) {
        let is_own = |origin: &OriginPattern| {
            let mut own = own.iter().filter(|(one, _)| one.name == preset.name);
            preset.is_at(origin) || own.any(|(_, origins)| origins.contains(origin))
        };
        for mint in &preset.mints {
            for host in mint.hosts(&origins, is_own) {
                let at = (preset.name.as_str(), host.to_string(), mint.by_reading());
                let mut public = origins.iter().filter(|origin| origin.hosts == *host);
                let paths = paths(&mint.path, public.any(|origin| preset.is_at(origin)));
                found.entry(at).or_default().extend(paths);
            }
        }
        let names: Vec<&str> = preset.mint_mutations.iter().map(String::as_str).collect();
        if names.is_empty() {
            continue;
        }
        for endpoint in preset.endpoints.iter().filter(|one| one.is_graphql()) {
            let paths: Vec<String> = endpoint.paths.iter().map(ToString::to_string).collect();
            for origin in origins.iter().filter(|origin| is_own(origin)) {
                let (service, host) = (&preset.name, origin.hosts.to_string());
                mutations.insert(generate::forbid_mutations(service, &host, &paths, &names));
            }
        }
    }
    let forbid =
        |((service, host, by_reading), paths): (&(&str, String, bool), &BTreeSet<String>)| {
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            generate::forbid_mints(service, host, *by_reading, &paths) + "\n"
        };
    sources.retain(|source| source.name != GUARDS);
    let blocks = resolved.blocks.iter().flat_map(|block| {
        let hosts = block.hosts.iter();
        let hosts = hosts.map(|host| generate::forbid_host(&block.kind, host) + "\n");
        let types = block.media_types.iter();
        hosts.chain(types.map(|one| generate::forbid_media_type(&block.kind, one) + "\n"))
    });
    let mints = found.iter().map(forbid).chain(mutations);
    let text: String = mints.chain(blocks).chain(beyond(resolved)).collect();
    if !text.is_empty() {
        sources.push(Source::new(GUARDS, text));
    }
}

/// Returns a path, and what it may be: a self-hosted server may serve its API below another.
fn paths(path: &str, is_public: bool) -> impl Iterator<Item = String> {
    let below: &[&str] = match is_public {
        true => &[""],
        false => &["", "/*", "/*/*"],
    };
    below.iter().map(move |below| format!("{below}{path}"))
}

/// Forbids what is beyond the named permissions of presets, at each of their hosts.
fn beyond(resolved: &ResolvedConfig) -> BTreeSet<String> {
    let mut rules = BTreeSet::new();
    for (preset, permission) in &resolved.permissions {
        let own = resolved.own_origins.iter();
        let own = own.filter(|(one, _)| one.name == preset.name);
        let own = own.flat_map(|(_, origins)| origins);
        let covers = |one: &OriginPattern, origin: &OriginPattern| {
            let is_name = matches!(origin.hosts, HostPattern::Exact(_));
            one.hosts == origin.hosts || is_name && one.hosts.overlaps(&origin.hosts)
        };
        let is_public = |origin: &OriginPattern| preset.origins().any(|one| covers(one, origin));
        for origin in preset
            .origins()
            .chain(own.filter(|origin| !is_public(origin)))
        {
            let is_public = is_public(origin);
            let here = |one: &&RequestPattern| {
                !is_public || one.hosts(&[origin], |_| true).next().is_some()
            };
            let left = permission.leaves.iter().filter(here);
            let left = left.flat_map(|one| {
                let paths = paths(&one.path, is_public);
                paths.map(|path| (one.method.clone(), path))
            });
            let but = permission.but.iter().filter(here);
            let speaks = |one: &&PresetEndpoint| {
                let mut at = one.origins.iter();
                let is_here = !is_public || at.any(|one| one.hosts.overlaps(&origin.hosts));
                one.is_graphql() && is_here
            };
            let graphql = preset.endpoints.iter().filter(speaks);
            let graphql = graphql.flat_map(|one| &one.paths).map(ToString::to_string);
            let graphql: Vec<String> = graphql.collect();
            let graphql = graphql.iter().flat_map(|path| paths(path, is_public));
            let left = LeftRequests {
                requests: left.collect(),
                but: but.flat_map(|one| paths(&one.path, is_public)).collect(),
                graphql: graphql.collect(),
                mutations: permission.mutations.clone(),
            };
            let host = origin.hosts.to_string();
            let place = (&*preset.name, &*permission.name, &*host);
            rules.insert(generate::forbid_beyond(place, &left));
        }
    }
    rules
}

/// The name of the source of presets' forbidding rules.
const GUARDS: &str = "presets";

/// Whether a credential is lent without a rule of a policy file.
fn is_lent(config: &Config, resolved: &ResolvedConfig, binding: &Binding) -> bool {
    let is_named = !config.policy.decide() || resolved.named.contains(&binding.credential);
    !matches!(binding.role, Role::Part(_) | Role::Kept) && is_named
}

/// Returns the permits of a credential's requests to one origin, and of its loan there.
fn lend(binding: &Binding, origin: &OriginPattern) -> [String; 2] {
    let (host, port) = (origin.hosts.to_string(), Some(origin.port));
    // Below a cloud's domain, strangers have names too. Only signed requests may go there.
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
