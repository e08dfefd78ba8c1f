//! HTTP Message Signatures (RFC 9421): the components that a signature covers, its parameters, and
//! the text to sign.

use http::HeaderName;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use super::encoding::pairs;
use super::fault::Fault;
use super::nonce::{Nonce, NonceFormat};
use super::timestamp::Timestamp;
use gateway_message::RequestHead;

/// The rules for rewriting the value of `Signature-InnerList`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Components {
    /// The components to cover besides the client's: `@` names always, fields if the request has
    /// them.
    pub(super) wanted: Vec<String>,
    /// The `alg` that the client may name.
    pub(super) algorithm: String,
    /// How far in the future the expiry may lie, in seconds.
    pub(super) longest: u32,
}

/// The values that are new in each signature.
pub(super) struct FreshValues<'a> {
    pub(super) key_id: &'a [u8],
    pub(super) now: Timestamp,
    pub(super) nonce: &'a Nonce,
}

impl Components {
    /// The value for our own signature: the client's components and the wanted ones, with our time,
    /// key and nonce.
    pub(super) fn renewed(
        &self,
        claimed: &str,
        head: &RequestHead,
        fresh: &FreshValues<'_>,
    ) -> Result<String, Fault> {
        let input = InnerList::parse(claimed).ok_or(Fault::Undecodable)?;
        let key_id = std::str::from_utf8(fresh.key_id)
            .ok()
            .and_then(string)
            .ok_or(Fault::Undecodable)?;
        let covered = self.covered(&input, head).join(" ");
        let created = fresh.now.0 / 1000;
        let mut out = format!("({covered});created={created};keyid={key_id}");
        for (name, value) in &input.parameters {
            out.push_str(&self.parameter(name, value, fresh)?);
        }
        Ok(out)
    }

    /// The identifiers of the client's components, and of the wanted ones.
    fn covered(&self, input: &InnerList<'_>, head: &RequestHead) -> Vec<String> {
        let items = input.items.iter();
        let mut covered: Vec<String> = items.map(|item| item.text.to_owned()).collect();
        for name in &self.wanted {
            let identifier = format!("\"{name}\"");
            if !covered.contains(&identifier)
                && (name.starts_with('@') || head.fields.contains_key(name.as_str()))
            {
                covered.push(identifier);
            }
        }
        covered
    }

    /// A client's parameter as we write it; empty for `created` and `keyid`, which are always
    /// written.
    fn parameter(&self, name: &str, value: &str, fresh: &FreshValues<'_>) -> Result<String, Fault> {
        Ok(match name {
            "created" | "keyid" => String::new(),
            "expires" => {
                let wanted: i64 = value
                    .parse()
                    .map_err(|_| Fault::Malformed("expires".to_owned()))?;
                let latest = fresh.now.later(self.longest).0 / 1000;
                format!(";expires={}", wanted.min(latest))
            }
            "nonce" => {
                let nonce = NonceFormat::Alphanumeric(32).write(fresh.nonce);
                format!(";nonce=\"{nonce}\"")
            }
            "alg" if unquoted(value) == Some(&self.algorithm) => format!(";alg={value}"),
            "tag" => format!(";tag={value}"),
            name => return Err(Fault::Forbidden(name.to_owned())),
        })
    }
}

/// A parameter's text, unquoted; empty if it is absent, `None` if the value is malformed.
pub(super) fn parameter(input: &[u8], name: &str) -> Option<Vec<u8>> {
    let input = InnerList::parse(std::str::from_utf8(input).ok()?)?;
    let value = input
        .parameters
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, value)| *value);
    match value {
        Some(value) => unquoted(value).map(|text| text.as_bytes().to_vec()),
        None => Some(Vec::new()),
    }
}

/// The digits of a numeric parameter; empty if it is absent, `None` if the value is malformed.
pub(super) fn number<'a>(input: &'a [u8], name: &str) -> Option<&'a str> {
    let input = InnerList::parse(std::str::from_utf8(input).ok()?)?;
    let mut found = input.parameters.iter().filter(|(known, _)| *known == name);
    Some(found.next().map_or("", |(_, value)| value))
}

/// RFC 9421 §2.5.
pub(super) fn signature_base(head: &RequestHead, input: &[u8]) -> Result<Vec<u8>, Fault> {
    let text = std::str::from_utf8(input).map_err(|_| Fault::Undecodable)?;
    let input = InnerList::parse(text).ok_or(Fault::Undecodable)?;
    let mut base = Vec::new();
    for (at, item) in input.items.iter().enumerate() {
        // RFC 9421 §2.5: each component once, or the signature is ambiguous.
        if input.items[..at]
            .iter()
            .any(|earlier| earlier.text == item.text)
        {
            return Err(Fault::Ambiguous(item.name.to_owned()));
        }
        base.extend_from_slice(item.text.as_bytes());
        base.extend_from_slice(b": ");
        base.extend(item.value(head)?);
        base.push(b'\n');
    }
    base.extend_from_slice(b"\"@signature-params\": ");
    base.extend_from_slice(text.as_bytes());
    Ok(base)
}

/// A component identifier: a name and its parameters.
struct Item<'a> {
    text: &'a str,
    name: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

/// An inner list with parameters (RFC 9651 §3.1.1).
struct InnerList<'a> {
    items: Vec<Item<'a>>,
    parameters: Vec<(&'a str, &'a str)>,
}

impl Item<'_> {
    /// RFC 9421 §2.1 and §2.2. Refuses unknown parameters, because a parameter changes what a
    /// component means.
    fn value(&self, head: &RequestHead) -> Result<Vec<u8>, Fault> {
        let unfit = || Fault::Unfit(self.name.to_owned());
        if self.name == "@query-param" {
            return self.query_parameter(head);
        }
        if !self.parameters.is_empty() {
            return Err(unfit());
        }
        let target = head.target.path_and_query().as_str();
        Ok(match self.name {
            "@method" => head.method.as_str().as_bytes().to_vec(),
            "@authority" => head.origin.host_field().into_bytes(),
            "@scheme" => head.origin.scheme.as_str().as_bytes().to_vec(),
            "@target-uri" => {
                let (scheme, host) = (head.origin.scheme, head.origin.host_field());
                format!("{scheme}://{host}{target}").into_bytes()
            }
            "@request-target" => target.as_bytes().to_vec(),
            "@path" => head.target.path().as_bytes().to_vec(),
            "@query" => format!("?{}", head.target.query().unwrap_or_default()).into_bytes(),
            // A signature over another signature would cover the client's own, which is removed.
            "signature" | "signature-input" => return Err(unfit()),
            "host" => head.origin.host_field().into_bytes(),
            name => {
                let field = HeaderName::from_bytes(name.as_bytes())
                    .ok()
                    .filter(|field| field.as_str() == name);
                let values: Vec<&[u8]> = head
                    .fields
                    .get_all(field.ok_or_else(unfit)?)
                    .iter()
                    .map(|value| value.as_bytes().trim_ascii())
                    .collect();
                if values.is_empty() {
                    return Err(Fault::Incomplete(format!("header:{name}")));
                }
                values.join(&b", "[..])
            }
        })
    }

    /// RFC 9421 §2.2.8: decoded as form data, and escaped again in one way.
    fn query_parameter(&self, head: &RequestHead) -> Result<Vec<u8>, Fault> {
        let unfit = || Fault::Unfit(self.name.to_owned());
        let [("name", name)] = self.parameters.as_slice() else {
            return Err(unfit());
        };
        let name = unquoted(name).ok_or_else(unfit)?;
        let query = head.target.query().unwrap_or_default();
        let mut found = pairs(query.as_bytes())
            .filter(|(known, _)| percent_encode(known, FORM).to_string() == *name);
        let (_, value) = found
            .next()
            .ok_or_else(|| Fault::Incomplete("query".to_owned()))?;
        if found.next().is_some() {
            return Err(Fault::Ambiguous("query".to_owned()));
        }
        Ok(percent_encode(&value, FORM).to_string().into_bytes())
    }
}

impl<'a> InnerList<'a> {
    fn parse(text: &'a str) -> Option<InnerList<'a>> {
        let mut rest = text.strip_prefix('(')?;
        let mut items = Vec::new();
        loop {
            rest = rest.trim_start_matches(' ');
            if let Some(after) = rest.strip_prefix(')') {
                let (parameters, end) = parameters(after)?;
                return end.is_empty().then_some(InnerList { items, parameters });
            }
            let end = 1 + rest.strip_prefix('"')?.find('"')? + 1;
            let name = &rest[1..end - 1];
            let (parameters, after) = parameters(&rest[end..])?;
            if !after.starts_with([' ', ')']) || name.contains('\\') || items.len() == MOST_ITEMS {
                return None;
            }
            items.push(Item {
                text: &rest[..rest.len() - after.len()],
                name,
                parameters,
            });
            rest = after;
        }
    }
}

/// Parses parameters (RFC 9651 §3.1.2) and returns the rest; a repeated parameter is refused.
fn parameters(mut rest: &str) -> Option<(Vec<(&str, &str)>, &str)> {
    let mut found: Vec<(&str, &str)> = Vec::new();
    while let Some(after) = rest.strip_prefix(';') {
        let after = after.trim_start_matches(' ');
        let is_key = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c);
        let end = after.find(|c| !is_key(c)).unwrap_or(after.len());
        let (name, after) = after.split_at(end);
        let (value, after) = match after.strip_prefix('=') {
            Some(value) if value.starts_with('"') => {
                let end = 1 + value[1..].find('"')? + 1;
                value.split_at(end)
            }
            Some(value) => {
                value.split_at(value.find([';', ' ', ')', '"', ',']).unwrap_or(value.len()))
            }
            None => ("", after),
        };
        if name.is_empty() || value.contains('\\') || found.iter().any(|(known, _)| *known == name)
        {
            return None;
        }
        found.push((name, value));
        rest = after;
    }
    Some((found, rest))
}

/// The text between quotes. Contains no escapes, which [`InnerList::parse`] refuses.
fn unquoted(value: &str) -> Option<&str> {
    value.strip_prefix('"')?.strip_suffix('"')
}

/// RFC 9651 §3.3.3; refuses a text that would need an escape, as parsing does.
fn string(text: &str) -> Option<String> {
    let plain = text
        .bytes()
        .all(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\');
    plain.then(|| format!("\"{text}\""))
}

/// Each covered parameter is searched for in the whole query, so their number is bounded; real
/// signatures cover a dozen.
const MOST_ITEMS: usize = 64;

/// The application/x-www-form-urlencoded percent-encode set of the URL standard.
const FORM: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'*')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_read_or_refused() {
        let read = InnerList::parse(
            r#"("@method" "@query-param";name="a b" "date");created=1;keyid="k";tag="t""#,
        )
        .unwrap();
        let items: Vec<&str> = read.items.iter().map(|item| item.text).collect();
        assert_eq!(
            items,
            [r#""@method""#, r#""@query-param";name="a b""#, r#""date""#]
        );
        assert_eq!(
            read.parameters,
            [("created", "1"), ("keyid", "\"k\""), ("tag", "\"t\"")]
        );
        for text in [
            "",
            "(",
            "()x",
            r#"("a""b")"#,
            r#"("a)"#,
            r#"("a\"b")"#,
            "();created=1;created=2",
            "();=1",
            r#"();keyid="a"#,
            r#"("a"), sig2=("b")"#,
        ] {
            assert!(InnerList::parse(text).is_none(), "{text}");
        }
        let many = |count| format!("({})", "\"a\" ".repeat(count));
        assert!(InnerList::parse(&many(64)).is_some());
        assert!(InnerList::parse(&many(65)).is_none());
    }
}
