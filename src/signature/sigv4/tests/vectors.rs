//! AWS's signing test suite (awslabs `aws-c-auth`, `tests/aws-signing-test-suite`), v4 and v4a.
//!
//! The suite is part of the source of the crate `aws-sigv4`, so it is available wherever this
//! builds; `GATEWAY_SIGV4_VECTORS` names another copy.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::super::algorithm::Algorithm;
use super::super::canonical::{CanonicalRequest, PathRule, query};
use super::super::chain::Chain;
use super::*;

struct Vector {
    name: String,
    folder: PathBuf,
    context: Value,
}

/// A request as in its file: nothing decoded, folded lines joined.
struct Wire {
    method: String,
    target: String,
    fields: Vec<(String, String)>,
    content: String,
}

#[test]
fn every_v4_vector_gives_the_published_texts_and_signatures() {
    let vectors = vectors("v4");
    assert!(vectors.len() >= 38, "{} vectors", vectors.len());
    let run = vectors
        .iter()
        .map(|vector| each_form(vector, Algorithm::V4))
        .sum::<usize>();
    println!("v4: {} vectors, {run} forms", vectors.len());
}

#[test]
fn every_v4a_vector_gives_the_published_texts_and_verifies() {
    let vectors = vectors("v4a");
    assert!(vectors.len() >= 38, "{} vectors", vectors.len());
    let run = vectors
        .iter()
        .map(|vector| each_form(vector, Algorithm::V4a))
        .sum::<usize>();
    println!("v4a: {} vectors, {run} forms", vectors.len());
}

#[test]
fn signing_a_vector_again_with_the_same_key_and_time_gives_it_again() {
    let (mut same, mut unlike) = (0, Vec::new());
    for vector in vectors("v4") {
        for form in ["header", "query"] {
            let wire = vector.request(&format!("{form}-signed-request.txt"));
            let Some(mut head) = wire.head().filter(|_| vector.is_normalized()) else {
                unlike.push(vector.name.clone());
                continue;
            };
            let hash = hash(&wire.content);
            let token = vector.token().to_owned();
            let with = SigningParams {
                access_key: "AKIDEXAMPLE",
                secret: SUITE_SECRET,
                session_token: Some(&*token).filter(|token| !token.is_empty()),
                now: AmzDate::parse("20150830T123600Z").unwrap().time(),
                longest_life: Duration::from_secs(3600),
                content: Some(&hash),
            };
            match again(&mut head, SUITE_SECRET, Some(&hash), &with) {
                Ok(_) => {
                    assert_eq!(
                        signature_of(&head),
                        vector.text(&format!("{form}-signature.txt")),
                        "{}",
                        vector.name
                    );
                    same += 1;
                }
                Err(fault) => unlike.push(format!("{} {form}: {fault}", vector.name)),
            }
            let proof = proven(&head, SUITE_SECRET, Some(&hash));
            assert!(proof.is_ok() || unlike.last().is_some_and(|u| u.starts_with(&vector.name)));
        }
    }
    // Paths that the strict target parser changes or refuses before a signature is checked.
    let odd = |name: &String| {
        name.contains("unnormalized") || name.contains("utf8") || name.contains("space")
    };
    assert!(unlike.iter().all(odd), "{unlike:#?}");
    assert!(same >= 50, "{same}");
}

/// The canonical request, the string to sign and the signature, in both forms.
fn each_form(vector: &Vector, algorithm: Algorithm) -> usize {
    for form in ["header", "query"] {
        let wire = vector.request(&format!("{form}-signed-request.txt"));
        let (signed, signature, token_apart) = wire.parts(form, vector);
        let rule = PathRule {
            normalise: vector.is_normalized(),
            double: vector.context["use_double_uri_encode"] != Value::Bool(false),
        };
        let (path, raw) = wire.target.split_once('?').unwrap_or((&wire.target, ""));
        let keep = |name: &str| {
            name != "X-Amz-Signature" && !(token_apart && name == "X-Amz-Security-Token")
        };
        let (fields, host) = wire.map();
        let payload = field_of(&wire.fields, "x-amz-content-sha256")
            .unwrap_or_else(|| base16ct::lower::encode_string(&hash(&wire.content)));
        let text = CanonicalRequest {
            method: &wire.method,
            path,
            rule,
            query: &query(raw, keep, &[]),
            host: &host,
            fields: &fields,
            signed: &signed,
            as_authority: false,
            payload: &payload,
        }
        .text()
        .unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(
            text,
            vector.text(&format!("{form}-canonical-request.txt")),
            "{} {form}",
            vector.name
        );
        let claim = vector.claim(algorithm);
        let mut chain = Chain::new(&claim, "AKIDEXAMPLE", SUITE_SECRET, claim.signed_at()).unwrap();
        let to_sign = chain.head(text.as_bytes());
        assert_eq!(
            to_sign,
            vector.text(&format!("{form}-string-to-sign.txt")),
            "{} {form}",
            vector.name
        );
        let published = vector.text(&format!("{form}-signature.txt"));
        if algorithm == Algorithm::V4 {
            assert_eq!(
                chain.sign(&to_sign).unwrap(),
                published,
                "{} {form}",
                vector.name
            );
        }
        for right in [&published, &signature] {
            assert!(chain.verify(&to_sign, right), "{} {form}", vector.name);
        }
        assert!(
            !chain.verify(&format!("{to_sign} "), &published),
            "{} {form}",
            vector.name
        );
    }
    2
}

impl Vector {
    fn text(&self, file: &str) -> String {
        let text = std::fs::read_to_string(self.folder.join(file)).unwrap();
        text.replace("\r\n", "\n").trim_end_matches('\n').to_owned()
    }

    fn request(&self, file: &str) -> Wire {
        let text = std::fs::read_to_string(self.folder.join(file))
            .unwrap()
            .replace("\r\n", "\n");
        let (top, content) = text.split_once("\n\n").unwrap_or((&text, ""));
        let top = top.replace("\n ", " ");
        let mut lines = top.lines();
        let line = lines.next().unwrap().strip_suffix(" HTTP/1.1").unwrap();
        let (method, target) = line.split_once(' ').unwrap();
        let fields = lines.filter_map(|line| line.split_once(':'));
        Wire {
            method: method.to_owned(),
            target: target.to_owned(),
            fields: fields
                .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
                .collect(),
            content: content.trim_end_matches('\n').to_owned(),
        }
    }

    fn is_normalized(&self) -> bool {
        self.context["normalize"] == Value::Bool(true)
    }

    fn token(&self) -> &str {
        self.context["credentials"]["token"]
            .as_str()
            .unwrap_or_default()
    }

    /// A signature claim with the vector's scope.
    fn claim(&self, algorithm: Algorithm) -> ClientSignature {
        let (name, region) = match algorithm {
            Algorithm::V4 => ("AWS4-HMAC-SHA256", "us-east-1/"),
            Algorithm::V4a => ("AWS4-ECDSA-P256-SHA256", ""),
        };
        let service = self.context["service"].as_str().unwrap();
        let value = format!(
            "{name} Credential=AKIDEXAMPLE/20150830/{region}{service}/aws4_request, \
             SignedHeaders=host;x-amz-date;x-amz-region-set, Signature={}",
            "0".repeat(64)
        );
        let mut fields = vec![
            ("authorization", &*value),
            ("x-amz-date", "20150830T123600Z"),
        ];
        if algorithm == Algorithm::V4a {
            fields.push(("x-amz-region-set", "us-east-1"));
        }
        ClientSignature::read(&head("GET", "example.amazonaws.com", "/", &fields))
            .unwrap()
            .unwrap()
    }
}

impl Wire {
    fn map(&self) -> (HeaderMap, String) {
        let mut map = HeaderMap::new();
        for (name, value) in &self.fields {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let host = map.remove("host").unwrap();
        (map, host.to_str().unwrap().to_owned())
    }

    /// The signed names, the signature, and whether a token in the query is outside it.
    fn parts(&self, form: &str, vector: &Vector) -> (Vec<HeaderName>, String, bool) {
        let authorization = field_of(&self.fields, "authorization").unwrap_or_default();
        let text = if form == "header" {
            &authorization
        } else {
            &self.target
        };
        let part = |name: &str| {
            let at = text.find(name).unwrap() + name.len();
            text[at..].split([',', '&']).next().unwrap().to_owned()
        };
        let names = part("SignedHeaders=").replace("%3B", ";");
        let names = names
            .split(';')
            .map(|name| HeaderName::from_bytes(name.as_bytes()).unwrap());
        let apart = vector.context["omit_session_token"] == Value::Bool(true);
        (names.collect(), part("Signature="), apart)
    }

    /// The head as the gateway would have it; `None` if the strict parser refuses the target.
    fn head(&self) -> Option<RequestHead> {
        RequestTarget::parse(self.target.as_bytes(), EncodedSlash::Keep).ok()?;
        let fields: Vec<_> = self.fields.iter().map(|(n, v)| (&**n, &**v)).collect();
        let mut head = head(&self.method, "example.amazonaws.com", &self.target, &fields);
        head.fields.remove("host");
        Some(head)
    }
}

fn field_of(fields: &[(String, String)], name: &str) -> Option<String> {
    let found = fields
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.clone())
}

fn vectors(kind: &str) -> Vec<Vector> {
    let root = root(kind);
    let entries = std::fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    // Two folders show only the encoding of a path.
    let mut folders: Vec<PathBuf> = entries
        .filter(|folder| folder.join("context.json").is_file())
        .collect();
    folders.sort();
    let read = |folder: PathBuf| Vector {
        name: folder.file_name().unwrap().to_str().unwrap().to_owned(),
        context: serde_json::from_str(
            &std::fs::read_to_string(folder.join("context.json")).unwrap(),
        )
        .unwrap(),
        folder,
    };
    folders.into_iter().map(read).collect()
}

/// The folder that `GATEWAY_SIGV4_VECTORS` names, or the one in the crate's source.
fn root(kind: &str) -> PathBuf {
    if let Some(named) = std::env::var_os("GATEWAY_SIGV4_VECTORS") {
        let folder = Path::new(&named).join(kind);
        if folder.is_dir() {
            return folder;
        }
        println!("GATEWAY_SIGV4_VECTORS has no `{kind}`; the crate's own copy is used");
    }
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let sources =
        std::fs::read_dir(home.unwrap().join("registry/src")).expect("the sources of the crates");
    let crates = sources.flat_map(|source| std::fs::read_dir(source.unwrap().path()).unwrap());
    let suite = crates
        .map(|folder| folder.unwrap().path())
        .filter(|folder| {
            folder
                .file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("aws-sigv4-")
        })
        .map(|folder| folder.join("aws-signing-test-suite").join(kind))
        .find(|folder| folder.is_dir());
    suite.expect(
        "the suite stands in the source of `aws-sigv4`; name another with GATEWAY_SIGV4_VECTORS",
    )
}

use super::super::AmzDate;

fn hash(content: &str) -> [u8; 32] {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, content.as_bytes());
    digest.as_ref().try_into().unwrap()
}
