//! `[[fact]]`: values in a request's content that policies may read; and `[[read]]`: endpoints that
//! speak a protocol whose facts they may read.

use gateway_body::fact::{FactType, Location};
use gateway_body::read::Protocol;
use gateway_message::OriginPattern;
use gateway_policy::{ContentFact, FactName, ProtocolEndpoint};

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
    let origins = origins(section);
    let location = location(section);
    let tool = tool(section);
    let fact = ContentFact {
        name: name?,
        kind: kind?,
        origins,
        location: location?,
        tool,
    };
    if fact.kind == FactType::Strings && !matches!(fact.location, Location::Json(_)) {
        mistake!(section, "type", "a form has no sets, nor has text";
            "a value that a form has several times is read in several ways";
            "write `type = \"String\"`, or read it from JSON");
    }
    Some(fact)
}

pub(super) fn endpoint(section: &Section<'_, '_>) -> Option<ProtocolEndpoint> {
    require!(section, "as"; "a protocol is not guessed"; "add `as = \"graphql\"`");
    require!(section, "origins"; "content is read for the origins that are named alone";
        "add `origins = [\"https://api.example.com\"]`");
    let protocol = section.get("as", parsed::<Protocol>("write one of them"));
    let origins = origins(section);
    let route = section.get("path", parsed("write for example `/graphql`"));
    Some(ProtocolEndpoint {
        protocol: protocol?,
        origins,
        routes: route.into_iter().collect(),
    })
}

fn origins(section: &Section<'_, '_>) -> Vec<OriginPattern> {
    let origins = section.all("origins", network::origin);
    if section.has("origins") && origins.is_empty() {
        mistake!(section, "origins", "`origins` names no origin";
            "content is read for the origins that are named alone"; "name one");
    }
    origins
}

fn tool(section: &Section<'_, '_>) -> Option<String> {
    let tool = section.get("tool", |text| Ok(text.to_owned()));
    if section.has("tool") && !section.has("json") {
        mistake!(section, "tool", "`tool` needs `json`";
            "it says where the value is in the arguments of the tool";
            "write for example `json = \"/amount\"`");
        return None;
    }
    tool
}

fn location(section: &Section<'_, '_>) -> Option<Location> {
    let given = SOURCES.into_iter().filter(|key| match *key {
        "text" => section.is_true("text"),
        key => section.has(key),
    });
    let given: Vec<&'static str> = given.collect();
    match given[..] {
        [] => {
            require!(section, "json"; "it says where in the content the value is";
                "write `json = \"/max_tokens\"`, `form = \"amount\"`, `multipart = \"title\"` or `text = true`");
            None
        }
        [source] => match source {
            "json" => {
                let pointer = section.get("json", parsed("write for example `/max_tokens`"));
                pointer.map(Location::Json)
            }
            "text" => Some(Location::Text),
            "form" => section.get("form", parsed(NAME)).map(Location::Form),
            _ => section
                .get("multipart", parsed(NAME))
                .map(Location::Multipart),
        },
        [first, second, ..] => {
            mistake!(section, second, "`{second}` and `{first}` exclude each other";
                "content is one of the two"; "write one of them");
            None
        }
    }
}

/// The parts of content that may hold a value.
const SOURCES: [&str; 4] = ["json", "form", "multipart", "text"];
const NAME: &str = "write for example `amount`";
