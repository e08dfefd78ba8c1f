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
    /// A credential stands in it, and readers could disagree about where.
    #[error("readers may disagree about a credential in it")]
    Disputed,
    /// A member that may stand in it once stands in it twice, or is not text.
    #[error("a member that may stand in it once stands in it twice, or is not text")]
    Twice,
}

/// A member that was found.
pub struct Member {
    /// Its name, in the reading that was asked for.
    pub name: String,
    /// Its value; `None` if that is not text, or is not read.
    pub value: Option<String>,
}

/// What to search for, and the values found.
pub(super) struct MemberSearch<'a> {
    pub(super) is_asked: &'a dyn Fn(&str) -> bool,
    pub(super) members: Vec<Member>,
}

impl MemberSearch<'_> {
    /// Adds a part, whose value is not read, if one of the readings of its name is asked for.
    pub(super) fn part(&mut self, readings: &[&str]) {
        let mut readings = readings.iter();
        if let Some(name) = readings.find(|name| (self.is_asked)(name))
            && self.members.len() < MOST_PARTS
        {
            self.members.push(Member {
                name: (*name).to_owned(),
                value: None,
            });
        }
    }
}

/// The most parts that are kept, which no honest client reaches.
const MOST_PARTS: usize = 64;
