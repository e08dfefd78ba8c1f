//! The variables of a client of `gateway serve`: the proxy, its CA, git's settings and phantoms.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::app::settings::git_access;
use crate::app::{Advise as _, App, Context as _, Failure};
use crate::config::{Config, Listener};
use crate::control::ClientEnvironment;
use crate::launch::trust;
use crate::names::SessionId;
use crate::session::Binding;

/// Returns what a client of a session of this process needs.
///
/// # Errors
/// Returns a [`Failure`] if the session has no proxy, or no certificate is written for it.
pub(crate) fn of_session(app: &App, id: &SessionId) -> Result<ClientEnvironment, Failure> {
    let open = app.listening.open();
    let mut proxies = open.iter().map(|open| &open.known);
    let proxy = proxies.find(|one| one.session == *id && one.has_proxy_url());
    let session = app.shared.sessions.get(id);
    let (proxy, session) = proxy.zip(session).ok_or_else(no_proxy)?;
    let (certificate, _) = certificate(&app.config, id)?;
    let snapshot = app.shared.current();
    let bindings = snapshot.credentials.bindings();
    let phantoms = session.environment(bindings, |_| true);
    of(proxy, &certificate, bindings.all(), phantoms)
}

/// Returns what a client of a proxy needs.
///
/// # Errors
/// Returns a [`Failure`] if the certificate's path cannot be made absolute.
pub(crate) fn of<'a>(
    proxy: &Listener,
    certificate: &Path,
    bindings: impl Iterator<Item = &'a Binding>,
    phantoms: BTreeMap<String, String>,
) -> Result<ClientEnvironment, Failure> {
    let certificate =
        std::path::absolute(certificate).context("the certificate's path cannot be told")?;
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
        user: proxy.proxy_user().map(str::to_owned),
        variables,
    })
}

/// Returns the variables that point to the proxy. The password is not among them; it is in the
/// store that the configuration names.
fn addresses(proxy: &Listener) -> impl Iterator<Item = (String, String)> {
    let user = proxy.proxy_user().map(|user| format!("{user}@"));
    let at = format!("{}{}", user.unwrap_or_default(), proxy.address);
    proxy_variables(&at, proxy.tls.is_some())
}

/// Returns the variables that point to a proxy. The client's own loopback is no destination of the
/// gateway.
pub(crate) fn proxy_variables(
    at: &str,
    is_in_tls: bool,
) -> impl Iterator<Item = (String, String)> + use<> {
    let (http, all) = match is_in_tls {
        false => (format!("http://{at}"), format!("socks5h://{at}")),
        // SOCKS in TLS has no scheme of a URL.
        true => (format!("https://{at}"), format!("https://{at}")),
    };
    let loopback = String::from("localhost,127.0.0.1,::1");
    let pairs = [
        ("HTTPS_PROXY", http.clone()),
        ("https_proxy", http.clone()),
        ("HTTP_PROXY", http.clone()),
        ("http_proxy", http),
        ("ALL_PROXY", all),
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
pub(crate) fn no_proxy() -> Failure {
    Failure::usage("no proxy listener fits")
        .next("add a [[listener]] with `kind = \"proxy\"`, or name another `--session`")
}

/// Returns a session's certificate file and its content, which must be exactly one certificate.
///
/// # Errors
/// Returns a [`Failure`] if no file is configured, it does not exist, or it is not a certificate.
pub(crate) fn certificate(
    config: &Config,
    session: &SessionId,
) -> Result<(PathBuf, Vec<u8>), Failure> {
    let path = config.ca.certificate_of(session).ok_or_else(|| {
        Failure::usage("the configuration writes no CA certificate")
            .because(
                "`certificate` of [ca] is not set, and the CA lives in the gateway's memory alone",
            )
            .next("add `[ca]` with `certificate = \"ca.pem\"` and start `gateway serve` again")
    })?;
    let pem = std::fs::read(&path)
        .context(format!("`{}` cannot be read", path.display()))
        .advise("`gateway serve` writes it when it starts: is it running?")?;
    CertificateDer::from_pem_slice(&pem).map_err(|_| damaged(&path))?;
    Ok((path, pem))
}

/// Says that a file is no certificate.
pub(crate) fn damaged(path: &Path) -> Failure {
    Failure::new(format!("`{}` is no certificate", path.display()))
        .next("remove it and start `gateway serve` again")
}
