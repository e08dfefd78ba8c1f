//! Operations by name: JSON 1.0 and 1.1, rpc-v2-cbor, and the query protocol.
//!
//! Sources: "AWS Query protocol", "AWS JSON 1.0 protocol" and "Smithy RPC v2 CBOR protocol" of the
//! Smithy documentation.

use http::{HeaderMap, Method, header};

use super::super::tables::Api;
use super::operation::{Action, ActionFault, one};
use super::query::{Lookup, NamedOperation, query};
use gateway_message::RequestHead;

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
pub(super) fn read(apis: &[&'static Api], head: &RequestHead) -> Result<Lookup, ActionFault> {
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
    let target = one(&head.fields, TARGET, ActionFault::Ambiguous)?;
    let cbor = cbor_path(head)?;
    let said = NamedOperation::by(
        head.target
            .query_pairs()
            .map(|(n, v)| (n.into_owned(), v.into_owned())),
    )?;
    let kind = content_type(&head.fields)?;
    match (target, cbor, &said.action) {
        (Some(target), None, None) => json(apis, &ids, head, target, kind).map(Lookup::Known),
        (None, Some((service, operation)), None) => {
            if head.method != Method::POST || kind.is_some_and(|kind| kind != "application/cbor") {
                return Err(ActionFault::Ambiguous);
            }
            let speaks = |api: &&&'static Api| api.target == service && api.speaks("rpc-v2-cbor");
            Ok(Lookup::Known(find(
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
    // A form with a target would belong to the query protocol, and untyped content could be one.
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

fn find(api: Option<&&'static Api>, operation: &str, ids: &[&'static str]) -> Action {
    api.and_then(|api| Some(Action::known(api.id, api.operation(operation)?.name)))
        .unwrap_or_else(|| Action::unknown(ids))
}

/// `/service/SHAPE/operation/NAME`, with the field `Smithy-Protocol: rpc-v2-cbor`; neither without
/// the other.
fn cbor_path(head: &RequestHead) -> Result<Option<(&str, &str)>, ActionFault> {
    let protocol = one(&head.fields, PROTOCOL, ActionFault::Ambiguous)?;
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

/// The media type, which must be in lower case already; another case has two readings.
fn content_type(fields: &HeaderMap) -> Result<Option<&str>, ActionFault> {
    let kind = one(
        fields,
        header::CONTENT_TYPE.as_str(),
        ActionFault::Ambiguous,
    )?;
    let Some(value) = kind else {
        return Ok(None);
    };
    let kind = value.split(';').next().unwrap_or(value);
    let kind = kind.trim_end_matches([' ', '\t']);
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

const TARGET: &str = "x-amz-target";
const PROTOCOL: &str = "smithy-protocol";
