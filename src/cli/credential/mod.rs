//! Commands about secrets and logins.

pub(crate) mod login;
pub(crate) mod logins;
pub(crate) mod presets;
pub(crate) mod secret;
