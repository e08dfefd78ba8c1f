//! Bindings: which credential may stand where, in requests to whom.

use std::collections::HashSet;
use std::sync::Arc;

use http::{HeaderName, Method};

use super::signing::{Role, Signing};
use crate::message::{
    EncodedSlash, Host, HostPattern, Origin, OriginPattern, Place, Route, Scheme, Taken, TakenPart,
};
use crate::names::{CredentialName, Map};
use crate::session::phantom::{Phantoms, Shape};

/// Binds one credential to origins and places.
#[derive(Debug, Clone)]
pub struct Binding {
    /// The credential; each has one binding.
    pub credential: CredentialName,
    /// Its declared shape; without one the secret is looked at when a session starts.
    pub shape: Option<Shape>,
    /// The origins to which it may be lent.
    pub origins: Vec<OriginPattern>,
    /// The places where it may stand, at most [`MAX_PLACES`].
    pub places: Vec<Place>,
    /// The methods with which it may be lent; empty is all.
    pub methods: Vec<Method>,
    /// The paths to which it may be lent, each with everything below it; empty is all.
    pub paths: Vec<String>,
    /// When it is put in.
    pub when: When,
    /// What becomes of another credential in a credential place of its origins.
    pub foreign: Foreign,
    /// Further places in which its origins take credentials: what stands there is none of ours.
    pub takes: Vec<Taken>,
    /// Cookies that may go to its origins, beside those of places; `*` is every one.
    pub cookies: Vec<String>,
    /// Where its origins take many requests in one, beside what is known of all origins.
    pub batches: Vec<Route>,
    /// The user that stands beside a Basic password that is always put in.
    pub basic_user: Option<String>,
    /// The variables that hold its phantom in the sandbox.
    pub variables: Vec<String>,
    /// What it is for.
    pub role: Role,
}

/// When a credential is put into a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum When {
    /// Where its phantom stands. A request without the phantom goes on without a credential, if
    /// policy lets it.
    #[default]
    Phantom,
    /// Into every request to its origins, at its first place.
    Always,
}

/// What becomes of a credential that is not ours in a credential place of a managed origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Foreign {
    /// The request is refused.
    #[default]
    Refuse,
    /// The field is removed; anywhere else it is refused all the same.
    Strip,
}

/// Why bindings are refused at load.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindingMalformed {
    /// Two bindings name one credential.
    #[error("credential `{0}` is bound twice")]
    Twice(CredentialName),
    /// Its variable holds the phantom of another.
    #[error("the phantoms of `{1}` and `{0}` would both stand in `{2}`")]
    Variable(CredentialName, CredentialName, String),
    /// It has no origin or no place.
    #[error("credential `{0}` needs at least one origin and one place")]
    Empty(CredentialName),
    /// It has too many places.
    #[error("credential `{0}` has more than {MAX_PLACES} places")]
    Places(CredentialName),
    /// It would travel in clear text to another machine.
    #[error("credential `{0}` would travel in clear text; `http` is for loopback addresses alone")]
    Cleartext(CredentialName),
    /// It is always put in, at a place that needs a user beside it.
    #[error(
        "credential `{0}` is always put in at a Basic place, and no preset knows the user beside it"
    )]
    BasicUser(CredentialName),
    /// The first would be put over the second, or the second over the first.
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
    /// What to write instead.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Twice(_) => "give each credential its own name",
            Self::Variable(..) => "name another variable in `env`",
            Self::Empty(_) => "name the origins and places that it is for",
            Self::Places(_) => "name fewer places",
            Self::Cleartext(_) => "write `https://`",
            Self::BasicUser(_) => "name another place, or a preset that knows the user",
            Self::Clash(..) => {
                "narrow their `origins`, `methods` or `path`, or write `when = \"phantom\"`"
            }
            Self::Part(_) => "name every part that it signs with",
            Self::Path(_) => "write for example `/repos/owner/name`",
        }
    }
}

/// A binding at work.
pub(super) struct Bound {
    pub(super) binding: Binding,
    /// Its place in the configuration, by which `credential` knows it.
    pub(super) index: usize,
    /// The text forms of its places.
    pub(super) place_texts: Vec<Box<str>>,
    /// The fields in which its places stand, and those that hold other credentials.
    pub(super) fields: Vec<HeaderName>,
}

/// All bindings of a configuration, by origin.
pub struct Bindings {
    all: Vec<Arc<Bound>>,
    exact: Map<Host, Vec<Arc<Bound>>>,
    below: Map<Box<str>, Vec<Arc<Bound>>>,
    /// Whether any credential signs.
    signs: bool,
}

impl Bindings {
    /// Takes a configuration's bindings, after checking that none is too wide, open or ambiguous.
    ///
    /// # Errors
    /// [`BindingMalformed`] by cause.
    pub fn new(bindings: Vec<Binding>) -> Result<Self, BindingMalformed> {
        if let Some((_, mistake)) = Self::mistakes(&bindings).into_iter().next() {
            return Err(mistake);
        }
        let all: Vec<Arc<Bound>> = bindings
            .into_iter()
            .enumerate()
            .map(|(index, binding)| Arc::new(Bound::new(binding, index)))
            .collect();
        let mut exact: Map<Host, Vec<Arc<Bound>>> = Map::default();
        let mut below: Map<Box<str>, Vec<Arc<Bound>>> = Map::default();
        for bound in &all {
            let hosts: HashSet<&HostPattern> = bound
                .binding
                .origins
                .iter()
                .map(|origin| &origin.hosts)
                .collect();
            for pattern in hosts {
                match pattern {
                    HostPattern::Exact(host) => exact
                        .entry(host.clone())
                        .or_default()
                        .push(Arc::clone(bound)),
                    HostPattern::Below(host) => below
                        .entry(host.as_str().into())
                        .or_default()
                        .push(Arc::clone(bound)),
                }
            }
        }
        let signs = all.iter().any(|bound| bound.binding.signing().is_some());
        Ok(Self {
            all,
            exact,
            below,
            signs,
        })
    }

    /// Everything for which a configuration's bindings would be refused, each with the place of the
    /// binding that is to be changed; of two, it is the later one.
    #[must_use]
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

    /// The variables that hold a session's phantoms in its sandbox.
    pub fn environment<'a>(
        &'a self,
        phantoms: &'a Phantoms,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.all.iter().flat_map(|bound| {
            let phantom = phantoms.of(&bound.binding.credential);
            let variables = bound.binding.variables.iter();
            phantom.into_iter().flat_map(move |phantom| {
                variables
                    .clone()
                    .map(move |variable| (variable.as_str(), phantom.reveal()))
            })
        })
    }

    /// Every binding, in the order of the configuration.
    pub fn all(&self) -> impl Iterator<Item = &Binding> {
        self.all.iter().map(|bound| &bound.binding)
    }

    /// Whether a credential that is put in is bound to the origin, so that it may know a secret.
    /// What signs is never sent.
    #[must_use]
    pub fn manages(&self, origin: &Origin) -> bool {
        self.of_each(&origin.authority.host)
            .any(|bound| matches!(bound.binding.role, Role::Place) && bound.is_for(origin))
    }

    /// The credentials that are bound to an origin, parts of those that sign among them, by their
    /// places in the configuration.
    pub(crate) fn bound_to(&self, origin: &Origin) -> Vec<usize> {
        self.of(origin)
            .into_iter()
            .map(|bound| bound.index)
            .collect()
    }

    /// A binding by its place in the configuration.
    pub(crate) fn at(&self, index: usize) -> Option<&Binding> {
        self.all.get(index).map(|bound| &bound.binding)
    }

    /// The place of a credential in the configuration.
    pub(crate) fn index_of(&self, credential: &CredentialName) -> Option<usize> {
        self.all
            .iter()
            .position(|bound| bound.binding.credential == *credential)
    }

    /// How the origin reads the path of a signed request, where that differs from other requests.
    #[must_use]
    pub fn signed_paths(&self, origin: &Origin) -> Option<EncodedSlash> {
        if !self.signs {
            return None;
        }
        // Where two disagree, the path is resolved: a signature over another one then does not
        // match.
        self.of(origin)
            .iter()
            .filter_map(|bound| bound.binding.signing()?.signer.paths(origin))
            .reduce(|one, other| {
                if one == other {
                    one
                } else {
                    EncodedSlash::Keep
                }
            })
    }

    /// Whether a credential signs for an origin.
    pub(crate) fn signs_for(&self, origin: &Origin) -> bool {
        self.signs
            && self
                .of(origin)
                .iter()
                .any(|bound| bound.binding.signing().is_some())
    }

    /// The bindings that hold for an origin, in the order of the configuration.
    pub(super) fn of(&self, origin: &Origin) -> Vec<&Arc<Bound>> {
        let mut found = self.of_host(&origin.authority.host);
        found.retain(|bound| bound.is_for(origin));
        found
    }

    /// The bindings that hold for a host on whatever scheme and port.
    pub(super) fn of_host(&self, host: &Host) -> Vec<&Arc<Bound>> {
        let mut found: Vec<&Arc<Bound>> = Vec::new();
        for bound in self.of_each(host) {
            // There are few of them: to compare is cheaper than to hash.
            if !found.iter().any(|known| Arc::ptr_eq(known, bound)) {
                found.push(bound);
            }
        }
        found
    }

    /// The same, some of them perhaps more than once.
    fn of_each<'a>(&'a self, host: &Host) -> impl Iterator<Item = &'a Arc<Bound>> {
        let domains = (!self.below.is_empty()).then(|| host.domains().skip(1));
        let below = domains.into_iter().flatten();
        let below = below.filter_map(|domain| self.below.get(domain));
        self.exact.get(host).into_iter().chain(below).flatten()
    }
}

impl Binding {
    /// How it signs, where it does.
    #[must_use]
    pub fn signing(&self) -> Option<&Signing> {
        match &self.role {
            Role::Signs(signing) => Some(signing),
            Role::Place | Role::Part(_) => None,
        }
    }
}

impl Bound {
    fn new(binding: Binding, index: usize) -> Self {
        let taken = binding.takes.iter().filter_map(|taken| match &taken.part {
            TakenPart::Header(name) => Some(name.clone()),
            _ => None,
        });
        let mut fields: Vec<HeaderName> = binding
            .places
            .iter()
            .filter_map(Place::field)
            .chain(taken)
            .collect();
        fields.dedup();
        Self {
            place_texts: binding
                .places
                .iter()
                .map(|place| place.to_string().into())
                .collect(),
            binding,
            index,
            fields,
        }
    }

    /// Whether one of its origins is this.
    fn is_for(&self, origin: &Origin) -> bool {
        let mut origins = self.binding.origins.iter();
        origins.any(|pattern| pattern.matches(origin))
            && match &self.binding.role {
                Role::Place => true,
                Role::Signs(signing) | Role::Part(signing) => signing.signer.holds(origin),
            }
    }

    /// Whether the credential may be lent with the method, to the path.
    pub(super) fn lends(&self, method: &Method, path: &str) -> bool {
        let binding = &self.binding;
        // The path of a signed request is not resolved; where it leads, only the store knows.
        let below = || !has_dots(path) && binding.paths.iter().any(|above| is_below(path, above));
        (binding.methods.is_empty() || binding.methods.contains(method))
            && (binding.paths.is_empty() || below())
    }

    /// Whether its service takes many requests in one at this path.
    pub(super) fn batches(&self, path: &str) -> bool {
        self.binding.batches.iter().any(|route| route.holds(path))
    }

    /// Whether it is for some of its origins' requests alone.
    pub(super) fn is_narrow(&self) -> bool {
        !self.binding.methods.is_empty() || !self.binding.paths.is_empty()
    }
}

/// Whether a path is another or lies below it, segment by segment.
fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || above.ends_with('/') || rest.starts_with('/'))
}

fn has_dots(path: &str) -> bool {
    path.split('/').any(|segment| matches!(segment, "." | ".."))
}

fn check(binding: &Binding) -> Result<(), BindingMalformed> {
    let name = || binding.credential.clone();
    let placeless = binding.places.is_empty() && !matches!(binding.role, Role::Part(_));
    if binding.origins.is_empty() || placeless {
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

/// Whether each part of a signing credential beside the first is bound once.
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

/// Where one of two is always put in, and the other may stand in the same request.
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
    // One that is always put in stands in its first place alone.
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

/// The most places that one credential may have.
pub const MAX_PLACES: usize = 16;

#[cfg(test)]
mod tests;
