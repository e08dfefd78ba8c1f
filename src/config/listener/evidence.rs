//! `who` of `[[listener]]`: the evidence that it accepts, and evidence that could never count.

use std::sync::Arc;

use gateway_credential::SecretRef;
use gateway_intercept::{Evidence, PeerUsers, TAILNET_SOCKET, Tailnet};
use gateway_names::User;
use toml::Spanned;

use super::kind::{ListenerAddress, ListenerKind, ListenerSession};
use crate::reference;
use crate::section::{Section, characters};

/// The settings of a listener that its evidence must fit.
pub(super) struct ListenerContext<'l> {
    pub(super) address: &'l ListenerAddress,
    pub(super) mode: u32,
    pub(super) session: Option<&'l ListenerSession>,
    pub(super) who: &'l [Evidence],
}

/// Refuses evidence that a listener cannot have, or that would never count.
pub(super) fn check(section: &Section<'_, '_>, kind: &ListenerKind, asked: &ListenerContext<'_>) {
    if asked.session == Some(&ListenerSession::EachCaller) && asked.who.is_empty() {
        mistake!(section, "session", "nothing shows who the caller is";
            "`{{caller}}` is a session for each caller";
            "write `who = [\"unix\"]` or `who = [\"token\"]`, or the name of one session");
    }
    check_certificates(section, asked.who);
    check_presented(section, kind, asked.who);
    check_callers(section, asked.session, asked.who);
    check_evidence(
        section,
        (asked.address.tcp().is_none(), asked.mode),
        asked.who,
    );
    check_tailnet(section, kind, asked.address, asked.who);
    check_mark(section, kind, asked);
}

/// Reads the evidence that a listener accepts. The word `listener` adds none.
pub(super) fn who(section: &Section<'_, '_>) -> Vec<Evidence> {
    let uids = section.all("uids", |text| {
        text.parse()
            .map_err(|_| hint!("it is no user id"; "write for example `\"1000\"`"))
    });
    let tailnet = Arc::new(tailnet(section));
    let kinds = section.all("who", |text| match text {
        "listener" => Ok(None),
        "unix" => Ok(Some(Evidence::Unix(PeerUsers(uids.clone())))),
        "token" => Ok(Some(Evidence::Token)),
        "password" => Ok(Some(Evidence::Password)),
        "jwt" => Ok(Some(Evidence::Jwt)),
        "tailnet" => Ok(Some(Evidence::Tailnet(tailnet.clone()))),
        "certificate" => Ok(Some(Evidence::Certificate)),
        "mark" => Ok(Some(Evidence::Mark)),
        _ => refused!("it is no kind of evidence";
            "write `listener`, `token`, `password`, `jwt`, `certificate`, `tailnet`, `unix` or `mark`"),
    });
    if kinds.len() > 1 && kinds.contains(&None) {
        mistake!(section, "who", "`listener` is no evidence beside others";
            "it says that none is needed"; "write it alone, or leave it out");
    }
    kinds.into_iter().flatten().collect()
}

/// Reads the tailnet whose nodes may be behind connections.
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

/// Whether every client on the network must have evidence.
pub(super) fn asks_network(who: &[Evidence]) -> bool {
    asks_tailnet(who) || who.iter().any(Evidence::is_presented)
}

/// Refuses a tailnet if none of its nodes could connect from its own address, and the tailnet's
/// settings if `who` does not name it.
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

/// Refuses an interface as evidence where clients choose to connect, or the kernel names none.
fn check_mark(section: &Section<'_, '_>, kind: &ListenerKind, asked: &ListenerContext<'_>) {
    if !asked.who.contains(&Evidence::Mark) {
        return;
    }
    if !kind.is_captured() {
        let kind = kind.as_str();
        mistake!(section, "who", "clients choose to connect to a `{kind}` listener";
            "the interface is that of a sandbox alone whose every connection is captured by it";
            "write `kind = \"transparent\"` or `kind = \"dns\"`");
    } else if asked.address.tcp().is_some_and(|address| address.is_ipv4()) {
        mistake!(section, "address", "the kernel tells no interface at an address of IPv4";
            "a socket of IPv6 takes IPv4 too, and has it";
            "write `[::]` and the port");
    }
}

/// Reads the users that clients present with passwords, and the references of the passwords.
pub(super) fn passwords(section: &Section<'_, '_>) -> Vec<(String, SecretRef)> {
    let texts = section.texts("passwords", |user| {
        // RFC 7617 §2: a user-id contains no colon.
        let is_user = user.len() <= 128 && !user.contains(':') && User::new(user).is_some();
        let hint = || hint!("a user is visible ASCII without `:`"; "write for example `agent`");
        is_user.then_some(()).ok_or_else(hint)
    });
    let read = |(user, text): (String, Spanned<String>)| {
        let reference =
            reference::read_at(section.document, &text.span(), "passwords", text.get_ref());
        Some((user, reference?))
    };
    texts.into_iter().filter_map(read).collect()
}

/// Refuses presented evidence where no client could present it, or where it would never count.
fn check_presented(section: &Section<'_, '_>, kind: &ListenerKind, who: &[Evidence]) {
    if who.contains(&Evidence::Password) != section.has("passwords") {
        mistake!(section, "passwords", "`passwords` and `\"password\"` in `who` go together";
            "a client presents a user and its password";
            "write `who = [\"password\"]` and `passwords = {{ agent = \"env:PROXY_PASSWORD\" }}`, \
             or neither");
    }
    if who.contains(&Evidence::Jwt) != section.has("jwt") {
        mistake!(section, "jwt", "`jwt` and `\"jwt\"` in `who` go together";
            "it says whose JWTs are taken, and by which keys";
            "write `who = [\"jwt\"]` and `jwt = {{ issuer = \"https://issuer.example\", audience = \
             \"gateway\", keys = \"jwks.json\" }}`, or neither");
    }
    if !who.iter().any(Evidence::is_presented) {
        return;
    }
    let has_place = match kind {
        ListenerKind::Proxy => true,
        ListenerKind::Base(_) => !who
            .iter()
            .any(|one| one.is_presented() && *one != Evidence::Token),
        _ => false,
    };
    if !has_place {
        let kind = kind.as_str();
        mistake!(section, "who", "a `{kind}` listener has no place for what a client presents";
            "the client of a proxy alone presents a password or a JWT, and that of a base URL a \
             token too";
            "leave it out, or write `kind = \"proxy\"`");
    }
    if !who.is_sorted_by_key(|one| !one.is_presented()) {
        mistake!(section, "who", "what a client presents counts before all else";
            "who presents it is whom that says, and the kernel always knows the user";
            "write `token`, `password` and `jwt` first");
    }
}

/// Refuses client certificates where no client could present one, or where none would ever count.
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

/// Refuses a session for each user of this machine if the users are not named: one process with the
/// ids of a container may be 65536 of them.
fn check_callers(section: &Section<'_, '_>, session: Option<&ListenerSession>, who: &[Evidence]) {
    let is_any = who.contains(&Evidence::Unix(PeerUsers(Vec::new())));
    if is_any && session == Some(&ListenerSession::EachCaller) {
        mistake!(section, "session", "every user that can connect would have a session";
            "one container may be 65536 users, and fill `[sessions] most`";
            "write the `uids` that may");
    }
}

/// Refuses evidence that a listener cannot have, and settings for evidence that `who` lacks.
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
    if mode == 0o666
        && !section.has("uids")
        && (who.is_empty() || !who.iter().all(Evidence::is_presented))
    {
        mistake!(section, "mode", "every user of this machine could connect";
            "each would be this session and spend its credentials";
            "write `who = [\"token\"]`, or `who = [\"unix\"]` and the `uids` that may, or another \
             `mode`");
    }
}
