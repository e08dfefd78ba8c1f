//! `[[listener]]`: the addresses of `gateway serve`, and the sessions of their connections.

mod base;
mod evidence;
mod jwt;
mod kind;
pub(super) mod tls;

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use gateway_credential::SecretRef;
use gateway_intercept::{Evidence, HTTP1, HTTP2, PRESENTED_USER, ProxyTls};
use gateway_names::SessionId;

use super::diagnostic::{Hint, remedy};
use super::section::Section;

pub use jwt::ListenerJwt;
use kind::EACH_CALLER;
pub use kind::{ListenerAddress, ListenerKind, ListenerSession};
pub use tls::ListenerTls;

/// An address that accepts the connections of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// The protocol of its clients.
    pub kind: ListenerKind,
    /// The address that it binds.
    pub address: ListenerAddress,
    /// The mode of a Unix socket: who may connect.
    pub mode: u32,
    /// The session that its connections belong to.
    pub session: ListenerSession,
    /// The groups that the session is in.
    pub groups: Vec<String>,
    /// Whether credentials may go with requests that no evidence ties to a user.
    pub any_user: bool,
    /// The evidence of who is behind a connection. If empty, the listener alone decides.
    pub who: Vec<Evidence>,
    /// The users of a proxy, and where their passwords are kept.
    pub passwords: Vec<(String, SecretRef)>,
    /// The JWTs that a proxy takes, if it takes any.
    pub jwt: Option<ListenerJwt>,
    /// The TLS of a proxy; `None` if its clients speak to it in clear text.
    pub tls: Option<ListenerTls>,
}

impl Listener {
    /// Creates a proxy of the session `default`, which asks no client for evidence.
    pub(super) fn proxy(address: SocketAddr) -> Self {
        Self {
            kind: ListenerKind::Proxy,
            address: ListenerAddress::Tcp(address),
            mode: PRIVATE,
            session: ListenerSession::default(),
            groups: Vec::new(),
            any_user: false,
            who: Vec::new(),
            passwords: Vec::new(),
            jwt: None,
            tls: None,
        }
    }

    /// Returns the TLS of a proxy, if it has one.
    #[must_use]
    pub fn door(&self) -> Option<Arc<ProxyTls>> {
        self.tls.as_ref().map(ListenerTls::door)
    }

    /// Sets the mode of its socket, if it is a Unix socket.
    pub fn set_mode(&self) {
        let ListenerAddress::Unix(path) = &self.address else {
            return;
        };
        let set = std::fs::set_permissions(path, Permissions::from_mode(self.mode));
        if let Err(error) = set {
            tracing::error!(socket = %path.display(), %error, "the mode of a socket is as before");
        }
    }

    /// Whether it is a proxy.
    #[must_use]
    pub fn is_proxy(&self) -> bool {
        self.kind == ListenerKind::Proxy
    }

    /// Whether every user of the machine can connect to it and request any origin that it carries.
    pub(super) fn is_open_to_users(&self) -> bool {
        matches!(self.kind, ListenerKind::Proxy | ListenerKind::Base(_))
    }

    /// Whether clients reach it by a proxy URL, which cannot name a Unix socket.
    #[must_use]
    pub fn has_proxy_url(&self) -> bool {
        self.is_proxy() && self.address.tcp().is_some()
    }

    /// Whether its clients present evidence themselves.
    #[must_use]
    pub fn is_presented_to(&self) -> bool {
        self.who.iter().any(Evidence::is_presented)
    }

    /// Whether its evidence can tell the user behind a connection.
    pub(super) fn gives_user(&self) -> bool {
        self.who.iter().any(|one| *one != Evidence::Mark)
    }

    /// Returns the user that its clients present, if it is always the same.
    #[must_use]
    pub fn proxy_user(&self) -> Option<&str> {
        match &self.passwords[..] {
            [] => self.is_presented_to().then_some(PRESENTED_USER),
            [(user, _)] => Some(user),
            _ => None,
        }
    }
}

fn session(text: &str) -> Result<ListenerSession, Hint> {
    match text {
        EACH_CALLER => Ok(ListenerSession::EachCaller),
        _ => name(text).map(ListenerSession::One),
    }
}

/// Checks a name that policies use: a session, a group, a credential or a preset.
pub(super) fn name(text: &str) -> Result<SessionId, Hint> {
    SessionId::new(text).map_err(remedy("write a name such as `agent-1`"))
}

pub(super) fn listener(section: &Section<'_, '_>) -> Option<Listener> {
    require!(section, "kind"; "it says what the clients speak";
        "add `kind = \"proxy\"` or `kind = \"tls\"`");
    require!(section, "address"; "there is nowhere to listen";
        "add `address = \"127.0.0.1:8080\"`");
    let kind = kind::kind(section, base::aliases(section));
    let address = section.get("address", address);
    let mode = section.get("mode", mode);
    let who = evidence::who(section);
    let session = if section.has("session") {
        section.get("session", session)
    } else {
        Some(ListenerSession::default())
    };
    let passwords = evidence::passwords(section);
    let jwt = section.inner("jwt", "listener.jwt");
    let jwt = jwt.and_then(|inner| jwt::jwt(&inner));
    let tls = section.inner("tls", "listener.tls");
    let tls = tls.and_then(|inner| tls::tls(&inner, &who, &[HTTP2, HTTP1]));
    let groups = section.all("groups", |text| Ok(name(text)?.as_str().to_owned()));
    let any_user = section.is_true("any_user");
    let (kind, address) = (kind?, address?);
    contradictions(section, &kind, &address);
    match address {
        ListenerAddress::Tcp(_) if section.has("tls") && !who.is_empty() => {}
        ListenerAddress::Tcp(address) if who.iter().any(is_of_others) => {
            warn_in_clear(section, address);
        }
        ListenerAddress::Tcp(_) if evidence::asks_network(&who) => {}
        ListenerAddress::Tcp(address) => kind::refuse_open(section, &kind, address),
        ListenerAddress::Unix(_) => refuse_uncaptured(section, &kind),
    }
    let mode = mode.unwrap_or(PRIVATE);
    evidence::check(
        section,
        &kind,
        &evidence::ListenerContext {
            address: &address,
            mode,
            session: session.as_ref(),
            who: &who,
        },
    );
    Some(Listener {
        kind,
        address,
        mode,
        session: session?,
        groups,
        any_user,
        who,
        passwords,
        jwt,
        tls,
    })
}

/// Refuses keys that contradict the kind.
fn contradictions(section: &Section<'_, '_>, kind: &ListenerKind, address: &ListenerAddress) {
    if let Some(why) = kind.names_port().filter(|_| section.has("port")) {
        let kind = kind.as_str();
        mistake!(section, "port", "`port` contradicts `kind = \"{kind}\"`"; "{why}";
            "remove `port`, or write `kind = \"tls\"`");
    }
    base::check(section, kind);
    if section.has("tls") && *kind != ListenerKind::Proxy {
        let kind = kind.as_str();
        mistake!(section, "tls", "`tls` contradicts `kind = \"{kind}\"`";
            "its clients do not know that there is a gateway, and trust no certificate of it";
            "remove `tls`, or write `kind = \"proxy\"`");
    }
    if kind.is_captured() && address.tcp().is_some_and(|address| address.port() == 0) {
        mistake!(section, "address", "capture needs a port that is known";
            "`gateway sidecar rules` names it";
            "write for example `[::]:15001`");
    }
}

fn address(text: &str) -> Result<ListenerAddress, Hint> {
    if let Some(path) = text.strip_prefix("unix:") {
        return if Path::new(path).is_absolute() && !path.contains(char::is_control) {
            Ok(ListenerAddress::Unix(path.into()))
        } else {
            refused!("a socket has an absolute path";
                "write for example `unix:/run/gateway/agents.sock`")
        };
    }
    match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_multicast() => {
            refused!("nothing can listen there"; "write an address of this machine")
        }
        Ok(address) => Ok(ListenerAddress::Tcp(address)),
        Err(_) if text.starts_with("vsock:") => {
            refused!("there is no door by vsock, nor by a URL that a sandbox forwards to";
                "listen on a Unix socket, and let `socat` or the monitor lead the guest's port there")
        }
        Err(_) => refused!("it is no address and port; names are not looked up";
            "write for example `127.0.0.1:8080`, `[::1]:8080` or `unix:/run/gateway/agents.sock`"),
    }
}

/// The mode of a socket: who may connect to it.
const PRIVATE: u32 = 0o600;

fn mode(text: &str) -> Result<u32, Hint> {
    match text {
        "0600" => Ok(PRIVATE),
        "0660" => Ok(0o660),
        "0666" => Ok(0o666),
        _ => refused!("it is no mode of a socket";
            "write `0600`, `0660` for its group, or `0666` for every user of this machine"),
    }
}

/// Whether the evidence is valid at other proxies too, as a password is not.
fn is_of_others(evidence: &Evidence) -> bool {
    matches!(evidence, Evidence::Token | Evidence::Jwt)
}

/// Warns of a proxy beyond loopback that receives tokens in clear text.
fn warn_in_clear(section: &Section<'_, '_>, address: SocketAddr) {
    if !address.ip().to_canonical().is_loopback() {
        warning!(section, "address", "tokens travel to this proxy in clear text";
            "whoever reads that network can use them while they hold";
            "let it be a network that encrypts, and mint with `--from NETWORK`");
    }
}

/// Refuses a Unix socket for a kind whose clients the kernel redirects.
fn refuse_uncaptured(section: &Section<'_, '_>, kind: &ListenerKind) {
    if kind.is_captured() {
        let kind = kind.as_str();
        mistake!(section, "address", "a `{kind}` listener cannot listen on a Unix socket";
            "the kernel redirects to an address and port alone";
            "write for example `address = \"127.0.0.1:8080\"`, or `kind = \"proxy\"`");
    }
}
