//! Why bindings are refused at load: one is too broad or unprotected, or two conflict.

use std::collections::HashSet;

use gateway_message::{Place, Scheme};
use gateway_names::CredentialName;
use http::Method;

use super::binding::{Binding, MAX_PLACES, When, is_below};
use super::signing::Role;

/// Why bindings are refused at load.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindingMalformed {
    /// Two bindings name the same credential.
    #[error("credential `{0}` is bound twice")]
    Twice(CredentialName),
    /// Its environment variable already holds another credential's phantom.
    #[error("the phantoms of `{1}` and `{0}` would both be in `{2}`")]
    Variable(CredentialName, CredentialName, String),
    /// It has no origin or no place.
    #[error("credential `{0}` needs at least one origin and one place")]
    Empty(CredentialName),
    /// It has too many places.
    #[error("credential `{0}` has more than {MAX_PLACES} places")]
    Places(CredentialName),
    /// It would travel to another machine in cleartext.
    #[error("credential `{0}` would travel in clear text; `http` is for loopback addresses alone")]
    Cleartext(CredentialName),
    /// It is always injected at a Basic place, which needs a user name.
    #[error(
        "credential `{0}` is always put in at a Basic place, and no preset knows the user beside it"
    )]
    BasicUser(CredentialName),
    /// It is always injected at a place that exists only with its phantom.
    #[error(
        "credential `{0}` is always put in, and `{1}` is a place only where its phantom stands"
    )]
    Phantomless(CredentialName, Place),
    /// It has a place in content or in a WebSocket, but its methods have no such place.
    #[error("credential `{0}` has the place `{1}`, and requests of its methods have none such")]
    Unmet(CredentialName, Place),
    /// It has several places in the messages of a WebSocket.
    #[error("credential `{0}` has more than one place in the messages of a WebSocket")]
    Messages(CredentialName),
    /// One of the two would overwrite the other.
    #[error("credentials `{0}` and `{1}` share `{2}`, and one is always put there")]
    Clash(CredentialName, CredentialName, String),
    /// A part of a signing credential has no binding of its own.
    #[error("a part of the signing credential `{0}` is missing")]
    Part(CredentialName),
    /// A path does not begin with a slash.
    #[error("credential `{0}` has a path that does not begin with `/`")]
    Path(CredentialName),
}

impl BindingMalformed {
    /// Returns how to correct it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Twice(_) => "give each credential its own name",
            Self::Variable(..) => "name another variable in `env`",
            Self::Empty(_) => "name the origins and places that it is for",
            Self::Places(_) => "name fewer places",
            Self::Cleartext(_) => "write `https://`",
            Self::BasicUser(_) => "name another place, or a preset that knows the user",
            Self::Phantomless(..) => "name another place, or write `inject = \"phantom\"`",
            Self::Unmet(..) => "name `POST` in `methods`, `GET` for a WebSocket, or another place",
            Self::Messages(_) => "name one of them, and a credential of its own for the other",
            Self::Clash(..) => {
                "narrow their `origins`, `methods` or `path`, or write `inject = \"phantom\"`"
            }
            Self::Part(_) => "name every part that it signs with",
            Self::Path(_) => "write for example `/repos/owner/name`",
        }
    }
}

/// Finds every reason to refuse a configuration's bindings, each with the index of the binding to
/// change. For a conflict between two, that is the later one.
pub fn mistakes(bindings: &[Binding]) -> Vec<(usize, BindingMalformed)> {
    let mut found = Vec::new();
    let mut names = HashSet::new();
    for (at, binding) in bindings.iter().enumerate() {
        let mut add = |mistake: Option<BindingMalformed>| {
            found.extend(mistake.map(|mistake| (at, mistake)));
        };
        let name = || binding.credential.clone();
        add(check(binding).err());
        if !names.insert(&binding.credential) {
            add(Some(BindingMalformed::Twice(name())));
            continue;
        }
        add(bindings[..at].iter().find_map(|other| {
            let place = clash(other, binding)?;
            let earlier = other.credential.clone();
            Some(BindingMalformed::Clash(earlier, name(), place))
        }));
        add(bindings[..at].iter().find_map(|other| {
            let shared = |name: &&String| other.variables.contains(name);
            let variable = binding.variables.iter().find(shared)?.clone();
            let earlier = other.credential.clone();
            Some(BindingMalformed::Variable(name(), earlier, variable))
        }));
        if !has_parts(binding, bindings) {
            add(Some(BindingMalformed::Part(name())));
        }
    }
    found
}

fn check(binding: &Binding) -> Result<(), BindingMalformed> {
    let name = || binding.credential.clone();
    let placeless = binding.places.is_empty() && !matches!(binding.role, Role::Part(_));
    let is_kept = matches!(binding.role, Role::Kept);
    if !is_kept && (binding.origins.is_empty() || placeless) {
        return Err(BindingMalformed::Empty(name()));
    }
    if binding.places.len() > MAX_PLACES {
        return Err(BindingMalformed::Places(name()));
    }
    if binding.paths.iter().any(|path| !path.starts_with('/')) {
        return Err(BindingMalformed::Path(name()));
    }
    for origin in &binding.origins {
        if origin.scheme == Scheme::Http && !origin.is_loopback() {
            return Err(BindingMalformed::Cleartext(name()));
        }
    }
    if let (When::Always, Some(place)) = (binding.when, binding.places.first())
        && place.is_made_by_the_client()
    {
        return Err(BindingMalformed::Phantomless(name(), place.clone()));
    }
    if let Some(place) = binding
        .places
        .iter()
        .find(|place| !can_be_met(binding, place))
    {
        return Err(BindingMalformed::Unmet(name(), place.clone()));
    }
    if binding
        .places
        .iter()
        .filter(|place| place.is_in_messages())
        .count()
        > 1
    {
        return Err(BindingMalformed::Messages(name()));
    }
    let basic = binding.places.first().is_some_and(Place::needs_user);
    let usable = binding
        .basic_user
        .as_ref()
        .is_some_and(|user| !user.contains(':') && !user.contains(char::is_control));
    if binding.when == When::Always && basic && !usable {
        return Err(BindingMalformed::BasicUser(name()));
    }
    Ok(())
}

/// Whether a request of one of the binding's methods can have the place.
fn can_be_met(binding: &Binding, place: &Place) -> bool {
    binding.methods.is_empty()
        || binding.methods.iter().any(|method| match *method {
            // A WebSocket begins with GET (RFC 6455 §4.1).
            Method::GET => !place.is_in_content(),
            Method::HEAD => !place.is_in_content() && !place.is_in_messages(),
            _ => !place.is_in_messages(),
        })
}

/// Whether every part of a signing credential, except the first, is bound exactly once.
fn has_parts(binding: &Binding, all: &[Binding]) -> bool {
    let mut others = binding
        .signing()
        .into_iter()
        .flat_map(|signing| signing.parts.iter().skip(1));
    others.all(|part| {
        let kept = |other: &&Binding| {
            other.credential == part.credential && matches!(other.role, Role::Part(_))
        };
        all.iter().filter(kept).count() == 1
    })
}

/// Returns the place where two bindings conflict: one credential is always injected there, and the
/// other may appear there in the same request.
fn clash(one: &Binding, two: &Binding) -> Option<String> {
    let apart = |one: &[Method], two: &[Method]| {
        !one.is_empty() && !two.is_empty() && !one.iter().any(|method| two.contains(method))
    };
    let paths_apart = !one.paths.is_empty()
        && !two.paths.is_empty()
        && !one.paths.iter().any(|path| {
            two.paths
                .iter()
                .any(|other| is_below(path, other) || is_below(other, path))
        });
    let overlap = one
        .origins
        .iter()
        .any(|origin| two.origins.iter().any(|other| origin.overlaps(other)));
    let always = [one, two].iter().any(|each| each.when == When::Always);
    if !always || !overlap || paths_apart || apart(&one.methods, &two.methods) {
        return None;
    }
    // A credential that is always injected uses only its first place.
    let places = |binding: &Binding| {
        let count = match binding.when {
            When::Always => 1,
            When::Phantom => binding.places.len(),
        };
        let places = binding.places.iter().take(count).map(Place::site);
        places.collect::<Vec<String>>()
    };
    let taken = places(one);
    places(two).into_iter().find(|place| taken.contains(place))
}
