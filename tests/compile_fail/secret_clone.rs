//! A secret cannot be copied.

pub fn copy(secret: &gateway::credential::Secret) -> gateway::credential::Secret {
    gateway::credential::Secret::clone(secret)
}
