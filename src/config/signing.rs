//! What of a `[[credential]]` is about signing: the way, the parts, and what may be signed.

use std::sync::Arc;

use toml::Spanned;

use crate::credential::SecretRef;
use crate::files;
use crate::message::OriginPattern;
use crate::session::{OwnEndpoint, SIGV4_PARTS};
use crate::signature::recipe::{self, Algorithm, Recipe, Role};
use crate::signature::sigv4::{PinMistake, Pins, Scope};

use super::credential::sandbox_variable;
use super::diagnostic::Hint;
use super::keys;
use super::network;
use super::reference;
use super::section::Section;

/// A credential that signs requests instead of being put into them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signing {
    /// The way of signing.
    pub way: Way,
    /// The parts in their order, the first of which is that by which requests are known.
    pub parts: Vec<Part>,
    /// Endpoints that are not those of the service itself.
    pub endpoints: Vec<OwnEndpoint>,
    /// Origins of which requests may be made that are not signed.
    pub unsigned: Vec<OriginPattern>,
    /// For what it may be used.
    pub scope: Scope,
    /// The partitions that are pinned.
    pub partitions: Vec<String>,
}

/// A way of signing.
#[derive(Debug, Clone)]
pub enum Way {
    /// AWS Signature Version 4 and its kin.
    SigV4,
    /// As a recipe says.
    Recipe(Arc<Recipe>),
}

/// By the name, which is a recipe's own.
impl PartialEq for Way {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Way {}

/// One part of a signing credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What it is to the way of signing.
    pub name: String,
    /// Where it is kept.
    pub from: SecretRef,
    /// The variable of the workload that holds its phantom.
    pub variable: Option<String>,
    /// Whether the credential may be without it.
    pub optional: bool,
}

/// What a way of signing knows of one of its parts.
struct Known {
    name: String,
    variable: Option<String>,
    optional: bool,
}

impl Way {
    /// Its name in configuration and in places.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::SigV4 => "sigv4",
            Self::Recipe(recipe) => recipe.name(),
        }
    }

    /// The algorithm whose private key a part is, if it is one.
    #[must_use]
    pub fn private_key(&self, part: &str) -> Option<Algorithm> {
        match self {
            Self::SigV4 => None,
            Self::Recipe(recipe) => {
                recipe
                    .parts()
                    .iter()
                    .find(|known| known.name == part)?
                    .key_of
            }
        }
    }

    /// Its parts, first the one by which a request is known.
    fn parts(&self) -> Vec<Known> {
        match self {
            Self::SigV4 => SIGV4_PARTS
                .iter()
                .zip(SIGV4_VARIABLES)
                .map(|(name, variable)| Known {
                    name: (*name).to_owned(),
                    variable: Some(variable.to_owned()),
                    // Long-lived keys have no token, so nothing is assumed of one.
                    optional: *name == SIGV4_PARTS[2],
                })
                .collect(),
            Self::Recipe(recipe) => {
                let mut parts: Vec<_> = recipe.parts().iter().collect();
                parts.sort_by_key(|part| part.role != Role::Id);
                let known = |part: &recipe::Part| Known {
                    name: part.name.clone(),
                    variable: part.variables.first().cloned(),
                    optional: part.optional,
                };
                parts.into_iter().map(known).collect()
            }
        }
    }
}

impl Signing {
    /// The same for these buckets alone, `NAME` or `NAME/PREFIX`.
    ///
    /// # Errors
    /// What is no bucket.
    pub fn pinned_to(self, buckets: Vec<String>) -> Result<Self, Vec<PinMistake>> {
        let pins = Pins {
            buckets,
            ..Pins::default()
        };
        let scope = Scope::new(pins)?;
        Ok(Self { scope, ..self })
    }

    /// The SigV4 credential of the usual variables; with a session token where one is said to be
    /// there.
    #[must_use]
    pub fn sigv4(token: bool) -> Self {
        let known = Way::SigV4.parts().into_iter();
        let parts = known
            .filter(|part| token || !part.optional)
            .map(|part| Part {
                from: SecretRef::env(part.variable.clone().unwrap_or_default()),
                name: part.name,
                variable: part.variable,
                optional: false,
            });
        Self::of_sigv4(parts.collect())
    }

    /// The SigV4 credential that a program prints.
    #[must_use]
    pub fn sigv4_from(program: &SecretRef) -> Self {
        let known = Way::SigV4.parts().into_iter().zip(MEMBERS);
        let parts = known.map(|(part, member)| Part {
            name: part.name,
            from: program.clone().field(member),
            variable: part.variable,
            optional: part.optional,
        });
        Self::of_sigv4(parts.collect())
    }

    fn of_sigv4(parts: Vec<Part>) -> Self {
        Self {
            way: Way::SigV4,
            parts,
            endpoints: Vec::new(),
            unsigned: Vec::new(),
            scope: Scope::default(),
            partitions: Vec::new(),
        }
    }
}

/// Reads the keys about signing, if the credential signs.
pub(super) fn signing(section: &Section<'_, '_>) -> Option<Signing> {
    let way = section.parsed("sign", |text| way(section, text));
    let Some(way) = way.map(Spanned::into_inner) else {
        for key in [&["parts", "endpoints", "unsigned"][..], &PINS].concat() {
            if section.has(key) && !section.has("sign") {
                section.error(
                    key,
                    format!("`{key}` stands without `sign`"),
                    Hint::new(
                        "it is about signing",
                        "add `sign = \"sigv4\"`, or remove it",
                    ),
                );
            }
        }
        return None;
    };
    for key in ["places", "when", "shape", "foreign"] {
        if section.has(key) {
            section.error(
                key,
                format!("`{key}` contradicts `sign`"),
                Hint::new("what signs a request stands in no place of it", "remove it"),
            );
        }
    }
    if matches!(way, Way::Recipe(_)) {
        for key in [&["endpoints", "unsigned"][..], &PINS].concat() {
            if section.has(key) {
                let hint = Hint::new(
                    "it is about SigV4",
                    "remove it; `origins` says where it goes",
                );
                section.error(key, format!("`{key}` contradicts `sign`"), hint);
            }
        }
    }
    let parts = parts(section, &way);
    let endpoints = endpoints(section);
    let unsigned = section.each("unsigned", network::origin);
    let own_services = endpoints.iter().map(|endpoint| endpoint.service.clone());
    let pins = pins(section, own_services.collect());
    let partitions = pins.partitions.clone();
    let scope = scope(section, pins);
    Some(Signing {
        way,
        parts: parts?,
        endpoints,
        unsigned: unsigned.into_iter().map(Spanned::into_inner).collect(),
        scope,
        partitions,
    })
}

/// `sigv4`, the name of a recipe, or the path of one.
fn way(section: &Section<'_, '_>, text: &str) -> Result<Way, Hint> {
    let recipe = if text == "sigv4" {
        return Ok(Way::SigV4);
    } else if let Some(recipe) = recipe::preset(text) {
        recipe
    } else if text.contains('/') {
        own(section, text)?
    } else {
        let names = || recipe::presets().map(Recipe::name).chain(["sigv4"]);
        let remedy = keys::nearest(text, names()).map_or_else(
            || {
                String::from(
                    "write `sigv4`, a name of docs/signing-recipes.md, or a path such as `./mine.toml`",
                )
            },
            |near| format!("did you mean `{near}`?"),
        );
        return Err(Hint::new("no way of signing has that name", remedy));
    };
    Ok(Way::Recipe(recipe))
}

fn own(section: &Section<'_, '_>, text: &str) -> Result<Arc<Recipe>, Hint> {
    let path = section.document.path(text)?;
    let correct = "correct the path, or the recipe by docs/signing-recipes.md";
    let read = files::read(&path, LARGEST_RECIPE_MIB)
        .map_err(|unfit| Hint::new(unfit.to_string(), unfit.remedy(&path)))?;
    Recipe::load(&read).map(Arc::new).map_err(|mistakes| {
        let all: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        Hint::new(
            format!("the recipe is refused: {}", all.join("; ")),
            correct,
        )
    })
}

fn parts(section: &Section<'_, '_>, way: &Way) -> Option<Vec<Part>> {
    let known = way.parts();
    let named = section.texts("parts", |name| {
        if known.iter().any(|part| part.name == name) {
            return Ok(());
        }
        let names: Vec<&str> = known.iter().map(|part| part.name.as_str()).collect();
        let remedy = match keys::nearest(name, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("its parts are {}", names.join(", ")),
        };
        Err(Hint::new("it has no such part", remedy))
    });
    let variables: Vec<String> = section
        .each("env", sandbox_variable)
        .into_iter()
        .map(Spanned::into_inner)
        .collect();
    let set = set(section, way)?;
    let mut parts = Vec::new();
    let mut whole = true;
    for (at, part) in known.into_iter().enumerate() {
        let given = named.iter().find(|(name, _)| *name == part.name);
        let from = match (given, &set, &part.variable) {
            (Some((_, text)), ..) => {
                let read = reference::parse(text.get_ref(), |path| section.document.path(path));
                match read {
                    Ok(from) => from,
                    Err(hint) => {
                        let what = format!("`{}` is no reference to a secret", part.name);
                        section.document.error(&text.span(), what, hint);
                        whole = false;
                        continue;
                    }
                }
            }
            (None, Some(set), _) => set.clone().field(MEMBERS[at]),
            (None, None, _) if part.optional => continue,
            (None, None, Some(usual)) => SecretRef::env(usual.as_str()),
            (None, None, None) => {
                let remedy = format!(
                    "add `parts = {{ {} = \"keyring:gateway/NAME\" }}`",
                    part.name
                );
                section.missing(
                    "parts",
                    &format!("nothing says where its `{}` is", part.name),
                    &remedy,
                );
                whole = false;
                continue;
            }
        };
        let variable = match section.has("env") {
            true => variables.get(parts.len()).cloned(),
            false => part.variable,
        };
        parts.push(Part {
            name: part.name,
            from,
            optional: set.is_some() && part.optional,
            variable,
        });
    }
    if whole {
        check_variables(section, &parts, variables.len());
    }
    whole.then_some(parts)
}

/// Every part must have a variable of the sandbox, in which its phantom stands; `named` is how many
/// `env` has.
fn check_variables(section: &Section<'_, '_>, parts: &[Part], named: usize) {
    let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
    let names = names.join(", ");
    let unheld = parts.iter().filter(|part| part.variable.is_none());
    let unheld: Vec<&str> = unheld.map(|part| part.name.as_str()).collect();
    if section.has("env") {
        if named != parts.len() {
            let remedy = format!("name {} variables, in the order {names}", parts.len());
            let hint = Hint::new("each part stands in a variable of its own", remedy);
            section.error("env", "`env` does not name a variable for each part", hint);
        }
    } else if !unheld.is_empty() {
        let remedy = format!("add `env`, a variable for each of {names}");
        section.document.warn(
            &section.span_of("sign"),
            format!("no variable holds the phantom of {}", unheld.join(", ")),
            Hint::new("the workload could never sign with it", remedy),
        );
    }
}

/// The program that prints all parts; `Some(None)` where there is none.
fn set(section: &Section<'_, '_>, way: &Way) -> Option<Option<SecretRef>> {
    if !section.has("from") {
        return Some(None);
    }
    let from = reference::read(section, "from", "credential.from")?;
    match (from.program(), section.has("parts"), way) {
        (Some(_), false, Way::SigV4) => Some(Some(from)),
        _ => {
            let hint = Hint::new(
                "a signing credential has several parts; `from` holds those of `sigv4` as a program that prints all of them",
                "write a reference for each part in `parts`, or `from = { command = [...] }` alone",
            );
            section.error("from", "`from` does not hold the parts", hint);
            None
        }
    }
}

fn pins(section: &Section<'_, '_>, own_services: Vec<String>) -> Pins {
    let texts = |key: &'static str| {
        let list = section.each(key, |text| Ok(text.to_owned()));
        list.into_iter().map(Spanned::into_inner).collect()
    };
    let [
        partitions,
        regions,
        services,
        accounts,
        buckets,
        actions,
        credential_actions,
    ] = PINS.map(texts);
    Pins {
        partitions,
        regions,
        services,
        own_services,
        accounts,
        buckets,
        actions,
        credential_actions,
    }
}

fn scope(section: &Section<'_, '_>, pins: Pins) -> Scope {
    Scope::new(pins).unwrap_or_else(|mistakes| {
        for mistake in mistakes {
            let key = match mistake {
                PinMistake::Partition(_) => PINS[0],
                PinMistake::Region(_) => PINS[1],
                PinMistake::Service(_) => PINS[2],
                PinMistake::Account(_) => PINS[3],
                PinMistake::Bucket(_) => PINS[4],
                PinMistake::Action(_) => PINS[5],
                PinMistake::CredentialAction(_) => PINS[6],
            };
            let hint = Hint::new(
                "it would pin nothing that there is",
                "correct it, or remove it",
            );
            section.error(key, mistake.to_string(), hint);
        }
        // Not taken: a configuration with a mistake is refused as a whole.
        Scope::default()
    })
}

fn endpoints(section: &Section<'_, '_>) -> Vec<OwnEndpoint> {
    let read = |section: &Section<'_, '_>| {
        let origin = section.parsed("origin", network::origin);
        let service = section.parsed("service", label);
        let region = section.parsed("region", label);
        for key in ["origin", "service", "region"] {
            if !section.has(key) {
                section.missing(
                    key,
                    "it says for what is signed there",
                    "write `{ origin = \"https://minio.example:9000\", service = \"s3\", region = \"us-east-1\" }`",
                );
            }
        }
        let exact_paths = section.truth("exact_paths");
        let read = OwnEndpoint {
            origin: origin?.into_inner(),
            service: service?.into_inner(),
            region: region?.into_inner(),
            exact_paths: exact_paths.unwrap_or_default(),
        };
        if exact_paths.is_some() && read.is_object_store() {
            let hint = Hint::new(
                "the paths of an object store are always taken as they stand",
                "remove it",
            );
            section.error(
                "exact_paths",
                "`exact_paths` stands beside a service of S3's",
                hint,
            );
        }
        Some(read)
    };
    section
        .tables("endpoints", "credential.endpoints")
        .iter()
        .filter_map(read)
        .collect()
}

/// The name of a service or a region, as it stands in a credential scope.
fn label(text: &str) -> Result<String, Hint> {
    let fits = (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    match fits {
        true => Ok(text.to_owned()),
        false => Err(Hint::new(
            "a service or region has the characters a-z, 0-9 and `-`",
            "write for example `s3` or `eu-central-1`",
        )),
    }
}

const LARGEST_RECIPE_MIB: u64 = 1;
/// What a program prints, in the order of the parts.
const MEMBERS: [&str; 3] = ["AccessKeyId", "SecretAccessKey", "SessionToken"];
/// The keys of the pins.
const PINS: [&str; 7] = [
    "partitions",
    "regions",
    "services",
    "accounts",
    "buckets",
    "actions",
    "credential_actions",
];
/// The variables that AWS's own clients read, in the order of the parts.
pub(super) const SIGV4_VARIABLES: [&str; 3] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
];
