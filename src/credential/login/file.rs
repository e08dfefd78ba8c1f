//! The files in which programs keep their logins: reads and replaces the tokens in them, and makes
//! the copy for the sandbox.

use std::ops::Range;
use std::time::SystemTime;

use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::entry::{self, HostToken};
use super::moment::{self, MomentFormat};
use super::tokens::claims;
use super::unreadable::{FileFault, FileUnreadable};
use super::{FileFormat, LoginFile, TokenKind, Tokens, UNTOLD, json};

/// Reads a login's tokens. `None` if the file has no login, such as after a logout.
///
/// # Errors
/// [`FileUnreadable`] names the member.
pub fn read(file: &LoginFile, text: &[u8]) -> Result<Option<Tokens>, FileUnreadable> {
    let text = checked(file, text)?;
    let token = |kind| {
        let Some(member) = file.member(kind) else {
            return Ok(None);
        };
        if file.format == FileFormat::Json && json::is_number(text, member) {
            return Err(file.at(member, FileFault::NoText));
        }
        let found = find(file, text, member)?;
        let is_unread =
            |token: &str| is_web_token(token) && claims::<Map<_, Value>>(token).is_none();
        if found.as_deref().is_some_and(|token| is_unread(token)) {
            Err(file.at(member, FileFault::NoClaims))
        } else {
            Ok(found)
        }
    };
    let (access, refresh) = (token(TokenKind::Access)?, token(TokenKind::Refresh)?);
    // Some programs keep the refresh token alone. The access token then counts as expired.
    let access = match (access, file.member(TokenKind::Access), &refresh) {
        (Some(access), ..) => access,
        (None, None, Some(_)) => Zeroizing::default(),
        _ => return Ok(None),
    };
    let expires = match &file.expires {
        _ if access.is_empty() => Some(SystemTime::UNIX_EPOCH),
        Some(member) => end(file, text, member)?.map(|(end, _)| end),
        None => moment::of_token(&access),
    };
    let id = token(TokenKind::Id)?;
    Ok(Some(Tokens {
        access,
        refresh,
        id,
        expires,
        ..Tokens::default()
    }))
}

/// Whether a token has the form of a signed JSON Web Token (RFC 7515 §7.1).
fn is_web_token(token: &str) -> bool {
    token.starts_with("eyJ") && token.split('.').count() == 3
}

/// Returns the file with other tokens. Every other byte is unchanged. If the issuer stated no end
/// of the tokens, an assumed end is written.
///
/// # Errors
/// [`FileUnreadable`] names the member.
pub fn replace(
    file: &LoginFile,
    text: &[u8],
    tokens: &Tokens,
) -> Result<Zeroizing<Vec<u8>>, FileUnreadable> {
    let mut whole = Zeroizing::new(checked(file, text)?.to_owned());
    if file.format != FileFormat::Json {
        return Err(file.unreadable(FileFault::Endless));
    }
    for (kind, member) in &file.members {
        let Some(token) = tokens.of(*kind) else {
            continue;
        };
        let token = Zeroizing::new(json::quoted(token));
        set(file, &mut whole, member, &token)?;
    }
    if let Some(member) = &file.expires {
        let claimed = || moment::of_token(&tokens.access);
        let expires = tokens.expires.or_else(claimed);
        let expires = expires.unwrap_or_else(|| SystemTime::now() + UNTOLD);
        let form = end(file, &whole, member)?.map_or(MomentFormat::Milliseconds, |(_, form)| form);
        set(file, &mut whole, member, &moment::write(expires, form))?;
    }
    if let Some(member) = &file.renewed {
        let now = moment::write(SystemTime::now(), MomentFormat::Text);
        set(file, &mut whole, member, &now)?;
    }
    Ok(Zeroizing::new(whole.as_bytes().to_vec()))
}

/// Returns the sandbox's copy of a file: the phantoms of each login in it, the members that its
/// program needs, and an end far in the future. `None` if no phantom belongs in it.
///
/// # Errors
/// [`FileUnreadable`] names the member.
pub fn show_all<'f, F>(
    logins: impl IntoIterator<Item = (&'f LoginFile, F)>,
    text: Option<&[u8]>,
) -> Result<Option<Vec<u8>>, FileUnreadable>
where
    F: Fn(TokenKind) -> Option<String>,
{
    let mut whole = Value::Object(Map::new());
    let mut tokens = Vec::new();
    let mut format = None;
    let mut former = None;
    for (file, phantom) in logins {
        let text = text.map(|text| checked(file, text)).transpose()?;
        former = text;
        let mut is_shown = false;
        for (kind, member) in &file.members {
            let Some(phantom) = phantom(*kind) else {
                continue;
            };
            is_shown = true;
            if file.format == FileFormat::Json {
                put(&mut whole, member, Value::from(phantom));
            } else {
                let found = text.map(|text| entry(file, text, member)).transpose()?;
                let found = found.flatten();
                tokens.push((found.unwrap_or_else(|| HostToken::of_host(member)), phantom));
            }
        }
        if is_shown {
            format = Some(file.format);
            show_members(file, text, &mut whole)?;
        }
    }
    let text = format.map(|format| match format {
        FileFormat::Json => format!("{whole:#}\n"),
        other => entry::written(other, former, &tokens),
    });
    Ok(text.map(String::into_bytes))
}

/// Returns the value of another member. `None` if the file does not have the member.
///
/// # Errors
/// [`FileUnreadable`] names the member.
pub fn value(
    file: &LoginFile,
    text: &[u8],
    member: &str,
) -> Result<Option<Zeroizing<String>>, FileUnreadable> {
    find(file, checked(file, text)?, member)
}

/// Adds the members that a program needs in addition to its tokens.
fn show_members(
    file: &LoginFile,
    text: Option<&str>,
    whole: &mut Value,
) -> Result<(), FileUnreadable> {
    let moments = [
        (&file.expires, MomentFormat::Milliseconds),
        (&file.renewed, MomentFormat::Text),
    ];
    for (member, usual) in moments {
        let Some(member) = member else { continue };
        let found = text.map(|text| end(file, text, member)).transpose()?;
        let form = found.flatten().map_or(usual, |(_, form)| form);
        put(whole, member, parsed(&moment::write(moment::far(), form)));
    }
    for member in file.shown.iter().filter(|_| text.is_some()) {
        let text = text.unwrap_or_default();
        if let Some(at) = json::find(text, member).map_err(|fault| file.at(member, fault))? {
            put(whole, member, parsed(&text[at]));
        }
    }
    for (member, value) in &file.filled {
        if whole.pointer(member).is_none() {
            put(whole, member, value.clone());
        }
    }
    Ok(())
}

fn checked<'t>(file: &LoginFile, text: &'t [u8]) -> Result<&'t str, FileUnreadable> {
    let no_text = |_| file.unreadable(FileFault::Form("it is no text of UTF-8".to_owned()));
    let text = std::str::from_utf8(text).map_err(no_text)?;
    if file.format == FileFormat::Json {
        json::check(text).map_err(|fault| file.unreadable(fault))?;
    }
    Ok(text)
}

/// Returns the value of a member.
fn find(
    file: &LoginFile,
    text: &str,
    member: &str,
) -> Result<Option<Zeroizing<String>>, FileUnreadable> {
    if file.format != FileFormat::Json {
        return Ok(entry(file, text, member)?.map(|found| found.value));
    }
    let found = json::find(text, member);
    let value = found.and_then(|at| at.map_or(Ok(None), |at| json::scalar(&text[at])));
    value.map_err(|fault| file.at(member, fault))
}

/// Returns the entry of a host.
fn entry(file: &LoginFile, text: &str, member: &str) -> Result<Option<HostToken>, FileUnreadable> {
    let entries = entry::entries(file, text)?.into_iter();
    let mut found = entries.filter(|entry| entry.member == member);
    let first = found.next();
    match found.next() {
        Some(_) => Err(file.at(member, FileFault::Doubled)),
        None => Ok(first),
    }
}

fn end(
    file: &LoginFile,
    text: &str,
    member: &str,
) -> Result<Option<(SystemTime, MomentFormat)>, FileUnreadable> {
    let Some(found) = find(file, text, member)? else {
        return Ok(None);
    };
    let read = moment::read(&found).ok_or_else(|| file.at(member, FileFault::NoMoment))?;
    Ok(Some(read))
}

/// Sets a member to a value: in place, or as the first member of its object.
fn set(
    file: &LoginFile,
    text: &mut Zeroizing<String>,
    member: &str,
    value: &str,
) -> Result<(), FileUnreadable> {
    let found = json::find(text, member).map_err(|fault| file.at(member, fault))?;
    if let Some(at) = found {
        splice(text, at, value);
        return Ok(());
    }
    let parent = member.rsplit_once('/').map_or("", |(parent, _)| parent);
    let object = json::find(text, parent).map_err(|fault| file.at(parent, fault))?;
    let object = object.filter(|at| text[at.clone()].starts_with('{'));
    let object = object.ok_or_else(|| file.at(member, FileFault::NoPlace))?;
    let start = object.start;
    let is_empty = text[start + 1..].trim_start().starts_with('}');
    let name = json::quoted(&json::segments(member).last().unwrap_or_default());
    let added = Zeroizing::new(format!("{name}:{value}{}", if is_empty { "" } else { "," }));
    splice(text, start + 1..start + 1, &added);
    Ok(())
}

/// Replaces a part of a text, and leaves no copy of the former text in memory.
fn splice(text: &mut Zeroizing<String>, at: Range<usize>, value: &str) {
    let mut whole = Zeroizing::new(String::with_capacity(text.len() + value.len()));
    whole.push_str(&text[..at.start]);
    whole.push_str(value);
    whole.push_str(&text[at.end..]);
    *text = whole;
}

/// Sets a member of JSON by its pointer. Replaces any value on the way that is not an object.
pub fn put(whole: &mut Value, pointer: &str, value: Value) {
    let mut at = whole;
    for segment in json::segments(pointer) {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = &mut at[segment];
    }
    *at = value;
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

impl LoginFile {
    fn member(&self, kind: TokenKind) -> Option<&str> {
        let mut members = self.members.iter();
        let found = members.find(|(known, _)| *known == kind);
        found.map(|(_, member)| member.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> LoginFile {
        LoginFile {
            path: "/home/u/creds.json".into(),
            inside: "creds.json".into(),
            lock: None,
            format: FileFormat::Json,
            members: vec![
                (TokenKind::Access, "/a/access".to_owned()),
                (TokenKind::Refresh, "/a/refresh".to_owned()),
                (TokenKind::Id, "/a/id".to_owned()),
            ],
            expires: Some("/a/end".to_owned()),
            renewed: None,
            filled: vec![("/a/scopes".to_owned(), Value::from(vec!["usual"]))],
            shown: vec!["/a/scopes".to_owned(), "/mode".to_owned()],
        }
    }

    fn tokens(text: &str) -> Option<(String, Option<String>, Option<u64>)> {
        let tokens = read(&file(), text.as_bytes()).unwrap()?;
        let seconds = |end: SystemTime| {
            end.duration_since(SystemTime::UNIX_EPOCH)
                .unwrap()
                .as_secs()
        };
        let refresh = tokens.refresh.map(|token| token.to_string());
        Some((
            tokens.access.to_string(),
            refresh,
            tokens.expires.map(seconds),
        ))
    }

    fn show(
        file: &LoginFile,
        text: Option<&[u8]>,
        phantom: impl Fn(TokenKind) -> Option<String>,
    ) -> Option<Vec<u8>> {
        show_all([(file, phantom)], text).unwrap()
    }

    #[test]
    fn a_login_is_read_with_its_end_in_every_form() {
        for (end, seconds) in [
            ("1763000000", Some(1_763_000_000)),
            ("1763000000999", Some(1_763_000_000)),
            ("\"1763000000\"", Some(1_763_000_000)),
            ("\"2025-11-13T02:13:20Z\"", Some(1_763_000_000)),
            ("\"2025-11-13T03:13:20.5+01:00\"", Some(1_763_000_000)),
            ("null", None),
        ] {
            let text = format!(
                r#"{{"x":[{{"a":"}}"}}],"a":{{"access":"A\u002dA","refresh":"R","end":{end}}}}}"#
            );
            let expected = ("A-A".to_owned(), Some("R".to_owned()), seconds);
            assert_eq!(tokens(&text), Some(expected), "{end}");
        }
        for text in [
            "{}",
            r#"{"a":{}}"#,
            r#"{"a":{"access":""}}"#,
            r#"{"a":{"access":null,"refresh":"R"}}"#,
        ] {
            assert_eq!(tokens(text), None, "{text}");
        }
    }

    #[test]
    fn a_file_of_another_form_is_refused_without_a_value_of_it() {
        for (text, part) in [
            (
                r#"{"a":{"access":"CANARY","refr"#,
                "it is no whole JSON document, at byte ",
            ),
            (
                r#"{"a":{"access":"CANARY"}} CANARY"#,
                "it is no whole JSON document, at byte ",
            ),
            (
                r#"{"a":{"access":"CANARY","access":"CANARY2"}}"#,
                "a member is there twice",
            ),
            (
                r#"{"a":{"access":"CANARY","\u0061ccess":"x"}}"#,
                "a member is there twice",
            ),
            (
                r#"{"a":{"access":"CANARY"},"a":{}}"#,
                "a member is there twice",
            ),
            (
                r#"{"a":{"access":["CANARY"]}}"#,
                "member `/a/access`: it is not a text",
            ),
            (
                r#"{"a":{"access":"CANARY","end":"CANARY"}}"#,
                "member `/a/end`: it is neither",
            ),
        ] {
            let refused = read(&file(), text.as_bytes()).err().unwrap();
            let shown = format!("{refused} {refused:?}");
            assert!(
                shown.contains(part) && shown.contains("log in again"),
                "{shown}"
            );
            assert!(
                shown.contains("/home/u/creds.json") && !shown.contains("CANARY"),
                "{shown}"
            );
        }
    }

    #[test]
    fn tokens_are_replaced_and_every_other_byte_stays() {
        let new = Tokens {
            access: Zeroizing::new("new\"A".to_owned()),
            refresh: Some(Zeroizing::new("newR".to_owned())),
            id: None,
            expires: Some(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(9)),
            ..Tokens::default()
        };
        for (before, after) in [
            (
                "{ \"mcp\" : {\"t\":\"keep\"},\n \"a\": {\"end\" : 1763000000,\t\"access\":\"A\", \"id\":\"I\",\"refresh\":\"R\"} , \"z\":1.50}\n",
                "{ \"mcp\" : {\"t\":\"keep\"},\n \"a\": {\"end\" : 9,\t\"access\":\"new\\\"A\", \"id\":\"I\",\"refresh\":\"newR\"} , \"z\":1.50}\n",
            ),
            (
                r#"{"a":{"end":"2025-11-13T02:13:20Z","access":"A"}}"#,
                r#"{"a":{"refresh":"newR","end":"1970-01-01T00:00:09Z","access":"new\"A"}}"#,
            ),
            (
                r#"{"a":{ }}"#,
                r#"{"a":{"end":9000,"refresh":"newR","access":"new\"A" }}"#,
            ),
        ] {
            let replaced = replace(&file(), before.as_bytes(), &new).unwrap();
            assert_eq!(std::str::from_utf8(&replaced).unwrap(), after);
        }
        assert!(replace(&file(), b"[]", &new).is_err());
    }

    #[test]
    fn the_sandbox_has_phantoms_what_its_program_needs_and_nothing_else() {
        let text = r#"{"a":{"access":"CANARY","refresh":"CANARY","id":"CANARY","end":1763000000999,
            "scopes":["x"],"other":"CANARY"},"mcp":{"t":"CANARY"},"mode":"m"}"#;
        let phantom =
            |kind: TokenKind| (kind != TokenKind::Id).then(|| format!("P{}", kind.as_str()));
        let shown = show(&file(), Some(text.as_bytes()), phantom).unwrap();
        let shown: Value = serde_json::from_slice(&shown).unwrap();
        let expected = r#"{"a":{"access":"Paccess","refresh":"Prefresh","end":4102444800000,
            "scopes":["x"]},"mode":"m"}"#;
        assert_eq!(shown, serde_json::from_str::<Value>(expected).unwrap());
        let alone = show(&file(), None, phantom).unwrap();
        let alone: Value = serde_json::from_slice(&alone).unwrap();
        let expected = r#"{"a":{"access":"Paccess","refresh":"Prefresh","end":4102444800000,
            "scopes":["usual"]}}"#;
        assert_eq!(alone, serde_json::from_str::<Value>(expected).unwrap());
        assert_eq!(show(&file(), Some(text.as_bytes()), |_| None), None);
        let none = (
            &file(),
            Box::new(|_| None) as Box<dyn Fn(TokenKind) -> Option<String>>,
        );
        let other = LoginFile {
            members: vec![(TokenKind::Access, "/b/access".to_owned())],
            expires: None,
            shown: Vec::new(),
            filled: vec![("/b/x".to_owned(), "held by the gateway".into())],
            ..file()
        };
        let both = show_all([none, (&other, Box::new(phantom))], Some(text.as_bytes()));
        let both: Value = serde_json::from_slice(&both.unwrap().unwrap()).unwrap();
        let expected = r#"{"b":{"access":"Paccess","x":"held by the gateway"}}"#;
        assert_eq!(both, serde_json::from_str::<Value>(expected).unwrap());
    }
}
