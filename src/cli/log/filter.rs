//! Which records are shown.

use clap::Args;
use time::format_description::well_known::Rfc3339;
use time::{OffsetDateTime, UtcDateTime};

use crate::audit::{Injection, Record};
use crate::config;

/// Chooses records. What is not named chooses all.
#[derive(Args, Clone, Default)]
pub(crate) struct Filter {
    /// Only of this session
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Only of this user: `uid:1000`, `alice@example.com`
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Only to this host, and to hosts below it
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Only where this credential was lent, passed on as a phantom, or refused
    #[arg(long, value_name = "CREDENTIAL")]
    secret: Option<String>,
    /// Only since then: `30m`, `8h`, `7d`, or a day or a time in UTC, as the records have it
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<String>,
    /// Only what was refused or cut
    #[arg(long)]
    refused: bool,
}

impl Filter {
    /// Only the records of a session, if one is named.
    pub(crate) fn of_session(session: Option<String>) -> Self {
        Self {
            session,
            ..Self::default()
        }
    }

    /// Whether a record is chosen.
    pub(crate) fn takes(&self, record: &Record) -> bool {
        let is = |wanted: &Option<String>, own: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| own == Some(wanted))
        };
        let below = |wanted: &String| {
            let host = record.host.as_deref().unwrap_or_default();
            let rest = host.strip_suffix(&*wanted.to_ascii_lowercase());
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        let lends = |wanted: &String| credentials(record).any(|one| one == wanted);
        let since = |since: &String| record.time.as_deref() >= Some(since);
        let refused = record.reason.is_some() || record.decision.as_deref() == Some("deny");
        is(&self.session, record.session.as_deref())
            && is(&self.user, record.user.as_deref())
            && self.host.as_ref().is_none_or(below)
            && self.secret.as_ref().is_none_or(lends)
            && self.since.as_ref().is_none_or(since)
            && (refused || !self.refused)
    }
}

/// Returns the credentials that a record names.
pub(crate) fn credentials(record: &Record) -> impl Iterator<Item = &str> {
    let refused = record.unlent.iter().chain(&record.misplaced);
    let all = record.lent.iter().chain(&record.noted).chain(refused);
    all.map(|Injection { credential, .. }| credential.as_str())
}

/// Reads a time as records have it, or how long ago it was.
fn since(text: &str) -> Result<String, String> {
    if text.ends_with(char::is_alphabetic)
        && let Ok(ago) = config::duration(text)
    {
        let time = UtcDateTime::now().checked_sub(ago.try_into().unwrap_or(time::Duration::MAX));
        let time = time.ok_or("no record is as old")?;
        return OffsetDateTime::from(time)
            .format(&Rfc3339)
            .map_err(|error| error.to_string());
    }
    // A day, or the beginning of a time, stands before every time that begins so.
    let rest = "0000-01-01T00:00:00Z".get(text.len()..);
    let filled = format!("{text}{}", rest.unwrap_or_default());
    match OffsetDateTime::parse(&filled, &Rfc3339) {
        Ok(time) if time.offset().is_utc() && text.len() >= "2026-11-30".len() => {
            Ok(text.to_owned())
        }
        _ => Err("write for example `30m`, `8h`, `2026-11-30` or `2026-11-30T08:00`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_duration_a_day_or_the_beginning_of_a_time() {
        for text in ["2026-11-30", "2026-11-30T08:00", "2026-11-30T08:00:01Z"] {
            assert_eq!(since(text).as_deref(), Ok(text));
        }
        assert!(since("1h").unwrap() < since("1s").unwrap());
        for text in [
            "yesterday",
            "2026-13-01",
            "2026-11-30T08:00:00+02:00",
            "5",
            "",
        ] {
            since(text).unwrap_err();
        }
    }

    #[test]
    fn a_host_is_chosen_with_those_below_it_and_a_credential_wherever_it_was() {
        let record = |text: &str| serde_json::from_str::<Record>(text).unwrap();
        let one = record(
            r#"{"kind":"exchange","time":"2026-11-30T08:00:00.5Z","host":"api.a.test",
            "unlent":{"credential":"key","place":"header:x"}}"#,
        );
        let with = |host: &str, secret: &str, since: &str| {
            let own = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
            let (host, secret, since) = (own(host), own(secret), own(since));
            Filter {
                host,
                secret,
                since,
                ..Filter::default()
            }
            .takes(&one)
        };
        assert!(with("A.test", "", "") && with("api.a.test", "key", "2026-11-30T08"));
        assert!(!with("i.a.test", "", "") && !with("", "k", "") && !with("", "", "2026-12"));
    }
}
