//! Verdicts given lately, by exactly what they hang on, so that a request like the last one costs
//! no evaluation.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::header::CONTENT_TYPE;

use super::attribute::{Attribute, Attributes};
use super::facts::{Facts, Loan};
use super::verdict::Verdict;
use crate::message::Scheme;

/// A few verdicts of one slice.
///
/// Sound because Cedar's answer is a function of the policies, the entities and the context: the
/// first two are the slice's own and never change, and the third is made from nothing but what
/// stands in the key. The property in `generation_tests.rs` judges each request twice and holds
/// both against Cedar with the whole set.
#[derive(Debug, Default)]
pub(super) struct Memo(ArcSwap<Kept>);

/// Replaced whole, so that a look takes no lock: there are many more looks than changes.
#[derive(Debug, Default, Clone)]
struct Kept {
    verdicts: Vec<(Arc<[u8]>, Verdict)>,
    /// Which one goes next.
    oldest: usize,
}

impl Memo {
    /// The verdict for a key, if it was given lately.
    pub fn find(&self, key: &[u8]) -> Option<Verdict> {
        let kept = self.0.load();
        let mut verdicts = kept.verdicts.iter();
        verdicts
            .find(|(known, _)| **known == *key)
            .map(|(_, verdict)| verdict.clone())
    }

    /// Keeps a verdict in the place of the oldest one.
    pub fn keep(&self, key: &[u8], verdict: Verdict) {
        self.0.rcu(|kept| {
            let mut kept = Kept::clone(kept);
            let one = (Arc::from(key), verdict.clone());
            if kept.verdicts.len() < MOST {
                kept.verdicts.push(one);
            } else {
                let oldest = kept.oldest;
                kept.verdicts[oldest] = one;
                kept.oldest = (oldest + 1) % MOST;
            }
            kept
        });
    }
}

/// Writes everything that the context's attributes in `reads` are made from, and that is not the
/// slice's own; `false` where that would not be met again, or is too long to keep.
pub(super) fn key(
    reads: Attributes,
    facts: &Facts<'_>,
    loan: Option<Loan<'_>>,
    out: &mut Vec<u8>,
) -> bool {
    out.clear();
    for attribute in reads.iter() {
        match attribute {
            // The question's, and so the slice's (`Question`).
            Attribute::Session
            | Attribute::Groups
            | Attribute::Host
            | Attribute::Credential
            | Attribute::Origin => {}
            Attribute::Now | Attribute::Fields | Attribute::FieldsOnce | Attribute::FieldNames => {
                return false;
            }
            Attribute::Labels => each(out, facts.labels.iter().map(|label| label.as_bytes())),
            Attribute::Entry => one(out, facts.entry.as_bytes()),
            Attribute::Scheme | Attribute::Secure => {
                out.push(u8::from(facts.scheme == Scheme::Https))
            }
            Attribute::Port => out.extend_from_slice(&facts.port.to_le_bytes()),
            Attribute::Method => one(out, facts.method.as_bytes()),
            Attribute::Path | Attribute::Prefixes | Attribute::Segments | Attribute::Depth => {
                one(out, facts.target.path().as_bytes());
            }
            Attribute::Query | Attribute::QueryOnce | Attribute::QueryNames => {
                one(out, facts.target.query().unwrap_or_default().as_bytes());
            }
            Attribute::ContentType => {
                each(
                    out,
                    facts
                        .fields
                        .get_all(CONTENT_TYPE)
                        .iter()
                        .map(|value| value.as_bytes()),
                );
            }
            Attribute::ContentLength => {
                out.push(u8::from(facts.content_length.is_some()));
                out.extend_from_slice(&facts.content_length.unwrap_or_default().to_le_bytes());
            }
            Attribute::Upgrade => one(out, facts.upgrade.as_bytes()),
            Attribute::Credentials => each(
                out,
                facts
                    .credentials
                    .iter()
                    .map(|name| name.as_str().as_bytes()),
            ),
            Attribute::Actions => each(out, facts.actions.iter().map(|action| action.as_bytes())),
            Attribute::Place => match loan {
                Some(loan) => one(out, loan.place.as_bytes()),
                None => return false,
            },
        }
        if out.len() > LONGEST {
            return false;
        }
    }
    true
}

/// A text behind its length, so that no two sequences of texts are written alike.
fn one(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&text.len().to_le_bytes());
    out.extend_from_slice(text);
}

fn each<'a>(out: &mut Vec<u8>, texts: impl Iterator<Item = &'a [u8]>) {
    let at = out.len();
    out.extend_from_slice(&0_u64.to_le_bytes());
    let mut count = 0_u64;
    for text in texts {
        one(out, text);
        count += 1;
    }
    out[at..at + 8].copy_from_slice(&count.to_le_bytes());
}

/// Verdicts that one slice keeps. With [`LONGEST`] and the bound on slices, all of them take less
/// than 6 MiB.
const MOST: usize = 8;
const LONGEST: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::generation::tests::{BEARER, Owned, policies};

    fn allowed(condition: &str, requests: &[Owned]) -> Vec<bool> {
        let text = format!("permit(principal, action, resource) when {{ {condition} }};");
        let generation = policies(&text).current();
        requests
            .iter()
            .map(|request| generation.ask(&request.facts()).allowed())
            .collect()
    }

    #[test]
    fn a_remembered_verdict_is_not_given_to_another_request() {
        let first = Owned::default();
        let elsewhere = Owned {
            port: 8443,
            ..Owned::default()
        };
        for _ in 0..3 {
            assert_eq!(
                allowed(
                    "context.port == 443",
                    &[first.clone(), elsewhere.clone(), first.clone()]
                ),
                [true, false, true]
            );
        }
    }

    #[test]
    fn where_one_text_ends_and_the_next_begins_is_in_the_key() {
        let facts = |method: &str, upgrade: &str| Owned {
            method: method.into(),
            upgrade: upgrade.into(),
            ..Owned::default()
        };
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let mut reads = Attributes::NONE;
        reads.add(Attribute::Method);
        reads.add(Attribute::Upgrade);
        assert!(key(reads, &facts("AB", "C").facts(), None, &mut left));
        assert!(key(reads, &facts("A", "BC").facts(), None, &mut right));
        assert_ne!(left, right);
    }

    #[test]
    fn what_hangs_on_the_clock_is_never_remembered() {
        let mut reads = Attributes::NONE;
        reads.add(Attribute::Now);
        assert!(!key(
            reads,
            &Owned::default().facts(),
            None,
            &mut Vec::new()
        ));
    }

    #[test]
    fn the_oldest_verdict_goes_first() {
        let generation = policies("permit(principal, action, resource);").current();
        let verdict = generation.ask(&Owned::default().facts());
        let memo = Memo::default();
        for nth in 0..=MOST {
            memo.keep(&[u8::try_from(nth).unwrap()], verdict.clone());
        }
        assert_eq!(memo.find(&[0]), None);
        assert_eq!(memo.find(&[1]), Some(verdict));
    }

    #[test]
    fn a_loan_is_remembered_by_its_place() {
        let generation = policies(
            r#"permit(principal, action == Gateway::Action::"lend", resource) when { context.place == "header:authorization:Bearer" };"#,
        )
        .current();
        let (request, github) = (
            Owned::default(),
            crate::names::CredentialName::new("github").unwrap(),
        );
        for _ in 0..2 {
            assert!(generation.lend(&request.facts(), &github, BEARER).allowed());
            assert!(
                !generation
                    .lend(&request.facts(), &github, "basic:user")
                    .allowed()
            );
        }
    }
}
