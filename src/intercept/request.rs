//! The request that passes through the stages, carried inside each stage's proof.

use std::sync::Arc;

use bytes::Bytes;
use gateway_audit::SeenCredentials;
use gateway_body::read::Prefix;
use gateway_body::{Content, HoldBudget, HoldFault, Limit, Meter, digest};
use gateway_message::RequestHead;
use http::HeaderValue;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http_body::Body as _;
use hyper::upgrade::OnUpgrade;

use super::connection::ConnectionContext;
use super::websocket;

/// One request on its way from the client to the origin.
///
/// It proves nothing by itself: the stage that holds it determines what may be done with it. Each
/// stage passes it on whole, so everything that travels with a request is listed here.
pub struct Request {
    /// The connection on which the request arrived.
    pub connection: Arc<ConnectionContext>,
    /// The canonical head.
    pub head: RequestHead,
    /// The content, which streams until something buffers it.
    pub content: Content,
    /// Counts the bytes of content that moved.
    pub meter: Arc<Meter>,
    /// Where phantoms in the content are noted, if the content is searched.
    pub noted: Option<Arc<SeenCredentials>>,
    /// The protocol that the client wants to switch to.
    pub upgrade: Option<Box<Upgrade>>,
}

/// A requested switch of the connection's protocol.
pub struct Upgrade {
    /// Resolves to the client's side at the response 101 (or 200 to an extended CONNECT).
    pub on: OnUpgrade,
    /// The accept value that the client expects, or `None` for an extended CONNECT (RFC 8441).
    pub accept: Option<String>,
    /// What the origin's response must contain.
    pub expected: websocket::ExpectedHandshake,
}

impl Request {
    /// Returns the content's length in bytes, as the head announces it; 0 without content, `None`
    /// if the head gives no length.
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        self.content.size_hint().exact()
    }

    /// Returns the same request with its content in memory: all of it, or the beginning that
    /// `prefix` asks for.
    ///
    /// # Errors
    /// [`HoldFault`] by cause. The request is dropped then.
    pub async fn hold(
        mut self: Box<Self>,
        limit: Limit,
        budget: &Arc<HoldBudget>,
        prefix: Option<Prefix>,
    ) -> Result<Box<Self>, HoldFault> {
        self.content = self.content.hold(limit, budget, prefix).await?;
        Ok(self)
    }

    /// Replaces the held content by its decoded form.
    pub fn decoded(&mut self, content: Bytes) {
        self.head.fields.remove(CONTENT_ENCODING);
        self.replace_content(content);
    }

    /// Replaces the held content, and its digests. Content that still streams after it stays.
    pub fn replace_content(&mut self, content: Bytes) {
        let fields = &mut self.head.fields;
        digest::make_anew(fields, &content);
        self.content.replace(content);
        if let (true, Some(length)) = (
            fields.contains_key(CONTENT_LENGTH),
            self.content.size_hint().exact(),
        ) {
            fields.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
    }

    /// Buffers all of the content, if it is not longer than the limit.
    ///
    /// # Errors
    /// As [`Request::hold`].
    pub async fn hold_if_short(
        mut self: Box<Self>,
        limit: Limit,
        budget: &Arc<HoldBudget>,
    ) -> Result<Box<Self>, HoldFault> {
        self.content = self.content.hold_if_short(limit, budget).await?;
        Ok(self)
    }
}
