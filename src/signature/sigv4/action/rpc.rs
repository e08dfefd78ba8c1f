//! Operations by name: the query protocol, JSON 1.0 and 1.1, and rpc-v2-cbor.
//!
//! Sources: "AWS Query protocol", "AWS JSON 1.0 protocol" and "Smithy RPC v2 CBOR protocol" of the
//! Smithy documentation.

use std::borrow::Cow;

use http::{HeaderMap, Method, header};
use percent_encoding::percent_decode_str;

use super::super::tables::Api;
use super::{Action, ActionFault, Reading, minting};
use gateway_message::RequestHead;

/// A request of the query protocol whose form must be buffered before its action is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingForm {
    apis: Vec<&'static str>,
    in_query: Said,
    /// Without a content type, only empty content has a meaning.
    typed: bool,
}

impl PendingForm {
    /// Whether some API that it could be for has operations that return credentials.
    pub(crate) fn may_return_credentials(&self) -> bool {
        self.apis.iter().any(|api| minting::is_minting(api))
    }

    /// What is known before the form is parsed.
    pub(crate) fn unread(&self) -> Action {
        Action::unknown(&self.apis)
    }

    /// The action, from the whole content.
    ///
    /// # Errors
    /// [`ActionFault`] if the form cannot be parsed, or names an action in addition to one in the
    /// query.
    pub fn finish(self, content: &[u8]) -> Result<Action, ActionFault> {
        if !self.typed && !content.is_empty() {
            return Err(ActionFault::Ambiguous);
        }
        let form = std::str::from_utf8(content).map_err(|_| ActionFault::Form)?;
        let pairs = form.split('&').filter(|pair| !pair.is_empty());
        let in_form =
            Said::by(pairs.map(|pair| decoded(pair.split_once('=').unwrap_or((pair, "")))))?;
        Ok(by_query(&self.apis, &self.in_query.with(in_form)?))
    }
}

/// What a query or a form says about its operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Said {
    action: Option<String>,
    version: Option<String>,
}

impl Said {
    /// Refuses a second action, and one in another case; also a second version.
    fn by<N: AsRef<str>>(pairs: impl Iterator<Item = (N, String)>) -> Result<Said, ActionFault> {
        let mut said = Said::default();
        for (name, value) in pairs {
            let name = name.as_ref();
            let slot = match name {
                "Action" => &mut said.action,
                "Version" => &mut said.version,
                _ if name.eq_ignore_ascii_case("action") => return Err(ActionFault::Ambiguous),
                _ => continue,
            };
            if slot.replace(value).is_some() {
                return Err(ActionFault::Ambiguous);
            }
        }
        Ok(said)
    }

    /// Combines both, unless they repeat each other.
    fn with(self, other: Said) -> Result<Said, ActionFault> {
        let either = |one: Option<String>, two: Option<String>| match (one, two) {
            (Some(_), Some(_)) => Err(ActionFault::Ambiguous),
            (one, two) => Ok(one.or(two)),
        };
        Ok(Said {
            action: either(self.action, other.action)?,
            version: either(self.version, other.version)?,
        })
    }
}

/// Whether the head says that the operation is called by name.
pub(super) fn is_indicated(head: &RequestHead) -> bool {
    head.fields.contains_key(TARGET)
        || head.fields.contains_key(PROTOCOL)
        || head
            .target
            .query_pairs()
            .any(|(name, _)| name.eq_ignore_ascii_case(TARGET))
}

/// Reads the operation if only APIs of this kind answer.
pub(super) fn read(apis: &[&'static Api], head: &RequestHead) -> Result<Reading, ActionFault> {
    let ids: Vec<&'static str> = apis.iter().map(|api| api.id).collect();
    // No SDK writes a query with `x-amz-target`.
    let in_query = |name: &str| {
        head.target
            .query_pairs()
            .any(|(n, _)| n.eq_ignore_ascii_case(name))
    };
    if in_query(TARGET) || in_query(PROTOCOL) {
        return Err(ActionFault::Ambiguous);
    }
    let target = one(&head.fields, TARGET)?;
    let cbor = cbor_path(head)?;
    let said = Said::by(
        head.target
            .query_pairs()
            .map(|(n, v)| (n.into_owned(), v.into_owned())),
    )?;
    let kind = content_type(&head.fields)?;
    match (target, cbor, &said.action) {
        (Some(target), None, None) => json(apis, &ids, head, target, kind).map(Reading::Known),
        (None, Some((service, operation)), None) => {
            if head.method != Method::POST || kind.is_some_and(|kind| kind != "application/cbor") {
                return Err(ActionFault::Ambiguous);
            }
            let speaks = |api: &&&'static Api| api.target == service && api.speaks("rpc-v2-cbor");
            Ok(Reading::Known(find(
                apis.iter().find(speaks),
                operation,
                &ids,
            )))
        }
        (None, None, _) => query(ids, head, said, kind),
        _ => Err(ActionFault::Ambiguous),
    }
}

fn json(
    apis: &[&'static Api],
    ids: &[&'static str],
    head: &RequestHead,
    target: &str,
    kind: Option<&str>,
) -> Result<Action, ActionFault> {
    // A form beside a target would belong to the query protocol, and untyped content could be one.
    let takes_forms = apis
        .iter()
        .any(|api| api.speaks("query") || api.speaks("ec2"));
    let fits = kind.map_or(!takes_forms, |kind| {
        kind == "application/json"
            || kind.starts_with("application/x-amz-json-")
            || kind.starts_with("application/x-amz-cbor-")
    });
    if !fits || head.method != Method::POST || head.target.path() != "/" {
        return Err(ActionFault::Ambiguous);
    }
    let Some((service, operation)) = target.rsplit_once('.') else {
        return Ok(Action::unknown(ids));
    };
    let speaks = |api: &&&'static Api| api.target == service && api.speaks("json");
    Ok(find(apis.iter().find(speaks), operation, ids))
}

fn query(
    ids: Vec<&'static str>,
    head: &RequestHead,
    in_query: Said,
    kind: Option<&str>,
) -> Result<Reading, ActionFault> {
    let typed = kind == Some("application/x-www-form-urlencoded");
    if head.method == Method::GET || head.method == Method::HEAD {
        // Its content is not parsed, so it must not claim to contain an action.
        if kind.is_some() {
            return Err(ActionFault::Ambiguous);
        }
        return Ok(Reading::Known(by_query(&ids, &in_query)));
    }
    if head.method != Method::POST || (kind.is_some() && !typed) {
        return match in_query.action {
            Some(_) => Err(ActionFault::Ambiguous),
            None => Ok(Reading::Known(Action::unknown(&ids))),
        };
    }
    Ok(Reading::Form(PendingForm {
        apis: ids,
        in_query,
        typed,
    }))
}

fn by_query(ids: &[&'static str], said: &Said) -> Action {
    let tables = super::Tables::get();
    let speaks = |api: &&'static Api| api.speaks("query") || api.speaks("ec2");
    let is_meant = |api: &&'static Api| {
        let mut versions = VERSIONS.iter().filter(|(id, _)| *id == api.id);
        versions.all(|(_, version)| said.version.as_deref() == Some(version))
    };
    let apis = ids.iter().filter_map(|id| tables.api(id)).filter(speaks);
    apis.filter(is_meant)
        .filter_map(|api| {
            Some(Action::known(
                api.id,
                api.operation(said.action.as_deref()?)?.name,
            ))
        })
        .next()
        .unwrap_or_else(|| Action::unknown(ids))
}

fn find(api: Option<&&'static Api>, operation: &str, ids: &[&'static str]) -> Action {
    api.and_then(|api| Some(Action::known(api.id, api.operation(operation)?.name)))
        .unwrap_or_else(|| Action::unknown(ids))
}

/// `/service/SHAPE/operation/NAME`, and `Smithy-Protocol: rpc-v2-cbor` beside it; neither without
/// the other.
fn cbor_path(head: &RequestHead) -> Result<Option<(&str, &str)>, ActionFault> {
    let protocol = one(&head.fields, PROTOCOL)?;
    let mut segments = head.target.segments();
    let mut next = || segments.next();
    let path = match (next(), next(), next(), next(), next()) {
        (Some("service"), Some(service), Some("operation"), Some(operation), None) => {
            Some((service, operation))
        }
        _ => None,
    };
    match (protocol, path) {
        (Some("rpc-v2-cbor"), Some(path)) => Ok(Some(path)),
        (None, None) => Ok(None),
        _ => Err(ActionFault::Ambiguous),
    }
}

/// The single value of a field.
fn one<'a>(fields: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ActionFault> {
    let mut values = fields.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(ActionFault::Ambiguous);
    }
    first
        .map(|value| value.to_str().map_err(|_| ActionFault::Ambiguous))
        .transpose()
}

/// The media type, which must be in lower case already; another case has two readings.
fn content_type(fields: &HeaderMap) -> Result<Option<&str>, ActionFault> {
    let Some(value) = one(fields, header::CONTENT_TYPE.as_str())? else {
        return Ok(None);
    };
    let kind = value
        .split(';')
        .next()
        .unwrap_or(value)
        .trim_end_matches([' ', '\t']);
    if kind.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(ActionFault::Ambiguous);
    }
    // A server that uses another charset reads other names than we do.
    let mut charsets = value
        .split(';')
        .skip(1)
        .filter_map(|parameter| parameter.trim().split_once('='))
        .filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset"));
    if charsets.any(|(_, charset)| {
        !charset
            .trim()
            .trim_matches('"')
            .eq_ignore_ascii_case("utf-8")
    }) {
        return Err(ActionFault::Ambiguous);
    }
    Ok(Some(kind))
}

fn decoded((name, value): (&str, &str)) -> (String, String) {
    let decode = |text: &str| {
        let spaced: Cow<'_, str> = if text.contains('+') {
            text.replace('+', " ").into()
        } else {
            text.into()
        };
        percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
    };
    (decode(name), decode(value))
}

/// APIs that answer at one host and have different operations of one name: the version decides
/// which is meant.
const VERSIONS: [(&str, &str); 2] = [("elb", "2012-06-01"), ("elbv2", "2015-12-01")];
const TARGET: &str = "x-amz-target";
const PROTOCOL: &str = "smithy-protocol";
