//! Loads a description: reports every mistake at once, and accepts nothing that could send a secret
//! or cannot be verified.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;

use super::algorithm::Algorithm;
use super::canonical::Selection;
use super::components::Components;
use super::moment::{Form, NonceForm};
use super::place::Slot;
use super::template::{Name, Template, Term};
use super::{Part, Placement, Recipe, Role, Value, ValueKind, check};

/// A mistake in a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Where: `part.key`, `let.scope`, `place 2`.
    pub at: String,
    /// What.
    pub what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.what)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRecipe {
    name: String,
    title: String,
    source: String,
    #[serde(default)]
    hosts: Vec<String>,
    #[serde(default)]
    strip: Vec<String>,
    /// Schemes of `Authorization` whose credentials are bound to the signing key (DPoP's tokens).
    #[serde(default)]
    beside: Vec<String>,
    /// Whether a request with the id and no signature passes (Binance's public data).
    #[serde(default)]
    unsigned: bool,
    part: BTreeMap<String, RawPart>,
    #[serde(default)]
    value: BTreeMap<String, RawValue>,
    #[serde(default, rename = "let")]
    steps: BTreeMap<String, String>,
    sign: RawSign,
    place: Vec<RawPlace>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPart {
    role: String,
    /// The value from which it is parsed, if it does not stand alone.
    read: Option<String>,
    #[serde(default)]
    optional: bool,
    shape: Option<String>,
    #[serde(default)]
    variables: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawValue {
    time: Option<String>,
    expiry: Option<String>,
    longest_seconds: Option<u32>,
    back_seconds: Option<u32>,
    nonce: Option<String>,
    fields: Option<String>,
    separator: Option<String>,
    parameters: Option<String>,
    kept: Option<Vec<String>>,
    /// The characters that a kept value may contain besides letters, digits and `-._*`.
    letters: Option<String>,
    made: Option<String>,
    components: Option<String>,
    algorithm: Option<String>,
    read: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSign {
    algorithm: String,
    key: String,
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPlace {
    at: Vec<String>,
    value: Templates,
    #[serde(default)]
    optional: bool,
}

/// One template, or several that clients choose from; the first is the usual one.
#[derive(Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Several(Vec<String>),
}

pub(super) struct Loader {
    parts: Vec<String>,
    values: Vec<String>,
    steps: Vec<String>,
    mistakes: Vec<Mistake>,
}

impl Loader {
    pub(super) fn wrong(&mut self, at: impl Into<String>, what: impl Into<String>) {
        self.mistakes.push(Mistake {
            at: at.into(),
            what: what.into(),
        });
    }

    fn template(&mut self, at: &str, text: &str) -> Template {
        let resolve = |name: &str| {
            let index = |names: &[String]| names.iter().position(|known| known == name);
            index(&self.parts)
                .map(Name::Part)
                .or_else(|| index(&self.values).map(Name::Value))
                .or_else(|| index(&self.steps).map(Name::Step))
                .or_else(|| (name == "signature").then_some(Name::Signature))
        };
        match Template::parse(text, &resolve) {
            Ok(template) => template,
            Err(what) => {
                self.wrong(at, what);
                Template(Vec::new())
            }
        }
    }

    fn selection(&mut self, at: &str, text: &str) -> Selection {
        Selection::parse(text, &|_| None).unwrap_or_else(|what| {
            self.wrong(at, what);
            Selection::default()
        })
    }

    fn slots(&mut self, at: &str, texts: &[String]) -> Vec<Slot> {
        let mut slots = Vec::new();
        for text in texts {
            match Slot::parse(text) {
                Some(slot) => slots.push(slot),
                None => self.wrong(at, format!("`{text}` is no place: `header:NAME`, `query:NAME`, `form:NAME`, `json:NAME`, `authorization:SCHEME:NAME`")),
            }
        }
        slots
    }

    fn value(&mut self, name: &str, raw: &RawValue) -> ValueKind {
        let at = format!("value.{name}");
        let kinds = [
            raw.time.is_some(),
            raw.expiry.is_some(),
            raw.nonce.is_some(),
            raw.fields.is_some(),
            raw.parameters.is_some(),
            raw.kept.is_some(),
            raw.made.is_some(),
            raw.components.is_some(),
        ];
        if kinds.iter().filter(|kind| **kind).count() != 1 {
            self.wrong(
                &at,
                "a value is one of `time`, `expiry`, `nonce`, `fields`, `parameters`, `kept`, `made`, `components`",
            );
        }
        if raw.longest_seconds.is_some() != (raw.expiry.is_some() || raw.components.is_some()) {
            self.wrong(
                &at,
                "`longest_seconds` goes with `expiry` or `components`, and they with it",
            );
        }
        if raw.back_seconds.is_some() && raw.time.is_none() {
            self.wrong(&at, "`back_seconds` goes with `time`");
        }
        if raw.algorithm.is_some() != raw.components.is_some() {
            self.wrong(&at, "`components` and `algorithm` go together");
        }
        if let (Some(wanted), Some(algorithm), Some(longest)) =
            (&raw.components, &raw.algorithm, raw.longest_seconds)
        {
            return ValueKind::Components(Components {
                wanted: wanted.split_whitespace().map(str::to_owned).collect(),
                algorithm: algorithm.clone(),
                longest,
            });
        }
        if raw.separator.is_some() != raw.fields.is_some() {
            self.wrong(&at, "`fields` and `separator` go together");
        }
        if let Some(form) = raw.time.as_deref().or(raw.expiry.as_deref()) {
            let Some(form) = Form::parse(form).filter(Form::is_readable) else {
                self.wrong(
                    &at,
                    "this is no form of time from which a moment can be read",
                );
                return ValueKind::Kept {
                    among: Vec::new(),
                    letters: String::new(),
                };
            };
            return match raw.longest_seconds {
                Some(longest) => ValueKind::Expiry { form, longest },
                None => ValueKind::Time {
                    form,
                    back: raw.back_seconds.unwrap_or_default(),
                },
            };
        }
        if let Some(form) = &raw.nonce {
            if let Some(form) = NonceForm::parse(form) {
                return ValueKind::Nonce(form);
            }
            self.wrong(
                &at,
                "a nonce is `hex N`, `alphanumeric N` (16 or more), `uuid`, `milliseconds` or `microseconds`",
            );
        }
        if let Some(fields) = &raw.fields {
            let wanted = self.selection(&at, fields);
            if wanted == Selection::default() {
                self.wrong(&at, "name the fields that must be signed");
            }
            let separator = raw.separator.clone().unwrap_or_default();
            return ValueKind::Fields { wanted, separator };
        }
        if let Some(parameters) = &raw.parameters {
            if !matches!(parameters.as_str(), "query" | "query-lower") {
                self.wrong(&at, "`parameters` is `query` or `query-lower`");
            }
            let lower = parameters == "query-lower";
            return ValueKind::Parameters { lower };
        }
        if let Some(made) = &raw.made {
            return ValueKind::Made(self.template(&at, made));
        }
        let among = raw.kept.clone().unwrap_or_default();
        if raw.letters.is_some() && !(raw.kept.is_some() && among.is_empty()) {
            self.wrong(&at, "`letters` goes with `kept = []`");
        }
        let letters = raw.letters.clone().unwrap_or_default();
        ValueKind::Kept { among, letters }
    }

    fn check_names(&mut self) {
        let names: Vec<String> = [&self.parts, &self.values, &self.steps]
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        let mut seen = BTreeSet::new();
        for name in names {
            let fits = name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
            if !fits || name.is_empty() {
                self.wrong(&name, "a name has only a-z, 0-9 and `-`");
            }
            if RESERVED.contains(&name.as_str()) {
                self.wrong(&name, "this name is taken by the language");
            }
            if !seen.insert(name.clone()) {
                self.wrong(&name, "this name stands for two things");
            }
        }
    }
}

pub(super) fn load(text: &str) -> Result<Recipe, Vec<Mistake>> {
    let raw: RawRecipe = toml::from_str(text).map_err(|error| {
        vec![Mistake {
            at: "description".to_owned(),
            what: error.to_string(),
        }]
    })?;
    let mut loader = Loader {
        parts: raw.part.keys().cloned().collect(),
        values: raw.value.keys().cloned().collect(),
        steps: raw.steps.keys().cloned().collect(),
        mistakes: Vec::new(),
    };
    loader.check_names();
    let algorithm = Algorithm::named(&raw.sign.algorithm);
    if algorithm.is_none() {
        loader.wrong(
            "sign",
            format!("there is no algorithm `{}`", raw.sign.algorithm),
        );
    }
    let algorithm = algorithm.unwrap_or(Algorithm::Ed25519);
    let mut hosts = Vec::new();
    for host in &raw.hosts {
        match host.parse() {
            Ok(host) => hosts.push(host),
            Err(error) => loader.wrong("hosts", format!("`{host}`: {error}")),
        }
    }
    let values = raw.value.iter().map(|(name, value)| Value {
        name: name.clone(),
        read: value
            .read
            .as_ref()
            .map(|read| loader.template(&format!("value.{name}"), read)),
        kind: loader.value(name, value),
    });
    let values = values.collect();
    let mut recipe = Recipe {
        name: raw.name.clone(),
        title: raw.title.clone(),
        source: raw.source.clone(),
        hosts,
        parts: parts(&raw, algorithm, &mut loader),
        values,
        steps: raw
            .steps
            .iter()
            .map(|(name, text)| (name.clone(), loader.template(&format!("let.{name}"), text)))
            .collect(),
        algorithm,
        key: loader.template("sign.key", &raw.sign.key),
        text: loader.template("sign.text", &raw.sign.text),
        places: places(&raw, &mut loader),
        strip: loader.slots("strip", &raw.strip),
        beside: raw.beside.clone(),
        unsigned: raw.unsigned,
        whole: false,
    };
    // What follows walks the steps, so they must terminate.
    if let Some(name) = check::endless(&recipe) {
        loader.wrong(name, "this rests on itself");
        return Err(loader.mistakes);
    }
    check::check(&recipe, &mut loader);
    let of_content = |term: &Term| match term {
        Term::Content => true,
        Term::Parameters(parameters, _) => parameters.form,
        _ => false,
    };
    recipe.whole = [&recipe.key, &recipe.text]
        .into_iter()
        .any(|template| recipe.reaches(template, &of_content))
        || recipe.places.iter().any(|place| {
            place
                .templates
                .iter()
                .any(|template| recipe.reaches(template, &of_content))
                || place.slots.iter().any(Slot::is_in_content)
        });
    if loader.mistakes.is_empty() {
        Ok(recipe)
    } else {
        Err(loader.mistakes)
    }
}

fn parts(raw: &RawRecipe, algorithm: Algorithm, loader: &mut Loader) -> Vec<Part> {
    let parts = raw.part.iter().map(|(name, part)| {
        let at = format!("part.{name}");
        let role = match part.role.as_str() {
            "id" => Role::Id,
            "sent" => Role::Sent,
            "secret" => Role::Secret,
            _ => {
                loader.wrong(&at, "a part's role is `id`, `sent` or `secret`");
                Role::Sent
            }
        };
        if part.optional && role == Role::Id {
            loader.wrong(&at, "a key's id cannot be optional");
        }
        let signs = role == Role::Secret
            && !matches!(algorithm, Algorithm::Hmac(_))
            && raw.sign.key == format!("{{{name}}}");
        Part {
            name: name.clone(),
            role,
            read: part.read.as_ref().map(|read| loader.template(&at, read)),
            optional: part.optional,
            shape: part.shape.clone(),
            variables: part.variables.clone(),
            key_of: signs.then_some(algorithm),
        }
    });
    let parts: Vec<Part> = parts.collect();
    // Its phantom is a key of the same form, which can be derived from what is stored, and not from
    // what is computed from it.
    if !matches!(algorithm, Algorithm::Hmac(_)) && !parts.iter().any(|part| part.key_of.is_some()) {
        loader.wrong(
            "sign.key",
            "a private key is a part that is `secret`, as it is kept: `{NAME}`",
        );
    }
    parts
}

fn places(raw: &RawRecipe, loader: &mut Loader) -> Vec<Placement> {
    let places = raw.place.iter().enumerate().map(|(index, place)| {
        let at = format!("place {}", index + 1);
        let slots = loader.slots(&at, &place.at);
        let templates: Vec<Template> = match &place.value {
            Templates::One(text) => vec![loader.template(&at, text)],
            Templates::Several(texts) => texts.iter().map(|text| loader.template(&at, text)).collect(),
        };
        let signs = |template: &Template| template.names().any(|name| name == Name::Signature);
        let signature = templates.iter().any(signs);
        let readable = templates.iter().all(Template::is_readable);
        if templates.is_empty() || (templates.len() > 1 && !readable) {
            loader.wrong(&at, "give one template, or several that can each be read");
        }
        if signature && !templates.iter().all(signs) {
            loader.wrong(&at, "the signature stands in all of the templates or in none");
        }
        if place.at.is_empty() {
            loader.wrong(&at, "name at least one slot in `at`");
        }
        if signature && !readable {
            loader.wrong(
                &at,
                "the signature must be readable: names and invertible filters, with text between",
            );
        }
        if signature && place.optional {
            loader.wrong(&at, "the signature cannot be optional");
        }
        let json = slots.iter().any(|slot| matches!(slot, Slot::Json(_)));
        if json && (signature || place.optional) {
            loader.wrong(
                &at,
                "a member of a JSON text is replaced where it stands, so it is no signature and not optional",
            );
        }
        Placement {
            slots,
            templates,
            optional: place.optional,
            readable,
            signature,
        }
    });
    places.collect()
}

/// Names of terms that take no argument, and the signature's.
const RESERVED: [&str; 8] = [
    "method",
    "host",
    "scheme",
    "path",
    "query",
    "target",
    "content",
    "signature",
];
