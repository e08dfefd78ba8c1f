//! Why a request is outside a credential's scope, by cause.

use std::fmt;

use super::super::endpoint::ScopeMismatch;
use super::super::mentions::{Mention, Unreadable};
use gateway_names::ReasonCode;

/// Why a request is outside a credential's scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutOfScope {
    /// The scope of the signature is not the endpoint's.
    #[error(transparent)]
    Scope(#[from] ScopeMismatch),
    /// The partition is not pinned.
    #[error("the credential is not for this partition")]
    Partition,
    /// The region is not pinned.
    #[error("the credential is not for this region")]
    Region,
    /// All regions at once, which no pin allows.
    #[error("a signature for all regions needs `*` among the credential's regions")]
    EveryRegion,
    /// The service is not pinned.
    #[error("the credential is not for this service")]
    Service,
    /// The action is not pinned.
    #[error("the credential is not for the action `{0}`")]
    Action(String),
    /// The operation is in no table.
    #[error(
        "the operation is not known here, so nothing can allow it at a service that returns credentials, or where actions are pinned"
    )]
    UnknownAction,
    /// The response would be a credential.
    #[error("the action `{0}` returns credentials; `credential_actions` must name it")]
    ReturnsCredentials(String),
    /// The bucket or key is not pinned.
    #[error("the credential is not for this bucket, or not for this key in it")]
    Bucket,
    /// The part of the request that determines the bucket or keys is not checked.
    #[error("which bucket or keys are meant cannot be told from the head, and buckets are pinned")]
    BucketHidden,
    /// The account is not pinned.
    #[error(
        "the credential is not for the account `{account}` in {place}; a number of twelve digits counts as one, and is \
         taken if `accounts` lists it"
    )]
    Account {
        /// The account, or a number that may be one.
        account: String,
        /// Where it is.
        place: Where,
    },
    /// A canonical user id or an e-mail address, which identify grantees.
    #[error(
        "{0} opens something to a canonical user id or an e-mail address that `accounts` does not list"
    )]
    Grantee(Where),
    /// It opens something to everybody, or to whoever signs in, and accounts are pinned.
    #[error("{0} opens something to everybody, and accounts are pinned")]
    Everybody(Where),
    /// A bucket other than the pinned ones is named.
    #[error("the credential is not for the bucket `{bucket}` in {place}")]
    NamedBucket {
        /// The bucket, or a pattern of buckets.
        bucket: String,
        /// Where it is.
        place: Where,
    },
    /// A field or parameter in no table, although something is pinned.
    #[error(
        "a field or parameter of this request is none of S3's, so what it asks for cannot be compared with the pins"
    )]
    Field,
    /// There is no signature, and the host is one for which the credential signs.
    #[error(
        "the request is not signed with the credential, and its host is not among the origins of `unsigned`"
    )]
    NotSigned,
    /// Ownership of the bucket cannot be ensured.
    #[error(
        "whose bucket it is cannot be ensured for this request; with several accounts it says so in x-amz-expected-bucket-owner"
    )]
    BucketOwner,
    /// Content that cannot be searched.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// The part of a request that contains something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// The host.
    Host,
    /// Path or query.
    Target,
    /// A field.
    Field,
    /// The content.
    Content,
}

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Where::Host => "the host",
            Where::Target => "path or query",
            Where::Field => "a field",
            Where::Content => "the content",
        })
    }
}

impl OutOfScope {
    pub(super) fn account(account: &str, place: Where) -> OutOfScope {
        let account = account.to_owned();
        OutOfScope::Account { account, place }
    }

    pub(super) fn named(mention: Mention, place: Where) -> OutOfScope {
        match mention {
            Mention::Account(account) => OutOfScope::Account { account, place },
            Mention::Grantee => OutOfScope::Grantee(place),
            Mention::Bucket(bucket) => OutOfScope::NamedBucket { bucket, place },
            Mention::Everybody => OutOfScope::Everybody(place),
        }
    }

    /// The short code for refusals and audit records.
    pub fn reason(&self) -> ReasonCode {
        match self {
            OutOfScope::Scope(_)
            | OutOfScope::Partition
            | OutOfScope::Region
            | OutOfScope::EveryRegion
            | OutOfScope::Service => ReasonCode::SigV4Scope,
            OutOfScope::Action(_)
            | OutOfScope::UnknownAction
            | OutOfScope::ReturnsCredentials(_) => ReasonCode::SigV4Action,
            OutOfScope::Bucket
            | OutOfScope::BucketHidden
            | OutOfScope::Account { .. }
            | OutOfScope::BucketOwner
            | OutOfScope::Grantee(_)
            | OutOfScope::Everybody(_)
            | OutOfScope::NamedBucket { .. }
            | OutOfScope::Field
            | OutOfScope::Unreadable(_) => ReasonCode::SigV4Resource,
            OutOfScope::NotSigned => ReasonCode::SigV4Absent,
        }
    }
}
