//! `via` of `[[origin]]`: the proxy to reach origins by; and `match = "*"`, for all origins.

use std::path::PathBuf;
use std::sync::Arc;

use gateway_credential::UpstreamLogin;
use gateway_message::{Authority, HostPattern};
use gateway_origin::{OriginDefaults, UpstreamProxy, Via};

use super::diagnostic::Hint;
use super::network;
use super::reference;
use super::section::Section;

/// The settings of `match = "*"`, for all origins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllOrigins {
    /// The settings.
    pub settings: OriginDefaults,
    /// Its certificate files, which the workload must not change.
    pub files: Vec<PathBuf>,
}

/// Whether an `[[origin]]` is for all origins.
pub(super) fn is_for_all(section: &Section<'_, '_>) -> bool {
    let word = section.value("match");
    word.is_some_and(|word| word.get_ref().as_str() == Some("*"))
}

pub(super) fn for_all(section: &Section<'_, '_>) -> AllOrigins {
    for key in section.keys() {
        if !["match", "roots", "via", "via_auth"].contains(&key) {
            mistake!(section, key, "`{key}` is not for all origins";
                "for all origins there are `roots`, `via` and `via_auth`";
                "write it into an `[[origin]]` of the host that it is for");
        }
    }
    let (files, roots) = section.roots("roots");
    let via = match via(section) {
        Some(Via::Direct) => {
            mistake!(section, "via", "`direct` has no effect for all origins";
                "without `via` no proxy is used"; "remove it");
            None
        }
        Some(Via::Proxy(proxy)) => Some(proxy),
        None => None,
    };
    AllOrigins {
        settings: OriginDefaults { roots, via },
        files,
    }
}

/// Reads `via` and `via_auth`.
pub(super) fn via(section: &Section<'_, '_>) -> Option<Via> {
    let login = reference::local(section, "via_auth").map(UpstreamLogin::kept_at);
    let text = section.text("via");
    let is_proxy = text.as_ref().is_some_and(|text| *text.get_ref() != DIRECT);
    if section.has("via_auth") && !is_proxy {
        mistake!(section, "via_auth", "`via_auth` has no proxy";
            "it is the login to the proxy that `via` names";
            "add `via = \"http://proxy.example:3128\"`, or remove it");
    }
    if is_proxy && section.has("connect") {
        mistake!(section, "via", "`via` contradicts `connect`";
            "a fixed address is dialled by the gateway itself"; "remove one of the two");
    }
    if text.is_some_and(|text| text.get_ref().contains('@')) {
        mistake!(section, "via", "`via` contains a login";
            "a login in a URL is copied and shown with it";
            "write the proxy alone, and `via_auth = \"file:/path\"`, which holds `user:password`");
        return None;
    }
    Some(match section.get("via", proxy)? {
        None => Via::Direct,
        Some(authority) => Via::Proxy(Arc::new(UpstreamProxy { authority, login })),
    })
}

/// Reads `http://HOST:PORT`, or `direct`, which is `None`.
fn proxy(text: &str) -> Result<Option<Authority>, Hint> {
    const EXAMPLE: &str = "write for example `http://proxy.example:3128`, or `direct`";
    if text == DIRECT {
        return Ok(None);
    }
    let Some(rest) = text.strip_prefix("http://") else {
        let why = "it is reached by plain HTTP; TLS to an origin runs inside its tunnel";
        return Err(Hint::new(why, EXAMPLE));
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    match network::host_and_port(rest, 0)? {
        (HostPattern::Exact(host), port @ 1..) => Ok(Some(Authority { host, port })),
        _ => Err(Hint::new("a proxy is one host, with its port", EXAMPLE)),
    }
}

const DIRECT: &str = "direct";
