//! Attributes of nf_tables: a rule holds all that it was written with, in any order and with more,
//! and no rule of which a part differs.
#![no_main]

use gateway_launch::netlink::{Batch, holds};
use libfuzzer_sys::arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;

/// An attribute, with data or more attributes.
#[derive(Debug, Clone)]
enum Attribute {
    Data(u8, Vec<u8>),
    Nest(u8, Vec<Attribute>),
    List(u8, Vec<Vec<Attribute>>),
}

impl<'a> Arbitrary<'a> for Attribute {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Self> {
        let kind = input.arbitrary()?;
        Ok(match input.int_in_range(0..=3)? {
            2 => Self::Nest(kind, input.arbitrary()?),
            3 => Self::List(kind, input.arbitrary()?),
            _ => Self::Data(kind, input.arbitrary()?),
        })
    }
}

fuzz_target!(|input: (Vec<u8>, Vec<u8>, Vec<Attribute>, u16)| {
    let (one, other, attributes, changed) = input;
    // No bytes of the kernel make it panic, and what is the same is the same.
    let _ = holds(&one, &other);
    assert!(holds(&one, &one) && holds(&other, &other));
    // A type is told from an element of a list, and stands once, as in what the kernel writes.
    let attributes = distinct(attributes);
    let wanted = written(&attributes, 0);
    let reversed: Vec<_> = attributes.iter().rev().cloned().collect();
    let more = [vec![Attribute::Data(255, one)], reversed].concat();
    assert!(attributes.is_empty() || holds(&written(&more, 0), &wanted));
    for at in 0..attributes.len() {
        let mut fewer = attributes.clone();
        fewer.remove(at);
        assert!(!holds(&written(&fewer, 0), &wanted), "without {at}");
    }
    let mut count = 0;
    attributes
        .iter()
        .for_each(|one| count_data(one, &mut count));
    if count > 0 {
        let found = written(&attributes, 1 + usize::from(changed) % count);
        assert!(!holds(&found, &wanted));
    }
});

fn distinct(attributes: Vec<Attribute>) -> Vec<Attribute> {
    let mut seen = [false; 255];
    let mut kept = Vec::new();
    for attribute in attributes {
        let (Attribute::Data(kind, _) | Attribute::Nest(kind, _) | Attribute::List(kind, _)) =
            &attribute;
        let (kind, is_new) = (*kind, |seen: &mut bool| !std::mem::replace(seen, true));
        // Type 1 in a nest is that of an element of a list.
        if kind < 2 || kind == 255 || !is_new(&mut seen[usize::from(kind)]) {
            continue;
        }
        kept.push(match attribute {
            Attribute::Data(_, data) => Attribute::Data(kind, data),
            Attribute::Nest(_, inner) => Attribute::Nest(kind, distinct(inner)),
            Attribute::List(_, all) => {
                Attribute::List(kind, all.into_iter().map(distinct).collect())
            }
        });
    }
    kept
}

fn count_data(attribute: &Attribute, count: &mut usize) {
    match attribute {
        Attribute::Data(..) => *count += 1,
        Attribute::Nest(_, inner) => inner.iter().for_each(|one| count_data(one, count)),
        Attribute::List(_, all) => {
            let inner = all.iter().flatten();
            inner.for_each(|one| count_data(one, count));
        }
    }
}

/// The attributes as bytes; the data of the one with the number `changed`, from 1, is longer.
fn written(attributes: &[Attribute], changed: usize) -> Vec<u8> {
    let (mut batch, mut left) = (Batch::default(), changed);
    attributes
        .iter()
        .for_each(|one| write(one, &mut batch, &mut left));
    batch.bytes().to_vec()
}

fn write(attribute: &Attribute, batch: &mut Batch, left: &mut usize) {
    match attribute {
        Attribute::Data(kind, data) => {
            let is_changed = *left == 1;
            *left = left.saturating_sub(1);
            let more: &[u8] = if is_changed { b"x" } else { b"" };
            batch.attribute((*kind).into(), &[data, more].concat());
        }
        Attribute::Nest(kind, inner) => batch.nest((*kind).into(), |batch| {
            inner.iter().for_each(|one| write(one, batch, left));
        }),
        Attribute::List(kind, all) => batch.nest((*kind).into(), |batch| {
            for inner in all {
                batch.nest(1, |batch| {
                    inner.iter().for_each(|one| write(one, batch, left));
                });
            }
        }),
    }
}
