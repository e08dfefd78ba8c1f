//! What a session's clients need: shown on the gateway's own pages and by operators' commands.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gateway_intercept::{ConnectionContext, Entry, PRESENTED_USER};
use gateway_message::{Authority, Scheme};
use gateway_names::CredentialName;
use gateway_session::Session;
use serde::{Deserialize, Serialize};

use crate::snapshot::Snapshot;

/// What a session's clients need for the credentials that are lent to this caller.
#[derive(Default, Deserialize, Serialize)]
pub struct ClientEnvironment {
    /// The proxy, if they use one.
    pub proxy: Option<ClientProxy>,
    /// The certificate of the session's CA, PEM; empty where the gateway does not terminate TLS.
    pub certificate: String,
    /// Where that certificate is on the gateway's machine, if it has a file there.
    pub certificate_file: Option<PathBuf>,
    /// The phantoms, by their variables.
    pub variables: BTreeMap<String, String>,
    /// Git's settings, as variables.
    pub git: BTreeMap<String, String>,
    /// The files of its logins, with phantoms, by their paths below the home.
    pub files: BTreeMap<String, String>,
}

/// How clients reach a proxy.
#[derive(Deserialize, Serialize)]
pub struct ClientProxy {
    /// Whether they speak TLS to it.
    pub is_in_tls: bool,
    /// Its host and port; `None` if the gateway cannot see the address that clients dial.
    pub at: Option<String>,
    /// The user that they present.
    pub user: Option<String>,
}

/// Writes the clients' needs as commands. Set where the program is assembled.
pub trait ClientPages: Send + Sync {
    /// Returns what a session's clients need for the credentials that are lent to this caller.
    ///
    /// # Errors
    /// The cause, in words, if a login's file cannot be read.
    fn needs(
        &self,
        snapshot: &Snapshot,
        session: &Session,
        is_lent: &dyn Fn(&CredentialName) -> bool,
    ) -> Result<ClientEnvironment, String>;

    /// Returns the shell commands that set the variables and the CA.
    fn variables(&self, needs: &ClientEnvironment) -> String;

    /// Returns the shell commands that write the files into the home.
    fn files(&self, needs: &ClientEnvironment) -> String;
}

impl ClientProxy {
    /// Returns the proxy that a connection came through.
    pub(crate) fn of(connection: &ConnectionContext) -> Option<Self> {
        let reached = match connection.entry {
            Entry::Connect | Entry::Forward | Entry::Socks => connection.reached.as_ref(),
            _ => return None,
        };
        let caller = connection.caller.as_deref();
        let presents = caller.filter(|caller| caller.presented.is_some());
        let user = presents.map(|caller| {
            let user = caller.user.as_ref().filter(|_| caller.token.is_none());
            // Only a password has a user; a token or a JWT is itself the password.
            let user = user.and_then(|user| user.as_str().strip_prefix("user:"));
            user.unwrap_or(PRESENTED_USER).to_owned()
        });
        Some(Self {
            is_in_tls: reached.is_some_and(|reached| reached.scheme == Scheme::Https),
            at: reached.map(|reached| {
                let Authority { host, port } = &reached.authority;
                format!("{}:{port}", host.to_uri())
            }),
            user,
        })
    }
}
