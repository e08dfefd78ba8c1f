//! Reading a description: every mistake at once, and nothing accepted that could send a secret or cannot be verified.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;

use super::algorithm::Algorithm;
use super::canonical::Selection;
use super::filter::Filter;
use super::moment::{Form, NonceForm};
use super::place::Slot;
use super::template::{Name, Template, Term};
use super::{Part, Placement, Recipe, Role, Value, ValueKind};

/// Something wrong in a description.
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
    /// Whether a request with the id and no signature is let through (Binance's public data).
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
    /// Where it is read from what stands in a place, rather than standing there itself.
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
    nonce: Option<String>,
    fields: Option<String>,
    separator: Option<String>,
    parameters: Option<String>,
    kept: Option<Vec<String>>,
    made: Option<String>,
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

/// One template, or several between which clients choose; the first is the usual one.
#[derive(Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Several(Vec<String>),
}

struct Loader {
    parts: Vec<String>,
    values: Vec<String>,
    steps: Vec<String>,
    mistakes: Vec<Mistake>,
}

impl Loader {
    fn wrong(&mut self, at: impl Into<String>, what: impl Into<String>) {
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
        ];
        if kinds.iter().filter(|kind| **kind).count() != 1 {
            self.wrong(
                &at,
                "a value is one of `time`, `expiry`, `nonce`, `fields`, `parameters`, `kept`, `made`",
            );
        }
        if raw.longest_seconds.is_some() != raw.expiry.is_some() {
            self.wrong(&at, "`expiry` and `longest_seconds` go together");
        }
        if raw.separator.is_some() != raw.fields.is_some() {
            self.wrong(&at, "`fields` and `separator` go together");
        }
        if let Some(form) = raw.time.as_deref().or(raw.expiry.as_deref()) {
            let Some(form) = Form::parse(form).filter(Form::is_readable) else {
                self.wrong(&at, "this is no form of time from which a moment can be read");
                return ValueKind::Kept { among: Vec::new() };
            };
            return match raw.longest_seconds {
                Some(longest) => ValueKind::Expiry { form, longest },
                None => ValueKind::Time(form),
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
        ValueKind::Kept { among }
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
        loader.wrong("sign", format!("there is no algorithm `{}`", raw.sign.algorithm));
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
        unsigned: raw.unsigned,
        whole: false,
    };
    // What follows walks the steps, so they must end.
    if let Some(name) = endless(&recipe) {
        loader.wrong(name, "this rests on itself");
        return Err(loader.mistakes);
    }
    check(&recipe, &mut loader);
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
                Role::Secret
            }
        };
        if part.optional && role == Role::Id {
            loader.wrong(&at, "a key's id cannot be optional");
        }
        let signs = role == Role::Secret && !matches!(algorithm, Algorithm::Hmac(_));
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
    parts.collect()
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

/// The name of a step or value that rests on itself.
fn endless(recipe: &Recipe) -> Option<String> {
    fn visit(recipe: &Recipe, name: Name, path: &mut Vec<Name>, done: &mut Vec<Name>) -> bool {
        if done.contains(&name) {
            return false;
        }
        if path.contains(&name) {
            return true;
        }
        let template = match name {
            Name::Step(index) => &recipe.steps[index].1,
            Name::Value(index) => match &recipe.values[index].kind {
                ValueKind::Made(template) => template,
                _ => return false,
            },
            _ => return false,
        };
        path.push(name);
        let endless = template.names().any(|name| visit(recipe, name, path, done));
        path.pop();
        done.push(name);
        endless
    }
    let steps = recipe
        .steps
        .iter()
        .enumerate()
        .map(|(index, (name, _))| (Name::Step(index), name));
    let values = recipe
        .values
        .iter()
        .enumerate()
        .map(|(index, value)| (Name::Value(index), &value.name));
    let mut done = Vec::new();
    steps
        .chain(values)
        .find(|(name, _)| visit(recipe, *name, &mut Vec::new(), &mut done))
        .map(|(_, name)| name.clone())
}

/// What must hold of the whole: that it signs with a secret, never sends one, and can be verified.
fn check(recipe: &Recipe, loader: &mut Loader) {
    let is_secret =
        |name: Name| matches!(name, Name::Part(index) if recipe.parts[index].role == Role::Secret);
    if !rests_on(recipe, &recipe.key, &is_secret) {
        loader.wrong(
            "sign.key",
            "the key must come from a part that is `secret` and not optional",
        );
    }
    if !recipe.places.iter().any(|place| place.signature) {
        loader.wrong("place", "the signature stands in no place");
    }
    for template in [&recipe.key, &recipe.text]
        .into_iter()
        .chain(recipe.steps.iter().map(|(_, step)| step))
    {
        if template.names().any(|name| name == Name::Signature) {
            loader.wrong("signature", "the signature is for places alone");
        }
    }
    for (index, place) in recipe.places.iter().enumerate() {
        if place
            .templates
            .iter()
            .any(|template| rests_on(recipe, template, &is_secret))
        {
            loader.wrong(
                format!("place {}", index + 1),
                "a secret, or what is made of one, may not be sent",
            );
        }
    }
    let readable = || {
        recipe
            .places
            .iter()
            .filter(|place| place.readable)
            .flat_map(|place| &place.templates)
    };
    let is_read = |wanted: Name| readable().any(|template| template.names().any(|name| name == wanted));
    // What is inside of a value that was made need not be read: that value is taken as the client made it.
    let is_inside =
        |wanted: Name| readable().any(|template| rests_on(recipe, template, &|name| name == wanted));
    for (index, value) in recipe.values.iter().enumerate() {
        let name = Name::Value(index);
        if !is_read(name) && value.read.is_none() && !(is_inside(name) && value.kind.is_new()) {
            loader.wrong(
                &value.name,
                "this value stands in no place from which it could be read",
            );
        }
    }
    for (index, part) in recipe.parts.iter().enumerate() {
        if part.role != Role::Secret && part.read.is_none() && !is_read(Name::Part(index)) {
            loader.wrong(
                &part.name,
                "this part is to be sent and stands in no place from which it could be read",
            );
        }
    }
    let times = recipe
        .values
        .iter()
        .filter(|value| matches!(value.kind, ValueKind::Time(_)))
        .count();
    let nonces = recipe
        .values
        .iter()
        .filter(|value| matches!(value.kind, ValueKind::Nonce(_)))
        .count();
    if times > 1 || nonces > 1 {
        loader.wrong("value", "there may be one time and one nonce");
    }
}

/// Whether a template rests on a name, through steps and values; a public key is no secret.
fn rests_on(recipe: &Recipe, template: &Template, wanted: &dyn Fn(Name) -> bool) -> bool {
    template.values().any(|(term, filters)| {
        let own = if matches!(term, Term::Jwk(_)) {
            None
        } else {
            term.name()
        };
        let mut names = own.into_iter().chain(filters.iter().filter_map(Filter::name));
        names.any(|name| {
            wanted(name)
                || match name {
                    Name::Step(index) => rests_on(recipe, &recipe.steps[index].1, wanted),
                    Name::Value(index) => match &recipe.values[index].kind {
                        ValueKind::Made(made) => rests_on(recipe, made, wanted),
                        _ => false,
                    },
                    _ => false,
                }
        })
    })
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
