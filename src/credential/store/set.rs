//! Credentials of several parts that one program prints together, so that no part is ever used with
//! another run's.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::Instant;
use zeroize::{Zeroize as _, Zeroizing};

use super::{Lifetime, StoreError};
use crate::session::{CommandLine, Member};

/// What programs printed last, by the program.
#[derive(Default)]
pub(super) struct Sets {
    flights: Mutex<HashMap<CommandLine, Flight>>,
    runs: AtomicU64,
}

/// Whoever runs the program holds it, so that its parts are asked for once.
type Flight = Arc<tokio::sync::Mutex<Option<Set>>>;

struct Set {
    answer: Answer,
    printed: Instant,
    lifetime: Lifetime,
    run: u64,
}

/// One part of a set.
pub(super) struct Part {
    pub(super) value: Zeroizing<Vec<u8>>,
    pub(super) lifetime: Lifetime,
    /// Which run of a program it is of.
    pub(super) run: u64,
}

/// The document that the SDKs of AWS take from a `credential_process`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    version: u32,
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<String>,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.secret_access_key.zeroize();
        self.session_token.zeroize();
    }
}

impl Sets {
    /// One part of what a program prints, which `run` runs where what it printed last is no longer
    /// fresh.
    pub(super) async fn part(
        &self,
        line: &CommandLine,
        member: Member,
        usual: Duration,
        run: impl Future<Output = Result<Zeroizing<Vec<u8>>, StoreError>>,
    ) -> Result<Part, StoreError> {
        let flight = {
            let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
            flights.entry(line.whole()).or_default().clone()
        };
        let mut held = flight.lock().await;
        let fresh = |set: &Set| set.printed.elapsed() < set.lifetime.refresh_after;
        if !held.as_ref().is_some_and(fresh) {
            let printed = Instant::now();
            let (answer, lifetime) = read(&run.await?, line.ttl.unwrap_or(usual))?;
            *held = Some(Set {
                answer,
                printed,
                lifetime,
                run: self.runs.fetch_add(1, Ordering::Relaxed),
            });
        }
        let set = held.as_ref().ok_or(StoreError::Absent)?;
        let age = set.printed.elapsed();
        let text = match member {
            Member::AccessKey => Some(&set.answer.access_key_id),
            Member::SecretKey => Some(&set.answer.secret_access_key),
            Member::SessionToken => set.answer.session_token.as_ref(),
        };
        Ok(Part {
            value: Zeroizing::new(text.ok_or(StoreError::Absent)?.as_bytes().to_vec()),
            lifetime: Lifetime {
                refresh_after: set.lifetime.refresh_after.saturating_sub(age),
                expires_after: set.lifetime.expires_after.saturating_sub(age),
            },
            run: set.run,
        })
    }
}

fn read(printed: &[u8], usual: Duration) -> Result<(Answer, Lifetime), StoreError> {
    let answer: Answer = serde_json::from_slice(printed).map_err(|_| StoreError::Set)?;
    if answer.version != 1 {
        return Err(StoreError::Set);
    }
    let left = match &answer.expiration {
        None => usual,
        Some(text) => {
            let end = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| StoreError::Set)?;
            let left = Duration::try_from(end - OffsetDateTime::now_utc()).unwrap_or_default();
            if left.is_zero() {
                return Err(StoreError::Set);
            }
            // Asked again at least as often as without an end: the program may have something
            // newer.
            left.min(MOST)
        }
    };
    Ok((answer, Lifetime::of(left)))
}

/// No set is kept for longer.
const MOST: Duration = Duration::from_secs(12 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> CommandLine {
        CommandLine {
            program: "/bin/true".into(),
            arguments: vec![],
            ttl: None,
            member: None,
        }
    }

    fn document(run: u32, more: &str) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        let text = format!(
            "{{\"Version\":1,\"AccessKeyId\":\"AKIA{run}\",\"SecretAccessKey\":\"CANARY{run}\"{more}}}"
        );
        Ok(Zeroizing::new(text.into_bytes()))
    }

    #[tokio::test]
    async fn parts_that_are_asked_for_together_are_of_one_run() {
        let sets = Sets::default();
        let usual = Duration::from_secs(300);
        let one = sets
            .part(&line(), Member::AccessKey, usual, async { document(1, "") })
            .await;
        let two = sets
            .part(&line(), Member::SecretKey, usual, async { document(2, "") })
            .await;
        let (one, two) = (one.ok().unwrap(), two.ok().unwrap());
        assert_eq!(
            (&one.value[..], &two.value[..]),
            (&b"AKIA1"[..], &b"CANARY1"[..])
        );
        assert_eq!(one.run, two.run);
        let token = sets
            .part(&line(), Member::SessionToken, usual, async {
                document(3, "")
            })
            .await;
        assert_eq!(token.err(), Some(StoreError::Absent));
    }

    #[tokio::test]
    async fn a_set_is_renewed_before_it_ends_and_malformed_ones_are_refused() {
        let sets = Sets::default();
        let short = Duration::from_millis(20);
        let first = sets
            .part(&line(), Member::AccessKey, short, async { document(1, "") })
            .await
            .ok()
            .unwrap();
        tokio::time::sleep(short).await;
        let second = sets
            .part(&line(), Member::AccessKey, short, async { document(2, "") })
            .await
            .ok()
            .unwrap();
        assert_ne!(first.run, second.run);
        for more in [
            ",\"Expiration\":\"2001-01-01T00:00:00Z\"",
            ",\"Expiration\":\"soon\"",
            ",\"Version\":2",
        ] {
            let sets = Sets::default();
            let refused = sets
                .part(&line(), Member::AccessKey, short, async {
                    document(1, more)
                })
                .await;
            let refused = refused.err().unwrap();
            assert_eq!(refused, StoreError::Set, "{more}");
            assert!(!format!("{refused} {refused:?}").contains("CANARY"));
        }
        let lasting = Sets::default();
        let more = ",\"SessionToken\":\"t\",\"Expiration\":\"2999-01-01T00:00:00Z\"";
        let token = lasting
            .part(&line(), Member::SessionToken, short, async {
                document(1, more)
            })
            .await;
        assert_eq!(
            token
                .ok()
                .unwrap()
                .lifetime
                .expires_after
                .as_secs()
                .div_ceil(3600),
            12
        );
    }
}
