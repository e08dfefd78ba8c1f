//! Loads a description: reports every mistake at once, and accepts nothing that could send a secret
//! or cannot be verified.

use super::algorithm::Algorithm;
use super::check;
use super::load_value::value;
use super::loader::{Loader, Mistake};
use super::model::{Placement, Recipe};
use super::name::Name;
use super::part::{Part, Role};
use super::place::Slot;
use super::raw::{RawPart, RawPlace, RawRecipe, Templates};
use super::template::{Template, Term};
use super::value::Value;

impl Recipe {
    /// Loads a description.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn load(text: &str) -> Result<Recipe, Vec<Mistake>> {
        let raw: RawRecipe = toml::from_str(text).map_err(|error| {
            vec![Mistake {
                at: "description".to_owned(),
                what: error.to_string(),
            }]
        })?;
        let mut loader = Loader::new(&raw);
        loader.check_names();
        let mut recipe = recipe(raw, &mut loader);
        // The checks below walk the steps, so they must terminate.
        if let Some(name) = check::endless(&recipe) {
            loader.wrong(name, "this rests on itself");
            return loader.finish(recipe);
        }
        check::check(&recipe, &mut loader);
        recipe.whole = uses_content(&recipe);
        loader.finish(recipe)
    }
}

/// Loads everything in a description, even if some of it is wrong.
fn recipe(raw: RawRecipe, loader: &mut Loader) -> Recipe {
    let algorithm = Algorithm::named(&raw.sign.algorithm);
    if algorithm.is_none() {
        let what = format!("there is no algorithm `{}`", raw.sign.algorithm);
        loader.wrong("sign", what);
    }
    let algorithm = algorithm.unwrap_or(Algorithm::Ed25519);
    let mut hosts = Vec::new();
    for host in &raw.hosts {
        match host.parse() {
            Ok(host) => hosts.push(host),
            Err(error) => loader.wrong("hosts", format!("`{host}`: {error}")),
        }
    }
    let values = raw.value.iter().map(|(name, raw)| {
        let at = format!("value.{name}");
        Value {
            name: name.clone(),
            read: raw.read.as_ref().map(|read| loader.template(&at, read)),
            kind: value(&at, raw, loader),
        }
    });
    let values = values.collect();
    let steps = |(name, text): (&String, &String), loader: &mut Loader| {
        (name.clone(), loader.template(&format!("let.{name}"), text))
    };
    Recipe {
        parts: parts(&raw, algorithm, loader),
        steps: raw.steps.iter().map(|step| steps(step, loader)).collect(),
        key: loader.template("sign.key", &raw.sign.key),
        text: loader.template("sign.text", &raw.sign.text),
        places: (raw.place.iter().enumerate())
            .map(|(index, raw)| place(&format!("place {}", index + 1), raw, loader))
            .collect(),
        strip: loader.slots("strip", &raw.strip),
        name: raw.name,
        hosts,
        values,
        algorithm,
        beside: raw.beside,
        unsigned: raw.unsigned,
        whole: false,
    }
}

/// Whether the content must be known before the head can be signed.
fn uses_content(recipe: &Recipe) -> bool {
    let of_content = |term: &Term| match term {
        Term::Content => true,
        Term::Parameters(parameters, _) => parameters.form,
        _ => false,
    };
    let uses = |template: &Template| recipe.reaches(template, &of_content);
    let mut places = recipe.places.iter();
    uses(&recipe.key)
        || uses(&recipe.text)
        || places.any(|place| {
            place.templates.iter().any(uses) || place.slots.iter().any(Slot::is_in_content)
        })
}

fn parts(raw: &RawRecipe, algorithm: Algorithm, loader: &mut Loader) -> Vec<Part> {
    let signs = !matches!(algorithm, Algorithm::Hmac(_));
    let parts = raw.part.iter().map(|(name, part_raw)| {
        let is_key = signs && raw.sign.key == format!("{{{name}}}");
        part(name, part_raw, is_key.then_some(algorithm), loader)
    });
    let parts: Vec<Part> = parts.collect();
    // Its phantom is a key of the same form, which can be derived from the stored text, but not
    // from a value that is computed from it.
    if signs && !parts.iter().any(|part| part.key_of.is_some()) {
        loader.wrong(
            "sign.key",
            "a private key is a part that is `secret`, as it is kept: `{NAME}`",
        );
    }
    parts
}

fn part(name: &str, raw: &RawPart, key_of: Option<Algorithm>, loader: &mut Loader) -> Part {
    let at = format!("part.{name}");
    let role = match raw.role.as_str() {
        "id" => Role::Id,
        "sent" => Role::Sent,
        "secret" => Role::Secret,
        _ => {
            loader.wrong(&at, "a part's role is `id`, `sent` or `secret`");
            Role::Sent
        }
    };
    if raw.optional && role == Role::Id {
        loader.wrong(&at, "a key's id cannot be optional");
    }
    Part {
        name: name.to_owned(),
        role,
        read: raw.read.as_ref().map(|read| loader.template(&at, read)),
        optional: raw.optional,
        shape: raw.shape.clone(),
        variables: raw.variables.clone(),
        key_of: key_of.filter(|_| role == Role::Secret),
    }
}

fn place(at: &str, raw: &RawPlace, loader: &mut Loader) -> Placement {
    let slots = loader.slots(at, &raw.at);
    let texts = match &raw.value {
        Templates::One(text) => std::slice::from_ref(text),
        Templates::Several(texts) => texts,
    };
    let templates = texts.iter().map(|text| loader.template(at, text));
    let templates: Vec<Template> = templates.collect();
    let signs = |template: &Template| template.names().any(|name| name == Name::Signature);
    let place = Placement {
        signature: templates.iter().any(signs),
        readable: templates.iter().all(Template::is_readable),
        slots,
        templates,
        optional: raw.optional,
    };
    if place.signature && !place.templates.iter().all(signs) {
        loader.wrong(at, "the signature is in all of the templates or in none");
    }
    if raw.at.is_empty() {
        loader.wrong(at, "name at least one slot in `at`");
    }
    for mistake in mistakes_in(&place) {
        loader.wrong(at, mistake);
    }
    place
}

/// The mistakes in a place, whatever the rest of the recipe is.
fn mistakes_in(place: &Placement) -> impl Iterator<Item = &'static str> {
    let json = (place.slots.iter()).any(|slot| matches!(slot, Slot::Json(_)));
    let templates = place.templates.len();
    [
        (
            templates == 0 || (templates > 1 && !place.readable),
            "give one template, or several that can each be read",
        ),
        (
            place.signature && !place.readable,
            "the signature must be readable: names and invertible filters, with text between",
        ),
        (
            place.signature && place.optional,
            "the signature cannot be optional",
        ),
        (
            json && (place.signature || place.optional),
            "a member of a JSON text is replaced in place, so it cannot be a signature, and cannot be optional",
        ),
    ]
    .into_iter()
    .filter_map(|(wrong, what)| wrong.then_some(what))
}
