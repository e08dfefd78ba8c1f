//! Accounts that a request names: in ARNs, queue URLs and members that hold an account (threat J06).
//!
//! An account pin says whose resources a credential may be used on. A request says whose they are in many places, so every text
//! that it holds is looked at, in content as its type is written: JSON strings and form values as a whole, XML throughout.

use std::borrow::Cow;
use std::fmt;

use http::HeaderMap;
use percent_encoding::percent_decode_str;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::endpoint::is_account;
use crate::message::RequestTarget;

/// Content that says which accounts it names only to who can read it, and we cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the content is in a form in which the accounts that it names cannot be found")]
pub struct Unreadable;

/// The first account that path or query name and `allowed` does not take.
pub(super) fn in_target(target: &RequestTarget, allowed: &dyn Fn(&str) -> bool) -> Option<String> {
    let mut watch = Watch::new(allowed);
    for segment in target.segments() {
        let segment = percent_decode_str(segment).decode_utf8_lossy();
        watch.text(&segment);
        // `/ACCOUNT/QUEUE` of SQS; no other service has twelve digits alone in a segment but for an account.
        watch.account(&segment);
    }
    watch.query(target);
    watch.found
}

/// The first account that fields, or parameters in their place, name and `allowed` does not take: the key with which S3 is to
/// encrypt may be a stranger's. What a client keeps with an object says nothing to S3.
pub(super) fn in_fields(
    fields: &HeaderMap,
    target: &RequestTarget,
    allowed: &dyn Fn(&str) -> bool,
) -> Option<String> {
    let mut watch = Watch::new(allowed);
    let plain = |name: &str| name.starts_with("x-amz") && !name.starts_with("x-amz-meta-");
    for (name, value) in fields.iter().filter(|(name, _)| plain(name.as_str())) {
        for text in value.as_bytes().split(|byte| *byte == b',') {
            watch.member(name.as_str(), &String::from_utf8_lossy(text.trim_ascii()));
        }
    }
    watch.query(target);
    watch.found
}

/// The first account that content names and `allowed` does not take; `forms` says that the service takes forms.
///
/// # Errors
/// [`Unreadable`] for content of a type, or in a state, that cannot be looked through.
pub(super) fn in_content(
    kind: Option<&str>,
    content: &[u8],
    forms: bool,
    allowed: &dyn Fn(&str) -> bool,
) -> Result<Option<String>, Unreadable> {
    let mut watch = Watch::new(allowed);
    let kind = kind.unwrap_or("").split(';').next().unwrap_or("").trim_end();
    if content.is_empty() {
        return Ok(None);
    }
    // The type is the client's word, and a service may take JSON whatever it is called: what is read must be of the type.
    if kind == "application/x-www-form-urlencoded" && forms {
        let form = std::str::from_utf8(content).map_err(|_| Unreadable)?;
        for pair in form.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            watch.member(&decoded(name), &decoded(value));
        }
    } else if kind == "application/json" || kind.starts_with("application/x-amz-json-") {
        let mut json = serde_json::Deserializer::from_slice(content);
        Seed(&mut watch, Under::Other)
            .deserialize(&mut json)
            .map_err(|_| Unreadable)?;
        json.end().map_err(|_| Unreadable)?;
    } else if matches!(kind, "application/xml" | "text/xml") && content.trim_ascii_start().starts_with(b"<") {
        let text = std::str::from_utf8(content).map_err(|_| Unreadable)?;
        watch.anywhere(&without_references(text).ok_or(Unreadable)?);
    } else {
        return Err(Unreadable);
    }
    Ok(watch.found)
}

/// Whether `text` is an ARN, or holds one at its beginning, of an account that is not allowed.
pub(super) fn arn_account(text: &str) -> Option<&str> {
    let mut parts = text.strip_prefix("arn:")?.splitn(5, ':');
    // Partition, service and region stand before the account.
    let account = parts.nth(3)?;
    (!matches!(account, "" | "aws")).then_some(account)
}

struct Watch<'a> {
    allowed: &'a dyn Fn(&str) -> bool,
    found: Option<String>,
}

impl<'a> Watch<'a> {
    fn new(allowed: &'a dyn Fn(&str) -> bool) -> Watch<'a> {
        Watch { allowed, found: None }
    }

    fn note(&mut self, account: &str) {
        if self.found.is_none() && !(self.allowed)(account) {
            self.found = Some(account.to_owned());
        }
    }

    fn account(&mut self, text: &str) {
        if is_account(text) {
            self.note(text);
        }
    }

    fn query(&mut self, target: &RequestTarget) {
        for (name, value) in target.query_pairs() {
            self.member(&name, &value);
        }
    }

    /// A whole value: an ARN, the URL of a queue, or a function's name with its account ("partial ARN").
    fn text(&mut self, text: &str) {
        let text = text.trim_start();
        if let Some(account) = arn_account(text) {
            self.note(account);
        }
        let web = |scheme: &str| {
            ["http", "https"]
                .iter()
                .any(|known| scheme.eq_ignore_ascii_case(known))
        };
        let queue = text
            .split_once("://")
            .and_then(|(scheme, url)| url.split('/').nth(1).filter(|_| web(scheme)));
        let function = text
            .split_once(':')
            .filter(|(_, rest)| rest.starts_with("function:"))
            .map(|(account, _)| account);
        for account in queue.into_iter().chain(function) {
            self.account(account);
        }
    }

    fn member(&mut self, name: &str, value: &str) {
        self.value(Under::of(name), value);
    }

    /// A value under a name: an account where the name says so.
    fn value(&mut self, under: Under, value: &str) {
        self.text(value);
        match under {
            // Glue has catalogs below that of an account: `111122223333:s3tablescatalog/bucket`.
            Under::Account => self.account(value.split(':').next().unwrap_or(value).trim()),
            Under::Queue => value.split('/').for_each(|part| self.account(part)),
            Under::Other => {}
        }
    }

    /// Text in which ARNs and accounts stand somewhere.
    fn anywhere(&mut self, text: &str) {
        for (at, _) in text.match_indices("arn:") {
            let end = |c: char| matches!(c, '<' | '"' | '\'' | ' ' | '\n' | '\r' | '\t' | ',');
            // The account stands near the beginning; to look further each time would take the square of the text's length.
            let near = text.floor_char_boundary(at + ACCOUNT_WITHIN);
            let rest = &text[at..near];
            self.text(rest.split(end).next().unwrap_or(rest));
        }
        for (tag, value) in elements(text) {
            self.member(tag, value.trim());
        }
    }
}

/// What a name says of the values under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Under {
    /// `AccountId`, `registryId`, `CatalogId`, `QueueOwnerAWSAccountId`, `domain-owner`, …; `AccountIds.member.1` of forms.
    Account,
    /// `QueueUrl`.
    Queue,
    Other,
}

impl Under {
    fn of(name: &str) -> Under {
        let name = name.to_ascii_lowercase();
        let mut parts = ["account", "registryid", "catalogid", "owner"].iter();
        match &*name {
            "queueurl" => Under::Queue,
            name if parts.any(|part| name.contains(part)) => Under::Account,
            _ => Under::Other,
        }
    }
}

/// Longer is nothing before the account of an ARN.
const ACCOUNT_WITHIN: usize = 160;

/// Each `<tag>value<`, as far as an element has text alone.
fn elements(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split('<').skip(1).filter_map(|piece| {
        let (tag, value) = piece.split_once('>')?;
        let tag = tag.split([' ', '\n', '\t']).next().unwrap_or(tag);
        (!tag.starts_with('/')).then_some((tag, value))
    })
}

/// Characters instead of numeric references, so that none hides an ARN; a doctype or CDATA could, so it is not taken.
fn without_references(text: &str) -> Option<Cow<'_, str>> {
    if text.contains("<!DOCTYPE") || text.contains("<![CDATA[") {
        return None;
    }
    if !text.contains("&#") {
        return Some(text.into());
    }
    let mut out = String::with_capacity(text.len());
    let mut pieces = text.split("&#");
    out.push_str(pieces.next().unwrap_or(""));
    for piece in pieces {
        let (number, rest) = piece.split_once(';')?;
        let code = match number.strip_prefix('x') {
            Some(hex) => u32::from_str_radix(hex, 16).ok()?,
            None => number.parse().ok()?,
        };
        out.push(char::from_u32(code)?);
        out.push_str(rest);
    }
    Some(out.into())
}

fn decoded(text: &str) -> String {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

/// Looks at every string of a JSON text, with the name that it stands under; a name that stands twice hides nothing.
struct Seed<'s, 'a>(&'s mut Watch<'a>, Under);

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.0.value(self.1, &format!("{number:012}"));
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.0.value(self.1, &format!("{number:012.0}"));
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.value(self.1, text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Seed(self.0, self.1))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<String>()? {
            self.0.text(&name);
            members.next_value_seed(Seed(self.0, Under::of(&name)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::EncodedSlash;

    const OWN: &str = "111122223333";

    fn allowed(account: &str) -> bool {
        account == OWN
    }

    fn target(text: &str) -> Option<String> {
        let target = RequestTarget::parse(text.as_bytes(), EncodedSlash::Keep).unwrap();
        in_target(&target, &allowed)
    }

    fn content(kind: &str, text: &str) -> String {
        match in_content(Some(kind), text.as_bytes(), true, &allowed) {
            Ok(None) => String::new(),
            Ok(Some(account)) => account,
            Err(Unreadable) => "unreadable".to_owned(),
        }
    }

    #[test]
    fn a_strangers_account_in_path_or_query_is_found() {
        let stranger = Some("999999999999".to_owned());
        assert_eq!(
            target("/2015-03-31/functions/arn:aws:lambda:us-east-1:999999999999:function:x/invocations"),
            stranger
        );
        assert_eq!(
            target(
                "/2015-03-31/functions/arn%3Aaws%3Alambda%3Aus-east-1%3A999999999999%3Afunction%3Ax/invocations"
            ),
            stranger
        );
        assert_eq!(target("/999999999999/queue"), stranger);
        assert_eq!(
            target("/2015-03-31/functions/999999999999:function:f/invocations"),
            stranger
        );
        assert_eq!(
            target("/2015-03-31/functions/999999999999%3Afunction%3Af/invocations"),
            stranger
        );
        assert_eq!(
            target("/?Action=Publish&TopicArn=arn%3Aaws%3Asns%3Aus-east-1%3A999999999999%3At"),
            stranger
        );
        assert_eq!(target("/v1/x?domain=d&domain-owner=999999999999"), stranger);
        assert_eq!(
            target("/2015-03-31/functions/arn:aws:lambda:us-east-1:111122223333:function:x/invocations"),
            None
        );
        assert_eq!(target("/111122223333/queue?n=999999999999"), None);
        assert_eq!(target("/policies/arn:aws:iam::aws:policy%2FReadOnlyAccess"), None);
    }

    #[test]
    fn a_strangers_account_in_content_is_found_however_it_is_written() {
        let json = "application/x-amz-json-1.0";
        for text in [
            r#"{"TableName":"arn:aws:dynamodb:us-east-1:999999999999:table/t"}"#,
            r#"{"TableName":"mine","TableName":"\u0061rn:aws:dynamodb:us-east-1:999999999999:table/t","TableName":"mine"}"#,
            r#"{"RequestItems":{"arn:aws:dynamodb:us-east-1:999999999999:table/t":{}}}"#,
            r#"{"QueueUrl":"https://sqs.us-east-1.amazonaws.com/999999999999/q"}"#,
            r#"{"registryId":"999999999999"}"#,
            r#"{"registryId":999999999999}"#,
            r#"{"registryId":9.99999999999e11}"#,
            r#"{"CatalogId":"999999999999:s3tablescatalog/b"}"#,
            r#"{"FunctionName":"999999999999:function:f"}"#,
            r#"{"QueueUrl":"HTTPS://sqs.us-east-1.amazonaws.com/999999999999/q"}"#,
            r#"{"QueueUrl":"/999999999999/q"}"#,
            r#"{"TableName":" arn:aws:dynamodb:us-east-1:999999999999:table/t"}"#,
            r#"{"AccountIds":["111122223333","999999999999"]}"#,
        ] {
            assert_eq!(content(json, text), "999999999999", "{text}");
        }
        for text in [
            r#"{"TableName":"t","Item":{"n":{"N":"999999999999"},"s":{"S":"see arn:aws:x:y:999999999999:z"}}}"#,
            r#"{"QueueUrl":"https://sqs.us-east-1.amazonaws.com/111122223333/q","MessageBody":"999999999999"}"#,
        ] {
            assert_eq!(content(json, text), "", "{text}");
        }
        let form = "application/x-www-form-urlencoded; charset=utf-8";
        assert_eq!(
            content(
                form,
                "Action=AssumeRole&RoleArn=arn%3Aaws%3Aiam%3A%3A999999999999%3Arole%2Fx"
            ),
            "999999999999"
        );
        assert_eq!(content(form, "Owner.1=999999999999"), "999999999999");
        assert_eq!(content(form, "RoleArn=arn:aws:iam::111122223333:role/x"), "");
        let xml = "application/xml";
        assert_eq!(
            content(xml, "<a><Arn>&#x61;rn:aws:s3:r:999999999999:x</Arn></a>"),
            "999999999999"
        );
        assert_eq!(
            content(xml, "<AccountId> 999999999999 </AccountId>"),
            "999999999999"
        );
        assert_eq!(content(xml, "<a>arn:aws:s3:::bucket</a>"), "");
        assert_eq!(
            content(xml, "<!DOCTYPE a [<!ENTITY x 'arn'>]><a>&x;:</a>"),
            "unreadable"
        );
    }

    #[test]
    fn content_is_looked_through_in_time_that_grows_as_it_does() {
        let begun = std::time::Instant::now();
        assert_eq!(
            content("text/xml", &format!("<a>{}", "arn:".repeat(1 << 15))),
            "arn"
        );
        assert_eq!(
            content(
                "text/xml",
                &format!("<a>{}", "arn:aws:s3:::\u{e9}".repeat(1 << 15))
            ),
            ""
        );
        let long = format!(r#"{{"{}":[{}0]}}"#, "x".repeat(1 << 20), "0,".repeat(1 << 15));
        assert_eq!(content("application/json", &long), "");
        assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    }

    #[test]
    fn content_that_cannot_be_read_is_not_taken_for_harmless() {
        assert_eq!(content("application/cbor", "\u{1}"), "unreadable");
        assert_eq!(content("application/x-amz-json-1.1", "{"), "unreadable");
        assert_eq!(content("application/x-amz-json-1.1", "{} {}"), "unreadable");
        assert_eq!(in_content(None, b"x", true, &allowed), Err(Unreadable));
        assert_eq!(in_content(None, b"", true, &allowed), Ok(None));
        // A service that takes JSON by whatever name must not be told of it in a name that reads otherwise here.
        let json = r#"{"FunctionArn":"\u0061rn:aws:lambda:us-east-1:999999999999:function:f"}"#;
        let form = Some("application/x-www-form-urlencoded");
        assert_eq!(
            in_content(form, json.as_bytes(), false, &allowed),
            Err(Unreadable)
        );
        assert_eq!(content("application/xml", json), "unreadable");
    }
}
