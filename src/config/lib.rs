//! The configuration: reads `gateway.toml` and flags into one valid [`Config`].
//!
//! A file is read key by key. All of its mistakes are reported at once, each with its place, its
//! reason and its remedy. A single mistake is enough to refuse the configuration.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

#[macro_use]
mod diagnostic;

mod bind;
mod budget;
mod certificates;
mod control;
mod credential;
mod document;
mod export;
mod fact;
mod flags;
pub mod keys;
mod listener;
pub mod literal;
mod login;
mod network;
mod notify;
mod origin;
mod own_files;
mod own_ports;
mod port;
mod price;
mod project;
mod read;
mod reference;
mod sandbox;
mod section;
mod settings;
mod signing;
mod sigv4;
pub mod state;
mod store;
mod units;
mod user;
mod validate;
mod variable;
mod via;
mod ways;

use std::path::PathBuf;
use std::sync::Arc;

pub use certificates::certificates;
pub use control::ControlSettings;
pub use credential::Credential;
pub use diagnostic::{Diagnostic, Hint, Position, Severity};
pub use flags::{AGENTS, Flags, MORE, PORTS, REACH, SEE, SandboxFlags};
pub use listener::{Listener, ListenerAddress, ListenerJwt, ListenerKind, ListenerSession};
pub use login::ConfiguredLogin;
pub use notify::{NotifySettings, WebhookSettings};
pub use origin::Origin;
pub use port::PublishedPort;
pub use reference::parse as parse_reference;
pub use sandbox::{Sandbox, SandboxDns};
pub use settings::{
    Audit, Ca, FleetSettings, LONGEST_LEASE, PhantomFile, Runtime, SessionSettings, StateSettings,
};
pub use units::{duration, show_duration, size};
pub use variable::sandbox_variable;
pub use via::AllOrigins;

use gateway_credential::StoreSettings;
use gateway_credential::preset::{self, Preset, PresetPermission};
use gateway_export::ExportSettings;
use gateway_message::{HostPattern, Scheme};
use gateway_origin::resolve::ResolverSettings;
use gateway_policy as policy;
use gateway_policy::{Declared, ProtocolEndpoint};
use gateway_server::Limits;
use gateway_spend::Budget;

use credential::RequestedPreset;

/// Every setting, validated as a whole.
///
/// The default is that of an empty file. It has no listener, no credential and no policy, so
/// everything is denied.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The file that it was read from, if one was named.
    pub file: Option<PathBuf>,
    /// The user's own file that it was read from.
    pub user: Option<PathBuf>,
    /// The project's file that it was read from, which a person has allowed.
    pub project: Option<PathBuf>,
    /// The session CA.
    pub ca: Ca,
    /// Where sessions are kept.
    pub state: StateSettings,
    /// The audit log.
    pub audit: Audit,
    /// The servers that its records are exported to.
    pub exports: Vec<ExportSettings>,
    /// Who is told when a policy asks a person.
    pub notify: Vec<NotifySettings>,
    /// What requests may use up.
    pub budgets: Vec<Arc<Budget>>,
    /// The operator's own prices of models.
    pub prices: Vec<gateway_spend::OwnPrice>,
    /// The policy files.
    pub policy: policy::Settings,
    /// The threads.
    pub runtime: Runtime,
    /// The resolver.
    pub resolver: ResolverSettings,
    /// Where `gateway serve` listens.
    pub listeners: Vec<Listener>,
    /// The credentials.
    pub credentials: Vec<Credential>,
    /// The logins that the gateway holds and renews.
    pub logins: Vec<ConfiguredLogin>,
    /// The stores that keep secrets.
    pub stores: Vec<StoreSettings>,
    /// The settings for all origins.
    pub defaults: AllOrigins,
    /// The settings of particular origins.
    pub origins: Vec<Origin>,
    /// The facts that policies may read from content.
    pub facts: Declared,
    /// The sandbox of `gateway exec`.
    pub sandbox: Sandbox,
    /// The limits of the data path.
    pub limits: Limits,
    /// The control socket.
    pub control: ControlSettings,
    /// The sessions of callers.
    pub sessions: SessionSettings,
    /// The file of rules that operators granted while a gateway ran. `exec` keeps one for each
    /// project, `serve` one beside its configuration.
    pub granted: Option<PathBuf>,
    /// The file that phantoms are written to, for the workload.
    pub phantoms: PhantomFile,
    /// Hosts that flags and the file allow, for any method and path.
    pub allow: Vec<HostPort>,
    /// Presets that flags and the file name. Their hosts are allowed, and their variables hold
    /// phantoms.
    pub presets: Vec<String>,
    /// The named permissions of these presets. Nothing beyond them is permitted.
    pub permissions: Vec<(&'static Preset, &'static PresetPermission)>,
    /// Those of these presets that are the user's own, each with its file.
    pub own_presets: Vec<(PathBuf, &'static Preset)>,
    /// Whether a person lets this run reach any host, to learn its needs.
    pub open: bool,
    /// The fingerprint of the key with which git signs commits in the sandbox. It may, unless
    /// policy files decide.
    pub commit_key: Option<String>,
    /// Hosts that an agent's profile needs.
    pub offered: Vec<HostPort>,
    /// Presets of an agent's profile.
    pub offered_presets: Vec<String>,
    /// Presets of an agent's profile whose hosts it reaches only if their keys are lent.
    pub keyed_presets: Vec<String>,
    /// The presets that flags name. No policy file need permit them.
    pub flag_presets: Vec<String>,
    /// The logins that flags name, in the same way.
    pub flag_logins: Vec<String>,
    /// Logins of the user's programs that flags and the file name.
    pub named_logins: Vec<String>,
    /// Logins of an agent's profile: used unless another credential is bound to their hosts.
    pub offered_logins: Vec<String>,
    /// The groups that the session of `gateway exec` is in.
    pub groups: Vec<String>,
    /// Warnings for the operator.
    pub warnings: Vec<Diagnostic>,
    /// The secrets that cannot be used at present.
    unusable: Vec<Diagnostic>,
    /// The user's home, which `~` stands for.
    home: Option<PathBuf>,
}

impl Config {
    /// Notes the permissions and the files of requested presets. Returns the presets' names.
    fn request(&mut self, requested: Vec<RequestedPreset>) -> Vec<String> {
        let mut names = Vec::new();
        for one in requested {
            self.permissions
                .extend(one.permission.map(|known| (one.preset, known)));
            self.own_presets
                .extend(one.file.map(|file| (file, one.preset)));
            names.push(one.preset.name.clone());
        }
        names
    }

    /// Returns the preset with this name, of the program or of the user's own.
    pub fn preset(&self, name: &str) -> Option<&'static Preset> {
        let mut own = self.own_presets.iter().map(|(_, preset)| *preset);
        preset::named(name).or_else(|| own.find(|preset| preset.name == name))
    }

    /// Returns what policies may name: the facts of the file and of presets' endpoints, and the
    /// budgets.
    pub fn declared(&self) -> Declared {
        let mut declared = self.facts.clone();
        let own = self
            .own_presets
            .iter()
            .flat_map(|(_, preset)| &preset.endpoints);
        for known in preset::endpoints().chain(own) {
            declared.add_endpoint(ProtocolEndpoint {
                protocol: known.protocol,
                origins: known.origins.clone(),
                routes: known.paths.clone(),
            });
        }
        for budget in &self.budgets {
            declared.add_budget(budget.name.clone(), budget.unit.is_of_models());
        }
        // A person may have a service at a host of their own.
        for own in self
            .credentials
            .iter()
            .filter(|one| !one.origins.is_empty())
        {
            let known = own.preset.as_deref().and_then(preset::named);
            for known in known.iter().flat_map(|preset| &preset.endpoints) {
                declared.add_endpoint(ProtocolEndpoint {
                    protocol: known.protocol,
                    origins: own.origins.clone(),
                    routes: known.paths.clone(),
                });
            }
        }
        declared
    }

    /// Returns the secrets that cannot be used at present, for a command that does not need them.
    pub fn unusable(&self) -> &[Diagnostic] {
        &self.unusable
    }
}

/// Allows every request to one port of a host or of the names below a domain.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// The hosts.
    pub host: HostPattern,
    /// The port.
    pub port: u16,
}

impl HostPort {
    /// Whether a text names a path, which [`Self::parse`] leaves out.
    pub fn leaves_out_path(text: &str) -> bool {
        network::has_path(text)
    }

    /// Reads `HOST`, `HOST:PORT` or `*.DOMAIN[:PORT]`, or an https URL, whose path is left out. The
    /// port is 443 unless given.
    ///
    /// # Errors
    /// Returns a [`Hint`] if it is none of them, an address that no origin can have, or a domain
    /// under which anybody may register.
    pub fn parse(text: &str) -> Result<Self, Hint> {
        let read = network::allowed(text)?;
        if read.scheme == Scheme::Http {
            return refused!("clear text is a setting of the gateway, not a rule";
                "use https, or start anew with `--allow http://HOST`");
        }
        let (host, port) = (read.hosts, read.port);
        Ok(Self { host, port })
    }
}

/// The configuration was refused, for all of these reasons.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", shown(.mistakes))]
pub struct ConfigError {
    /// Every mistake and warning, in the order of the file.
    pub mistakes: Vec<Diagnostic>,
}

fn shown(mistakes: &[Diagnostic]) -> String {
    mistakes
        .iter()
        .map(Diagnostic::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}
