//! The program logins that presets describe, as data.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gateway_message::{OriginPattern, PatternMalformed, Place};
use gateway_names::CredentialName;
use gateway_session::Foreign;
use serde::Deserialize;
use serde_json::Value;
use zeroize::Zeroizing;

use super::parse::{each, name};
use super::user_config;
use crate::login::file::value;
use crate::login::{
    ClientSecret, FileFault, FileFormat, FileUnreadable, HostToken, Issuer, Login, LoginFile,
    LoginPlace, LoginToken, RequestFormat, TokenEndpoint, TokenGrant, TokenKind, entries,
};

/// The login of a program: its file, its issuer, and where its tokens may be sent.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "RawLogin")]
pub struct PresetLogin {
    /// The name that configuration uses.
    pub name: CredentialName,
    issuer: Option<Issuer>,
    /// The origins that its access token is for.
    pub origins: Vec<OriginPattern>,
    data: RawLogin,
}

impl PresetLogin {
    /// Returns the logins in the program's file below this home: the preset's own, and one for each
    /// other host that the file names.
    ///
    /// # Errors
    /// [`FileUnreadable`] if the file cannot be read.
    pub fn at_home(&self, home: &Path) -> Result<Vec<Login>, FileUnreadable> {
        self.in_file(&self.path(home))
    }

    /// Returns the account whose tokens a response of this endpoint has, if a member names it.
    pub(super) fn owner(&self, endpoint: &TokenEndpoint, answer: &[u8]) -> Option<String> {
        let issuer = self.issuer.as_ref()?;
        let member = self.data.account.as_ref()?;
        let answer = serde_json::from_slice::<Value>(answer).ok();
        let answer = answer.filter(|_| issuer.endpoint.is(endpoint))?;
        Some(answer.pointer(member)?.as_str()?.to_owned())
    }

    /// Returns the logins in this file.
    pub(super) fn in_file(&self, path: &Path) -> Result<Vec<Login>, FileUnreadable> {
        let file = self.login_file(path);
        let text = user_config::text(&file.path).map_err(|doubt| FileUnreadable {
            path: file.path.clone(),
            member: None,
            fault: FileFault::Form(doubt.why),
        })?;
        let text = text.map(Zeroizing::new);
        if self.data.format == FileFormat::Json {
            let issuer = self.issuer_of(&file, text.as_ref())?;
            let origins = &self.origins;
            return Ok(vec![self.login(self.name.clone(), file, issuer, origins)]);
        }
        let found = text.map_or(Ok(Vec::new()), |text| entries(&file, &text))?;
        let mut logins = Vec::new();
        for (at, HostToken { member, host, .. }) in found.iter().enumerate() {
            let unnamed = || file.at(member, FileFault::NoHost);
            let origin: OriginPattern = host.parse().map_err(|_| unnamed())?;
            let earlier = found[..at].iter().filter(|one| one.host == *host).count();
            let of_host = match earlier {
                0 => format!("{}-{host}", self.name),
                _ => format!("{}-{host}-{}", self.name, earlier + 1),
            };
            let of_host = CredentialName::new(&of_host).map_err(|_| unnamed())?;
            let is_own = earlier == 0 && self.origins.first() == Some(&origin);
            let one = file.with_access(member.clone());
            logins.push(if is_own {
                self.login(self.name.clone(), one, self.issuer.clone(), &self.origins)
            } else {
                self.login(of_host, one, None, &[origin])
            });
        }
        // Without this login, one made inside the sandbox would have another name than the file's.
        if let (Some(_), false) = (&self.issuer, logins.iter().any(|one| one.name == self.name)) {
            let name = self.name.clone();
            logins.push(self.login(name, file, self.issuer.clone(), &self.origins));
        }
        Ok(logins)
    }

    /// Returns the login for a new grant without a file; `None` if the preset has no issuer.
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

    /// Returns the issuer, with the client that the file names, if it names one.
    fn issuer_of(
        &self,
        file: &LoginFile,
        text: Option<&Zeroizing<String>>,
    ) -> Result<Option<Issuer>, FileUnreadable> {
        let (Some(mut issuer), Some(text)) = (self.issuer.clone(), text) else {
            return Ok(self.issuer.clone());
        };
        let member = |pointer: &Option<String>| {
            let pointer = pointer.as_ref();
            let read = pointer.map(|pointer| value(file, text.as_bytes(), pointer));
            Ok(read.transpose()?.flatten())
        };
        if let Some(client) = member(&self.data.client_member)? {
            issuer.client = Some(client.to_string());
        }
        if let Some(secret) = member(&self.data.secret_member)? {
            issuer.secret = Some(ClientSecret::Known(secret));
        }
        Ok(Some(issuer))
    }

    fn login_file(&self, path: &Path) -> LoginFile {
        let data = &self.data;
        LoginFile {
            inside: data.file.clone(),
            lock: data.lock.as_ref().map(|lock| path.with_file_name(lock)),
            format: data.format,
            members: data.members(),
            expires: data.expires.clone(),
            renewed: data.renewed.clone(),
            shown: data.shown.clone(),
            filled: data
                .filled
                .iter()
                .chain(&data.secret_member)
                .map(|member| (member.clone(), "held by the gateway".into()))
                .chain(data.usual.clone())
                .collect(),
            path: path.to_owned(),
        }
    }

    fn token(&self, kind: TokenKind, origins: &[OriginPattern]) -> LoginToken {
        let (origins, places) = match kind {
            TokenKind::Access => (origins.to_vec(), self.data.places.clone()),
            TokenKind::Refresh | TokenKind::Id => Default::default(),
        };
        LoginToken {
            kind,
            origins,
            places,
            shape: None,
            claims: self.data.claims.clone(),
            foreign: if self.data.passes_foreign {
                Foreign::Pass
            } else {
                Foreign::Refuse
            },
        }
    }

    /// Returns the path of the program's file.
    fn path(&self, home: &Path) -> PathBuf {
        let variable = self.data.folder_variable.as_ref();
        let folder = variable.and_then(std::env::var_os).map(PathBuf::from);
        let usual = home.join(&self.data.file);
        match (
            folder.filter(|folder| folder.is_absolute()),
            usual.file_name(),
        ) {
            (Some(folder), Some(name)) => folder.join(name),
            _ => usual,
        }
    }
}

/// A login as written in a preset.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLogin {
    #[serde(deserialize_with = "name")]
    name: CredentialName,
    /// The path of the file, relative to the home.
    file: PathBuf,
    /// The variable that names the file's folder, if it is elsewhere.
    folder_variable: Option<String>,
    /// The program's own lock, next to the file.
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
    #[serde(default)]
    usual: BTreeMap<String, Value>,
    token_url: Option<String>,
    revoke_url: Option<String>,
    client_id: Option<String>,
    client_secret: Option<String>,
    /// The members that hold the client's id and secret, if the file has them.
    client_member: Option<String>,
    secret_member: Option<String>,
    #[serde(default)]
    requests: RequestFormat,
    hosts: Vec<String>,
    #[serde(deserialize_with = "each")]
    places: Vec<Place>,
    #[serde(default)]
    claims: Vec<String>,
    /// Whether its hosts accept foreign credentials too: tokens that they issued in exchange.
    #[serde(default)]
    passes_foreign: bool,
    /// The member of the issuer's response that names the account.
    account: Option<String>,
}

impl TryFrom<RawLogin> for PresetLogin {
    type Error = String;

    fn try_from(data: RawLogin) -> Result<Self, String> {
        let origins = data.hosts.iter().map(|host| host.parse());
        let origins: Result<_, PatternMalformed> = origins.collect();
        Ok(Self {
            name: data.name.clone(),
            issuer: data.issuer()?,
            origins: origins.map_err(|error| error.to_string())?,
            data,
        })
    }
}

impl RawLogin {
    fn members(&self) -> Vec<(TokenKind, String)> {
        // If a file has several hosts, the preset's own is that of the first origin.
        let own = self.hosts.first();
        let own = own.filter(|_| self.format != FileFormat::Json);
        let members = [
            (TokenKind::Access, own.or(self.access.as_ref())),
            (TokenKind::Refresh, self.refresh.as_ref()),
            (TokenKind::Id, self.id.as_ref()),
        ];
        let named = members.into_iter();
        named
            .filter_map(|(kind, member)| Some((kind, member?.clone())))
            .collect()
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
            secret: secret.map(|secret| ClientSecret::Known(secret.into())),
            scopes: Vec::new(),
            grant: TokenGrant::Refresh,
            requests: self.requests,
        }))
    }
}

fn json() -> FileFormat {
    FileFormat::Json
}
