//! `gateway logins`: the logins that the gateway holds, and which of them are kept.
use super::failure::Failure;
use crate::config::Config;
use crate::credential::login::{Login, Tokens};
pub(super) async fn keep_new(_: &Config, _: &Login, _: Tokens) -> Result<(), Failure> {
    Ok(())
}
