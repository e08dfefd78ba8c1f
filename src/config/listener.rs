//! `[[listener]]`: where `gateway serve` accepts connections, and which session they belong to.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

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
            _ => None,
        }
    }

    /// Whether it takes IPv4 too if its address is `[::]`, as capture brings both to one port.
    #[must_use]
    pub fn is_dual_stack(&self) -> bool {
        let of_capture = matches!(self.kind, ListenerKind::Transparent | ListenerKind::Dns);
        of_capture && self.address.ip() == IpAddr::from(Ipv6Addr::UNSPECIFIED)
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
    /// Connections that the kernel redirected, by REDIRECT or TPROXY.
    Transparent,
    /// DNS, by UDP and TCP. The answers lead to the `Transparent` listener of the session.
    Dns,
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
    let kinds = [
        (
            "proxy",
            ListenerKind::Proxy {
                authentication: None,
            },
        ),
        ("tls", ListenerKind::Tls { port: 443 }),
        ("transparent", ListenerKind::Transparent),
        ("dns", ListenerKind::Dns),
    ];
    let kind = section.choice("kind", &kinds);
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
    let (kind, address) = (kind?, address?);
    if let Some(why) = kind.names_port().filter(|_| section.has("port")) {
        let kind = kind.as_str();
        mistake!(section, "port", "`port` contradicts `kind = \"{kind}\"`"; "{why}";
            "remove `port`, or write `kind = \"tls\"`");
    }
    if let Some(why) = kind.no_password().filter(|_| section.has("authentication")) {
        let kind = kind.as_str();
        mistake!(section, "authentication", "`authentication` contradicts `kind = \"{kind}\"`";
            "{why}"; "remove `authentication`, or write `kind = \"proxy\"`");
    }
    if matches!(kind, ListenerKind::Transparent | ListenerKind::Dns) && address.port() == 0 {
        mistake!(section, "address", "capture needs a port that is known";
            "`gateway sidecar rules` names it";
            "write for example `[::]:15001`");
    }
    refuse_open(section, &kind, address);
    Some(Listener {
        kind: match kind {
            ListenerKind::Proxy { .. } => ListenerKind::Proxy { authentication },
            ListenerKind::Tls { port: usual } => ListenerKind::Tls {
                port: port.unwrap_or(usual),
            },
            of_capture => of_capture,
        },
        address,
        session: session?,
        groups,
        any_user,
    })
}

impl ListenerKind {
    /// The kind as it is written.
    fn as_str(&self) -> &'static str {
        match self {
            Self::Proxy { .. } => "proxy",
            Self::Tls { .. } => "tls",
            Self::Transparent => "transparent",
            Self::Dns => "dns",
        }
    }

    /// Why its port is not configured; `None` if it is.
    fn names_port(&self) -> Option<&'static str> {
        match self {
            Self::Proxy { .. } => Some("clients of a proxy name the port themselves"),
            Self::Tls { .. } => None,
            Self::Transparent => Some("the port that the client dialled is known"),
            Self::Dns => Some("a question has no port of an origin"),
        }
    }

    /// Why its clients present no password; `None` if they may.
    fn no_password(&self) -> Option<&'static str> {
        match self {
            Self::Proxy { .. } => None,
            Self::Tls { .. } => {
                Some("a client that speaks TLS at once has no place for a proxy password")
            }
            Self::Transparent | Self::Dns => {
                Some("a client that is captured does not know of the gateway")
            }
        }
    }
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
///
/// A captured connection is told from one that was made to the listener, and a name's address is of
/// use to nobody else: those listen anywhere.
fn refuse_open(section: &Section<'_, '_>, kind: &ListenerKind, address: SocketAddr) {
    let ip = address.ip().to_canonical();
    match kind {
        ListenerKind::Proxy { .. } if !ip.is_loopback() && !section.has("authentication") => {
            mistake!(section, "address", "a proxy without authentication listens beyond loopback";
                "whoever reaches that address would be this session and spend its credentials";
                "listen on 127.0.0.1, or add \
                 `authentication = {{ user = \"agent\", password = \"env:PROXY_PASSWORD\" }}`");
        }
        ListenerKind::Tls { .. } if ip.is_unspecified() => {
            mistake!(section, "address", "a `tls` listener listens on every address";
                "whoever reaches any of this machine's addresses would be this session and spend \
                 its credentials";
                "listen on the one address that the sandbox's traffic is redirected to");
        }
        ListenerKind::Tls { .. } if !ip.is_loopback() => {
            warning!(section, "address", "a `tls` listener listens beyond loopback";
                "whoever reaches that address is this session: TLS clients present no password";
                "make sure that only the sandbox reaches it");
        }
        _ => {}
    }
}
