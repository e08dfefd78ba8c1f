//! Operations by method and path, as the service models have them (`http` trait of Smithy).

use super::super::endpoint::is_account;
use super::super::tables::Api;
use super::{Action, ActionFault};
use crate::message::RequestHead;
use percent_encoding::percent_decode_str;

/// How well a template fits: the segment where it is least particular decides, then the query.
type Fit = (Vec<u8>, usize);

/// Reads the operation: of all templates that match, the most particular one.
///
/// # Errors
/// [`ActionFault::Ambiguous`] if two operations match equally well in one API.
pub(super) fn read(apis: &[Api], head: &RequestHead) -> Result<Action, ActionFault> {
    let ids: Vec<&'static str> = apis.iter().map(|api| api.id).collect();
    let path = Path::of(head);
    let mut best: Option<(Fit, Api, &'static str, &'static str)> = None;
    let mut twice = false;
    for api in apis {
        for (operation, rest) in api.operations() {
            let Some((method, template)) = rest.split_once(' ') else {
                continue;
            };
            if method != head.method.as_str() {
                continue;
            }
            let Some(fit) = path.fit(template) else { continue };
            let order = best.as_ref().map(|(known, ..)| fit.cmp(known));
            match order {
                Some(std::cmp::Ordering::Less) => {}
                // The first API is the one that is named as it signs; another with the same path is its twin.
                Some(std::cmp::Ordering::Equal) => twice |= best.as_ref().is_some_and(|b| b.1.id == api.id),
                _ => {
                    twice = false;
                    best = Some((fit, *api, operation, template));
                }
            }
        }
    }
    let Some((_, api, operation, template)) = best else {
        return Ok(Action::unknown(&ids));
    };
    if twice {
        return Err(ActionFault::Ambiguous);
    }
    Ok(Action {
        accounts: path.accounts(template),
        ..Action::known(api.id, operation)
    })
}

struct Path<'a> {
    segments: Vec<&'a str>,
    query: Vec<(String, String)>,
}

impl<'a> Path<'a> {
    fn of(head: &'a RequestHead) -> Path<'a> {
        Path {
            segments: trimmed(head.target.path()),
            query: head
                .target
                .query_pairs()
                .map(|(n, v)| (n.into_owned(), v.into_owned()))
                .collect(),
        }
    }

    fn fit(&self, template: &str) -> Option<Fit> {
        let (path, query) = template.split_once('?').unwrap_or((template, ""));
        let wanted = query.split('&').filter(|pair| !pair.is_empty());
        let mut literals = 0;
        for pair in wanted {
            let (name, value) = match pair.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (pair, None),
            };
            let fits = |(n, v): &(String, String)| n == name && value.is_none_or(|value| v == value);
            if !self.query.iter().any(fits) {
                return None;
            }
            literals += 1;
        }
        let mut ranks = Vec::new();
        fit_segments(&trimmed(path), &self.segments, &mut ranks)?;
        Some((ranks, literals))
    }

    /// The segments that the template marks as an account, decoded.
    fn accounts(&self, template: &str) -> Vec<String> {
        let path = template.split('?').next().unwrap_or(template);
        let labels = trimmed(path);
        let marked = labels
            .iter()
            .zip(&self.segments)
            .filter(|(label, _)| **label == "{@}");
        marked
            .map(|(_, segment)| percent_decode_str(segment).decode_utf8_lossy().into_owned())
            .filter(|account| is_account(account))
            .collect()
    }
}

/// The segments of a path without the slash at its end, which servers take or leave.
fn trimmed(path: &str) -> Vec<&str> {
    let inner = path.strip_prefix('/').unwrap_or(path);
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    inner.split('/').collect()
}

/// Writes the rank of each segment of the template: a literal before a label before one that takes several.
fn fit_segments(template: &[&str], path: &[&str], ranks: &mut Vec<u8>) -> Option<()> {
    let Some((label, labels)) = template.split_first() else {
        return path.is_empty().then_some(());
    };
    if *label == "{+}" {
        // What follows a greedy label is literal in every model, so it is matched from the right.
        let taken = path.len().checked_sub(labels.len()).filter(|taken| *taken > 0)?;
        ranks.push(0);
        return fit_segments(labels, &path[taken..], ranks);
    }
    let (segment, segments) = path.split_first()?;
    let rank = match *label {
        "{}" | "{@}" => u8::from(!segment.is_empty()),
        literal if same(literal, segment) => 2,
        _ => return None,
    };
    if rank == 0 {
        return None;
    }
    ranks.push(rank);
    fit_segments(labels, segments, ranks)
}

/// A literal, or its escaped spelling: what a server decodes is what is compared.
fn same(literal: &str, segment: &str) -> bool {
    literal == segment
        || (segment.contains('%')
            && percent_decode_str(segment)
                .decode_utf8()
                .is_ok_and(|s| s == literal))
}
