//! Warns the operator, once, that the gateway's clock is wrong: origins refuse signatures made with
//! it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use http::header::DATE;
use http::{HeaderMap, StatusCode};
use time::format_description::well_known::Rfc2822;
use time::{OffsetDateTime, UtcOffset};

/// Checks the `Date` of an origin that refused a signed request, and warns if the clocks differ.
///
/// Adjusts nothing: an origin is not trusted to set the time with which requests to other origins
/// are signed.
pub fn watch(status: StatusCode, fields: &HeaderMap, now: SystemTime) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let refused = matches!(
        status,
        StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED
    );
    let Some(off) = refused.then(|| off(fields, now)).flatten() else {
        return;
    };
    if off > MOST && !TOLD.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            minutes = off.as_secs() / 60,
            "an origin refused a signed request, and its clock is far from this machine's: set the clock"
        );
    }
}

/// Returns how far the origin's clock is from ours, in either direction.
fn off(fields: &HeaderMap, now: SystemTime) -> Option<Duration> {
    // RFC 9110 §5.6.7: senders generate RFC 5322's form with the zone as `GMT`.
    let text = fields.get(DATE)?.to_str().ok()?.strip_suffix("GMT")?;
    let theirs = OffsetDateTime::parse(&format!("{text}+0000"), &Rfc2822).ok()?;
    let theirs = SystemTime::from(theirs.to_offset(UtcOffset::UTC));
    theirs
        .duration_since(now)
        .or_else(|_| now.duration_since(theirs))
        .ok()
}

/// Services refuse a signature if the clocks differ by more than this.
const MOST: Duration = Duration::from_secs(5 * 60);

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn an_origins_date_tells_how_far_the_clocks_are_apart() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (text, expected) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(0)),
            ("Sun, 06 Nov 1994 09:49:37 GMT", Some(3600)),
            ("Sun, 06 Nov 1994 07:49:37 GMT", Some(3600)),
            ("yesterday", None),
        ] {
            let fields = [(DATE, HeaderValue::from_static(text))]
                .into_iter()
                .collect();
            assert_eq!(
                off(&fields, at).map(|off| off.as_secs()),
                expected,
                "{text}"
            );
        }
    }
}
