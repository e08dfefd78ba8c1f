//! A SigV4 signature in three steps: read, verified, and made again.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gateway_body::{Content, HeldBody, Share};
use gateway_message::RequestHead;
use gateway_session::phantom::TemporaryPhantoms;
use gateway_session::{
    ParsedSignature, PartTexts, SigningContext, SigningFailure, VerifiedSignature,
};
use gateway_sigv4::{
    self as sigv4, Action, ClientSignature, Location, Payload, SigningParams, account_of,
};
use http::HeaderName;

use super::super::MOST_SKEW;
use super::recode::{CheckedContent, LONGEST_CHUNK, SignedChunks, SignedMessages, sha256};
use super::signing_scope::{Asking, SigningScope};

/// A request to an endpoint, signed with a phantom. Its head is within the pins.
pub(super) struct SigV4Claim {
    pub(super) reach: Arc<SigningScope>,
    /// The client's signature.
    pub(super) claim: ClientSignature,
    /// The actions that it requests, unless the content decides that.
    pub(super) asking: Asking,
    /// The temporary credentials that signed it; `None` if the credential itself did.
    pub(super) temporary: Option<Arc<TemporaryPhantoms>>,
}

/// The same request after verification, with its content.
struct SigV4Proof {
    request: Arc<SigV4Claim>,
    verified: sigv4::VerifiedHead,
    action: Action,
    /// The hash of the content, if it is held.
    content: Option<[u8; 32]>,
}

impl ParsedSignature for SigV4Claim {
    fn has_field(&self, name: &HeaderName) -> bool {
        self.claim.location() == Location::Fields && FIELDS.contains(&name.as_str())
    }

    fn has_parameter(&self, name: &str) -> bool {
        self.claim.location() != Location::Fields && PARAMETERS.contains(&name)
    }

    fn actions(&self) -> Vec<String> {
        self.asking.names()
    }

    fn temporary(&self) -> Option<(&Arc<TemporaryPhantoms>, [&'static str; 3])> {
        Some((self.temporary.as_ref()?, PARTS))
    }

    /// Judges the time. The gateway signs with its own clock, so the client's clock may be slightly
    /// off (J09). A presigned request is valid for as long as it states.
    fn judge_time(&self, now: SystemTime) -> Result<(), SigningFailure> {
        let signed = self.claim.signed_at().time();
        let early = signed
            .duration_since(now)
            .is_ok_and(|ahead| ahead > MOST_SKEW);
        let age = now.duration_since(signed).unwrap_or_default();
        match self.claim.location() {
            _ if early => Err(SigningFailure::Skewed),
            Location::Fields if age > MOST_SKEW => Err(SigningFailure::Skewed),
            Location::Query { expires } if age > expires => Err(SigningFailure::Expired),
            Location::Fields | Location::Query { .. } => Ok(()),
        }
    }

    fn needs_content(&self, head: &RequestHead, content: &Content) -> bool {
        let wanted =
            self.claim.payload() == Payload::Absent || self.reach.needs_content(&self.asking, head);
        wanted && !content.is_empty()
    }

    fn verify(
        self: Arc<Self>,
        head: &RequestHead,
        content: &Content,
        phantoms: &PartTexts<'_>,
        _now: SystemTime,
    ) -> Result<Box<dyn VerifiedSignature>, SigningFailure> {
        if self
            .temporary
            .as_ref()
            .is_some_and(|minted| minted.is_over())
        {
            return Err(SigningFailure::Expired);
        }
        let hash = match content.held() {
            Some(held) => Some(sha256(held.pieces())),
            None => content.is_empty().then(|| sha256([])),
        };
        let secret = phantoms.get(PARTS[1]).ok_or(SigningFailure::Incomplete)?;
        let verified = self
            .claim
            .verify(head, secret, hash.as_ref())
            .map_err(|fault| SigningFailure::Signature(fault.into()))?;
        // After verification, the content is known to be the client's own. Joining it makes a
        // second copy, which most services do not need.
        let looked_at = content
            .held()
            .filter(|_| self.reach.needs_content(&self.asking, head));
        let whole = looked_at.map(HeldBody::whole).unwrap_or_default();
        let action = self
            .reach
            .judge(&self.asking, head, &whole)
            .map_err(SigningFailure::Unsignable)?;
        Ok(Box::new(SigV4Proof {
            request: self,
            verified,
            action,
            content: hash,
        }))
    }
}

impl VerifiedSignature for SigV4Proof {
    fn mints(&self) -> bool {
        self.action.mints()
    }

    fn sign(
        self: Box<Self>,
        head: &mut RequestHead,
        content: &mut Content,
        with: &SigningContext<'_>,
    ) -> Result<Vec<Vec<u8>>, SigningFailure> {
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| unsigned(sigv4::Fault::Key));
        let [id, secret, token] = PARTS.map(|name| with.parts.get(name));
        let access_key = text(id.ok_or(SigningFailure::Incomplete)?)?;
        let SigV4Claim {
            reach,
            claim,
            asking,
            ..
        } = &*self.request;
        let account = account_of(access_key);
        let additions = reach.additions(asking, &self.action, account.as_deref());
        for (name, value) in additions.map_err(SigningFailure::Unsignable)? {
            head.fields.insert(name, value);
        }
        let params = SigningParams {
            access_key,
            secret: secret.ok_or(SigningFailure::Incomplete)?,
            session_token: token.map(text).transpose()?,
            now: with.now,
            longest_life: LONGEST_LIFE,
            content: self.content.as_ref(),
        };
        let signed = sigv4::sign(head, claim, self.verified, &params).map_err(unsigned)?;
        let signature = signed.signature().to_owned();
        follow(claim.payload(), signed, head, content, with)?;
        Ok(vec![signature.into_bytes()])
    }
}

/// Checks the content against the signed hash, or signs it again piece by piece.
fn follow(
    payload: Payload,
    signed: sigv4::SignedChains,
    head: &RequestHead,
    content: &mut Content,
    with: &SigningContext<'_>,
) -> Result<(), SigningFailure> {
    let share = || Share::of(with.budget.clone());
    match payload {
        // Held content is already known to match its hash.
        Payload::Hash(hash) if content.held().is_none() && !content.is_empty() => {
            content.transform(Box::new(CheckedContent::new(hash)));
        }
        Payload::Streaming(_) => {
            let chunks = signed.rechain(head, LONGEST_CHUNK);
            let chunks = chunks.map_err(|fault| SigningFailure::Signature(fault.into()))?;
            if let Some(chunks) = chunks {
                content.transform(Box::new(SignedChunks(chunks, share())));
            }
        }
        Payload::Events => {
            if let Some(events) = signed.events(LONGEST_CHUNK) {
                content.transform(Box::new(SignedMessages(events, share())));
            }
        }
        Payload::Hash(_) | Payload::Unsigned | Payload::Absent => {}
    }
    Ok(())
}

fn unsigned(fault: sigv4::Fault) -> SigningFailure {
    SigningFailure::Unsigned(fault.into())
}

/// The names of the parts; the first is the access key id.
pub(super) const PARTS: [&str; 3] = ["access_key", "secret_key", "session_token"];
/// The parts of a signature that the claim has read. Each occurs once.
const FIELDS: [&str; 3] = [
    "authorization",
    "x-amz-security-token",
    "x-amz-s3session-token",
];
const PARAMETERS: [&str; 4] = [
    "X-Amz-Credential",
    "X-Amz-Security-Token",
    "X-Amz-S3session-Token",
    "X-Amz-Signature",
];
/// A presigned request is signed when it is made, and only needs to stay valid for its journey
/// (J04).
const LONGEST_LIFE: Duration = Duration::from_secs(60);
