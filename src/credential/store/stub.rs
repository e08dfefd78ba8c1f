//! stub
use std::time::SystemTime;
use super::StoreError;
use crate::credential::login::{Login, Tokens};
use crate::names::{CredentialName, SessionId};
/// stub
pub struct Logins;
impl Logins {
    /// stub
    pub async fn take(&self, _: &SessionId, _: &Login, _: Tokens) -> Result<(), StoreError> { Ok(()) }
    /// stub
    pub fn held(&self, _: &SessionId, _: &CredentialName) -> Option<(Option<SystemTime>, Option<String>)> { None }
}
impl super::Stores {
    /// stub
    pub fn logins(&self) -> Logins { Logins }
}
