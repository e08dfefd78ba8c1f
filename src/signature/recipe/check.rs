//! Checks a whole description: it must terminate, sign with a secret, never send one, and be
//! verifiable.

use super::filter::Filter;
use super::loader::Loader;
use super::model::Recipe;
use super::name::Name;
use super::part::Role;
use super::template::{Template, Term};
use super::value::ValueKind;

/// The name of a step or value that depends on itself.
pub(super) fn endless(recipe: &Recipe) -> Option<String> {
    fn visit(recipe: &Recipe, name: Name, path: &mut Vec<Name>, done: &mut Vec<Name>) -> bool {
        if done.contains(&name) {
            return false;
        }
        if path.contains(&name) {
            return true;
        }
        let Some(template) = recipe.made(name) else {
            return false;
        };
        path.push(name);
        let endless = template.names().any(|name| visit(recipe, name, path, done));
        path.pop();
        done.push(name);
        endless
    }
    let steps = recipe.steps.iter().enumerate();
    let steps = steps.map(|(index, (name, _))| (Name::Step(index), name));
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

/// Checks that the recipe signs with a secret, never sends one, and can be verified.
pub(super) fn check(recipe: &Recipe, loader: &mut Loader) {
    check_secret(recipe, loader);
    check_signature(recipe, loader);
    check_sent(recipe, loader);
    check_read(recipe, loader);
    check_counts(recipe, loader);
}

fn is_secret(recipe: &Recipe, name: Name) -> bool {
    matches!(name, Name::Part(index) if recipe.parts[index].role == Role::Secret)
}

fn check_secret(recipe: &Recipe, loader: &mut Loader) {
    let is_always = |name: Name| {
        matches!(name, Name::Part(index) if !recipe.parts[index].optional)
            && is_secret(recipe, name)
    };
    if !rests_on(recipe, &recipe.key, &is_always) {
        loader.wrong(
            "sign.key",
            "the key must come from a part that is `secret` and not optional",
        );
    }
}

fn check_signature(recipe: &Recipe, loader: &mut Loader) {
    if !recipe.places.iter().any(|place| place.signature) {
        loader.wrong("place", "the signature has no place");
    }
    let steps = recipe.steps.iter().map(|(_, step)| step);
    for template in [&recipe.key, &recipe.text].into_iter().chain(steps) {
        if template.names().any(|name| name == Name::Signature) {
            loader.wrong("signature", "the signature is for places alone");
        }
    }
}

fn check_sent(recipe: &Recipe, loader: &mut Loader) {
    let of_secret =
        |template: &Template| rests_on(recipe, template, &|name| is_secret(recipe, name));
    for (index, place) in recipe.places.iter().enumerate() {
        if place.templates.iter().any(of_secret) {
            loader.wrong(
                format!("place {}", index + 1),
                "a secret, or what is made of one, may not be sent",
            );
        }
    }
}

/// Checks that each value and each part that is sent can be read from a client's signed request.
fn check_read(recipe: &Recipe, loader: &mut Loader) {
    let readable = || {
        let places = recipe.places.iter().filter(|place| place.readable);
        places.flat_map(|place| &place.templates)
    };
    let is_read =
        |wanted: Name| readable().any(|template| template.names().any(|name| name == wanted));
    // A name inside a computed value need not be parsed: that value is taken as the client made it.
    let is_inside = |wanted: Name| {
        readable().any(|template| rests_on(recipe, template, &|name| name == wanted))
    };
    for (index, value) in recipe.values.iter().enumerate() {
        let name = Name::Value(index);
        if !is_read(name) && value.read.is_none() && !(is_inside(name) && value.kind.is_new()) {
            loader.wrong(
                &value.name,
                "this value has no place from which it could be read",
            );
        }
    }
    for (index, part) in recipe.parts.iter().enumerate() {
        if part.role != Role::Secret && part.read.is_none() && !is_read(Name::Part(index)) {
            loader.wrong(
                &part.name,
                "this part is to be sent, and has no place from which it could be read",
            );
        }
    }
}

fn check_counts(recipe: &Recipe, loader: &mut Loader) {
    let count = |is_counted: fn(&ValueKind) -> bool| {
        let kinds = recipe.values.iter().map(|value| &value.kind);
        kinds.filter(|kind| is_counted(kind)).count()
    };
    let times = count(|kind| matches!(kind, ValueKind::Time { .. }));
    let nonces = count(|kind| matches!(kind, ValueKind::Nonce(_) | ValueKind::Components(_)));
    if times > 1 || nonces > 1 {
        loader.wrong("value", "there may be one time and one nonce");
    }
}

/// Whether a template depends on a name, through steps and values; a public key is not a secret.
fn rests_on(recipe: &Recipe, template: &Template, wanted: &dyn Fn(Name) -> bool) -> bool {
    template.values().any(|(term, filters)| {
        let own = term.name().filter(|_| !matches!(term, Term::Jwk(_)));
        let mut names = own
            .into_iter()
            .chain(filters.iter().filter_map(Filter::name));
        names.any(|name| {
            let made = recipe.made(name);
            wanted(name) || made.is_some_and(|made| rests_on(recipe, made, wanted))
        })
    })
}
