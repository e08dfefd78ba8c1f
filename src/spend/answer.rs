//! What an answer says that was used: in the words of OpenAI (chat completions, responses),
//! Anthropic (messages) and Google (`generateContent`), as JSON or as a stream of events.
//!
//! An answer comes from outside. What is not said once, plainly and without contradiction is not
//! taken, and the reservation counts.

use gateway_message::json::{Json, JsonParts, Value};
use memchr::{memchr2, memmem};

use super::usage::Usage;

/// Reads the usage of an answer as its content streams, without codings. Holds a whole answer in
/// JSON, of at most 4 MiB, or one event of at most 1 MiB.
#[derive(Debug, Default)]
pub struct UsageReader {
    content: Content,
    found: Found,
    /// Whether something could not be read, so that nothing counts.
    is_lost: bool,
}

#[derive(Debug, Default)]
enum Content {
    /// Neither of these.
    #[default]
    Other,
    Json(Vec<u8>),
    Events(Events),
}

/// A stream of events, followed line by line.
#[derive(Debug, Default)]
struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    /// Whether the last byte was CR, behind which LF ends no other line.
    is_behind_cr: bool,
}

/// Something in the answer that is not taken.
#[derive(Clone, Copy, Debug)]
struct Lost;

impl UsageReader {
    /// A reader of content of this type.
    #[must_use]
    pub fn of(content_type: Option<&[u8]>) -> Self {
        let kind = content_type.and_then(|kind| kind.split(|byte| *byte == b';').next());
        let kind = kind.unwrap_or_default().trim_ascii().to_ascii_lowercase();
        let content = match &kind[..] {
            b"application/json" => Content::Json(Vec::new()),
            b"text/event-stream" => Content::Events(Events::default()),
            _ => Content::Other,
        };
        Self {
            content,
            ..Self::default()
        }
    }

    /// Takes more of the content.
    pub fn feed(&mut self, piece: &[u8]) {
        if self.is_lost {
            return;
        }
        let fed = match &mut self.content {
            Content::Other => Ok(()),
            Content::Json(held) => take(held, piece, MOST_JSON),
            Content::Events(events) => events.feed(piece, &mut self.found),
        };
        if fed.is_err() {
            self.lose();
        }
    }

    fn lose(&mut self) {
        self.is_lost = true;
        self.content = Content::Other;
    }

    /// The usage that an answer says, which has come to its end: one that was cut off may have used
    /// more. `None` if it does not say it so that it counts.
    #[must_use]
    pub fn finish(mut self) -> Option<Usage> {
        let read = match std::mem::take(&mut self.content) {
            Content::Other => Err(Lost),
            Content::Json(held) => self.found.add(&held),
            // Some clients read an event that no empty line ends.
            Content::Events(mut events) => events.feed(b"\n\n", &mut self.found),
        };
        read.ok().and_then(|()| self.found.usage())
    }
}

/// Takes more, unless it becomes longer than it may.
fn take(held: &mut Vec<u8>, piece: &[u8], most: usize) -> Result<(), Lost> {
    if piece.len() > most - held.len() {
        return Err(Lost);
    }
    held.extend_from_slice(piece);
    Ok(())
}

impl Events {
    fn feed(&mut self, mut piece: &[u8], found: &mut Found) -> Result<(), Lost> {
        while !piece.is_empty() {
            if std::mem::take(&mut self.is_behind_cr) && piece[0] == b'\n' {
                piece = &piece[1..];
                continue;
            }
            let end = memchr2(b'\r', b'\n', piece);
            take(
                &mut self.line,
                &piece[..end.unwrap_or(piece.len())],
                MOST_EVENT,
            )?;
            let Some(end) = end else { break };
            self.is_behind_cr = piece[end] == b'\r';
            piece = &piece[end + 1..];
            self.end_line(found)?;
        }
        Ok(())
    }

    fn end_line(&mut self, found: &mut Found) -> Result<(), Lost> {
        if !self.line.is_empty() {
            if let Some(text) = self.line.strip_prefix(b"data:") {
                take(&mut self.data, text, MOST_EVENT)?;
                take(&mut self.data, b"\n", MOST_EVENT)?;
            }
            self.line.clear();
            return Ok(());
        }
        let says = memmem::find(&self.data, b"\"usage").is_some();
        let read = if says { found.add(&self.data) } else { Ok(()) };
        self.data.clear();
        read
    }
}

/// What was found so far. Of several numbers for one thing the largest counts.
#[derive(Debug, Default)]
struct Found {
    /// Whether `input` has what is in caches, too. Each format has it in one way.
    is_whole: Option<bool>,
    input: Option<u64>,
    cache_read: u64,
    cache_written: u64,
    cache_written_long: Option<u64>,
    /// The output, which the beginning of an answer alone does not say.
    output: Option<u64>,
    has_other_kinds: bool,
    is_dearer: bool,
}

impl Found {
    /// Adds what one document says: the answer, or one event of it.
    fn add(&mut self, text: &[u8]) -> Result<(), Lost> {
        let mut wanted = JsonParts::default();
        wanted.each();
        wanted.member_of(TIER);
        for name in [USAGE, METADATA] {
            *wanted.member_of(name) = JsonParts::whole();
        }
        for (name, of) in INSIDE {
            let inside = wanted.member_of(name);
            inside.member_of(TIER);
            *inside.member_of(of) = JsonParts::whole();
        }
        let json = Json::read(text, &wanted).map_err(|_| Lost)?;
        // Google sends what others send as events as the elements of a list, if asked so.
        let list = json.root().elements().map(|(_, one)| one);
        list.chain([json.root()])
            .try_for_each(|one| self.answer(one))
    }

    fn answer(&mut self, answer: Value<'_>) -> Result<(), Lost> {
        self.tier(answer, TIER)?;
        if let Some(usage) = object(answer, USAGE)? {
            self.count(usage, false)?;
        }
        if let Some(usage) = object(answer, METADATA)? {
            self.count_google(usage)?;
        }
        for (name, _) in INSIDE {
            if let Some(inside) = object(answer, name)? {
                self.tier(inside, TIER)?;
                if let Some(usage) = object(inside, USAGE)? {
                    self.count(usage, name == BEGUN)?;
                }
            }
        }
        Ok(())
    }

    fn tier(&mut self, value: Value<'_>, name: &str) -> Result<(), Lost> {
        if let Some(tier) = member(value, name) {
            let tier = tier.text().ok_or(Lost)?;
            self.is_dearer |= !ORDINARY.contains(&&*tier);
        }
        Ok(())
    }

    /// Counts what OpenAI or Anthropic say. `is_begun` if it is the beginning of a stream.
    fn count(&mut self, usage: Value<'_>, is_begun: bool) -> Result<(), Lost> {
        self.tier(usage, TIER)?;
        self.tier(usage, REGION)?;
        let one = |names: [&str; 2]| match names.map(|name| number(usage, name)) {
            [Ok(Some(_)), Ok(Some(_))] => Err(Lost),
            [one, other] => Ok(one?.or(other?)),
        };
        // What a pause or a summary cost stands there, beside the rest.
        if member(usage, "iterations").is_some() {
            return Err(Lost);
        }
        let input = one(["prompt_tokens", "input_tokens"])?;
        let output = one(["completion_tokens", "output_tokens"])?;
        // Some have what the model thought in the total alone.
        let total = number(usage, "total_tokens")?;
        let output = whole_output(input, output, total)?;
        let [read, written] = ["cache_read_input_tokens", "cache_creation_input_tokens"];
        let apart = [number(usage, read)?, number(usage, written)?];
        if apart.iter().any(Option::is_some) {
            self.form(false)?;
        }
        for name in ["prompt_tokens_details", "input_tokens_details"] {
            if let Some(details) = object(usage, name)? {
                self.form(true)?;
                raise(&mut self.cache_read, number(details, "cached_tokens")?);
                raise(
                    &mut self.cache_written,
                    number(details, "cache_write_tokens")?,
                );
                self.kinds(details)?;
            }
        }
        for name in ["completion_tokens_details", "output_tokens_details"] {
            if let Some(details) = object(usage, name)? {
                self.kinds(details)?;
            }
        }
        if let Some(created) = object(usage, "cache_creation")? {
            let long = number(created, "ephemeral_1h_input_tokens")?;
            self.cache_written_long = self.cache_written_long.max(long);
        }
        raise(&mut self.cache_read, apart[0]);
        raise(&mut self.cache_written, apart[1]);
        self.input = self.input.max(input);
        // Embeddings have no output, and say so by a total.
        let none = (output.is_none() && total.is_some() && total == input).then_some(0);
        if !is_begun || self.output.is_some() {
            self.output = self.output.max(output).max(none);
        }
        Ok(())
    }

    fn count_google(&mut self, usage: Value<'_>) -> Result<(), Lost> {
        self.form(true)?;
        let sum = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (None, other) => other,
            (Some(one), other) => Some(one + other.unwrap_or(0)),
        };
        let tools = number(usage, "toolUsePromptTokenCount")?;
        let input = number(usage, "promptTokenCount")?;
        let thought = number(usage, "thoughtsTokenCount")?;
        let output = number(usage, "candidatesTokenCount")?;
        let input = input.and_then(|input| sum(Some(input), tools));
        let total = number(usage, "totalTokenCount")?;
        let output = whole_output(input, sum(output, thought), total)?;
        self.input = self.input.max(input);
        self.output = self.output.max(output);
        raise(
            &mut self.cache_read,
            number(usage, "cachedContentTokenCount")?,
        );
        for name in [
            "promptTokensDetails",
            "candidatesTokensDetails",
            "cacheTokensDetails",
        ] {
            let list = member(usage, name);
            for (_, one) in list.into_iter().flat_map(Value::elements) {
                let is_text = one.member("modality").and_then(Value::text);
                let is_text = is_text.is_some_and(|kind| kind == "TEXT");
                self.has_other_kinds |= !is_text && number(one, "tokenCount")? != Some(0);
            }
        }
        Ok(())
    }

    /// Notes how input and caches are counted, which one answer says in one way.
    fn form(&mut self, is_whole: bool) -> Result<(), Lost> {
        match *self.is_whole.get_or_insert(is_whole) == is_whole {
            true => Ok(()),
            false => Err(Lost),
        }
    }

    fn kinds(&mut self, details: Value<'_>) -> Result<(), Lost> {
        for name in ["audio_tokens", "image_tokens", "video_tokens"] {
            self.has_other_kinds |= number(details, name)?.is_some_and(|count| count > 0);
        }
        Ok(())
    }

    fn usage(self) -> Option<Usage> {
        let cached = self.cache_read + self.cache_written;
        // A model that read nothing said nothing.
        let whole = self.input.filter(|input| *input + cached > 0)?;
        let input = match self.is_whole {
            Some(true) => whole.checked_sub(cached)?,
            _ => whole,
        };
        // What is written for how long may not be said; longer is dearer.
        let long = self.cache_written_long.unwrap_or(self.cache_written);
        Some(Usage {
            input,
            cache_read: self.cache_read,
            cache_written: self.cache_written.checked_sub(long)?,
            cache_written_long: long,
            output: self.output?,
            has_other_kinds: self.has_other_kinds,
            is_dearer: self.is_dearer,
        })
    }
}

/// The output, with all that a total has beside the input.
fn whole_output(
    input: Option<u64>,
    output: Option<u64>,
    total: Option<u64>,
) -> Result<Option<u64>, Lost> {
    let (Some(input), Some(total)) = (input, total) else {
        return Ok(output);
    };
    let beside = total.checked_sub(input).ok_or(Lost)?;
    match output {
        Some(output) if output <= beside => Ok(Some(beside)),
        None if beside == 0 => Ok(None),
        _ => Err(Lost),
    }
}

fn raise(known: &mut u64, said: Option<u64>) {
    *known = (*known).max(said.unwrap_or(0));
}

/// The member with this name, unless it is null.
fn member<'v>(value: Value<'v>, name: &str) -> Option<Value<'v>> {
    value.member(name).filter(|one| !one.is_null())
}

fn object<'v>(value: Value<'v>, name: &str) -> Result<Option<Value<'v>>, Lost> {
    let found = member(value, name);
    match found.is_none_or(Value::is_object) {
        true => Ok(found),
        false => Err(Lost),
    }
}

/// A count of tokens, unless none is said.
fn number(value: Value<'_>, name: &str) -> Result<Option<u64>, Lost> {
    let Some(said) = member(value, name) else {
        return Ok(None);
    };
    let count = said.number().and_then(|count| u64::try_from(count).ok());
    count
        .filter(|count| *count <= MOST_TOKENS)
        .map(Some)
        .ok_or(Lost)
}

const USAGE: &str = "usage";
const METADATA: &str = "usageMetadata";
const TIER: &str = "service_tier";
const REGION: &str = "inference_geo";
/// The event of Anthropic that begins an answer has its message inside.
const BEGUN: &str = "message";
/// Where else a usage stands: in the last event of a response, and in the first of a message.
const INSIDE: [(&str, &str); 2] = [("response", USAGE), (BEGUN, USAGE)];

/// The tiers and regions that cost what the list says, or less.
const ORDINARY: [&str; 8] = [
    "auto",
    "batch",
    "default",
    "flex",
    "global",
    "not_available",
    "on_demand",
    "standard",
];

const MOST_JSON: usize = 4 << 20;
const MOST_EVENT: usize = 1 << 20;
const MOST_TOKENS: u64 = 1 << 40;

#[cfg(test)]
mod tests;
