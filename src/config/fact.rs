//! `[[fact]]`: values in a request's content that policies may read.

use crate::body::fact::{FactType, Location};
use crate::policy::{ContentFact, FactName};

use super::network;
use super::section::{Section, parsed};

pub(super) fn fact(section: &Section<'_, '_>) -> Option<ContentFact> {
    require!(section, "name"; "policies read it by its name";
        "add `name = \"amount\"`, for `context.content.amount`");
    require!(section, "type"; "policies are checked against it when they are loaded";
        "add `type = \"Long\"`");
    require!(section, "origins"; "content is read for the origins that are named alone";
        "add `origins = [\"https://api.example.com\"]`");
    let name = section.get("name", parsed::<FactName>("write for example `max_tokens`"));
    let kind = section.get("type", parsed::<FactType>("write one of them"));
    let origins = section.all("origins", network::origin);
    if section.has("origins") && origins.is_empty() {
        mistake!(section, "origins", "`origins` names no origin";
            "content is read for the origins that are named alone"; "name one");
    }
    let location = location(section);
    let fact = ContentFact {
        name: name?,
        kind: kind?,
        origins,
        location: location?,
    };
    if fact.kind == FactType::Strings && matches!(fact.location, Location::Form(_)) {
        mistake!(section, "type", "a form has no sets";
            "a value that a form has several times is read in several ways";
            "write `type = \"String\"`, or read it from JSON");
    }
    Some(fact)
}

fn location(section: &Section<'_, '_>) -> Option<Location> {
    match (section.has("json"), section.has("form")) {
        (true, true) => {
            mistake!(section, "form", "`form` and `json` exclude each other";
                "content is one of the two";
                "write `json = \"/max_tokens\"` or `form = \"amount\"`");
            None
        }
        (false, false) => {
            require!(section, "json"; "it says where in the content the value is";
                "write `json = \"/max_tokens\"` or `form = \"amount\"`");
            None
        }
        (true, false) => {
            let pointer = section.get("json", parsed("write for example `/max_tokens`"));
            pointer.map(Location::Json)
        }
        (false, true) => {
            let name = section.get("form", parsed("write for example `amount`"));
            name.map(Location::Form)
        }
    }
}
