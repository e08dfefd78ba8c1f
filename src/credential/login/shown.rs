//! Shows the workload the phantoms of a login in place of the tokens in a response.

use std::sync::Arc;

use bytes::Bytes;
use gateway_session::Session;

use super::Login;
use super::token_answer::TokenAnswer;
use crate::credentials::Credentials;
use crate::error::Error;
use crate::redactor::Redactor;
use crate::search_snapshot::{BoundSecrets, Wanted};

impl Credentials {
    /// Returns the content of a response with the session's phantoms in place of the tokens, and
    /// the search of the rest of the response. Later responses are searched for the tokens, too.
    ///
    /// # Errors
    /// [`Error::Unmapped`] if the session has no phantom for one of the tokens.
    pub async fn shown(
        &self,
        session: &Arc<Session>,
        login: &Login,
        (answer, content): (&TokenAnswer, &[u8]),
    ) -> Result<(Bytes, Option<Redactor>), Error> {
        let phantoms = session.phantoms();
        let phantom = |kind| Some(phantoms.of(&login.credential(kind))?.reveal());
        let content = answer.replaced(content, phantom)?;
        let mut kept = Vec::new();
        for name in answer.kinds().map(|kind| login.credential(kind)) {
            let index = self.bindings().index_of(&name).ok_or(Error::Unknown)?;
            kept.push((name, self.lease(session.id(), index).await?));
        }
        let wanted = Wanted {
            lent: &kept,
            bound: BoundSecrets::default(),
            strict: true,
            signs: false,
            signed_for: false,
        };
        let redactor = self.look_for(session, &wanted)?;
        Ok((content.into(), redactor))
    }
}
