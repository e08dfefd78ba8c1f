//! Requests to models, as OpenAI (chat completions, responses), Anthropic (messages) and Google
//! (`generateContent`) take them: which model, which tools, and how long the answer may be.
//!
//! An unknown member counts as a tool that the provider runs, by its name: new ones come every
//! month.

use std::collections::BTreeSet;

use gateway_message::RequestHead;
use gateway_message::json::{DeepNames, Json, JsonParts, Value};
use http::Method;

use super::document::{LEAF, Shape, document, is_plain, member, members, text};
use super::parsed_request::{FactResults, ParsedRequest, Unread, names};
use crate::fact::{FactValue, PlainContent, of_number};
use crate::{Document, HeldBody, Questions};

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
struct Said<'a> {
    content: Value<'a>,
    tools: Tools,
}

impl<'a> Said<'a> {
    fn of(asked: &ParsedRequest<'a>) -> Result<Self, Unread> {
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
    fn certain(&self) -> Result<(), Unread> {
        match self.tools.is_other {
            true => Err("it has a member that is not known"),
            false => Ok(()),
        }
    }
}

/// A request to a model, as far as it bounds what is used for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelCall {
    /// The model's name.
    pub model: String,
    /// The length of the content, in bytes.
    pub content_bytes: u64,
    /// The most tokens of each answer. `None` if the request does not bound them.
    pub most_output: Option<u64>,
    /// How many answers it asks for.
    pub answers: u64,
    /// Whether the provider runs tools for it, or else may ask the model again by itself.
    pub hosted_tools: bool,
    /// Whether the model may read more than the text that stands in the content: pictures, sound,
    /// files, an earlier answer.
    pub has_references: bool,
    /// Whether it asks for a service tier or a region that may cost more.
    pub is_dearer: bool,
}

impl ModelCall {
    /// Reads a request, of which the whole content is held.
    ///
    /// # Errors
    /// [`Unread`]: what is not known, or said in two ways.
    pub fn of(head: &RequestHead, content: &HeldBody) -> Result<Self, Unread> {
        if !is_plain(&head.fields) {
            return Err("its content has a coding");
        }
        let (path, query) = (head.target.path(), head.target.query().unwrap_or(""));
        let content = PlainContent {
            bytes: content.whole(),
            ..PlainContent::default()
        };
        let mut questions = Questions::default();
        want(questions.json());
        let document = Document::read(&head.fields, query, &content, &questions);
        let asked = ParsedRequest {
            host: head.origin.authority.host.as_str(),
            method: &head.method,
            path,
            upgrades: false,
            content: &document,
        };
        let said = Said::of(&asked)?;
        said.certain()?;
        if Endpoint::of(path) == Endpoint::Other {
            return Err("what its endpoint costs is not known");
        }
        let (most, answers) = bound(&asked, said.content)?;
        let natural = |most: i64| u64::try_from(most).ok().filter(|most| *most > 0);
        let most = most
            .map(|most| natural(most).ok_or(UNBOUNDED))
            .transpose()?;
        let content_bytes = content.bytes.len() as u64;
        // What is predicted wrongly is paid for as if the model had said it.
        let predicted = member(said.content, "prediction").map_or(0, |_| content_bytes);
        let [has_references, is_again] = is_open(said.content, &content.bytes);
        let is_dearer = ["service_tier", "inference_geo"].iter().any(|name| {
            let said = member(said.content, name);
            said.is_some_and(|said| !said.text().is_some_and(|said| ORDINARY.contains(&&*said)))
        });
        Ok(Self {
            model: model(path, said.content)?,
            content_bytes,
            most_output: match is_embedding(path) {
                true => Some(0),
                false => most.map(|most| most.saturating_add(predicted)),
            },
            answers,
            hosted_tools: !said.tools.hosted.is_empty() || is_again,
            has_references,
            is_dearer,
        })
    }
}

fn is_embedding(path: &str) -> bool {
    Endpoint::of(path) == Endpoint::Embeddings
}

/// What an endpoint of a model is, by the end of its path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    Completions,
    Responses,
    Messages,
    Generate,
    Embeddings,
    Other,
}

impl Endpoint {
    fn of(path: &str) -> Self {
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

/// Whether the model may read what does not stand in the content as text, and whether the provider
/// may ask it again by itself.
fn is_open(content: Value<'_>, bytes: &[u8]) -> [bool; 2] {
    let mut wanted = JsonParts::default();
    wanted.watching(REFERRED);
    let items = wanted.member_of("input").each();
    items.member_of("type");
    items.member_of("role");
    let management = wanted.member_of(MANAGEMENT).each().names();
    management.member_of("type");
    management.member_of("edits").each().member_of("type");
    let Ok(json) = Json::read(bytes, &wanted) else {
        return [true, member(content, MANAGEMENT).is_some()];
    };
    // To the service, an item that says nothing but an id is an earlier one.
    let is_earlier = |item: Value<'_>| match member(item, "type") {
        Some(kind) => kind.text().is_none_or(|kind| kind == "item_reference"),
        None => item.is_object() && member(item, "role").is_none(),
    };
    let earlier = ["previous_response_id", "conversation"];
    let earlier = earlier.iter().any(|name| member(content, name).is_some());
    let mut items = json.root().member("input").into_iter();
    let items = items.any(|list| list.elements().any(|(_, one)| is_earlier(one)));
    let management = member(json.root(), MANAGEMENT);
    let is_again = management.is_some_and(repeats);
    [json.is_seen() || earlier || items, is_again]
}

/// Whether the provider may have the model write a summary, which no bound of the request is for.
/// What is only cleared costs nothing.
fn repeats(management: Value<'_>) -> bool {
    let clears = |edit: Value<'_>| {
        let kind = edit.member("type").and_then(Value::text);
        kind.is_some_and(|kind| kind.starts_with("clear_"))
    };
    let mut members = management.members();
    let mut listed = management.elements();
    let mut edits = management.member("edits").into_iter();
    !(management.is_object() || management.is_list())
        || members.any(|(name, _)| name != "edits")
        || listed.any(|(_, one)| !clears(one))
        || edits.any(|list| !list.is_list() || list.elements().any(|(_, one)| !clears(one)))
}

const MANAGEMENT: &str = "context_management";

#[derive(Default)]
struct Tools {
    own: BTreeSet<String>,
    hosted: BTreeSet<String>,
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
fn model(path: &str, content: Value<'_>) -> Result<String, Unread> {
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
fn bound(asked: &ParsedRequest<'_>, content: Value<'_>) -> Result<(Option<i64>, u64), Unread> {
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
const UNBOUNDED: Unread = "it does not bound its answer by one number";
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

/// Names by which items of a conversation bring what is no text, or does not stand there.
const REFERRED: DeepNames = DeepNames {
    below: &[
        "input",
        "messages",
        "contents",
        "system",
        "systemInstruction",
        "instructions",
    ],
    names: &[
        "audio",
        "audio_url",
        "document_url",
        "file",
        "file_data",
        "file_id",
        "file_url",
        "image",
        "image_url",
        "inline_data",
        "input_audio",
        "source",
        "video",
        "video_url",
    ],
};

/// Service tiers and regions that cost what others do, or less.
const ORDINARY: [&str; 7] = [
    "auto",
    "default",
    "flex",
    "global",
    "on_demand",
    "standard",
    "standard_only",
];

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
    use gateway_message::{Authority, EncodedSlash, Host, Origin, RequestTarget, Scheme};
    use http::{HeaderName, HeaderValue};

    use super::super::Protocol;
    use super::super::tests::{ask, each};
    use super::*;
    use crate::{HoldBudget, Limit};

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

    /// What bounds a request.
    fn call_with(
        (host, path): (&str, &str),
        fields: &[(&'static str, &'static str)],
        content: &str,
    ) -> Result<ModelCall, Unread> {
        let mut held = HeldBody::new(HoldBudget::new(Limit::bytes(1 << 20)));
        held.take(content.to_owned().into()).unwrap();
        let fields = fields.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        let head = RequestHead {
            method: Method::POST,
            origin: Origin {
                scheme: Scheme::Https,
                authority: Authority {
                    host: Host::parse(host.as_bytes()).unwrap(),
                    port: 443,
                },
            },
            target: RequestTarget::parse(path.as_bytes(), EncodedSlash::Refuse).unwrap(),
            fields: fields.collect(),
            version: http::Version::HTTP_11,
        };
        ModelCall::of(&head, &held)
    }

    fn call(path: &str, content: &str) -> Result<ModelCall, Unread> {
        call_at("api.openai.com", path, content)
    }

    fn call_at(host: &str, path: &str, content: &str) -> Result<ModelCall, Unread> {
        call_with(
            (host, path),
            &[("content-type", "application/json")],
            content,
        )
    }

    /// The most output, the answers, and whether it has tools, references, or is dearer.
    fn bounds(path: &str, content: &str) -> Result<(Option<u64>, u64, [bool; 3]), Unread> {
        let call = call(path, content)?;
        assert_eq!(
            (&*call.model, call.content_bytes),
            ("m", content.len() as u64)
        );
        let marks = [call.hosted_tools, call.has_references, call.is_dearer];
        Ok((call.most_output, call.answers, marks))
    }

    #[test]
    fn a_call_says_what_bounds_it_in_the_words_of_each_service() {
        for (path, content, most, answers) in [
            (
                "/v1/chat/completions",
                r#"{"model":"m","messages":[],"max_completion_tokens":9,"n":3}"#,
                Some(9),
                3,
            ),
            (
                "/v1/chat/completions",
                r#"{"model":"m","messages":[],"stream":true}"#,
                None,
                1,
            ),
            (
                "/v1/responses",
                r#"{"model":"m","input":"x","max_output_tokens":9}"#,
                Some(9),
                1,
            ),
            (
                "/v1/responses",
                r#"{"model":"m","input":"x","max_tokens":9}"#,
                None,
                1,
            ),
            (
                "/v1/messages",
                r#"{"model":"m","max_tokens":9,"messages":[],"tools":[{"name":"f"}]}"#,
                Some(9),
                1,
            ),
            (
                "/v1beta/models/m:generateContent",
                r#"{"contents":[],"generationConfig":{"maxOutputTokens":9,"candidateCount":2}}"#,
                Some(9),
                2,
            ),
            (
                "/v1/embeddings",
                r#"{"model":"m","input":["a","b"],"dimensions":8,"encoding_format":"float"}"#,
                Some(0),
                1,
            ),
            (
                "/v1/chat/completions",
                r#"{"model":"m","n":1,"generationConfig":{"candidateCount":1}}"#,
                None,
                1,
            ),
        ] {
            let found = bounds(path, content);
            assert_eq!(found, Ok((most, answers, [false; 3])), "{content}");
        }
    }

    #[test]
    fn what_an_endpoint_of_a_host_does_not_read_bounds_nothing_there() {
        let chat = "/v1/chat/completions";
        for (host, path, bound, most) in [
            (
                "api.openai.com",
                chat,
                r#""max_completion_tokens":1"#,
                Some(1),
            ),
            (
                "api.deepseek.com",
                chat,
                r#""max_completion_tokens":1"#,
                None,
            ),
            ("api.deepseek.com", chat, r#""max_tokens":1"#, Some(1)),
            (
                "api.openai.com",
                chat,
                r#""generationConfig":{"maxOutputTokens":1}"#,
                None,
            ),
            ("api.openai.com", "/v1/responses", r#""max_tokens":1"#, None),
        ] {
            let content = format!(r#"{{"model":"m",{bound}}}"#);
            let found = call_at(host, path, &content).map(|call| call.most_output);
            assert_eq!(found, Ok(most), "{host}{path} {bound}");
        }
        for path in ["/v1/responses/", "/v1/responses/compact", "/v1/batches"] {
            let found = call_at("api.openai.com", path, r#"{"model":"m","max_tokens":1}"#);
            assert!(found.is_err(), "{path}");
        }
    }

    #[test]
    fn what_is_predicted_counts_as_output() {
        let content =
            r#"{"model":"m","max_tokens":9,"prediction":{"type":"content","content":"x"}}"#;
        let most = 9 + content.len() as u64;
        let found = bounds("/v1/chat/completions", content);
        assert_eq!(found, Ok((Some(most), 1, [false; 3])));
    }

    #[test]
    fn what_the_model_may_read_elsewhere_is_marked() {
        for rest in [
            r#""messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x"}}]}]"#,
            r#""messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}]"#,
            r#""messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"f"}}]}]"#,
            r#""messages":[{"role":"user","content":[{"type":"image","source":{"type":"url"}}]}]"#,
            r#""messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"document","source":{}}]}]}]"#,
            r#""messages":[{"role":"assistant","audio":{"id":"a"}}]"#,
            r#""system":[{"type":"x","File_ID":"f"}]"#,
            r#""input":[{"role":"user","content":[{"type":"input_image","image_url":"https://x"}]}]"#,
            r#""input":[{"role":"user","content":[{"type":"input_file","fileUrl":"https://x"}]}]"#,
            r#""input":[{"type":"item_reference","id":"msg_1"}]"#,
            r#""input":[{"id":"msg_1"}]"#,
            r#""input":[{"type":null,"id":"msg_1"}]"#,
            r#""input":[{"type":1}]"#,
            r#""input":"x","previous_response_id":"resp_1""#,
            r#""input":"x","conversation":{"id":"conv_1"}"#,
            r#""contents":[{"parts":[{"inlineData":{}}]}]"#,
            r#""contents":[{"parts":[{"file_data":{"file_uri":"x"}}]}]"#,
        ] {
            let found = bounds("/v1/responses", &format!(r#"{{"model":"m",{rest}}}"#));
            assert_eq!(found, Ok((None, 1, [false, true, false])), "{rest}");
        }
        for rest in [
            r#""input":"image_url","previous_response_id":null"#,
            r#""input":[{"role":"user","content":"file_id"},{"type":"function_call_output","output":"x"},"x",[1]]"#,
            r#""metadata":{"file":"x","source":"y"}"#,
        ] {
            let found = bounds("/v1/responses", &format!(r#"{{"model":"m",{rest}}}"#));
            assert_eq!(found, Ok((None, 1, [false; 3])), "{rest}");
        }
        // More items than are read may have one.
        let items = vec![r#"{"role":"user","type":"message"}"#; 9_000].join(",");
        let found = bounds(
            "/v1/responses",
            &format!(r#"{{"model":"m","input":[{items}]}}"#),
        );
        assert_eq!(found, Ok((None, 1, [false, true, false])));
    }

    #[test]
    fn hosted_tools_and_dearer_tiers_are_marked() {
        for (rest, hosted, dearer) in [
            (r#""tools":[{"type":"web_search"}]"#, true, false),
            (r#""web_search_options":{}"#, true, false),
            (
                r#""context_management":{"edits":[{"type":"clear_tool_uses_1"},{"type":"compact_1"}]}"#,
                true,
                false,
            ),
            (
                r#""context_management":[{"type":"compaction"}]"#,
                true,
                false,
            ),
            (
                r#""context_management":{"edits":{"type":"clear_1"}}"#,
                true,
                false,
            ),
            (r#""context_management":{"compact":true}"#, true, false),
            (r#""context_management":"compact""#, true, false),
            (r#""context_management":{"edits":[{}]}"#, true, false),
            (
                r#""context_management":{"edits":[{"type":"clear_thinking_1","keep":"all"}]}"#,
                false,
                false,
            ),
            (r#""context_management":null"#, false, false),
            (r#""service_tier":"priority""#, false, true),
            (r#""service_tier":7"#, false, true),
            (r#""service_tier":"Default""#, false, true),
            (r#""inference_geo":"us""#, false, true),
            (
                r#""service_tier":"auto","inference_geo":"global""#,
                false,
                false,
            ),
            (r#""service_tier":null"#, false, false),
        ] {
            let found = bounds("/v1/messages", &format!(r#"{{"model":"m",{rest}}}"#));
            assert_eq!(found, Ok((None, 1, [hosted, false, dearer])), "{rest}");
        }
    }

    #[test]
    fn what_is_said_in_two_ways_or_not_known_is_no_call() {
        for rest in [
            r#""max_tokens":1,"max_completion_tokens":1"#,
            r#""max_tokens":1,"max_tokens":2"#,
            r#""max_tokens":0"#,
            r#""max_tokens":-1"#,
            r#""max_tokens":1.5"#,
            r#""max_tokens":"1""#,
            r#""Max_Tokens":1"#,
            r#""n":0"#,
            r#""n":-1"#,
            r#""n":1.5"#,
            r#""N":2"#,
            r#""Service_Tier":"priority""#,
            r#""serviceTier":"priority""#,
            r#""previousResponseId":"r""#,
            r#""best_of":9"#,
            r#""fallbacks":[]"#,
            r#""tools":{}"#,
            r#""messages":[{"tools":[]}]"#,
        ] {
            let found = call(
                "/v1/chat/completions",
                &format!(r#"{{"model":"m",{rest}}}"#),
            );
            assert!(found.is_err(), "{rest}");
        }
        let named = r#"{"model":"m"}"#;
        assert!(call("/v1/messages", named).is_ok());
        assert!(call("/v1/messages", "{}").is_err());
        assert!(call("/v1/messages?max_tokens=9", named).is_err());
        assert!(call("/v1/embeddings", r#"{"model":"m","max_tokens":9}"#).is_err());
        let json = ("content-type", "application/json");
        let coded = [json, ("content-encoding", "gzip")];
        assert_eq!(
            call_with(("api.openai.com", "/v1/messages"), &coded, named),
            Err("its content has a coding")
        );
        assert!(call_with(("api.openai.com", "/v1/messages"), &[], named).is_err());
    }
}
