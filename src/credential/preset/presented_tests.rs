//! What requests present of the credentials of known services, and of signing ones.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway_message::{
    AcceptedCredential, AcceptedPart, Authority, EncodedSlash, Origin, Place, RequestHead, Scheme,
    folded_parameter,
};
use gateway_session::phantom::Shape;
use gateway_session::stage::{GITHUB, Stage, binding, head, stage, stage_of};
use gateway_session::{Binding, Bindings, Role, Signing, When};
use http::Method;

use crate::preset;
use crate::signing::sigv4::{OwnEndpoint, SigV4, SigV4Settings};

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";
const PARTS: &str = "multipart/form-data; boundary=b";

#[test]
fn paths_stand_as_they_are_only_where_every_signer_takes_them_so() {
    let signer = |name: &str, service: &str, exact_paths: bool| {
        let endpoint = OwnEndpoint {
            origin: "https://a.example".parse().unwrap(),
            service: service.to_owned(),
            region: "here".to_owned(),
            exact_paths,
        };
        let signing = Signing {
            signer: Arc::new(SigV4::new(SigV4Settings {
                endpoints: vec![endpoint],
                ..SigV4Settings::default()
            })),
            parts: Vec::new(),
        };
        Binding {
            role: Role::Signs(Arc::new(signing)),
            ..binding(name, &["https://a.example"], &["header:x-api-key"])
        }
    };
    let origin = Origin {
        scheme: Scheme::Https,
        authority: Authority::parse(b"a.example", Some(443)).unwrap(),
    };
    let store = || signer("one", "s3", false);
    for (signers, paths) in [
        (vec![store()], EncodedSlash::Key),
        (vec![store(), signer("two", "own", true)], EncodedSlash::Key),
        (
            vec![store(), signer("two", "own", false)],
            EncodedSlash::Keep,
        ),
        (
            vec![signer("two", "own", false), store()],
            EncodedSlash::Keep,
        ),
    ] {
        let bindings = Bindings::new(signers).unwrap();
        assert_eq!(bindings.at_origin(&origin).signed_paths(), Some(paths));
    }
}

/// A request with a value in a place, and the request's content.
fn with_value(
    origin: &str,
    taken: &AcceptedCredential,
    value: &str,
) -> (RequestHead, Option<String>) {
    let route = taken
        .route
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_else(|| "/x".into());
    let path = route.replace('*', "9");
    let (path, fields, content) = match &taken.part {
        AcceptedPart::Header(name) => (path, vec![(name.as_str(), value)], None),
        AcceptedPart::Cookie(name) => {
            let head = head(origin, &path, &[("cookie", &format!("{name}={value}"))]);
            return (head, None);
        }
        AcceptedPart::Query(name) => (format!("{path}?a=b&{name}={value}"), vec![], None),
        AcceptedPart::Form(name) => (path, vec![], Some(format!("a=b&{name}={value}"))),
        AcceptedPart::Path => (path, vec![], None),
    };
    (head(origin, &path, &fields), content)
}

/// A preset's credential at its own host, or at a host that stands in for it.
fn of_preset(credential: &preset::PresetCredential) -> (Stage, String) {
    let own = credential
        .your_host
        .clone()
        .unwrap_or_else(|| "registry.example".into());
    let given = if credential.origins.is_empty() {
        vec![own.to_lowercase().parse().unwrap()]
    } else {
        vec![]
    };
    let bound = credential.bind(credential.name.clone(), given).unwrap();
    let origin = bound.origins[0].to_string();
    let shape = credential
        .shapes
        .first()
        .cloned()
        .unwrap_or_else(|| Shape::of(GITHUB.as_bytes()));
    let bound = Binding {
        shape: Some(shape),
        ..bound
    };
    (stage_of(vec![bound]), origin)
}

#[test]
fn h13_a_foreign_credential_is_refused_wherever_a_service_is_known_to_take_one() {
    let mut tried = 0;
    for credential in preset::all().flat_map(|preset| &preset.credentials) {
        let (stage, origin) = of_preset(credential);
        for taken in &credential.takes {
            let (head, content) = with_value(&origin, taken, "attackers-own");
            let found = stage.detect(&head);
            let refused = match content {
                None => found.err(),
                Some(content) => stage.find(&head, &content).err(),
            };
            let refused = refused.unwrap_or_else(|| panic!("{} takes {taken}", credential.name));
            assert_eq!(
                refused.reason().as_str(),
                "foreign_credential",
                "{} {taken}",
                credential.name
            );
            tried += 1;
        }
    }
    assert!(tried > 150, "{tried}");
}

#[test]
fn each_presets_phantom_passes_in_its_own_places() {
    for credential in preset::all().flat_map(|preset| &preset.credentials) {
        let (stage, origin) = of_preset(credential);
        let phantom = stage.of(credential.name.as_str());
        for place in &credential.places {
            let (field, value) = match place {
                Place::Header { name, scheme } => {
                    let before = scheme
                        .as_ref()
                        .map(|scheme| format!("{scheme} "))
                        .unwrap_or_default();
                    (name.as_str(), format!("{before}{phantom}"))
                }
                Place::BasicUser => (
                    "authorization",
                    format!("Basic {}", STANDARD.encode(format!("{phantom}:"))),
                ),
                Place::BasicPassword => (
                    "authorization",
                    format!("Basic {}", STANDARD.encode(format!("u:{phantom}"))),
                ),
                Place::Query(name) => {
                    let head = head(&origin, &format!("/x?{name}={phantom}"), &[]);
                    assert_eq!(stage.detect(&head).unwrap().lends().len(), 1, "{place}");
                    continue;
                }
                Place::Path(path) => {
                    let target = path.to_string().replace("{}", &phantom);
                    let target = target.replace('*', "1").trim_end_matches('/').to_owned() + "/x";
                    let head = head(&origin, &target, &[]);
                    assert_eq!(stage.detect(&head).unwrap().lends().len(), 1, "{place}");
                    continue;
                }
                Place::Form(name) | Place::Multipart(name) => {
                    let (kind, content) = match place {
                        Place::Form(_) => (FORM, format!("{name}={phantom}")),
                        _ => (
                            PARTS,
                            format!(
                                "--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{phantom}\r\n--b--"
                            ),
                        ),
                    };
                    // A path where the service takes it.
                    let takes = credential.takes.iter();
                    let mut paths = takes.filter(|taken| {
                        taken.part == AcceptedPart::Form(folded_parameter(name.as_str()))
                    });
                    let path = paths.next().and_then(|taken| taken.route.clone());
                    let path =
                        path.map_or("/x".to_owned(), |route| route.to_string().replace('*', "x"));
                    let mut head = head(&origin, &path, &[("content-type", kind)]);
                    head.method = Method::POST;
                    assert_eq!(stage.find(&head, &content).unwrap().len(), 1, "{place}");
                    continue;
                }
                Place::WebSocket(_) => continue,
                other => panic!("{other}"),
            };
            let found = stage.detect(&head(&origin, "/x", &[(field, &value)]));
            assert_eq!(
                found.unwrap().lends().len(),
                1,
                "{} {place}",
                credential.name
            );
        }
    }
}

#[test]
fn content_may_hold_the_sessions_phantom_and_no_other_credential() {
    let slack = preset::named("slack").unwrap();
    let (stage, origin) = of_preset(&slack.credentials[0]);
    let phantom = stage.of("slack");
    let judge = |kind: &str, text: &str| {
        let head = head(&origin, "/api/chat.postMessage", &[("content-type", kind)]);
        let found = stage.find(&head, text).err();
        found.map(|refused| refused.reason().as_str())
    };
    for (kind, text) in [
        (FORM, "channel=C&text=token%3Dx"),
        (FORM, &*format!("token={phantom}&channel=C")),
        (FORM, "token=&channel=C"),
        (JSON, r#"{"channel":"C","blocks":[{"token":"x"}]}"#),
        (
            PARTS,
            "--b\r\nContent-Disposition: form-data; name=\"channel\"\r\n\r\ntoken\r\n--b--",
        ),
    ] {
        assert_eq!(judge(kind, text), None, "{text}");
    }
    for (kind, text) in [
        (FORM, "token=xoxb-attackers"),
        (FORM, &*format!("token={phantom}&token=xoxb-attackers")),
        (JSON, r#"{"token":"xoxb-attackers"}"#),
        (
            PARTS,
            "--b\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\nx\r\n--b--",
        ),
    ] {
        assert_eq!(judge(kind, text), Some("foreign_credential"), "{text}");
    }
    assert_eq!(judge(JSON, "{"), Some("content_unreadable"));
    // File uploads go to another path and are not held.
    let upload = head(&origin, "/upload/v1/x", &[]);
    let found = stage.detect(&upload).unwrap();
    assert!(found.in_content(&upload).unwrap().is_none());
}

#[test]
fn f14_a_credential_for_some_requests_is_not_lent_to_many_in_one() {
    let stage = stage();
    let gemini = [("x-goog-api-key", stage.of("gemini"))];
    let fields = [(gemini[0].0, gemini[0].1.as_str())];
    for target in [
        "/v1/$batch",
        "/v1/x/_bulk",
        "/v1/%24batch",
        "/v1/_MSEARCH/template",
    ] {
        assert_eq!(
            stage.refusal("https://gemini.example", target, &fields),
            "batch",
            "{target}"
        );
    }
    let batches =
        |origin: &str, target: &str| stage.detect(&head(origin, target, &[])).unwrap().batch;
    for (origin, target) in [
        ("https://good.example", "/v1.0/$batch"),
        ("https://x.example", "/index/_mget"),
        ("https://www.googleapis.com", "/batch"),
        ("https://storage.googleapis.com", "/batch/storage/v1"),
        ("https://x.example", "/?comp=batch"),
    ] {
        assert!(batches(origin, target), "{origin}{target}");
    }
    assert!(!batches("https://good.example", "/batch"));
    assert!(!batches("https://good.example", "/v1/batches"));
    let asana = &preset::named("asana").unwrap().credentials[0];
    let (stage, origin) = of_preset(asana);
    assert!(
        stage
            .detect(&head(&origin, "/api/1.0/batch", &[]))
            .unwrap()
            .batch
    );
}

#[test]
fn j06_a_credential_in_a_place_is_no_signature() {
    let stage = |unsigned: &[&str]| {
        let endpoint = OwnEndpoint {
            origin: "https://store.example".parse().unwrap(),
            service: "s3".to_owned(),
            region: "here".to_owned(),
            exact_paths: false,
        };
        let unsigned = unsigned
            .iter()
            .map(|origin| origin.parse().unwrap())
            .collect();
        let signing = Signing {
            signer: Arc::new(SigV4::new(SigV4Settings {
                endpoints: vec![endpoint],
                unsigned,
                ..SigV4Settings::default()
            })),
            parts: Vec::new(),
        };
        let signer = Binding {
            role: Role::Signs(Arc::new(signing)),
            ..binding(
                "github",
                &["https://store.example"],
                &["header:authorization:AWS4"],
            )
        };
        let always = Binding {
            when: When::Always,
            paths: vec!["/always".into()],
            ..binding(
                "other",
                &["https://store.example"],
                &["header:x-always-key"],
            )
        };
        let place = binding(
            "gemini",
            &["https://store.example"],
            &["header:x-goog-api-key", "query:key"],
        );
        stage_of(vec![signer, always, place])
    };
    let asked = |stage: &Stage, target: &str, fields: &[(&str, &str)]| {
        let found = stage.detect(&head("https://store.example", target, fields));
        found
            .map(|found| found.lends().len())
            .map_err(|refused| refused.reason().as_str())
    };
    let (closed, open) = (stage(&[]), stage(&["https://store.example"]));
    let key = closed.of("gemini");
    for (target, fields, lent) in [
        ("/bucket/key", vec![], 0),
        ("/always/key", vec![], 1),
        ("/bucket/key", vec![("x-goog-api-key", key.as_str())], 1),
        (&*format!("/bucket/key?key={key}"), vec![], 1),
        ("/always/key", vec![("x-goog-api-key", key.as_str())], 2),
    ] {
        assert_eq!(
            asked(&closed, target, &fields),
            Err("sigv4_absent"),
            "{target} {fields:?}"
        );
        assert_eq!(
            asked(&open, target, &fields),
            Ok(lent),
            "{target} {fields:?}"
        );
    }
}
