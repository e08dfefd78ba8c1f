//! The aliases of a `base` listener.

use gateway_intercept::Aliases;
use toml::Spanned;

use super::kind::ListenerKind;
use crate::network;
use crate::section::{Section, characters};

/// The origins of a `base` listener, by their aliases.
pub(super) fn aliases(section: &Section<'_, '_>) -> Aliases {
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
pub(super) fn check(section: &Section<'_, '_>, kind: &ListenerKind) {
    let is_base = matches!(kind, ListenerKind::Base(_));
    if is_base != section.has("aliases") {
        let kind = kind.as_str();
        mistake!(section, "aliases", "`aliases` and `kind = \"{kind}\"` do not fit";
            "the paths of a `base` listener begin with an alias, and those of no other";
            "write `kind = \"base\"` and `aliases = {{ openai = \"https://api.openai.com\" }}`, or \
             neither");
    }
}
