//! Values that are made rather than read: tokens, whose content our verification does not check.

use serde_json::Value as Json;

use super::*;

/// The two JSON halves of a token in a field.
fn token(head: &RequestHead, field: &str) -> (Json, Json) {
    let text = head.fields[field]
        .to_str()
        .unwrap()
        .trim_start_matches("Bearer ")
        .to_owned();
    let half = |text: &str| {
        let decoded = filter::Filter::Unbase64Url
            .apply(text.as_bytes(), "")
            .unwrap();
        serde_json::from_slice(&decoded).unwrap()
    };
    let halves: Vec<&str> = text.split('.').collect();
    (half(halves[0]), half(halves[1]))
}

fn names(object: &Json) -> Vec<String> {
    let mut names: Vec<String> = object.as_object().unwrap().keys().cloned().collect();
    names.sort();
    names
}

#[test]
fn a_token_has_the_members_that_the_services_own_library_gives_it() {
    let mut seen = 0;
    for judged in judged() {
        let field = match judged.recipe.as_str() {
            "dpop-es256" => "dpop",
            "coinbase-cdp-ecdsa" | "coinbase-cdp-ed25519" => "authorization",
            _ => continue,
        };
        seen += 1;
        let recipe = judged.recipe();
        let (mut head, content) = (judged.head(), judged.content());
        let (protected, claims) = token(&head, field);
        let verified = judged.verified(&head, &content, &judged.parts()).unwrap();
        // With the same key, so that the members for the key must be the same.
        recipe
            .sign(verified, &mut head, None, &judged.parts(), now(), &NONCE)
            .unwrap();
        let (our_protected, our_claims) = token(&head, field);
        assert_eq!(names(&our_protected), names(&protected), "{}", judged.judge);
        assert_eq!(names(&our_claims), names(&claims), "{}", judged.judge);
        for same in ["alg", "typ", "kid", "jwk"] {
            assert_eq!(
                our_protected[same], protected[same],
                "{}: {same}",
                judged.judge
            );
        }
        for same in ["sub", "iss", "uri", "htm", "htu", "ath"] {
            assert_eq!(our_claims[same], claims[same], "{}: {same}", judged.judge);
        }
        let is_new = protected["nonce"].is_null() || our_protected["nonce"] != protected["nonce"];
        assert!(is_new, "{}: the nonce of a header is ours", judged.judge);
        assert_eq!(
            our_claims["nonce"], claims["nonce"],
            "{}: a server's nonce stays",
            judged.judge
        );
        let time = our_claims["nbf"].as_i64().or(our_claims["iat"].as_i64());
        assert_eq!(time, Some(1_900_000_000));
        assert_ne!(
            our_claims["jti"].as_str(),
            claims["jti"].as_str().or(Some(""))
        );
    }
    assert_eq!(seen, 5);
}

#[test]
fn the_gateway_sets_the_time_and_cuts_the_end() {
    let sas = judged()
        .into_iter()
        .find(|judged| judged.recipe == "azure-account-sas")
        .unwrap();
    let late = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let (mut head, content) = (sas.head(), sas.content());
    let verified = sas.verified(&head, &content, &sas.parts()).unwrap();
    sas.recipe()
        .sign(verified, &mut head, None, &sas.parts(), late, &NONCE)
        .unwrap();
    let query = head.target.query().unwrap();
    assert!(
        query.contains("se=2023-11-14T22%3A18%3A20Z"),
        "five minutes later: {query}"
    );
    // A nearer expiry is kept.
    let verified = sas.verified(&sas.head(), &content, &sas.parts()).unwrap();
    let mut head = sas.head();
    sas.recipe()
        .sign(verified, &mut head, None, &sas.parts(), now(), &NONCE)
        .unwrap();
    assert!(
        head.target
            .query()
            .unwrap()
            .contains("se=2026-12-01T00%3A00%3A00Z")
    );
}

#[test]
fn what_must_be_covered_is_covered_whatever_the_client_left_out() {
    let minimal = judged()
        .into_iter()
        .find(|judged| judged.judge.ends_with("(B.2.1)"))
        .unwrap();
    let (mut head, content) = (minimal.head(), minimal.content());
    let verified = minimal.verified(&head, &content, &minimal.parts()).unwrap();
    minimal
        .recipe()
        .sign(verified, &mut head, None, &minimal.parts(), now(), &NONCE)
        .unwrap();
    let input = head.fields["signature-input"].to_str().unwrap();
    assert!(
        input.starts_with(
            "sig-b21=(\"@method\" \"@target-uri\" \"content-digest\");created=1900000000;"
        ),
        "{input}"
    );
    assert!(!input.contains("b3k2pp5k7z"), "the nonce is new: {input}");
}

#[test]
fn a_request_with_the_key_alone_is_let_through_where_the_recipe_says_so() {
    let binance = judged()
        .into_iter()
        .find(|judged| judged.recipe == "binance-hmac")
        .unwrap();
    let mut public = binance.clone();
    public.url = "https://api.binance.com/api/v3/historicalTrades?symbol=LTCBTC".to_owned();
    let (mut head, content) = (public.head(), Bytes::new());
    let verified = public.verified(&head, &content, &public.parts()).unwrap();
    let real = Parts::new([("key", &b"real-key"[..]), ("secret", &b"real-secret"[..])]);
    let signed = public
        .recipe()
        .sign(verified, &mut head, Some(content), &real, now(), &NONCE)
        .unwrap();
    assert!(signed.content.is_none());
    assert_eq!(head.target.query(), Some("symbol=LTCBTC"));
    assert_eq!(head.fields["x-mbx-apikey"], "real-key");
    // At other services, a missing signature is a fault.
    let mut okx = judged()
        .into_iter()
        .find(|judged| judged.recipe == "okx")
        .unwrap();
    okx.headers
        .retain(|name, _| !name.eq_ignore_ascii_case("ok-access-sign"));
    let fault = okx
        .verified(&okx.head(), &okx.content(), &okx.parts())
        .err();
    assert_eq!(
        fault,
        Some(Fault::Incomplete("header:ok-access-sign".to_owned()))
    );
}

#[test]
fn the_nonce_of_kraken_is_replaced_where_it_stands_in_json_too() {
    let form = judged()
        .into_iter()
        .find(|judged| judged.recipe == "kraken")
        .unwrap();
    let recipe = form.recipe();
    let content = r#"{"nonce": 1616492376594, "price": 37500.10, "a": {"nonce": 1}}"#;
    // Signed by the published rule, which the other tests hold against the published number.
    let message =
        [&hash::Hash::Sha256.of(format!("1616492376594{content}").as_bytes())[..]].concat();
    let text = [b"/0/private/AddOrder", &message[..]].concat();
    let key = filter::Filter::Unbase64
        .apply(form.parts["secret"].as_bytes(), "")
        .unwrap();
    let sign = filter::Filter::Base64
        .apply(&MacHash::Sha512.of(&key, &text), "")
        .unwrap();
    let mut json = form.clone();
    json.content = content.to_owned();
    json.headers
        .insert("API-Sign".to_owned(), String::from_utf8(sign).unwrap());
    json.headers
        .insert("Content-Type".to_owned(), "application/json".to_owned());
    let mut head = json.head();
    head.fields
        .insert("content-length", HeaderValue::from(content.len()));
    let verified = json
        .verified(&head, &json.content(), &json.parts())
        .unwrap();
    let signed = recipe
        .sign(
            verified,
            &mut head,
            Some(json.content()),
            &json.parts(),
            now(),
            &NONCE,
        )
        .unwrap();
    let rewritten = signed.content.unwrap();
    assert_eq!(
        rewritten,
        r#"{"nonce": 1900000000000000, "price": 37500.10, "a": {"nonce": 1}}"#
    );
    assert_eq!(head.fields["content-length"], rewritten.len().to_string());
}

#[test]
fn two_signatures_or_halves_of_one_are_refused() {
    let binance = judged()
        .into_iter()
        .find(|judged| judged.recipe == "binance-hmac")
        .unwrap();
    let mut twice = binance.clone();
    twice.url.push_str("&signature=00");
    assert!(matches!(
        twice.recipe().claim(&twice.head()),
        Err(Fault::Ambiguous(_))
    ));
    // Once in the query and once in the form: found when the content is read.
    let mut both = binance.clone();
    both.content = "signature=00".to_owned();
    both.headers.insert(
        "Content-Type".to_owned(),
        "application/x-www-form-urlencoded".to_owned(),
    );
    let fault = both
        .verified(&both.head(), &both.content(), &both.parts())
        .err();
    assert_eq!(fault, Some(Fault::Ambiguous("form:signature".to_owned())));
    // RFC 9421: a label of its own for each field is no signature.
    let mut labels = judged()
        .into_iter()
        .find(|judged| judged.judge.ends_with("(B.2.6)"))
        .unwrap();
    let signature = labels.headers["Signature"].replace("sig-b26", "other");
    labels.headers.insert("Signature".to_owned(), signature);
    assert!(matches!(
        labels.recipe().claim(&labels.head()),
        Err(Fault::Malformed(_))
    ));
}

#[test]
fn content_that_must_be_seen_is_asked_for() {
    let kraken = judged()
        .into_iter()
        .find(|judged| judged.recipe == "kraken")
        .unwrap();
    let claim = kraken.recipe().claim(&kraken.head()).unwrap().unwrap();
    let fault = kraken
        .recipe()
        .verify(claim, &kraken.head(), None, &kraken.parts())
        .err();
    assert_eq!(fault, Some(Fault::Content));
}

#[test]
fn another_scheme_in_authorization_is_nobodys_signature() {
    let judged = judged()
        .into_iter()
        .find(|judged| judged.recipe == "tencent-tc3")
        .unwrap();
    let mut other = judged.clone();
    other
        .headers
        .insert("Authorization".to_owned(), "Bearer abc".to_owned());
    assert!(other.recipe().claim(&other.head()).unwrap().is_none());
    other.headers.insert(
        "Authorization".to_owned(),
        "TC3-HMAC-SHA256 Credential=x".to_owned(),
    );
    assert!(matches!(
        other.recipe().claim(&other.head()),
        Err(Fault::Malformed(_))
    ));
}

#[test]
fn a_phantom_is_in_its_place_wherever_a_part_stands_or_is_read_from() {
    let slots = |name: &str| {
        preset(name)
            .unwrap()
            .slots()
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert!(slots("oauth1").contains("header:authorization"));
    assert!(slots("http-signature-hmac").contains("header:signature-input"));
    assert!(slots("alibaba-rpc").contains("query:AccessKeyId"));
    assert!(!slots("kraken").contains("header:api-sign"));
}

#[test]
fn the_rest_of_a_target_stays_byte_for_byte() {
    let sas = judged()
        .into_iter()
        .find(|judged| judged.recipe == "azure-blob-sas")
        .unwrap();
    let mut strange = sas.clone();
    strange.url = format!("{}&tags[]=a%7e%2f&x=%c3%a9", sas.url);
    let mut head = strange.head();
    let before = head.target.clone();
    let verified = strange
        .verified(&head, &strange.content(), &strange.parts())
        .unwrap();
    strange
        .recipe()
        .sign(verified, &mut head, None, &strange.parts(), now(), &NONCE)
        .unwrap();
    let rest = |target: &RequestTarget| {
        let kept = place::without(target.query().unwrap().as_bytes(), "sig");
        (target.path().to_owned(), place::without(&kept, "se"))
    };
    assert_eq!(rest(&head.target), rest(&before));
    assert!(head.target.query().unwrap().contains("tags[]="));
}

#[test]
fn a_time_is_put_back_where_a_service_takes_none_ahead_of_its_own() {
    let cos = judged()
        .into_iter()
        .find(|judged| judged.recipe == "tencent-cos")
        .unwrap();
    let mut head = cos.head();
    let verified = cos.verified(&head, &cos.content(), &cos.parts()).unwrap();
    cos.recipe()
        .sign(verified, &mut head, None, &cos.parts(), now(), &NONCE)
        .unwrap();
    let written = head.fields["authorization"].to_str().unwrap();
    // The client's own expiry is nearer than five minutes from now.
    assert!(written.contains("&q-sign-time=1899999940;"), "{written}");
    assert!(written.contains("&q-key-time=1899999940;"), "{written}");
}

#[test]
fn a_private_key_is_told_from_a_shared_one() {
    let key_of = |name: &str| {
        preset(name)
            .unwrap()
            .parts()
            .iter()
            .find_map(|part| part.key_of)
    };
    assert_eq!(key_of("coinbase-cdp-ed25519"), Some(Algorithm::Ed25519));
    assert_eq!(key_of("http-signature-ed25519"), Some(Algorithm::Ed25519));
    assert_eq!(key_of("kraken"), None);
}

/// A token with one foreign claim, but signed with the right key.
fn token_with(judged: &Judged, field: &str, claim: &str, value: Json) -> RequestHead {
    let mut head = judged.head();
    let (protected, mut claims) = token(&head, field);
    assert!(!claims[claim].is_null(), "{claim}");
    claims[claim] = value;
    let coded = |json: &Json| {
        let text = filter::Filter::Base64Url.apply(json.to_string().as_bytes(), "");
        String::from_utf8(text.unwrap()).unwrap()
    };
    let text = format!("{}.{}", coded(&protected), coded(&claims));
    let key = judged.parts["secret"].as_bytes();
    let signature = judged
        .recipe()
        .algorithm
        .sign(key, text.as_bytes())
        .unwrap();
    let signature = filter::Filter::Base64Url.apply(&signature, "").unwrap();
    let scheme = if field == "authorization" {
        "Bearer "
    } else {
        ""
    };
    let value = format!("{scheme}{text}.{}", String::from_utf8(signature).unwrap());
    head.fields.insert(
        HeaderName::from_bytes(field.as_bytes()).unwrap(),
        HeaderValue::from_str(&value).unwrap(),
    );
    head
}

#[test]
fn a_token_for_another_request_is_refused_though_its_signature_is_right() {
    for (recipe, field, claims) in [
        ("coinbase-cdp-ecdsa", "authorization", &["uri", "sub"][..]),
        ("coinbase-cdp-ed25519", "authorization", &["uri", "sub"]),
        ("dpop-es256", "dpop", &["htm", "htu", "ath"]),
    ] {
        // The last has all claims.
        let judged = judged()
            .into_iter()
            .rfind(|judged| judged.recipe == recipe)
            .unwrap();
        for claim in claims {
            let head = token_with(&judged, field, claim, "GET another.example/".into());
            let fault = judged
                .verified(&head, &judged.content(), &judged.parts())
                .err();
            assert_eq!(
                fault,
                Some(Fault::Forbidden((*claim).to_owned())),
                "{recipe}"
            );
        }
        let time = if recipe == "dpop-es256" { "iat" } else { "nbf" };
        let head = token_with(&judged, field, time, 1_000_000.into());
        let verified = judged
            .verified(&head, &judged.content(), &judged.parts())
            .unwrap();
        assert_eq!(
            verified.time(),
            Some(UNIX_EPOCH + Duration::from_secs(1_000_000))
        );
    }
    let cdp = judged()
        .into_iter()
        .find(|judged| judged.recipe.contains("cdp"))
        .unwrap();
    let head = token_with(&cdp, "authorization", "exp", 1_000_000.into());
    let verified = cdp.verified(&head, &cdp.content(), &cdp.parts()).unwrap();
    assert_eq!(
        verified.ends(),
        Some(UNIX_EPOCH + Duration::from_secs(1_000_000))
    );
}

#[test]
fn a_target_is_verified_as_the_client_wrote_it_and_signed_as_it_is_sent() {
    let text = r#"
name = "plain"
title = "Plain"
source = "here"
[part.secret]
role = "secret"
[sign]
algorithm = "hmac-sha256"
key = "{secret}"
text = "{method} {target}"
[[place]]
at = ["header:x-sign"]
value = "{signature|hex}"
"#;
    let recipe = Recipe::load(text).unwrap();
    let sign = |key: &str, target: &str| {
        let mac = MacHash::named("hmac-sha256").unwrap();
        let signature = mac.of(key.as_bytes(), format!("GET {target}").as_bytes());
        HeaderValue::from_bytes(&filter::Filter::Hex.apply(&signature, "").unwrap()).unwrap()
    };
    let (phantom, real) = (
        Parts::new([("secret", &b"phantom"[..])]),
        Parts::new([("secret", &b"real"[..])]),
    );
    for (written, signed, taken) in [
        ("/%7euser/a%2db?x=%7e", "/%7euser/a%2db?x=%7e", true),
        ("/%7euser/a%2db?x=%7e", "/~user/a-b?x=~", true),
        ("/a/../b", "/a/../b", true),
        ("/%7euser", "/%7Euser", false),
        ("/%7euser?x=1", "/%7euser?x=2", false),
    ] {
        let mut head = judged().remove(0).head();
        head.method = Method::GET;
        head.target = RequestTarget::parse(written.as_bytes(), EncodedSlash::Keep).unwrap();
        head.fields.insert("x-sign", sign("phantom", signed));
        let claim = recipe.claim(&head).unwrap().unwrap();
        let verified = recipe.verify(claim, &head, None, &phantom);
        assert_eq!(verified.is_ok(), taken, "{written} signed as {signed}");
        let Ok(verified) = verified else { continue };
        recipe
            .sign(verified, &mut head, None, &real, now(), &NONCE)
            .unwrap();
        let sent = head.target.path_and_query().as_str();
        assert_eq!(head.fields["x-sign"], sign("real", sent), "{sent}");
    }
}
