//! The kind of a listener: its address, the protocol of its clients, and their session.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use gateway_intercept::Aliases;
use gateway_message::{OriginPattern, Scheme};
use gateway_names::SessionId;

use crate::section::Section;

/// The session of a listener's connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListenerSession {
    /// One for all.
    One(SessionId),
    /// One for each caller.
    EachCaller,
}

impl ListenerSession {
    /// Returns the session, if there is one for all.
    #[must_use]
    pub fn one(&self) -> Option<&SessionId> {
        match self {
            Self::One(id) => Some(id),
            Self::EachCaller => None,
        }
    }

    /// Returns its name, as it is written in the configuration.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.one().map_or(EACH_CALLER, SessionId::as_str)
    }
}

impl Default for ListenerSession {
    fn default() -> Self {
        Self::One(SessionId::new("default").expect("it is a name"))
    }
}

impl PartialEq<SessionId> for ListenerSession {
    fn eq(&self, other: &SessionId) -> bool {
        self.one() == Some(other)
    }
}

impl fmt::Display for ListenerSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The address of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListenerAddress {
    /// A TCP address and port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl ListenerAddress {
    /// Returns the address and port, if it is a TCP address.
    #[must_use]
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }
}

/// Writes the address as the configuration does.
impl fmt::Display for ListenerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The protocol of a listener's clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenerKind {
    /// CONNECT, absolute-form and SOCKS5, distinguished by their first bytes.
    Proxy,
    /// TLS from the first byte; the SNI names the host.
    Tls {
        /// The port that the client originally dialled.
        port: u16,
    },
    /// Connections that the kernel redirected, by REDIRECT or TPROXY.
    Transparent,
    /// DNS, by UDP and TCP. The answers lead to the `Transparent` listener of the session.
    Dns,
    /// HTTP/1.1 in clear text. A path begins with the alias of its origin.
    Base(Aliases),
}

impl ListenerKind {
    /// Whether the kernel redirects its clients, which dial other addresses.
    pub(super) fn is_captured(&self) -> bool {
        matches!(self, Self::Transparent | Self::Dns)
    }

    /// Whether it accepts IPv4 too at this address, since capture redirects both to one port.
    #[must_use]
    pub fn is_dual_stack(&self, address: SocketAddr) -> bool {
        self.is_captured() && address.ip() == Ipv6Addr::UNSPECIFIED
    }

    /// Returns the kind, as it is written in the configuration.
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Tls { .. } => "tls",
            Self::Transparent => "transparent",
            Self::Dns => "dns",
            Self::Base(_) => "base",
        }
    }

    /// Whether a request to this origin can come in.
    pub(crate) fn carries(&self, origin: &OriginPattern) -> bool {
        match self {
            Self::Proxy | Self::Transparent => true,
            Self::Dns => false,
            Self::Base(aliases) => aliases.0.values().any(|alias| origin.matches(alias)),
            Self::Tls { port } => origin.scheme == Scheme::Https && origin.port == *port,
        }
    }

    /// Returns why its port is not configured; `None` if it is.
    pub(super) fn names_port(&self) -> Option<&'static str> {
        match self {
            Self::Proxy => Some("clients of a proxy name the port themselves"),
            Self::Tls { .. } => None,
            Self::Transparent => Some("the port that the client dialled is known"),
            Self::Dns => Some("a question has no port of an origin"),
            Self::Base(_) => Some("an alias names the port with its origin"),
        }
    }
}

/// Reads the kind of a listener, with the port and the aliases that it alone has.
pub(super) fn kind(section: &Section<'_, '_>, aliases: Aliases) -> Option<ListenerKind> {
    let port = section.count("port", 1..=65_535);
    let kinds = [
        ListenerKind::Proxy,
        ListenerKind::Tls {
            port: port.unwrap_or(443),
        },
        ListenerKind::Transparent,
        ListenerKind::Dns,
        ListenerKind::Base(aliases),
    ];
    section.choice("kind", &kinds.map(|kind| (kind.as_str(), kind)))
}

/// Refuses a listener that strangers on the network could use as this session.
///
/// A transparent or DNS listener may listen anywhere: captured connections are distinguished from
/// those made to the listener itself, and a synthetic address is useless to strangers.
pub(super) fn refuse_open(section: &Section<'_, '_>, kind: &ListenerKind, address: SocketAddr) {
    let ip = address.ip().to_canonical();
    match kind {
        ListenerKind::Proxy if !ip.is_loopback() => {
            mistake!(section, "address", "a proxy that asks nobody who it is listens beyond loopback";
                "whoever reaches that address would be this session and spend its credentials";
                "listen on 127.0.0.1, or add `who = [\"token\"]`, or `who = [\"password\"]` and \
                 `passwords = {{ agent = \"env:PROXY_PASSWORD\" }}`");
        }
        ListenerKind::Base(_) if !ip.is_loopback() => {
            mistake!(section, "address", "a `base` listener listens beyond loopback";
                "its clients speak in clear text, and whoever reaches it would be this session";
                "listen on 127.0.0.1 or on a Unix socket");
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

pub(super) const EACH_CALLER: &str = "{caller}";
