//! Creates sessions at run time, and extends them. Their tokens, CAs and phantoms are returned
//! by these calls alone.

use std::time::SystemTime;

use bytes::Bytes;
use gateway_grant::ControlRefusal;
use gateway_names::{SessionId, hex};
use gateway_policy::Operation;
use gateway_session::{Creation, SessionSpec};
use http::HeaderMap;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::api::{ApiResult, bad, document, unknown_session};
use super::operations::{MintRequest, MintedToken, Operations};
use super::recording::OperatorAct;
use super::route::RouteMatch;
use super::server::{Control, Peer};

impl<O: Operations> Control<O> {
    /// Creates a session, or returns the one that a request with the same key created.
    pub(super) async fn create_session(
        &self,
        fields: &HeaderMap,
        content: &Bytes,
        peer: &Peer,
    ) -> ApiResult {
        let request: SessionSpec = serde_json::from_slice(content).map_err(|error| {
            bad("the content does not say what session is to be made").because(error.to_string())
        })?;
        let key = key(fields)?.map(|key| digest(peer, &key));
        let all = self.shared.sessions.all();
        let mut made = all.iter().filter_map(|one| Some((one, one.creation()?)));
        let known = made.find(|(one, made)| key.is_some() && made.key == key && !one.is_over());
        let id = match (known, &request.name) {
            (Some((one, _)), _) => one.id().clone(),
            (None, Some(name)) => name.clone(),
            (None, None) => {
                // Of overlapping requests with one key, the first creates this name.
                let drawn = || self.shared.ids.next().to_string();
                let name = format!("session-{}", key.clone().unwrap_or_else(drawn));
                SessionId::new(&name).map_err(|_| unknown_session())?
            }
        };
        let asked = serde_json::to_string(&request).unwrap_or_default();
        let act = OperatorAct::new(peer, Operation::SessionCreate, Some(&id), &asked);
        self.record(&act).await?;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let made = since.unwrap_or_default().as_secs();
        let creation = Creation { key, made, request };
        let created = self.operations.create(&id, creation).await;
        let created = self.followed(&act, created).await?;
        let mut answer = self
            .granted(&id, peer, (&created.token, created.ends))
            .await?;
        let environment = json!(created.environment);
        let parts = environment.as_object().into_iter().flatten();
        parts.for_each(|(name, part)| answer[name] = part.clone());
        Ok(document(&answer))
    }

    /// Extends a session that was created so, and mints a token that lives as long.
    pub(super) async fn extend_session(
        &self,
        called: &RouteMatch,
        content: &Bytes,
        peer: &Peer,
    ) -> ApiResult {
        let asked: MintRequest = serde_json::from_slice(content).map_err(|error| {
            bad("the content does not say for how long").because(error.to_string())
        })?;
        let id = called.session.as_ref().ok_or_else(unknown_session)?;
        self.shared.sessions.get(id).ok_or_else(unknown_session)?;
        let subject = format!("{} s from now", asked.seconds);
        let act = OperatorAct::new(peer, Operation::SessionExtend, Some(id), &subject);
        self.record(&act).await?;
        let extended = self.operations.extend(id, asked).await;
        let (token, ends) = self.followed(&act, extended).await?;
        Ok(document(&self.granted(id, peer, (&token, ends)).await?))
    }

    /// Records the id of a session's token before the token is returned.
    async fn granted(
        &self,
        session: &SessionId,
        peer: &Peer,
        (token, ends): (&MintedToken, SystemTime),
    ) -> Result<Value, ControlRefusal> {
        let id = token.id.to_string();
        let act = OperatorAct::new(peer, Operation::TokenMint, Some(session), &id);
        self.record(&act).await?;
        Ok(json!({
            "session": session.as_str(),
            "ends": OffsetDateTime::from(ends).format(&Rfc3339).unwrap_or_default(),
            "token": token.token.as_str(),
            "id": id,
        }))
    }
}

/// Returns a digest of an operator's key, which is stored in its place.
fn digest(peer: &Peer, key: &str) -> String {
    hex(&Sha256::digest(format!("{peer} {key}"))[..16])
}

/// Returns the key of a repeated request: a String of RFC 9651 in `Idempotency-Key`.
fn key(fields: &HeaderMap) -> Result<Option<String>, ControlRefusal> {
    let mut all = fields.get_all("idempotency-key").iter();
    let (Some(value), further) = (all.next(), all.next()) else {
        return Ok(None);
    };
    let key = value.to_str().ok().filter(|_| further.is_none());
    let key = key.and_then(|text| text.strip_prefix('"')?.strip_suffix('"'));
    let fits = |key: &&str| (1..=255).contains(&key.len()) && !key.contains(['"', '\\']);
    key.filter(fits)
        .map(|key| Some(key.to_owned()))
        .ok_or_else(|| {
            bad("the idempotency key is none")
                .next("send one `Idempotency-Key: \"KEY\"` of 1 to 255 characters in quotes")
        })
}
