//! The environment of clients of `gateway serve`: the proxy, the CA, git's settings, phantoms and
//! login files; as variables, or as commands for a shell.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::login::login_files;
use crate::settings::git_access;
use crate::{Advise as _, App, Context as _, Failure};
use gateway_config::{Config, Listener};
use gateway_credential::login::Login;
use gateway_intercept::{Evidence, PRESENTED_USER, SessionCa};
use gateway_launch::{trust, truststore};
use gateway_names::{CredentialName, SYSTEM_BUNDLES, SessionId};
use gateway_server::{ClientEnvironment, ClientPages, ClientProxy, Snapshot};
use gateway_session::{Binding, Session};

/// The files that clients read the CA from.
pub struct TrustFiles {
    /// The CA alone.
    pub certificate: String,
    /// The CA and those of the system.
    pub bundle: String,
    /// The same as a Java truststore, if there is one.
    pub java: Option<String>,
}

/// Writes the pages of [`ClientPages`].
pub struct OwnPages;

impl ClientPages for OwnPages {
    fn needs(
        &self,
        snapshot: &Snapshot,
        session: &Session,
        is_lent: &dyn Fn(&CredentialName) -> bool,
    ) -> Result<ClientEnvironment, String> {
        let bindings = snapshot.credentials.bindings();
        let phantoms = session.environment(bindings, is_lent);
        let may_hold = |login: &&Login| {
            let mut all = bindings.all();
            let binding = all.find(|one| one.credential == login.name);
            is_lent(&login.name) && binding.is_some_and(|one| session.may_hold(one))
        };
        let logins: Vec<Login> = snapshot.logins.iter().filter(may_hold).cloned().collect();
        let files = login_files::of(&logins, &session.phantoms());
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let files = files.map_err(|failure| failure.to_string())?.into_iter();
        Ok(ClientEnvironment {
            git: git(bindings.all(), &phantoms),
            variables: phantoms,
            files: files
                .map(|file| (file.path.display().to_string(), text(file.content)))
                .collect(),
            ..ClientEnvironment::default()
        })
    }

    fn variables(&self, needs: &ClientEnvironment) -> String {
        script(needs)
    }

    fn files(&self, needs: &ClientEnvironment) -> String {
        let mut text = String::from("umask 077\ncd || exit\n");
        for (path, content) in &needs.files {
            let (path, content) = (word(&format!("./{path}")), word(content));
            let _ = writeln!(
                text,
                "if [ -e {path} ]; then echo {path} is there already >&2\n\
                 else mkdir -p \"$(dirname {path})\" && printf %s {content} >{path}; fi"
            );
        }
        text
    }
}

/// Returns the environment of clients of a session of this process.
///
/// # Errors
/// Returns a [`Failure`] if the session has no proxy, or a login cannot be read.
pub fn of_session(app: &App, id: &SessionId) -> Result<ClientEnvironment, Failure> {
    let (session, ca) = app.listening.session(id).ok_or_else(no_proxy)?;
    let needs = of_live(app, (&session, &ca))?;
    needs.proxy.is_some().then_some(needs).ok_or_else(no_proxy)
}

/// Does the same; without a proxy if the session has none that a URL can name.
///
/// # Errors
/// Returns a [`Failure`] if a login cannot be read.
pub fn of_live(
    app: &App,
    (session, ca): (&Session, &SessionCa),
) -> Result<ClientEnvironment, Failure> {
    let needs = OwnPages.needs(&app.shared.current(), session, &|_| true);
    let needs = needs.map_err(|why| Failure::new("a login cannot be read").because(why))?;
    let open = app.listening.open();
    let mut proxies = open.iter().map(|open| &open.known);
    let is_door = |known: &&Listener| match known.session.one() {
        Some(one) => one == session.id(),
        None if session.creation().is_some() => known.who.contains(&Evidence::Token),
        None => session.is_callers(),
    };
    let known = proxies.find(|known| known.has_proxy_url() && is_door(known));
    let certificate = certificate(&app.config, session.id()).ok();
    Ok(ClientEnvironment {
        proxy: known.map(proxy),
        certificate: ca.certificate_pem(),
        certificate_file: certificate.map(|(path, _)| std::path::absolute(&path).unwrap_or(path)),
        ..needs
    })
}

/// Returns how clients reach a proxy. The password stays in the store that the configuration names.
pub fn proxy(known: &Listener) -> ClientProxy {
    ClientProxy {
        is_in_tls: known.tls.is_some(),
        at: Some(known.address.to_string()),
        user: known.proxy_user().map(str::to_owned),
    }
}

/// Returns git's settings for the bindings that have phantoms.
pub fn git<'a>(
    bindings: impl Iterator<Item = &'a Binding>,
    phantoms: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let is_held = |binding: &&Binding| {
        let mut variables = binding.variables.iter();
        variables.all(|one| phantoms.contains_key(one))
    };
    let held: Vec<&Binding> = bindings.filter(is_held).collect();
    git_access::variables(held.iter().copied(), Vec::new())
}

/// Returns every variable of a client that has the CA in these files.
pub fn variables(needs: &ClientEnvironment, files: &TrustFiles) -> BTreeMap<String, String> {
    let mut variables = needs.git.clone();
    variables.extend(needs.variables.clone());
    variables.extend(trust::variables().map(|(name, inside)| {
        let file = match inside {
            trust::CERTIFICATE => &files.certificate,
            _ => &files.bundle,
        };
        (name.to_owned(), file.clone())
    }));
    if let Some((proxy, at)) = needs
        .proxy
        .as_ref()
        .and_then(|one| Some((one, one.at.as_ref()?)))
    {
        let user = proxy.user.as_ref().map(|user| format!("{user}@"));
        let at = format!("{}{at}", user.unwrap_or_default());
        variables.extend(proxy_variables(&at, proxy.is_in_tls));
    }
    if let Some(store) = &files.java {
        let options = java_options(store, needs.proxy.as_ref());
        variables.insert(JAVA_VARIABLE.to_owned(), options);
    }
    variables
}

/// Trusts the CA alone, which is enough if all connections of a client go through the gateway.
pub fn trust_in(certificate: &Path) -> TrustFiles {
    let file = certificate.display().to_string();
    TrustFiles {
        certificate: file.clone(),
        bundle: file,
        java: None,
    }
}

/// Writes the CA into a folder: alone, with those of the system, and for Java. Clients see that
/// folder at `seen`.
///
/// # Errors
/// The error of the file system.
pub fn write_trust(folder: &Path, seen: &Path, pem: &str) -> std::io::Result<TrustFiles> {
    let system = SYSTEM_BUNDLES
        .iter()
        .find_map(|path| std::fs::read(path).ok());
    let bundle = [system.unwrap_or_default(), pem.into()].concat();
    let java = truststore::from_pem(&bundle);
    let files = [
        ("ca.pem", pem.as_bytes()),
        ("ca-bundle.pem", &bundle),
        ("ca.jks", &java),
    ];
    for (name, content) in files {
        std::fs::write(folder.join(name), content)?;
    }
    let [certificate, bundle, java] = files.map(|(name, _)| seen.join(name).display().to_string());
    Ok(TrustFiles {
        certificate,
        bundle,
        java: Some(java),
    })
}

/// Returns shell commands that set the variables, with the CA in the client's own files. A client
/// keeps its own token or password, in `GATEWAY_TOKEN` or `GATEWAY_PASSWORD`.
pub fn script(needs: &ClientEnvironment) -> String {
    let mut text = String::new();
    for (name, value) in needs.git.iter().chain(&needs.variables) {
        export(&mut text, name, &word(value));
    }
    if let Some(proxy) = &needs.proxy {
        let login = proxy.user.as_ref().map(|user| match user.as_str() {
            PRESENTED_USER => format!("{user}:$GATEWAY_TOKEN@"),
            // Encoded for a URL, which also keeps the shell from expanding it.
            user => format!("{}:$GATEWAY_PASSWORD@", utf8_percent_encode(user, IN_URL)),
        });
        let at = match &proxy.at {
            Some(at) => login.unwrap_or_default() + at,
            // The client brings its own path to the gateway, such as a sidecar.
            None => {
                text += OWN_PROXY;
                "$gateway_proxy".to_owned()
            }
        };
        for (name, value) in proxy_variables(&at, proxy.is_in_tls) {
            export(&mut text, &name, &format!("\"{value}\""));
        }
    }
    if !needs.certificate.is_empty() {
        text += &trusting(needs);
    }
    text
}

/// Returns commands that write the CA to files of the client's own, and make clients trust it.
fn trusting(needs: &ClientEnvironment) -> String {
    let pem = word(&needs.certificate);
    let store = STANDARD.encode(truststore::from_pem(needs.certificate.as_bytes()));
    let mut text = format!(
        "gateway_ca=$(mktemp -d \"${{TMPDIR:-/tmp}}/gateway.XXXXXX\")\n\
         printf %s {pem} >\"$gateway_ca/ca.pem\"\n\
         for gateway_file in {}; do\n\
         if [ -r $gateway_file ]; then cat $gateway_file; break; fi\n\
         done >\"$gateway_ca/ca-bundle.pem\"\n\
         cat \"$gateway_ca/ca.pem\" >>\"$gateway_ca/ca-bundle.pem\"\n",
        SYSTEM_BUNDLES.join(" ")
    );
    for (name, inside) in trust::variables() {
        let file = match inside {
            trust::CERTIFICATE => "ca.pem",
            _ => "ca-bundle.pem",
        };
        export(&mut text, name, &format!("\"$gateway_ca/{file}\""));
    }
    let java = java_options("$gateway_ca/ca.jks", needs.proxy.as_ref());
    text + &format!(
        "if command -v java >/dev/null && printf %s {store} | base64 -d >\"$gateway_ca/ca.jks\"\n\
         then export {JAVA_VARIABLE}=\"${{{JAVA_VARIABLE}:+${JAVA_VARIABLE} }}{java}\"; fi\n"
    )
}

/// Returns the options of a Java virtual machine, which reads no proxy variables. Without login.
fn java_options(store: &str, proxy: Option<&ClientProxy>) -> String {
    let mut options = trust::java_options(store);
    let at = proxy.and_then(|proxy| proxy.at.as_deref()?.rsplit_once(':'));
    for (name, (host, port)) in ["http", "https"].into_iter().zip(at.into_iter().cycle()) {
        let host = host.trim_matches(['[', ']']);
        let _ = write!(
            options,
            " -D{name}.proxyHost={host} -D{name}.proxyPort={port}"
        );
    }
    options
}

fn export(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "export {name}={value}");
}

/// Quotes a text as one word of a shell.
fn word(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Returns the variables that point to a proxy. The client's own loopback is no destination of the
/// gateway.
pub fn proxy_variables(
    at: &str,
    is_in_tls: bool,
) -> impl Iterator<Item = (String, String)> + use<> {
    let (http, all) = if is_in_tls {
        // URLs have no scheme for SOCKS in TLS.
        (format!("https://{at}"), format!("https://{at}"))
    } else {
        (format!("http://{at}"), format!("socks5h://{at}"))
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

/// Finds the proxy in the client's own variables, else a sidecar's.
const OWN_PROXY: &str = "gateway_proxy=${http_proxy:-http://127.0.0.1:3128}\n\
     gateway_proxy=${gateway_proxy#*://}\ngateway_proxy=${gateway_proxy%/}\n";
const IN_URL: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_');
const JAVA_VARIABLE: &str = "JAVA_TOOL_OPTIONS";

/// Returns the failure that no matching session has a proxy.
pub fn no_proxy() -> Failure {
    Failure::usage("no proxy listener fits")
        .next("add a [[listener]] with `kind = \"proxy\"`, or name another `--session`")
}

/// Returns a session's certificate file and its content, which must be exactly one certificate.
///
/// # Errors
/// Returns a [`Failure`] if no file is configured, it does not exist, or it is not a certificate.
pub fn certificate(config: &Config, session: &SessionId) -> Result<(PathBuf, Vec<u8>), Failure> {
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

/// Returns the failure that a file is no certificate.
pub fn damaged(path: &Path) -> Failure {
    Failure::new(format!("`{}` is no certificate", path.display()))
        .next("remove it and start `gateway serve` again")
}
