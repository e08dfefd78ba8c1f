//! The search for members by name, and the values found.

/// Why content cannot be read as the form it claims to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FormFault {
    /// It has a content coding.
    #[error("it has a content coding")]
    Coded,
    /// Its characters are neither UTF-8 nor ASCII.
    #[error("it has another charset than UTF-8")]
    Charset,
    /// It is not JSON.
    #[error("it is no JSON")]
    Json,
    /// A part's name is split into several pieces, or has a charset of its own.
    #[error("the name of a part is written so that readers disagree about it")]
    Name,
    /// A member that may stand in it once stands in it twice, or is not text.
    #[error("a member that may stand in it once stands in it twice, or is not text")]
    Twice,
}

/// What to search for, and the values found.
pub(super) struct MemberSearch<'a> {
    pub(super) is_asked: &'a dyn Fn(&str) -> bool,
    pub(super) values: Vec<Option<String>>,
}

impl MemberSearch<'_> {
    /// Adds a value. Values beyond the maximum, which no honest client reaches, count as one that
    /// is not text.
    pub(super) fn value(&mut self, value: Option<String>) {
        match self.values.len() {
            0..MOST_VALUES => self.values.push(value),
            MOST_VALUES => self.values.push(None),
            _ => {}
        }
    }

    /// Adds the name of a part, whose value is not read.
    pub(super) fn part(&mut self, name: &str) {
        if (self.is_asked)(name) {
            self.value(None);
        }
    }
}

/// The most values that are kept.
pub(super) const MOST_VALUES: usize = 64;
