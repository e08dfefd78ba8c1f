//! `[[credential]]`: which secret may go where, and what the workload holds instead.

use http::Method;
use toml::Spanned;

use crate::credential::SecretRef;
use crate::credential::preset::{self, PresetCredential};
use crate::message::{EncodedSlash, OriginPattern, Place, RequestTarget, Taken};
use crate::names::CredentialName;
use crate::session::phantom::Shape;
use crate::session::{Foreign, When};

use super::diagnostic::Hint;
use super::keys;
use super::network;
use super::reference::{self, variable};
use super::section::Section;
use super::signing::{self, SigningCredential};
use super::variable::sandbox_variable;

/// Binds a secret to origins and places.
#[derive(Debug, Clone)]
pub struct Credential {
    /// Its name in policies and in the audit log.
    pub name: CredentialName,
    /// Where the secret is kept.
    pub from: SecretRef,
    /// The preset that fills in what is left out.
    pub preset: Option<String>,
    /// The origins that it is for. If empty, those of the preset.
    pub origins: Vec<OriginPattern>,
    /// The places where it may stand; see [`Credential::places_or_common`].
    pub places: Vec<Place>,
    /// The variables of the workload that hold the phantom.
    pub env: Vec<String>,
    /// The phantom's shape, if it differs from the secret's.
    pub shape: Option<String>,
    /// When the secret is injected.
    pub when: When,
    /// What happens to another credential in one of its places.
    pub foreign: Foreign,
    /// Further places where its origins accept credentials. `None` means those of the preset.
    pub takes: Option<Vec<Taken>>,
    /// Cookies that may go to its origins, beyond those of the places and the preset.
    pub cookies: Vec<String>,
    /// The methods that it is lent to. If empty, all.
    pub methods: Vec<Method>,
    /// The path prefix that it is lent for, in canonical form.
    pub path: Option<String>,
    /// Whether a secret of fewer than eight bytes is accepted.
    pub allow_short: bool,
    /// How requests are signed with it, if it signs instead of being injected.
    pub signing: Option<SigningCredential>,
    /// Whether a flag names it, and no file.
    pub by_flag: bool,
}

impl Credential {
    /// A credential with nothing but a name and the defaults.
    #[must_use]
    pub fn named(name: CredentialName, from: SecretRef) -> Self {
        Self {
            env: Vec::new(),
            name,
            from,
            preset: None,
            origins: Vec::new(),
            places: Vec::new(),
            shape: None,
            when: When::Phantom,
            foreign: Foreign::Refuse,
            takes: None,
            cookies: Vec::new(),
            methods: Vec::new(),
            path: None,
            allow_short: false,
            signing: None,
            by_flag: false,
        }
    }

    /// Returns the AWS credentials in the environment, if there are any.
    #[must_use]
    pub fn aws() -> Option<Self> {
        SigningCredential::of_environment().map(Self::signed)
    }

    /// Returns the AWS credentials that a program prints.
    #[must_use]
    pub fn aws_from(program: &SecretRef) -> Self {
        Self::signed(SigningCredential::of_program(program))
    }

    fn signed(signing: SigningCredential) -> Self {
        let name = CredentialName::new("aws").expect("`aws` is a name");
        let from = signing.parts[0].from.clone();
        Self {
            env: signing.variables(),
            signing: Some(signing),
            ..Self::named(name, from)
        }
    }

    /// Returns its own places, those of its preset, or the common ones.
    #[must_use]
    pub fn places_or_common(&self) -> Vec<Place> {
        match self.known() {
            _ if !self.places.is_empty() => self.places.clone(),
            Some(known) => known.places.clone(),
            None => common_places(),
        }
    }

    /// Returns what its preset says about it: the credential that clients read from its variable or
    /// name, or the preset's only one.
    #[must_use]
    pub fn known(&self) -> Option<&'static PresetCredential> {
        let preset = preset::named(self.preset.as_deref()?)?;
        let called = |credential: &&PresetCredential| {
            credential.name == self.name
                || credential
                    .variables
                    .iter()
                    .any(|variable| variable == self.name.as_str() || self.env.contains(variable))
        };
        match &preset.credentials[..] {
            [only] => Some(only),
            several => several.iter().find(called),
        }
    }

    /// Returns where each of its secret values is kept.
    pub fn references(&self) -> impl Iterator<Item = &SecretRef> {
        let parts = self.signing.iter().flat_map(|signing| &signing.parts);
        std::iter::once(&self.from).chain(parts.map(|part| &part.from))
    }

    /// Returns the origins that it names. For a signing credential, the signer derives them from
    /// those.
    #[must_use]
    pub fn own_origins(&self) -> Vec<OriginPattern> {
        match &self.signing {
            Some(signing) => signing.signer.origins(&self.origins),
            None => self.origins.clone(),
        }
    }
}

/// Returns the places of a credential that names none: where clients put a key they know nothing
/// more about.
fn common_places() -> Vec<Place> {
    COMMON_PLACES
        .iter()
        .filter_map(|place| place.parse().ok())
        .collect()
}

/// The places of [`common_places`] in the notation of the configuration.
const COMMON_PLACES: &[&str] = &[
    "header:authorization:Bearer",
    "header:authorization:token",
    "header:x-api-key",
    "basic:password",
];

pub(super) fn credential(section: &Section<'_, '_>) -> Option<Credential> {
    if !section.has("name") {
        section.missing(
            "name",
            "policies and the audit log call it by its name",
            "add `name = \"GITHUB_TOKEN\"`",
        );
    }
    let name = section.parsed("name", |text| {
        CredentialName::new(text).map_err(|malformed| {
            Hint::new(malformed.to_string(), "write for example `GITHUB_TOKEN`")
        })
    });
    let signing = signing::signing(section);
    let from = match reference::read(section, "from", "credential.from") {
        // The first part is kept here; the others are in `signing`.
        _ if section.has("sign") => signing
            .as_ref()
            .and_then(|signing| Some(signing.parts.first()?.from.clone())),
        Some(reference) => Some(reference),
        None if section.has("from") => None,
        None => name
            .as_ref()
            .and_then(|name| from_name(section, name.get_ref())),
    };
    let preset = section
        .parsed("preset", known_preset)
        .map(Spanned::into_inner);
    let origins = values(section.each("origins", network::origin));
    let places = values(section.each("places", place));
    let when = section
        .choice(
            "inject",
            &[("phantom", When::Phantom), ("always", When::Always)],
        )
        .unwrap_or(When::Phantom);
    let methods = values(section.each("methods", method));
    let read = Credential {
        by_flag: false,
        env: match &signing {
            Some(signing) => signing.variables(),
            None => env(
                section,
                name.as_ref().map(Spanned::get_ref),
                preset.as_deref(),
            ),
        },
        name: name.clone().map_or_else(
            || CredentialName::new("unnamed").ok(),
            |name| Some(name.into_inner()),
        )?,
        from: from.clone().unwrap_or_else(|| SecretRef::env("")),
        preset,
        origins,
        places,
        shape: section.parsed("shape", shape).map(Spanned::into_inner),
        when,
        foreign: section
            .choice(
                "foreign_credential",
                &[("refuse", Foreign::Refuse), ("strip", Foreign::Strip)],
            )
            .unwrap_or(Foreign::Refuse),
        takes: section
            .has("takes")
            .then(|| values(section.each("takes", taken))),
        cookies: values(section.each("cookies", cookie)),
        methods,
        path: section.parsed("path", path).map(Spanned::into_inner),
        allow_short: section.truth("allow_short").unwrap_or(false),
        signing,
    };
    contradictions(section, &read);
    (name.is_some() && from.is_some()).then_some(read)
}

fn from_name(section: &Section<'_, '_>, name: &CredentialName) -> Option<SecretRef> {
    let variable = variable(name.as_str()).ok();
    if variable.is_none() {
        let why =
            "its name is no variable of the environment, so it does not say where the secret is";
        section.missing("from", why, "add `from = \"keyring:gateway/NAME\"`");
    }
    variable.map(SecretRef::env)
}

/// Returns the variables of the workload: those that are named, else the credential's own name,
/// else those of its preset.
fn env(
    section: &Section<'_, '_>,
    name: Option<&CredentialName>,
    preset: Option<&str>,
) -> Vec<String> {
    if section.has("env") {
        return values(section.each("env", sandbox_variable));
    }
    let preset = preset
        .and_then(preset::named)
        .map(|preset| preset.credentials.as_slice())
        .unwrap_or_default();
    let own = name.and_then(|name| sandbox_variable(name.as_str()).ok());
    match preset {
        [only] if !own.as_ref().is_some_and(|own| only.variables.contains(own)) => {
            only.variables.clone()
        }
        _ => own.into_iter().collect(),
    }
}

/// Checks the name of a login. Whether there is one is known when it is looked up.
///
/// # Errors
/// Returns a [`Hint`] if no login has such a name.
pub(super) fn login_name(text: &str) -> Result<String, Hint> {
    let name = CredentialName::new(text);
    let hint = |why: String| Hint::new(why, "write for example `claude`");
    name.map(|name| name.to_string())
        .map_err(|malformed| hint(malformed.to_string()))
}

/// Checks the name of a preset.
pub(super) fn known_preset(text: &str) -> Result<String, Hint> {
    if preset::named(text).is_some() {
        return Ok(text.to_owned());
    }
    if text.contains(',') {
        let remedy = "name each by its own flag, as in `--preset github --preset npm`";
        return Err(Hint::new("it is several names", remedy));
    }
    if text.contains(['/', '.']) {
        let remedy = "write a `[[credential]]` with its origins and places to a file, and name that: `--config FILE`";
        return Err(Hint::new(
            "presets are built in, and none is read from a file",
            remedy,
        ));
    }
    let near = keys::nearest(text, preset::names());
    let remedy = near.map_or_else(
        || String::from("see `gateway presets`"),
        |near| format!("did you mean `{near}`?"),
    );
    Err(Hint::new("no preset has that name", remedy))
}

pub(super) fn place(text: &str) -> Result<Place, Hint> {
    let example = "write for example `header:authorization:Bearer`";
    match text.parse::<Place>() {
        Ok(Place::Signature(_)) => Err(Hint::new(
            "a credential that signs requests has no place in them",
            "write `sign = \"sigv4\"` and no `places`",
        )),
        Ok(place) => Ok(place),
        Err(malformed) => Err(Hint::new(malformed.to_string(), example)),
    }
}

fn taken(text: &str) -> Result<Taken, Hint> {
    let example = "write for example `query:token`, `header:deploy-token` or `path:/hooks/*`";
    text.parse()
        .map_err(|malformed: crate::message::TakenMalformed| {
            Hint::new(malformed.to_string(), example)
        })
}

/// Checks the name of a cookie; `*` matches every cookie.
fn cookie(text: &str) -> Result<String, Hint> {
    match format!("cookie:{text}").parse() {
        Ok(Place::Cookie(name)) => Ok(name),
        _ => Err(Hint::new(
            "it is no name of a cookie",
            "write for example `JSESSIONID`, or `*` for every cookie",
        )),
    }
}

pub(super) fn shape(text: &str) -> Result<String, Hint> {
    let example = "write for example `ghp_[36 alnum]`";
    Shape::parse(text)
        .map(|_| text.to_owned())
        .map_err(|malformed| Hint::new(malformed.to_string(), example))
}

fn method(text: &str) -> Result<Method, Hint> {
    let hint = |why: String| Hint::new(why, "write for example `GET` or `POST`");
    let method =
        Method::from_bytes(text.as_bytes()).map_err(|_| hint(String::from("it is no method")))?;
    crate::message::method::check(&method).map_err(|refused| hint(refused.to_string()))?;
    Ok(method)
}

fn path(text: &str) -> Result<String, Hint> {
    let target =
        RequestTarget::parse(text.as_bytes(), EncodedSlash::Keep).map_err(|malformed| {
            Hint::new(
                malformed.to_string(),
                "write for example `/repos/owner/name`",
            )
        })?;
    if target.query().is_some() {
        return Err(Hint::new(
            "a path has no query",
            "write the path alone; policies judge the query",
        ));
    }
    if target.path() != text {
        return Err(Hint::new(
            "it is not in the form that requests are judged in",
            format!("write `{}`", target.path()),
        ));
    }
    Ok(text.to_owned())
}

fn contradictions(section: &Section<'_, '_>, read: &Credential) {
    if read.signing.is_some() {
        if read.own_origins().is_empty() && !section.has("origins") {
            let remedy = "add `origins = [\"https://api.example.com\"]`";
            section.missing(
                "origins",
                "the recipe leaves them to you: the service's host is your own",
                remedy,
            );
        }
        return;
    }
    if read.origins.is_empty() && !section.has("origins") {
        no_origins(section, read);
    }
    if read.preset.is_some() && read.known().is_none() {
        let why = "the preset has several credentials, and neither the name nor `env` tells which this one is";
        let remedy =
            "name the variable that clients read it from in `env` (see `gateway presets NAME`)";
        section.error(
            "preset",
            "the preset does not say which credential is meant",
            Hint::new(why, remedy),
        );
    }
    for key in ["origins", "places"] {
        let empty = section
            .value(key)
            .and_then(|value| value.get_ref().as_array())
            .is_some_and(|list| list.is_empty());
        if empty {
            section.error(
                key,
                format!("`{key}` is empty"),
                Hint::new(
                    "it could never be lent",
                    "name at least one, or remove the key",
                ),
            );
        }
    }
    if read.when == When::Always && read.places_or_common().len() != 1 {
        let why = "without a phantom, nothing says which of several places the client meant";
        let remedy = "name exactly one place, such as `places = [\"header:authorization:Bearer\"]`";
        section.error(
            "inject",
            "`inject = \"always\"` needs exactly one place",
            Hint::new(why, remedy),
        );
    }
    if read.when == When::Phantom && read.env.is_empty() && section.has("env") {
        section.document.warn(
            &section.span_of("env"),
            "no variable holds the phantom",
            Hint::new(
                "the workload could never present it",
                "name a variable, or write `inject = \"always\"`",
            ),
        );
    }
    if read.allow_short {
        let why = "a secret of fewer than eight bytes is found by chance and can be guessed";
        section.document.warn(
            &section.span_of("allow_short"),
            "short secrets are taken",
            Hint::new(why, "use a longer secret where the service allows it"),
        );
    }
}

fn no_origins(section: &Section<'_, '_>, read: &Credential) {
    match read.known() {
        // An unknown or ambiguous preset is reported as a mistake of its own.
        None if section.has("preset") => {}
        None => {
            let remedy = "add `origins = [\"https://api.example.com\"]`, or `preset = \"NAME\"` (see `gateway presets`)";
            section.missing(
                "origins",
                "a secret goes only where its credential says",
                remedy,
            );
        }
        Some(known) if known.origins.is_empty() => {
            let example = known.your_host.as_deref().unwrap_or("registry.example.com");
            let remedy = format!("add `origins`, such as `[\"https://{example}\"]`");
            section.missing(
                "origins",
                "the preset leaves them to you: the service's host is your own",
                &remedy,
            );
        }
        Some(_) => {}
    }
}

fn values<T>(list: Vec<Spanned<T>>) -> Vec<T> {
    list.into_iter().map(Spanned::into_inner).collect()
}
