//! Places: where in a request a credential goes.

use std::fmt;
use std::str::FromStr;

use http::{HeaderName, header};

use super::content_name::{FormName, FormNameMalformed, Pointer, PointerMalformed};
use super::path_place::{PathPlace, PathPlaceMalformed};

/// Where a credential may be in a request. A phantom anywhere else is never replaced.
///
/// Configuration and audit records use its text form: `header:authorization:Bearer`,
/// `header:x-api-key`, `basic:user`, `basic:password`, `cookie:sid`, `query:key`, `path:/bot{}/`,
/// `form:token`, `json:/auth/token`, `multipart:token`, `websocket:/d/token`,
/// `sign:sigv4`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    /// A field's value, after an authentication scheme if one is named.
    Header {
        /// The field.
        name: HeaderName,
        /// The word before the credential (`Bearer`, `token`), compared case-insensitively. `None`
        /// means the credential is the whole value.
        scheme: Option<String>,
    },
    /// The user of `Authorization: Basic` (RFC 7617), decoded.
    BasicUser,
    /// The password of `Authorization: Basic` (RFC 7617), decoded.
    BasicPassword,
    /// The value of the cookie with this name.
    Cookie(String),
    /// The decoded value of the query parameter with this decoded name.
    Query(String),
    /// A part of a path segment. From [`RequestTarget::lending`](super::RequestTarget) on, `{}`
    /// stands there.
    Path(PathPlace),
    /// The value in a form (`application/x-www-form-urlencoded`).
    Form(FormName),
    /// The string at this place in a JSON document.
    Json(Pointer),
    /// The value of this field of a form in parts (`multipart/form-data`).
    Multipart(FormName),
    /// The string at this place of a JSON document that the client sends as a text message of a
    /// WebSocket.
    WebSocket(Pointer),
    /// Not in the request itself: the request is signed with the credential, by the scheme with
    /// this name (`sigv4`).
    Signature(String),
}

impl Place {
    /// The field that contains it, if it is in a field.
    pub fn field(&self) -> Option<HeaderName> {
        match self {
            Self::Header { name, .. } => Some(name.clone()),
            Self::BasicUser | Self::BasicPassword => Some(header::AUTHORIZATION),
            Self::Cookie(_) => Some(header::COOKIE),
            Self::Query(_)
            | Self::Path(_)
            | Self::Form(_)
            | Self::Json(_)
            | Self::Multipart(_)
            | Self::WebSocket(_)
            | Self::Signature(_) => None,
        }
    }

    /// The part of a request that it occupies. A request has each part once, and only one
    /// credential can be in it.
    pub fn site(&self) -> String {
        match self {
            Self::Cookie(_)
            | Self::Query(_)
            | Self::Form(_)
            | Self::Json(_)
            | Self::Multipart(_)
            | Self::WebSocket(_)
            | Self::Signature(_) => self.to_string(),
            Self::Path(_) => "path".to_owned(),
            Self::Header { name, .. } => name.to_string(),
            Self::BasicUser | Self::BasicPassword => header::AUTHORIZATION.to_string(),
        }
    }

    /// Whether it exists only where the client put the phantom.
    pub fn is_made_by_the_client(&self) -> bool {
        matches!(self, Self::Path(_) | Self::WebSocket(_)) || self.is_in_content()
    }

    /// Whether it is in the content.
    pub fn is_in_content(&self) -> bool {
        matches!(self, Self::Form(_) | Self::Json(_) | Self::Multipart(_))
    }

    /// Whether it is in the messages of a WebSocket, which follow the request.
    pub fn is_in_messages(&self) -> bool {
        matches!(self, Self::WebSocket(_))
    }

    /// Whether a user name or password accompanies the credential.
    pub fn needs_user(&self) -> bool {
        matches!(self, Self::BasicUser | Self::BasicPassword)
    }
}

/// Why a text does not name a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PlaceMalformed {
    /// The first word is not one of `header`, `basic`, `cookie`, `query`, `path`, `form`,
    /// `json`, `multipart`, `websocket`, `sign`.
    #[error(
        "a place is one of `header:NAME`, `header:NAME:SCHEME`, `basic:user`, `basic:password`, `cookie:NAME`, `query:NAME`, \
         `path:/PATH{{}}`, `form:NAME`, `json:/POINTER`, `multipart:NAME`, `websocket:/POINTER`, `sign:NAME`"
    )]
    Kind,
    /// The field name is not a token, or is a field that routes or frames the message.
    #[error("the place names a field that cannot hold a credential")]
    Field,
    /// The scheme holds a user name and a password, in base64.
    #[error("`Basic` holds a user name and a password: name `basic:user` or `basic:password`")]
    Basic,
    /// The field lists the subprotocols of a WebSocket; a key would be one of them.
    #[error(
        "a key among the subprotocols of a WebSocket (`sec-websocket-protocol`) cannot be replaced; \
         have the client send it as `header:authorization:Bearer` or as a query parameter, and name \
         that place"
    )]
    Subprotocol,
    /// The path is not the path of a place.
    #[error(transparent)]
    Path(#[from] PathPlaceMalformed),
    /// The name in a form has a character that is not allowed there.
    #[error(transparent)]
    Form(#[from] FormNameMalformed),
    /// The text is not a JSON Pointer.
    #[error(transparent)]
    Pointer(#[from] PointerMalformed),
    /// The scheme, cookie or parameter name is empty or contains a character that is not allowed
    /// there.
    #[error("the place has an empty or impossible name")]
    Name,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Header { name, scheme: None } => write!(f, "header:{name}"),
            Place::Header {
                name,
                scheme: Some(scheme),
            } => write!(f, "header:{name}:{scheme}"),
            Place::BasicUser => f.write_str("basic:user"),
            Place::BasicPassword => f.write_str("basic:password"),
            Place::Cookie(name) => write!(f, "cookie:{name}"),
            Place::Query(name) => write!(f, "query:{name}"),
            Place::Path(path) => write!(f, "path:{path}"),
            Place::Form(name) => write!(f, "form:{name}"),
            Place::Json(pointer) => write!(f, "json:{pointer}"),
            Place::Multipart(name) => write!(f, "multipart:{name}"),
            Place::WebSocket(pointer) => write!(f, "websocket:{pointer}"),
            Place::Signature(name) => write!(f, "sign:{name}"),
        }
    }
}

gateway_names::serde_as_text!(Place, ToString::to_string, |text| text.parse().ok());

impl FromStr for Place {
    type Err = PlaceMalformed;

    fn from_str(text: &str) -> Result<Place, PlaceMalformed> {
        let (kind, rest) = text.split_once(':').ok_or(PlaceMalformed::Kind)?;
        match (kind, rest) {
            ("header", rest) => header(rest),
            ("basic", "user") => Ok(Place::BasicUser),
            ("basic", "password") => Ok(Place::BasicPassword),
            ("cookie", name) if is_token(name) => Ok(Place::Cookie(name.to_owned())),
            ("query", name) if is_parameter(name) => Ok(Place::Query(name.to_owned())),
            ("path", path) => Ok(Place::Path(path.parse()?)),
            ("form", name) => Ok(Place::Form(name.parse()?)),
            ("json", pointer) => Ok(Place::Json(pointer.parse()?)),
            ("multipart", name) => Ok(Place::Multipart(name.parse()?)),
            ("websocket", pointer) => Ok(Place::WebSocket(pointer.parse()?)),
            ("sign", name) if is_token(name) => Ok(Place::Signature(name.to_owned())),
            ("cookie" | "query" | "sign", _) => Err(PlaceMalformed::Name),
            _ => Err(PlaceMalformed::Kind),
        }
    }
}

fn header(rest: &str) -> Result<Place, PlaceMalformed> {
    let (name, scheme) = match rest.split_once(':') {
        Some((name, scheme)) if is_token(scheme) => (name, Some(scheme.to_owned())),
        Some(_) => return Err(PlaceMalformed::Name),
        None => (rest, None),
    };
    let name = HeaderName::from_str(name).map_err(|_| PlaceMalformed::Field)?;
    if name == header::SEC_WEBSOCKET_PROTOCOL {
        return Err(PlaceMalformed::Subprotocol);
    }
    if super::fields::frames_or_routes(&name) {
        return Err(PlaceMalformed::Field);
    }
    if scheme
        .as_deref()
        .is_some_and(|scheme| scheme.eq_ignore_ascii_case("basic"))
    {
        return Err(PlaceMalformed::Basic);
    }
    Ok(Place::Header { name, scheme })
}

/// Whether the text is a token (RFC 9110 §5.6.2).
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

fn is_parameter(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_reads_back_what_it_writes() {
        for text in [
            "header:authorization:Bearer",
            "header:x-api-key",
            "basic:user",
            "basic:password",
            "cookie:sid",
            "query:key",
            "query:a:b",
            "path:/bot{}/",
            "form:card[number]",
            "json:/a~1b/0",
            "multipart:token",
            "websocket:/d/token",
            "sign:sigv4",
        ] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
        assert_eq!(
            "header:X-Api-Key".parse::<Place>().unwrap().to_string(),
            "header:x-api-key"
        );
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for (text, cause) in [
            ("", PlaceMalformed::Kind),
            ("header", PlaceMalformed::Kind),
            ("body:x", PlaceMalformed::Kind),
            ("sign:", PlaceMalformed::Name),
            ("basic:realm", PlaceMalformed::Kind),
            ("header:", PlaceMalformed::Field),
            ("header:a b", PlaceMalformed::Field),
            ("header:host", PlaceMalformed::Field),
            ("header:authorization:Basic", PlaceMalformed::Basic),
            ("header:x-own:basic", PlaceMalformed::Basic),
            ("header:content-length", PlaceMalformed::Field),
            ("header:Sec-WebSocket-Protocol", PlaceMalformed::Subprotocol),
            ("header:authorization:", PlaceMalformed::Name),
            ("header:authorization:a b", PlaceMalformed::Name),
            ("cookie:", PlaceMalformed::Name),
            ("cookie:a=b", PlaceMalformed::Name),
            ("query:", PlaceMalformed::Name),
            ("sign:", PlaceMalformed::Name),
        ] {
            assert_eq!(text.parse::<Place>(), Err(cause), "{text}");
        }
        for text in [
            "path:/bot",
            "form:",
            "form:a b",
            "json:",
            "json:a",
            "json:/~2",
            "multipart:",
            "websocket:token",
        ] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
