//! `[[origin]]`: how certain origins are reached and verified, and exceptions to the address floor.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use gateway_message::{HostPattern, OriginPattern, Scheme};
use gateway_origin::{ClientIdentity, OriginProtocol, OriginRule};

use super::certificates::Certificates;
use super::diagnostic::Hint;
use super::network;
use super::reference;
use super::section::Section;
use super::via;

/// How the origins that match a pattern are reached and verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The rule.
    pub rule: OriginRule,
    /// Its certificate files, which the workload must not change.
    pub files: Vec<PathBuf>,
    /// Whether its own rule sets the treatment of `%2F`.
    pub says_encoded_slash: bool,
}

impl Origin {
    /// Allows an http origin in clear text, and keeps the rest of the rule that covers it.
    pub(super) fn in_clear_text(matches: OriginPattern, covering: Option<Self>) -> Self {
        let mut origin = Self::of(matches, covering);
        origin.rule.cleartext = true;
        origin
    }

    /// Lets `%2F` stand inside a path segment for these origins, unless their own rule sets its
    /// treatment. In all else, the rule that covers them applies.
    pub fn keep_encoded_slash(origins: &mut Vec<Self>, matches: &OriginPattern) {
        if let Some(own) = origins.iter_mut().find(|one| one.rule.matches == *matches) {
            own.rule.encoded_slash |= !own.says_encoded_slash;
            return;
        }
        let covering = Self::covering(origins, matches);
        if covering.as_ref().is_none_or(|one| !one.says_encoded_slash) {
            let mut origin = Self::of(matches.clone(), covering);
            origin.rule.encoded_slash = true;
            origins.push(origin);
        }
    }

    /// Returns the most specific rule that overlaps these origins.
    pub(super) fn covering(origins: &[Self], matches: &OriginPattern) -> Option<Self> {
        let covering = origins
            .iter()
            .filter(|one| one.rule.matches.overlaps(matches));
        covering
            .max_by_key(|one| one.rule.matches.hosts.to_string().len())
            .cloned()
    }

    /// Returns the most specific of the rules that cover all of these origins.
    pub(super) fn that_covers<'o>(
        origins: &'o [Self],
        matches: &OriginPattern,
    ) -> Option<&'o Self> {
        let covering = origins
            .iter()
            .filter(|one| one.rule.matches.covers(matches));
        covering.max_by_key(|one| one.rule.matches.hosts.to_string().len())
    }

    /// Returns the covering rule, narrowed to these origins.
    fn of(matches: OriginPattern, covering: Option<Self>) -> Self {
        let mut origin = covering.unwrap_or_else(|| Self {
            rule: OriginRule::of(matches.clone()),
            files: Vec::new(),
            says_encoded_slash: false,
        });
        origin.rule.matches = matches;
        origin
    }
}

pub(super) fn origin(section: &Section<'_, '_>) -> Option<Origin> {
    require!(section, "match"; "it says which origins the settings are for";
        "add `match = \"https://*.corp.test\"`");
    let matches = section.get("match", network::origin);
    let (mut files, roots) = section.roots("roots");
    let versions = [
        ("auto", OriginProtocol::Auto),
        ("1.1", OriginProtocol::Http1),
        ("2", OriginProtocol::Http2),
    ];
    let identity = identity(section).map(|((file, chain), key)| {
        files.push(file);
        ClientIdentity { chain, key }
    });
    let passes_tokens = section.choice("token_answers", &[("replace", false), ("pass", true)]);
    let origin = Origin {
        rule: OriginRule {
            roots,
            replace_system_roots: section.is_true("replace_system_roots"),
            identity,
            addresses: section.all("addresses", network::exception),
            connect: section.get("connect", connect),
            via: via::via(section),
            protocol: section.choice("http", &versions).unwrap_or_default(),
            cleartext: section.is_true("cleartext"),
            encoded_slash: section.is_true("encoded_slash"),
            underscores: section.is_true("underscores"),
            passes_tokens: passes_tokens.unwrap_or(false),
            matches: matches?,
        },
        says_encoded_slash: section.has("encoded_slash"),
        files,
    };
    contradictions(section, &origin.rule);
    Some(origin)
}

fn connect(text: &str) -> Result<SocketAddr, Hint> {
    let address = text.parse::<SocketAddr>().map_err(|_| {
        hint!("it is no address and port; names are not looked up";
            "write for example `127.0.0.1:8443`")
    })?;
    network::reachable(address.ip())?;
    if address.port() == 0 {
        return refused!("port 0 is none"; "write the port of the origin");
    }
    Ok(address)
}

/// Returns the certificates of a client identity, and the path of its key.
fn identity(section: &Section<'_, '_>) -> Option<(Certificates, PathBuf)> {
    let certificate = section.certificates("client_certificate");
    let key = reference::read(section, "client_key", "");
    let both = ["client_certificate", "client_key"];
    for (key, other) in [(both[0], both[1]), (both[1], both[0])] {
        if section.has(key) && !section.has(other) {
            mistake!(section, key, "`{key}` needs `{other}`";
                "a client certificate is presented together with a proof of its key";
                "add `{other}`");
        }
    }
    let key = key?;
    let file = key.path().map(Path::to_owned);
    if file.is_none() {
        mistake!(section, "client_key", "`client_key` is not a file";
            "the key of a client certificate is read from a PEM file";
            "write `client_key = \"file:/path/key.pem\"`");
    }
    Some((certificate?, file?))
}

/// Whether an address is of this machine alone.
pub(super) fn is_local(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

fn contradictions(section: &Section<'_, '_>, rule: &OriginRule) {
    if rule.replace_system_roots && !section.has("roots") {
        mistake!(section, "replace_system_roots", "`replace_system_roots` needs `roots`";
            "no origin could be verified"; "add `roots`, or remove `replace_system_roots`");
    }
    if rule.connect.is_some() && section.has("addresses") {
        mistake!(section, "addresses", "`addresses` contradicts `connect`";
            "with a fixed address no other one is ever dialled"; "remove one of the two");
    }
    if rule.matches.scheme == Scheme::Https {
        if rule.cleartext {
            mistake!(section, "cleartext", "`cleartext` contradicts `match`";
                "an https origin is always spoken to by TLS"; "remove `cleartext`");
        }
        return;
    }
    let local = rule.matches.is_loopback() || rule.connect.is_some_and(is_local);
    if rule.cleartext && rule.matches.is_loopback() && !rule.connect.is_none_or(is_local) {
        mistake!(section, "cleartext", "`cleartext` contradicts `connect`";
            "credentials may be bound to a loopback name, and would go there in clear text";
            "name the host itself in `match`");
    }
    let whole_domain = matches!(rule.matches.hosts, HostPattern::Below(_));
    if rule.cleartext && whole_domain && !local {
        let what = "`cleartext` is for a whole domain beyond loopback";
        section.error("cleartext", what, network::whole_domain_in_clear_text());
    }
    let of_tls = ["roots", "replace_system_roots", "client_certificate"];
    section.refuse(
        &of_tls,
        "contradicts `match`",
        hint!("an http origin shows no certificate"; "write `https://`, or remove the key"),
    );
    if rule.protocol == OriginProtocol::Http2 {
        mistake!(section, "http", "`http = \"2\"` contradicts `match`";
            "HTTP/2 is spoken over TLS only"; "write `http = \"1.1\"`, or `https://`");
    }
}
