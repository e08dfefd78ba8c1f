//! The logins of a run: those that flags, files and references name, and those of its agent.

use super::failure::Failure;
use super::resolve::ResolvedConfig;
use super::terminal::safe;
use crate::config::{Allowed, Config, keys, state};
use crate::credential::login::{Login, LoginPlace};
use crate::credential::preset;
use crate::message::{HostPattern, OriginPattern};
use crate::names::CredentialName;

/// A login of the agent's profile that is not used, and the credential that is used in its place.
pub struct UnusedLogin {
    /// The login.
    pub login: CredentialName,
    /// What is bound to its hosts.
    pub instead: CredentialName,
}

impl ResolvedConfig {
    /// Binds the logins that flags and the file name, and finds those that credentials refer to.
    ///
    /// # Errors
    /// Returns a [`Failure`] if there is no such login, or another credential is for its hosts.
    pub(super) fn bind_logins(&mut self, config: &Config) -> Result<(), Failure> {
        for name in &config.logins {
            for login in known(name)? {
                if let Some(other) = self.bound_beside(&login) {
                    return Err(two(&login.name, &other));
                }
                self.bind(login);
            }
        }
        let references = config.credentials.iter().flat_map(|one| one.references());
        for name in references.filter_map(|reference| reference.login_name()) {
            if !self.logins.iter().any(|known| known.name == *name) {
                self.logins.extend(known(name.as_str())?);
            }
        }
        Ok(())
    }

    /// Binds the logins of an agent, unless a credential that a person named or set is for their
    /// hosts. They are bound before there is any: the agent may log in inside.
    ///
    /// # Errors
    /// Returns a [`Failure`] if there is no such login.
    pub(super) fn offer_logins(&mut self, config: &Config) -> Result<(), Failure> {
        for name in &config.offered_logins {
            for login in known(name)? {
                match self.bound_beside(&login) {
                    None => self.bind(login),
                    Some(instead) if instead != login.name && is_there(&login) => {
                        let login = login.name;
                        self.unused.push(UnusedLogin { login, instead });
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }

    fn bind(&mut self, login: Login) {
        let endpoint = login.issuer.iter().map(|issuer| &issuer.endpoint.origin);
        self.offered.extend(endpoint.map(|origin| Allowed {
            host: HostPattern::Exact(origin.authority.host.clone()),
            port: origin.authority.port,
        }));
        self.stored.extend(login.stored());
        self.logins.push(login);
    }

    /// Whether a login is bound to one of these origins.
    pub(super) fn has_login_at(&self, origins: &[OriginPattern]) -> bool {
        let mut tokens = self.logins.iter().flat_map(|login| &login.tokens);
        tokens.any(|token| {
            let mut bound = token.origins.iter();
            bound.any(|bound| origins.iter().any(|origin| origin.overlaps(bound)))
        })
    }

    /// Returns a credential that has a login's name, or is bound to one of its hosts.
    fn bound_beside(&self, login: &Login) -> Option<CredentialName> {
        let origins = login.tokens.iter().flat_map(|token| &token.origins);
        let origins: Vec<&OriginPattern> = origins.collect();
        let is_beside = |bound: &OriginPattern| origins.iter().any(|one| one.overlaps(bound));
        let mut bindings = self.bindings();
        let found = bindings.find(|binding| {
            binding.credential == login.name || binding.origins.iter().any(is_beside)
        });
        found.map(|binding| binding.credential.clone())
    }
}

/// Whether somebody has logged in.
pub(super) fn is_there(login: &Login) -> bool {
    match &login.place {
        LoginPlace::File(file) => file.path.exists(),
        LoginPlace::State => true,
    }
}

/// Returns the logins of a name: a program may be logged in at several hosts, and each of them is
/// a login of its own, `NAME-HOST`.
fn known(name: &str) -> Result<Vec<Login>, Failure> {
    let home = state::home().ok_or_else(|| {
        let what = format!("the login `{}` needs your home directory", safe(name));
        Failure::new(what).because("HOME is not set")
    })?;
    let at_home = |one: &preset::PresetLogin| {
        let what = || format!("the login `{}` cannot be used", one.name);
        one.at_home(&home).map_err(|error| {
            Failure::usage(what())
                .because(error.to_string())
                .next("or run without it: `--no-lend`")
        })
    };
    if let Some(preset) = preset::login_named(name) {
        return at_home(preset);
    }
    let mut found = Vec::new();
    for preset in preset::logins() {
        let rest = name.strip_prefix(preset.name.as_str());
        if rest.is_some_and(|rest| rest.starts_with('-')) {
            found.extend(at_home(preset)?);
        }
    }
    found.retain(|login| login.name.as_str() == name);
    match found.is_empty() {
        true => Err(unknown(name)),
        false => Ok(found),
    }
}

fn unknown(name: &str) -> Failure {
    let names = || preset::logins().map(|login| login.name.as_str());
    let all: Vec<&str> = names().collect();
    let failure = Failure::usage(format!("there is no login `{}`", safe(name)))
        .because(format!("there are {}", all.join(", ")));
    match keys::nearest(name, names()) {
        Some(near) => failure.next(format!("did you mean `{near}`?")),
        None => failure,
    }
}

fn two(login: &CredentialName, other: &CredentialName) -> Failure {
    Failure::usage(format!(
        "the login `{login}` and `{other}` are for the same host"
    ))
    .because("the command would have two credentials for one request")
    .next("leave one of them out, or limit `origins` of the `[[credential]]`")
}
