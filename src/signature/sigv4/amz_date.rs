//! Signing times: `20150830T123600Z`, parsed strictly and written from a clock.

use std::fmt;
use std::time::{Duration, SystemTime};

use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time};

use super::Fault;

/// A time to the second, with its text as in `X-Amz-Date`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AmzDate {
    text: [u8; 16],
    time: SystemTime,
}

impl AmzDate {
    /// Parses `YYYYMMDD'T'HHMMSS'Z'` and nothing else.
    ///
    /// # Errors
    /// [`Fault::Malformed`].
    pub(super) fn parse(text: &str) -> Result<AmzDate, Fault> {
        read(text).ok_or(Fault::Malformed("X-Amz-Date"))
    }

    /// The time of a clock, truncated to the second.
    ///
    /// # Errors
    /// [`Fault::Malformed`] beyond the year 9999.
    pub(super) fn at(clock: SystemTime) -> Result<AmzDate, Fault> {
        let at = OffsetDateTime::from(clock);
        let text = format!(
            "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
            at.year(),
            u8::from(at.month()),
            at.day(),
            at.hour(),
            at.minute(),
            at.second()
        );
        AmzDate::parse(&text)
    }

    /// The same time a day later.
    pub(super) fn next_day(&self) -> Result<AmzDate, Fault> {
        let later = self.time.checked_add(Duration::from_secs(86_400));
        AmzDate::at(later.ok_or(Fault::Malformed("X-Amz-Date"))?)
    }

    /// As in `X-Amz-Date`.
    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text).unwrap_or_default()
    }

    /// The day, `YYYYMMDD`, as in a credential scope.
    pub(super) fn day(&self) -> &str {
        self.as_str().get(..8).unwrap_or_default()
    }

    /// The time.
    pub fn time(&self) -> SystemTime {
        self.time
    }
}

impl fmt::Debug for AmzDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn read(text: &str) -> Option<AmzDate> {
    let bytes: [u8; 16] = text.as_bytes().try_into().ok()?;
    let number = |from: usize, to: usize| {
        let digits = &bytes[from..to];
        let all = digits.iter().all(u8::is_ascii_digit);
        all.then(|| {
            digits
                .iter()
                .fold(0_u16, |n, digit| n * 10 + u16::from(digit - b'0'))
        })
    };
    let small = |from: usize| number(from, from + 2).and_then(|n| u8::try_from(n).ok());
    if bytes[8] != b'T' || bytes[15] != b'Z' {
        return None;
    }
    let month = Month::try_from(small(4)?).ok()?;
    let date = Date::from_calendar_date(i32::from(number(0, 4)?), month, small(6)?).ok()?;
    let time = Time::from_hms(small(9)?, small(11)?, small(13)?).ok()?;
    Some(AmzDate {
        text: bytes,
        time: PrimitiveDateTime::new(date, time).assume_utc().into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_one_spelling() {
        let signed_at = AmzDate::parse("20150830T123600Z").unwrap();
        assert_eq!(signed_at.day(), "20150830");
        assert_eq!(signed_at.next_day().unwrap().as_str(), "20150831T123600Z");
        assert_eq!(
            AmzDate::at(signed_at.time() + Duration::from_millis(999)).unwrap(),
            signed_at
        );
        for other in [
            "",
            "20150830T123600",
            "20150830t123600Z",
            "20150830T123600z",
            "2015-08-30T12:36:00Z",
            "20150230T123600Z",
            "20151330T123600Z",
            "20150830T243600Z",
            "20150830T126000Z",
            "20150830T123660Z",
            "+0150830T123600Z",
            " 0150830T123600Z",
            "20150830T123600ZZ",
        ] {
            assert_eq!(
                AmzDate::parse(other),
                Err(Fault::Malformed("X-Amz-Date")),
                "{other}"
            );
        }
    }
}
