//! AWS Signature Version 4 and its kin, from the signature of a client to the one that goes out.

mod reach;
mod recode;

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::HeaderName;

use self::reach::{Asking, Reach};
use self::recode::{Checked, Chunks, LONGEST_CHUNK, Messages, sha256};
use super::MOST_SKEW;
use crate::body::{Content, Held, Share};
use crate::message::{EncodedSlash, Origin, OriginPattern, RequestHead};
use crate::session::phantom::Minted;
use crate::session::{
    Claimed, Found, HeldParts, KnownPart, PartTexts, Proven, RequestPart, SignatureFault, Signer,
    SigningContext, SigningFailure,
};
use crate::signature::sigv4::{self, Action, Claim, Location, Payload, With, account_of};

pub use self::reach::{OwnEndpoint, SigV4Settings};

/// Signs as AWS has it, within the pins of one credential.
#[derive(Debug)]
pub struct SigV4 {
    reach: Arc<Reach>,
}

/// A request to an endpoint that is signed with a phantom, and is within the pins as far as its
/// head tells.
struct SigV4Claim {
    reach: Arc<Reach>,
    /// The client's signature.
    claim: Claim,
    /// What it asks for, which may stand in its content.
    asking: Asking,
    /// The temporary credentials that it is signed with, if it is not signed with the credential
    /// itself.
    temporary: Option<Arc<Minted>>,
}

/// The same, proven with its content.
struct SigV4Proof {
    request: Arc<SigV4Claim>,
    verified: sigv4::Verified,
    action: Action,
    /// The hash of the content, where that is held.
    content: Option<[u8; 32]>,
}

impl SigV4 {
    /// A credential that is used for no more than the settings say.
    #[must_use]
    pub fn new(settings: SigV4Settings) -> Self {
        Self {
            reach: Arc::new(Reach::new(settings)),
        }
    }
}

impl Signer for SigV4 {
    fn name(&self) -> &str {
        NAME
    }

    fn parts(&self) -> Vec<KnownPart> {
        let parts = PARTS.iter().zip(VARIABLES).zip(MEMBERS);
        let known = parts.map(|((name, variable), member)| KnownPart {
            name: (*name).to_owned(),
            variable: Some(variable.to_owned()),
            // Long-lived keys have no token, so nothing is assumed of one.
            optional: *name == PARTS[2],
            private_key: None,
            member: Some(member),
        });
        known.collect()
    }

    fn origins(&self, named: &[OriginPattern]) -> Vec<OriginPattern> {
        self.reach.origins(named)
    }

    fn holds(&self, origin: &Origin) -> bool {
        self.reach.endpoint(origin).is_some()
    }

    fn paths(&self, origin: &Origin) -> Option<EncodedSlash> {
        Some(match self.reach.endpoint(origin)?.takes_exact_paths() {
            true => EncodedSlash::Key,
            // ARNs in paths have their slashes encoded.
            false => EncodedSlash::Keep,
        })
    }

    fn is_unmistakable(&self) -> bool {
        true
    }

    fn find(&self, head: &RequestHead, held: &HeldParts<'_>) -> Result<Found, SignatureFault> {
        let mut claim = match Claim::read(head) {
            Ok(Some(claim)) => claim,
            Ok(None) => {
                self.reach.permits_unsigned_answer(head)?;
                return Ok(Found::Nothing);
            }
            Err(fault) => return Ok(Found::Unsound(fault.into())),
        };
        let part = match claim.location() {
            Location::Fields => RequestPart::Field,
            Location::Query { .. } => RequestPart::Query,
        };
        let id = claim.access_key();
        let temporary = held.temporary(id);
        let phantom = match &temporary {
            Some(minted) => Some(&minted.parts()[0]),
            None => held.first().filter(|phantom| phantom.reveal() == id),
        };
        let Some(phantom) = phantom.cloned() else {
            let id = id.as_bytes().to_vec();
            return Ok(Found::StrangeKey { id, part });
        };
        let token = match &temporary {
            Some(minted) => Some(&minted.parts()[2]),
            None => held.part(PARTS[2]),
        };
        let theirs = claim.session_token();
        if theirs != token.map(|ours| ours.reveal()) {
            let text = theirs.unwrap_or_default().as_bytes().to_vec();
            return Ok(Found::StrangePart { text, part });
        }
        let asking = self.reach.permits(head, &mut claim)?;
        let claimed = Arc::new(SigV4Claim {
            reach: self.reach.clone(),
            claim,
            asking,
            temporary,
        });
        Ok(Found::Ours {
            claimed,
            phantom,
            part,
        })
    }

    fn permits_unsigned(
        &self,
        origin: &Origin,
        signed: Option<&dyn Claimed>,
        managed: bool,
    ) -> Result<(), SignatureFault> {
        match signed.is_some_and(|signed| (signed as &dyn Any).is::<SigV4Claim>()) {
            true => Ok(()),
            false => self.reach.permits_unsigned(origin, managed),
        }
    }

    fn reach(&self, id: Option<&str>) -> Option<String> {
        if !self.reach.is_for_own_account() {
            return None;
        }
        Some(match id.map(account_of) {
            Some(Some(account)) => format!("buckets of S3 in account {account} alone"),
            Some(None) => String::from(
                "EVERY bucket of S3, also a stranger's, because its key does not tell its account: name buckets with `--bucket NAME` or \
                 `buckets`",
            ),
            None => String::from(
                "buckets of S3 in its key's account alone, if the key tells it, else EVERY one: `--bucket NAME` or `buckets` names them",
            ),
        })
    }
}

impl Claimed for SigV4Claim {
    fn has_field(&self, name: &HeaderName) -> bool {
        self.claim.location() == Location::Fields && FIELDS.contains(&name.as_str())
    }

    fn has_parameter(&self, name: &str) -> bool {
        self.claim.location() != Location::Fields && PARAMETERS.contains(&name)
    }

    fn actions(&self) -> Vec<String> {
        self.asking.names()
    }

    fn temporary(&self) -> Option<(&Arc<Minted>, [&'static str; 3])> {
        Some((self.temporary.as_ref()?, PARTS))
    }

    /// The gateway signs with its own clock, so that a client's may be off a little (J09); a
    /// presigned request lives as long as it says.
    fn judge_time(&self, now: SystemTime) -> Result<(), SigningFailure> {
        let signed = self.claim.stamp().time();
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
    ) -> Result<Box<dyn Proven>, SigningFailure> {
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
        // After the signature: what the content asks for is the client's own word by now. In one
        // piece it is a second copy, which most services need not cost.
        let looked_at = content
            .held()
            .filter(|_| self.reach.needs_content(&self.asking, head));
        let whole = looked_at.map(Held::whole).unwrap_or_default();
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

impl Proven for SigV4Proof {
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
        let params = With {
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

/// Has the content checked against the hash that was signed, or signed again piece by piece.
fn follow(
    payload: Payload,
    signed: sigv4::Signed,
    head: &RequestHead,
    content: &mut Content,
    with: &SigningContext<'_>,
) -> Result<(), SigningFailure> {
    let share = || Share::of(with.budget.clone());
    match payload {
        // What was held is known to have its hash.
        Payload::Hash(hash) if content.held().is_none() && !content.is_empty() => {
            content.recode(Box::new(Checked::new(hash)));
        }
        Payload::Streaming(_) => {
            let chunks = signed.rechain(head, LONGEST_CHUNK);
            let chunks = chunks.map_err(|fault| SigningFailure::Signature(fault.into()))?;
            if let Some(chunks) = chunks {
                content.recode(Box::new(Chunks(chunks, share())));
            }
        }
        Payload::Events => {
            if let Some(events) = signed.events(LONGEST_CHUNK) {
                content.recode(Box::new(Messages(events, share())));
            }
        }
        Payload::Hash(_) | Payload::Unsigned | Payload::Absent => {}
    }
    Ok(())
}

fn unsigned(fault: sigv4::Fault) -> SigningFailure {
    SigningFailure::Unsigned(fault.into())
}

impl From<sigv4::Fault> for SignatureFault {
    fn from(fault: sigv4::Fault) -> Self {
        Self::new(fault.reason(), &fault)
    }
}

/// What it is called in configuration.
pub const NAME: &str = "sigv4";
/// The names of the parts, the first of which is the access key id.
const PARTS: [&str; 3] = ["access_key", "secret_key", "session_token"];
/// The variables that AWS's own clients read, in the order of the parts.
const VARIABLES: [&str; 3] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
];
/// What a program prints, in the order of the parts.
const MEMBERS: [&str; 3] = ["AccessKeyId", "SecretAccessKey", "SessionToken"];
/// The parts of a signature that the claim has read, each of which stands once.
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
/// A presigned request is signed when it is made, and needs to live no longer than its journey
/// (J04).
const LONGEST_LIFE: Duration = Duration::from_secs(60);
