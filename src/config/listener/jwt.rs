//! `jwt` of `[[listener]]`: the JWTs that a proxy accepts.

use std::path::{Path, PathBuf};

use gateway_credential::login::TokenEndpoint;
use gateway_files as files;
use gateway_intercept::{JwtKeys, JwtSettings};

use crate::diagnostic::Hint;
use crate::login::endpoint;
use crate::section::Section;
use crate::section::word;

/// The JWTs that a proxy accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerJwt {
    /// The claims that they must have.
    pub settings: JwtSettings,
    keys: IssuerKeys,
}

/// The source of an issuer's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
enum IssuerKeys {
    /// In a file.
    File(PathBuf, JwtKeys),
    /// At the URL where the issuer publishes them.
    Url(TokenEndpoint),
}

impl ListenerJwt {
    /// Returns the keys, if they are in a file.
    #[must_use]
    pub fn keys(&self) -> Option<&JwtKeys> {
        match &self.keys {
            IssuerKeys::File(_, keys) => Some(keys),
            IssuerKeys::Url(_) => None,
        }
    }

    /// Returns the URL where the issuer publishes its keys.
    #[must_use]
    pub fn url(&self) -> Option<&TokenEndpoint> {
        match &self.keys {
            IssuerKeys::File(..) => None,
            IssuerKeys::Url(url) => Some(url),
        }
    }

    /// Returns the file of the keys.
    pub(crate) fn file(&self) -> Option<&Path> {
        match &self.keys {
            IssuerKeys::File(path, _) => Some(path),
            IssuerKeys::Url(_) => None,
        }
    }
}

pub(super) fn jwt(section: &Section<'_, '_>) -> Option<ListenerJwt> {
    require!(section, "issuer"; "anybody signs JWTs"; "add `issuer = \"https://issuer.example\"`");
    require!(section, "audience"; "a JWT for another service could be used here";
        "add `audience = \"gateway\"`");
    require!(section, "keys"; "a JWT is verified by a key of its issuer";
        "add `keys = \"jwks.json\"`, or the URL where the issuer publishes them");
    let (issuer, audience) = (section.get("issuer", word), section.get("audience", word));
    let keys = section.get("keys", |text| match text.contains("://") {
        true => endpoint(text).map(IssuerKeys::Url),
        false => file(section.document.path(text)?),
    });
    let user = section.get("user", word);
    let groups = section.all("groups", word);
    Some(ListenerJwt {
        settings: JwtSettings {
            issuer: issuer?,
            audience: audience?,
            user: user.unwrap_or_else(|| "sub".to_owned()),
            groups,
        },
        keys: keys?,
    })
}

fn file(path: PathBuf) -> Result<IssuerKeys, Hint> {
    let text = files::read(&path, 1).map_err(|unfit| Hint::of(&unfit, &path))?;
    let unfit = |why| hint!("{why}"; "write the keys as the issuer publishes them, with `keys`");
    let keys = JwtKeys::read(text.as_bytes()).map_err(unfit)?;
    Ok(IssuerKeys::File(path, keys))
}
