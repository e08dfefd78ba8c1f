//! `[[fact]]`: values in a request's content that policies may read.

use toml::Spanned;

use crate::body::fact::{FactType, Location};
use crate::policy::{ContentFact, FactName};

use super::diagnostic::Hint;
use super::network;
use super::section::Section;

pub(super) fn fact(section: &Section<'_, '_>) -> Option<ContentFact> {
    for (key, why, remedy) in [
        (
            "name",
            "policies read it by its name",
            "add `name = \"amount\"`, for `context.content.amount`",
        ),
        (
            "type",
            "policies are checked against it when they are loaded",
            "add `type = \"Long\"`",
        ),
        (
            "origins",
            "content is read for the origins that are named alone",
            "add `origins = [\"https://api.example.com\"]`",
        ),
    ] {
        if !section.has(key) {
            section.missing(key, why, remedy);
        }
    }
    let name = section.parsed("name", |text| {
        text.parse::<FactName>()
            .map_err(|error| Hint::new(error.to_string(), "write for example `max_tokens`"))
    });
    let kind = section.parsed("type", |text| {
        text.parse::<FactType>()
            .map_err(|error| Hint::new(error.to_string(), "write one of them"))
    });
    let origins = section.each("origins", network::origin);
    if section.has("origins") && origins.is_empty() {
        let hint = Hint::new(
            "content is read for the origins that are named alone",
            "name one",
        );
        section.error("origins", "`origins` names no origin", hint);
    }
    let location = location(section);
    let fact = ContentFact {
        name: name?.into_inner(),
        kind: kind?.into_inner(),
        origins: origins.into_iter().map(Spanned::into_inner).collect(),
        location: location?,
    };
    if fact.kind == FactType::Strings && matches!(fact.location, Location::Form(_)) {
        let hint = Hint::new(
            "a value that a form has several times is read in several ways",
            "write `type = \"String\"`, or read it from JSON",
        );
        section.error("type", "a form has no sets", hint);
    }
    Some(fact)
}

fn location(section: &Section<'_, '_>) -> Option<Location> {
    let remedy = "write `json = \"/max_tokens\"` or `form = \"amount\"`";
    match (section.has("json"), section.has("form")) {
        (true, true) => {
            let hint = Hint::new("content is one of the two", remedy);
            section.error("form", "`form` and `json` exclude each other", hint);
            None
        }
        (false, false) => {
            section.missing("json", "it says where in the content the value is", remedy);
            None
        }
        (true, false) => section
            .parsed("json", |text| {
                let pointer = text.parse();
                pointer.map_err(|error: crate::body::fact::PointerMalformed| {
                    Hint::new(error.to_string(), "write for example `/max_tokens`")
                })
            })
            .map(|pointer| Location::Json(pointer.into_inner())),
        (false, true) => section
            .parsed("form", |text| {
                let name = text.parse();
                name.map_err(|error: crate::body::fact::FormNameMalformed| {
                    Hint::new(error.to_string(), "write for example `amount`")
                })
            })
            .map(|name| Location::Form(name.into_inner())),
    }
}
