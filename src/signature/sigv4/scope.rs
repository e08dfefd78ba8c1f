//! Scope: what a signing credential may be used for, whatever the client asks (threats J01, J03, J06).
//!
//! An empty list of pins pins nothing. What a pin cannot be compared with is refused: an unknown operation under pinned actions,
//! an access point under pinned buckets, content that cannot be read under pinned accounts.

use http::{HeaderName, HeaderValue, Method, header};

use super::action::{Action, CopySource, Reading, S3Call, names};
use super::endpoint::{Endpoint, ScopeMismatch, Style, is_account, is_bucket};
use super::named;
use super::tables::Tables;
use crate::message::RequestHead;

/// The pins as configuration has them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pins {
    /// `aws`, `aws-cn`, `aws-us-gov`, …
    pub partitions: Vec<String>,
    /// Regions; `*` allows the set of all regions, which only SigV4a can ask for.
    pub regions: Vec<String>,
    /// Services by the name that they sign as (`bedrock`) or that the AWS CLI has for them (`bedrock-runtime`).
    pub services: Vec<String>,
    /// Services that the operator's own endpoints name, which `services` may name though they are in no table.
    pub own_services: Vec<String>,
    /// Accounts of twelve digits, whose resources alone may be named.
    pub accounts: Vec<String>,
    /// Buckets, `name` or `name/prefix`.
    pub buckets: Vec<String>,
    /// Actions, `s3:GetObject`, with `*` for any characters.
    pub actions: Vec<String>,
    /// Actions that return credentials and are allowed all the same, each by its whole name.
    pub credential_actions: Vec<String>,
}

/// A pin that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PinMistake {
    /// No such partition.
    #[error("there is no partition `{0}`")]
    Partition(String),
    /// Not the spelling of a region.
    #[error("`{0}` is no region")]
    Region(String),
    /// No service signs so, or is called so.
    #[error("there is no service `{0}`")]
    Service(String),
    /// Not twelve digits.
    #[error("`{0}` is no account: it has twelve digits")]
    Account(String),
    /// No name of a bucket.
    #[error("`{0}` is no bucket, and no bucket with a prefix")]
    Bucket(String),
    /// No action matches.
    #[error(
        "no action is called `{0}`; actions are named as by the AWS CLI: `s3:GetObject`, `lambda:Invoke`"
    )]
    Action(String),
    /// An action that returns no credential, or no action.
    #[error("`{0}` is no action that returns credentials")]
    CredentialAction(String),
}

/// What a client's signature is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked<'a> {
    /// The service of its scope.
    pub service: &'a str,
    /// The region of its scope, or the set of them.
    pub regions: &'a [&'a str],
    /// Whether it is SigV4a's, which has a set.
    pub set: bool,
}

/// Why a request is outside of a credential's scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutOfScope {
    /// The scope of the signature is not the endpoint's.
    #[error(transparent)]
    Scope(#[from] ScopeMismatch),
    /// The partition is not pinned.
    #[error("the partition is none that the credential is for")]
    Partition,
    /// The region is not pinned.
    #[error("the region is none that the credential is for")]
    Region,
    /// All regions at once, which no pin allows.
    #[error("a signature for all regions needs `*` among the credential's regions")]
    EveryRegion,
    /// The service is not pinned.
    #[error("the service is none that the credential is for")]
    Service,
    /// The action is not pinned.
    #[error("the action `{0}` is none that the credential is for")]
    Action(String),
    /// The operation is in no table.
    #[error(
        "the operation is not known here, so nothing can allow it at a service that returns credentials, or where actions are pinned"
    )]
    UnknownAction,
    /// The answer would be a credential.
    #[error("the action `{0}` returns credentials; `credential_actions` must name it")]
    ReturnsCredentials(String),
    /// The bucket or key is not pinned.
    #[error("the bucket, or the key in it, is none that the credential is for")]
    Bucket,
    /// Which bucket or which keys are meant stands where it is not judged.
    #[error("which bucket or keys are meant cannot be told from the head, and buckets are pinned")]
    BucketHidden,
    /// The account is not pinned.
    #[error("the account `{0}` is none that the credential is for")]
    Account(String),
    /// It cannot be ensured whose bucket it is.
    #[error(
        "whose bucket it is cannot be ensured for this request; with several accounts it says so in x-amz-expected-bucket-owner"
    )]
    BucketOwner,
    /// Content that cannot be looked through.
    #[error(transparent)]
    Unreadable(#[from] named::Unreadable),
}

impl OutOfScope {
    /// The short code for refusals and audit records.
    pub fn reason(&self) -> &'static str {
        match self {
            OutOfScope::Scope(_)
            | OutOfScope::Partition
            | OutOfScope::Region
            | OutOfScope::EveryRegion
            | OutOfScope::Service => "sigv4_scope",
            OutOfScope::Action(_) | OutOfScope::UnknownAction | OutOfScope::ReturnsCredentials(_) => {
                "sigv4_action"
            }
            OutOfScope::Bucket
            | OutOfScope::BucketHidden
            | OutOfScope::Account(_)
            | OutOfScope::BucketOwner
            | OutOfScope::Unreadable(_) => "sigv4_resource",
        }
    }
}

/// The checked pins of a credential.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    pins: Pins,
    buckets: Vec<BucketPin>,
    /// `pins.accounts` of one account, as the field that is sent.
    owner: Option<HeaderValue>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct BucketPin {
    bucket: String,
    /// Empty where the whole bucket is meant.
    prefix: String,
}

impl Scope {
    /// Checks pins, all of them.
    ///
    /// # Errors
    /// Every mistake in them.
    pub fn new(pins: Pins) -> Result<Scope, Vec<PinMistake>> {
        let mistakes = mistakes(&pins);
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let pin = |text: &String| {
            let (bucket, prefix) = text.split_once('/').unwrap_or((text, ""));
            BucketPin {
                bucket: bucket.to_owned(),
                prefix: prefix.to_owned(),
            }
        };
        let owner = match &pins.accounts[..] {
            [one] => HeaderValue::from_str(one).ok(),
            _ => None,
        };
        Ok(Scope {
            buckets: pins.buckets.iter().map(pin).collect(),
            owner,
            pins,
        })
    }

    /// Whether the host and the scope of the signature are within the pins. No content and no action is needed for it.
    ///
    /// # Errors
    /// [`OutOfScope`]: the scope is not the host's (J01), or it is not pinned.
    pub fn permits_place(&self, endpoint: &Endpoint, asked: &Asked<'_>) -> Result<(), OutOfScope> {
        endpoint.check(asked.service, asked.regions, asked.set)?;
        let pins = &self.pins;
        let called =
            |name: &String| name == asked.service || endpoint.apis().iter().any(|api| api.id == name);
        if !pins.services.is_empty() && !pins.services.iter().any(called) {
            return Err(OutOfScope::Service);
        }
        for region in asked.regions {
            if *region == "*" {
                let all = pins.regions.iter().any(|pin| pin == "*");
                all.then_some(()).ok_or(OutOfScope::EveryRegion)?;
            } else if !pins.regions.is_empty() && !pins.regions.iter().any(|pin| pin == region || pin == "*")
            {
                return Err(OutOfScope::Region);
            }
            // The regions of an operator's own endpoint are in no partition.
            let partition = Tables::get().partition_of(region).map(|partition| partition.id);
            let within = partition.is_some_and(|id| pins.partitions.iter().any(|pin| pin == id));
            if !pins.partitions.is_empty() && !endpoint.is_own() && !within {
                return Err(OutOfScope::Partition);
            }
        }
        match endpoint.account() {
            Some(account) if !self.takes_account(account) => Err(OutOfScope::Account(account.to_owned())),
            _ => Ok(()),
        }
    }

    /// Whether the action, and what it is done to as far as the head says, is within the pins.
    ///
    /// # Errors
    /// [`OutOfScope`], with the pin that does not allow it.
    pub fn permits_action(
        &self,
        endpoint: &Endpoint,
        head: &RequestHead,
        action: &Action,
    ) -> Result<(), OutOfScope> {
        self.permits_name(action)?;
        if let Some(call) = action.s3() {
            self.permits_buckets(endpoint, action, call)?;
            self.permits_owner(endpoint, action, call)?;
            return self.permits_fields(head);
        }
        if !self.buckets.is_empty() && action.api() == "s3control" {
            return Err(OutOfScope::BucketHidden);
        }
        if self.pins.accounts.is_empty() {
            return Ok(());
        }
        let strange = |account: &String| !self.takes_account(account);
        let stranger = action.accounts().iter().find(|account| strange(account)).cloned();
        let stranger =
            stranger.or_else(|| named::in_target(&head.target, &|account| self.takes_account(account)));
        let stranger = stranger.or_else(|| {
            let said = head.fields.get_all("x-amz-account-id").iter();
            said.map(|value| value.to_str().unwrap_or("?").to_owned())
                .find(strange)
        });
        stranger.map_or(Ok(()), |account| Err(OutOfScope::Account(account)))?;
        self.permits_fields(head)
    }

    fn permits_fields(&self, head: &RequestHead) -> Result<(), OutOfScope> {
        if self.pins.accounts.is_empty() {
            return Ok(());
        }
        let stranger = named::in_fields(&head.fields, &head.target, &|account| self.takes_account(account));
        stranger.map_or(Ok(()), |account| Err(OutOfScope::Account(account)))
    }

    /// Whether a request that is not signed may be made at an endpoint for which the credential signs: not if its answer is a
    /// credential (`AssumeRoleWithWebIdentity`, `GetRoleCredentials`), unless it is named.
    ///
    /// # Errors
    /// [`OutOfScope::ReturnsCredentials`], or [`OutOfScope::UnknownAction`] where content that is not held would say.
    pub fn permits_unsigned(&self, reading: &Reading) -> Result<(), OutOfScope> {
        match reading {
            Reading::Form(form) if form.may_return_credentials() => Err(OutOfScope::UnknownAction),
            Reading::Known(action) if action.returns_credentials() => {
                let name = action.name().to_string();
                let named = self.pins.credential_actions.contains(&name);
                named.then_some(()).ok_or(OutOfScope::ReturnsCredentials(name))
            }
            Reading::Form(_) | Reading::Known(_) => Ok(()),
        }
    }

    /// Whether [`Scope::permits_content`] has something to say, so that the content must be held.
    pub fn needs_content(&self, endpoint: &Endpoint, head: &RequestHead) -> bool {
        !self.pins.accounts.is_empty()
            && !endpoint.is_object_store()
            && head.method != Method::GET
            && head.method != Method::HEAD
    }

    /// Whether the accounts that the content names are within the pins.
    ///
    /// # Errors
    /// [`OutOfScope::Account`], or [`OutOfScope::Unreadable`] where they cannot be found.
    pub fn permits_content(
        &self,
        endpoint: &Endpoint,
        head: &RequestHead,
        content: &[u8],
    ) -> Result<(), OutOfScope> {
        if !self.needs_content(endpoint, head) {
            return Ok(());
        }
        let kind = head
            .fields
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        let mut apis = endpoint.apis().into_iter();
        let forms = apis.any(|api| api.speaks("query") || api.speaks("ec2"));
        let stranger = named::in_content(kind, content, forms, &|account| self.takes_account(account))?;
        stranger.map_or(Ok(()), |account| Err(OutOfScope::Account(account)))
    }

    /// The fields that must be added and signed so that S3 itself refuses a bucket of another account.
    pub fn additions(&self, action: &Action) -> Vec<(HeaderName, HeaderValue)> {
        let (Some(owner), Some(call)) = (&self.owner, action.s3()) else {
            return Vec::new();
        };
        let mut fields = Vec::new();
        if call.takes_owner && call.owner.is_none() {
            fields.push((
                HeaderName::from_static("x-amz-expected-bucket-owner"),
                owner.clone(),
            ));
        }
        if matches!(call.source, Some(CopySource::Object { .. } | CopySource::Arn(_)))
            && call.source_owner.is_none()
        {
            fields.push((
                HeaderName::from_static("x-amz-source-expected-bucket-owner"),
                owner.clone(),
            ));
        }
        fields
    }

    fn permits_name(&self, action: &Action) -> Result<(), OutOfScope> {
        let pins = &self.pins;
        let name = action.name().to_string();
        if pins.credential_actions.contains(&name) {
            return Ok(());
        }
        if !action.is_known() && (action.returns_credentials() || !pins.actions.is_empty()) {
            return Err(OutOfScope::UnknownAction);
        }
        if action.returns_credentials() {
            return Err(OutOfScope::ReturnsCredentials(name));
        }
        let pinned = pins.actions.is_empty() || pins.actions.iter().any(|pin| matches(pin, &name));
        pinned.then_some(()).ok_or(OutOfScope::Action(name))
    }

    fn permits_buckets(&self, endpoint: &Endpoint, action: &Action, call: &S3Call) -> Result<(), OutOfScope> {
        if self.buckets.is_empty() {
            return Ok(());
        }
        if matches!(endpoint.style(), Style::AccessPoint { .. }) {
            return Err(OutOfScope::BucketHidden);
        }
        let bucket = call.bucket.as_deref().ok_or(OutOfScope::Bucket)?;
        match (&call.key, &call.prefix, action.operation()) {
            (Some(key), ..) => {
                let strict = endpoint.is_own();
                self.covers_key(bucket, key, call.key_has_plus, strict)?;
            }
            (None, Some(prefix), Some(operation)) if LISTINGS.contains(&operation) => {
                self.covers_key(bucket, prefix, false, false)?;
            }
            (None, _, Some("HeadBucket" | "GetBucketLocation")) => self.covers_bucket(bucket)?,
            // Which objects are deleted, and what a bucket's settings do to others, is not in the head.
            (None, ..) if self.pins_of(bucket).any(|pin| pin.prefix.is_empty()) => {}
            (None, ..) => {
                self.covers_bucket(bucket)?;
                return Err(OutOfScope::BucketHidden);
            }
        }
        match &call.source {
            None => Ok(()),
            Some(CopySource::Arn(_)) => Err(OutOfScope::BucketHidden),
            Some(CopySource::Object { bucket, key }) => {
                self.covers_key(bucket, key, false, endpoint.is_own())
            }
            Some(CopySource::SameBucket(key)) => {
                self.covers_key(bucket, key, key.contains('+'), endpoint.is_own())
            }
        }
    }

    fn pins_of<'a>(&'a self, bucket: &'a str) -> impl Iterator<Item = &'a BucketPin> {
        self.buckets.iter().filter(move |pin| pin.bucket == bucket)
    }

    fn covers_bucket(&self, bucket: &str) -> Result<(), OutOfScope> {
        let known = self.pins_of(bucket).next().is_some();
        known.then_some(()).ok_or(OutOfScope::Bucket)
    }

    /// A key with dot segments is another one to a store that resolves them, and a bare `+` may be a space.
    fn covers_key(&self, bucket: &str, key: &str, plus: bool, strict: bool) -> Result<(), OutOfScope> {
        let dots = key
            .split(['/', '\\'])
            .any(|segment| matches!(segment, "." | ".."));
        let covers = |pin: &BucketPin| match pin.prefix.is_empty() {
            true => !(strict && dots),
            false => key.starts_with(&pin.prefix) && !dots && !(plus && pin.prefix.contains([' ', '+'])),
        };
        let covered = self.pins_of(bucket).any(covers);
        covered.then_some(()).ok_or(OutOfScope::Bucket)
    }

    /// With pinned accounts, S3 is told whose bucket it must be; where it takes no such field, only what makes or lists one's own
    /// buckets is left.
    fn permits_owner(&self, endpoint: &Endpoint, action: &Action, call: &S3Call) -> Result<(), OutOfScope> {
        if self.pins.accounts.is_empty() {
            return Ok(());
        }
        let says = |said: &Option<String>| match said {
            Some(account) if self.takes_account(account) => Ok(()),
            Some(account) => Err(OutOfScope::Account(account.clone())),
            None if self.owner.is_some() => Ok(()),
            None => Err(OutOfScope::BucketOwner),
        };
        let own_only = matches!(
            action.operation(),
            Some("ListBuckets" | "ListDirectoryBuckets" | "CreateBucket")
        );
        match (endpoint.is_own(), call.takes_owner) {
            // Nobody else's store can be relied upon to look at the field.
            (true, _) => return Err(OutOfScope::BucketOwner),
            (false, true) => says(&call.owner)?,
            (false, false) if own_only => {}
            (false, false) => return Err(OutOfScope::BucketOwner),
        }
        match &call.source {
            None | Some(CopySource::SameBucket(_)) => Ok(()),
            Some(CopySource::Object { .. }) => says(&call.source_owner),
            Some(CopySource::Arn(arn)) => match named::arn_account(arn) {
                Some(account) if self.takes_account(account) => says(&call.source_owner),
                Some(account) => Err(OutOfScope::Account(account.to_owned())),
                None => Err(OutOfScope::BucketOwner),
            },
        }
    }

    fn takes_account(&self, account: &str) -> bool {
        self.pins.accounts.is_empty() || self.pins.accounts.iter().any(|pin| pin == account)
    }
}

fn mistakes(pins: &Pins) -> Vec<PinMistake> {
    let tables = Tables::get();
    let partition = |id: &str| tables.partitions.iter().any(|partition| partition.id == id);
    // An operator's own endpoint has the region that they gave it, so only the spelling is looked at.
    let region = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        text == "*" || (!text.is_empty() && text.bytes().all(plain))
    };
    let service = |name: &str| {
        let own = pins.own_services.iter().any(|own| own == name);
        own || tables.apis().any(|api| api.id == name || api.signing == name) || name.starts_with("s3")
    };
    let bucket = |text: &str| is_bucket(text.split('/').next().unwrap_or(text));
    let action = |pin: &str| names().any(|name| matches(pin, &name));
    let credential = |name: &str| Action::is_credential_name(name);
    let mut found = Vec::new();
    let mut check = |texts: &[String], fits: &dyn Fn(&str) -> bool, mistake: fn(String) -> PinMistake| {
        let wrong = texts.iter().filter(|text| !fits(text));
        found.extend(wrong.cloned().map(mistake));
    };
    check(&pins.partitions, &partition, PinMistake::Partition);
    check(&pins.regions, &region, PinMistake::Region);
    check(&pins.services, &service, PinMistake::Service);
    check(&pins.accounts, &is_account, PinMistake::Account);
    check(&pins.buckets, &bucket, PinMistake::Bucket);
    check(&pins.actions, &action, PinMistake::Action);
    check(
        &pins.credential_actions,
        &credential,
        PinMistake::CredentialAction,
    );
    found
}

/// A pattern whose `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut name) = name.strip_prefix(start) else {
        return false;
    };
    let mut pieces = rest.split('*').peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return name.ends_with(piece);
        }
        match name.find(piece) {
            Some(at) => name = &name[at + piece.len()..],
            None => return false,
        }
    }
    false
}

/// Operations that list what has a prefix.
const LISTINGS: [&str; 4] = [
    "ListObjects",
    "ListObjectsV2",
    "ListObjectVersions",
    "ListMultipartUploads",
];

#[cfg(test)]
#[path = "scope_tests.rs"]
mod tests;
