//! Pinned buckets: which keys of an object store a request may be about.

use super::super::action::{Action, CopySource, S3Call};
use super::super::endpoint::{Endpoint, Style};
use super::super::tables::is_listed;
use super::outside::OutOfScope;

/// The buckets of a credential; none allow all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct BucketPins(Vec<BucketPin>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct BucketPin {
    bucket: String,
    /// Empty for the whole bucket.
    prefix: String,
}

impl BucketPins {
    /// Reads pins, `name` or `name/prefix`.
    pub(super) fn new(pins: &[String]) -> BucketPins {
        let pin = |text: &String| {
            let (bucket, prefix) = text.split_once('/').unwrap_or((text, ""));
            BucketPin {
                bucket: bucket.to_owned(),
                prefix: prefix.to_owned(),
            }
        };
        BucketPins(pins.iter().map(pin).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the bucket, or a part of it, is pinned.
    pub(super) fn has(&self, bucket: &str) -> bool {
        self.pins_of(bucket).next().is_some()
    }

    /// Checks the bucket and the keys of a request, and those of its source.
    pub(super) fn permit(
        &self,
        endpoint: &Endpoint,
        action: &Action,
        call: &S3Call,
    ) -> Result<(), OutOfScope> {
        if self.is_empty() {
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
            (None, Some(prefix), Some(operation)) if is_listed("listings", operation) => {
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
        self.permit_source(endpoint, call, bucket)
    }

    fn permit_source(
        &self,
        endpoint: &Endpoint,
        call: &S3Call,
        own: &str,
    ) -> Result<(), OutOfScope> {
        match &call.source {
            None => Ok(()),
            Some(CopySource::Arn(_)) => Err(OutOfScope::BucketHidden),
            Some(CopySource::Object { bucket, key }) => {
                self.covers_key(bucket, key, false, endpoint.is_own())
            }
            Some(CopySource::SameBucket(key)) => {
                self.covers_key(own, key, key.contains('+'), endpoint.is_own())
            }
        }
    }

    fn pins_of<'a>(&'a self, bucket: &'a str) -> impl Iterator<Item = &'a BucketPin> {
        self.0.iter().filter(move |pin| pin.bucket == bucket)
    }

    fn covers_bucket(&self, bucket: &str) -> Result<(), OutOfScope> {
        self.has(bucket).then_some(()).ok_or(OutOfScope::Bucket)
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
        let covers = |pin: &BucketPin| {
            if pin.prefix.is_empty() {
                !(strict && dots)
            } else {
                key.starts_with(&pin.prefix) && !dots && !(plus && pin.prefix.contains([' ', '+']))
            }
        };
        let covered = self.pins_of(bucket).any(covers);
        covered.then_some(()).ok_or(OutOfScope::Bucket)
    }
}
