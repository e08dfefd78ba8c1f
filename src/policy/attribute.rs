//! The attributes of a request's context, and sets of them.

/// One attribute of the context, as `policies/gateway.cedarschema` declares it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Attribute {
    Session,
    Groups,
    Labels,
    Entry,
    Now,
    Scheme,
    Secure,
    Host,
    Port,
    Method,
    Path,
    Prefixes,
    Segments,
    Depth,
    Query,
    QueryOnce,
    QueryNames,
    Fields,
    FieldsOnce,
    FieldNames,
    ContentType,
    ContentLength,
    Upgrade,
    Credentials,
    Actions,
    Credential,
    Origin,
    Place,
}

impl Attribute {
    /// Every attribute; the last three exist for loans only.
    pub const ALL: [Self; 28] = [
        Self::Session,
        Self::Groups,
        Self::Labels,
        Self::Entry,
        Self::Now,
        Self::Scheme,
        Self::Secure,
        Self::Host,
        Self::Port,
        Self::Method,
        Self::Path,
        Self::Prefixes,
        Self::Segments,
        Self::Depth,
        Self::Query,
        Self::QueryOnce,
        Self::QueryNames,
        Self::Fields,
        Self::FieldsOnce,
        Self::FieldNames,
        Self::ContentType,
        Self::ContentLength,
        Self::Upgrade,
        Self::Credentials,
        Self::Actions,
        Self::Credential,
        Self::Origin,
        Self::Place,
    ];

    /// The attribute's name in policies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Groups => "groups",
            Self::Labels => "labels",
            Self::Entry => "entry",
            Self::Now => "now",
            Self::Scheme => "scheme",
            Self::Secure => "secure",
            Self::Host => "host",
            Self::Port => "port",
            Self::Method => "method",
            Self::Path => "path",
            Self::Prefixes => "prefixes",
            Self::Segments => "segments",
            Self::Depth => "depth",
            Self::Query => "query",
            Self::QueryOnce => "queryOnce",
            Self::QueryNames => "queryNames",
            Self::Fields => "fields",
            Self::FieldsOnce => "fieldsOnce",
            Self::FieldNames => "fieldNames",
            Self::ContentType => "contentType",
            Self::ContentLength => "contentLength",
            Self::Upgrade => "upgrade",
            Self::Credentials => "credentials",
            Self::Actions => "actions",
            Self::Credential => "credential",
            Self::Origin => "origin",
            Self::Place => "place",
        }
    }

    /// The attribute of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|attribute| attribute.name() == name)
    }
}

/// A set of attributes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Attributes(u32);

impl Attributes {
    /// None.
    pub const NONE: Self = Self(0);
    /// Every one.
    pub const ALL: Self = Self((1 << Attribute::ALL.len()) - 1);
    /// Those that a request has before a loan is asked for.
    pub const REQUEST: Self = Self((1 << Attribute::Credential as u32) - 1);

    /// Those by which a rule tells one request to a host from another; each request of a batch has
    /// its own.
    pub const OF_ONE_REQUEST: [Attribute; 12] = [
        Attribute::Method,
        Attribute::Path,
        Attribute::Prefixes,
        Attribute::Segments,
        Attribute::Depth,
        Attribute::Query,
        Attribute::QueryOnce,
        Attribute::QueryNames,
        Attribute::Fields,
        Attribute::FieldsOnce,
        Attribute::FieldNames,
        Attribute::Actions,
    ];

    /// Those that are made from the fields.
    pub const OF_FIELDS: [Attribute; 4] = [
        Attribute::Fields,
        Attribute::FieldsOnce,
        Attribute::FieldNames,
        Attribute::ContentType,
    ];

    /// Whether the set has none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the attribute is in the set.
    pub fn holds(self, attribute: Attribute) -> bool {
        self.0 & (1 << attribute as u32) != 0
    }

    /// Whether any of these is in the set.
    pub fn holds_any(self, attributes: &[Attribute]) -> bool {
        attributes.iter().any(|attribute| self.holds(*attribute))
    }

    /// Adds one.
    pub fn add(&mut self, attribute: Attribute) {
        self.0 |= 1 << attribute as u32;
    }

    /// What is in either set.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What is in both sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The set's members, in order.
    pub fn iter(self) -> impl Iterator<Item = Attribute> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let first = Attribute::ALL.get(left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(*first)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_has_its_place_and_its_name() {
        for (place, attribute) in Attribute::ALL.into_iter().enumerate() {
            assert_eq!(attribute as usize, place);
            assert_eq!(Attribute::named(attribute.name()), Some(attribute));
        }
    }

    #[test]
    fn a_request_has_all_but_what_a_loan_adds() {
        let beyond: Vec<_> = Attributes::ALL
            .iter()
            .filter(|attribute| !Attributes::REQUEST.holds(*attribute))
            .collect();
        assert_eq!(
            beyond,
            [Attribute::Credential, Attribute::Origin, Attribute::Place]
        );
    }
}
