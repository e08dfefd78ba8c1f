//! `[[credential]]`: which secret may go to which origins, and the phantom that the workload holds.

use std::path::{Path, PathBuf};

use gateway_credential::SecretRef;
use gateway_credential::preset::{self, Preset, PresetCredential, PresetPermission};
use gateway_files as files;
use gateway_message::{AcceptedCredential, EncodedSlash, OriginPattern, Place, RequestTarget};
use gateway_names::{CredentialName, join};
use gateway_session::phantom::Shape;
use gateway_session::{Foreign, When};
use http::Method;

use super::diagnostic::{Hint, remedy};
use super::keys;
use super::network;
use super::reference::{self, variable};
use super::section::{Section, parsed};
use super::signing::{self, SigningCredential};
use super::variable::sandbox_variable;

/// Binds a secret to origins and places.
#[derive(Debug, Clone)]
pub struct Credential {
    /// Its name in policies and in the audit log.
    pub name: CredentialName,
    /// The reference of the secret.
    pub from: SecretRef,
    /// The preset that fills in what is left out.
    pub preset: Option<String>,
    /// The origins that it may go to. If empty, those of the preset.
    pub origins: Vec<OriginPattern>,
    /// The places where it may stand; see [`Credential::places_or_common`].
    pub places: Vec<Place>,
    /// The variables of the workload that hold the phantom.
    pub env: Vec<String>,
    /// The phantom's shape, if it differs from the secret's.
    pub shape: Option<String>,
    /// When the secret is injected.
    pub when: When,
    /// The treatment of another credential in one of its places.
    pub foreign: Foreign,
    /// Further places where its origins accept credentials. `None` means those of the preset.
    pub takes: Option<Vec<AcceptedCredential>>,
    /// Cookies that may go to its origins, beyond those of the places and the preset.
    pub cookies: Vec<String>,
    /// The methods that it is lent to. If empty, all.
    pub methods: Vec<Method>,
    /// The path prefix that it is lent for, in canonical form.
    pub path: Option<String>,
    /// Whether a secret of fewer than eight bytes is accepted.
    pub allow_short: bool,
    /// How it signs requests, if it signs instead of being injected.
    pub signing: Option<SigningCredential>,
    /// Whether it comes from a flag, not from a file.
    pub by_flag: bool,
}

impl Credential {
    /// Creates a credential with the default settings.
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
    pub fn aws() -> Option<Self> {
        SigningCredential::of_environment().map(Self::signed)
    }

    /// Returns the AWS credentials that a program prints.
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
    pub fn places_or_common(&self) -> Vec<Place> {
        match self.known() {
            _ if !self.places.is_empty() => self.places.clone(),
            Some(known) => known.places.clone(),
            None => common_places(),
        }
    }

    /// Returns the preset's entry for it: the credential that clients read from its variable or
    /// name, or the preset's only one.
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

    /// Returns the reference of each of its secret values.
    pub fn references(&self) -> impl Iterator<Item = &SecretRef> {
        let parts = self.signing.iter().flat_map(|signing| &signing.parts);
        std::iter::once(&self.from).chain(parts.map(|part| &part.from))
    }

    /// Returns its own origins. For a signing credential, the signer derives them.
    pub fn own_origins(&self) -> Vec<OriginPattern> {
        match &self.signing {
            Some(signing) => signing.signer.origins(&self.origins),
            None => self.origins.clone(),
        }
    }
}

/// Returns the places of a credential that names none: where clients commonly put an API key.
fn common_places() -> Vec<Place> {
    let places = "header:authorization:Bearer header:authorization:token header:x-api-key \
                  basic:password";
    places.split(' ').flat_map(str::parse).collect()
}

pub(super) fn credential(section: &Section<'_, '_>) -> Option<Credential> {
    require!(section, "name"; "policies and the audit log call it by its name";
        "add `name = \"GITHUB_TOKEN\"`");
    let name = section.get("name", |text| {
        CredentialName::new(text).map_err(remedy("write for example `GITHUB_TOKEN`"))
    });
    let signing = signing::signing(section);
    let from = match reference::read(section, "from", "credential.from") {
        // The first part is stored here; the others are in `signing`.
        _ if section.has("sign") => {
            let first = signing.as_ref().and_then(|signing| signing.parts.first());
            first.map(|part| part.from.clone())
        }
        None if !section.has("from") => name.as_ref().and_then(|name| from_name(section, name)),
        reference => reference,
    };
    let preset = section.get("preset", known_preset);
    let whens = [("phantom", When::Phantom), ("always", When::Always)];
    let foreigns = [("refuse", Foreign::Refuse), ("strip", Foreign::Strip)];
    let example = "write for example `query:token`, `header:deploy-token` or `path:/hooks/*`";
    let takes = section.all("takes", parsed::<AcceptedCredential>(example));
    let is_whole = name.is_some() && from.is_some();
    let name = name.or_else(|| CredentialName::new("unnamed").ok())?;
    let named = Credential::named(name, from.unwrap_or_else(|| SecretRef::env("")));
    let foreign = section.choice("foreign_credential", &foreigns);
    let read = Credential {
        env: match &signing {
            Some(signing) => signing.variables(),
            None => env(section, &named.name, preset.as_deref()),
        },
        preset,
        origins: section.all("origins", network::origin),
        places: section.all("places", place),
        shape: section.get("shape", shape),
        when: section.choice("inject", &whens).unwrap_or(named.when),
        foreign: foreign.unwrap_or(named.foreign),
        takes: section.has("takes").then_some(takes),
        cookies: section.all("cookies", cookie),
        methods: section.all("methods", method),
        path: section.get("path", path),
        allow_short: section.is_true("allow_short"),
        signing,
        ..named
    };
    contradictions(section, &read);
    is_whole.then_some(read)
}

fn from_name(section: &Section<'_, '_>, name: &CredentialName) -> Option<SecretRef> {
    let variable = variable(name.as_str()).ok();
    if variable.is_none() {
        require!(section, "from";
            "its name is no variable of the environment, so it does not \
            say where the secret is";
            "add `from = \"keyring:gateway/NAME\"`");
    }
    variable.map(SecretRef::env)
}

/// Returns the variables of the workload: the named ones, else the credential's own name, else
/// those of its preset.
fn env(section: &Section<'_, '_>, name: &CredentialName, preset: Option<&str>) -> Vec<String> {
    if section.has("env") {
        return section.all("env", sandbox_variable);
    }
    let preset = preset.and_then(preset::named);
    let preset = preset.map_or(&[][..], |preset| &preset.credentials);
    let own = sandbox_variable(name.as_str()).ok();
    match preset {
        [only] if !own.as_ref().is_some_and(|own| only.variables.contains(own)) => {
            only.variables.clone()
        }
        _ => own.into_iter().collect(),
    }
}

/// Checks the name of a login. Whether such a login exists is known at its first use.
///
/// # Errors
/// Returns a [`Hint`] if no login has such a name.
pub(super) fn login_name(text: &str) -> Result<String, Hint> {
    let name = CredentialName::new(text).map_err(remedy("write for example `claude`"))?;
    Ok(name.to_string())
}

/// Checks the name of a preset.
pub(super) fn known_preset(text: &str) -> Result<String, Hint> {
    if preset::named(text).is_some() {
        return Ok(text.to_owned());
    }
    if text.contains(',') {
        return refused!("it is several names";
            "name each by its own flag, as in `--preset github --preset npm`");
    }
    if text.contains(['/', '.']) {
        return refused!("a preset of one's own is named by the path of its file, in `presets` alone";
            "write `./NAME.toml` to `presets` of [policy], or `--preset ./NAME.toml`");
    }
    if text.contains(':') {
        return refused!("a permission narrows a whole preset, and not one credential";
            "write it to `presets` of [policy], or `--preset {text}`");
    }
    let otherwise = || String::from("see `gateway secret presets`");
    let remedy = keys::did_you_mean(text, preset::names(), otherwise);
    refused!("no preset has that name"; "{remedy}")
}

/// A preset that a configuration requests, with a permission, and with the file of one's own.
pub(super) struct RequestedPreset {
    pub preset: &'static Preset,
    pub permission: Option<&'static PresetPermission>,
    pub file: Option<PathBuf>,
}

/// Reads the name of a preset, or the path of one's own, behind which `:PERMISSION` may stand.
pub(super) fn requested_preset(
    text: &str,
    path: impl Fn(&str) -> Result<PathBuf, Hint>,
) -> Result<RequestedPreset, Hint> {
    let (name, permission) = match text.rsplit_once(':') {
        Some((name, permission)) => (name, Some(permission)),
        None => (text, None),
    };
    let file = name.contains('/').then(|| path(name)).transpose()?;
    let preset = match &file {
        Some(file) => own_preset(file)?,
        None => {
            known_preset(name)?;
            preset::named(name).ok_or_else(|| hint!("no preset has that name"; "name another"))?
        }
    };
    let known = permission.and_then(|name| preset.permission(name));
    if permission.is_none() || known.is_some() {
        return Ok(RequestedPreset {
            preset,
            permission: known,
            file,
        });
    }
    if preset.permissions.is_empty() {
        return refused!("the preset has no named permissions";
            "name it alone, and write rules for what it may");
    }
    let all = preset.permissions.iter().map(|one| &one.name);
    let (preset, names) = (&preset.name, join(all, "`, `"));
    refused!("the preset has no such permission"; "`{preset}` has `{names}`")
}

fn own_preset(path: &Path) -> Result<&'static Preset, Hint> {
    let read = files::read(path, LARGEST_PRESET_MIB).map_err(|unfit| Hint::of(&unfit, path))?;
    let preset = preset::own::read(path, &read).map_err(
        |mistake| hint!("the preset is refused: {mistake}"; "correct it by docs/presets.md"),
    )?;
    for variable in preset.credentials.iter().flat_map(|one| &one.variables) {
        sandbox_variable(variable)?;
    }
    Ok(preset)
}

/// The largest file of a preset that is accepted, in MiB.
const LARGEST_PRESET_MIB: u64 = 1;

pub(super) fn place(text: &str) -> Result<Place, Hint> {
    match text.parse::<Place>() {
        Ok(Place::Signature(_)) => {
            refused!("a credential that signs requests has no place in them";
                "write `sign = \"sigv4\"` and no `places`")
        }
        read => read.map_err(remedy("write for example `header:authorization:Bearer`")),
    }
}

/// Checks the name of a cookie; `*` matches every cookie.
fn cookie(text: &str) -> Result<String, Hint> {
    match format!("cookie:{text}").parse() {
        Ok(Place::Cookie(name)) => Ok(name),
        _ => refused!("it is no name of a cookie";
            "write for example `JSESSIONID`, or `*` for every cookie"),
    }
}

pub(super) fn shape(text: &str) -> Result<String, Hint> {
    Shape::parse(text).map_err(remedy("write for example `ghp_[36 alnum]`"))?;
    Ok(text.to_owned())
}

fn method(text: &str) -> Result<Method, Hint> {
    let example = "write for example `GET` or `POST`";
    let method = Method::from_bytes(text.as_bytes());
    let method = method.map_err(|_| hint!("it is no method"; "{example}"))?;
    gateway_message::method::check(&method).map_err(remedy(example))?;
    Ok(method)
}

fn path(text: &str) -> Result<String, Hint> {
    let target = RequestTarget::judged(text.as_bytes(), EncodedSlash::Keep);
    let target = target.map_err(remedy("write for example `/repos/owner/name`"))?;
    if target.query().is_some() {
        return refused!("a path has no query"; "write the path alone; policies judge the query");
    }
    match target.path() {
        path if path != text => {
            refused!("it is not in the form that requests are judged in"; "write `{path}`")
        }
        _ => Ok(text.to_owned()),
    }
}

fn contradictions(section: &Section<'_, '_>, read: &Credential) {
    if read.signing.is_some() {
        if read.own_origins().is_empty() && !section.has("origins") {
            require!(section, "origins";
                "the recipe leaves them to you: the service's host is your own";
                "add `origins = [\"https://api.example.com\"]`");
        }
        return;
    }
    if read.origins.is_empty() && !section.has("origins") {
        no_origins(section, read);
    }
    if read.preset.is_some() && read.known().is_none() {
        mistake!(section, "preset", "the preset does not say which credential is meant";
            "the preset has several credentials, and neither the name nor `env` tells which this \
             one is";
            "name the variable that clients read it from in `env` (see `gateway secret presets NAME`)");
    }
    for key in ["origins", "places"] {
        let list = section
            .value(key)
            .and_then(|value| value.get_ref().as_array());
        if list.is_some_and(|list| list.is_empty()) {
            mistake!(section, key, "`{key}` is empty"; "it could never be lent";
                "name at least one, or remove the key");
        }
    }
    if read.when == When::Always && read.places_or_common().len() != 1 {
        mistake!(section, "inject", "`inject = \"always\"` needs exactly one place";
            "without a phantom, nothing says which of several places the client meant";
            "name exactly one place, such as `places = [\"header:authorization:Bearer\"]`");
    }
    if read.when == When::Phantom && read.env.is_empty() && section.has("env") {
        warning!(section, "env", "no variable holds the phantom";
            "the workload could never present it";
            "name a variable, or write `inject = \"always\"`");
    }
    if read.allow_short {
        warning!(section, "allow_short", "short secrets are taken";
            "a secret of fewer than eight bytes is found by chance and can be guessed";
            "use a longer secret where the service allows it");
    }
}

fn no_origins(section: &Section<'_, '_>, read: &Credential) {
    match read.known() {
        // An unknown or ambiguous preset is reported as a mistake of its own.
        None if section.has("preset") => {}
        None => require!(section, "origins"; "a secret goes only where its credential says";
            "add `origins = [\"https://api.example.com\"]`, or `preset = \"NAME\"` \
             (see `gateway secret presets`)"),
        Some(known) if known.origins.is_empty() => {
            let example = known.your_host.as_deref().unwrap_or("registry.example.com");
            require!(section, "origins";
                "the preset leaves them to you: the service's host is your own";
                "add `origins`, such as `[\"https://{example}\"]`");
        }
        Some(_) => {}
    }
}
