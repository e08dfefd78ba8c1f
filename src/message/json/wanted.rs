//! What is kept of a document.

use crate::folded;

/// What is wanted of a value. Without anything, the value itself alone.
///
/// Names are compared folded, so that all spellings of a wanted name are kept: whoever asks for
/// one sees the others too.
#[derive(Default)]
pub struct Wanted<'a> {
    below: Vec<Below<'a>>,
    /// Whether each element of a list is wanted as the list is.
    is_list_open: bool,
    /// Whether every name is kept.
    has_names: bool,
    /// Whether the first elements of a list are kept.
    has_texts: bool,
    is_whole: bool,
    is_asked: Option<&'a dyn Fn(&str) -> bool>,
    /// What is wanted of the elements of a list, of which those are kept that have some of it.
    elements: Option<Box<Self>>,
    watch: Option<Watch>,
}

struct Below<'a> {
    /// The name, folded, and the index in a list that it tells.
    name: String,
    nth: Option<usize>,
    wanted: Wanted<'a>,
}

/// Names that matter wherever they stand below some other names.
#[derive(Clone, Copy)]
pub struct Watch {
    /// The names below which it is watched.
    pub below: &'static [&'static str],
    /// The names that are watched for.
    pub names: &'static [&'static str],
}

impl<'a> Wanted<'a> {
    /// Everything, down to the innermost values.
    pub fn whole() -> Self {
        Self {
            is_whole: true,
            ..Self::default()
        }
    }

    /// What is wanted of a member, or of the element with this index.
    pub fn member_of<'s>(&'s mut self, name: &str) -> &'s mut Self {
        let name = folded(name);
        let known = self.below.iter().position(|one| one.name == name);
        let at = known.unwrap_or_else(|| {
            let nth = name.parse().ok();
            let nth = nth.filter(|nth: &usize| nth.to_string() == name);
            let wanted = Self::default();
            self.below.push(Below { name, nth, wanted });
            self.below.len() - 1
        });
        &mut self.below[at].wanted
    }

    /// What these names and indices lead to.
    pub fn at<'s>(&'s mut self, names: impl IntoIterator<Item = &'s String>) -> &'s mut Self {
        let names = names.into_iter();
        names.fold(self, |wanted, name| wanted.member_of(name))
    }

    /// Also wants each element of a list as the list itself is wanted.
    pub fn each(&mut self) -> &mut Self {
        self.is_list_open = true;
        self
    }

    /// Also wants all names of an object.
    pub fn names(&mut self) -> &mut Self {
        self.has_names = true;
        self
    }

    /// Also wants the first elements of a list: at most one more than [`MOST_TEXTS`].
    pub fn texts(&mut self) -> &mut Self {
        self.has_texts = true;
        self
    }

    /// Also wants the members that this asks for, of an object or of the objects in a list.
    pub fn asked(&mut self, is_asked: &'a dyn Fn(&str) -> bool) {
        self.is_asked = Some(is_asked);
        self.elements = Some(Box::new(Self {
            is_asked: Some(is_asked),
            ..Self::default()
        }));
    }

    /// Also watches for names, anywhere in the document.
    pub fn watching(&mut self, watch: Watch) {
        self.watch = Some(watch);
    }

    pub(super) fn watch(&self) -> Option<&Watch> {
        self.watch.as_ref()
    }

    /// Adds what is wanted of a member. Returns whether its name is kept.
    pub(super) fn member<'s>(&'s self, name: &str, below: &mut Vec<&'s Self>) -> bool {
        if !self.below.is_empty() {
            let spelt = folded(name);
            let named = self.below.iter().filter(|one| one.name == spelt);
            below.extend(named.map(|one| &one.wanted));
        }
        below.extend(self.is_whole.then_some(self));
        self.has_names || self.is_asked.is_some_and(|is_asked| is_asked(name))
    }

    /// Adds what is wanted of an element. Returns whether it is kept.
    pub(super) fn element<'s>(&'s self, nth: usize, below: &mut Vec<&'s Self>) -> bool {
        let named = self.below.iter().filter(|one| one.nth == Some(nth));
        below.extend(named.map(|one| &one.wanted));
        let all = self.is_list_open || self.is_whole;
        below.extend(all.then_some(self));
        let is_kept = !below.is_empty() || self.has_texts && nth <= MOST_TEXTS;
        below.extend(self.elements.as_deref());
        is_kept
    }
}

/// The most strings that are read from one list.
pub const MOST_TEXTS: usize = 1_024;
