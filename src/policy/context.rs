//! Builds the Cedar context of a request, with only the facts that policies read.

use std::collections::BTreeSet;

use cedar_policy::{Context, RestrictedExpression as Value};

use super::fact::{Fact, FactReader};
use super::fault::FactFault;

/// The facts that policies read.
pub(super) type FactSet = BTreeSet<Fact>;

/// Builds the context with these facts. Other facts are never computed. A fact that the content
/// does not have is left out, so that a policy that reads it fails.
///
/// # Errors
/// [`FactFault`] by cause.
pub(super) fn context(reads: &FactSet, reader: &FactReader<'_>) -> Result<Context, FactFault> {
    let mut pairs: Vec<(String, Value)> = Vec::with_capacity(reads.len());
    let mut record: Vec<(String, Value)> = Vec::new();
    let mut facts = reads.iter().peekable();
    while let Some(fact) = facts.next() {
        let name = fact.row().name;
        let value = match fact.value(reader) {
            Err(FactFault::LeftOut) => None,
            value => Some(value?),
        };
        let Some((outer, inner)) = name.split_once('.') else {
            pairs.extend(value.map(|value| (name.to_owned(), value)));
            continue;
        };
        record.extend(value.map(|value| (inner.to_owned(), value)));
        // The facts of one record are adjacent in the table.
        let goes_on = |next: &&Fact| {
            next.row()
                .name
                .split_once('.')
                .is_some_and(|n| n.0 == outer)
        };
        if facts.peek().is_none_or(|next| !goes_on(next)) {
            let whole = Value::new_record(std::mem::take(&mut record));
            pairs.push((outer.to_owned(), whole.map_err(|_| FactFault::Context)?));
        }
    }
    Context::from_pairs(pairs).map_err(|_| FactFault::Context)
}
