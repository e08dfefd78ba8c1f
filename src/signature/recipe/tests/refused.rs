//! Descriptions that are refused, and requests that cause no panic.

use proptest::prelude::*;

use super::super::place::Slot;
use super::super::value::ValueKind;
use super::*;

const GOOD: &str = r#"
name = "good"
title = "Good"
source = "here"
hosts = ["https://api.example"]

[part.key]
role = "id"

[part.secret]
role = "secret"

[value.time]
time = "%s"

[let]
text = "{time}{content}"

[sign]
algorithm = "hmac-sha256"
key = "{secret}"
text = "{text}"

[[place]]
at = ["header:x-key"]
value = "{key}"

[[place]]
at = ["header:x-time"]
value = "{time}"

[[place]]
at = ["header:x-sign"]
value = "{signature|hex}"
"#;

fn mistakes(from: &str, to: &str) -> Vec<String> {
    assert!(GOOD.contains(from), "{from}");
    let mistakes = Recipe::load(&GOOD.replacen(from, to, 1))
        .err()
        .unwrap_or_default();
    mistakes.iter().map(Mistake::to_string).collect()
}

#[test]
fn a_good_description_loads() {
    let recipe = Recipe::load(GOOD).unwrap();
    assert_eq!(recipe.needs(), ContentNeed::Whole);
    assert_eq!(recipe.slots().collect::<Vec<_>>(), ["header:x-key"]);
}

#[test]
fn what_is_wrong_in_a_description_is_said() {
    for (from, to, said) in [
        ("name = \"good\"", "nome = \"good\"", "nome"),
        ("https://api.example", "api.example/x", "hosts"),
        ("role = \"id\"", "role = \"identity\"", "role is"),
        (
            "role = \"id\"",
            "role = \"id\"\noptional = true",
            "cannot be optional",
        ),
        (
            "role = \"secret\"",
            "role = \"secret\"\noptional = true",
            "not optional",
        ),
        ("time = \"%s\"", "time = \"%H\"", "no form of time"),
        (
            "time = \"%s\"",
            "time = \"%s\"\nkept = []",
            "a value is one of",
        ),
        ("time = \"%s\"", "expiry = \"%s\"", "go"),
        ("time = \"%s\"", "kept = []\nback_seconds = 1", "goes with"),
        (
            "text = \"{time}{content}\"",
            "text = \"{nobody}\"",
            "names no part",
        ),
        (
            "text = \"{time}{content}\"",
            "text = \"{time|nothing}\"",
            "no filter",
        ),
        (
            "text = \"{time}{content}\"",
            "text = \"{text}\"",
            "rests on itself",
        ),
        (
            "text = \"{time}{content}\"",
            "text = \"{signature}\"",
            "for places alone",
        ),
        (
            "text = \"{time}{content}\"",
            "text = \"{time}\"\nmethod = \"x\"",
            "taken by the language",
        ),
        (
            "text = \"{time}{content}\"",
            "text = \"{time}\"\nkey = \"x\"",
            "two things",
        ),
        ("hmac-sha256", "hmac-md5", "no algorithm"),
        (
            "key = \"{secret}\"",
            "key = \"{key}\"",
            "must come from a part",
        ),
        (
            "value = \"{key}\"",
            "value = \"{key} {secret|sha256|hex}\"",
            "may not be sent",
        ),
        (
            "value = \"{key}\"",
            "value = \"{key|hmac-sha256(secret)|hex}\"",
            "may not be sent",
        ),
        (
            "value = \"{key}\"",
            "value = \"{key|upper}\"",
            "could be read",
        ),
        ("value = \"{time}\"", "value = \"now\"", "could be read"),
        (
            "value = \"{signature|hex}\"",
            "value = \"none\"",
            "no place",
        ),
        (
            "value = \"{signature|hex}\"",
            "value = \"{signature|sha256}\"",
            "readable",
        ),
        (
            "value = \"{signature|hex}\"",
            "value = \"{signature|hex}\"\noptional = true",
            "cannot be optional",
        ),
        ("header:x-sign", "header:content-length", "is no place"),
        ("header:x-sign", "json:sign", "JSON"),
    ] {
        let mistakes = mistakes(from, to);
        assert!(
            mistakes.iter().any(|mistake| mistake.contains(said)),
            "{to}: {mistakes:?}"
        );
    }
}

#[test]
fn every_mistake_is_said_at_once() {
    let text = GOOD
        .replace("role = \"id\"", "role = \"x\"")
        .replace("%s", "%x")
        .replace("hmac-sha256", "crc");
    assert_eq!(Recipe::load(&text).err().unwrap().len(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_request_makes_a_panic(value in "[ -~]{0,80}", target in "/[a-z%&=;/?0-9]{0,40}", which in 0usize..1000) {
        let all = judged();
        let judged = &all[which % all.len()];
        let mut head = judged.head();
        let recipe = judged.recipe();
        for (at, slot) in recipe.places.iter().flat_map(|place| &place.slots).enumerate() {
            if let (Slot::Header(name), Ok(value), true) = (slot, HeaderValue::from_str(&value), (which >> at) & 1 == 1) {
                head.fields.insert(name, value);
            }
        }
        if let Ok(target) = RequestTarget::parse(target.as_bytes(), EncodedSlash::Keep) {
            head.target = target;
        }
        let content = (recipe.needs() == ContentNeed::Whole).then_some(value.as_bytes());
        if let Ok(Some(claim)) = recipe.claim(&head)
            && let Ok(verified) = recipe.verify(claim, &head, content, &judged.parts())
        {
            let parts = judged.parts();
            drop(recipe.sign(verified, &mut head, Some(judged.content()), &parts, now(), &NONCE));
        }
    }

    #[test]
    fn a_signature_input_makes_no_panic(text in r#"\(("[@a-z-]{0,8}"(;[a-z]{1,3}(="[a-z]{0,3}"|=[0-9]{1,3})?)? ?){0,3}\)?(;[a-z]{1,7}(="[a-z0-9]{0,4}"|=[0-9]{1,4})?){0,3}"#) {
        let judged = judged().into_iter().find(|judged| judged.judge.ends_with("(B.2.6)")).unwrap();
        let mut head = judged.head();
        head.fields.insert("signature-input", HeaderValue::from_str(&format!("sig-b26={text}")).unwrap());
        let claim = judged.recipe().claim(&head);
        if let Ok(Some(claim)) = claim {
            prop_assert!(judged.recipe().verify(claim, &head, None, &judged.parts()).is_err());
        }
    }
}

/// The first request of an Azure account's key that a judge has, with another account and query.
fn azure(account: &str, query: &str) -> Result<(), Fault> {
    let mut judged = judged()
        .into_iter()
        .find(|judged| judged.recipe == "azure-shared-key")
        .unwrap();
    judged.url = format!("https://myaccount.blob.core.windows.net/public/x{query}");
    let signed = judged.headers.get_mut("Authorization").unwrap();
    let (_, signature) = signed.split_once(':').unwrap();
    *signed = format!("SharedKey {account}:{signature}");
    let head = judged.head();
    judged
        .verified(&head, &judged.content(), &judged.parts())
        .map(drop)
}

#[test]
fn what_is_signed_names_the_resource_of_the_request_and_no_other() {
    // A key that did not sign this request is found last.
    assert_eq!(azure("myaccount", "").err(), Some(Fault::Mismatch));
    for account in [
        "myaccount/private",
        "myaccount%2fprivate",
        "my account",
        "a\tb",
        "a:b",
    ] {
        let fault = azure(account, "").err();
        assert_ne!(fault, Some(Fault::Mismatch), "{account}");
    }
    assert_eq!(
        azure("myaccount/private", "").err(),
        Some(Fault::Forbidden("account".to_owned()))
    );
    // A line of its own would be another parameter.
    for query in [
        "?comp=metadata%0arestype:container",
        "?comp=metadata%0Drestype:container",
        "?comp:x=y",
        "?comp%0a=y",
    ] {
        let forbidden = Some(Fault::Forbidden("query".to_owned()));
        assert_eq!(azure("myaccount", query).err(), forbidden, "{query}");
    }
    assert_eq!(
        azure("myaccount", "?comp=metadata&a=b:c").err(),
        Some(Fault::Mismatch)
    );
}

#[test]
fn no_preset_keeps_a_text_that_could_name_another_resource() {
    let mut words = 0;
    for recipe in presets() {
        for value in &recipe.values {
            let ValueKind::Kept { among, letters } = &value.kind else {
                continue;
            };
            // In quotes, or not written at all.
            let apart = matches!(&*value.name, "server-nonce" | "listed");
            assert!(
                apart || !letters.contains(['/', '&', '=', '?', '%', '\n']),
                "{} {letters}",
                value.name
            );
            words += usize::from(among.is_empty());
        }
    }
    assert!(words >= 16, "{words}");
}

#[test]
fn a_parameter_cannot_begin_another_line_of_what_is_signed() {
    let judged = judged()
        .into_iter()
        .find(|judged| judged.recipe == "azure-blob-sas")
        .unwrap();
    let with = |url: &str| {
        let judged = Judged {
            url: url.to_owned(),
            ..judged.clone()
        };
        let head = judged.head();
        judged
            .verified(&head, &judged.content(), &judged.parts())
            .err()
    };
    assert!(judged.url.contains("sp=r"));
    assert_eq!(with(&judged.url), None);
    for line in ["%0a", "%0D"] {
        let fault = with(&judged.url.replacen("sp=r", &format!("sp=r{line}"), 1));
        assert_eq!(
            fault,
            Some(Fault::Forbidden("query:sp".to_owned())),
            "{line}"
        );
    }
}
