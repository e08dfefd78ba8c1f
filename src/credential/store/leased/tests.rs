//! Whichever callers come, attempts fail and clocks jump: one task asks at a time, and no value is
//! used past its end.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// The age of the held value when callers come.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Age {
    Fresh,
    Due,
    Over,
}

/// A round in which several callers come at once.
#[derive(Debug, Clone, Copy)]
struct Round {
    callers: usize,
    age: Age,
    succeeds: bool,
    /// Whether the previous failure was long ago.
    is_late: bool,
}

fn round() -> impl Strategy<Value = Round> {
    let age = prop_oneof![Just(Age::Fresh), Just(Age::Due), Just(Age::Over)];
    let all = (1..40usize, age, any::<bool>(), any::<bool>());
    all.prop_map(|(callers, age, succeeds, is_late)| Round {
        callers,
        age,
        succeeds,
        is_late,
    })
}

fn lease(age: Age) -> Lease {
    match age {
        Age::Fresh => Lease::of(HOUR),
        Age::Due => Lease {
            refresh_after: Duration::ZERO,
            ..Lease::of(HOUR)
        },
        Age::Over => Lease::of(Duration::ZERO),
    }
}

/// A lease, its number, and the requests to its store.
#[derive(Default)]
struct Stage {
    leased: Arc<Leased<usize>>,
    asked: AtomicUsize,
    under_way: AtomicUsize,
}

impl Stage {
    async fn call(&self, succeeds: bool) -> Result<usize, StoreError> {
        let next = |_| async {
            assert_eq!(self.under_way.fetch_add(1, Ordering::SeqCst), 0, "two ask");
            let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            self.under_way.fetch_sub(1, Ordering::SeqCst);
            if succeeds {
                Ok(Held::new(number, Some(Lease::of(HOUR)), Moment::now()))
            } else {
                Err(Failure {
                    retry_at: Some(Moment::now().after(HOUR)),
                    ..StoreError::Sealed.into()
                })
            }
        };
        self.leased.get(next).await.map(|held| **held)
    }

    /// Plays a round. `failed` says whether the last attempt failed.
    async fn play(self: &Arc<Self>, round: Round, failed: &mut bool) {
        let before = self.asked.load(Ordering::SeqCst);
        let held = Held::new(before, Some(lease(round.age)), Moment::now());
        self.leased.held.store(Some(Arc::new(held)));
        if round.is_late && *failed {
            let mut flight = self.leased.flight.lock().await;
            flight.failed.as_mut().unwrap().retry_at = Some(Moment::now());
            *failed = false;
        }
        let is_asked = round.age != Age::Fresh && !*failed;
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..round.callers {
            let stage = self.clone();
            calls.spawn(async move { stage.call(round.succeeds).await });
        }
        let had = calls.join_all().await;
        let asked = self.asked.load(Ordering::SeqCst) - before;
        assert_eq!(asked, usize::from(is_asked), "{round:?}");
        let new = is_asked && round.succeeds;
        for had in had {
            match round.age {
                Age::Fresh => assert_eq!(had, Ok(before)),
                Age::Due => assert!(had == Ok(before) || new && had == Ok(before + 1)),
                Age::Over if new => assert_eq!(had, Ok(before + 1)),
                Age::Over => assert_eq!(had, Err(StoreError::Sealed)),
            }
        }
        let holds = self.leased.held().map(|held| **held);
        assert_eq!(holds, Some(before + usize::from(new)));
        *failed = if is_asked { !round.succeeds } else { *failed };
    }
}

proptest! {
    #[test]
    fn of_many_callers_one_asks_and_a_failure_is_kept_until_it_is_late(rounds in vec(round(), 1..12)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (stage, mut failed) = (Arc::<Stage>::default(), false);
            for round in rounds {
                stage.play(round, &mut failed).await;
            }
        });
    }

    /// The wall clock jumps both ways, and the other clock stands still while the machine sleeps.
    #[test]
    fn nothing_is_used_past_its_end_by_either_clock(
        limits in (0..100u64, 0..100u64, 0..100u64),
        steps in vec((0..30u64, -200..200i64), 1..20),
    ) {
        let mut limits = [limits.0, limits.1, limits.2];
        limits.sort_unstable();
        let [refresh, stale, ends] = limits.map(Duration::from_secs);
        let lease = Lease { refresh_after: refresh, stale_after: stale, expires_after: ends, id: None };
        let since = Moment::now();
        let held = Held::new((), Some(lease), since);
        let (mut up, mut set) = (0, 0i64);
        for (slept, jump) in steps {
            (up, set) = (up + slept, set + slept as i64 + jump);
            let wall = match u64::try_from(set) {
                Ok(later) => since.wall + Duration::from_secs(later),
                Err(_) => since.wall - Duration::from_secs(set.unsigned_abs()),
            };
            let now = Moment { uptime: since.uptime + Duration::from_secs(up), wall };
            let passed = set.max(up as i64);
            let is_before = |limit: Duration| passed < limit.as_secs() as i64;
            prop_assert_eq!(held.serves(now), is_before(ends));
            prop_assert_eq!(held.is_fresh(now), is_before(stale));
            prop_assert_eq!(held.is_due(now), !is_before(refresh));
        }
    }
}

#[tokio::test]
async fn whoever_goes_away_leaves_the_turn_to_the_next_and_the_end_is_for_all() {
    let stage = Stage::default();
    let next = |_| std::future::pending::<Result<Held<usize>, Failure>>();
    let gone = tokio::time::timeout(Duration::from_millis(5), stage.leased.get(next)).await;
    assert!(gone.is_err());
    assert_eq!(stage.call(true).await, Ok(1));
    assert_eq!(stage.leased.end().await.map(|held| **held), Some(1));
    assert_eq!(stage.call(true).await, Err(StoreError::Ended));
    assert_eq!(stage.asked.load(Ordering::SeqCst), 1);
}

#[test]
fn a_lease_that_outlasts_the_clocks_does_not_end() {
    let held = Held::new((), Some(Lease::of(Duration::MAX)), Moment::now());
    assert!(held.serves(Moment::now()) && held.ends().is_some());
}
