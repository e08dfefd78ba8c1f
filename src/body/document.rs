//! The content of a request, read once: JSON, a form, a form in parts, or text.
//!
//! A caller first names the values that it needs ([`Questions`]), so that memory is bounded by
//! these and not by the content. One pass then finds them, if all readers agree on them.

use gateway_message::json::{Json, JsonFault, JsonParts, Value, begins_as_json};
use gateway_message::{FormName, Place};
use http::HeaderMap;
use http::header::CONTENT_TYPE;

use crate::fact::{
    AmbiguousJson, ContentKind, FactType, FactValue, Location, Pairs, Part, PlainContent,
    ValueSpan, is_text, json, multipart_fact, multipart_parts, of_string, of_text,
};
use crate::{FormFault, FormKind, Member};

/// The values that are needed from a document.
#[derive(Default)]
pub struct Questions<'a> {
    json: JsonParts<'a>,
    names: Vec<FormName>,
    is_asked: Option<&'a NameFilter<'a>>,
}

/// Whether members of this name are asked for.
type NameFilter<'a> = dyn Fn(&str) -> bool + 'a;

impl<'a> Questions<'a> {
    /// Asks for a fact.
    pub fn fact(&mut self, location: &Location, kind: FactType) {
        match location {
            Location::Json(pointer) => {
                let wanted = self.json.at(pointer.tokens());
                if kind == FactType::Strings {
                    wanted.texts();
                }
            }
            Location::Form(name) => self.names.push(name.clone()),
            Location::Multipart(_) | Location::Text => {}
        }
    }

    /// The selection of values in a JSON document.
    pub(crate) fn json(&mut self) -> &mut JsonParts<'a> {
        &mut self.json
    }

    /// Asks for the value at a place.
    pub fn place(&mut self, place: &Place) {
        match place {
            Place::Form(name) => self.names.push(name.clone()),
            Place::Json(pointer) => drop(self.json.at(pointer.tokens())),
            _ => {}
        }
    }

    /// Asks for the outermost members whose names `is_asked` accepts.
    pub fn members(&mut self, is_asked: &'a NameFilter<'a>) {
        self.json.asked(is_asked);
        self.is_asked = Some(is_asked);
    }
}

/// The content of a request, parsed.
pub struct Document<'c> {
    fields: &'c HeaderMap,
    query: &'c str,
    content: &'c PlainContent,
    is_asked: Option<&'c NameFilter<'c>>,
    kind: Option<FormKind>,
    /// The declared format, if every reader understands the declaration alike.
    declared: Option<ContentKind>,
    json: Option<Result<Json<'c>, FormFault>>,
    pairs: Option<Pairs>,
    parts: Option<Vec<Part>>,
}

impl<'c> Document<'c> {
    /// Reads the content of a request that has these fields and this query.
    pub fn read(
        fields: &'c HeaderMap,
        query: &'c str,
        content: &'c PlainContent,
        questions: &'c Questions<'c>,
    ) -> Self {
        let PlainContent { bytes, streams, .. } = content;
        let kind = FormKind::of_decoded(fields).ok().flatten();
        let is_json = match kind {
            Some(FormKind::Json) => true,
            Some(FormKind::Pairs) => begins_as_json(bytes),
            _ => false,
        };
        let json = || {
            #[cfg(test)]
            tests::count_walk();
            Json::read(bytes, &questions.json).map_err(doubt)
        };
        let declared = ContentKind::of(fields);
        let has_names = declared == Some(ContentKind::Form) && !questions.names.is_empty();
        let is_form = kind == Some(FormKind::Pairs) && (has_names || questions.is_asked.is_some());
        let pairs = || {
            let is_asked = questions.is_asked.unwrap_or(&|_| false);
            Pairs::read((query, bytes, &content.coded), &questions.names, is_asked)
        };
        Self {
            fields,
            query,
            content,
            is_asked: questions.is_asked,
            kind,
            declared,
            json: is_json.then(json),
            pairs: is_form.then(pairs),
            parts: (kind == Some(FormKind::Parts))
                .then(|| multipart_parts(fields, bytes, *streams))
                .flatten(),
        }
    }

    /// The fields of the request.
    pub fn fields(&self) -> &'c HeaderMap {
        self.fields
    }

    /// The query of the request.
    pub fn query(&self) -> &'c str {
        self.query
    }

    /// The content that was read.
    pub fn content(&self) -> &'c PlainContent {
        self.content
    }

    /// The value of a fact, if every origin reads it there, once and of its type. A value that also
    /// stands in the query counts as repeated, since many origins merge both; so does one in the
    /// coded bytes of a form, which some origins read.
    pub fn fact(&self, location: &Location, kind: FactType) -> Option<FactValue> {
        match location {
            Location::Json(pointer) => json::fact(self.json()?, pointer, self.query, kind),
            Location::Form(name) => {
                let (text, _) = self.form()?.one(name)?;
                of_text(text, kind)
            }
            Location::Multipart(name) => {
                let PlainContent { bytes, coded, .. } = self.content;
                let at = multipart_fact(self.query, name, self.parts.as_deref()?)?;
                let text = std::str::from_utf8(&bytes[at]).ok();
                of_text(text.filter(|_| coded.is_empty())?, kind)
            }
            Location::Text => of_text(self.text()?, kind),
        }
    }

    /// The value at a place, which content of its kind may have once. `None` in a form, of either
    /// kind, that readers may disagree about.
    ///
    /// # Errors
    /// [`AmbiguousJson`] if the place is in JSON, and the content is JSON that readers may disagree
    /// about.
    pub fn spot(&self, place: &Place) -> Result<Option<ValueSpan>, AmbiguousJson> {
        match place {
            Place::Form(name) => Ok(self.pairs_declared().and_then(|pairs| {
                let (text, at) = pairs.one(name)?;
                of_string(text)?;
                Some(ValueSpan::exact(at, Some(text.to_owned())))
            })),
            Place::Multipart(name) => {
                let mut named = self.parts.iter().flatten();
                let mut named = named.by_ref().filter(|one| one.name == name.as_str());
                let (Some(one), None) = (named.next(), named.next()) else {
                    return Ok(None);
                };
                let at = one.value.clone();
                Ok(at.map(|at| ValueSpan::exact(at, self.part_text(one))))
            }
            Place::Json(pointer) => match (&self.json, self.declared) {
                (Some(Ok(json)), Some(ContentKind::Json)) => {
                    json::spot(json.root(), pointer, self.query)
                }
                (Some(Err(_)), Some(ContentKind::Json)) => Err(AmbiguousJson),
                // Some readers ignore the type.
                _ if begins_as_json(&self.content.bytes) => Err(AmbiguousJson),
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// The members that were asked for. In a form, all pairs that any reader may read as one.
    ///
    /// # Errors
    /// [`FormFault`] if readers may disagree about JSON, or about the parts of a form.
    pub fn members(&self) -> Result<Vec<Member>, FormFault> {
        let Some(is_asked) = self.is_asked else {
            return Ok(Vec::new());
        };
        if self.kind == Some(FormKind::Parts) {
            return self.members_of_parts(is_asked);
        }
        let mut members = match &self.json {
            Some(Ok(json)) => json::members(json.root(), is_asked),
            Some(Err(why)) if !self.content.bytes.trim_ascii().is_empty() => return Err(*why),
            _ => Vec::new(),
        };
        if let Some(pairs) = &self.pairs {
            members.extend(pairs.members(is_asked));
        }
        Ok(members)
    }

    /// The parameters of the query that were asked for, in any reading of their names.
    pub fn query_members(&self) -> Vec<Member> {
        let is_asked = self.is_asked.unwrap_or(&|_| false);
        let pairs = Pairs::read(("", self.query.as_bytes(), b""), &[], is_asked);
        pairs.members(is_asked).collect()
    }

    fn members_of_parts(&self, is_asked: &NameFilter<'_>) -> Result<Vec<Member>, FormFault> {
        let parts = self.parts.as_ref().ok_or(FormFault::Disputed)?;
        let asked = parts.iter().filter_map(|part| {
            let value = self.part_text(part);
            part.guarded_as(is_asked).map(|name| Member { name, value })
        });
        Ok(asked.collect())
    }

    /// The value of a part, if it is a field and text.
    fn part_text(&self, part: &Part) -> Option<String> {
        let bytes = &self.content.bytes[part.value.clone()?];
        std::str::from_utf8(bytes).ok().map(str::to_owned)
    }

    /// Whether the content is a form in parts that some reader may split differently.
    pub fn is_unsplit(&self) -> bool {
        self.kind == Some(FormKind::Parts) && self.parts.is_none()
    }

    /// The JSON document, if every reader reads the content as one.
    pub(crate) fn json(&self) -> Option<Value<'_>> {
        match &self.json {
            Some(Ok(json)) if self.is_json() => Some(json.root()),
            _ => None,
        }
    }

    /// Whether the content is declared as JSON, and no reader reads it as anything else.
    pub(crate) fn is_json(&self) -> bool {
        self.declared() == Some(ContentKind::Json)
    }

    /// Whether a watched name occurs in the document.
    pub(crate) fn is_seen(&self) -> bool {
        matches!(&self.json, Some(Ok(json)) if json.is_seen())
    }

    /// The format that is declared for the content, unless some reader would read another.
    fn declared(&self) -> Option<ContentKind> {
        // Some readers skip the byte order mark (U+FEFF), others read it as the first character.
        let has_mark = self.content.bytes.starts_with(b"\xef\xbb\xbf");
        let is_other = has_mark || json::begins_with_document(&self.content.coded);
        self.declared.filter(|_| !is_other)
    }

    /// A form that is declared as one.
    fn pairs_declared(&self) -> Option<&Pairs> {
        let pairs = self.pairs.as_ref();
        pairs.filter(|_| self.declared == Some(ContentKind::Form))
    }

    fn form(&self) -> Option<&Pairs> {
        let declared = self.declared();
        self.pairs_declared().filter(|_| declared.is_some())
    }

    /// The content as text, if every reader reads it as that.
    fn text(&self) -> Option<&'c str> {
        let is_plain = is_text(self.fields) && self.content.coded.is_empty();
        let text = std::str::from_utf8(&self.content.bytes).ok()?;
        // Some readers would read this as JSON, or as a form if no type is declared.
        let is_other = begins_as_json(text.as_bytes())
            || !self.fields.contains_key(CONTENT_TYPE) && text.contains(['=', '&', '%']);
        (is_plain && !is_other && !text.starts_with('\u{feff}')).then_some(text)
    }
}

fn doubt(why: JsonFault) -> FormFault {
    match why {
        JsonFault::Malformed(_) => FormFault::Json,
        JsonFault::Doubled | JsonFault::Excess => FormFault::Disputed,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use gateway_message::Pointer;
    use http::{HeaderValue, Method};

    use super::*;

    use crate::read::{ParsedRequest, Protocol};

    // How many JSON documents this thread read.
    thread_local!(static WALKS: Cell<usize> = const { Cell::new(0) });

    pub(super) fn count_walk() {
        WALKS.set(WALKS.get() + 1);
    }

    #[test]
    fn a_place_two_facts_a_protocol_and_members_are_found_in_one_walk() {
        let content = br#"{"method":"tools/call","params":{"name":"pay","arguments":{"sum":7,"to":"x"}},"token":"t"}"#;
        let content = PlainContent {
            bytes: content.to_vec().into(),
            ..PlainContent::default()
        };
        let json = HeaderValue::from_static("application/json");
        let fields = HeaderMap::from_iter([(CONTENT_TYPE, json)]);
        let (place, is_asked) = ("json:/token".parse().unwrap(), |name: &str| name == "token");
        let facts = [("/sum", FactType::Long), ("/to", FactType::String)];
        let facts = facts.map(|(at, kind)| (at.parse::<Pointer>().unwrap(), kind));
        let before = WALKS.get();
        let mut questions = Questions::default();
        questions.place(&place);
        questions.members(&is_asked);
        Protocol::Mcp.ask(&mut questions);
        for (pointer, kind) in &facts {
            Protocol::ask_argument(pointer, *kind, &mut questions);
        }
        let document = Document::read(&fields, "", &content, &questions);
        let asked = ParsedRequest {
            host: "api.test",
            method: &Method::POST,
            path: "/mcp",
            upgrades: false,
            content: &document,
        };
        let called = Protocol::Mcp.arguments(&asked, "pay").unwrap();
        let values = facts.map(|(pointer, kind)| {
            let pointer = pointer.below(called.iter().cloned());
            document.fact(&Location::Json(pointer), kind)
        });
        let expected = [FactValue::Long(7), FactValue::String("x".into())];
        assert_eq!(values, expected.map(Some));
        let read = Protocol::Mcp.read(&asked);
        let tools = FactValue::Strings(vec!["pay".into()]);
        assert_eq!(read[1], ("mcp.tools", Ok(tools)));
        let spot = document.spot(&place).unwrap().unwrap();
        assert_eq!(spot.text.as_deref(), Some("t"));
        assert_eq!(document.members().unwrap().len(), 1);
        assert_eq!(WALKS.get() - before, 1);
    }
}
