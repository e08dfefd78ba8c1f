//! `[[listener]]`: where `gateway serve` accepts connections, and which session they belong to.

use std::net::SocketAddr;

use toml::Spanned;

use crate::credential::SecretRef;
use crate::names::SessionId;

use super::diagnostic::Hint;
use super::reference;
use super::section::Section;

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

#[derive(Clone, Copy)]
enum ListenerProtocol {
    Proxy,
    Tls,
}

/// Checks a name that policies use: a session, a group, a credential or a preset.
pub(super) fn name(text: &str) -> Result<SessionId, Hint> {
    SessionId::new(text)
        .map_err(|malformed| Hint::new(malformed.to_string(), "write a name such as `agent-1`"))
}

pub(super) fn listener(section: &Section<'_, '_>) -> Option<Listener> {
    if !section.has("kind") {
        section.missing(
            "kind",
            "it says what the clients speak",
            "add `kind = \"proxy\"` or `kind = \"tls\"`",
        );
    }
    let kind = section.choice(
        "kind",
        &[
            ("proxy", ListenerProtocol::Proxy),
            ("tls", ListenerProtocol::Tls),
        ],
    );
    let address = address(section);
    let session = section.parsed("session", name);
    let session = match session {
        Some(session) => Some(session.into_inner()),
        None if section.has("session") => None,
        None => SessionId::new("default").ok(),
    };
    let groups = section
        .each("groups", name)
        .into_iter()
        .map(|group| group.get_ref().as_str().to_owned())
        .collect();
    let port = section
        .count("port", 1..=65_535)
        .and_then(|port| u16::try_from(port).ok());
    let authentication = section
        .inner("authentication", "listener.authentication")
        .and_then(|inner| authentication(&inner));
    let any_user = section.truth("any_user").unwrap_or(false);
    contradictions(section, kind);
    let address = address?;
    if let Some(kind) = kind {
        refuse_open(section, kind, address);
    }
    Some(Listener {
        kind: match kind? {
            ListenerProtocol::Proxy => ListenerKind::Proxy { authentication },
            ListenerProtocol::Tls => ListenerKind::Tls {
                port: port.unwrap_or(443),
            },
        },
        address,
        session: session?,
        groups,
        any_user,
    })
}

fn address(section: &Section<'_, '_>) -> Option<SocketAddr> {
    if !section.has("address") {
        section.missing(
            "address",
            "there is nowhere to listen",
            "add `address = \"127.0.0.1:8080\"`",
        );
    }
    let address = section.parsed("address", |text| {
        let address = text.parse::<SocketAddr>().map_err(|_| {
            Hint::new(
                "it is no address and port; names are not looked up",
                "write for example `127.0.0.1:8080` or `[::1]:8080`",
            )
        })?;
        if address.ip().is_multicast() {
            return Err(Hint::new(
                "nothing can listen there",
                "write an address of this machine",
            ));
        }
        Ok(address)
    });
    address.map(Spanned::into_inner)
}

fn authentication(section: &Section<'_, '_>) -> Option<ProxyLogin> {
    for (key, remedy) in [
        ("user", "add `user = \"agent\"`"),
        ("password", "add `password = \"env:PROXY_PASSWORD\"`"),
    ] {
        if !section.has(key) {
            section.missing(key, "a client presents a user and a password", remedy);
        }
    }
    let user = section.parsed("user", |text| {
        // RFC 7617 §2: a user-id contains no colon.
        let fits = !text.is_empty()
            && text.len() <= 128
            && text
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b':');
        if fits {
            Ok(text.to_owned())
        } else {
            Err(Hint::new(
                "a user is visible ASCII without `:`",
                "write for example `agent`",
            ))
        }
    });
    let password = reference::read(section, "password", "");
    Some(ProxyLogin {
        user: user?.into_inner(),
        password: password?,
    })
}

fn contradictions(section: &Section<'_, '_>, kind: Option<ListenerProtocol>) {
    match kind {
        Some(ListenerProtocol::Proxy) if section.has("port") => {
            let why = "clients of a proxy name the port themselves";
            section.error(
                "port",
                "`port` contradicts `kind = \"proxy\"`",
                Hint::new(why, "remove `port`, or write `kind = \"tls\"`"),
            );
        }
        Some(ListenerProtocol::Tls) if section.has("authentication") => {
            let why = "a client that speaks TLS at once has no place for a proxy password";
            let remedy = "remove `authentication`, or write `kind = \"proxy\"`";
            section.error(
                "authentication",
                "`authentication` contradicts `kind = \"tls\"`",
                Hint::new(why, remedy),
            );
        }
        _ => {}
    }
}

/// Refuses a listener that strangers on the network could use as this session.
fn refuse_open(section: &Section<'_, '_>, kind: ListenerProtocol, address: SocketAddr) {
    let ip = address.ip().to_canonical();
    match kind {
        ListenerProtocol::Proxy if !ip.is_loopback() && !section.has("authentication") => {
            let why =
                "whoever reaches that address would be this session and spend its credentials";
            let remedy = "listen on 127.0.0.1, or add `authentication = { user = \"agent\", password = \"env:PROXY_PASSWORD\" }`";
            section.error(
                "address",
                "a proxy without authentication listens beyond loopback",
                Hint::new(why, remedy),
            );
        }
        ListenerProtocol::Tls if ip.is_unspecified() => {
            let why = "whoever reaches any of this machine's addresses would be this session and spend its credentials";
            let remedy = "listen on the one address that the sandbox's traffic is redirected to";
            section.error(
                "address",
                "a `tls` listener listens on every address",
                Hint::new(why, remedy),
            );
        }
        ListenerProtocol::Tls if !ip.is_loopback() => {
            let why =
                "whoever reaches that address is this session: TLS clients present no password";
            let remedy = "make sure that only the sandbox reaches it";
            section.document.warn(
                &section.span_of("address"),
                "a `tls` listener listens beyond loopback",
                Hint::new(why, remedy),
            );
        }
        _ => {}
    }
}
