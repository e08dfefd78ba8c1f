//! Templates: the text of a description in which `{…}` is replaced by a value, or, in a place,
//! parsed.
//!
//! `{term|filter|filter}`; `{{` and `}}` are braces. A term is a name, a source with arguments
//! (`header(date)`) or a quoted literal (`'text'`).

use http::HeaderName;

use super::canonical::{FieldStyle, ParameterStyle, Parameters, Selection};
use super::filter::Filter;
use super::name::{Name, Resolve, named_variant};
use super::timestamp::TimeFormat;

/// Text and values, alternating.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template(pub(super) Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Text(Box<str>),
    Value(Term, Vec<Filter>),
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Term {
    Literal(Box<str>),
    Name(Name),
    Method,
    /// As in a `Host` field: with the port, unless it is the scheme's default.
    Host,
    Scheme,
    Path,
    /// Without its `?`, and without the signature.
    Query,
    /// Path, followed by `?` and query if there is one.
    Target,
    Content,
    Header(HeaderName),
    /// A parameter of the query, decoded.
    QueryParameter(Box<str>),
    /// The time that the request claims or gets, in another format.
    Time(TimeFormat),
    Fields(Selection, FieldStyle),
    /// The names of selected fields that the request has, joined.
    FieldNames(Selection, Box<str>),
    Parameters(Parameters, ParameterStyle),
    /// The first label of the host, if the second starts with this: a bucket before its service.
    Bucket(Box<str>),
    /// RFC 9421 §2.5: the signature base of the components in the value.
    SignatureBase(Name),
    /// The public key of the named part, as a JSON Web Key in the order of RFC 7638.
    Jwk(Name),
}

impl Term {
    /// The name that it depends on.
    pub(super) fn name(&self) -> Option<Name> {
        match self {
            Term::Name(name) | Term::SignatureBase(name) | Term::Jwk(name) => Some(*name),
            Term::Fields(selection, _) | Term::FieldNames(selection, _) => selection.name(),
            _ => None,
        }
    }
}

impl Template {
    /// Parses a template; each error says what is wrong.
    pub(super) fn parse(text: &str, resolve: Resolve<'_>) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let found = &rest[at..];
            if let Some(after) = found
                .strip_prefix("{{")
                .or_else(|| found.strip_prefix("}}"))
            {
                plain.push_str(&found[..1]);
                rest = after;
                continue;
            }
            let inner = found
                .strip_prefix('{')
                .ok_or("a `}` closes nothing; a brace itself is `}}`")?;
            let end = closing(inner).ok_or("a `{` is not closed")?;
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain).into()));
            }
            pieces.push(value(&inner[..end], resolve)?);
            rest = &inner[end + 1..];
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain.into()));
        }
        Ok(Template(pieces))
    }

    /// Every name that it depends on.
    pub(super) fn names(&self) -> impl Iterator<Item = Name> {
        self.values().flat_map(|(term, filters)| {
            term.name()
                .into_iter()
                .chain(filters.iter().filter_map(Filter::name))
        })
    }

    /// The values in it.
    pub(super) fn values(&self) -> impl Iterator<Item = (&Term, &[Filter])> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Value(term, filters) => Some((term, filters.as_slice())),
            Piece::Text(_) => None,
        })
    }

    /// Whether its output can be parsed: only names, whose filters can be undone, and text between
    /// each two.
    pub(super) fn is_readable(&self) -> bool {
        let simple = self.values().all(|(term, filters)| {
            matches!(
                term,
                Term::Name(Name::Part(_) | Name::Value(_) | Name::Signature)
            ) && filters.iter().all(Filter::is_invertible)
        });
        let touching = |pair: &[Piece]| matches!(pair, [Piece::Value(..), Piece::Value(..)]);
        simple && !self.0.windows(2).any(touching)
    }

    /// Parses a place's text: the values by name, or `None` if it does not have this form.
    ///
    /// A space after a comma or semicolon is optional: clients differ in it, services do not care.
    pub(super) fn read(&self, text: &[u8]) -> Option<Vec<(Name, Vec<u8>)>> {
        let mut found = Vec::new();
        let mut rest = text;
        let mut pieces = self.0.iter().peekable();
        while let Some(piece) = pieces.next() {
            match piece {
                Piece::Text(text) => rest = &rest[literal(rest, text.as_bytes())?..],
                Piece::Value(Term::Name(name), filters) => {
                    let end = match pieces.peek() {
                        Some(Piece::Text(next)) => (0..rest.len())
                            .find(|at| literal(&rest[*at..], next.as_bytes()).is_some())?,
                        _ => rest.len(),
                    };
                    let mut value = rest[..end].to_vec();
                    for filter in filters.iter().rev() {
                        value = filter.invert(value)?;
                    }
                    found.push((*name, value));
                    rest = &rest[end..];
                }
                Piece::Value(..) => return None,
            }
        }
        rest.is_empty().then_some(found)
    }
}

/// How many bytes at the start match this text, with its optional spaces.
fn literal(bytes: &[u8], text: &[u8]) -> Option<usize> {
    let mut at = 0;
    let mut free = false;
    for &wanted in text {
        if free {
            at += bytes[at..].iter().take_while(|byte| **byte == b' ').count();
            free = false;
            if wanted == b' ' {
                continue;
            }
        }
        if *bytes.get(at)? != wanted {
            return None;
        }
        at += 1;
        free = matches!(wanted, b',' | b';');
    }
    if free {
        at += bytes[at..].iter().take_while(|byte| **byte == b' ').count();
    }
    Some(at)
}

/// The position of the brace that ends an expression, skipping quotes.
fn closing(text: &str) -> Option<usize> {
    let mut quoted = false;
    text.char_indices().find_map(|(at, char)| {
        quoted ^= char == '\'';
        (char == '}' && !quoted).then_some(at)
    })
}

fn value(text: &str, resolve: Resolve<'_>) -> Result<Piece, String> {
    let mut calls = split(text, '|').into_iter();
    let first = calls.next().ok_or("`{}` is empty")?;
    let term = term(first, resolve)?;
    let filters = calls
        .map(|text| {
            let (name, arguments) = call(text)?;
            Filter::parse(name, &arguments, resolve)
        })
        .collect::<Result<_, String>>()?;
    Ok(Piece::Value(term, filters))
}

fn term(text: &str, resolve: Resolve<'_>) -> Result<Term, String> {
    if let Some(literal) = quoted(text) {
        return Ok(Term::Literal(literal.into()));
    }
    let (name, arguments) = call(text)?;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let named = |argument: &str| {
        resolve(argument).ok_or_else(|| format!("`{argument}` names no part, value or step"))
    };
    Ok(match (name, arguments.as_slice()) {
        ("method", []) => Term::Method,
        ("host", []) => Term::Host,
        ("scheme", []) => Term::Scheme,
        ("path", []) => Term::Path,
        ("query", []) => Term::Query,
        ("target", []) => Term::Target,
        ("content", []) => Term::Content,
        ("header", [field]) => Term::Header(
            HeaderName::from_bytes(field.as_bytes())
                .map_err(|_| format!("`{field}` is no field name"))?,
        ),
        ("query", [parameter]) => Term::QueryParameter((*parameter).into()),
        ("time", [form]) => Term::Time(
            TimeFormat::parse(form).ok_or_else(|| format!("`{form}` is no form of time"))?,
        ),
        ("fields", [selection, style]) => Term::Fields(
            Selection::parse(selection, resolve)?,
            named_variant(style).ok_or_else(|| format!("there is no style of fields `{style}`"))?,
        ),
        ("field-names", [selection, separator]) => {
            Term::FieldNames(Selection::parse(selection, resolve)?, (*separator).into())
        }
        ("parameters", [sources, style]) => Term::Parameters(
            Parameters::parse(sources)?,
            named_variant(style)
                .ok_or_else(|| format!("there is no style of parameters `{style}`"))?,
        ),
        ("bucket", [prefix]) => Term::Bucket((*prefix).into()),
        ("signature-base", [name]) => Term::SignatureBase(named(name)?),
        ("jwk", [name]) => Term::Jwk(named(name)?),
        (name, []) => Term::Name(named(name)?),
        (name, _) => {
            let count = arguments.len();
            return Err(format!("there is no `{name}` with {count} arguments"));
        }
    })
}

/// `name(argument, 'argument')`, or a bare name.
fn call(text: &str) -> Result<(&str, Vec<String>), String> {
    let text = text.trim();
    let Some((name, rest)) = text.split_once('(') else {
        return Ok((text, Vec::new()));
    };
    let inner = rest
        .strip_suffix(')')
        .ok_or_else(|| format!("`{name}(` is not closed"))?;
    let arguments = split(inner, ',').into_iter().map(|argument| {
        let argument = argument.trim();
        quoted(argument).unwrap_or(argument).to_owned()
    });
    Ok((name, arguments.collect()))
}

fn quoted(text: &str) -> Option<&str> {
    text.trim().strip_prefix('\'')?.strip_suffix('\'')
}

/// Splits outside quotes and parentheses.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut quoted, mut depth) = (false, 0usize);
    text.split(|char| {
        quoted ^= char == '\'';
        match char {
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        char == separator && !quoted && depth == 0
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(name: &str) -> Option<Name> {
        match name {
            "key" => Some(Name::Part(0)),
            "signed" => Some(Name::Value(0)),
            "signature" => Some(Name::Signature),
            _ => None,
        }
    }

    fn parsed(text: &str) -> Template {
        Template::parse(text, &resolve).unwrap()
    }

    #[test]
    fn a_place_is_read_as_it_is_written() {
        let place = parsed("X Credential={key}, SignedHeaders={signed},Signature={signature|hex}");
        assert!(place.is_readable());
        let wanted = vec![
            (Name::Part(0), b"AK".to_vec()),
            (Name::Value(0), b"a;b".to_vec()),
            (Name::Signature, vec![1, 0xff]),
        ];
        for text in [
            "X Credential=AK, SignedHeaders=a;b,Signature=01ff",
            "X Credential=AK,SignedHeaders=a;b,  Signature=01FF",
        ] {
            assert_eq!(
                place.read(text.as_bytes()).as_ref(),
                Some(&wanted),
                "{text}"
            );
        }
        for text in [
            "Y Credential=AK, SignedHeaders=a;b,Signature=01ff",
            "X Credential=AK, Signature=01ff,SignedHeaders=a;b",
            "X Credential=AK, SignedHeaders=a;b,Signature=01fg",
            "X Credential=AK, SignedHeaders=a;b,Signature=01ff ",
            "",
        ] {
            assert_eq!(place.read(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_undone_is_not_readable() {
        for text in ["{key}{signed}", "{key|sha256}", "{content}", "{'x'}"] {
            assert!(!parsed(text).is_readable(), "{text}");
        }
    }

    #[test]
    fn braces_quotes_and_mistakes() {
        assert_eq!(parsed("{{a}}"), Template(vec![Piece::Text("{a}".into())]));
        assert_eq!(
            parsed("{'a}|b'}"),
            Template(vec![Piece::Value(Term::Literal("a}|b".into()), Vec::new())])
        );
        for text in [
            "{",
            "}",
            "{}",
            "{nobody}",
            "{key|nothing}",
            "{key|first}",
            "{header(a b)}",
            "{key|hex(1)}",
        ] {
            assert!(Template::parse(text, &resolve).is_err(), "{text}");
        }
    }
}
