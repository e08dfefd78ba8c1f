//! Reads the lists of names in `data/`: one entry a line, with empty lines and `#` comments.

/// The entries of a list.
pub fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The entries of a list of two columns, which a tab separates.
pub fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    lines(text).filter_map(|line| line.split_once('\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_entry_of_a_list_is_lost() {
        for text in [
            include_str!("data/plain_settings.txt"),
            include_str!("data/readers.txt"),
            include_str!("data/relocations.txt"),
            include_str!("data/sets.txt"),
            include_str!("data/trust_variables.txt"),
        ] {
            assert_eq!(lines(text).count(), pairs(text).count());
            assert!(pairs(text).all(|(one, other)| !one.is_empty() && !other.is_empty()));
        }
        let listed: Vec<_> = lines("# x\na b\n\n.c\n").collect();
        assert_eq!(listed, ["a b", ".c"]);
    }
}
