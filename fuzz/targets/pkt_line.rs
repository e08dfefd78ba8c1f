//! Lines of git, and the lists of a push: what is read is written back as it stood, and of the refs
//! of a push none is missed or made up.
#![no_main]

use std::collections::BTreeSet;

use gateway_body::fact::{FactValue, PlainContent};
use gateway_body::read::{ParsedRequest, Protocol, Push};
use gateway_body::{Document, Questions};
use gateway_wire::Cursor;
use gateway_wire::pkt_line::PktLine;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use libfuzzer_sys::fuzz_target;

const PATH: &str = "/o/r.git/git-receive-pack";
const PUSH: &str = "application/x-git-receive-pack-request";

fuzz_target!(|bytes: &[u8]| {
    let (mut cursor, mut written) = (Cursor::new(bytes), Vec::new());
    let mut lines = Vec::new();
    while let Ok(Some(line)) = cursor.whole(PktLine::read) {
        line.write(&mut written);
        lines.push(line);
    }
    let read = &bytes[..bytes.len() - cursor.rest().len()];
    // A length may be written in capitals.
    assert!(read.eq_ignore_ascii_case(&written));
    let refs = refs(bytes);
    let fields = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(PUSH))]);
    let push = Push::of(&Method::POST, PATH, &fields, || bytes.to_vec().into());
    let Some(refs) = refs else {
        return assert_eq!(push, None);
    };
    let data = lines.iter().map_while(|line| match line {
        PktLine::Data(data) => Some(data.strip_suffix(b"\n").unwrap_or(data)),
        PktLine::Flush => None,
    });
    let commands = data.filter(|line| !line.starts_with(b"shallow "));
    let named = commands.map(|line| {
        let command = line.split(|byte| *byte == 0).next().unwrap();
        let name = command.rsplit(|byte| *byte == b' ').next().unwrap();
        String::from_utf8(name.to_vec()).expect("it is text")
    });
    let named: Vec<String> = named.collect();
    assert!(push.is_none_or(|push| push.refs == named));
    assert_eq!(refs, named.into_iter().collect());
});

/// The refs of a push by its facts; `None` if they are not read.
fn refs(bytes: &[u8]) -> Option<BTreeSet<String>> {
    let fields = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(PUSH))]);
    let content = PlainContent {
        bytes: bytes.to_vec().into(),
        ..PlainContent::default()
    };
    let questions = Questions::default();
    let found = Protocol::Git.read(&ParsedRequest {
        host: "api.test",
        method: &Method::POST,
        path: PATH,
        upgrades: false,
        content: &Document::read(&fields, "", &content, &questions),
    });
    let (_, refs) = found.into_iter().find(|(name, _)| *name == "git.refs")?;
    let Ok(FactValue::Strings(all)) = refs else {
        return None;
    };
    let of_command = |text: &String| Some(text.split_once(' ')?.1.to_owned());
    Some(all.iter().filter_map(of_command).collect())
}
