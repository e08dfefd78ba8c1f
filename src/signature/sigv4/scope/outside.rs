//! Why a request is outside a credential's scope, by cause.

use std::fmt;

use super::super::endpoint::ScopeMismatch;
use super::super::mentions::{Mention, Unreadable};

gateway_names::faults! {
    /// Why a request is outside a credential's scope.
    #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
    pub enum OutOfScope {
        /// The scope of the signature is not the endpoint's.
        Scope(#[from] ScopeMismatch) = SigV4Scope transparent,
        /// The partition is not pinned.
        Partition = SigV4Scope "the credential is not for this partition",
        /// The region is not pinned.
        Region = SigV4Scope "the credential is not for this region",
        /// All regions at once, which no pin allows.
        EveryRegion = SigV4Scope
            "a signature for all regions needs `*` among the credential's regions",
        /// The service is not pinned.
        Service = SigV4Scope "the credential is not for this service",
        /// The action is not pinned.
        Action(String) = SigV4Action "the credential is not for the action `{0}`",
        /// The operation is in no table.
        UnknownAction = SigV4Action
            "the operation is not known here, so nothing can allow it at a service that returns \
             credentials, or where actions are pinned",
        /// The response would be a credential.
        ReturnsCredentials(String) = SigV4Action
            "the action `{0}` returns credentials; `credential_actions` must name it",
        /// The bucket or key is not pinned.
        Bucket = SigV4Resource "the credential is not for this bucket, or not for this key in it",
        /// The part of the request that determines the bucket or keys is not checked.
        BucketHidden = SigV4Resource
            "which bucket or keys are meant cannot be told from the head, and buckets are pinned",
        /// The account is not pinned.
        Account {
            /// The account, or a number that may be one.
            account: String,
            /// Where it is.
            place: Where,
        } = SigV4Resource
            "the credential is not for the account `{account}` in {place}; a number of twelve \
             digits counts as one, and is taken if `accounts` lists it",
        /// A canonical user id or an e-mail address, which identify grantees.
        Grantee(Where) = SigV4Resource
            "{0} opens something to a canonical user id or an e-mail address that `accounts` \
             does not list",
        /// It opens something to everybody, or to all signed-in users, and accounts are pinned.
        Everybody(Where) = SigV4Resource
            "{0} opens something to everybody, and accounts are pinned",
        /// A bucket other than the pinned ones is named.
        NamedBucket {
            /// The bucket, or a pattern of buckets.
            bucket: String,
            /// Where it is.
            place: Where,
        } = SigV4Resource "the credential is not for the bucket `{bucket}` in {place}",
        /// A field or parameter in no table, although something is pinned.
        Field = SigV4Resource
            "a field or parameter of this request is none of S3's, so what it asks for cannot be \
             compared with the pins",
        /// There is no signature, and the host is one for which the credential signs.
        NotSigned = SigV4Absent
            "the request is not signed with the credential, and its host is not among the \
             origins of `unsigned`",
        /// Ownership of the bucket cannot be ensured.
        BucketOwner = SigV4Resource
            "whose bucket it is cannot be ensured for this request; with several accounts it \
             says so in x-amz-expected-bucket-owner",
        /// Content that cannot be searched.
        Unreadable(#[from] Unreadable) = SigV4Resource transparent,
    }
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
}
