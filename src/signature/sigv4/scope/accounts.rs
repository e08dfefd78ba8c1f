//! Pinned accounts: on whose resources a credential may be used.

use http::{HeaderName, HeaderValue};

use super::super::action::{Action, CopySource, S3Call};
use super::super::endpoint::{Endpoint, is_account};
use super::super::mentions::arn_account;
use super::super::tables::is_listed;
use super::outside::{OutOfScope, Where};

/// The accounts of a credential; none allow all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AccountPins {
    accounts: Vec<String>,
    /// The single account among them, as the field that is sent.
    owner: Option<HeaderValue>,
    /// Whether `*` allows buckets of any account.
    any: bool,
}

impl AccountPins {
    pub(super) fn new(pins: Vec<String>) -> AccountPins {
        let any = pins == ["*"];
        let mut accounts = pins.iter().filter(|text| is_account(text));
        let owner = match (accounts.next(), accounts.next()) {
            (Some(one), None) => HeaderValue::from_str(one).ok(),
            _ => None,
        };
        AccountPins {
            owner,
            accounts: if any { Vec::new() } else { pins },
            any,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }

    /// Whether `*` allows all accounts, instead of the key's own by default.
    pub(super) fn is_any(&self) -> bool {
        self.any
    }

    pub(super) fn takes(&self, account: &str) -> bool {
        self.is_empty() || self.accounts.iter().any(|pin| pin == account)
    }

    /// With pinned accounts, a field tells S3 whose bucket it must be. If the operation takes no
    /// such field, only operations that create or list one's own buckets are allowed.
    pub(super) fn permit_owner(
        &self,
        endpoint: &Endpoint,
        action: &Action,
        call: &S3Call,
    ) -> Result<(), OutOfScope> {
        if self.is_empty() {
            return Ok(());
        }
        let says = |said: &Option<String>| match said {
            Some(account) if self.takes(account) => Ok(()),
            Some(account) => Err(OutOfScope::account(account, Where::Field)),
            None if self.owner.is_some() => Ok(()),
            None => Err(OutOfScope::BucketOwner),
        };
        let own_only = action
            .operation()
            .is_some_and(|name| is_listed("own-buckets", name));
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
            Some(CopySource::Arn(arn)) => match arn_account(arn) {
                Some(account) if self.takes(account) => says(&call.source_owner),
                Some(account) => Err(OutOfScope::account(account, Where::Field)),
                None => Err(OutOfScope::BucketOwner),
            },
        }
    }

    /// The fields that name the pinned account, or the key's own by default.
    pub(super) fn additions(
        &self,
        endpoint: &Endpoint,
        action: &Action,
        call: &S3Call,
        by_default: Option<&str>,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, OutOfScope> {
        if let Some(own) = by_default {
            check_own(endpoint, call, own)?;
        }
        let of_key = by_default.and_then(|account| HeaderValue::from_str(account).ok());
        let Some(owner) = self.owner.clone().or(of_key) else {
            return Ok(Vec::new());
        };
        // By default even if the operation is in no table: S3 ignores a field that it does not
        // know.
        let is_anyones = !action
            .operation()
            .is_some_and(|name| is_listed("own-buckets", name));
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
}

/// Checks that the request names no other account than the key's own.
fn check_own(endpoint: &Endpoint, call: &S3Call, own: &str) -> Result<(), OutOfScope> {
    let in_fields = [&call.owner, &call.source_owner].into_iter().flatten();
    let in_fields = in_fields.map(|said| (said.as_str(), Where::Field));
    let in_host = endpoint.account().map(|said| (said, Where::Host));
    let mut said = in_fields.chain(in_host);
    match said.find(|(said, _)| *said != own) {
        Some((account, place)) => Err(OutOfScope::account(account, place)),
        None => Ok(()),
    }
}
