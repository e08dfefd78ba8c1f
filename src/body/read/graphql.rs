//! GraphQL over HTTP: which operations a request holds, and which fields of the root types they
//! select. Every operation of every member counts, whichever of them the origin runs.

use std::collections::{BTreeMap, BTreeSet};

use apollo_parser::cst::{CstNode, Definition, Document};
use apollo_parser::cst::{OperationDefinition, Selection, SelectionSet};
use apollo_parser::{Lexer, Parser, SyntaxKind, TokenKind};
use gateway_message::FormName;
use gateway_message::json::Value;
use http::Method;
use sha2::{Digest as _, Sha256};

use super::document::{LEAF, Shape, document, in_query, member, members, text};
use super::parsed_request::{FactResults, ParsedRequest, Unread, names};
use crate::fact::{Pairs, of_string};

/// The facts that it gives.
pub(super) const FACTS: [&str; 2] = ["graphql.operations", "graphql.fields"];

pub(super) fn read(asked: &ParsedRequest<'_>) -> Result<FactResults, Unread> {
    if OTHER_SOURCES.iter().any(|name| in_query(asked, name)) {
        return Err("the query names a document that is kept elsewhere, or holds a batch");
    }
    let mut said = GraphqlFacts::default();
    match *asked.method {
        Method::GET | Method::HEAD => said.query(asked)?,
        Method::POST => {
            let one = document(asked, SHAPE)?;
            let mut batch = one.elements();
            match (one.is_list(), batch.len()) {
                (true, 0) => return Err("the batch is empty"),
                (true, _) => batch.try_for_each(|(_, one)| said.member(one))?,
                (false, _) => said.member(one)?,
            }
        }
        _ => return Err("GraphQL is asked by GET and POST"),
    }
    let [operations, fields] = FACTS;
    Ok(vec![
        (operations, names(said.operations)),
        (fields, names(said.fields)),
    ])
}

/// What the operations of one request are.
#[derive(Default)]
struct GraphqlFacts {
    operations: BTreeSet<String>,
    fields: BTreeSet<String>,
}

impl GraphqlFacts {
    /// Reads a request whose query has the document.
    fn query(&mut self, asked: &ParsedRequest<'_>) -> Result<(), Unread> {
        if !asked.content.content().bytes.is_empty() {
            return Err("it has a query and content");
        }
        let names = [DOCUMENT, CHOSEN].map(|name| name.parse::<FormName>());
        let names: Vec<_> = names.into_iter().flatten().collect();
        let read = Pairs::read(("", asked.content.query().as_bytes(), b""), &names, &|_| {
            false
        });
        let mut values = names.iter().map(|name| {
            let (text, _) = read.one(name)?;
            of_string(text).map(|_| text)
        });
        let document = values.next().flatten();
        let document = document.ok_or("the query does not say the document in exactly one way")?;
        let chosen = values.next().flatten();
        if chosen.is_none() && in_query(asked, CHOSEN) {
            return Err(UNCHOSEN);
        }
        self.document(document, chosen)
    }

    /// Reads a member of the content: one request, of a batch or alone.
    fn member(&mut self, one: Value<'_>) -> Result<(), Unread> {
        if members(one).any(|(name, _)| !MEMBERS.contains(&name)) {
            return Err(
                "it has a member beside `query`, `operationName`, `variables`, `extensions`",
            );
        }
        let document = member(one, DOCUMENT).and_then(text);
        let is_here = |all: Value<'_>| {
            let kept = member(all, "persistedQuery");
            all.is_object() && kept.is_none_or(|kept| is_of(kept, document.as_deref()))
        };
        if !member(one, "extensions").is_none_or(is_here) {
            return Err("it names a document that is kept elsewhere");
        }
        let document = document.ok_or("it has no document")?;
        let chosen = member(one, CHOSEN);
        let chosen = chosen.map(|name| text(name).ok_or(UNCHOSEN)).transpose()?;
        self.document(&document, chosen.as_deref())
    }

    fn document(&mut self, text: &str, chosen: Option<&str>) -> Result<(), Unread> {
        check(text)?;
        let tree = Parser::new(text).parse();
        if tree.errors().next().is_some() || !has_values(&tree.document()) {
            return Err(MALFORMED);
        }
        let mut operations = BTreeMap::new();
        let mut fragments = BTreeMap::new();
        for definition in tree.document().definitions() {
            let other = match definition {
                Definition::OperationDefinition(one) => {
                    let name = one.name().map(|name| name.text().to_string());
                    operations.insert(name, one).is_some()
                }
                Definition::FragmentDefinition(one) => {
                    let name = one.fragment_name().and_then(|of| of.name());
                    let name = name.ok_or(MALFORMED)?.text().to_string();
                    let selected = one.selection_set().ok_or(MALFORMED)?;
                    fragments.insert(name, selected).is_some()
                }
                _ => return Err("the document defines types"),
            };
            if other {
                return Err("two definitions of the document have one name");
            }
        }
        let count = operations.len();
        // One without a name stands alone.
        let is_clear = (count == 1 || !operations.contains_key(&None))
            && match chosen {
                Some(name) => operations.contains_key(&Some(name.to_owned())),
                None => count == 1,
            };
        if !is_clear || count > MOST_OPERATIONS {
            return Err(UNCHOSEN);
        }
        let mut all = operations.iter();
        all.try_for_each(|(name, one)| self.operation(name.as_deref(), one, &fragments))
    }

    fn operation(
        &mut self,
        name: Option<&str>,
        operation: &OperationDefinition,
        fragments: &BTreeMap<String, SelectionSet>,
    ) -> Result<(), Unread> {
        let kind = match operation.operation_type() {
            None => "query",
            Some(of) if of.query_token().is_some() => "query",
            Some(of) if of.mutation_token().is_some() => "mutation",
            Some(of) if of.subscription_token().is_some() => "subscription",
            Some(_) => return Err(MALFORMED),
        };
        self.operations.insert(kind.to_owned());
        self.operations
            .extend(name.map(|name| format!("{kind} {name}")));
        let mut sets = vec![operation.selection_set().ok_or(MALFORMED)?];
        let mut seen = BTreeSet::new();
        while let Some(set) = sets.pop() {
            for selection in set.selections() {
                match selection {
                    Selection::Field(field) => {
                        let name = field.name().ok_or(MALFORMED)?;
                        self.fields
                            .insert(format!("{kind}.{}", name.text().as_str()));
                    }
                    Selection::InlineFragment(inner) => {
                        sets.push(inner.selection_set().ok_or(MALFORMED)?);
                    }
                    Selection::FragmentSpread(spread) => {
                        let name = spread.fragment_name().and_then(|of| of.name());
                        let name = name.ok_or(MALFORMED)?.text().to_string();
                        let inner = fragments.get(&name);
                        let inner = inner.ok_or("the document lacks a fragment")?;
                        if seen.insert(name) {
                            sets.push(inner.clone());
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether each argument, and each field of an object, has a value behind its colon. The parser
/// takes one without both.
fn has_values(document: &Document) -> bool {
    let [argument, field] =
        [SyntaxKind::ARGUMENT, SyntaxKind::OBJECT_FIELD].map(|kind| kind as u16);
    let top = document.syntax().green();
    let mut nodes = vec![&*top];
    while let Some(node) = nodes.pop() {
        let before = nodes.len();
        nodes.extend(node.children().filter_map(|child| child.into_node()));
        // A name, and the value.
        let is_pair = [argument, field].contains(&node.kind().0);
        if is_pair && nodes.len() - before < 2 {
            return false;
        }
    }
    true
}

/// Whether a name by which a service keeps documents (Automatic Persisted Queries) is that of the
/// document that stands beside it.
fn is_of(kept: Value<'_>, document: Option<&str>) -> bool {
    let hash = document.map(|text| gateway_names::hex(&Sha256::digest(text)));
    let named = member(kept, "sha256Hash").and_then(text);
    let is_first = member(kept, "version").and_then(Value::number) == Some(1);
    let is_alone = members(kept).all(|(name, _)| ["version", "sha256Hash"].contains(&name));
    is_first && is_alone && hash.is_some() && hash == named
}

/// Checks the tokens of a document: that all readers split it alike, and that the parser, which
/// recurses, gets one that is neither deep nor long.
fn check(text: &str) -> Result<(), Unread> {
    // Readers end a block string at different quotation marks: graphql-ruby ends `"""\"""""` there.
    if text.contains(BLOCK) {
        return Err("the document has a block string, which readers end in different places");
    }
    // graphql-java ends a comment at these two separators, others do not.
    let is_split = |letter: char| matches!(letter, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{85}');
    if text.contains(is_split) || text.replace("\r\n", "").contains('\r') {
        return Err("the document has a character that readers take in different ways");
    }
    let mut depth = 0_usize;
    for (count, token) in Lexer::new(text).enumerate() {
        match token.map_err(|_| MALFORMED)?.kind() {
            TokenKind::LCurly | TokenKind::LBracket | TokenKind::LParen => depth += 1,
            TokenKind::RCurly | TokenKind::RBracket | TokenKind::RParen => {
                depth = depth.checked_sub(1).ok_or(MALFORMED)?;
            }
            _ => {}
        }
        if depth > MOST_DEPTH || count > MOST_TOKENS {
            return Err("the document is too deep or too long");
        }
    }
    Ok(())
}

const BLOCK: &str = r#"""""#;
const DOCUMENT: &str = "query";
const CHOSEN: &str = "operationName";
const MEMBERS: [&str; 4] = [DOCUMENT, CHOSEN, "variables", "extensions"];
pub(super) const SHAPE: Shape = Shape(&[
    (DOCUMENT, LEAF),
    (CHOSEN, LEAF),
    (
        "extensions",
        Shape(&[(
            "persistedQuery",
            Shape(&[("version", LEAF), ("sha256Hash", LEAF)]),
        )]),
    ),
]);

/// Parameters by which services name a document that they keep, or take a batch beside the content.
const OTHER_SOURCES: [&str; 7] = [
    "_json",
    "extensions",
    "id",
    "documentId",
    "docId",
    "queryId",
    "persistedQuery",
];

const MALFORMED: Unread = "the document is not valid";
const UNCHOSEN: Unread = "it leaves open which operation is meant";
const MOST_DEPTH: usize = 64;
const MOST_TOKENS: usize = 16_384;
const MOST_OPERATIONS: usize = 64;

#[cfg(test)]
mod tests {
    use super::super::Protocol;
    use super::super::tests::asked;
    use super::*;

    fn ask(method: &Method, query: &str, kind: &str, content: &str) -> Result<String, Unread> {
        let target = format!("/graphql?{query}");
        asked(Protocol::Graphql, method, &target, kind, content)
    }

    fn post(content: &str) -> Result<String, Unread> {
        ask(&Method::POST, "", "application/json", content)
    }

    fn document(text: &str) -> Result<String, Unread> {
        post(&serde_json::json!({ "query": text }).to_string())
    }

    #[test]
    fn a_batch_in_the_query_beside_content_is_refused() {
        for name in [
            "_json[][query]",
            "_json%5B%5D%5Bquery%5D",
            "%5Fjson[0][query]",
        ] {
            let query = format!("{name}=mutation%7Bx%7D");
            let content = r#"{"query":"{me}"}"#;
            let asked = ask(&Method::POST, &query, "application/json", content);
            assert!(asked.is_err(), "{name}: {asked:?}");
        }
    }

    #[test]
    fn root_fields_are_found_through_fragments_by_their_real_names() {
        for (text, expected) in [
            ("{ viewer { login } }", "query; query.viewer"),
            (
                "query A($a: [[Int!]] = [[1]]) { a: viewer(x: {y: [$a]}) @skip(if: true) { b } }",
                "query, query A; query.viewer",
            ),
            (
                "mutation M { ok: mergePullRequest(input: {a: \"} { deleteRef\"}) { x } }",
                "mutation, mutation M; mutation.mergePullRequest",
            ),
            (
                "mutation { ...F } fragment F on Mutation { ... on Mutation { ... { ...G } } } fragment G on Mutation { x: mergePullRequest }",
                "mutation; mutation.mergePullRequest",
            ),
            (
                "{ ...F } fragment F on Q { a ...G } fragment G on Q { b ...F }",
                "query; query.a, query.b",
            ),
            (
                "subscription S { s }",
                "subscription, subscription S; subscription.s",
            ),
            (
                "{ a # { b }\n, c(x: \"\\\"} { d\") e(x: \"\") }",
                "query; query.a, query.c, query.e",
            ),
            (
                "{ __schema { types { name } } __typename }",
                "query; query.__schema, query.__typename",
            ),
            (
                "{ query: mutation fragment { on } }",
                "query; query.fragment, query.mutation",
            ),
        ] {
            assert_eq!(document(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn every_operation_of_every_member_counts() {
        let both = r#"{"query":"query A { a } mutation B { b }","operationName":"A"}"#;
        let expected = "mutation, mutation B, query, query A; mutation.b, query.a";
        assert_eq!(post(both).as_deref(), Ok(expected));
        let batch = r#"[{"query":"{ a }"},{"query":"mutation { b }","variables":{"query":1},"extensions":{"x":{}}}]"#;
        let expected = "mutation, query; mutation.b, query.a";
        assert_eq!(post(batch).as_deref(), Ok(expected));
        let kept = |version: &str, hash: &str| {
            let query = r#"{"query":"{a}","extensions":{"persistedQuery":"#;
            format!("{query}{{\"version\":{version},\"sha256Hash\":\"{hash}\"}}}}}}")
        };
        let hash = "460c3a93211614ac783c0f1d1bbbcb45a6da87d6421b5c0771772588f1015ff8";
        assert_eq!(post(&kept("1", hash)).as_deref(), Ok("query; query.a"));
        assert!(post(&kept("2", hash)).is_err());
        assert!(post(&kept("1", &hash.replace('0', "1"))).is_err());
        assert!(post(&kept(r#"1,"id":2"#, hash)).is_err());
        let get = |query: &str| ask(&Method::GET, query, "x/y", "");
        let expected = "query, query A; query.a";
        let query = "key=1&query=query+A%7Ba%7D&operationName=A&variables=%7B%7D";
        assert_eq!(get(query).as_deref(), Ok(expected));
        for query in [
            "",
            "query=%7Ba%7D&query=%7Bb%7D",
            "query=%7Ba%7D&Query=%7Bb%7D",
            "query=%7Ba%7D&operationName=A&operationName=B",
            "query=%7Ba%7D&extensions=%7B%7D",
            "query=%7Ba%7D&id=1",
            "extensions=%7B%22persistedQuery%22:1%7D",
        ] {
            assert!(get(query).is_err(), "{query}");
        }
    }

    #[test]
    fn what_reads_in_two_ways_gives_nothing() {
        for content in [
            "",
            "[]",
            "1",
            "[[{\"query\":\"{a}\"}]]",
            r#"{"query":"{a}"}{"query":"{b}"}"#,
            r#"{"query":"{a}","query":"{b}"}"#,
            r#"{"query":"{a}","Query":"{b}"}"#,
            r#"{"Query":"{a}"}"#,
            r#"{"query":"{a}","id":"1"}"#,
            r#"{"query":"{a}","documentId":"1"}"#,
            r#"{"query":"{a}","extensions":{"persistedQuery":{"sha256Hash":"x"}}}"#,
            r#"{"query":"{a}","extensions":{"persisted_query":{}}}"#,
            r#"{"query":"{a}","extensions":"{}"}"#,
            r#"{"extensions":{"persistedQuery":{"sha256Hash":"x"}}}"#,
            r#"{"id":"x"}"#,
            r#"{"query":"{a}","operationName":"B"}"#,
            r#"{"query":"{a}","operationName":""}"#,
            r#"{"query":"query A {a}","operationName":1}"#,
            r#"{"query":"query A {a} query B {b}"}"#,
            r#"{"query":"query A {a} {b}","operationName":"A"}"#,
            r#"{"query":["{a}"]}"#,
            r#"[{"query":"{a}"},{"id":"x"}]"#,
        ] {
            assert!(post(content).is_err(), "{content}");
        }
        for text in [
            "",
            " ",
            "{",
            "{}",
            "{a}}",
            "{a",
            "{a(}",
            "{a b(x: 1 c}",
            "{ ...F }",
            "{ ... on }",
            "query A {a} query A {b}",
            "{ ...F } fragment F on Q {a} fragment F on Q {b}",
            "fragment F on Q {a}",
            "type Q { a: Int } query {a}",
            "{a} extend schema @a",
            "{a # \u{2028} } mutation {b}\n}",
            "{a # \r b\n}",
            "{\u{feff}a}",
            "{a\u{a0}b}",
            "{a: }",
            "{ a(x: \"\"\"b\"\"\") }",
            "mutation { a(x: \"\"\"\\\"\"\"\"\") merge } # \"\"\") }",
            "query($a) {a}",
            "Query {a}",
            "{a(x)}",
            "{a(x 1)}",
            "{a(x: 1, y)}",
            "{a(x y: 1)}",
            "{a(x: {y})}",
            "{a(x: [{y: 1, z}])}",
            "{a @skip(if)}",
            "query($a: Int @b(c)) {a}",
            "query($a: T = {b}) {a}",
            "{b} fragment F on Q @c(d) {a}",
        ] {
            assert!(document(text).is_err(), "{text:?}");
        }
        let good = r#"{"query":"{a}"}"#;
        assert!(post(good).is_ok());
        let asked = |method: Method, query: &str, kind: &str| ask(&method, query, kind, good);
        let json = "application/json";
        assert!(asked(Method::PUT, "", json).is_err());
        assert!(asked(Method::GET, "query=%7Ba%7D", json).is_err());
        for query in ["query=%7Bb%7D", "operationName=B", "extensions=%7B%7D"] {
            assert!(asked(Method::POST, query, json).is_err(), "{query}");
        }
        for kind in [
            "application/graphql",
            "text/plain",
            "multipart/form-data; boundary=x",
        ] {
            assert!(asked(Method::POST, "", kind).is_err(), "{kind}");
        }
    }

    #[test]
    fn a_document_is_neither_deep_nor_long() {
        let deep = |open: &str, close: &str, levels: usize| {
            document(&format!(
                "{{a(x: {}1{})}}",
                open.repeat(levels),
                close.repeat(levels)
            ))
        };
        assert!(deep("[", "]", 60).is_ok());
        assert!(deep("[", "]", 63).is_err());
        assert!(deep("[", "]", 20_000).is_err());
        assert!(deep("{a:", "}", 20_000).is_err());
        let nested =
            |levels: usize| document(&format!("{}{}", "{a".repeat(levels), "}".repeat(levels)));
        assert!(nested(60).is_ok() && nested(20_000).is_err());
        let typed = format!(
            "query($a: {}Int{}) {{a}}",
            "[".repeat(9_000),
            "]".repeat(9_000)
        );
        assert!(document(&typed).is_err());
        assert!(document(&format!("{{{}}}", "a ".repeat(8_000))).is_ok());
        assert!(document(&format!("{{{}}}", "a ".repeat(9_000))).is_err());
        let wide: String = (0..1_025).map(|nth| format!("a{nth} ")).collect();
        assert!(document(&format!("{{{wide}}}")).is_err());
    }
}
