//! `[[listener]]`: where `gateway serve` accepts connections, and which session they belong to.

use std::net::SocketAddr;

use crate::credential::SecretRef;
use crate::names::SessionId;

use super::diagnostic::{Hint, remedy};
use super::reference;
use super::section::{Section, characters};

/// An address that accepts the connections of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// What its clients speak.
    pub kind: ListenerKind,
    /// The address and port.
    pub address: SocketAddr,
    /// The session that its connections belong to.
    pub session: SessionId,
    /// The groups that the session is in.
    pub groups: Vec<String>,
    /// Whether credentials may go with requests of which nothing shows whose they are.
    pub any_user: bool,
}

impl Listener {
    /// A proxy of the session `default`, without authentication.
    pub(super) fn proxy(address: SocketAddr) -> Self {
        Self {
            kind: ListenerKind::Proxy {
                authentication: None,
            },
            address,
            session: SessionId::new("default").expect("it is a name"),
            groups: Vec::new(),
            any_user: false,
        }
    }

    /// Whether it is a proxy.
    #[must_use]
    pub fn is_proxy(&self) -> bool {
        matches!(self.kind, ListenerKind::Proxy { .. })
    }

    /// Returns what a client must present, if anything.
    #[must_use]
    pub fn login(&self) -> Option<&ProxyLogin> {
        match &self.kind {
            ListenerKind::Proxy { authentication } => authentication.as_ref(),
            ListenerKind::Tls { .. } => None,
        }
    }
}

/// What the clients of a listener speak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenerKind {
    /// CONNECT, absolute-form and SOCKS5, distinguished by their first bytes.
    Proxy {
        /// What a client must present; `None` only on loopback.
        authentication: Option<ProxyLogin>,
    },
    /// TLS from the first byte; the SNI names the host.
    Tls {
        /// The port that the client originally dialled.
        port: u16,
    },
}

/// What a proxy client must present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyLogin {
    /// The user.
    pub user: String,
    /// Where the password is kept.
    pub password: SecretRef,
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
    let is_tls = section.choice("kind", &[("proxy", false), ("tls", true)]);
    let address = section.get("address", address);
    let session = section.get("session", name);
    let session = match section.has("session") {
        true => session,
        false => SessionId::new("default").ok(),
    };
    let port = section.count("port", 1..=65_535);
    let authentication = section
        .inner("authentication", "listener.authentication")
        .and_then(|inner| authentication(&inner));
    let groups = section.all("groups", |text| Ok(name(text)?.as_str().to_owned()));
    let any_user = section.is_true("any_user");
    if is_tls == Some(false) && section.has("port") {
        mistake!(section, "port", "`port` contradicts `kind = \"proxy\"`";
            "clients of a proxy name the port themselves";
            "remove `port`, or write `kind = \"tls\"`");
    }
    if is_tls == Some(true) && section.has("authentication") {
        mistake!(section, "authentication", "`authentication` contradicts `kind = \"tls\"`";
            "a client that speaks TLS at once has no place for a proxy password";
            "remove `authentication`, or write `kind = \"proxy\"`");
    }
    let (is_tls, address) = (is_tls?, address?);
    refuse_open(section, is_tls, address);
    Some(Listener {
        kind: match is_tls {
            false => ListenerKind::Proxy { authentication },
            true => ListenerKind::Tls {
                port: port.unwrap_or(443),
            },
        },
        address,
        session: session?,
        groups,
        any_user,
    })
}

fn address(text: &str) -> Result<SocketAddr, Hint> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_multicast() => {
            refused!("nothing can listen there"; "write an address of this machine")
        }
        Ok(address) => Ok(address),
        Err(_) => refused!("it is no address and port; names are not looked up";
            "write for example `127.0.0.1:8080` or `[::1]:8080`"),
    }
}

fn authentication(section: &Section<'_, '_>) -> Option<ProxyLogin> {
    for (key, remedy) in [
        ("user", "add `user = \"agent\"`"),
        ("password", "add `password = \"env:PROXY_PASSWORD\"`"),
    ] {
        require!(section, key; "a client presents a user and a password"; "{remedy}");
    }
    let user = section.get("user", |text| {
        // RFC 7617 §2: a user-id contains no colon.
        let fits = |byte: u8| byte.is_ascii_graphic() && byte != b':';
        let hint = hint!("a user is visible ASCII without `:`"; "write for example `agent`");
        characters(text, 128, fits).ok_or(hint)
    });
    let password = reference::read(section, "password", "");
    Some(ProxyLogin {
        user: user?,
        password: password?,
    })
}

/// Refuses a listener that strangers on the network could use as this session.
fn refuse_open(section: &Section<'_, '_>, is_tls: bool, address: SocketAddr) {
    let ip = address.ip().to_canonical();
    match is_tls {
        false if !ip.is_loopback() && !section.has("authentication") => {
            mistake!(section, "address", "a proxy without authentication listens beyond loopback";
                "whoever reaches that address would be this session and spend its credentials";
                "listen on 127.0.0.1, or add \
                 `authentication = {{ user = \"agent\", password = \"env:PROXY_PASSWORD\" }}`");
        }
        true if ip.is_unspecified() => {
            mistake!(section, "address", "a `tls` listener listens on every address";
                "whoever reaches any of this machine's addresses would be this session and spend \
                 its credentials";
                "listen on the one address that the sandbox's traffic is redirected to");
        }
        true if !ip.is_loopback() => {
            warning!(section, "address", "a `tls` listener listens beyond loopback";
                "whoever reaches that address is this session: TLS clients present no password";
                "make sure that only the sandbox reaches it");
        }
        _ => {}
    }
}
