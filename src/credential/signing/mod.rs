//! The signing schemes, each in its own file.

pub mod recipe;
pub mod sigv4;

use std::time::Duration;

/// How far a client's clock may be off. AWS's services allow the same (Amazon S3,
/// `RequestTimeTooSkewed`), and so do most others.
const MOST_SKEW: Duration = Duration::from_secs(15 * 60);
