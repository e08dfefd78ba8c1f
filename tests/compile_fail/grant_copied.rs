//! A grant is for one request: it cannot be copied and kept.

pub fn kept(authorized: &gateway::policy::Authorized) -> Vec<gateway::policy::Grant> {
    authorized.grants().to_vec()
}
