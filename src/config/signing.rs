//! The signing keys of a `[[credential]]`: how it signs, and where its parts are kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Spanned;

use crate::credential::SecretRef;
use crate::credential::signing::recipe::ByRecipe;
use crate::credential::signing::sigv4::{NAME, SigV4, SigV4Settings};
use crate::files;
use crate::recipe::{self, Algorithm, Recipe};
use crate::session::{KnownPart, Signer};

use super::diagnostic::Hint;
use super::keys;
use super::reference;
use super::section::Section;
use super::sigv4;
use super::variable::sandbox_variable;

/// A credential that signs requests instead of being injected into them.
#[derive(Debug, Clone)]
pub struct SigningCredential {
    /// How it signs, and what may be signed.
    pub signer: Arc<dyn Signer>,
    /// The parts in their order. The first one identifies the requests that use the credential.
    pub parts: Vec<PartSource>,
    /// The file of the signing recipe, if it is the user's own.
    pub recipe_file: Option<PathBuf>,
}

/// Where one part of a signing credential is kept.
#[derive(Debug, Clone)]
pub struct PartSource {
    /// Its name in the signing scheme.
    pub name: String,
    /// Where it is kept.
    pub from: SecretRef,
    /// The variable of the workload that holds its phantom.
    pub variable: Option<String>,
    /// Whether the credential works without it.
    pub optional: bool,
    /// The algorithm of its private key, if it is one.
    pub private_key: Option<Algorithm>,
}

impl PartSource {
    fn new(known: KnownPart, from: SecretRef) -> Self {
        Self {
            name: known.name,
            from,
            variable: known.variable,
            optional: known.optional,
            private_key: known.private_key,
        }
    }
}

impl SigningCredential {
    /// Returns the SigV4 credential in the usual variables, if they are set. It has a session token
    /// if that variable is set, too.
    #[must_use]
    pub fn of_environment() -> Option<Self> {
        let is_set =
            |variable: &str| std::env::var_os(variable).is_some_and(|value| !value.is_empty());
        let signer = SigV4::new(SigV4Settings::default());
        let mut parts = Vec::new();
        for known in signer.parts() {
            let variable = known.variable.clone()?;
            match is_set(&variable) {
                true => parts.push(PartSource {
                    optional: false,
                    ..PartSource::new(known, SecretRef::env(variable))
                }),
                false if known.optional => {}
                false => return None,
            }
        }
        Some(Self {
            recipe_file: None,
            signer: Arc::new(signer),
            parts,
        })
    }

    /// Returns the SigV4 credential that a program prints.
    #[must_use]
    pub fn of_program(program: &SecretRef) -> Self {
        let signer = SigV4::new(SigV4Settings::default());
        let parts = signer.parts().into_iter().map(|known| {
            let from = program.clone().field(known.member.unwrap_or_default());
            PartSource::new(known, from)
        });
        Self {
            parts: parts.collect(),
            signer: Arc::new(signer),
            recipe_file: None,
        }
    }

    /// Returns the variables of the workload that hold its phantoms.
    #[must_use]
    pub fn variables(&self) -> Vec<String> {
        let variables = self.parts.iter().map(|part| part.variable.clone());
        variables.flatten().collect()
    }
}

/// Reads the signing keys, if the credential signs.
pub(super) fn signing(section: &Section<'_, '_>) -> Option<SigningCredential> {
    let signer = section.parsed("sign", |text| signer(section, text));
    let Some((signer, recipe_file)) = signer.map(Spanned::into_inner) else {
        if !section.has("sign") {
            refuse(section, &["parts"], "needs", without_sign);
            refuse(section, &sigv4::KEYS, "needs", without_sign);
        }
        return None;
    };
    refuse(
        section,
        &["places", "inject", "shape", "foreign_credential"],
        "contradicts",
        || {
            Hint::new(
                "a credential that signs requests has no place in them",
                "remove it",
            )
        },
    );
    let parts = parts(section, &*signer)?;
    Some(SigningCredential {
        signer,
        parts,
        recipe_file,
    })
}

/// Refuses keys that cannot be used with `sign`.
fn refuse(section: &Section<'_, '_>, keys: &[&'static str], what: &str, hint: impl Fn() -> Hint) {
    for key in keys.iter().copied() {
        if section.has(key) {
            section.error(key, format!("`{key}` {what} `sign`"), hint());
        }
    }
}

fn without_sign() -> Hint {
    Hint::new(
        "it is about signing",
        "add `sign = \"sigv4\"`, or remove it",
    )
}

/// Returns the signer for a name: `sigv4`, the name of a recipe, or the path of one. A recipe's
/// path is returned, too.
fn signer(
    section: &Section<'_, '_>,
    text: &str,
) -> Result<(Arc<dyn Signer>, Option<PathBuf>), Hint> {
    if text == NAME {
        return Ok((Arc::new(sigv4::read(section)), None));
    }
    let (recipe, file) = recipe(section, text)?;
    refuse(section, &sigv4::KEYS, "contradicts", || {
        Hint::new(
            "it is about SigV4",
            "remove it; `origins` says where it goes",
        )
    });
    Ok((Arc::new(ByRecipe::new(recipe)), file))
}

fn recipe(section: &Section<'_, '_>, text: &str) -> Result<(Arc<Recipe>, Option<PathBuf>), Hint> {
    if let Some(recipe) = recipe::preset(text) {
        return Ok((recipe, None));
    }
    if text.contains('/') {
        let path = section.document.path(text)?;
        return Ok((own(&path)?, Some(path)));
    }
    let names = recipe::presets().map(Recipe::name).chain([NAME]);
    let remedy = keys::nearest(text, names).map_or_else(
        || {
            String::from(
                "write `sigv4`, a name of docs/signing-recipes.md, or a path such as `./mine.toml`",
            )
        },
        |near| format!("did you mean `{near}`?"),
    );
    Err(Hint::new("no way of signing has that name", remedy))
}

fn own(path: &Path) -> Result<Arc<Recipe>, Hint> {
    let correct = "correct the path, or the recipe by docs/signing-recipes.md";
    let read = files::read(path, LARGEST_RECIPE_MIB)
        .map_err(|unfit| Hint::new(unfit.to_string(), unfit.remedy(path)))?;
    Recipe::load(&read).map(Arc::new).map_err(|mistakes| {
        let all: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        Hint::new(
            format!("the recipe is refused: {}", all.join("; ")),
            correct,
        )
    })
}

fn parts(section: &Section<'_, '_>, signer: &dyn Signer) -> Option<Vec<PartSource>> {
    let known = signer.parts();
    let named = named(section, &known);
    let variables: Vec<String> = section
        .each("env", sandbox_variable)
        .into_iter()
        .map(Spanned::into_inner)
        .collect();
    let program = program(section, &known)?;
    let mut parts = Vec::new();
    let mut whole = true;
    for part in known {
        let given = named.iter().find(|(name, _)| *name == part.name);
        let from = match (given, &program) {
            (Some((_, text)), _) => named_source(section, &part, text),
            (None, Some(program)) => Some(program.clone().field(part.member.unwrap_or_default())),
            (None, None) if part.optional => continue,
            (None, None) => usual_source(section, &part),
        };
        let Some(from) = from else {
            whole = false;
            continue;
        };
        let variable = match section.has("env") {
            true => variables.get(parts.len()).cloned(),
            false => part.variable.clone(),
        };
        parts.push(PartSource {
            optional: program.is_some() && part.optional,
            variable,
            ..PartSource::new(part, from)
        });
    }
    if whole {
        check_variables(section, &parts, variables.len());
        check_harmless(section, &parts);
    }
    whole.then_some(parts)
}

/// Checks that `env` would accept the variables that a recipe names.
fn check_harmless(section: &Section<'_, '_>, parts: &[PartSource]) {
    for name in parts.iter().filter_map(|part| part.variable.as_deref()) {
        if let Err(hint) = sandbox_variable(name) {
            let what = format!("the recipe's variable `{name}` is refused");
            section.error("sign", what, hint);
        }
    }
}

/// Returns the names in `parts`, each with its value.
fn named(section: &Section<'_, '_>, known: &[KnownPart]) -> Vec<(String, Spanned<String>)> {
    section.texts("parts", |name| {
        if known.iter().any(|part| part.name == name) {
            return Ok(());
        }
        let names: Vec<&str> = known.iter().map(|part| part.name.as_str()).collect();
        let remedy = match keys::nearest(name, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("its parts are {}", names.join(", ")),
        };
        Err(Hint::new("it has no such part", remedy))
    })
}

/// Returns where `parts` says that a part is kept.
fn named_source(
    section: &Section<'_, '_>,
    part: &KnownPart,
    text: &Spanned<String>,
) -> Option<SecretRef> {
    let read = reference::parse(text.get_ref(), |path| section.document.path(path));
    let refused = |hint| {
        let what = reference::unusable(&part.name);
        section.document.error(&text.span(), what, hint);
    };
    let read = read.map_err(refused).ok()?;
    reference::check(section.document, &text.span(), &part.name, &read);
    Some(read)
}

/// Returns the default source of a part: the variable that clients read.
fn usual_source(section: &Section<'_, '_>, part: &KnownPart) -> Option<SecretRef> {
    let usual = part.variable.as_deref().map(SecretRef::env);
    if usual.is_none() {
        let name = &part.name;
        let remedy = format!("add `parts = {{ {name} = \"keyring:gateway/NAME\" }}`");
        let why = format!("nothing says where its `{name}` is");
        section.missing("parts", &why, &remedy);
    }
    usual
}

/// Checks that every part has a variable of the sandbox for its phantom. `named` is the number of
/// variables in `env`.
fn check_variables(section: &Section<'_, '_>, parts: &[PartSource], named: usize) {
    let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
    let names = names.join(", ");
    let unheld = parts.iter().filter(|part| part.variable.is_none());
    let unheld: Vec<&str> = unheld.map(|part| part.name.as_str()).collect();
    if section.has("env") {
        if named != parts.len() {
            let remedy = format!("name {} variables, in the order {names}", parts.len());
            let hint = Hint::new("each part has a variable of its own", remedy);
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

/// Returns the program that prints all parts; `Some(None)` if there is none.
fn program(section: &Section<'_, '_>, known: &[KnownPart]) -> Option<Option<SecretRef>> {
    if !section.has("from") {
        return Some(None);
    }
    let from = reference::read(section, "from", "credential.from")?;
    let is_printed = known.iter().all(|part| part.member.is_some());
    if from.program().is_some() && !section.has("parts") && is_printed {
        return Some(Some(from));
    }
    let hint = Hint::new(
        "a signing credential has several parts; `from` holds those of `sigv4` as a program that prints all of them",
        "write a reference for each part in `parts`, or `from = { command = [...] }` alone",
    );
    section.error("from", "`from` does not hold the parts", hint);
    None
}

/// The largest recipe file that is accepted, in MiB.
const LARGEST_RECIPE_MIB: u64 = 1;
