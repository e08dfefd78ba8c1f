//! One JSON document, in which only the wanted members are kept.

use gateway_message::json::{JsonParts, Value};
use gateway_message::{folded, folded_parameter};
use http::HeaderMap;

use super::parsed_request::{ParsedRequest, Unread};
use crate::Coding;
use crate::fact::{FactValue, is_named, of_string};

/// The members of an object that are kept, each with a shape of its own. A list is transparent: its
/// elements have the shape of the list.
#[derive(Clone, Copy)]
pub(super) struct Shape(pub &'static [(&'static str, Shape)]);

/// A value without members that are kept.
pub(super) const LEAF: Shape = Shape(&[]);

impl Shape {
    /// Wants a value of this shape, with all names of its objects.
    pub fn want(self, wanted: &mut JsonParts<'_>) {
        if self.0.is_empty() {
            return;
        }
        wanted.each().names();
        for (name, shape) in self.0 {
            shape.want(wanted.member_of(name));
        }
    }

    /// Checks that no name is another spelling of a wanted one, which only some origins would read.
    fn check(self, value: Value<'_>) -> bool {
        let mut listed = value.elements();
        let mut members = value.members();
        self.0.is_empty()
            || listed.all(|(_, one)| self.check(one))
                && members.all(|(name, value)| {
                    let spelt = folded(name);
                    let mut all = self.0.iter();
                    match all.find(|(one, _)| folded(one) == spelt) {
                        Some((one, shape)) => *one == name && shape.check(value),
                        None => true,
                    }
                })
    }
}

/// The members of an object that are not null.
pub(super) fn members<'v>(
    value: Value<'v>,
) -> impl Iterator<Item = (&'v str, Value<'v>)> + use<'v> {
    value.members().filter(|(_, one)| !one.is_null())
}

/// The member with this name, unless it is null.
pub(super) fn member<'v>(value: Value<'v>, name: &str) -> Option<Value<'v>> {
    value.member(name).filter(|one| !one.is_null())
}

/// The text, if the value is a string that is read.
pub(super) fn text(value: Value<'_>) -> Option<String> {
    match of_string(&value.text()?)? {
        FactValue::String(text) => Some(text),
        _ => None,
    }
}

/// The content as one document of this shape. The query must name no member that is wanted from
/// it, since many origins merge both.
pub(super) fn document<'a>(asked: &ParsedRequest<'a>, shape: Shape) -> Result<Value<'a>, Unread> {
    if !asked.content.is_json() {
        return Err("the content is not declared as JSON in UTF-8, once");
    }
    if shape.0.iter().any(|(name, _)| in_query(asked, name)) {
        return Err("the query says something that the content says too");
    }
    let read = asked.content.json().filter(|root| shape.check(*root));
    read.ok_or("the content is not one JSON document that every reader reads alike")
}

/// Whether the content has no coding.
pub(super) fn is_plain(fields: &HeaderMap) -> bool {
    Coding::parse_list(fields).is_ok_and(|codings| codings.is_empty())
}

/// Whether the query has a parameter with this name, in any spelling.
pub(super) fn in_query(asked: &ParsedRequest<'_>, name: &str) -> bool {
    is_named(asked.content.query(), &[folded_parameter(name)])
}
