//! The Model Context Protocol over Streamable HTTP: which methods of JSON-RPC 2.0 a request calls,
//! and which tools. Every member of a batch counts.

use std::collections::{BTreeMap, BTreeSet};

use gateway_message::folded;
use gateway_message::json::{Json, JsonParts, Value};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method};

use super::parsed_request::{FactResults, ParsedRequest, Unread, names};
use crate::HeldBody;

use super::document::{LEAF, Shape, document, member, text};

/// The facts of this protocol.
pub(super) const FACTS: [&str; 2] = ["mcp.methods", "mcp.tools"];

pub(super) fn read(asked: &ParsedRequest<'_>) -> Result<FactResults, Unread> {
    let said = said(asked)?;
    let [methods, tools] = FACTS;
    Ok(vec![
        (methods, names(said.methods)),
        (tools, names(said.tools.into_keys().collect())),
    ])
}

/// The members that lead to the arguments of a tool in the content. `None` unless the request calls
/// the tool once.
pub(super) fn arguments(asked: &ParsedRequest<'_>, tool: &str) -> Option<Vec<String>> {
    let said = said(asked).ok()?;
    // A server may accept another spelling of the tool, too.
    let mut calls = said
        .tools
        .iter()
        .filter(|(name, _)| folded(name) == folded(tool));
    let (Some((name, calls)), None) = (calls.next(), calls.next()) else {
        return None;
    };
    let [call] = calls[..] else { return None };
    if name != tool {
        return None;
    }
    let members = ARGUMENTS.map(String::from);
    Some(
        call.map(|nth| nth.to_string())
            .into_iter()
            .chain(members)
            .collect(),
    )
}

fn said(asked: &ParsedRequest<'_>) -> Result<McpFacts, Unread> {
    let mut said = McpFacts::default();
    match *asked.method {
        // A client opens a stream of the server's messages, or ends its session.
        Method::GET | Method::DELETE if asked.content.content().bytes.is_empty() => {}
        Method::POST => {
            let frame = document(asked, SHAPE)?;
            let mut frames = frame.elements();
            match (frame.is_list(), frames.len()) {
                (true, 0) => return Err("the batch is empty"),
                (true, _) => frames.try_for_each(|(nth, frame)| said.frame(frame, Some(nth)))?,
                (false, _) => said.frame(frame, None)?,
            }
        }
        _ => return Err("MCP is spoken by POST, and by GET and DELETE without content"),
    }
    Ok(said)
}

#[derive(Default)]
struct McpFacts {
    methods: BTreeSet<String>,
    /// The calls of each tool, by the index of the frame in a batch.
    tools: BTreeMap<String, Vec<Option<usize>>>,
}

impl McpFacts {
    fn frame(&mut self, frame: Value<'_>, nth: Option<usize>) -> Result<(), Unread> {
        let is_answer = ["result", "error"]
            .iter()
            .any(|name| frame.member(name).is_some());
        let method = match (frame.member("method"), is_answer) {
            (Some(method), false) => text(method),
            (None, true) => return Ok(()),
            _ => None,
        };
        let method = method.ok_or("a frame of it is neither a request nor an answer")?;
        if method == "tools/call" {
            let tool = member(frame, "params").and_then(|all| all.member("name"));
            let tool = tool.and_then(text);
            let tool = tool.ok_or("it calls a tool without a name")?;
            self.tools.entry(tool).or_default().push(nth);
        }
        self.methods.insert(method);
        Ok(())
    }
}

/// A JSON-RPC 2.0 call, whose refusal is a JSON-RPC response.
#[derive(Debug)]
pub struct Call {
    /// Its id, as the client wrote it.
    pub id: String,
}

impl Call {
    /// Reads a request's content. `None` if it is not one call that waits for an answer.
    #[must_use]
    pub fn of(method: &Method, fields: &HeaderMap, content: &HeldBody) -> Option<Self> {
        let kind = fields.get(CONTENT_TYPE)?.as_bytes();
        let kind = kind.split(|byte| *byte == b';').next()?.trim_ascii();
        let is_json = kind.eq_ignore_ascii_case(b"application/json");
        if *method != Method::POST || !is_json || content.len() > MOST_CALL {
            return None;
        }
        let content = content.whole();
        let json = Json::read(&content, &JsonParts::whole()).ok()?;
        let frame = json.root();
        let is_call = frame.member("jsonrpc")?.text()? == "2.0" && frame.member("method").is_some();
        let id = frame.member("id")?;
        let is_id = id.is_number() || id.text().is_some();
        let id = Some(id.raw()).filter(|raw| is_call && is_id && raw.len() <= MOST_ID)?;
        Some(Self { id: id.to_owned() })
    }
}

/// The longest call that is read again, and its longest id, in bytes.
const MOST_CALL: usize = 1 << 20;
const MOST_ID: usize = 256;

/// The members of a frame that lead to the arguments of the tool that it calls.
pub(super) const ARGUMENTS: [&str; 2] = ["params", "arguments"];

pub(super) const SHAPE: Shape = Shape(&[
    ("method", LEAF),
    ("params", Shape(&[("name", LEAF)])),
    ("result", LEAF),
    ("error", LEAF),
]);

#[cfg(test)]
mod tests {
    use http::header::CONTENT_TYPE;
    use http::{HeaderMap, HeaderValue};

    use super::super::{Protocol, tests::ask};
    use super::*;
    use crate::fact::PlainContent;
    use crate::{Document, Questions};

    const JSON: HeaderValue = HeaderValue::from_static("application/json");

    fn post(content: &str) -> Result<String, Unread> {
        ask(Protocol::Mcp, &Method::POST, "/mcp", content)
    }

    #[test]
    fn methods_and_tools_of_every_frame_are_found() {
        for (content, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"name":"x"}}"#,
                "initialize; ",
            ),
            (
                r#"{"method":"tools/call","params":{"name":"echo","arguments":{"name":"other"}}}"#,
                "tools/call; echo",
            ),
            (r#"{"id":1,"result":{"method":"tools/call"}}"#, "; "),
            (r#"{"id":1,"result":null}"#, "; "),
            (
                r#"[{"method":"ping"},{"id":2,"error":{}},{"method":"tools/call","params":{"name":"a"}}]"#,
                "ping, tools/call; a",
            ),
        ] {
            assert_eq!(post(content).as_deref(), Ok(expected), "{content}");
        }
        for method in [Method::GET, Method::DELETE] {
            let read = |content| ask(Protocol::Mcp, &method, "/mcp", content);
            assert_eq!(read("").as_deref(), Ok("; "));
            assert!(read("{}").is_err());
        }
    }

    #[test]
    fn arguments_are_those_of_a_tool_that_is_called_once() {
        let call =
            |tool: &str| format!(r#"{{"method":"tools/call","params":{{"name":"{tool}"}}}}"#);
        let found = |content: &str| {
            let content = PlainContent {
                bytes: content.to_owned().into(),
                ..PlainContent::default()
            };
            let fields = HeaderMap::from_iter([(CONTENT_TYPE, JSON)]);
            let mut questions = Questions::default();
            Protocol::Mcp.ask(&mut questions);
            let asked = ParsedRequest {
                host: "api.test",
                method: &Method::POST,
                path: "/mcp",
                upgrades: false,
                content: &Document::read(&fields, "", &content, &questions),
            };
            Some(arguments(&asked, "a")?.join("/"))
        };
        let [a, b] = [call("a"), call("b")];
        for (content, expected) in [
            (a.clone(), Some("params/arguments")),
            (b.clone(), None),
            (format!("[{b},{a}]"), Some("1/params/arguments")),
            (format!("[{a},{a}]"), None),
            (format!("[{a},{{}}]"), None),
        ] {
            assert_eq!(found(&content).as_deref(), expected, "{content}");
        }
    }

    #[test]
    fn a_frame_that_reads_in_two_ways_gives_nothing() {
        for content in [
            "",
            "[]",
            "{}",
            "1",
            r#"[[{"method":"ping"}]]"#,
            r#"{"method":"tools/call"}"#,
            r#"{"method":"tools/call","params":["echo"]}"#,
            r#"{"method":"tools/call","params":{"name":1}}"#,
            r#"{"method":"tools/call","params":{"name":"a","Name":"b"}}"#,
            r#"{"method":"tools/call","params":{"Name":"b"}}"#,
            r#"{"method":"ping","method":"tools/call"}"#,
            r#"{"method":"ping","Method":"tools/call"}"#,
            r#"{"method":"ping","result":{}}"#,
            r#"{"method":"ping","error":null}"#,
            r#"{"method":null,"result":{}}"#,
            r#"{"method":1}"#,
            r#"[{"method":"ping"},{}]"#,
        ] {
            assert!(post(content).is_err(), "{content}");
        }
    }
}
