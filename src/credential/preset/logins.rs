//! The logins of programs that presets know, as data.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use zeroize::Zeroizing;

use super::parse::all_parsed;
use super::user_config;
use crate::credential::login::file::value;
use crate::credential::login::{
    ClientSecret, FileFault, FileFormat, FileUnreadable, HostToken, Issuer, Login, LoginFile,
    LoginPlace, LoginToken, RequestFormat, TokenEndpoint, TokenGrant, TokenKind, entries,
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
    filled: Vec<String>,
    /// The members that name the client, if the file does.
    client_member: Option<String>,
    secret_member: Option<String>,
    issuer: Option<Issuer>,
    origins: Vec<OriginPattern>,
    places: Vec<Place>,
    shape: Option<Shape>,
    claims: Vec<String>,
}

impl PresetLogin {
    /// The logins in the file of this home: the preset's own, and one for each other host that the
    /// file names.
    ///
    /// # Errors
    /// [`FileUnreadable`] if the file cannot be read.
    pub fn at_home(&self, home: &Path) -> Result<Vec<Login>, FileUnreadable> {
        let file = self.login_file(home);
        let text = user_config::text(&file.path).map_err(|doubt| FileUnreadable {
            path: file.path.clone(),
            member: None,
            fault: FileFault::Form(doubt.why),
        })?;
        let text = text.map(Zeroizing::new);
        if self.format == FileFormat::Json {
            let issuer = self.issuer_of(&file, text.as_ref())?;
            let origins = &self.origins;
            return Ok(vec![self.login(self.name.clone(), file, issuer, origins)]);
        }
        let found = text.map_or(Ok(Vec::new()), |text| entries(&file, &text))?;
        let mut logins = Vec::new();
        for HostToken { member, host, .. } in found {
            let origin = host.parse::<OriginPattern>().ok();
            let is_own = origin.is_some() && origin.as_ref() == self.origins.first();
            let name = CredentialName::new(&format!("{}-{host}", self.name)).ok();
            let (Some(origin), Some(name)) = (origin, name) else {
                return Err(file.at(&member, FileFault::NoHost));
            };
            let one = file.with_access(member);
            logins.push(if is_own {
                let name = self.name.clone();
                self.login(name, one, self.issuer.clone(), &self.origins)
            } else {
                self.login(name, one, None, &[origin])
            });
        }
        // Without it, a login inside would have another name than the file's.
        if let (Some(_), false) = (&self.issuer, logins.iter().any(|one| one.name == self.name)) {
            let name = self.name.clone();
            logins.push(self.login(name, file, self.issuer.clone(), &self.origins));
        }
        Ok(logins)
    }

    /// The login as one begins it that is in no file; `None` if nobody issues it.
    #[must_use]
    pub fn begun(&self) -> Option<Login> {
        let (issuer, file) = (self.issuer.clone()?, self.login_file(Path::new("/")));
        let login = self.login(self.name.clone(), file, Some(issuer), &self.origins);
        Some(Login {
            place: LoginPlace::State,
            ..login
        })
    }

    fn login(
        &self,
        name: CredentialName,
        file: LoginFile,
        issuer: Option<Issuer>,
        origins: &[OriginPattern],
    ) -> Login {
        let mut kinds: Vec<TokenKind> = file.members.iter().map(|(kind, _)| *kind).collect();
        if !kinds.contains(&TokenKind::Access) {
            kinds.push(TokenKind::Access);
        }
        let token = |kind| self.token(kind, origins);
        Login {
            name,
            place: LoginPlace::File(file),
            issuer,
            tokens: kinds.into_iter().map(token).collect(),
        }
    }

    /// Who renews the tokens, with the client that the file names, if it names one.
    fn issuer_of(
        &self,
        file: &LoginFile,
        text: Option<&Zeroizing<String>>,
    ) -> Result<Option<Issuer>, FileUnreadable> {
        let (Some(mut issuer), Some(text)) = (self.issuer.clone(), text) else {
            return Ok(self.issuer.clone());
        };
        let member = |pointer: &Option<String>| match pointer {
            Some(pointer) => value(file, text.as_bytes(), pointer),
            None => Ok(None),
        };
        if let Some(client) = member(&self.client_member)? {
            issuer.client = Some(client.to_string());
        }
        if let Some(secret) = member(&self.secret_member)? {
            issuer.client_secret = Some(ClientSecret(secret));
        }
        Ok(Some(issuer))
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
            filled: self
                .filled
                .iter()
                .chain(&self.secret_member)
                .cloned()
                .collect(),
            path,
        }
    }

    fn token(&self, kind: TokenKind, origins: &[OriginPattern]) -> LoginToken {
        let is_access = kind == TokenKind::Access;
        let (origins, places) = match kind {
            TokenKind::Access => (origins.to_vec(), self.places.clone()),
            TokenKind::Refresh | TokenKind::Id => Default::default(),
        };
        LoginToken {
            kind,
            origins,
            places,
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
    #[serde(default)]
    filled: Vec<String>,
    token_url: Option<String>,
    revoke_url: Option<String>,
    client_id: Option<String>,
    client_secret: Option<String>,
    client_member: Option<String>,
    secret_member: Option<String>,
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
        // Where a file has several hosts, its own is that of the first origin.
        let own = (self.format != FileFormat::Json).then(|| self.hosts.first().cloned());
        let access = own.flatten().or(self.access.clone());
        let members = [
            (TokenKind::Access, &access),
            (TokenKind::Refresh, &self.refresh),
            (TokenKind::Id, &self.id),
        ];
        let named = |(kind, member): (TokenKind, &Option<String>)| Some((kind, member.clone()?));
        Ok(PresetLogin {
            name: CredentialName::new(&self.name).map_err(|error| error.to_string())?,
            members: members.into_iter().filter_map(named).collect(),
            issuer: self.issuer()?,
            origins: all_parsed(&self.hosts)?,
            places: all_parsed(&self.places)?,
            shape: match &self.shape {
                None => None,
                Some(shape) => Some(Shape::parse(shape).map_err(|error| error.to_string())?),
            },
            file: self.file,
            client_member: self.client_member,
            secret_member: self.secret_member,
            folder_variable: self.folder_variable,
            lock: self.lock,
            format: self.format,
            expires: self.expires,
            renewed: self.renewed,
            shown: self.shown,
            filled: self.filled,
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
            secret: None,
            scopes: Vec::new(),
            grant: TokenGrant::Refresh,
            requests: self.requests,
        }))
    }
}

fn json() -> FileFormat {
    FileFormat::Json
}
