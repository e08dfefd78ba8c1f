//! Descriptions that are refused, and requests that make no panic.

use proptest::prelude::*;

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
    assert_eq!(recipe.needs(), Needs::Whole);
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
        ("time = \"%s\"", "time = \"%s\"\nkept = []", "a value is one of"),
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
        ("key = \"{secret}\"", "key = \"{key}\"", "must come from a part"),
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
        ("value = \"{key}\"", "value = \"{key|upper}\"", "could be read"),
        ("value = \"{time}\"", "value = \"now\"", "could be read"),
        ("value = \"{signature|hex}\"", "value = \"none\"", "no place"),
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
        let content = (recipe.needs() == Needs::Whole).then_some(value.as_bytes());
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
