//! Operations by method and path, as in the service models (`http` trait of Smithy).

use std::borrow::Cow;
use std::cmp::Ordering;

use http::Method;
use percent_encoding::percent_decode_str;

use super::super::tables::{Api, OperationRoute, segments};
use super::operation::{Action, ActionFault};
use gateway_message::RequestHead;

/// How well a template matches: first by the least specific segment, then by the query.
type MatchRank = (Vec<u8>, usize);

/// Reads the operation: the most specific of all matching routes.
///
/// # Errors
/// [`ActionFault::Ambiguous`] if two operations match equally well in one API.
pub(super) fn read(apis: &[&'static Api], head: &RequestHead) -> Result<Action, ActionFault> {
    let ids: Vec<&'static str> = apis.iter().map(|api| api.id).collect();
    let target = SplitTarget::of(head);
    let mut best: Option<(MatchRank, Candidate)> = None;
    let mut twice = false;
    for found in apis.iter().flat_map(|api| candidates(api, &head.method)) {
        let Some(fit) = target.fit(found.route) else {
            continue;
        };
        match best.as_ref().map(|(known, _)| fit.cmp(known)) {
            Some(Ordering::Less) => {}
            // The first API is the one whose name is the signing name; another with the same path
            // is its twin.
            Some(Ordering::Equal) => {
                twice |= best
                    .as_ref()
                    .is_some_and(|(_, known)| known.api == found.api)
            }
            _ => {
                twice = false;
                best = Some((fit, found));
            }
        }
    }
    let Some((_, found)) = best else {
        return Ok(Action::unknown(&ids));
    };
    if twice {
        return Err(ActionFault::Ambiguous);
    }
    Ok(Action {
        accounts: target.accounts(found.route),
        ..Action::known(found.api, found.operation)
    })
}

/// An operation that a request may ask for.
struct Candidate {
    api: &'static str,
    operation: &'static str,
    route: &'static OperationRoute,
}

/// The operations of an API that have the request's method.
fn candidates(api: &'static Api, method: &Method) -> impl Iterator<Item = Candidate> {
    api.operations().iter().filter_map(move |operation| {
        let route = operation.route.as_ref()?;
        (route.method == method.as_str()).then_some(Candidate {
            api: api.id,
            operation: operation.name,
            route,
        })
    })
}

/// The path and the query of a request, split.
struct SplitTarget<'a> {
    segments: Vec<&'a str>,
    query: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> SplitTarget<'a> {
    fn of(head: &'a RequestHead) -> SplitTarget<'a> {
        SplitTarget {
            segments: segments(head.target.path()),
            query: head.target.query_pairs().collect(),
        }
    }

    fn fit(&self, route: &OperationRoute) -> Option<MatchRank> {
        let mut ranks = Vec::new();
        fit(&route.path, &self.segments, &mut ranks)?;
        let has = |(name, value): &(&str, Option<&str>)| {
            let fits = |(n, v): &(Cow<'_, str>, Cow<'_, str>)| {
                n == name && value.is_none_or(|value| v == value)
            };
            self.query.iter().any(fits)
        };
        route
            .query
            .iter()
            .all(has)
            .then_some((ranks, route.query.len()))
    }

    /// The segments that the route marks as an account, decoded.
    fn accounts(&self, route: &OperationRoute) -> Vec<String> {
        let segments = route.path.iter().zip(&self.segments);
        let marked = segments.filter(|(label, _)| **label == "{@}");
        marked
            .map(|(_, segment)| percent_decode_str(segment).decode_utf8_lossy().into_owned())
            .collect()
    }
}

/// Writes the rank of each segment of the route: a literal before a label before a greedy label.
fn fit(route: &[&str], path: &[&str], ranks: &mut Vec<u8>) -> Option<()> {
    let Some((label, labels)) = route.split_first() else {
        return path.is_empty().then_some(());
    };
    if *label == "{+}" {
        // In every model, only literals follow a greedy label, so match from the right.
        let taken = path
            .len()
            .checked_sub(labels.len())
            .filter(|taken| *taken > 0)?;
        ranks.push(0);
        return fit(labels, &path[taken..], ranks);
    }
    let (segment, segments) = path.split_first()?;
    ranks.push(match *label {
        "{}" | "{@}" if !segment.is_empty() => 1,
        literal if same(literal, segment) => 2,
        _ => return None,
    });
    fit(labels, segments, ranks)
}

/// Matches a literal or its escaped spelling, because servers compare decoded text.
fn same(literal: &str, segment: &str) -> bool {
    literal == segment
        || (segment.contains('%')
            && percent_decode_str(segment)
                .decode_utf8()
                .is_ok_and(|s| s == literal))
}
