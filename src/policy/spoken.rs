//! What the permits of policy files are written for, so that nothing else is permitted beside them.

use std::collections::HashSet;

use cedar_policy::{Effect, PolicySet, ResourceConstraint};

use super::source::Source;

/// The names of the hosts, domains and credentials for which there is a permit.
#[derive(Debug, Default)]
pub struct Spoken {
    /// Whether a permit is written for every resource.
    all: bool,
    names: HashSet<String>,
}

impl Spoken {
    /// Reads the permits of these sources. A text that is not Cedar, or has templates, speaks of
    /// everything: nothing is permitted beside it.
    #[must_use]
    pub fn of(sources: &[Source]) -> Self {
        let mut spoken = Self::default();
        for source in sources {
            match source.text.parse::<PolicySet>() {
                Ok(set) if set.templates().next().is_none() => spoken.read(&set),
                _ => spoken.all = true,
            }
        }
        spoken
    }

    /// Whether a permit is written for this host or credential: by its name, by a domain that it is
    /// in, or for every resource.
    #[must_use]
    pub fn about(&self, name: &str) -> bool {
        let mut above = std::iter::successors(Some(name), |name| Some(name.split_once('.')?.1));
        self.all || above.any(|name| self.names.contains(name))
    }

    fn read(&mut self, set: &PolicySet) {
        for policy in set.policies().filter(|one| one.effect() == Effect::Permit) {
            match policy.resource_constraint() {
                ResourceConstraint::Eq(named) | ResourceConstraint::In(named) => {
                    self.names.insert(named.id().unescaped().to_owned());
                }
                _ => self.all = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_speak_of_what_they_name_and_forbids_of_nothing() {
        let spoken = |text: &str| Spoken::of(&[Source::new("x", text)]);
        let host = spoken("permit(principal, action, resource == Gateway::Host::\"a.test\");");
        assert!(host.about("a.test") && !host.about("b.test") && !host.about("test"));
        let domain = spoken("permit(principal, action, resource in Gateway::Domain::\"a.test\");");
        assert!(domain.about("x.a.test") && !domain.about("github"));
        let guard = spoken("forbid(principal, action, resource);");
        assert!(!guard.about("a.test"));
        for all in ["permit(principal, action, resource);", "nonsense"] {
            assert!(spoken(all).about("a.test"), "{all}");
        }
    }
}
