//! `[[listener]]`: where `gateway serve` accepts connections, and which session they belong to.

mod tls;

use std::fmt;
use std::fs::Permissions;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::credential::SecretRef;
use crate::intercept::{Aliases, DoorTls, Evidence, PeerUsers, TAILNET_SOCKET, Tailnet};
use crate::names::SessionId;
use crate::token::TOKEN_USER;

use toml::Spanned;

use super::diagnostic::{Hint, remedy};
use super::section::{Section, characters};
use super::{network, reference};

pub use tls::ListenerTls;

/// An address that accepts the connections of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// What its clients speak.
    pub kind: ListenerKind,
    /// Where it listens.
    pub address: ListenerAddress,
    /// The mode of a socket of the file system: who may connect.
    pub mode: u32,
    /// The session that its connections belong to.
    pub session: ListenerSession,
    /// The groups that the session is in.
    pub groups: Vec<String>,
    /// Whether credentials may go with requests of which nothing shows whose they are.
    pub any_user: bool,
    /// What shows who is behind a connection; the listener alone, if there is nothing.
    pub who: Vec<Evidence>,
    /// The TLS of a proxy; `None` if its clients speak to it in clear text.
    pub tls: Option<ListenerTls>,
}

impl Listener {
    /// A proxy of the session `default`, without authentication.
    pub(super) fn proxy(address: SocketAddr) -> Self {
        Self {
            kind: ListenerKind::Proxy {
                authentication: None,
            },
            address: ListenerAddress::Tcp(address),
            mode: PRIVATE,
            session: ListenerSession::default(),
            groups: Vec::new(),
            any_user: false,
            who: Vec::new(),
            tls: None,
        }
    }

    /// The TLS of a proxy, if there is one.
    #[must_use]
    pub fn door(&self) -> Option<Arc<DoorTls>> {
        self.tls.as_ref().map(|tls| tls.door.clone())
    }

    /// Gives its socket the mode, if it is of the file system.
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
        matches!(self.kind, ListenerKind::Proxy { .. })
    }

    /// Whether every user of the machine can connect to it and ask for any origin that it carries.
    pub(super) fn is_open_to_users(&self) -> bool {
        matches!(
            self.kind,
            ListenerKind::Proxy { .. } | ListenerKind::Base(_)
        )
    }

    /// Whether clients reach it as a proxy by a URL, which names no socket of the file system.
    #[must_use]
    pub fn has_proxy_url(&self) -> bool {
        self.is_proxy() && self.address.tcp().is_some()
    }

    /// Returns what a client must present, if anything.
    #[must_use]
    pub fn login(&self) -> Option<&ProxyLogin> {
        match &self.kind {
            ListenerKind::Proxy { authentication } => authentication.as_ref(),
            _ => None,
        }
    }

    /// The user whose password its clients present, if any: that of a token is the token.
    #[must_use]
    pub fn proxy_user(&self) -> Option<&str> {
        let by_token = self.who.contains(&Evidence::Token).then_some(TOKEN_USER);
        self.login().map(|login| login.user.as_str()).or(by_token)
    }

    /// Whether it takes IPv4 too if its address is `[::]`, as capture brings both to one port.
    #[must_use]
    pub fn is_dual_stack(&self) -> bool {
        let ip = self.address.tcp().map(|address| address.ip());
        self.kind.is_captured() && ip == Some(Ipv6Addr::UNSPECIFIED.into())
    }
}

/// The session of a listener's connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListenerSession {
    /// One for all.
    One(SessionId),
    /// One for each caller.
    EachCaller,
}

impl ListenerSession {
    /// The session, if it is one for all.
    #[must_use]
    pub fn one(&self) -> Option<&SessionId> {
        match self {
            Self::One(id) => Some(id),
            Self::EachCaller => None,
        }
    }

    /// Its name, as it is written in the configuration.
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

const EACH_CALLER: &str = "{caller}";

fn session(text: &str) -> Result<ListenerSession, Hint> {
    match text {
        EACH_CALLER => Ok(ListenerSession::EachCaller),
        _ => name(text).map(ListenerSession::One),
    }
}

/// Where a listener listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListenerAddress {
    /// An address and port of TCP.
    Tcp(SocketAddr),
    /// A socket of the file system.
    Unix(PathBuf),
}

impl ListenerAddress {
    /// The address and port, if it is of TCP.
    #[must_use]
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }
}

/// As it is written in the configuration.
impl fmt::Display for ListenerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
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
    /// Connections that the kernel redirected, by REDIRECT or TPROXY.
    Transparent,
    /// DNS, by UDP and TCP. The answers lead to the `Transparent` listener of the session.
    Dns,
    /// HTTP/1.1 in clear text. A path begins with the alias of its origin.
    Base(Aliases),
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
        ("base", ListenerKind::Base(Aliases::default())),
    ];
    let kind = section.choice("kind", &kinds);
    let address = section.get("address", address);
    let mode = section.get("mode", mode);
    let who = who(section);
    let session = match section.has("session") {
        true => section.get("session", session),
        false => Some(ListenerSession::default()),
    };
    let port = section.count("port", 1..=65_535);
    let authentication = section
        .inner("authentication", "listener.authentication")
        .and_then(|inner| authentication(&inner));
    let tls = section.inner("tls", "listener.tls");
    let tls = tls.and_then(|inner| tls::tls(&inner, &who));
    let groups = section.all("groups", |text| Ok(name(text)?.as_str().to_owned()));
    let any_user = section.is_true("any_user");
    let aliases = aliases(section);
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
    check_aliases(section, &kind);
    if section.has("tls") && !matches!(kind, ListenerKind::Proxy { .. }) {
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
    match address {
        ListenerAddress::Tcp(_) if section.has("tls") && !who.is_empty() => {}
        ListenerAddress::Tcp(address) if who.contains(&Evidence::Token) => {
            warn_in_clear(section, address);
        }
        ListenerAddress::Tcp(_) if asks_tailnet(&who) => {}
        ListenerAddress::Tcp(address) => refuse_open(section, &kind, address),
        ListenerAddress::Unix(_) => refuse_uncaptured(section, &kind),
    }
    let mode = mode.unwrap_or(PRIVATE);
    if session == Some(ListenerSession::EachCaller) && who.is_empty() {
        mistake!(section, "session", "nothing shows who the caller is";
            "`{{caller}}` is a session for each caller";
            "write `who = [\"unix\"]` or `who = [\"token\"]`, or the name of one session");
    }
    check_certificates(section, &who);
    check_tokens(section, &kind, &who);
    check_callers(section, session.as_ref(), &who);
    check_evidence(section, (address.tcp().is_none(), mode), &who);
    check_tailnet(section, &kind, &address, &who);
    Some(Listener {
        kind: match kind {
            ListenerKind::Proxy { .. } => ListenerKind::Proxy { authentication },
            ListenerKind::Tls { port: usual } => ListenerKind::Tls {
                port: port.unwrap_or(usual),
            },
            ListenerKind::Base(_) => ListenerKind::Base(aliases),
            of_capture => of_capture,
        },
        address,
        mode,
        session: session?,
        groups,
        any_user,
        who,
        tls,
    })
}

impl ListenerKind {
    /// Whether the kernel brings its clients, which dial other addresses.
    fn is_captured(&self) -> bool {
        matches!(self, Self::Transparent | Self::Dns)
    }

    /// The kind as it is written.
    fn as_str(&self) -> &'static str {
        match self {
            Self::Proxy { .. } => "proxy",
            Self::Tls { .. } => "tls",
            Self::Transparent => "transparent",
            Self::Dns => "dns",
            Self::Base(_) => "base",
        }
    }

    /// Why its port is not configured; `None` if it is.
    fn names_port(&self) -> Option<&'static str> {
        match self {
            Self::Proxy { .. } => Some("clients of a proxy name the port themselves"),
            Self::Tls { .. } => None,
            Self::Transparent => Some("the port that the client dialled is known"),
            Self::Dns => Some("a question has no port of an origin"),
            Self::Base(_) => Some("an alias names the port with its origin"),
        }
    }

    /// Why its clients present no password; `None` if they may.
    fn no_password(&self) -> Option<&'static str> {
        match self {
            Self::Proxy { .. } => None,
            Self::Tls { .. } => {
                Some("a client that speaks TLS at once has no place for a proxy password")
            }
            Self::Base(_) => Some("a client of a base URL has no place for a proxy password"),
            Self::Transparent | Self::Dns => {
                Some("a client that is captured does not know of the gateway")
            }
        }
    }
}

fn address(text: &str) -> Result<ListenerAddress, Hint> {
    if let Some(path) = text.strip_prefix("unix:") {
        return match Path::new(path).is_absolute() && !path.contains(char::is_control) {
            true => Ok(ListenerAddress::Unix(path.into())),
            false => refused!("a socket has an absolute path";
                "write for example `unix:/run/gateway/agents.sock`"),
        };
    }
    match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_multicast() => {
            refused!("nothing can listen there"; "write an address of this machine")
        }
        Ok(address) => Ok(ListenerAddress::Tcp(address)),
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

/// The origins of a `base` listener, by their aliases.
fn aliases(section: &Section<'_, '_>) -> Aliases {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let texts = section.texts("aliases", |name| {
        let hint =
            || hint!("an alias is letters, digits, `-` and `_`"; "write for example `openai`");
        characters(name, 64, is_name).map(drop).ok_or_else(hint)
    });
    let several = || hint!("an alias is of one server"; "name one host");
    let named = texts.into_iter().filter_map(|(name, text)| {
        let server = |text: &str| network::server(text, several());
        let text = Spanned::new(text.span(), text.get_ref().as_str());
        Some((name, section.accept("aliases", text, server)?.into_inner()))
    });
    Aliases(named.collect())
}

/// Refuses aliases of another kind than `base`, and `base` without them.
fn check_aliases(section: &Section<'_, '_>, kind: &ListenerKind) {
    let is_base = matches!(kind, ListenerKind::Base(_));
    if is_base != section.has("aliases") {
        let kind = kind.as_str();
        mistake!(section, "aliases", "`aliases` and `kind = \"{kind}\"` do not fit";
            "the paths of a `base` listener begin with an alias, and those of no other";
            "write `kind = \"base\"` and `aliases = {{ openai = \"https://api.openai.com\" }}`, or \
             neither");
    }
}

/// The evidence that a listener takes. `listener` is none beside itself.
fn who(section: &Section<'_, '_>) -> Vec<Evidence> {
    let uids = section.all("uids", |text| {
        text.parse()
            .map_err(|_| hint!("it is no user id"; "write for example `\"1000\"`"))
    });
    let tailnet = Arc::new(tailnet(section));
    let kinds = section.all("who", |text| match text {
        "listener" => Ok(None),
        "unix" => Ok(Some(Evidence::Unix(PeerUsers(uids.clone())))),
        "token" => Ok(Some(Evidence::Token)),
        "tailnet" => Ok(Some(Evidence::Tailnet(tailnet.clone()))),
        "certificate" => Ok(Some(Evidence::Certificate)),
        _ => refused!("it is no kind of evidence";
            "write `listener`, `token`, `certificate`, `tailnet` or `unix`"),
    });
    if kinds.len() > 1 && kinds.contains(&None) {
        mistake!(section, "who", "`listener` is no evidence beside others";
            "it says that none is needed"; "write it alone, or leave it out");
    }
    kinds.into_iter().flatten().collect()
}

/// The tailnet whose nodes may be behind connections.
fn tailnet(section: &Section<'_, '_>) -> Tailnet {
    let socket = section.path("tailnet_socket");
    let capability = section.get("capability", |text| {
        let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
        let hint =
            hint!("it is no name of a capability"; "write for example `example.com/cap/gateway`");
        characters(text, 256, fits).ok_or(hint)
    });
    Tailnet::new(socket.unwrap_or_else(|| TAILNET_SOCKET.into()), capability)
}

fn asks_tailnet(who: &[Evidence]) -> bool {
    who.iter().any(|one| one.tailnet().is_some())
}

/// Refuses a tailnet where no node of it could come from an address of its own, and its settings
/// where it is not asked.
fn check_tailnet(
    section: &Section<'_, '_>,
    kind: &ListenerKind,
    address: &ListenerAddress,
    who: &[Evidence],
) {
    if !asks_tailnet(who) {
        for key in ["tailnet_socket", "capability"] {
            if section.has(key) {
                mistake!(section, key, "no tailnet is asked who connects"; "`{key}` would not hold";
                    "write `who = [\"tailnet\"]`, or remove `{key}`");
            }
        }
        return;
    }
    if kind.is_captured() {
        let kind = kind.as_str();
        mistake!(section, "who", "a `{kind}` listener has clients of its own sandbox";
            "the kernel brings them, and no node of a tailnet"; "write `kind = \"proxy\"`");
    }
    let ip = address.tcp().map(|address| address.ip().to_canonical());
    if ip.is_none_or(|ip| ip.is_loopback()) {
        mistake!(section, "who", "no node of a tailnet connects to {address}";
            "whoever does is on this machine, which is no evidence of anybody";
            "write the address of this machine in the tailnet, as `tailscale ip` shows it");
    }
}

/// Refuses tokens where nobody could present one, or where none would ever count.
fn check_tokens(section: &Section<'_, '_>, kind: &ListenerKind, who: &[Evidence]) {
    let Some(at) = who.iter().position(|one| *one == Evidence::Token) else {
        return;
    };
    if !matches!(kind, ListenerKind::Proxy { .. }) {
        let kind = kind.as_str();
        mistake!(section, "who", "a `{kind}` listener has no place for a token";
            "the client of a proxy alone presents one"; "leave it out, or write `kind = \"proxy\"`");
    }
    if section.has("authentication") {
        mistake!(section, "authentication", "a token and a password have one place";
            "a client presents either"; "remove `authentication`, or `token` from `who`");
    }
    if at > 0 && who[0] == Evidence::Certificate {
        mistake!(section, "who", "a token counts before a certificate";
            "a client that presents both is whom the token says"; "write `token` first");
    } else if at > 0 {
        mistake!(section, "who", "no token would count";
            "the first evidence that is there counts, and the kernel always knows the user";
            "write `token` first");
    }
}

/// Refuses client certificates where nobody could present one, or where none would ever count.
fn check_certificates(section: &Section<'_, '_>, who: &[Evidence]) {
    let Some(at) = who.iter().position(|one| *one == Evidence::Certificate) else {
        return;
    };
    if !section.has("tls") {
        mistake!(section, "who", "nobody could present a certificate";
            "the client of a proxy with TLS alone presents one";
            "add `tls = {{ certificate = \"proxy.pem\", key = \"proxy.key\", client_roots = \
             \"clients.pem\" }}`");
    }
    let is_final = |one: &Evidence| matches!(one, Evidence::Unix(_) | Evidence::Tailnet(_));
    if who[..at].iter().any(is_final) {
        mistake!(section, "who", "no certificate would count";
            "the first evidence that is there counts, and the kernel and tailscaled always answer";
            "write `certificate` before `unix` and `tailnet`");
    }
}

/// Refuses a session for each user of this machine without saying which: one process with the ids
/// of a container may be 65536 of them.
fn check_callers(section: &Section<'_, '_>, session: Option<&ListenerSession>, who: &[Evidence]) {
    let is_any = who.contains(&Evidence::Unix(PeerUsers(Vec::new())));
    if is_any && session == Some(&ListenerSession::EachCaller) {
        mistake!(section, "session", "every user that can connect would have a session";
            "one container may be 65536 users, and fill `[sessions] most`";
            "write the `uids` that may");
    }
}

/// Refuses evidence that a listener cannot have, and settings of evidence that it does not take.
fn check_evidence(section: &Section<'_, '_>, (is_unix, mode): (bool, u32), who: &[Evidence]) {
    let names_users = who.iter().any(|one| matches!(one, Evidence::Unix(_)));
    if !is_unix && names_users {
        mistake!(section, "who", "a connection over TCP shows no user of this machine";
            "the kernel knows who connected at a Unix socket alone";
            "remove `who`, or let a `proxy` have `address = \"unix:/run/gateway/agents.sock\"`");
    }
    if !is_unix && section.has("mode") {
        mistake!(section, "mode", "`mode` is of a Unix socket"; "an address of TCP has none";
            "remove `mode`, or write `address = \"unix:/run/gateway/agents.sock\"`");
    }
    if !names_users && section.has("uids") {
        mistake!(section, "uids", "nothing shows which user connects"; "`uids` would not hold";
            "write `who = [\"unix\"]`");
    }
    if mode == 0o666 && !section.has("uids") && *who != [Evidence::Token] {
        mistake!(section, "mode", "every user of this machine could connect";
            "each would be this session and spend its credentials";
            "write `who = [\"token\"]`, or `who = [\"unix\"]` and the `uids` that may, or another \
             `mode`");
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

/// Warns of a proxy beyond loopback to which tokens travel.
fn warn_in_clear(section: &Section<'_, '_>, address: SocketAddr) {
    if !address.ip().to_canonical().is_loopback() {
        warning!(section, "address", "tokens travel to this proxy in clear text";
            "whoever reads that network can use them while they hold";
            "let it be a network that encrypts, and mint with `--from NETWORK`");
    }
}

/// Refuses a Unix socket of a kind whose clients the kernel brings.
fn refuse_uncaptured(section: &Section<'_, '_>, kind: &ListenerKind) {
    if kind.is_captured() {
        let kind = kind.as_str();
        mistake!(section, "address", "a `{kind}` listener cannot listen on a Unix socket";
            "the kernel redirects to an address and port alone";
            "write for example `address = \"127.0.0.1:8080\"`, or `kind = \"proxy\"`");
    }
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
                 `who = [\"token\"]`, or \
                 `authentication = {{ user = \"agent\", password = \"env:PROXY_PASSWORD\" }}`");
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
