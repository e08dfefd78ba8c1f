//! Members that are looked for by name, and the values that were found.

/// Why content cannot be read as the form that it says to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FormFault {
    /// It has a content coding.
    #[error("it has a content coding")]
    Coded,
    /// Its characters are neither UTF-8 nor ASCII.
    #[error("it has another charset than UTF-8")]
    Charset,
    /// It is no JSON.
    #[error("it is no JSON")]
    Json,
    /// A part's name is written in more than one piece, or in a charset of its own.
    #[error("the name of a part is written so that readers disagree about it")]
    Name,
}

/// What is looked for, and what was found of it.
pub(super) struct MemberSearch<'a> {
    pub(super) is_asked: &'a dyn Fn(&str) -> bool,
    pub(super) values: Vec<Option<String>>,
}

impl MemberSearch<'_> {
    /// A value of what is looked for. What stands there more often than anybody writes it is no
    /// text.
    pub(super) fn value(&mut self, value: Option<String>) {
        match self.values.len() {
            0..MOST_VALUES => self.values.push(value),
            MOST_VALUES => self.values.push(None),
            _ => {}
        }
    }

    /// A name of a part, whose value is not read.
    pub(super) fn part(&mut self, name: &str) {
        if (self.is_asked)(name) {
            self.value(None);
        }
    }
}

/// More values of what is looked for are not kept.
pub(super) const MOST_VALUES: usize = 64;
