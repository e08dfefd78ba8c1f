//! AWS Signature Version 4 and its variants, from the client's signature to the gateway's own.

mod claim;
mod recode;
mod signing_scope;

use std::any::Any;
use std::sync::Arc;

use gateway_message::{EncodedSlash, Origin, OriginPattern, RequestHead};
use gateway_session::{
    Finding, HeldParts, KnownPart, ParsedSignature, RequestPart, SignatureFault, Signer,
};
use gateway_sigv4::{ClientSignature, Location, account_of};

use self::claim::{PARTS, SigV4Claim};
use self::signing_scope::SigningScope;

pub use self::signing_scope::{OwnEndpoint, SigV4Settings};

/// Signs with SigV4, within the pins of one credential.
#[derive(Debug)]
pub struct SigV4 {
    reach: Arc<SigningScope>,
}

impl SigV4 {
    /// Returns a signer for a credential that is used only as the settings allow.
    pub fn new(settings: SigV4Settings) -> Self {
        Self {
            reach: Arc::new(SigningScope::new(settings)),
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
            // Long-lived keys have no token, so it is optional.
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
        Some(if self.reach.endpoint(origin)?.takes_exact_paths() {
            EncodedSlash::Key
        } else {
            // ARNs in paths have encoded slashes.
            EncodedSlash::Keep
        })
    }

    fn is_unmistakable(&self) -> bool {
        true
    }

    fn find(&self, head: &RequestHead, held: &HeldParts<'_>) -> Result<Finding, SignatureFault> {
        let mut claim = match ClientSignature::read(head) {
            Ok(Some(claim)) => claim,
            Ok(None) => {
                self.reach.permits_unsigned_answer(head)?;
                return Ok(Finding::Nothing);
            }
            Err(fault) => return Ok(Finding::Unsound(fault.into())),
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
            return Ok(Finding::StrangeKey { id, part });
        };
        let token = match &temporary {
            Some(minted) => Some(&minted.parts()[2]),
            None => held.part(PARTS[2]),
        };
        let theirs = claim.session_token();
        if theirs != token.map(|ours| ours.reveal()) {
            let text = theirs.unwrap_or_default().as_bytes().to_vec();
            return Ok(Finding::StrangePart { text, part });
        }
        let asking = self.reach.permits(head, &mut claim)?;
        let claimed = Arc::new(SigV4Claim {
            reach: self.reach.clone(),
            claim,
            asking,
            temporary,
        });
        Ok(Finding::Ours {
            claimed,
            phantom,
            part,
        })
    }

    fn permits_unsigned(
        &self,
        origin: &Origin,
        signed: Option<&dyn ParsedSignature>,
        managed: bool,
    ) -> Result<(), SignatureFault> {
        if signed.is_some_and(|signed| (signed as &dyn Any).is::<SigV4Claim>()) {
            Ok(())
        } else {
            self.reach.permits_unsigned(origin, managed)
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

/// The scheme's name in configuration.
pub const NAME: &str = "sigv4";
/// The variables that AWS's own clients read, in the order of the parts.
pub const VARIABLES: [&str; 3] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
];
/// The members that a credential process prints, in the order of the parts.
const MEMBERS: [&str; 3] = ["AccessKeyId", "SecretAccessKey", "SessionToken"];
