//! A grant names one origin, which cannot be changed.

pub fn redirected(mut grant: gateway::policy::Grant, elsewhere: gateway::message::Origin) {
    grant.origin = elsewhere;
}
