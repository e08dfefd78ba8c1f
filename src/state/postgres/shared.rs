//! The revocations that all replicas share, as rows.

use gateway_names::SecretLabel;
use gateway_token::PrefixId;

use super::deciding::Decision;
use super::rows::row_of;
use super::server::PostgresState;
use super::sql;
use crate::error::StateError;
use crate::revoked::SharedRevocation;
use crate::store::Revision;

impl PostgresState {
    /// Returns the revoked secrets, and the revoked tokens with their times.
    ///
    /// # Errors
    /// [`StateError`] if they cannot be read, or one was changed.
    pub async fn revocations(
        &self,
    ) -> Result<(Vec<SharedRevocation>, Vec<(String, u64)>), StateError> {
        let (mut secrets, mut tokens) = (Vec::new(), Vec::new());
        let rows = self.read(sql::REVOKED, &[]).await?;
        let there = rows.iter().map(|row| (row.get(0), row.get(1)));
        self.history.check_all([SECRET, TOKEN], there)?;
        for row in rows {
            let row = row_of(&row)?;
            self.seal.check(&row)?;
            let damaged = |why: &dyn std::fmt::Display| StateError::Damaged(why.to_string());
            if row.kind == TOKEN {
                let since = row
                    .text
                    .parse()
                    .map_err(|why: std::num::ParseIntError| damaged(&why))?;
                tokens.push((row.id, since));
            } else {
                let read = serde_json::from_str(&row.text);
                secrets.push(read.map_err(|why| damaged(&why))?);
            }
        }
        self.history.revoked(&secrets, &tokens);
        Ok((secrets, tokens))
    }

    /// Puts a revocation, or that it was taken back.
    ///
    /// # Errors
    /// [`StateError`] if it cannot be kept.
    pub async fn put_revocation(&self, mut one: SharedRevocation) -> Result<Revision, StateError> {
        one.secret.known.values.clear();
        let (kind, id, text) = (SECRET, one.secret.label.to_string(), one.text()?);
        self.decide_all(vec![Decision::Put { kind, id, text }])
            .await
    }

    /// Takes each revocation back that has this label, or a name or place that the label matches.
    /// Returns the labels, and the revision of the last.
    ///
    /// # Errors
    /// [`StateError`] if that cannot be kept.
    pub async fn restore(
        &self,
        label: &SecretLabel,
        at: u64,
    ) -> Result<(Vec<SecretLabel>, Option<Revision>), StateError> {
        let (mut restored, mut last) = (Vec::new(), None);
        for mut one in self.revocations().await?.0 {
            if one.restored.is_none() && one.secret.is_called(label.as_str()) {
                restored.push(one.secret.label.clone());
                one.restored = Some(at);
                last = Some(self.put_revocation(one).await?);
            }
        }
        Ok((restored, last))
    }

    /// Puts the revocation of a token.
    ///
    /// # Errors
    /// [`StateError`] if it cannot be kept.
    pub async fn revoke_token(&self, token: &PrefixId, at: u64) -> Result<Revision, StateError> {
        let (kind, id, text) = (TOKEN, token.to_string(), at.to_string());
        self.decide_all(vec![Decision::Put { kind, id, text }])
            .await
    }
}

const SECRET: &str = "secret";
const TOKEN: &str = "token";
