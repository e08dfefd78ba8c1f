//! Requests to models, as OpenAI (chat completions, responses), Anthropic (messages) and Google
//! (`generateContent`) take them: which model, which tools, and how long the answer may be.
//!
//! An unknown member counts as a tool that the provider runs, by its name: new ones come every
//! month.

use std::collections::BTreeSet;

use gateway_message::json::{DeepNames, JsonParts, Value};
use http::Method;

use super::document::{LEAF, Shape, document, member, members, text};
use super::parsed_request::{FactResults, ParsedRequest, Unread, names};
use crate::fact::{FactValue, of_number};

/// The facts of this protocol.
pub(super) const FACTS: [&str; 4] = [
    "model.name",
    "model.tools",
    "model.hosted_tools",
    "model.max_tokens",
];

/// Wants what is read of a request.
pub(super) fn want(wanted: &mut JsonParts<'_>) {
    SHAPE.want(wanted);
    wanted.watching(BROUGHT);
}

pub(super) fn read(asked: &ParsedRequest<'_>) -> Result<FactResults, Unread> {
    let said = Said::of(asked)?;
    let [name, own, hosted, most] = FACTS;
    let model = said
        .certain()
        .and_then(|()| model(asked.path, said.content));
    let most_tokens = said
        .certain()
        .and_then(|()| match bound(asked, said.content)? {
            (Some(most), 1) => of_number(most).ok_or(UNBOUNDED),
            _ => Err(UNBOUNDED),
        });
    Ok(vec![
        (name, model.map(FactValue::String)),
        (own, names(said.tools.own)),
        (hosted, names(said.tools.hosted)),
        (most, most_tokens),
    ])
}

/// What a request says.
pub(super) struct Said<'a> {
    pub(super) content: Value<'a>,
    pub(super) tools: Tools,
}

impl<'a> Said<'a> {
    pub(super) fn of(asked: &ParsedRequest<'a>) -> Result<Self, Unread> {
        if *asked.method != Method::POST {
            return Err("a model is asked by POST");
        }
        let content = document(asked, SHAPE)?;
        if asked.content.is_seen() {
            return Err("what it says to the model brings tools");
        }
        if !content.is_object() {
            return Err("the content is no object");
        }
        let known = if is_embedding(asked.path) {
            EMBEDDING
        } else {
            KNOWN
        };
        let mut tools = Tools::default();
        for (name, value) in members(content) {
            match name {
                "tools" | "functions" if value.is_list() => {
                    value.elements().try_for_each(|(_, one)| tools.add(one))?;
                }
                "tools" | "functions" => return Err("its tools are no list"),
                "model" => {}
                "mcp_servers" | "web_search_options" => tools.host(name),
                name if known.split_ascii_whitespace().any(|known| known == name) => {}
                name => {
                    tools.host(name);
                    tools.is_other = true;
                }
            }
        }
        Ok(Self { content, tools })
    }

    /// Another model may answer, within other bounds.
    pub(super) fn certain(&self) -> Result<(), Unread> {
        match self.tools.is_other {
            true => Err("it has a member that is not known"),
            false => Ok(()),
        }
    }
}

pub(super) fn is_embedding(path: &str) -> bool {
    Endpoint::of(path) == Endpoint::Embeddings
}

/// What an endpoint of a model is, by the end of its path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Endpoint {
    Completions,
    Responses,
    Messages,
    Generate,
    Embeddings,
    Other,
}

impl Endpoint {
    pub(super) fn of(path: &str) -> Self {
        match path.rsplit('/').next().unwrap_or_default() {
            "completions" => Self::Completions,
            "responses" => Self::Responses,
            "messages" => Self::Messages,
            "embeddings" => Self::Embeddings,
            last if last.ends_with(":generateContent") => Self::Generate,
            last if last.ends_with(":streamGenerateContent") => Self::Generate,
            _ => Self::Other,
        }
    }
}

#[derive(Default)]
pub(super) struct Tools {
    own: BTreeSet<String>,
    pub(super) hosted: BTreeSet<String>,
    /// Whether something may bring another model or another bound.
    is_other: bool,
}

impl Tools {
    fn add(&mut self, tool: Value<'_>) -> Result<(), Unread> {
        if !tool.is_object() {
            return Err("a tool is no object");
        }
        let has = |name| tool.member(name).is_some();
        let kind = member(tool, "type").map(|kind| text(kind).ok_or(UNNAMED));
        let name = match kind.transpose()?.as_deref() {
            Some(kind @ ("function" | "custom")) => match member(tool, kind) {
                Some(_) if has("name") => return Err("a tool has two names"),
                // In chat completions, an object of that name says the rest.
                inner => inner.unwrap_or(tool).member("name"),
            },
            Some(kind) => {
                self.host(kind);
                self.is_other |= has("model");
                return Ok(());
            }
            None if has("name") => tool.member("name"),
            None if tool.members().len() == 0 => return Err(UNNAMED),
            // Gemini has a list of functions, and a member for each tool of its own.
            None => return self.gemini(tool),
        };
        self.own(name)
    }

    fn gemini(&mut self, tool: Value<'_>) -> Result<(), Unread> {
        for (name, value) in members(tool) {
            match name {
                "functionDeclarations" if value.is_list() => {
                    let mut all = value.elements();
                    all.try_for_each(|(_, one)| self.own(one.member("name")))?;
                }
                name => self.host(name),
            }
        }
        Ok(())
    }

    fn own(&mut self, name: Option<Value<'_>>) -> Result<(), Unread> {
        self.own.insert(name.and_then(text).ok_or(UNNAMED)?);
        Ok(())
    }

    /// Adds a tool that the provider runs. To Google, `googleSearch` and `google_search` are one.
    fn host(&mut self, name: &str) {
        let mut plain = String::new();
        for letter in name.chars() {
            if letter.is_uppercase() {
                plain.push('_');
            }
            plain.extend(letter.to_lowercase());
        }
        self.hosted.insert(plain);
    }
}

/// The model's name, in the content or in the path: `/v1beta/models/NAME:generateContent`.
pub(super) fn model(path: &str, content: Value<'_>) -> Result<String, Unread> {
    let is_models = |part: &&str| part.eq_ignore_ascii_case("models");
    let mut parts = path.split('/').skip_while(|part| !is_models(part));
    let is_in_path = parts.next().is_some();
    let in_path = parts.next().and_then(|part| part.split_once(':'));
    let in_path = in_path.filter(|(name, _)| !name.contains('%') && parts.next().is_none());
    let name = match (member(content, "model"), in_path) {
        (Some(name), None) if !is_in_path => text(name),
        (None, Some((name, _))) => Some(name.to_owned()),
        _ => None,
    };
    let name = name.ok_or("it does not name one model")?;
    // Azure runs the deployment that the path names.
    if name.is_empty() || path.split('/').any(|part| part == "deployments") {
        return Err("it does not name one model");
    }
    Ok(name)
}

/// The bound of each answer, by the names that the endpoint of this host reads: others would bound
/// nothing. And how many answers there are.
pub(super) fn bound(
    asked: &ParsedRequest<'_>,
    content: Value<'_>,
) -> Result<(Option<i64>, u64), Unread> {
    let generation = member(content, "generationConfig");
    let of_generation = |name| generation.and_then(|all| member(all, name));
    let endpoint = Endpoint::of(asked.path);
    let names: &[&str] = match endpoint {
        Endpoint::Responses => &["max_output_tokens"],
        Endpoint::Completions if READ_BOTH.contains(&asked.host) => {
            &["max_tokens", "max_completion_tokens"]
        }
        Endpoint::Messages | Endpoint::Completions | Endpoint::Other => &["max_tokens"],
        Endpoint::Generate | Endpoint::Embeddings => &[],
    };
    let named = names.iter().map(|name| member(content, name));
    let there = of_generation("maxOutputTokens").filter(|_| endpoint == Endpoint::Generate);
    let mut said = named.chain([there]).flatten();
    let most = match (said.next(), said.next()) {
        (None, _) => None,
        (Some(most), None) => Some(most.number().ok_or(UNBOUNDED)?),
        _ => return Err(UNBOUNDED),
    };
    let answers = [member(content, "n"), of_generation("candidateCount")];
    let answers = answers.into_iter().flatten().map(|count| {
        let count = count.number().and_then(|count| u64::try_from(count).ok());
        count
            .filter(|count| *count > 0)
            .ok_or("it does not say how many answers it asks for")
    });
    let answers = answers.collect::<Result<Vec<_>, _>>()?;
    Ok((most, answers.into_iter().max().unwrap_or(1)))
}

/// The hosts whose chat completions read `max_completion_tokens`, which others ignore.
const READ_BOTH: [&str; 4] = [
    "api.groq.com",
    "api.openai.com",
    "api.x.ai",
    "openrouter.ai",
];
pub(super) const UNBOUNDED: Unread = "it does not bound its answer by one number";
const UNNAMED: Unread = "a tool has no name";
const SHAPE: Shape = Shape(&[
    ("model", LEAF),
    ("tools", TOOL),
    ("functions", TOOL),
    ("max_tokens", LEAF),
    ("max_completion_tokens", LEAF),
    ("max_output_tokens", LEAF),
    ("n", LEAF),
    (
        "generationConfig",
        Shape(&[("maxOutputTokens", LEAF), ("candidateCount", LEAF)]),
    ),
]);
const NAMED: Shape = Shape(&[("name", LEAF)]);
const TOOL: Shape = Shape(&[
    ("type", LEAF),
    ("name", LEAF),
    ("function", NAMED),
    ("custom", NAMED),
    ("functionDeclarations", NAMED),
]);

/// Names by which items of a conversation bring tools.
const BROUGHT: DeepNames = DeepNames {
    below: &[
        "input",
        "messages",
        "contents",
        "system",
        "systemInstruction",
    ],
    names: &["tools", "tool", "definition", "tool_changes", "mcp_servers"],
};

/// The members of a request for embeddings.
const EMBEDDING: &str = "dimensions encoding_format input user";

/// Members that bring neither a model nor a tool, of the three services' documented requests.
const KNOWN: &str = "
    audio background cache_control client_metadata contents context_management conversation
    frequency_penalty function_call generationConfig
    include inference_geo input instructions labels logit_bias logprobs max_completion_tokens
    max_output_tokens max_tokens max_tool_calls messages metadata modalities n output_config
    parallel_tool_calls prediction presence_penalty previous_response_id prompt_cache_key
    prompt_cache_retention reasoning reasoning_effort response_format safetySettings
    safety_identifier seed service_tier stop stop_sequences store stream stream_options system
    systemInstruction temperature text thinking toolConfig tool_choice top_k top_logprobs top_p
    truncation user verbosity";

#[cfg(test)]
mod tests {
    use super::super::Protocol;
    use super::super::tests::{ask, each};
    use super::*;

    /// The four facts, of a request to a path.
    fn at(path: &str, content: &str) -> Result<String, Unread> {
        ask(Protocol::Model, &Method::POST, path, content)
    }

    fn tools(rest: &str) -> Result<String, Unread> {
        at(
            "/v1/messages",
            &format!(r#"{{"model":"m","max_tokens":1,{rest}}}"#),
        )
    }

    #[test]
    fn a_model_and_its_tools_are_found_in_the_words_of_each_service() {
        for (path, content, expected) in [
            (
                "/v1/chat/completions",
                r#"{"model":"gpt-5","messages":[{"role":"user","content":"tools"}],"max_completion_tokens":9,
                    "tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","name":"x"}}},{"type":"custom","custom":{"name":"c"}}],
                    "functions":[{"name":"old"}]}"#,
                "gpt-5; c, f, old; ; 9",
            ),
            (
                "/v1/responses",
                r#"{"model":"gpt-5","input":"x","max_output_tokens":9,"tools":[{"type":"function","name":"f","parameters":{}},
                    {"type":"web_search"},{"type":"mcp","server_label":"x"},{"type":"code_interpreter","container":{}}]}"#,
                "gpt-5; f; code_interpreter, mcp, web_search; 9",
            ),
            (
                "/v1/messages",
                r#"{"model":"claude-opus-5","max_tokens":9,"messages":[],"mcp_servers":[],
                    "tools":[{"name":"f","input_schema":{}},{"type":"custom","name":"g"},{"type":"web_search_20250305","name":"web_search"}]}"#,
                "claude-opus-5; f, g; mcp_servers, web_search_20250305; 9",
            ),
            (
                "/v1beta/models/gemini-3-pro:streamGenerateContent",
                r#"{"contents":[],"generationConfig":{"maxOutputTokens":9},"tools":[{"functionDeclarations":[{"name":"f"}]},
                    {"googleSearch":{}},{"code_execution":{}}]}"#,
                "gemini-3-pro; f; code_execution, google_search; 9",
            ),
        ] {
            assert_eq!(at(path, content).as_deref(), Ok(expected), "{content}");
        }
    }

    #[test]
    fn what_is_not_known_counts_as_hosted() {
        for (rest, expected) in [
            (r#""tools":[]"#, "m; ; ; 1"),
            (r#""tools":null"#, "m; ; ; 1"),
            (r#""web_search_options":{}"#, "m; ; web_search_options; 1"),
            (r#""tools":[{"type":"x","name":"f"}]"#, "m; ; x; 1"),
            (
                r#""tools":[{"google_search":{},"functionDeclarations":[]}]"#,
                "m; ; google_search; 1",
            ),
        ] {
            assert_eq!(tools(rest).as_deref(), Ok(expected), "{rest}");
        }
    }

    #[test]
    fn what_is_not_known_may_bring_another_model_and_another_bound() {
        for (rest, hosted) in [
            (r#""plugins":[]"#, "plugins"),
            (r#""prompt":{"id":"x"}"#, "prompt"),
            (r#""cachedContent":"x""#, "cached_content"),
            (r#""Temperature":1"#, "_temperature"),
            (r#""fallbacks":[{"model":"n","max_tokens":9}]"#, "fallbacks"),
            (r#""models":["n"]"#, "models"),
            (r#""tools":[{"type":"advisor","model":"n"}]"#, "advisor"),
        ] {
            let content = format!(r#"{{"model":"m","max_tokens":1,{rest}}}"#);
            let json = "application/json";
            let facts = each(
                Protocol::Model,
                &Method::POST,
                "/v1/messages",
                json,
                &content,
            );
            let [name, own, found, most] = &facts[..] else {
                panic!("{facts:?}");
            };
            assert!(name.is_err() && most.is_err(), "{rest}");
            assert_eq!((own.as_deref(), found.as_deref()), (Ok(""), Ok(hosted)));
        }
    }

    #[test]
    fn a_conversation_that_brings_tools_gives_nothing() {
        for rest in [
            r#""messages":[{"tools":[{"type":"mcp"}]}]"#,
            r#""input":[{"type":"additional_tools","role":"developer","Tools":[{"type":"mcp"}]}]"#,
            r#""messages":[{"role":"user","content":[{"type":"tool_addition","tool":{"definition":{}}}]}]"#,
            r#""messages":[{"content":[{"type":"compaction","toolChanges":[]}]}]"#,
        ] {
            assert!(tools(rest).is_err(), "{rest}");
        }
        assert!(tools(r#""messages":[{"role":"user","content":[{"type":"text"}]}]"#).is_ok());
    }

    #[test]
    fn what_reads_in_two_ways_gives_nothing() {
        for rest in [
            r#""tools":{}"#,
            r#""tools":[1]"#,
            r#""tools":[{}]"#,
            r#""tools":[[{"name":"f"}]]"#,
            r#""tools":[{"type":1,"name":"f"}]"#,
            r#""tools":[{"type":"function"}]"#,
            r#""tools":[{"type":"function","name":"f","function":{"name":"g"}}]"#,
            r#""tools":[{"type":"function","function":{"name":["f"]}}]"#,
            r#""tools":[{"name":"f","Type":"mcp"}]"#,
            r#""tools":[{"function_declarations":[]}]"#,
            r#""tools":[{"name":"f"}],"tools":[]"#,
            r#""tools":[{"name":"f"}],"Tools":[]"#,
            r#""Tools":[]"#,
            r#""model":"n""#,
            r#""n":2"#,
            r#""generationConfig":{"candidateCount":3}"#,
        ] {
            assert!(tools(rest).is_err(), "{rest}");
        }
        let model = |path: &str, content: &str| at(path, content).is_ok();
        let (named, unnamed) = (r#"{"model":"m","max_tokens":1}"#, r#"{"max_tokens":1}"#);
        assert!(model("/v1/messages", named) && !model("/v1/messages", unnamed));
        assert!(model("/v1/models/m:x", unnamed) && !model("/v1/models/m:x", named));
        for path in [
            "/v1/models/m",
            "/v1/models/:x",
            "/models/m:x/y",
            "/models",
            "/v1/models/m%3Ax",
        ] {
            assert!(!model(path, unnamed), "{path}");
        }
        assert!(!model("/openai/deployments/d/chat/completions", named));
        assert!(!model("/v1/messages", r#"{"model":"m","max_tokens":1.5}"#));
        assert!(!model("/v1/models/m%3Ax", named) && !model("/v1/responses", named));
        assert!(!model(
            "/v1/messages",
            r#"{"model":"m","max_completion_tokens":1}"#
        ));
        assert!(ask(Protocol::Model, &Method::GET, "/v1/messages", named).is_err());
    }
}
