//! A phantom is issued by its session and cannot be made up.

pub fn forged(credential: gateway::names::CredentialName) -> gateway::session::phantom::Phantom {
    gateway::session::phantom::Phantom { credential, text: "ghp_".into() }
}
