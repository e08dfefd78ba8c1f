//! What bounds a request to a model: how much it may read and write, and what makes it cost more.

use gateway_message::RequestHead;
use gateway_message::json::{DeepNames, Json, JsonParts, Value};

use super::document::{is_plain, member};
use super::model::{Endpoint, Said, UNBOUNDED, bound, is_embedding, model, want};
use super::parsed_request::{ParsedRequest, Unread};
use crate::fact::PlainContent;
use crate::{Document, HeldBody, Questions};

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

#[cfg(test)]
mod tests {
    use gateway_message::{Authority, EncodedSlash, Host, Origin, RequestTarget, Scheme};
    use http::{HeaderName, HeaderValue, Method};

    use super::*;
    use crate::{HoldBudget, Limit};

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
