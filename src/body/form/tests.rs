//! Tests of finding members of forms, in every spelling.

use super::*;
use crate::fact::PlainContent;
use crate::{Document, Questions};

/// The members in content that is declared as a format.
fn members(
    kind: FormKind,
    content: &[u8],
    is_asked: impl Fn(&str) -> bool,
) -> Result<Vec<Member>, FormFault> {
    let declared = match kind {
        FormKind::Pairs => "application/x-www-form-urlencoded",
        FormKind::Parts => "multipart/form-data; boundary=b",
        FormKind::Json => "application/json",
    };
    let declared = HeaderValue::from_static(declared);
    let fields = HeaderMap::from_iter([(header::CONTENT_TYPE, declared)]);
    let mut questions = Questions::default();
    questions.members(&is_asked);
    let content = PlainContent {
        bytes: content.to_vec().into(),
        ..PlainContent::default()
    };
    Document::read(&fields, "", &content, &questions).members()
}

fn is_token(name: &str) -> bool {
    name == "token"
}

fn found(kind: FormKind, content: &str) -> usize {
    members(kind, content.as_bytes(), is_token).unwrap().len()
}

fn kind(content_type: &str, coding: Option<&str>) -> Result<Option<FormKind>, FormFault> {
    let mut fields = HeaderMap::new();
    if !content_type.is_empty() {
        fields.insert(header::CONTENT_TYPE, content_type.parse().unwrap());
    }
    if let Some(coding) = coding {
        fields.insert(header::CONTENT_ENCODING, coding.parse().unwrap());
    }
    FormKind::of(&fields)
}

#[test]
fn the_format_is_told_by_the_type_and_what_cannot_be_read_is_refused() {
    for (text, expected) in [
        ("", Some(FormKind::Pairs)),
        (
            "application/x-www-form-urlencoded; charset=UTF-8",
            Some(FormKind::Pairs),
        ),
        ("Multipart/Form-Data; boundary=x", Some(FormKind::Parts)),
        ("multipart/mixed", Some(FormKind::Parts)),
        ("application/vnd.api+json", Some(FormKind::Json)),
        ("application/octet-stream", None),
        ("Application/Octet-Stream; x=y", None),
        ("image/png", None),
        ("application/grpc+proto", None),
        ("text/plain", Some(FormKind::Pairs)),
        ("text/html;charset=UTF-8", Some(FormKind::Pairs)),
        ("application/graphql", Some(FormKind::Pairs)),
        ("x", Some(FormKind::Pairs)),
        (
            "application/octet-stream, text/plain",
            Some(FormKind::Pairs),
        ),
        ("image/png, application/json", Some(FormKind::Json)),
        ("application/octet-streams", Some(FormKind::Pairs)),
    ] {
        assert_eq!(kind(text, None), Ok(expected), "{text}");
    }
    assert_eq!(
        kind("application/json", Some("gzip")),
        Err(FormFault::Coded)
    );
    assert_eq!(kind("application/octet-stream", Some("gzip")), Ok(None));
    assert_eq!(
        kind("application/json;charset=utf-16", None),
        Err(FormFault::Charset)
    );
    assert_eq!(
        kind("text/x; charset=utf-16", None),
        Err(FormFault::Charset)
    );
    assert_eq!(kind("", Some("gzip")), Err(FormFault::Coded));
    for text in [
        "text/x; charset*=utf-8''utf-7",
        "image/x+json; charset*0=utf-7",
    ] {
        assert_eq!(kind(text, None), Err(FormFault::Charset), "{text}");
    }
    let mut two = HeaderMap::new();
    for text in ["image/png", "application/json"] {
        two.append(header::CONTENT_TYPE, text.parse().unwrap());
    }
    assert_eq!(FormKind::of_decoded(&two), Err(FormFault::Charset));
}

#[test]
fn a_member_of_pairs_is_found_in_every_spelling() {
    for text in [
        "token=x",
        "a=b&token=x",
        "t%6Fken=x",
        "a=b;token=x",
        "a\r\ntoken=x",
        "token",
        "%74oken=&a",
        r#"{"token":"x"}"#,
        " \r\n[{\"token\":1}]",
        "{\"a\":\"&token=x\"}",
    ] {
        assert_eq!(found(FormKind::Pairs, text), 1, "{text}");
    }
    for text in [
        "",
        "a=token",
        "tokens=x",
        "a=%26token=x",
        r#"{"a":1}"#,
        "PK\u{3}{",
    ] {
        assert_eq!(found(FormKind::Pairs, text), 0, "{text}");
    }
    for text in [
        &b"{token:1}"[..],
        b"{\0\"\0t\0",
        b"\xff\xfe{\0\"\0t\0",
        b"\0\0\0{",
        "\u{feff}{\"token\":1}".as_bytes(),
    ] {
        let refused = members(FormKind::Pairs, text, |_| false);
        assert_eq!(refused.err(), Some(FormFault::Json), "{text:?}");
    }
}

#[test]
fn a_part_is_found_by_its_name_or_the_form_is_refused() {
    let parts = |name: &str| {
        let text = format!("--b\r\nContent-Disposition: form-data; {name}\r\n\r\nx\r\n--b--\r\n");
        members(FormKind::Parts, text.as_bytes(), is_token).map(|members| members.len())
    };
    for name in [
        "name=\"token\"",
        "name=token",
        "NAME=\"token\"",
        "name=\"token\"; filename=\"f\"",
        "name=\"%74oken\"",
    ] {
        assert_eq!(parts(name), Ok(1), "{name}");
    }
    for name in [
        "NAME = \"token\"",
        "filename=\"token\"",
        "name*=UTF-8''t%6Fken",
        "name=\"t\\oken\"",
        "x=y;\r\n name=\"token\"",
        "name=\"a\"; name=\"token\"",
        "name*0=to; name*1=ken",
        "name=\"=?utf-8?B?dG9rZW4=?=\"",
        "name==?utf-8?B?dG9rZW4=?=",
    ] {
        assert_eq!(parts(name), Err(FormFault::Disputed), "{name}");
    }
    for text in [
        "--b\ncontent-disposition : form-data; name=token\n\nx",
        "--b\r\nContent-ID: <token>\r\n\r\nx\r\n--b--\r\n",
    ] {
        let refused = members(FormKind::Parts, text.as_bytes(), is_token);
        assert_eq!(refused.err(), Some(FormFault::Disputed), "{text}");
    }
    // The text of a file is not a part's name.
    let file = "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n<input name=\"token\">\r\n--b--";
    assert_eq!(found(FormKind::Parts, file), 0);
}

#[test]
fn content_is_looked_through_in_time_that_grows_as_it_does() {
    let begun = std::time::Instant::now();
    let line = |piece: &str| {
        let pieces = piece.repeat((1 << 20) / piece.len());
        format!("--b\r\nContent-Disposition: form-data; {pieces}\r\n\r\nx\r\n--b--\r\n")
    };
    for piece in [
        "name=",
        "name= ",
        "name=x",
        "name=x;",
        "name=\"",
        "name=\"\\\"",
        "name=\\\"",
        "name =\t",
        "name *",
        "name*='",
        "name",
        "name ",
        " ",
        "\\",
        "\"",
        "x\r\n ",
        "x\r\nContent-Disposition: name=",
        "x\r\nContent-ID: <",
    ] {
        let _either = members(FormKind::Parts, line(piece).as_bytes(), is_token);
        assert!(
            begun.elapsed().as_secs() < 60,
            "{piece:?} {:?}",
            begun.elapsed()
        );
    }
    for piece in [
        "{}",
        "1 ",
        "[] ",
        "[[",
        "{\"a\":",
        "{\"token\":1}\n",
        "{\"token\":[",
        "\"x\"",
        "\n",
    ] {
        let content = piece.repeat((1 << 20) / piece.len());
        let _either = members(FormKind::Json, content.as_bytes(), is_token);
        assert!(
            begun.elapsed().as_secs() < 60,
            "{piece:?} {:?}",
            begun.elapsed()
        );
    }
    for piece in ["token=x&", "token", "=", "&", "%", "+", "token[", "$"] {
        let content = piece.repeat((1 << 20) / piece.len());
        let _either = members(FormKind::Pairs, content.as_bytes(), is_token);
        assert!(
            begun.elapsed().as_secs() < 60,
            "{piece:?} {:?}",
            begun.elapsed()
        );
    }
}

#[test]
fn a_member_that_stands_there_very_often_is_kept_a_few_times() {
    let often = "token=x&".repeat(1 << 16);
    let values = members(FormKind::Pairs, often.as_bytes(), is_token).unwrap();
    assert!(values.len() < 2_000);
    assert!(values.last().unwrap().value.is_none());
    let list = format!("{{\"token\":[{}1]}}", "1,".repeat(1 << 16));
    let values = members(FormKind::Json, list.as_bytes(), is_token);
    let values = values.unwrap();
    assert!(values.len() == 1 && values[0].value.is_none());
}

#[test]
fn a_member_of_json_is_found_at_the_top_and_in_a_list() {
    for text in [
        r#"{"token":"x"}"#,
        r#"{"a":{"b":[1]},"t\u006fken":"x"}"#,
        r#"[1,{"token":"x"}]"#,
        r#"{"token":null}"#,
    ] {
        assert_eq!(found(FormKind::Json, text), 1, "{text}");
    }
    assert_eq!(found(FormKind::Json, r#"{"token":"x","Token":"y"}"#), 1);
    for text in [
        "",
        " ",
        "7",
        r#""token""#,
        r#"{"a":{"token":"x"}}"#,
        r#"[[{"token":1}]]"#,
    ] {
        assert_eq!(found(FormKind::Json, text), 0, "{text}");
    }
    for text in [
        "{",
        "{'token':'x'}",
        "{}x",
        "// c\n{\"token\":1}",
        r#"{"a":1} {"token":"x"}"#,
        "\u{feff}{\"token\":7}",
    ] {
        let refused = members(FormKind::Json, text.as_bytes(), |_| true);
        assert_eq!(refused.err(), Some(FormFault::Json), "{text}");
    }
    let twice = br#"{"token":"x","token":"y"}"#;
    let refused = members(FormKind::Json, twice, is_token);
    assert_eq!(refused.err(), Some(FormFault::Disputed));
}
