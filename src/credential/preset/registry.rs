//! Package registries: the public one of each, and those that the user's own files name.

use gateway_message::OriginPattern;
use serde::Deserialize;

use super::mapping::{RegistryMapping, RegistryReader};
use super::parse::each;
use super::user_config::{RegistryDoubt, UserConfig};
use super::{javascript, packages, python};

/// A package registry, and the clients that ask it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackageRegistry {
    /// Whose files name others.
    pub clients: PackageClients,
    /// What its clients ask, unless the user's own files name another.
    #[serde(deserialize_with = "each")]
    pub public: Vec<OriginPattern>,
    /// Where the public registry's packages come from. No credential goes there.
    #[serde(default, deserialize_with = "each")]
    pub downloads: Vec<OriginPattern>,
}

/// Clients that share their settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PackageClients {
    /// npm, and those that read its settings.
    Npm,
    /// pip, uv, twine.
    Pypi,
    /// cargo.
    Crates,
    /// Go.
    Go,
}

impl PackageRegistry {
    /// Reads what the user's own files and variables say.
    ///
    /// # Errors
    /// [`RegistryDoubt`] names the first setting that cannot be read. It may name the registry of
    /// packages that the public one must not hear of.
    pub fn mapping(&self, user: &UserConfig) -> Result<RegistryMapping, RegistryDoubt> {
        self.read(
            user,
            match self.clients {
                PackageClients::Npm => javascript::read,
                PackageClients::Pypi => python::read,
                PackageClients::Crates => packages::crates,
                PackageClients::Go => packages::go,
            },
        )
    }

    /// The registries in the `.npmrc` of the home, if this is npm's. Nothing else is read.
    pub fn in_npmrc(&self, user: &UserConfig) -> Vec<OriginPattern> {
        match self.clients {
            PackageClients::Npm => self.read(user, javascript::read_npmrc),
            _ => return Vec::new(),
        }
        .map_or_else(|_| Vec::new(), |found| found.origins)
    }

    fn read(&self, user: &UserConfig, files: ReadFiles) -> Result<RegistryMapping, RegistryDoubt> {
        let mut reader = RegistryReader {
            user,
            public: &self.public,
            found: RegistryMapping::default(),
        };
        files(&mut reader)?;
        Ok(reader.found)
    }
}

type ReadFiles = fn(&mut RegistryReader<'_>) -> Result<(), RegistryDoubt>;
