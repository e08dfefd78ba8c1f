//! How one text differs from another, line by line.

/// One line of a difference.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DiffLine<'t> {
    /// A line of both texts.
    Same(&'t str),
    /// A line of the first text alone.
    Removed(&'t str),
    /// A line of the second text alone.
    Added(&'t str),
}

/// Returns the lines of both texts: a longest common part is the same, all else is removed or
/// added. Of very different long texts, all lines between their ends are.
pub(super) fn diff<'t>(before: &'t str, after: &'t str) -> Vec<DiffLine<'t>> {
    // A carriage return is part of a line, so that a change of line ends is seen.
    let lines = |text: &'t str| -> Vec<&'t str> { text.split_terminator('\n').collect() };
    let (old, new) = (lines(before), lines(after));
    let pairs = old.iter().zip(&new);
    let start = pairs.take_while(|(one, other)| one == other).count();
    let pairs = old[start..].iter().rev().zip(new[start..].iter().rev());
    let end = pairs.take_while(|(one, other)| one == other).count();
    let (left, right) = (&old[start..old.len() - end], &new[start..new.len() - end]);
    let mut lines: Vec<DiffLine<'t>> = old[..start]
        .iter()
        .map(|line| DiffLine::Same(line))
        .collect();
    if left.len().saturating_mul(right.len()) <= MOST_COMPARED {
        lines.extend(between(left, right));
    } else {
        lines.extend(left.iter().map(|line| DiffLine::Removed(line)));
        lines.extend(right.iter().map(|line| DiffLine::Added(line)));
    }
    lines.extend(
        old[old.len() - end..]
            .iter()
            .map(|line| DiffLine::Same(line)),
    );
    lines
}

fn between<'t>(left: &[&'t str], right: &[&'t str]) -> Vec<DiffLine<'t>> {
    let width = right.len() + 1;
    // How many lines are common from each pair of places on.
    let mut common = vec![0_usize; (left.len() + 1) * width];
    for at in (0..left.len()).rev() {
        for to in (0..right.len()).rev() {
            common[at * width + to] = match left[at] == right[to] {
                true => common[(at + 1) * width + to + 1] + 1,
                false => common[(at + 1) * width + to].max(common[at * width + to + 1]),
            };
        }
    }
    let (mut at, mut to, mut lines) = (0, 0, Vec::new());
    while at < left.len() || to < right.len() {
        let is_same = at < left.len() && to < right.len() && left[at] == right[to];
        if is_same {
            lines.push(DiffLine::Same(left[at]));
            (at, to) = (at + 1, to + 1);
        } else if to == right.len()
            || (at < left.len() && common[(at + 1) * width + to] >= common[at * width + to + 1])
        {
            lines.push(DiffLine::Removed(left[at]));
            at += 1;
        } else {
            lines.push(DiffLine::Added(right[to]));
            to += 1;
        }
    }
    lines
}

/// How many pairs of lines are compared.
const MOST_COMPARED: usize = 4_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn added_and_removed_lines_stand_between_those_of_both() {
        let lines = diff("a\nb\nc\n", "a\nx\nc\nd\n");
        let expected = [
            DiffLine::Same("a"),
            DiffLine::Removed("b"),
            DiffLine::Added("x"),
            DiffLine::Same("c"),
            DiffLine::Added("d"),
        ];
        assert_eq!(lines, expected);
    }

    proptest! {
        #[test]
        fn both_texts_can_be_read_from_their_difference(
            before in "[ab\n]{0,20}", after in "[ab\n]{0,20}"
        ) {
            let lines = diff(&before, &after);
            let left: Vec<&str> = lines.iter().filter_map(|line| match line {
                DiffLine::Same(text) | DiffLine::Removed(text) => Some(*text),
                DiffLine::Added(_) => None,
            }).collect();
            let right: Vec<&str> = lines.iter().filter_map(|line| match line {
                DiffLine::Same(text) | DiffLine::Added(text) => Some(*text),
                DiffLine::Removed(_) => None,
            }).collect();
            prop_assert_eq!(left, before.lines().collect::<Vec<_>>());
            prop_assert_eq!(right, after.lines().collect::<Vec<_>>());
        }
    }
}
