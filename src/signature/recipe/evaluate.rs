//! Evaluates templates over a request, its parts and its values.

use std::borrow::Cow;
use std::cell::OnceCell;

use zeroize::Zeroizing;

use super::algorithm::Algorithm;
use super::canonical::{ParameterStyle, Parameters, Selection, field};
use super::components::signature_base;
use super::encoding::{NameAndValue, pairs, uri};
use super::fault::Fault;
use super::filter::Filter;
use super::model::Recipe;
use super::name::Name;
use super::part::Parts;
use super::place::{Slot, authorization, is_form, without};
use super::template::{Piece, Template, Term};
use super::timestamp::Timestamp;
use super::value::ValueKind;
use gateway_message::RequestHead;

/// Bytes that may contain a secret or something derived from one.
pub(super) type SecretBytes = Zeroizing<Vec<u8>>;

/// The inputs besides the request.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) parts: &'a Parts<'a>,
    /// By index; values computed from the request are `None` until they are needed.
    pub(super) values: &'a [Option<Vec<u8>>],
    /// The client's version of a list that is rewritten.
    pub(super) claimed: &'a [Option<Vec<u8>>],
    pub(super) time: Option<Timestamp>,
    pub(super) signature: Option<&'a [u8]>,
    /// Whether the gateway's own values are created, or only read.
    pub(super) signing: bool,
}

impl<'a> Inputs<'a> {
    /// The inputs for a request that a client signed.
    pub(super) fn read(
        parts: &'a Parts<'a>,
        values: &'a [Option<Vec<u8>>],
        time: Option<Timestamp>,
    ) -> Inputs<'a> {
        Inputs {
            parts,
            values,
            claimed: values,
            time,
            signature: None,
            signing: false,
        }
    }
}

/// A request as it is signed: without the signature.
pub(super) struct Evaluator<'a> {
    recipe: &'a Recipe,
    head: &'a RequestHead,
    query: Vec<u8>,
    content: Cow<'a, [u8]>,
    inputs: Inputs<'a>,
    steps: Vec<OnceCell<SecretBytes>>,
}

impl<'a> Evaluator<'a> {
    pub(super) fn new(
        recipe: &'a Recipe,
        head: &'a RequestHead,
        content: Option<&'a [u8]>,
        inputs: Inputs<'a>,
    ) -> Self {
        let mut query = head.target.query().unwrap_or_default().as_bytes().to_vec();
        let mut content = Cow::Borrowed(content.unwrap_or_default());
        for slot in recipe.signature_slots() {
            match slot {
                Slot::Query(name) => query = without(&query, name),
                Slot::Form(name) if is_form(head) => content = Cow::Owned(without(&content, name)),
                _ => {}
            }
        }
        Self {
            recipe,
            head,
            query,
            content,
            inputs,
            steps: recipe.steps.iter().map(|_| OnceCell::new()).collect(),
        }
    }

    /// Writes a template.
    pub(super) fn write(&self, template: &Template) -> Result<SecretBytes, Fault> {
        // Joined in one step, so that a growing buffer leaves no part of a secret behind.
        let pieces = template.0.iter().map(|piece| match piece {
            Piece::Text(text) => Ok(Zeroizing::new(text.as_bytes().to_vec())),
            Piece::Value(term, filters) => self.value(term, filters),
        });
        let pieces = pieces.collect::<Result<Vec<SecretBytes>, Fault>>()?;
        let slices: Vec<&[u8]> = pieces.iter().map(|piece| piece.as_slice()).collect();
        Ok(Zeroizing::new(slices.concat()))
    }

    fn value(&self, term: &Term, filters: &[Filter]) -> Result<SecretBytes, Fault> {
        let mut value = Zeroizing::new(self.term(term)?);
        for filter in filters {
            let result = match filter {
                Filter::Mac(hash, key) => hash.of(&self.named(*key)?, &value),
                Filter::If(name) if self.named(*name)?.is_empty() => Vec::new(),
                Filter::Unless(name) if !self.named(*name)?.is_empty() => Vec::new(),
                Filter::When(name, text) if **self.named(*name)? != *text.as_bytes() => Vec::new(),
                filter => {
                    let result = filter.apply(&value, self.head.method.as_str());
                    // A value that does not fit its filter comes from a part or from the client.
                    result.ok_or_else(|| match term {
                        Term::Name(Name::Part(part)) => {
                            Fault::Key(self.recipe.parts[*part].name.clone())
                        }
                        _ => Fault::Undecodable,
                    })?
                }
            };
            value = Zeroizing::new(result);
        }
        Ok(value)
    }

    fn term(&self, term: &Term) -> Result<Vec<u8>, Fault> {
        let head = self.head;
        Ok(match term {
            Term::Literal(text) => text.as_bytes().to_vec(),
            Term::Name(name) => self.named(*name)?.to_vec(),
            Term::Method => head.method.as_str().as_bytes().to_vec(),
            Term::Host => head.origin.host_field().into_bytes(),
            Term::Scheme => head.origin.scheme.as_str().as_bytes().to_vec(),
            Term::Path => head.target.path().as_bytes().to_vec(),
            Term::Query => self.query.clone(),
            Term::Target if self.query.is_empty() => head.target.path().as_bytes().to_vec(),
            Term::Target => [head.target.path().as_bytes(), b"?", &self.query].concat(),
            Term::Content => self.content.to_vec(),
            Term::Header(name) => field(head, name.as_str()),
            Term::QueryParameter(name) => {
                let mut found = pairs(&self.query).filter(|(known, _)| known == name.as_bytes());
                let value = found.next().map(|(_, value)| value).unwrap_or_default();
                if found.next().is_some() {
                    return Err(Fault::Ambiguous(format!("query:{name}")));
                }
                if value.iter().any(u8::is_ascii_control) {
                    return Err(Fault::Forbidden(format!("query:{name}")));
                }
                value
            }
            Term::Time(form) => form
                .write(self.inputs.time.ok_or(Fault::Time)?)
                .into_bytes(),
            Term::Fields(selection, style) => style.write(head, &self.selected(selection)?),
            Term::FieldNames(selection, separator) => {
                self.selected(selection)?.join(separator).into_bytes()
            }
            Term::Parameters(parameters, style) => {
                let pairs = self.parameters(parameters)?;
                if *style == ParameterStyle::AzureLines && pairs.iter().any(is_not_of_a_line) {
                    return Err(Fault::Forbidden("query".to_owned()));
                }
                style.write(pairs)
            }
            Term::Bucket(prefix) => {
                let host = head.origin.authority.host.as_str();
                let bucket = host
                    .split_once('.')
                    .filter(|(_, rest)| rest.starts_with(&**prefix));
                bucket
                    .map(|(bucket, _)| bucket.as_bytes().to_vec())
                    .unwrap_or_default()
            }
            Term::SignatureBase(name) => signature_base(head, &self.named(*name)?)?,
            Term::Jwk(name) => jwk(self.recipe.algorithm, &self.named(*name)?)
                .ok_or_else(|| self.recipe.key_fault())?,
        })
    }

    fn named(&self, name: Name) -> Result<SecretBytes, Fault> {
        match name {
            Name::Part(index) => {
                let part = &self.recipe.parts[index];
                match self.inputs.parts.get(&part.name) {
                    Some(bytes) => Ok(Zeroizing::new(bytes.to_vec())),
                    None if part.optional => Ok(Zeroizing::new(Vec::new())),
                    None => Err(Fault::Part(part.name.clone())),
                }
            }
            Name::Value(index) => self.valued(index),
            Name::Step(index) => {
                let (_, template) = &self.recipe.steps[index];
                if let Some(known) = self.steps[index].get() {
                    return Ok(known.clone());
                }
                let text = self.write(template)?;
                Ok(self.steps[index].get_or_init(|| text).clone())
            }
            Name::Signature => Ok(Zeroizing::new(
                self.inputs.signature.unwrap_or_default().to_vec(),
            )),
        }
    }

    fn valued(&self, index: usize) -> Result<SecretBytes, Fault> {
        if let Some(value) = &self.inputs.values[index] {
            return Ok(Zeroizing::new(value.clone()));
        }
        if !self.inputs.signing {
            return Ok(Zeroizing::new(Vec::new()));
        }
        let listed = self.inputs.claimed[index].as_deref().unwrap_or_default();
        let listed = std::str::from_utf8(listed).map_err(|_| Fault::Undecodable)?;
        Ok(match &self.recipe.values[index].kind {
            ValueKind::Made(template) => self.write(template)?,
            ValueKind::Fields { wanted, separator } => {
                let names = wanted.of(self.head, listed);
                let signed_away = |name: &String| !self.recipe.is_signature_field(name);
                let names: Vec<String> = names.into_iter().filter(signed_away).collect();
                Zeroizing::new(names.join(separator).into_bytes())
            }
            ValueKind::Parameters { lower } => {
                let mut names: Vec<String> = pairs(&self.query)
                    .map(|(name, _)| {
                        uri(&if *lower {
                            name.to_ascii_lowercase()
                        } else {
                            name
                        })
                    })
                    .collect();
                names.sort();
                names.dedup();
                Zeroizing::new(names.join(";").into_bytes())
            }
            _ => Zeroizing::new(Vec::new()),
        })
    }

    fn selected(&self, selection: &Selection) -> Result<Vec<String>, Fault> {
        let listed = match selection.name() {
            Some(name) => self.named(name)?,
            None => Zeroizing::new(Vec::new()),
        };
        let listed = std::str::from_utf8(&listed).map_err(|_| Fault::Undecodable)?;
        Ok(selection.of(self.head, listed))
    }

    fn parameters(&self, wanted: &Parameters) -> Result<Vec<NameAndValue>, Fault> {
        let listed = match &wanted.list {
            Some(name) => {
                let mut index = self.recipe.values.iter();
                let index = index.position(|value| value.name == **name);
                let listed = self.valued(index.ok_or(Fault::Undecodable)?)?;
                Some(String::from_utf8(listed.to_vec()).map_err(|_| Fault::Undecodable)?)
            }
            None => None,
        };
        let mut found: Vec<NameAndValue> = Vec::new();
        if wanted.query {
            found.extend(pairs(&self.query));
        }
        if wanted.form && is_form(self.head) {
            found.extend(pairs(&self.content));
        }
        if wanted.authorization {
            for scheme in self.recipe.authorization_schemes() {
                let parameters = authorization(self.head, scheme)?;
                found.extend(
                    parameters
                        .into_iter()
                        .map(|(name, value)| (name.into_bytes(), value)),
                );
            }
        }
        // A list contains the escaped names of parameters.
        found.retain(|(name, _)| match &listed {
            Some(listed) => wanted.takes(uri(name).as_bytes(), Some(listed)),
            None => wanted.takes(name, None),
        });
        Ok(found)
    }
}

/// Whether a parameter on a line of its own could be read as another one, or as two.
fn is_not_of_a_line((name, value): &NameAndValue) -> bool {
    name.contains(&b':') || name.iter().chain(value).any(u8::is_ascii_control)
}

/// RFC 7638 §3.2: the required members, in lexicographic order.
fn jwk(algorithm: Algorithm, key: &[u8]) -> Option<Vec<u8>> {
    let public = algorithm.public(key).ok()?;
    let coded = |bytes: &[u8]| {
        Filter::Base64Url
            .apply(bytes, "")
            .and_then(|text| String::from_utf8(text).ok())
    };
    let (x, y) = public.split_at(public.len() / 2);
    let text = match algorithm {
        Algorithm::Ed25519 => format!(
            r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#,
            coded(&public)?
        ),
        Algorithm::EcdsaP256 | Algorithm::EcdsaP384 => {
            let curve = match algorithm {
                Algorithm::EcdsaP256 => "P-256",
                _ => "P-384",
            };
            let (x, y) = (coded(x)?, coded(y)?);
            format!(r#"{{"crv":"{curve}","kty":"EC","x":"{x}","y":"{y}"}}"#)
        }
        _ => return None,
    };
    Some(text.into_bytes())
}
