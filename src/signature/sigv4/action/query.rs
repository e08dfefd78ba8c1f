//! Operations of the query protocol, which a query or a form names.

use http::Method;

use super::super::tables::{Api, Tables, listed};
use super::operation::{Action, ActionFault, is_minting};
use gateway_message::RequestHead;
use gateway_message::pairs::form_text;

/// An action, or the form that must be buffered to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// The head determines it.
    Known(Action),
    /// A form determines it, which must be buffered (query protocol).
    Form(PendingForm),
}

impl Lookup {
    /// Every action that is asked for, as far as the head shows: `api:?` if a form determines it.
    pub fn names(&self) -> Vec<String> {
        match self {
            Lookup::Known(action) => action.names().collect(),
            Lookup::Form(form) => vec![form.unread().name().to_string()],
        }
    }
}

/// A request of the query protocol whose form must be buffered before its action is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingForm {
    apis: Vec<&'static str>,
    in_query: NamedOperation,
    /// Without a content type, only empty content has a meaning.
    typed: bool,
}

impl PendingForm {
    /// Whether some API that it could be for has operations that return credentials.
    pub(crate) fn may_return_credentials(&self) -> bool {
        self.apis.iter().any(|api| is_minting(api))
    }

    /// The action as far as it is known before the form is parsed.
    pub(crate) fn unread(&self) -> Action {
        Action::unknown(&self.apis)
    }

    /// The action, from the whole content.
    ///
    /// # Errors
    /// [`ActionFault`] if the form cannot be parsed, or names an action in addition to one in the
    /// query.
    pub fn finish(self, content: &[u8]) -> Result<Action, ActionFault> {
        if !self.typed && !content.is_empty() {
            return Err(ActionFault::Ambiguous);
        }
        let form = std::str::from_utf8(content).map_err(|_| ActionFault::Form)?;
        let pairs = form.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let pairs = pairs.map(|(name, value)| (form_text(name), form_text(value).into_owned()));
        let in_form = NamedOperation::by(pairs)?;
        Ok(by_query(&self.apis, &self.in_query.with(in_form)?))
    }
}

/// The operation and version that a query or a form names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NamedOperation {
    pub(super) action: Option<String>,
    version: Option<String>,
}

impl NamedOperation {
    /// Refuses a second action, and one in another case; also a second version.
    pub(super) fn by<N: AsRef<str>>(
        pairs: impl Iterator<Item = (N, String)>,
    ) -> Result<NamedOperation, ActionFault> {
        let mut said = NamedOperation::default();
        for (name, value) in pairs {
            let name = name.as_ref();
            let slot = match name {
                "Action" => &mut said.action,
                "Version" => &mut said.version,
                _ if name.eq_ignore_ascii_case("action") => return Err(ActionFault::Ambiguous),
                _ => continue,
            };
            if slot.replace(value).is_some() {
                return Err(ActionFault::Ambiguous);
            }
        }
        Ok(said)
    }

    /// Combines both, unless they repeat each other.
    fn with(self, other: NamedOperation) -> Result<NamedOperation, ActionFault> {
        let either = |one: Option<String>, two: Option<String>| match (one, two) {
            (Some(_), Some(_)) => Err(ActionFault::Ambiguous),
            (one, two) => Ok(one.or(two)),
        };
        Ok(NamedOperation {
            action: either(self.action, other.action)?,
            version: either(self.version, other.version)?,
        })
    }
}

/// Reads the operation of a request of the query protocol; its type is `kind`.
pub(super) fn query(
    ids: Vec<&'static str>,
    head: &RequestHead,
    in_query: NamedOperation,
    kind: Option<&str>,
) -> Result<Lookup, ActionFault> {
    let typed = kind == Some("application/x-www-form-urlencoded");
    if head.method == Method::GET || head.method == Method::HEAD {
        // Its content is not parsed, so it must not claim to contain an action.
        if kind.is_some() {
            return Err(ActionFault::Ambiguous);
        }
        return Ok(Lookup::Known(by_query(&ids, &in_query)));
    }
    if head.method != Method::POST || (kind.is_some() && !typed) {
        return match in_query.action {
            Some(_) => Err(ActionFault::Ambiguous),
            None => Ok(Lookup::Known(Action::unknown(&ids))),
        };
    }
    Ok(Lookup::Form(PendingForm {
        apis: ids,
        in_query,
        typed,
    }))
}

fn by_query(ids: &[&'static str], said: &NamedOperation) -> Action {
    let tables = Tables::get();
    let speaks = |api: &&'static Api| api.speaks("query") || api.speaks("ec2");
    // Some APIs share a host, and each has an operation of the same name.
    let is_meant = |api: &&'static Api| {
        let version = listed("versions", api.id);
        version.is_none_or(|version| said.version.as_deref() == Some(version))
    };
    let apis = ids.iter().filter_map(|id| tables.api(id)).filter(speaks);
    apis.filter(is_meant)
        .filter_map(|api| {
            Some(Action::known(
                api.id,
                api.operation(said.action.as_deref()?)?.name,
            ))
        })
        .next()
        .unwrap_or_else(|| Action::unknown(ids))
}
