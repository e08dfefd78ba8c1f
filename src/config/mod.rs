//! Room: configuration, from `gateway.toml` and flags to one valid [`Config`].
//!
//! Top floor: it may use every room, none may use it. A file is read key by key, and all of its
//! mistakes are reported at once, each with its place, the reason and the remedy; a configuration
//! with one mistake is not taken at all.

mod credential;
mod cross;
pub mod flags;
pub mod keys;
mod listener;
pub mod literal;
mod mistake;
mod network;
mod origin;
mod page;
mod pattern;
mod policy;
mod read;
mod reference;
mod settings;
mod signing;
pub mod state;
mod units;
mod vault;

use std::path::{Path, PathBuf};

pub use credential::{COMMON_PLACES, Credential, common_places, sandbox_variable};
pub use flags::Flags;
pub use listener::{Authentication, Listener, ListenerKind};
pub use mistake::{Doubt, Mistake, Position, Severity};
pub use network::Network;
pub use origin::{ClientIdentity, HttpVersion, OriginRule};
pub use policy::{Policy, PolicySource, PolicyUnreadable};
pub use settings::{Audit, Ca, Limits, Phantoms, Resolver, Runtime, Sandbox, Sync};
pub use signing::{Part as SigningPart, Signing, Way as SigningWay};
pub use units::{Size, duration, show_duration};

use crate::credential::VaultSettings;
use crate::message::{Host, HostPattern, Origin};

/// Holds every setting, valid as a whole.
///
/// The default is that of an empty file: no listener, no credential, no policy, so that everything
/// is denied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// The file that it was read from.
    pub file: Option<PathBuf>,
    /// The session CA.
    pub ca: Ca,
    /// The audit log.
    pub audit: Audit,
    /// The policy files.
    pub policy: Policy,
    /// The threads.
    pub runtime: Runtime,
    /// The resolver.
    pub resolver: Resolver,
    /// Where `gateway serve` listens.
    pub listeners: Vec<Listener>,
    /// The credentials.
    pub credentials: Vec<Credential>,
    /// The Vault or OpenBao that keeps secrets.
    pub vault: Option<VaultSettings>,
    /// How origins are reached.
    pub origins: Vec<OriginRule>,
    /// The sandbox of `gateway exec`.
    pub sandbox: Sandbox,
    /// The bounds of the data path.
    pub limits: Limits,
    /// Where phantoms are written.
    pub phantoms: Phantoms,
    /// Hosts that flags allow, any method and path.
    pub allow: Vec<Allowed>,
    /// Presets that flags name: their hosts are allowed, their variables hold phantoms.
    pub presets: Vec<String>,
    /// The groups that the session of `gateway exec` is in.
    pub groups: Vec<String>,
    /// What the operator should look at.
    pub warnings: Vec<Mistake>,
    /// The user's home, where `~` leads.
    home: Option<PathBuf>,
}

/// Allows every request to one port of a host or of the names below a domain.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Allowed {
    /// The hosts.
    pub host: HostPattern,
    /// The port.
    pub port: u16,
}

/// A configuration was refused, for all of these reasons.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", shown(.mistakes))]
pub struct Refused {
    /// Every mistake and warning, in the order of the file.
    pub mistakes: Vec<Mistake>,
}

fn shown(mistakes: &[Mistake]) -> String {
    mistakes
        .iter()
        .map(Mistake::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

impl Config {
    /// The rule for an origin: the one of its very host, else the one of the longest domain above
    /// it.
    #[must_use]
    pub fn origin_rule(&self, origin: &Origin) -> Option<&OriginRule> {
        self.origins
            .iter()
            .filter(|rule| rule.matches.matches(origin))
            .max_by_key(|rule| match &rule.matches.hosts {
                HostPattern::Exact(_) => usize::MAX,
                HostPattern::Below(domain) => domain.as_str().len(),
            })
    }

    /// Whether some flag allows a host and port.
    #[must_use]
    pub fn allows(&self, host: &Host, port: u16) -> bool {
        self.allow
            .iter()
            .any(|allowed| allowed.port == port && allowed.host.matches(host))
    }

    /// The folder of the audit log, links followed: that of the file that is named, else that of
    /// the user's logs.
    #[must_use]
    pub fn audit_folder(&self) -> Option<PathBuf> {
        let named = self.audit.path.as_deref().map(cross::real);
        let folder = named.map(|file| file.parent().map(Path::to_owned));
        folder.unwrap_or_else(|| state::audit_directory().map(|folder| cross::real(&folder)))
    }

    /// The files that the gateway reads or writes for itself, which no workload may see or change.
    #[must_use]
    pub fn own_files(&self) -> Vec<PathBuf> {
        cross::own(self)
    }

    /// The files in which secrets lie.
    #[must_use]
    pub fn secret_files(&self) -> Vec<PathBuf> {
        cross::secrets(self)
    }
}
