//! The variables of a client of `gateway serve`: the proxy, its CA, git's settings and phantoms.

use std::collections::BTreeMap;
use std::path::Path;

use super::app::App;
use super::failure::Failure;
use super::{ca, git_access};
use crate::config::Listener;
use crate::control::ClientEnvironment;
use crate::launch::trust;
use crate::names::SessionId;
use crate::session::Binding;

/// Returns what a client of a session of this process needs.
///
/// # Errors
/// Returns a [`Failure`] if the session has no proxy, or no certificate is written for it.
pub(super) fn of_session(app: &App, id: &SessionId) -> Result<ClientEnvironment, Failure> {
    let open = app.listening.open();
    let mut proxies = open.iter().map(|open| &open.known);
    let proxy = proxies.find(|one| one.session == *id && one.is_proxy());
    let session = app.shared.sessions.get(id);
    let (proxy, session) = proxy.zip(session).ok_or_else(no_proxy)?;
    let (certificate, _) = ca::certificate(&app.config, id)?;
    let snapshot = app.shared.current();
    let (bindings, held) = (snapshot.credentials.bindings(), session.phantoms());
    let phantoms = bindings.environment(&held);
    let phantoms = phantoms.map(|(name, phantom)| (name.to_owned(), phantom.to_owned()));
    of(proxy, &certificate, bindings.all(), phantoms.collect())
}

/// Returns what a client of a proxy needs.
///
/// # Errors
/// Returns a [`Failure`] if the certificate's path cannot be made absolute.
pub(super) fn of<'a>(
    proxy: &Listener,
    certificate: &Path,
    bindings: impl Iterator<Item = &'a Binding>,
    phantoms: BTreeMap<String, String>,
) -> Result<ClientEnvironment, Failure> {
    let certificate = std::path::absolute(certificate)
        .map_err(|error| Failure::of("the certificate's path cannot be told", &error))?;
    let is_held = |binding: &&Binding| {
        binding
            .variables
            .iter()
            .all(|one| phantoms.contains_key(one))
    };
    let held: Vec<&Binding> = bindings.filter(is_held).collect();
    let mut variables = git_access::variables(held.iter().copied());
    variables.extend(addresses(proxy));
    // The CA alone is enough, because every connection goes through the gateway. Java does not
    // accept such a file.
    let trusted = certificate.display().to_string();
    variables.extend(trust::variables().map(|(name, _)| (name.to_owned(), trusted.clone())));
    variables.extend(phantoms);
    Ok(ClientEnvironment {
        user: proxy.login().map(|login| login.user.clone()),
        variables,
    })
}

/// Returns the variables that point to the proxy. The password is not among them; it is in the
/// store that the configuration names. The client's own loopback is no destination of the gateway.
fn addresses(proxy: &Listener) -> impl Iterator<Item = (String, String)> {
    let user = proxy.login().map(|login| format!("{}@", login.user));
    let at = format!("{}{}", user.unwrap_or_default(), proxy.address);
    let http = format!("http://{at}");
    let loopback = String::from("localhost,127.0.0.1,::1");
    let pairs = [
        ("HTTPS_PROXY", http.clone()),
        ("https_proxy", http.clone()),
        ("HTTP_PROXY", http.clone()),
        ("http_proxy", http),
        ("ALL_PROXY", format!("socks5h://{at}")),
        ("NO_PROXY", loopback.clone()),
        ("no_proxy", loopback),
        // Node reads the proxy variables from version 24 on, and only if this is set.
        ("NODE_USE_ENV_PROXY", String::from("1")),
    ];
    pairs
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
}

/// Says that no session that fits has a proxy.
pub(super) fn no_proxy() -> Failure {
    Failure::usage("no proxy listener fits")
        .next("add a [[listener]] with `kind = \"proxy\"`, or name another `--session`")
}
