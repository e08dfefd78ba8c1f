//! The sealed rows of logins, and the key that opens them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use gateway_names::CredentialName;
use gateway_state::{LoginRows, RowName, SealingKey};
use tokio::sync::OnceCell;

use super::super::StoreError;
use super::super::file::blocking;
use super::fault::of_state;
use super::row;
use crate::login::{Login, Tokens};

/// Finds the key of the rows when the first row is read or written, or says why there is none.
pub type KeySource = Arc<dyn Fn() -> KeyFuture + Send + Sync>;

type KeyFuture = Pin<Box<dyn Future<Output = Result<Arc<SealingKey>, String>> + Send>>;

/// The rows of logins.
pub(super) struct SealedRows {
    pub(super) rows: LoginRows,
    find: KeySource,
    key: OnceCell<Arc<SealingKey>>,
}

/// The login in a row.
#[derive(Clone)]
pub struct RowLogin {
    /// The login.
    pub login: Login,
    /// Its tokens.
    pub tokens: Tokens,
    /// The name of the row.
    pub name: RowName,
    /// When it was written.
    pub written: SystemTime,
    /// How many times the row was written.
    pub(super) version: u64,
}

impl SealedRows {
    pub(super) fn new(rows: LoginRows, find: KeySource) -> Self {
        let key = OnceCell::new();
        Self { rows, find, key }
    }

    /// Returns the key that seals the rows.
    pub(super) async fn key(&self) -> Result<Arc<SealingKey>, StoreError> {
        let found = self.key.get_or_try_init(|| (self.find)()).await;
        found.cloned().map_err(|why| {
            StoreError::LoginState(format!("there is no key for logins: {why}").into())
        })
    }

    /// Returns the names of all rows. Needs no key.
    pub(super) async fn names(&self) -> Result<Vec<RowName>, StoreError> {
        let rows = self.rows.clone();
        blocking(move || rows.names().map_err(|why| of_state(&why))).await
    }

    /// Reads a row; `None` if there is none.
    pub(super) async fn read(&self, name: &RowName) -> Result<Option<RowLogin>, StoreError> {
        let (rows, key, name) = (self.rows.clone(), self.key().await?, name.clone());
        blocking(move || {
            let read = rows.read(&key, &name).map_err(|why| of_state(&why))?;
            let Some(found) = read else {
                return Ok(None);
            };
            let (login, tokens) = row::read(&found.content)
                .ok_or_else(|| StoreError::LoginUnusable(unknown(&name.login).into()))?;
            Ok(Some(RowLogin {
                login,
                tokens,
                name,
                written: found.written,
                version: found.version,
            }))
        })
        .await
    }

    /// Reads a row of a session, or the row in which a person kept it.
    pub(super) async fn read_grant(&self, name: &RowName) -> Result<Option<RowLogin>, StoreError> {
        let found = self.read(name).await?;
        if found.is_some() || name.grant.is_none() {
            return Ok(found);
        }
        // The kept row, unless that is another login of this name.
        let kept = self.read(&RowName::kept(name.login.clone())).await?;
        Ok(kept.filter(|row| row.tokens.grant == name.grant))
    }

    /// Writes a row whose version was `before`. The caller holds the login's lock.
    pub(super) async fn write(
        &self,
        name: &RowName,
        before: u64,
        (login, tokens): (&Login, &Tokens),
    ) -> Result<(), StoreError> {
        let (rows, key, name) = (self.rows.clone(), self.key().await?, name.clone());
        let content = row::write(login, tokens, name.grant.as_ref());
        let write = move || rows.write(&key, &name, before, &content);
        blocking(move || write().map_err(|why| of_state(&why))).await
    }

    /// Removes a row. The caller holds the login's lock.
    pub(super) async fn remove(&self, name: &RowName) -> Result<bool, StoreError> {
        let (rows, name) = (self.rows.clone(), name.clone());
        blocking(move || rows.remove(&name).map_err(|why| of_state(&why))).await
    }
}

fn unknown(login: &CredentialName) -> String {
    format!(
        "what is kept of login `{login}` has another form: another gateway wrote it; run that one, or \
         `gateway login forget {login}`"
    )
}
