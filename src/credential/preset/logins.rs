//! The logins of programs that presets know, as data.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{all_parsed, origins};
use crate::credential::login::{
    ClientSecret, FileFormat, Issuer, Login, LoginFile, LoginPlace, LoginToken, RequestFormat,
    TokenEndpoint, TokenKind,
};
use crate::message::{OriginPattern, Place};
use crate::names::CredentialName;
use crate::session::phantom::Shape;

/// The login of a program: its file, who renews it, and where its tokens may go.
#[derive(Debug, Clone)]
pub struct PresetLogin {
    /// The name that configuration uses.
    pub name: CredentialName,
    /// The file, below the home.
    pub file: PathBuf,
    /// The variable that names the file's folder, if it is elsewhere.
    folder_variable: Option<String>,
    /// The program's own lock, beside the file.
    lock: Option<PathBuf>,
    format: FileFormat,
    members: Vec<(TokenKind, String)>,
    expires: Option<String>,
    renewed: Option<String>,
    shown: Vec<String>,
    issuer: Option<Issuer>,
    origins: Vec<OriginPattern>,
    places: Vec<Place>,
    shape: Option<Shape>,
    claims: Vec<String>,
}

impl PresetLogin {
    /// The logins in the file of this home.
    #[must_use]
    pub fn at_home(&self, home: &Path) -> Vec<Login> {
        let token = |(kind, _): &(TokenKind, String)| self.token(*kind);
        vec![Login {
            name: self.name.clone(),
            place: LoginPlace::File(self.login_file(home)),
            issuer: self.issuer.clone(),
            tokens: self.members.iter().map(token).collect(),
        }]
    }

    fn login_file(&self, home: &Path) -> LoginFile {
        let path = self.path(home);
        let beside = |lock: &PathBuf| path.with_file_name(lock);
        LoginFile {
            inside: self.file.clone(),
            lock: self.lock.as_ref().map(beside),
            format: self.format,
            members: self.members.clone(),
            expires: self.expires.clone(),
            renewed: self.renewed.clone(),
            shown: self.shown.clone(),
            path,
        }
    }

    fn token(&self, kind: TokenKind) -> LoginToken {
        let is_access = kind == TokenKind::Access;
        let of_access = |places: &[Place]| {
            if is_access {
                places.to_vec()
            } else {
                Vec::new()
            }
        };
        LoginToken {
            kind,
            origins: if is_access {
                self.origins.clone()
            } else {
                Vec::new()
            },
            places: of_access(&self.places),
            shape: self.shape.clone().filter(|_| is_access),
            claims: self.claims.clone(),
        }
    }

    /// Where the file is outside.
    fn path(&self, home: &Path) -> PathBuf {
        let usual = home.join(&self.file);
        let named = self.folder_variable.as_ref().and_then(std::env::var_os);
        let folder = named
            .map(PathBuf::from)
            .filter(|folder| folder.is_absolute());
        match (folder, self.file.file_name()) {
            (Some(folder), Some(name)) => folder.join(name),
            _ => usual,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLogin {
    name: String,
    file: PathBuf,
    folder_variable: Option<String>,
    lock: Option<PathBuf>,
    #[serde(default = "json")]
    format: FileFormat,
    access: Option<String>,
    refresh: Option<String>,
    id: Option<String>,
    expires: Option<String>,
    renewed: Option<String>,
    #[serde(default)]
    shown: Vec<String>,
    token_url: Option<String>,
    revoke_url: Option<String>,
    client_id: Option<String>,
    client_secret: Option<String>,
    #[serde(default)]
    requests: RequestFormat,
    hosts: Vec<String>,
    places: Vec<String>,
    shape: Option<String>,
    #[serde(default)]
    claims: Vec<String>,
}

impl RawLogin {
    pub(super) fn read(self) -> Result<PresetLogin, String> {
        let members = [
            (TokenKind::Access, &self.access),
            (TokenKind::Refresh, &self.refresh),
            (TokenKind::Id, &self.id),
        ];
        let named = |(kind, member): (TokenKind, &Option<String>)| Some((kind, member.clone()?));
        Ok(PresetLogin {
            name: CredentialName::new(&self.name).map_err(|error| error.to_string())?,
            members: members.into_iter().filter_map(named).collect(),
            issuer: self.issuer()?,
            origins: origins(&self.hosts)?,
            places: all_parsed(&self.places)?,
            shape: match &self.shape {
                None => None,
                Some(shape) => Some(Shape::parse(shape).map_err(|error| error.to_string())?),
            },
            file: self.file,
            folder_variable: self.folder_variable,
            lock: self.lock,
            format: self.format,
            expires: self.expires,
            renewed: self.renewed,
            shown: self.shown,
            claims: self.claims,
        })
    }

    fn issuer(&self) -> Result<Option<Issuer>, String> {
        let endpoint = |url: &String| {
            TokenEndpoint::parse(url).ok_or_else(|| format!("{url}: no address of an endpoint"))
        };
        let Some(url) = &self.token_url else {
            return Ok(None);
        };
        let secret = self.client_secret.clone();
        Ok(Some(Issuer {
            endpoint: endpoint(url)?,
            revocation: self.revoke_url.as_ref().map(endpoint).transpose()?,
            client: self.client_id.clone(),
            client_secret: secret.map(|secret| ClientSecret(secret.into())),
            requests: self.requests,
        }))
    }
}

fn json() -> FileFormat {
    FileFormat::Json
}
