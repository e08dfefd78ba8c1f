//! The list of credentials that an operator allows a session to be lent.

use std::collections::BTreeMap;

use gateway_names::CredentialName;

use super::binding::Binding;
use super::bindings::Bindings;
use super::live::Session;
use super::signing::Role;

impl Session {
    /// Whether the session may be lent a credential, if policy permits it too.
    pub fn may_be_lent(&self, credential: &CredentialName) -> bool {
        let lend = self.creation().and_then(|made| made.request.lend.as_ref());
        lend.is_none_or(|all| all.contains(credential))
    }

    /// Whether the workload may hold the phantom of a binding.
    pub fn may_hold(&self, binding: &Binding) -> bool {
        self.may_be_lent(match &binding.role {
            Role::Part(signing) => &signing.parts[0].credential,
            _ => &binding.credential,
        })
    }

    /// Returns the phantoms of some credentials that the workload may hold, by variable.
    pub fn environment(
        &self,
        bindings: &Bindings,
        is_one: impl Fn(&CredentialName) -> bool,
    ) -> BTreeMap<String, String> {
        let held = self.phantoms();
        let is_known = |binding: &&Binding| self.may_hold(binding) && is_one(&binding.credential);
        let known = bindings.all().filter(is_known);
        let pairs = known.flat_map(|binding| {
            let phantom = held.of(&binding.credential);
            let of = move |variable: &String| Some((variable.clone(), phantom?.reveal().into()));
            binding.variables.iter().filter_map(of)
        });
        pairs.collect()
    }
}
