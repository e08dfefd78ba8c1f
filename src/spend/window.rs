//! Windows of time, by the clock of UTC.

use std::time::{Duration, SystemTime};

use time::OffsetDateTime;

use gateway_names::Period;

/// A window, in seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    /// When it begins.
    pub(crate) begins: u64,
    /// When the next begins; `None` if none does.
    pub(crate) ends: Option<u64>,
}

impl Window {
    /// Returns the window that a time is in.
    pub(crate) fn of(per: Period, at: u64) -> Self {
        let day = at / DAY;
        let (begins, lasts) = match per {
            Period::Minute => (at - at % 60, Some(60)),
            Period::Hour => (at - at % 3_600, Some(3_600)),
            Period::Day => (day * DAY, Some(DAY)),
            // 1970 began on a Thursday.
            Period::Week => (day.saturating_sub((day + 3) % 7) * DAY, Some(7 * DAY)),
            Period::Month => return month(at),
            Period::Session => (at, None),
        };
        let ends = lasts.map(|lasts| begins.saturating_add(lasts));
        Self { begins, ends }
    }

    /// Returns the window that begins then.
    pub(crate) fn from(per: Period, begins: u64) -> Self {
        let ends = Self::of(per, begins).ends;
        Self { begins, ends }
    }
}

fn month(at: u64) -> Window {
    let read = i64::try_from(at).ok();
    let date = read.and_then(|at| OffsetDateTime::from_unix_timestamp(at).ok());
    let Some(date) = date else {
        // The calendar ends there.
        return Window {
            begins: at,
            ends: None,
        };
    };
    let begins = (at / DAY - u64::from(date.day() - 1)) * DAY;
    let days = u64::from(date.month().length(date.year()));
    let ends = Some(begins + days * DAY);
    Window { begins, ends }
}

/// Returns the seconds since 1970.
pub(crate) fn seconds(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Returns the time so many seconds after the beginning of 1970.
pub(crate) fn time_of(seconds: u64) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

const DAY: u64 = 86_400;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn windows_begin_where_the_clock_of_utc_does() {
        // 2028-02-29 12:34:56 UTC, a Tuesday.
        let at = 1_835_440_496;
        for (per, begins, ends) in [
            (Period::Minute, 1_835_440_440, Some(1_835_440_500)),
            (Period::Hour, 1_835_438_400, Some(1_835_442_000)),
            (Period::Day, 1_835_395_200, Some(1_835_481_600)),
            (Period::Week, 1_835_308_800, Some(1_835_913_600)),
            (Period::Month, 1_832_976_000, Some(1_835_481_600)),
            (Period::Session, at, None),
        ] {
            assert_eq!(Window::of(per, at), Window { begins, ends }, "{per}");
        }
    }

    proptest! {
        #[test]
        fn windows_touch_and_hold_the_time(at in 86_400u64 * 7..200_000_000_000) {
            for per in Period::ALL.into_iter().filter(|per| *per != Period::Session) {
                let window = Window::of(per, at);
                let ends = window.ends.unwrap();
                prop_assert!(window.begins <= at && at < ends);
                prop_assert_eq!(Window::of(per, window.begins), window);
                prop_assert_eq!(Window::of(per, ends - 1), window);
                prop_assert_eq!(Window::of(per, ends).begins, ends);
            }
        }
    }
}
