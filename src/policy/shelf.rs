//! Where slices and rule sets are kept for the next request: bounded, whatever names a client makes
//! up.

use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use foldhash::fast::RandomState;
use lru::LruCache;

use super::rule::Rule;
use super::slice::{Question, RuleSet, Slice};

/// Slices and rule sets that were asked for lately: bounded, whatever names a client makes up.
#[derive(Debug)]
pub(super) struct Shelves {
    hasher: RandomState,
    /// The last slice of each group of keys, which is looked at without a lock.
    recent: Box<[ArcSwapOption<Slice>]>,
    slices: Box<[Mutex<Shelf<Slice>>]>,
    sets: Mutex<Shelf<RuleSet>>,
}

/// What was used lately, bounded in number and in the rules that it refers to.
#[derive(Debug)]
struct Shelf<T> {
    kept: LruCache<u64, Arc<T>>,
    weight: usize,
    most: usize,
}

trait Weigh {
    /// The rules that are referred to, and a little for the thing itself.
    fn weight(&self) -> usize;
}

impl Weigh for RuleSet {
    fn weight(&self) -> usize {
        self.rules.len() + 16
    }
}

impl Weigh for Slice {
    fn weight(&self) -> usize {
        self.rules.weight()
    }
}

impl Shelves {
    /// Empty ones.
    pub fn new() -> Self {
        Self {
            hasher: RandomState::default(),
            recent: (0..RECENT).map(|_| ArcSwapOption::empty()).collect(),
            slices: (0..SHELVES)
                .map(|_| Mutex::new(Shelf::new(SHELF_WEIGHT)))
                .collect(),
            sets: Mutex::new(Shelf::new(SET_WEIGHT)),
        }
    }

    /// The slice for a question, and the key to put it under where there is none.
    pub fn slice(&self, question: &Question<'_>) -> Result<Arc<Slice>, u64> {
        let key = self.hasher.hash_one(question);
        // Two questions may share a hash; only the question itself tells.
        let recent = self.recent(key).load();
        if let Some(slice) = recent.as_ref().filter(|slice| slice.is_of(question)) {
            return Ok(Arc::clone(slice));
        }
        let mut shelf = self
            .shelf(key)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match shelf.kept.get(&key) {
            Some(slice) if slice.is_of(question) => {
                self.recent(key).store(Some(Arc::clone(slice)));
                Ok(Arc::clone(slice))
            }
            _ => Err(key),
        }
    }

    /// Keeps a slice.
    pub fn keep(&self, key: u64, slice: Arc<Slice>) {
        self.shelf(key)
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .keep(key, slice);
    }

    /// The set of these rules, made if it is not there.
    pub fn rule_set(&self, numbers: Vec<u32>, all: &[Rule]) -> Arc<RuleSet> {
        let key = self.hasher.hash_one(&numbers);
        {
            let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(set) = sets.kept.get(&key).filter(|set| set.rules == numbers) {
                return Arc::clone(set);
            }
        }
        // Made outside the lock: other questions need not wait for it.
        let set = Arc::new(RuleSet::new(numbers, all));
        self.sets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .keep(key, Arc::clone(&set));
        set
    }

    fn recent(&self, key: u64) -> &ArcSwapOption<Slice> {
        let nth = usize::try_from(key >> 32).expect("32 bits are one");
        &self.recent[nth % RECENT]
    }

    fn shelf(&self, key: u64) -> &Mutex<Shelf<Slice>> {
        let nth =
            usize::try_from(key % SHELVES as u64).expect("a remainder of a small number is one");
        &self.slices[nth]
    }
}

impl<T: Weigh> Shelf<T> {
    fn new(most: usize) -> Self {
        Self {
            kept: LruCache::unbounded(),
            weight: 0,
            most,
        }
    }

    fn keep(&mut self, key: u64, one: Arc<T>) {
        self.weight += one.weight();
        if let Some(replaced) = self.kept.put(key, one) {
            self.weight -= replaced.weight();
        }
        while self.weight > self.most && self.kept.len() > 1 {
            match self.kept.pop_lru() {
                Some((_, dropped)) => self.weight -= dropped.weight(),
                None => break,
            }
        }
    }
}

const SHELVES: usize = 16;
const RECENT: usize = 64;
/// What one shelf of slices may weigh, unless it is a single slice: some 150 of the usual ones.
const SHELF_WEIGHT: usize = 2_560;
/// What all kept sets may weigh, unless it is a single one.
const SET_WEIGHT: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::schema::Action;
    use crate::policy::slice::Question;

    #[test]
    fn shelves_stay_bounded_under_made_up_names() {
        let shelves = Shelves::new();
        for nth in 0..10_000 {
            let host = format!("h{nth}.example").parse().unwrap();
            let question = Question {
                session: "s",
                groups: &[],
                action: Action::Get,
                credential: None,
                host: &host,
            };
            let key = shelves.slice(&question).unwrap_err();
            let rules = shelves.rule_set(Vec::new(), &[]);
            shelves.keep(key, Arc::new(Slice::new(&question, rules)));
            assert!(shelves.slice(&question).is_ok());
        }
        let kept: usize = shelves
            .slices
            .iter()
            .map(|shelf| shelf.lock().unwrap().kept.len())
            .sum();
        assert!(kept <= SHELVES * SHELF_WEIGHT / 16, "{kept}");
        assert_eq!(shelves.sets.lock().unwrap().kept.len(), 1);
    }

    #[test]
    fn a_shared_hash_is_not_an_answer() {
        let (ci, ops) = ([Arc::from("ci")], [Arc::from("ops")]);
        let (host, other_host) = ("a.example".parse().unwrap(), "b.example".parse().unwrap());
        let asked = Question {
            session: "s",
            groups: &ci,
            action: Action::Lend,
            credential: Some("c"),
            host: &host,
        };
        let others = [
            Question {
                session: "t",
                ..asked
            },
            Question {
                groups: &ops,
                ..asked
            },
            Question {
                groups: &[],
                ..asked
            },
            Question {
                action: Action::Get,
                ..asked
            },
            Question {
                credential: Some("d"),
                ..asked
            },
            Question {
                credential: None,
                ..asked
            },
            Question {
                host: &other_host,
                ..asked
            },
        ];
        let shelves = Shelves::new();
        let key = shelves.slice(&asked).unwrap_err();
        for other in others {
            let rules = shelves.rule_set(Vec::new(), &[]);
            shelves.keep(key, Arc::new(Slice::new(&other, rules)));
            assert_eq!(shelves.slice(&asked).unwrap_err(), key, "{other:?}");
        }
    }
}
