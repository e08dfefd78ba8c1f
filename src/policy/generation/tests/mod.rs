//! Tests of judging, and the requests and policies shared with other tests of policy.

mod against_cedar;
mod content;
mod curve;
mod judging;
mod obligations;
mod reachable;
mod reloads;
mod widened;

use std::time::{Duration, SystemTime};

use cedar_policy::{Entities, Entity, PolicySet};
use gateway_body::fact::{FactType, Location, PlainContent};
use gateway_message::{Authority, EncodedSlash, Origin, RequestHead, RequestTarget, Scheme};
use gateway_names::SessionId;
use http::HeaderMap;
use proptest::prelude::*;

use super::*;
use crate::content::{ContentFact, ContentFacts};
use crate::fact::{FACTS, Scope};
use crate::generation::Policies;
use crate::question::OwnedFacts;
use crate::schema::{
    CREDENTIAL, DOMAIN, GROUP, HOST, SESSION, SIGNING_KEY, USER, domains, schema, uid,
};

/// A `GET` of one repository.
pub(crate) fn owned() -> OwnedFacts {
    let session = SessionId::new("s1").unwrap();
    let host = "api.github.com".parse().unwrap();
    let mut request = OwnedFacts::new(session, Scheme::Https, host, target("/repos/o/r"));
    request.now = SystemTime::UNIX_EPOCH + Duration::from_millis(1_790_000_000_123);
    request
}

/// Declares `amount` and `model` in JSON, for every host of `b.example` and for GitHub's API.
pub(crate) fn declared() -> Declared {
    let mut declared = Declared::default();
    for (name, kind) in [
        ("amount", FactType::Long),
        ("model", FactType::String),
        ("stream", FactType::Bool),
        ("tools", FactType::Strings),
    ] {
        let origins = [
            "https://api.github.com",
            "https://*.b.example",
            "https://b.example",
        ];
        let fact = ContentFact {
            name: name.parse().unwrap(),
            kind,
            origins: origins.map(|origin| origin.parse().unwrap()).into(),
            location: Location::Json(format!("/{name}").parse().unwrap()),
            tool: None,
        };
        declared.add(fact).unwrap();
    }
    declared
}

/// A `POST` of JSON content.
fn post(content: &str) -> OwnedFacts {
    let mut request = owned();
    request.method = "POST".into();
    request.content_length = Some(content.len() as u64);
    request.content = Some(read(&request, content));
    request
}

fn read(request: &OwnedFacts, content: &str) -> ContentFacts {
    let json = http::HeaderValue::from_static("application/json");
    let fields = HeaderMap::from_iter([(http::header::CONTENT_TYPE, json)]);
    let origin = Origin {
        scheme: request.scheme,
        authority: Authority {
            host: request.host.clone(),
            port: request.port,
        },
    };
    let content = PlainContent {
        bytes: content.to_owned().into(),
        ..PlainContent::default()
    };
    let head = RequestHead {
        method: http::Method::POST,
        origin,
        target: request.target.clone(),
        fields,
        version: http::Version::HTTP_11,
    };
    declared().read(&head, false, &content)
}

/// The place of a bearer token.
pub(crate) const BEARER: &str = "header:authorization:Bearer";

pub(crate) fn target(text: &str) -> RequestTarget {
    RequestTarget::parse(text.as_bytes(), EncodedSlash::Refuse).unwrap()
}

pub(crate) fn policies(text: &str) -> Policies {
    Policies::load(&[Source::new("test.cedar", text)], declared())
        .unwrap_or_else(|problems| panic!("{problems}"))
}

fn outcome(text: &str, request: &OwnedFacts) -> Outcome {
    policies(text).current().ask(&request.facts()).outcome
}

fn named(verdict: &Verdict) -> Vec<&str> {
    verdict.policies.iter().map(PolicyId::as_str).collect()
}

/// Returns the request without its content, as it is first judged.
fn unread(request: &OwnedFacts) -> OwnedFacts {
    OwnedFacts {
        content: None,
        ..request.clone()
    }
}
