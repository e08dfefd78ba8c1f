//! Every preset against its judge: the service's own published example, or what its own library
//! signed.

mod made;
mod refused;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
use serde::Deserialize;

use super::*;
use gateway_message::{Authority, EncodedSlash, Origin, RequestHead, RequestTarget, Scheme};

/// A signed request, and the source that vouches for it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Judged {
    recipe: String,
    judge: String,
    method: String,
    url: String,
    headers: BTreeMap<String, String>,
    content: String,
    /// How often the content is repeated.
    #[serde(default = "once")]
    repeat: usize,
    parts: BTreeMap<String, String>,
}

fn once() -> usize {
    1
}

impl Judged {
    fn head(&self) -> RequestHead {
        let (scheme, rest) = self.url.split_once("://").unwrap();
        let scheme = if scheme == "http" {
            Scheme::Http
        } else {
            Scheme::Https
        };
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let target = if target.starts_with('/') {
            target.to_owned()
        } else {
            format!("/{target}")
        };
        let mut fields = HeaderMap::new();
        for (name, value) in &self.headers {
            let name: HeaderName = name.parse().unwrap();
            if name != "host" {
                fields.insert(name, HeaderValue::from_str(value).unwrap());
            }
        }
        RequestHead {
            method: Method::from_bytes(self.method.as_bytes()).unwrap(),
            origin: Origin {
                scheme,
                authority: Authority::parse(authority.as_bytes(), Some(scheme.default_port()))
                    .unwrap(),
            },
            target: RequestTarget::parse(target.as_bytes(), EncodedSlash::Keep).unwrap(),
            fields,
            version: Version::HTTP_11,
        }
    }

    fn recipe(&self) -> Arc<Recipe> {
        preset(&self.recipe).unwrap_or_else(|| panic!("no preset {}", self.recipe))
    }

    fn parts(&self) -> Parts<'_> {
        Parts::new(
            self.parts
                .iter()
                .map(|(name, text)| (name.as_str(), text.as_bytes())),
        )
    }

    fn content(&self) -> Bytes {
        Bytes::from(self.content.repeat(self.repeat).into_bytes())
    }

    fn verified(
        &self,
        head: &RequestHead,
        content: &Bytes,
        parts: &Parts<'_>,
    ) -> Result<VerifiedClaim, Fault> {
        let recipe = self.recipe();
        let claim = recipe
            .claim(head)?
            .ok_or(Fault::Incomplete("claim".into()))?;
        let content = (recipe.needs() == ContentNeed::Whole).then_some(&**content);
        recipe.verify(claim, head, content, parts)
    }
}

fn judged() -> Vec<Judged> {
    let texts = [
        include_str!("../../../../tests/signing_recipes/published.json"),
        include_str!("../../../../tests/signing_recipes/recorded.json"),
        include_str!("../../../../tests/signing_recipes/recorded-js.json"),
    ];
    texts
        .iter()
        .flat_map(|text| serde_json::from_str::<Vec<Judged>>(text).unwrap())
        .collect()
}

const NONCE: Nonce = Nonce {
    random: [0x5a; 32],
    counter: 1_900_000_000_000_000,
};

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_900_000_000_123)
}

/// RSA keys take a while to make; another judge has another one.
fn another_rsa_key(key: &str) -> String {
    let mut others = judged()
        .into_iter()
        .filter(|judged| judged.recipe.contains("rsa"));
    others
        .find_map(|judged| Some(judged.parts["secret"].clone()).filter(|other| other != key))
        .unwrap()
}

/// The same credential with other texts, of the same form.
fn real(judged: &Judged) -> BTreeMap<String, String> {
    let recipe = judged.recipe();
    let part = |name: &String| {
        recipe
            .parts()
            .iter()
            .find(|part| part.name == *name)
            .unwrap()
            .clone()
    };
    let other = |name: &String, text: &String| match part(name).key_of {
        Some(_) if judged.recipe.contains("rsa") => another_rsa_key(text),
        Some(algorithm) => {
            let form = KeyForm::of(algorithm, text.as_bytes()).unwrap();
            form.phantom(&[0x42; 32]).unwrap().to_string()
        }
        None => text
            .replace(['a', 'b', 'c', 'd', 'e'], "f")
            .replace(['A', 'B', 'C', 'D', 'E'], "F"),
    };
    judged
        .parts
        .iter()
        .map(|(name, text)| (name.clone(), other(name, text)))
        .collect()
}

#[test]
fn every_file_of_a_preset_is_in_the_table_and_reads() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../policies/signers");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .filter_map(|file| {
            file.unwrap()
                .file_name()
                .into_string()
                .unwrap()
                .strip_suffix(".toml")
                .map(str::to_owned)
        })
        .collect();
    files.sort();
    let table: Vec<&str> = preset::SIGNERS.iter().map(|(name, _)| *name).collect();
    assert_eq!(files, table);
    for (name, text) in preset::SIGNERS {
        let recipe = Recipe::load(text).unwrap_or_else(|mistakes| panic!("{name}: {mistakes:#?}"));
        assert_eq!(recipe.name(), *name);
    }
}

#[test]
fn every_preset_has_a_judge() {
    let judged = judged();
    let without: Vec<&str> = presets()
        .map(Recipe::name)
        .filter(|name| !judged.iter().any(|judged| judged.recipe == *name))
        .collect();
    assert!(without.is_empty(), "these have no judge: {without:?}");
}

#[test]
fn what_the_judge_signed_verifies_with_the_same_key_and_with_no_other() {
    for judged in judged() {
        let head = judged.head();
        if let Err(fault) = judged.verified(&head, &judged.content(), &judged.parts()) {
            panic!("{}: {}: {fault}", judged.recipe, judged.judge);
        }
        for part in judged.recipe().parts() {
            let mut parts = real(&judged);
            let other = parts.remove(&part.name);
            let parts: BTreeMap<String, String> = judged
                .parts
                .iter()
                .map(|(name, text)| match (&other, *name == part.name) {
                    (Some(other), true) => (name.clone(), other.clone()),
                    _ => (name.clone(), text.clone()),
                })
                .collect();
            if parts == judged.parts {
                continue;
            }
            let parts = Parts::new(
                parts
                    .iter()
                    .map(|(name, text)| (name.as_str(), text.as_bytes())),
            );
            let fault = judged.verified(&head, &judged.content(), &parts).err();
            let expected = match part.role {
                Role::Secret => Fault::Mismatch,
                Role::Id | Role::Sent => Fault::Foreign(part.name.clone()),
            };
            assert_eq!(
                fault,
                Some(expected),
                "{}: another {}",
                judged.judge,
                part.name
            );
        }
    }
}

#[test]
fn what_we_sign_verifies_and_holds_nothing_of_the_phantoms() {
    for judged in judged() {
        let recipe = judged.recipe();
        let (mut head, content) = (judged.head(), judged.content());
        let verified = judged.verified(&head, &content, &judged.parts()).unwrap();
        let real = real(&judged);
        let secrets = Parts::new(
            real.iter()
                .map(|(name, text)| (name.as_str(), text.as_bytes())),
        );
        let signed = recipe
            .sign(
                verified,
                &mut head,
                Some(content.clone()),
                &secrets,
                now(),
                &NONCE,
            )
            .unwrap_or_else(|fault| panic!("{}: {fault}", judged.judge));
        let content = signed.content.unwrap_or(content);
        if let Err(fault) = judged.verified(&head, &content, &secrets) {
            panic!(
                "{}: signed again: {fault}: {:?} {:?}",
                judged.judge,
                head.target.query(),
                head.fields
            );
        }
        let mut sent = format!("{:?}", head.target.path_and_query());
        for value in head.fields.values() {
            sent.push_str(&String::from_utf8_lossy(value.as_bytes()));
        }
        sent.push_str(&String::from_utf8_lossy(&content));
        for (name, phantom) in &judged.parts {
            let changed = real[name] != *phantom;
            let alone = judged.recipe != "azure-shared-key" || name != "account";
            assert!(
                !changed || !alone || !sent.contains(phantom),
                "{}: {name} is still there",
                judged.judge
            );
            let part = recipe
                .parts()
                .iter()
                .find(|part| part.name == *name)
                .unwrap();
            assert!(
                part.role != Role::Secret || !sent.contains(&real[name]),
                "{}: the secret is sent",
                judged.judge
            );
        }
    }
}

#[test]
fn a_signature_that_is_off_by_a_bit_or_a_byte_is_refused() {
    let mut tried = 0;
    for judged in judged() {
        let (recipe, head, content) = (judged.recipe(), judged.head(), judged.content());
        let content = (recipe.needs() == ContentNeed::Whole).then_some(&*content);
        let breaks: [fn(&mut Vec<u8>); 4] = [
            |signature| signature[0] ^= 1,
            |signature| *signature.last_mut().unwrap() ^= 0x80,
            |signature| signature.truncate(1),
            Vec::clear,
        ];
        for broken in breaks {
            let mut claim = recipe.claim(&head).unwrap().unwrap();
            // In a form it is read with the content, and then it is the same bytes.
            let Some(signature) = &mut claim.signature else {
                continue;
            };
            broken(signature);
            let fault = recipe.verify(claim, &head, content, &judged.parts()).err();
            assert_eq!(fault, Some(Fault::Mismatch), "{}", judged.judge);
            tried += 1;
        }
    }
    assert!(tried > 100, "{tried}");
}

#[test]
fn content_that_was_changed_after_signing_is_refused() {
    for recipe in presets().filter(|recipe| recipe.needs() == ContentNeed::Whole) {
        let caught = judged()
            .into_iter()
            .filter(|judged| judged.recipe == recipe.name())
            .any(|judged| {
                let mut content = judged.content().to_vec();
                content.push(b'1');
                let claim = recipe.claim(&judged.head()).unwrap().unwrap();
                let fault = recipe
                    .verify(claim, &judged.head(), Some(&content), &judged.parts())
                    .err();
                fault == Some(Fault::Mismatch)
            });
        assert!(
            caught,
            "{}: no judged request shows that content is signed",
            recipe.name()
        );
    }
}

#[test]
fn the_page_tells_of_every_preset() {
    let page = include_str!("../../../../docs/signing-recipes.md");
    for recipe in presets() {
        let name = recipe.name();
        let family = name.strip_prefix("http-signature").unwrap_or(name);
        assert!(
            page.contains(&format!("`{name}`")) || page.contains(&format!("`{family}`")),
            "{name}"
        );
        let parts = recipe.parts().iter().all(|part| page.contains(&part.name));
        assert!(parts, "{name}: a part is not named");
    }
}
