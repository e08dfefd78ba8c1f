//! Times in the formats of the services: writes and parses them.

use std::time::{SystemTime, UNIX_EPOCH};

use time::{Date, Month, OffsetDateTime};

/// Milliseconds since 1970: no service needs a finer unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timestamp(pub(super) i64);

impl Timestamp {
    pub(super) fn of(now: SystemTime) -> Option<Timestamp> {
        let since = now.duration_since(UNIX_EPOCH).ok()?;
        i64::try_from(since.as_millis()).ok().map(Timestamp)
    }

    pub(super) fn system(self) -> Option<SystemTime> {
        UNIX_EPOCH.checked_add(std::time::Duration::from_millis(
            u64::try_from(self.0).ok()?,
        ))
    }

    pub(super) fn later(self, seconds: u32) -> Timestamp {
        Timestamp(self.0.saturating_add(i64::from(seconds) * 1000))
    }

    pub(super) fn earlier(self, seconds: u32) -> Timestamp {
        Timestamp(self.0.saturating_sub(i64::from(seconds) * 1000))
    }
}

/// A time format like strftime's: `%Y %m %d %H %M %S`, `%L` (three digits of milliseconds), `%a`
/// and `%b` (English names), `%s` (seconds since 1970) and `%Q` (milliseconds since 1970). All in
/// UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TimeFormat(Vec<FormatItem>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FormatItem {
    Char(char),
    Field(u8),
}

impl TimeFormat {
    /// Parses a format; `None` if it has an unknown field.
    pub(super) fn parse(text: &str) -> Option<TimeFormat> {
        let mut items = Vec::new();
        let mut chars = text.chars();
        while let Some(char) = chars.next() {
            items.push(match char {
                '%' => match chars.next()? {
                    field @ ('Y' | 'm' | 'd' | 'H' | 'M' | 'S' | 'L' | 'a' | 'b' | 's' | 'Q') => {
                        FormatItem::Field(field as u8)
                    }
                    _ => return None,
                },
                char => FormatItem::Char(char),
            });
        }
        let form = TimeFormat(items);
        (!form.0.is_empty()).then_some(form)
    }

    /// Whether a time can be read back from what was written: a day at least, or a count since
    /// 1970.
    pub(super) fn is_readable(&self) -> bool {
        let has = |field: u8| self.0.contains(&FormatItem::Field(field));
        has(b's') || has(b'Q') || (has(b'Y') && (has(b'm') || has(b'b')) && has(b'd'))
    }

    pub(super) fn write(&self, time: Timestamp) -> String {
        use std::fmt::Write as _;
        let seconds = time.0.div_euclid(1000);
        // A time comes from a system clock or from text whose date was checked, so it has a date.
        let at = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let mut out = String::new();
        for item in &self.0 {
            let written = match item {
                FormatItem::Char(char) => {
                    out.push(*char);
                    Ok(())
                }
                FormatItem::Field(b'Y') => write!(out, "{:04}", at.year()),
                FormatItem::Field(b'm') => write!(out, "{:02}", u8::from(at.month())),
                FormatItem::Field(b'd') => write!(out, "{:02}", at.day()),
                FormatItem::Field(b'H') => write!(out, "{:02}", at.hour()),
                FormatItem::Field(b'M') => write!(out, "{:02}", at.minute()),
                FormatItem::Field(b'S') => write!(out, "{:02}", at.second()),
                FormatItem::Field(b'L') => write!(out, "{:03}", time.0.rem_euclid(1000)),
                FormatItem::Field(b'a') => write!(
                    out,
                    "{}",
                    DAYS[usize::from(at.weekday().number_days_from_monday())]
                ),
                FormatItem::Field(b'b') => {
                    write!(out, "{}", MONTHS[usize::from(u8::from(at.month())) - 1])
                }
                FormatItem::Field(b's') => write!(out, "{seconds}"),
                FormatItem::Field(_) => write!(out, "{}", time.0),
            };
            written.expect("a string takes every text");
        }
        out
    }

    pub(super) fn read(&self, text: &str) -> Option<Timestamp> {
        let mut rest = text;
        let mut read = DateAndTime {
            parts: [1970, 1, 1, 0, 0, 0, 0],
            counted: None,
        };
        for item in &self.0 {
            match *item {
                FormatItem::Char(char) => rest = rest.strip_prefix(char)?,
                FormatItem::Field(field) => read.take(field, &mut rest)?,
            }
        }
        rest.is_empty().then(|| read.timestamp())?
    }
}

/// The fields of a time that were read so far.
struct DateAndTime {
    /// Year, month, day, hour, minute, second and millisecond.
    parts: [i64; 7],
    /// Milliseconds since 1970, if the format counts them.
    counted: Option<i64>,
}

impl DateAndTime {
    /// Takes a field from the start of a text.
    fn take(&mut self, field: u8, rest: &mut &str) -> Option<()> {
        let [year, month, day, hour, minute, second, milli] = &mut self.parts;
        match field {
            b'Y' => *year = number(rest, 4)?,
            b'm' => *month = number(rest, 2)?,
            b'd' => *day = number(rest, 2)?,
            b'H' => *hour = number(rest, 2)?,
            b'M' => *minute = number(rest, 2)?,
            b'S' => *second = number(rest, 2)?,
            b'L' => *milli = number(rest, 3)?,
            b'a' => drop(named(rest, &DAYS)?),
            b'b' => *month = named(rest, &MONTHS)? + 1,
            b's' => self.counted = Some(count(rest)?.checked_mul(1000)?),
            _ => self.counted = Some(count(rest)?),
        }
        Some(())
    }

    fn timestamp(&self) -> Option<Timestamp> {
        if let Some(counted) = self.counted {
            return Some(Timestamp(counted));
        }
        let [year, month, day, hour, minute, second, milli] = self.parts;
        let small = |number: i64| u8::try_from(number).ok();
        let month = Month::try_from(small(month)?).ok()?;
        let year = i32::try_from(year).ok()?;
        let date = Date::from_calendar_date(year, month, small(day)?).ok()?;
        let at = date.with_hms(small(hour)?, small(minute)?, small(second)?);
        let seconds = at.ok()?.assume_utc().unix_timestamp();
        Some(Timestamp(seconds * 1000 + milli))
    }
}

/// A number of as many digits as there are.
fn count(rest: &mut &str) -> Option<i64> {
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    // 13 digits of milliseconds reach the year 2286.
    number(rest, (1..=13).contains(&digits).then_some(digits)?)
}

fn number(rest: &mut &str, digits: usize) -> Option<i64> {
    let (number, after) = rest.split_at_checked(digits)?;
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    *rest = after;
    number.parse().ok()
}

fn named(rest: &mut &str, names: &[&str]) -> Option<i64> {
    let at = names.iter().position(|name| rest.starts_with(name))?;
    *rest = &rest[names[at].len()..];
    i64::try_from(at).ok()
}

/// RFC 9110 §5.6.7.
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_form_writes_it_reads_back() {
        let time = Timestamp(1_395_430_461_123);
        for (form, text) in [
            ("%s", "1395430461"),
            ("%Q", "1395430461123"),
            ("%Y%m%dT%H%M%SZ", "20140321T193421Z"),
            ("%Y%m%dT%H:%M:%S+0000", "20140321T19:34:21+0000"),
            ("%Y-%m-%dT%H:%M:%S.%LZ", "2014-03-21T19:34:21.123Z"),
            ("%a, %d %b %Y %H:%M:%S GMT", "Fri, 21 Mar 2014 19:34:21 GMT"),
        ] {
            let form = TimeFormat::parse(form).unwrap();
            assert_eq!(form.write(time), text);
            assert_eq!(form.read(text).unwrap().0 / 1000, time.0 / 1000);
        }
    }

    #[test]
    fn what_is_not_in_the_form_is_refused() {
        let form = TimeFormat::parse("%Y-%m-%d").unwrap();
        for text in [
            "2014-03-2",
            "2014-13-01",
            "2014-02-30",
            "2014-03-21Z",
            "+014-03-21",
            "",
        ] {
            assert!(form.read(text).is_none(), "{text}");
        }
        assert!(
            TimeFormat::parse("%s")
                .unwrap()
                .read("99999999999999")
                .is_none()
        );
        assert!(TimeFormat::parse("%x").is_none());
    }
}
