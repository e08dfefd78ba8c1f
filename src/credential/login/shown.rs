//! Shows the workload the phantoms of a login in place of the tokens in an answer.

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
    /// Returns the content of an answer with phantoms in place of the tokens, which the session
    /// holds, and what the rest of the answer is searched for. Later answers are searched for them,
    /// too.
    ///
    /// # Errors
    /// [`Error::Unmapped`] if the session has no phantom for one of them.
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
