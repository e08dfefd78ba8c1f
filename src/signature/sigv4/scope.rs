//! Scope: what a signing credential may be used for, whatever the client asks (threats J01, J03,
//! J06).
//!
//! An empty list of pins pins nothing. What cannot be compared with a pin is refused: an unknown
//! operation under pinned actions, an access point under pinned buckets, content that cannot be
//! parsed under pinned accounts.

mod outside;
mod pins;

use http::{HeaderName, HeaderValue, Method, header};

pub use outside::{OutOfScope, Where};
pub use pins::{PinMistake, Pins};
use pins::{matches, mistakes};

use super::action::{Action, CopySource, Reading, S3Call, is_known_field, is_known_parameter};
use super::endpoint::{Endpoint, Style, is_account};
use super::named::{self, Allowed, Data, Form};
use super::tables::Tables;
use gateway_message::RequestHead;

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

/// The checked pins of a credential.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    pins: Pins,
    buckets: Vec<BucketPin>,
    /// The single account of `pins.accounts`, as the field that is sent.
    owner: Option<HeaderValue>,
    /// Whether `*` allows buckets of any account.
    any_account: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct BucketPin {
    bucket: String,
    /// Empty for the whole bucket.
    prefix: String,
}

impl Scope {
    /// Checks all pins.
    ///
    /// # Errors
    /// Every mistake in them.
    pub fn new(mut pins: Pins) -> Result<Scope, Vec<PinMistake>> {
        let mistakes = mistakes(&pins);
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let any_account = pins.accounts == ["*"];
        if any_account {
            pins.accounts.clear();
        }
        let pin = |text: &String| {
            let (bucket, prefix) = text.split_once('/').unwrap_or((text, ""));
            BucketPin {
                bucket: bucket.to_owned(),
                prefix: prefix.to_owned(),
            }
        };
        let mut accounts = pins.accounts.iter().filter(|text| is_account(text));
        let owner = match (accounts.next(), accounts.next()) {
            (Some(one), None) => HeaderValue::from_str(one).ok(),
            _ => None,
        };
        Ok(Scope {
            buckets: pins.buckets.iter().map(pin).collect(),
            owner,
            any_account,
            pins,
        })
    }

    /// Checks the host and the scope of the signature against the pins. Needs no content and no
    /// action.
    ///
    /// # Errors
    /// [`OutOfScope`]: the scope is not the host's (J01), or it is not pinned.
    pub fn permits_place(&self, endpoint: &Endpoint, asked: &Asked<'_>) -> Result<(), OutOfScope> {
        endpoint.check(asked.service, asked.regions, asked.set)?;
        let pins = &self.pins;
        let called = |name: &String| {
            name == asked.service || endpoint.apis().iter().any(|api| api.id == name)
        };
        if !pins.services.is_empty() && !pins.services.iter().any(called) {
            return Err(OutOfScope::Service);
        }
        for region in asked.regions {
            if *region == "*" {
                let all = pins.regions.iter().any(|pin| pin == "*");
                all.then_some(()).ok_or(OutOfScope::EveryRegion)?;
            } else if !pins.regions.is_empty()
                && !pins.regions.iter().any(|pin| pin == region || pin == "*")
            {
                return Err(OutOfScope::Region);
            }
            // The regions of an operator's own endpoint are in no partition.
            let partition = Tables::get()
                .partition_of(region)
                .map(|partition| partition.id);
            let within = partition.is_some_and(|id| pins.partitions.iter().any(|pin| pin == id));
            if !pins.partitions.is_empty() && !endpoint.is_own() && !within {
                return Err(OutOfScope::Partition);
            }
        }
        match endpoint.account() {
            Some(account) if !self.takes_account(account) => {
                Err(OutOfScope::account(account, Where::Host))
            }
            _ => Ok(()),
        }
    }

    /// Checks the action, and its target as far as the head shows it, against the pins.
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
            self.permits_known(endpoint, head, call)?;
            self.permits_buckets(endpoint, action, call)?;
            self.permits_owner(endpoint, action, call)?;
            return self.permits_head(endpoint, head, action);
        }
        if !self.buckets.is_empty() && action.api() == "s3control" {
            return Err(OutOfScope::BucketHidden);
        }
        let strange = |account: &&String| !self.takes_account(account);
        if let Some(account) = action.accounts().iter().find(strange) {
            return Err(OutOfScope::account(account, Where::Target));
        }
        let mut said = head.fields.get_all("x-amz-account-id").iter();
        let strange = |value: &&HeaderValue| !self.takes_account(value.to_str().unwrap_or("?"));
        if let Some(value) = said.find(strange) {
            return Err(OutOfScope::account(
                value.to_str().unwrap_or("?"),
                Where::Field,
            ));
        }
        self.permits_head(endpoint, head, action)
    }

    /// Checks what path, query and fields name against the pins.
    fn permits_head(
        &self,
        endpoint: &Endpoint,
        head: &RequestHead,
        action: &Action,
    ) -> Result<(), OutOfScope> {
        let data = Data::of(action.api(), action.operation());
        let data = action.s3().is_none().then_some(data);
        self.searching(endpoint, action, |allowed| {
            if let Some(found) = named::in_target(&head.target, data, allowed)? {
                return Err(OutOfScope::named(found, Where::Target));
            }
            let found = named::in_fields(&head.fields, allowed)?;
            found.map_or(Ok(()), |found| Err(OutOfScope::named(found, Where::Field)))
        })
    }

    /// Calls with what may be named, if that is limited at all.
    fn searching(
        &self,
        endpoint: &Endpoint,
        action: &Action,
        search: impl FnOnce(Allowed<'_>) -> Result<(), OutOfScope>,
    ) -> Result<(), OutOfScope> {
        if !self.bounds_names(endpoint) {
            return Ok(());
        }
        let accounts = |account: &str| self.takes_account(account);
        let buckets = |bucket: &str| self.pins_of(bucket).next().is_some();
        let own = action.s3().and_then(|call| call.bucket.as_deref());
        let store = |bucket: &str| Some(bucket) == own || buckets(bucket);
        search(Allowed {
            accounts: (!self.pins.accounts.is_empty()).then_some(&accounts),
            buckets: (!self.buckets.is_empty()).then_some(&buckets),
            store: if action.s3().is_some() {
                Some(&store)
            } else {
                None
            },
        })
    }

    /// Whether pins limit whom a request may name. Bucket pins apply at AWS and at object stores,
    /// not at an operator's other services.
    fn bounds_names(&self, endpoint: &Endpoint) -> bool {
        let buckets = endpoint.is_object_store() || !endpoint.is_own();
        !self.pins.accounts.is_empty() || buckets && !self.buckets.is_empty()
    }

    /// Whether anything is pinned that a field could contradict.
    fn is_pinned(&self) -> bool {
        !self.is_for_any_resource() || !self.pins.actions.is_empty()
    }

    /// Checks that the meaning of every field and parameter is known, if anything is pinned.
    fn permits_known(
        &self,
        endpoint: &Endpoint,
        head: &RequestHead,
        call: &S3Call,
    ) -> Result<(), OutOfScope> {
        if !self.is_pinned() {
            return Ok(());
        }
        let own = endpoint.is_own();
        let mut fields = head.fields.keys();
        let mut parameters = head.target.query_pairs();
        let known = fields.all(|name| is_known_field(name.as_str(), own))
            && parameters.all(|(name, _)| is_known_parameter(&name.to_ascii_lowercase(), own))
            && !(own && call.strange);
        known.then_some(()).ok_or(OutOfScope::Field)
    }

    /// Whether an unsigned request may be made at an endpoint for which the credential signs. It
    /// may not if its response is a credential (`AssumeRoleWithWebIdentity`, `GetRoleCredentials`),
    /// unless that is named.
    ///
    /// # Errors
    /// [`OutOfScope::ReturnsCredentials`], or [`OutOfScope::UnknownAction`] if only content that is
    /// not buffered would show it.
    pub fn permits_unsigned(&self, reading: &Reading) -> Result<(), OutOfScope> {
        match reading {
            Reading::Form(form) if form.may_return_credentials() => Err(OutOfScope::UnknownAction),
            Reading::Known(action) if action.returns_credentials() => {
                let name = action.name().to_string();
                let named = self.pins.credential_actions.contains(&name);
                named
                    .then_some(())
                    .ok_or(OutOfScope::ReturnsCredentials(name))
            }
            Reading::Form(_) | Reading::Known(_) => Ok(()),
        }
    }

    /// Whether [`Scope::permits_content`] has anything to check, so that the content must be
    /// buffered.
    pub fn needs_content(
        &self,
        endpoint: &Endpoint,
        head: &RequestHead,
        reading: &Reading,
    ) -> bool {
        let data = match reading {
            Reading::Known(action) => Data::of(action.api(), action.operation()),
            Reading::Form(_) => Data::Nothing,
        };
        self.bounds_names(endpoint)
            && data != Data::Whole
            && head.method != Method::GET
            && head.method != Method::HEAD
    }

    /// Checks what the content names against the pins.
    ///
    /// # Errors
    /// [`OutOfScope`] for an account, a grantee or a bucket that is not pinned, and for everybody;
    /// [`OutOfScope::Unreadable`] if they cannot be found.
    pub fn permits_content(
        &self,
        endpoint: &Endpoint,
        head: &RequestHead,
        action: &Action,
        content: &[u8],
    ) -> Result<(), OutOfScope> {
        let field = |name| {
            head.fields
                .get(name)
                .and_then(|value: &HeaderValue| value.to_str().ok())
        };
        let data = Data::of(action.api(), action.operation());
        if data == Data::Whole || content.is_empty() || !self.bounds_names(endpoint) {
            return Ok(());
        }
        if head.fields.contains_key(header::CONTENT_ENCODING) {
            return Err(OutOfScope::Unreadable(named::Unreadable));
        }
        let mut apis = endpoint.apis().into_iter();
        let form = match (action.s3(), action.operation()) {
            (None, _) => Form::Typed {
                forms: apis.any(|api| api.speaks("query") || api.speaks("ec2")),
            },
            // SDKs send no type to S3, which goes by the operation.
            (Some(_), Some("PutBucketPolicy")) => Form::Json,
            (Some(_), _) => Form::Xml,
        };
        let kind = field(header::CONTENT_TYPE);
        self.searching(endpoint, action, |allowed| {
            let found = named::in_content(kind, content, (form, data), allowed)?;
            found.map_or(Ok(()), |found| {
                Err(OutOfScope::named(found, Where::Content))
            })
        })?;
        // What no text names: removing a guard against public access.
        let text = std::str::from_utf8(content).map_err(|_| named::Unreadable)?;
        let falls = action.operation() == Some("PutPublicAccessBlock")
            && !self.pins.accounts.is_empty()
            && !named::xml::all_true(text, &PUBLIC_ACCESS);
        if falls {
            Err(OutOfScope::Everybody(Where::Content))
        } else {
            Ok(())
        }
    }

    /// The fields that must be added and signed so that S3 itself refuses a bucket of another
    /// account. They name the pinned account. Without one, they name the key's account, if it is
    /// known, unless buckets are pinned or `accounts` is `*`.
    ///
    /// # Errors
    /// [`OutOfScope::Account`] if the client names another account than the key's.
    pub fn additions(
        &self,
        endpoint: &Endpoint,
        action: &Action,
        of_key: Option<&str>,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, OutOfScope> {
        let Some(call) = action.s3() else {
            return Ok(Vec::new());
        };
        let by_default = of_key.filter(|_| self.is_for_own_account() && !endpoint.is_own());
        if let Some(own) = by_default {
            let in_fields = [&call.owner, &call.source_owner].into_iter().flatten();
            let in_fields = in_fields.map(|said| (said.as_str(), Where::Field));
            let in_host = endpoint.account().map(|said| (said, Where::Host));
            let mut said = in_fields.chain(in_host);
            if let Some((account, place)) = said.find(|(said, _)| *said != own) {
                return Err(OutOfScope::account(account, place));
            }
        }
        let of_key = by_default.and_then(|account| HeaderValue::from_str(account).ok());
        let Some(owner) = self.owner.clone().or(of_key) else {
            return Ok(Vec::new());
        };
        // By default even if the operation is in no table: S3 ignores a field that it does not
        // know.
        let is_anyones = !OWN_ONLY.contains(&action.operation().unwrap_or_default());
        let takes = call.takes_owner || by_default.is_some() && is_anyones;
        let mut fields = Vec::new();
        if takes && call.owner.is_none() {
            fields.push((
                HeaderName::from_static("x-amz-expected-bucket-owner"),
                owner.clone(),
            ));
        }
        if matches!(
            call.source,
            Some(CopySource::Object { .. } | CopySource::Arn(_))
        ) && call.source_owner.is_none()
        {
            let name = HeaderName::from_static("x-amz-source-expected-bucket-owner");
            fields.push((name, owner));
        }
        Ok(fields)
    }

    /// Whether buckets of the key's own account are meant, because nothing else is specified.
    pub fn is_for_own_account(&self) -> bool {
        self.is_for_any_resource() && !self.any_account
    }

    /// Whether neither accounts nor buckets are pinned.
    pub fn is_for_any_resource(&self) -> bool {
        self.pins.accounts.is_empty() && self.buckets.is_empty()
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
        if !pins.accounts.is_empty() && OPENING.contains(&&*name) {
            return Err(OutOfScope::Everybody(Where::Target));
        }
        let pinned = |name: &String| pins.actions.iter().any(|pin| matches(pin, name));
        let mut names = action.names();
        match names.find(|name| !pins.actions.is_empty() && !pinned(name)) {
            Some(name) => Err(OutOfScope::Action(name)),
            None => Ok(()),
        }
    }

    fn permits_buckets(
        &self,
        endpoint: &Endpoint,
        action: &Action,
        call: &S3Call,
    ) -> Result<(), OutOfScope> {
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
            // The head does not show which objects are deleted, or what a bucket's settings do to
            // others.
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

    /// A store that resolves dot segments reads such a key as another one, and a bare `+` may be a
    /// space.
    fn covers_key(
        &self,
        bucket: &str,
        key: &str,
        plus: bool,
        strict: bool,
    ) -> Result<(), OutOfScope> {
        let dots = key
            .split(['/', '\\'])
            .any(|segment| matches!(segment, "." | ".."));
        let covers = |pin: &BucketPin| match pin.prefix.is_empty() {
            true => !(strict && dots),
            false => {
                key.starts_with(&pin.prefix) && !dots && !(plus && pin.prefix.contains([' ', '+']))
            }
        };
        let covered = self.pins_of(bucket).any(covers);
        covered.then_some(()).ok_or(OutOfScope::Bucket)
    }

    /// With pinned accounts, S3 is told whose bucket it must be. If the operation takes no such
    /// field, only operations that create or list one's own buckets are allowed.
    fn permits_owner(
        &self,
        endpoint: &Endpoint,
        action: &Action,
        call: &S3Call,
    ) -> Result<(), OutOfScope> {
        if self.pins.accounts.is_empty() {
            return Ok(());
        }
        let says = |said: &Option<String>| match said {
            Some(account) if self.takes_account(account) => Ok(()),
            Some(account) => Err(OutOfScope::account(account, Where::Field)),
            None if self.owner.is_some() => Ok(()),
            None => Err(OutOfScope::BucketOwner),
        };
        let own_only = OWN_ONLY.contains(&action.operation().unwrap_or_default());
        match (endpoint.is_own(), call.takes_owner) {
            // Other stores cannot be relied upon to check the field.
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
                Some(account) => Err(OutOfScope::account(account, Where::Field)),
                None => Err(OutOfScope::BucketOwner),
            },
        }
    }

    fn takes_account(&self, account: &str) -> bool {
        self.pins.accounts.is_empty() || self.pins.accounts.iter().any(|pin| pin == account)
    }
}

/// Operations of S3 that create or list one's own buckets.
const OWN_ONLY: [&str; 3] = ["ListBuckets", "ListDirectoryBuckets", "CreateBucket"];
/// Actions that open something on their own, by removing what kept the public out.
const OPENING: [&str; 4] = [
    "ec2:DisableImageBlockPublicAccess",
    "ec2:DisableSnapshotBlockPublicAccess",
    "s3:DeletePublicAccessBlock",
    "s3control:DeletePublicAccessBlock",
];
/// What keeps the public out of buckets, if each is true.
const PUBLIC_ACCESS: [&str; 4] = [
    "BlockPublicAcls",
    "BlockPublicPolicy",
    "IgnorePublicAcls",
    "RestrictPublicBuckets",
];
/// Operations that list keys with a prefix.
const LISTINGS: [&str; 4] = [
    "ListObjects",
    "ListObjectsV2",
    "ListObjectVersions",
    "ListMultipartUploads",
];

#[cfg(test)]
#[path = "scope_tests.rs"]
mod tests;
