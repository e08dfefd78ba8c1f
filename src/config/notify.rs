//! `[[notify]]`: who is told that a policy asks a person.

use std::path::PathBuf;

use gateway_credential::SecretRef;
use gateway_message::Origin;
use rustls::pki_types::CertificateDer;

use super::section::Section;
use super::{network, reference};

/// A way by which a person is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotifySettings {
    /// A program gets the question at its standard input.
    Command(SecretRef),
    /// A server gets the question, and may answer it.
    Webhook(WebhookSettings),
    /// A note on the desktop of the gateway's user.
    Desktop,
}

/// A server whose answer decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookSettings {
    /// The server.
    pub server: Origin,
    /// The path of its URL.
    pub path: String,
    /// The key that signs what is sent.
    pub key: SecretRef,
    /// The roots to trust, instead of the system's.
    pub roots: Vec<CertificateDer<'static>>,
    /// The files that hold the roots.
    pub files: Vec<PathBuf>,
}

pub(super) fn notify(section: &Section<'_, '_>) -> Option<NotifySettings> {
    let program = section.has("command");
    let program = program.then(|| reference::program(section, None));
    let webhook = webhook(section);
    let is_shown = section.is_true("desktop");
    let ways = [
        ("command", program.is_some()),
        ("url", section.has("url")),
        ("desktop", is_shown),
    ];
    let mut ways = ways.into_iter().filter(|(_, is_given)| *is_given);
    let way = ways.next();
    if way.is_none() {
        let ways = hint!("it says how a person is told";
            "add `command = [\"/path\", \"argument\"]`, `url` with `key`, or `desktop = true`");
        section.missing("command", ways);
    }
    if let (Some((way, _)), Some((other, _))) = (way, ways.next()) {
        mistake!(section, other, "`{other}` and `{way}` are in one section";
            "each tells a person in its own way"; "write a `[[notify]]` for each");
    }
    match way?.0 {
        "command" => program.flatten().map(NotifySettings::Command),
        "url" => webhook.map(NotifySettings::Webhook),
        _ => Some(NotifySettings::Desktop),
    }
}

fn webhook(section: &Section<'_, '_>) -> Option<WebhookSettings> {
    let url = section.get("url", |text| {
        network::url(text, "https://approvals.example/ask")
    });
    let key = reference::local(section, "key");
    let (files, roots) = section.roots("roots");
    if !section.has("url") {
        let hint = hint!("only a webhook uses it"; "remove it, or add `url`");
        section.refuse(&["key", "roots"], "has no `url`", hint);
        return None;
    }
    require!(section, "key"; "the server knows by its signature that the gateway asks";
        "add `key = \"env:NAME\"`, whose value is `whsec_` and the key in base64");
    let (server, path) = url?;
    if network::is_open(&server) {
        mistake!(section, "url", "the answer could be changed on the way";
            "it lets requests go on; `http` is for loopback addresses alone"; "write `https://`");
    }
    Some(WebhookSettings {
        server,
        path,
        key: key?,
        roots,
        files,
    })
}
