//! What pins permit, and what they do not.

mod actions;
mod buckets;
mod fields;
mod pins;
mod siblings;
mod strangers;

use super::super::action::Lookup;
use super::super::endpoint::OwnStyle;
use super::*;
use gateway_message::{Authority, EncodedSlash, Host, Origin, RequestTarget, Scheme};
use http::{HeaderMap, Version};

fn head(host: &str, method: &str, target: &str, fields: &[(&str, &str)]) -> RequestHead {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        map.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    RequestHead {
        method: Method::from_bytes(method.as_bytes()).unwrap(),
        origin: Origin {
            scheme: Scheme::Https,
            authority: Authority {
                host: Host::parse(host.as_bytes()).unwrap(),
                port: 443,
            },
        },
        target: RequestTarget::parse(target.as_bytes(), EncodedSlash::Keep).unwrap(),
        fields: map,
        version: Version::HTTP_11,
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn judge_at(
    endpoint: &Endpoint,
    pins: Pins,
    head: &RequestHead,
    form: &str,
) -> Result<(), OutOfScope> {
    let scope = Scope::new(pins).unwrap();
    let action = match Action::read(endpoint, head).unwrap() {
        Lookup::Known(action) => action,
        Lookup::Form(pending) => pending.finish(form.as_bytes()).unwrap(),
    };
    scope.permits_action(endpoint, head, &action)?;
    scope.permits_content(endpoint, head, &action, form.as_bytes())
}

fn judge(
    pins: Pins,
    method: &str,
    host: &str,
    target: &str,
    fields: &[(&str, &str)],
    form: &str,
) -> String {
    let head = head(host, method, target, fields);
    let endpoint = Endpoint::of(&head.origin.authority.host).unwrap();
    match judge_at(&endpoint, pins, &head, form) {
        Ok(()) => "ok".to_owned(),
        Err(refused) => refused.reason().as_str().to_owned(),
    }
}

const S3: &str = "s3.us-east-1.amazonaws.com";
const OWN: &str = "111122223333";
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

fn actions(pins: &[&str]) -> Pins {
    Pins {
        actions: texts(pins),
        ..Pins::default()
    }
}

fn buckets(pins: &[&str]) -> Pins {
    Pins {
        buckets: texts(pins),
        ..Pins::default()
    }
}

fn accounts(pins: &[&str]) -> Pins {
    Pins {
        accounts: texts(pins),
        ..Pins::default()
    }
}

const STRANGER: &str = "999999999999";
const KEY: &str = "777788889999";
