//! Package registries: the public one of each kind, and those that the user's own files name.

use gateway_message::OriginPattern;
use serde::Deserialize;

use super::mapping::{RegistryMapping, RegistryReader};
use super::parse::each;
use super::user_config::{RegistryDoubt, UserConfig};
use super::{javascript, packages, python};

/// A package registry, and the clients that use it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackageRegistry {
    /// The clients whose settings may name other registries.
    pub clients: PackageClients,
    /// The registry that its clients use, unless the user's own files name another.
    #[serde(deserialize_with = "each")]
    pub public: Vec<OriginPattern>,
    /// The origins of the public registry's packages. No credential is sent there.
    #[serde(default, deserialize_with = "each")]
    pub downloads: Vec<OriginPattern>,
}

/// Clients that share their settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PackageClients {
    /// npm, and clients that read its settings.
    Npm,
    /// pip, uv, twine.
    Pypi,
    /// cargo.
    Crates,
    /// Go.
    Go,
}

impl PackageRegistry {
    /// Reads the user's own files and variables.
    ///
    /// # Errors
    /// [`RegistryDoubt`] names the first setting that cannot be read. It may name a private
    /// registry, whose packages must not be requested from the public one.
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

    /// Returns the registries in the `.npmrc` of the home, for npm. Nothing else is read.
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
