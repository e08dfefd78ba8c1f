//! Configuration, from `gateway.toml` and flags to one valid [`Config`].
//!
//! It may use every module, and only `cli` may use it. A file is read key by key, and all of its
//! mistakes are reported at once, each with its place, the reason and the remedy; a configuration
//! with one mistake is not taken at all.

mod bind;
mod credential;
mod cross;
mod fact;
mod flags;
pub mod keys;
mod listener;
pub mod literal;
mod mistake;
mod network;
mod origin;
mod page;
mod read;
mod reference;
mod settings;
mod signing;
mod sigv4;
pub mod state;
mod units;
mod variable;
mod vault;

use std::path::{Path, PathBuf};

pub use credential::Credential;
pub use flags::Flags;
pub use listener::{Authentication, Listener, ListenerKind};
pub use mistake::{Doubt, Mistake, Position, Severity};
pub use origin::Origin;
pub use settings::{Audit, Ca, Phantoms, Runtime, Sandbox};
pub use variable::sandbox_variable;

use crate::credential::VaultSettings;
use crate::gateway::Limits;
use crate::message::HostPattern;
use crate::origin::resolve::ResolverSettings;
use crate::policy;
use crate::policy::Declared;

/// Holds every setting, valid as a whole.
///
/// The default is that of an empty file: no listener, no credential, no policy, so that everything
/// is denied.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The file that it was read from.
    pub file: Option<PathBuf>,
    /// The session CA.
    pub ca: Ca,
    /// The audit log.
    pub audit: Audit,
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
    /// The Vault or OpenBao that keeps secrets.
    pub vault: Option<VaultSettings>,
    /// How origins are reached.
    pub origins: Vec<Origin>,
    /// What policies may read of content.
    pub facts: Declared,
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
