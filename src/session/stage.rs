//! Test support: bindings of a few services, phantoms of two sessions, and requests.

use std::sync::Arc;

use gateway_body::fact::PlainContent;
use gateway_body::{Document, Questions};
use gateway_message::{Authority, EncodedSlash, Origin, RequestHead, RequestTarget, Scheme};
use gateway_names::{CredentialName, SessionId};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};

use super::phantom::{Issue, PhantomKey, Phantoms, Registry, Shape};
use super::{Binding, Bindings, CredentialRefusal, CredentialUse, DetectedCredentials};

pub const GITHUB: &str = "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";
pub const OTHER: &str = "sk-ant-api03-CANARYcanary0123456789CANARYcanary0123456789AA";
pub const GEMINI: &str = "AIzaCANARYcanary0123456789CANARYcanary0";
pub const PADDED: &str = "Q0FOQVJZL2NhbmFyeSt4L3l6QUJDREVGR0hJSktMTU4=";

/// Each credential's secret.
pub const SECRETS: [(&str, &str); 4] = [
    ("github", GITHUB),
    ("other", OTHER),
    ("gemini", GEMINI),
    ("padded", PADDED),
];

/// A gateway's bindings and the phantoms of one of its sessions. Another session's phantoms are in
/// the registry too.
pub struct Stage {
    pub bindings: Bindings,
    pub phantoms: Phantoms,
    pub theirs: Phantoms,
    pub registry: Registry,
}

pub fn name(text: &str) -> CredentialName {
    CredentialName::new(text).unwrap()
}

pub fn binding(credential: &str, origins: &[&str], places: &[&str]) -> Binding {
    Binding {
        origins: origins
            .iter()
            .map(|origin| origin.parse().unwrap())
            .collect(),
        places: places.iter().map(|place| place.parse().unwrap()).collect(),
        cookies: vec!["a".to_owned(), "c".to_owned()],
        ..Binding::of(name(credential))
    }
}

pub fn usual() -> Vec<Binding> {
    let github = [
        "header:authorization:Bearer",
        "header:authorization:token",
        "basic:password",
        "basic:user",
    ];
    let other = [
        "header:x-api-key",
        "header:authorization:Bearer",
        "cookie:sid",
    ];
    vec![
        binding("github", &["https://good.example"], &github),
        binding(
            "other",
            &["https://other.example", "https://*.wild.example:8443"],
            &other,
        ),
        Binding {
            methods: vec![Method::GET],
            paths: vec!["/v1".into()],
            ..binding(
                "gemini",
                &["https://gemini.example"],
                &["header:x-goog-api-key", "query:key"],
            )
        },
        binding(
            "padded",
            &["https://padded.example"],
            &["query:sig", "header:x-sig", "basic:user"],
        ),
    ]
}

/// Issues phantoms from the key. Each has its declared shape, or the shape of its secret in
/// [`SECRETS`].
pub fn issue(bindings: &Bindings, key: u8) -> Phantoms {
    let key = PhantomKey::from_bytes([key; 32]);
    let mut issue = Issue::new(&key);
    for binding in bindings.all() {
        let secret = SECRETS
            .iter()
            .find(|(credential, _)| *credential == binding.credential.as_str());
        let shape = binding
            .shape
            .clone()
            .or_else(|| Some(Shape::of(secret?.1.as_bytes())))
            .unwrap();
        issue.issue(&binding.credential, &shape, |_| false).unwrap();
    }
    issue.finish()
}

pub fn stage_of(bindings: Vec<Binding>) -> Stage {
    let bindings = Bindings::new(bindings).unwrap();
    let (phantoms, theirs) = (issue(&bindings, 1), issue(&bindings, 2));
    let registry = Registry::default();
    registry.enter(&SessionId::new("ours").unwrap(), phantoms.all());
    registry.enter(&SessionId::new("theirs").unwrap(), theirs.all());
    Stage {
        bindings,
        phantoms,
        theirs,
        registry,
    }
}

pub fn stage() -> Stage {
    stage_of(usual())
}

pub fn head(origin: &str, target: &str, fields: &[(&str, &str)]) -> RequestHead {
    let (scheme, rest) = origin.split_once("://").unwrap();
    let scheme = if scheme == "http" {
        Scheme::Http
    } else {
        Scheme::Https
    };
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        map.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    let authority = Authority::parse(rest.as_bytes(), Some(scheme.default_port())).unwrap();
    RequestHead {
        method: Method::GET,
        origin: Origin { scheme, authority },
        target: RequestTarget::parse(target.as_bytes(), EncodedSlash::Keep).unwrap(),
        fields: map,
        version: Version::HTTP_11,
    }
}

/// The values of a field.
pub fn field<'h>(head: &'h RequestHead, name: &str) -> Vec<&'h str> {
    head.fields
        .get_all(name)
        .iter()
        .map(|value| value.to_str().unwrap())
        .collect()
}

impl Stage {
    /// A credential's phantom in our session.
    pub fn of(&self, credential: &str) -> String {
        self.phantoms
            .of(&name(credential))
            .unwrap()
            .reveal()
            .to_owned()
    }

    pub fn detect(&self, head: &RequestHead) -> Result<DetectedCredentials, CredentialRefusal> {
        let here = Arc::new(self.bindings.at_origin(&head.origin));
        self.bindings
            .detect(head, here, &self.phantoms, &self.registry)
    }

    /// What a request with this content asks to use in it.
    pub fn find(
        &self,
        head: &RequestHead,
        content: &str,
    ) -> Result<Vec<CredentialUse>, CredentialRefusal> {
        let search = self.detect(head)?.in_content(head)?;
        let search = search.expect("the service takes credentials in content");
        let content = PlainContent {
            bytes: content.to_owned().into(),
            ..PlainContent::default()
        };
        let is_asked = |name: &str| search.is_asked(name);
        let mut questions = Questions::default();
        search.ask(&mut questions, &is_asked);
        let query = head.target.query().unwrap_or_default();
        let document = Document::read(&head.fields, query, &content, &questions);
        search.find(&document, (&self.phantoms, Some(&self.registry)))
    }

    /// The code with which a request is refused. Also checks that the refusal contains no secret
    /// and no phantom.
    pub fn refusal(&self, origin: &str, target: &str, fields: &[(&str, &str)]) -> &'static str {
        let refused = self.detect(&head(origin, target, fields)).err();
        let refused =
            refused.unwrap_or_else(|| panic!("{origin}{target} {fields:?} was let through"));
        let shown = format!("{refused} {refused:?}");
        let secret = SECRETS.iter().any(|(_, secret)| shown.contains(secret));
        let phantom = self
            .phantoms
            .all()
            .iter()
            .any(|phantom| shown.contains(phantom.reveal()));
        assert!(!secret && !phantom, "{shown}");
        refused.reason().as_str()
    }
}
