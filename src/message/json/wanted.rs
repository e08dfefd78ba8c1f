//! The selection of the values to keep of a document.

use crate::folded;

/// The parts of a value to keep. Empty, it keeps the value itself alone.
///
/// Names are compared folded, so that all spellings of a wanted name are kept, and a caller sees
/// every one.
#[derive(Default)]
pub struct JsonParts<'a> {
    below: Vec<ChildSelection<'a>>,
    /// Whether this selection also applies to each element of a list.
    is_list_open: bool,
    /// Whether every name is kept.
    has_names: bool,
    /// Whether the first elements of a list are kept.
    has_texts: bool,
    is_whole: bool,
    is_asked: Option<&'a dyn Fn(&str) -> bool>,
    /// The selection for the elements of a list. Keeps the elements in which it selects a member.
    elements: Option<Box<Self>>,
    watch: Option<DeepNames>,
}

struct ChildSelection<'a> {
    /// The folded name, and the list index that it spells, if any.
    name: String,
    nth: Option<usize>,
    wanted: JsonParts<'a>,
}

/// Names to look for at any depth below some other names.
#[derive(Clone, Copy)]
pub struct DeepNames {
    /// The names below which the others are watched for.
    pub below: &'static [&'static str],
    /// The names that are watched for.
    pub names: &'static [&'static str],
}

impl<'a> JsonParts<'a> {
    /// Keeps everything, down to the innermost values.
    pub fn whole() -> Self {
        Self {
            is_whole: true,
            ..Self::default()
        }
    }

    /// The selection for a member, or for the element with this index.
    pub fn member_of<'s>(&'s mut self, name: &str) -> &'s mut Self {
        let name = folded(name);
        let known = self.below.iter().position(|one| one.name == name);
        let at = known.unwrap_or_else(|| {
            let nth = name.parse().ok();
            let nth = nth.filter(|nth: &usize| nth.to_string() == name);
            let wanted = Self::default();
            self.below.push(ChildSelection { name, nth, wanted });
            self.below.len() - 1
        });
        &mut self.below[at].wanted
    }

    /// The selection for the value at these names and indices.
    pub fn at<'s>(&'s mut self, names: impl IntoIterator<Item = &'s String>) -> &'s mut Self {
        let names = names.into_iter();
        names.fold(self, |wanted, name| wanted.member_of(name))
    }

    /// Also applies this selection to each element of a list.
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

    /// Also wants the members that `is_asked` accepts, of an object or of the objects in a list.
    pub fn asked(&mut self, is_asked: &'a dyn Fn(&str) -> bool) {
        self.is_asked = Some(is_asked);
        self.elements = Some(Box::new(Self {
            is_asked: Some(is_asked),
            ..Self::default()
        }));
    }

    /// Also watches for names, anywhere in the document.
    pub fn watching(&mut self, watch: DeepNames) {
        self.watch = Some(watch);
    }

    pub(super) fn watch(&self) -> Option<&DeepNames> {
        self.watch.as_ref()
    }

    /// Adds the selections for a member. Returns whether its name is kept.
    pub(super) fn member<'s>(&'s self, name: &str, below: &mut Vec<&'s Self>) -> bool {
        if !self.below.is_empty() {
            let spelt = folded(name);
            let named = self.below.iter().filter(|one| one.name == spelt);
            below.extend(named.map(|one| &one.wanted));
        }
        below.extend(self.is_whole.then_some(self));
        self.has_names || self.is_asked.is_some_and(|is_asked| is_asked(name))
    }

    /// Adds the selections for an element. Returns whether it is kept.
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
