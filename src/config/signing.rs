//! The signing keys of a `[[credential]]`: the signer, and the sources of its parts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gateway_credential::SecretRef;
use gateway_credential::signing::recipe::ByRecipe;
use gateway_credential::signing::sigv4::{NAME, SigV4, SigV4Settings};
use gateway_files as files;
use gateway_recipe::{self as recipe, Recipe};
use gateway_session::{KnownPart, Signer};
use toml::Spanned;

use super::diagnostic::Hint;
use super::keys;
use super::reference;
use super::section::Section;
use super::sigv4;
use super::variable::sandbox_variable;

/// A credential that signs requests instead of being injected into them.
#[derive(Debug, Clone)]
pub struct SigningCredential {
    /// The signer, which also limits the requests that may be signed.
    pub signer: Arc<dyn Signer>,
    /// The parts in their order. The first one identifies the requests that use the credential.
    pub parts: Vec<PartSource>,
    /// The file of the signing recipe, if it is the user's own.
    pub recipe_file: Option<PathBuf>,
}

/// The source of one part of a signing credential.
#[derive(Debug, Clone)]
pub struct PartSource {
    /// The part. Its variable, in the workload, holds its phantom.
    pub part: KnownPart,
    /// The reference of its value.
    pub from: SecretRef,
}

impl SigningCredential {
    /// Returns the SigV4 credential in the usual variables, if they are set. It has a session token
    /// if that variable is set, too.
    pub fn of_environment() -> Option<Self> {
        let is_set =
            |variable: &str| std::env::var_os(variable).is_some_and(|value| !value.is_empty());
        let signer = SigV4::new(SigV4Settings::default());
        let mut parts = Vec::new();
        for mut part in signer.parts() {
            let variable = part.variable.clone()?;
            match is_set(&variable) {
                true => {
                    part.optional = false;
                    let from = SecretRef::env(variable);
                    parts.push(PartSource { part, from });
                }
                false if part.optional => {}
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
    pub fn of_program(program: &SecretRef) -> Self {
        let signer = SigV4::new(SigV4Settings::default());
        let parts = signer.parts().into_iter().map(|part| {
            let from = program.clone().field(part.member.unwrap_or_default());
            PartSource { part, from }
        });
        Self {
            parts: parts.collect(),
            signer: Arc::new(signer),
            recipe_file: None,
        }
    }

    /// Returns the variables of the workload that hold its phantoms.
    pub fn variables(&self) -> Vec<String> {
        let variables = self.parts.iter().map(|one| one.part.variable.clone());
        variables.flatten().collect()
    }
}

/// Reads the signing keys, if the credential signs.
pub(super) fn signing(section: &Section<'_, '_>) -> Option<SigningCredential> {
    if !section.has("sign") {
        let without = hint!("it is about signing"; "add `sign = \"sigv4\"`, or remove it");
        section.refuse(&["parts"], "needs `sign`", without.clone());
        section.refuse(&sigv4::KEYS, "needs `sign`", without);
    }
    let (signer, recipe_file) = section.get("sign", |text| signer(section, text))?;
    section.refuse(
        &OF_PLACES,
        "contradicts `sign`",
        hint!("a credential that signs requests has no place in them"; "remove it"),
    );
    let parts = parts(section, &*signer)?;
    Some(SigningCredential {
        signer,
        parts,
        recipe_file,
    })
}

/// Returns the signer for a name: `sigv4`, the name of a recipe, or a recipe's path. Also returns
/// the path.
fn signer(
    section: &Section<'_, '_>,
    text: &str,
) -> Result<(Arc<dyn Signer>, Option<PathBuf>), Hint> {
    if text == NAME {
        return Ok((Arc::new(sigv4::read(section)), None));
    }
    let (recipe, file) = recipe(section, text)?;
    section.refuse(
        &sigv4::KEYS,
        "contradicts `sign`",
        hint!("it is about SigV4"; "remove it; `origins` says where it goes"),
    );
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
    let otherwise =
        "write `sigv4`, a name of docs/signing-recipes.md, or a path such as `./mine.toml`";
    let remedy = keys::did_you_mean(text, names, || otherwise.to_owned());
    refused!("no way of signing has that name"; "{remedy}")
}

fn own(path: &Path) -> Result<Arc<Recipe>, Hint> {
    let read = files::read(path, LARGEST_RECIPE_MIB).map_err(|unfit| Hint::of(&unfit, path))?;
    Recipe::load(&read).map(Arc::new).map_err(|mistakes| {
        let all = gateway_names::join(mistakes, "; ");
        hint!("the recipe is refused: {all}";
            "correct the path, or the recipe by docs/signing-recipes.md")
    })
}

fn parts(section: &Section<'_, '_>, signer: &dyn Signer) -> Option<Vec<PartSource>> {
    let known = signer.parts();
    let named = named(section, &known);
    let variables = section.all("env", sandbox_variable);
    let program = program(section, &known)?;
    let mut parts = Vec::new();
    let mut whole = true;
    for mut part in known {
        let given = named.iter().find(|(name, _)| *name == part.name);
        let from = match (given, &program) {
            (Some((_, text)), _) => {
                reference::read_at(section.document, &text.span(), &part.name, text.get_ref())
            }
            (None, Some(program)) => Some(program.clone().field(part.member.unwrap_or_default())),
            (None, None) if part.optional => continue,
            (None, None) => usual_source(section, &part),
        };
        let Some(from) = from else {
            whole = false;
            continue;
        };
        if section.has("env") {
            part.variable = variables.get(parts.len()).cloned();
        }
        part.optional &= program.is_some();
        parts.push(PartSource { part, from });
    }
    if whole {
        check_variables(section, &parts, variables.len());
        check_harmless(section, &parts);
    }
    whole.then_some(parts)
}

/// Checks that `env` would accept the variables that a recipe names.
fn check_harmless(section: &Section<'_, '_>, parts: &[PartSource]) {
    for name in parts.iter().flat_map(|one| &one.part.variable) {
        if let Err(hint) = sandbox_variable(name) {
            section.error(
                "sign",
                format!("the recipe's variable `{name}` is refused"),
                hint,
            );
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
        let otherwise = || format!("its parts are {}", names.join(", "));
        let remedy = keys::did_you_mean(name, names.iter().copied(), otherwise);
        refused!("it has no such part"; "{remedy}")
    })
}

/// Returns the default source of a part: the variable that clients read.
fn usual_source(section: &Section<'_, '_>, part: &KnownPart) -> Option<SecretRef> {
    let usual = part.variable.as_deref().map(SecretRef::env);
    if usual.is_none() {
        let name = &part.name;
        section.missing(
            "parts",
            hint!("nothing says where its `{name}` is";
                "add `parts = {{ {name} = \"keyring:gateway/NAME\" }}`"),
        );
    }
    usual
}

/// Checks that every part has a variable of the workload for its phantom. `named` is the number of
/// variables in `env`.
fn check_variables(section: &Section<'_, '_>, parts: &[PartSource], named: usize) {
    let names: Vec<&str> = parts.iter().map(|one| &*one.part.name).collect();
    let names = names.join(", ");
    let unheld = parts.iter().filter(|one| one.part.variable.is_none());
    let unheld: Vec<&str> = unheld.map(|one| &*one.part.name).collect();
    if section.has("env") {
        let count = parts.len();
        if named != count {
            mistake!(section, "env", "`env` does not name a variable for each part";
                "each part has a variable of its own";
                "name {count} variables, in the order {names}");
        }
    } else if !unheld.is_empty() {
        let unheld = unheld.join(", ");
        warning!(section, "sign", "no variable holds the phantom of {unheld}";
            "the workload could never sign with it"; "add `env`, a variable for each of {names}");
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
    mistake!(section, "from", "`from` does not hold the parts";
        "a signing credential has several parts; `from` holds those of `sigv4` as a program that \
         prints all of them";
        "write a reference for each part in `parts`, or `from = {{ command = [...] }}` alone");
    None
}

/// The keys for places.
const OF_PLACES: [&str; 4] = ["places", "inject", "shape", "foreign_credential"];
/// The largest recipe file that is accepted, in MiB.
const LARGEST_RECIPE_MIB: u64 = 1;
