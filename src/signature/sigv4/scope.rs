//! Scope: the permitted uses of a signing credential, whatever the client requests (threats J01,
//! J03, J06).
//!
//! An empty list of pins pins nothing. A request that cannot be compared with a pin is refused: an
//! unknown operation under pinned actions, an access point under pinned buckets, content that
//! cannot be parsed under pinned accounts.

mod accounts;
mod buckets;
mod outside;
mod pins;

use http::{HeaderName, HeaderValue, Method, header};

use accounts::AccountPins;
use buckets::BucketPins;
pub use outside::{OutOfScope, Where};
pub use pins::{PinMistake, Pins};
use pins::{matches, mistakes};

use super::action::{Action, Lookup, S3Call, is_known_field, is_known_parameter};
use super::endpoint::Endpoint;
use super::mentions::{self, AllowedMentions, Data, Format};
use super::tables::{Tables, is_listed};
use gateway_message::RequestHead;

/// The scope of a client's signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignedFor<'a> {
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
    partitions: Vec<String>,
    regions: Vec<String>,
    services: Vec<String>,
    actions: Vec<String>,
    credential_actions: Vec<String>,
    buckets: BucketPins,
    accounts: AccountPins,
}

impl Scope {
    /// Checks all pins.
    ///
    /// # Errors
    /// Every mistake in them.
    pub fn new(pins: Pins) -> Result<Scope, Vec<PinMistake>> {
        let mistakes = mistakes(&pins);
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        Ok(Scope {
            partitions: pins.partitions,
            regions: pins.regions,
            services: pins.services,
            actions: pins.actions,
            credential_actions: pins.credential_actions,
            buckets: BucketPins::new(&pins.buckets),
            accounts: AccountPins::new(pins.accounts),
        })
    }

    /// Checks the host and the scope of the signature against the pins. Needs no content and no
    /// action.
    ///
    /// # Errors
    /// [`OutOfScope`]: the scope is not the host's (J01), or it is not pinned.
    pub fn permits_place(
        &self,
        endpoint: &Endpoint,
        signed_for: &SignedFor<'_>,
    ) -> Result<(), OutOfScope> {
        endpoint.check(signed_for.service, signed_for.regions, signed_for.set)?;
        let called = |name: &String| {
            name == signed_for.service || endpoint.apis().iter().any(|api| api.id == name)
        };
        if !self.services.is_empty() && !self.services.iter().any(called) {
            return Err(OutOfScope::Service);
        }
        for region in signed_for.regions {
            self.permits_region(endpoint, region)?;
        }
        match endpoint.account() {
            Some(account) if !self.accounts.takes(account) => {
                Err(OutOfScope::account(account, Where::Host))
            }
            _ => Ok(()),
        }
    }

    /// Checks a region and its partition, or `*` for all regions.
    fn permits_region(&self, endpoint: &Endpoint, region: &str) -> Result<(), OutOfScope> {
        let all = self.regions.iter().any(|pin| pin == "*");
        if region == "*" {
            all.then_some(()).ok_or(OutOfScope::EveryRegion)?;
        } else if !self.regions.is_empty() && !all && !self.regions.iter().any(|pin| pin == region)
        {
            return Err(OutOfScope::Region);
        }
        // The regions of an operator's own endpoint are in no partition.
        if self.partitions.is_empty() || endpoint.is_own() {
            return Ok(());
        }
        let partition = Tables::get().partition_of(region);
        let is_pinned =
            partition.is_some_and(|found| self.partitions.iter().any(|id| id == found.id));
        is_pinned.then_some(()).ok_or(OutOfScope::Partition)
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
            self.buckets.permit(endpoint, action, call)?;
            self.accounts.permit_owner(endpoint, action, call)?;
            return self.permits_head(endpoint, head, action);
        }
        if !self.buckets.is_empty() && action.api() == "s3control" {
            return Err(OutOfScope::BucketHidden);
        }
        let strange = |account: &&String| !self.accounts.takes(account);
        if let Some(account) = action.accounts().iter().find(strange) {
            return Err(OutOfScope::account(account, Where::Target));
        }
        let said = head.fields.get_all("x-amz-account-id").iter();
        let mut said = said.map(|value| value.to_str().unwrap_or("?"));
        if let Some(account) = said.find(|account| !self.accounts.takes(account)) {
            return Err(OutOfScope::account(account, Where::Field));
        }
        self.permits_head(endpoint, head, action)
    }

    /// Checks the names in path, query and fields against the pins.
    fn permits_head(
        &self,
        endpoint: &Endpoint,
        head: &RequestHead,
        action: &Action,
    ) -> Result<(), OutOfScope> {
        let data = Data::of(action.api(), action.operation());
        let data = action.s3().is_none().then_some(data);
        self.searching(endpoint, action, |allowed| {
            if let Some(found) = mentions::in_target(&head.target, data, allowed)? {
                return Err(OutOfScope::named(found, Where::Target));
            }
            let found = mentions::in_fields(&head.fields, allowed)?;
            found.map_or(Ok(()), |found| Err(OutOfScope::named(found, Where::Field)))
        })
    }

    /// Calls `search` with the names that are allowed, if pins limit them at all.
    fn searching(
        &self,
        endpoint: &Endpoint,
        action: &Action,
        search: impl FnOnce(AllowedMentions<'_>) -> Result<(), OutOfScope>,
    ) -> Result<(), OutOfScope> {
        if !self.bounds_names(endpoint) {
            return Ok(());
        }
        let accounts = |account: &str| self.accounts.takes(account);
        let buckets = |bucket: &str| self.buckets.has(bucket);
        let own = action.s3().and_then(|call| call.bucket.as_deref());
        let store = |bucket: &str| Some(bucket) == own || buckets(bucket);
        search(AllowedMentions {
            accounts: (!self.accounts.is_empty()).then_some(&accounts),
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
        !self.accounts.is_empty() || buckets && !self.buckets.is_empty()
    }

    /// Whether anything is pinned that a field could contradict.
    fn is_pinned(&self) -> bool {
        !self.is_for_any_resource() || !self.actions.is_empty()
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
    pub fn permits_unsigned(&self, reading: &Lookup) -> Result<(), OutOfScope> {
        match reading {
            Lookup::Form(form) if form.may_return_credentials() => Err(OutOfScope::UnknownAction),
            Lookup::Known(action) if action.returns_credentials() => {
                let name = action.name().to_string();
                let named = self.credential_actions.contains(&name);
                named
                    .then_some(())
                    .ok_or(OutOfScope::ReturnsCredentials(name))
            }
            Lookup::Form(_) | Lookup::Known(_) => Ok(()),
        }
    }

    /// Whether [`Scope::permits_content`] has anything to check, so that the content must be
    /// buffered.
    pub fn needs_content(&self, endpoint: &Endpoint, head: &RequestHead, reading: &Lookup) -> bool {
        let data = match reading {
            Lookup::Known(action) => Data::of(action.api(), action.operation()),
            Lookup::Form(_) => Data::Nothing,
        };
        self.bounds_names(endpoint)
            && data != Data::Whole
            && head.method != Method::GET
            && head.method != Method::HEAD
    }

    /// Checks the names in the content against the pins.
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
        let data = Data::of(action.api(), action.operation());
        if data == Data::Whole || content.is_empty() || !self.bounds_names(endpoint) {
            return Ok(());
        }
        if head.fields.contains_key(header::CONTENT_ENCODING) {
            return Err(OutOfScope::Unreadable(mentions::Unreadable));
        }
        let kind = head.fields.get(header::CONTENT_TYPE);
        let kind = kind.and_then(|value| value.to_str().ok());
        let format = format(endpoint, action);
        self.searching(endpoint, action, |allowed| {
            let found = mentions::in_content(kind, content, (format, data), allowed)?;
            found.map_or(Ok(()), |found| {
                Err(OutOfScope::named(found, Where::Content))
            })
        })?;
        // Removing a guard against public access names nobody, so the search does not find it.
        let text = std::str::from_utf8(content).map_err(|_| mentions::Unreadable)?;
        let falls = action.operation() == Some("PutPublicAccessBlock")
            && !self.accounts.is_empty()
            && !mentions::xml::all_true(text, &PUBLIC_ACCESS);
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
        self.accounts.additions(endpoint, action, call, by_default)
    }

    /// Whether buckets of the key's own account are meant, because nothing else is specified.
    pub fn is_for_own_account(&self) -> bool {
        self.is_for_any_resource() && !self.accounts.is_any()
    }

    /// Whether neither accounts nor buckets are pinned.
    pub fn is_for_any_resource(&self) -> bool {
        self.accounts.is_empty() && self.buckets.is_empty()
    }

    fn permits_name(&self, action: &Action) -> Result<(), OutOfScope> {
        let name = action.name().to_string();
        if self.credential_actions.contains(&name) {
            return Ok(());
        }
        if !action.is_known() && (action.returns_credentials() || !self.actions.is_empty()) {
            return Err(OutOfScope::UnknownAction);
        }
        if action.returns_credentials() {
            return Err(OutOfScope::ReturnsCredentials(name));
        }
        if !self.accounts.is_empty() && is_listed("opening", &name) {
            return Err(OutOfScope::Everybody(Where::Target));
        }
        let pinned = |name: &String| self.actions.iter().any(|pin| matches(pin, name));
        let mut names = action.names();
        match names.find(|name| !self.actions.is_empty() && !pinned(name)) {
            Some(name) => Err(OutOfScope::Action(name)),
            None => Ok(()),
        }
    }
}

/// The format of an action's content.
fn format(endpoint: &Endpoint, action: &Action) -> Format {
    let mut apis = endpoint.apis().into_iter();
    match (action.s3(), action.operation()) {
        (None, _) => Format::Typed {
            forms: apis.any(|api| api.speaks("query") || api.speaks("ec2")),
        },
        // SDKs send no content type to S3, which decides by the operation.
        (Some(_), Some("PutBucketPolicy")) => Format::Json,
        (Some(_), _) => Format::Xml,
    }
}

/// The settings that keep the public out of buckets, if each is true.
const PUBLIC_ACCESS: [&str; 4] = [
    "BlockPublicAcls",
    "BlockPublicPolicy",
    "IgnorePublicAcls",
    "RestrictPublicBuckets",
];
#[cfg(test)]
mod tests;
