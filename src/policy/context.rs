//! The Cedar context of a request: only the attributes that are asked for.

use std::time::UNIX_EPOCH;

use cedar_policy::{Context, EntityUid, RestrictedExpression as Value};

use super::attribute::{Attribute, Attributes};
use super::facts::{Facts, Fault, Loan};
use super::readings::{FieldReadings, QueryReadings, content_type};
use crate::message::Scheme;

/// Builds the context's attributes in `reads`, of those that the action has.
///
/// # Errors
/// [`Fault`] by cause.
pub(super) fn context(
    reads: Attributes,
    facts: &Facts<'_>,
    loan: Option<(Loan<'_>, &EntityUid)>,
) -> Result<Context, Fault> {
    let mut pairs: Vec<(String, Value)> = Vec::new();
    let parts = Parts::of(reads, facts)?;
    for attribute in reads.and(Attributes::REQUEST).iter() {
        pairs.push((
            attribute.name().to_owned(),
            value(attribute, facts, &parts)?,
        ));
    }
    if let Some((loan, origin)) = loan {
        for attribute in reads.iter() {
            let value = match attribute {
                Attribute::Credential => text(loan.credential.as_str()),
                Attribute::Origin => Value::new_entity_uid(origin.clone()),
                Attribute::Place => text(loan.place),
                _ => continue,
            };
            pairs.push((attribute.name().to_owned(), value));
        }
    }
    Context::from_pairs(pairs).map_err(|_| Fault::Context)
}

/// What several attributes are made from, parsed once and only if one of them is read.
struct Parts {
    query: Option<QueryReadings>,
    fields: Option<FieldReadings>,
}

impl Parts {
    fn of(reads: Attributes, facts: &Facts<'_>) -> Result<Self, Fault> {
        let query = [
            Attribute::Query,
            Attribute::QueryOnce,
            Attribute::QueryNames,
        ];
        let fields = [
            Attribute::Fields,
            Attribute::FieldsOnce,
            Attribute::FieldNames,
        ];
        Ok(Self {
            query: reads
                .holds_any(&query)
                .then(|| QueryReadings::of(facts.target.query().unwrap_or_default()))
                .transpose()?,
            fields: reads
                .holds_any(&fields)
                .then(|| FieldReadings::of(facts.fields))
                .transpose()?,
        })
    }
}

fn value(attribute: Attribute, facts: &Facts<'_>, parts: &Parts) -> Result<Value, Fault> {
    let query = parts.query.as_ref();
    let fields = parts.fields.as_ref();
    Ok(match attribute {
        Attribute::Session => text(facts.session.as_str()),
        Attribute::Groups => texts(facts.groups),
        Attribute::Labels => texts(facts.labels),
        Attribute::Entry => text(facts.entry),
        Attribute::Now => now(facts)?,
        Attribute::Scheme => text(facts.scheme.as_str()),
        Attribute::Secure => Value::new_bool(facts.scheme == Scheme::Https),
        Attribute::Host => text(facts.host.as_str()),
        Attribute::Port => Value::new_long(facts.port.into()),
        Attribute::Method => text(facts.method),
        Attribute::Path => text(facts.target.path()),
        Attribute::Prefixes => Value::new_set(prefixes(facts.target.path())?.into_iter().map(text)),
        Attribute::Segments => texts(
            segments(facts.target.path())?
                .enumerate()
                .map(|(place, segment)| format!("{place}:{segment}")),
        ),
        Attribute::Depth => {
            let depth = segments(facts.target.path())?.count();
            Value::new_long(depth.try_into().map_err(|_| Fault::TooManySegments)?)
        }
        Attribute::Query => texts(query.iter().flat_map(|query| &query.every)),
        Attribute::QueryOnce => texts(query.iter().flat_map(|query| &query.once)),
        Attribute::QueryNames => texts(query.iter().flat_map(|query| &query.names)),
        Attribute::Fields => texts(fields.iter().flat_map(|fields| &fields.every)),
        Attribute::FieldsOnce => texts(fields.iter().flat_map(|fields| &fields.once)),
        Attribute::FieldNames => texts(fields.iter().flat_map(|fields| &fields.names)),
        Attribute::ContentType => Value::new_string(content_type(facts.fields)?),
        // Beyond what Cedar counts is as large as it can count.
        Attribute::ContentLength => Value::new_long(
            facts
                .content_length
                .map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX)),
        ),
        Attribute::Upgrade => text(facts.upgrade),
        Attribute::Credentials => texts(facts.credentials.iter().map(|name| name.as_str())),
        Attribute::Actions => texts(facts.actions),
        Attribute::Credential | Attribute::Origin | Attribute::Place => return Err(Fault::Context),
    })
}

fn text(text: &str) -> Value {
    Value::new_string(text.to_owned())
}

fn texts(all: impl IntoIterator<Item = impl AsRef<str>>) -> Value {
    Value::new_set(all.into_iter().map(|one| text(one.as_ref())))
}

fn now(facts: &Facts<'_>) -> Result<Value, Fault> {
    let since = facts
        .now
        .duration_since(UNIX_EPOCH)
        .map_err(|_| Fault::Clock)?;
    let seconds = i64::try_from(since.as_secs()).map_err(|_| Fault::Clock)?;
    let at = time::OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| Fault::Clock)?;
    if at.year() > 9999 {
        return Err(Fault::Clock);
    }
    let (hour, minute, second) = at.to_hms();
    Ok(Value::new_datetime(format!(
        "{:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
        at.year(),
        u8::from(at.month()),
        at.day(),
        since.subsec_millis()
    )))
}

/// The path's segments; those of `/` are none, and a slash at the end begins none.
fn segments(path: &str) -> Result<impl Iterator<Item = &str>, Fault> {
    let inner = path.strip_prefix('/').unwrap_or_default();
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    if inner.split('/').count() > Fault::MAX_SEGMENTS {
        return Err(Fault::TooManySegments);
    }
    Ok(inner.split('/').skip(usize::from(inner.is_empty())))
}

/// Every part of the path that ends with a segment, from `/` on.
fn prefixes(path: &str) -> Result<Vec<&str>, Fault> {
    let mut all = vec!["/"];
    let mut end = 0;
    for segment in segments(path)? {
        end += 1 + segment.len();
        if !segment.is_empty() {
            all.push(&path[..end]);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments_of(path: &str) -> Vec<&str> {
        segments(path).unwrap().collect()
    }

    #[test]
    fn prefixes_end_with_whole_segments() {
        assert_eq!(
            prefixes("/repos/o/r-evil").unwrap(),
            ["/", "/repos", "/repos/o", "/repos/o/r-evil"]
        );
        assert_eq!(
            prefixes("/graphql-explorer").unwrap(),
            ["/", "/graphql-explorer"]
        );
        assert_eq!(prefixes("/").unwrap(), ["/"]);
        assert_eq!(prefixes("/a/").unwrap(), ["/", "/a"]);
        assert_eq!(prefixes("/a//b").unwrap(), ["/", "/a", "/a//b"]);
    }

    #[test]
    fn segments_have_their_places() {
        assert_eq!(segments_of("/repos/o/r"), ["repos", "o", "r"]);
        assert_eq!(segments_of("/a//b/"), ["a", "", "b"]);
        assert!(segments_of("/").is_empty());
    }

    #[test]
    fn a_flood_of_segments_is_not_judged() {
        assert!(prefixes(&"/a".repeat(64)).is_ok());
        assert_eq!(
            prefixes(&"/a".repeat(65)).unwrap_err(),
            Fault::TooManySegments
        );
        assert_eq!(
            prefixes(&"/".repeat(8192)).unwrap_err(),
            Fault::TooManySegments
        );
    }
}
