//! Buckets, prefixes and their owners.

use super::*;
use proptest::prelude::*;

#[test]
fn buckets_and_prefixes_hold_for_keys_listings_and_sources() {
    let pins = || buckets(&["mine", "shared/team/"]);
    for (method, target, fields, expected) in [
        ("GET", "/mine/any/key", &[][..], "ok"),
        ("PUT", "/attacker/x", &[], "sigv4_resource"),
        ("GET", "/", &[], "sigv4_resource"),
        ("GET", "/mine?policy", &[], "ok"),
        ("POST", "/mine?delete", &[], "ok"),
        ("GET", "/shared/team/a", &[], "ok"),
        ("GET", "/shared/te%61m%2Fa", &[], "ok"),
        ("GET", "/shared/teams", &[], "sigv4_resource"),
        ("GET", "/shared/other", &[], "sigv4_resource"),
        ("GET", "/shared/team/%2e./other", &[], "sigv4_resource"),
        ("GET", "/shared?list-type=2&prefix=team/a", &[], "ok"),
        (
            "GET",
            "/shared?list-type=2&prefix=te",
            &[],
            "sigv4_resource",
        ),
        ("GET", "/shared?list-type=2", &[], "sigv4_resource"),
        ("HEAD", "/shared", &[], "ok"),
        ("GET", "/shared?policy", &[], "sigv4_resource"),
        ("POST", "/shared?delete", &[], "sigv4_resource"),
        ("PUT", "/mine/a", &[("x-amz-copy-source", "mine/b")], "ok"),
        (
            "PUT",
            "/mine/a",
            &[("x-amz-copy-source", "shared/team/b")],
            "ok",
        ),
        (
            "PUT",
            "/mine/a",
            &[("x-amz-copy-source", "shared/other")],
            "sigv4_resource",
        ),
        (
            "PUT",
            "/mine/a",
            &[("x-amz-copy-source", "attacker/b")],
            "sigv4_resource",
        ),
        (
            "PUT",
            "/mine/a",
            &[(
                "x-amz-copy-source",
                "arn:aws:s3:us-east-1:111122223333:accesspoint/p/object/k",
            )],
            "sigv4_resource",
        ),
    ] {
        // The canonical target resolves dot segments; the verbatim one of S3 does not, and its keys
        // are checked as they are.
        let verdict = judge(pins(), method, S3, target, fields, "");
        assert_eq!(verdict, expected, "{method} {target} {fields:?}");
    }
    let twice = "/mine/a?prefix=x&prefix=y";
    let head = head(S3, "GET", twice, &[]);
    let endpoint = Endpoint::of(&head.origin.authority.host).unwrap();
    assert!(Action::read(&endpoint, &head).is_err());
    let host = "attacker.s3.us-east-1.amazonaws.com";
    assert_eq!(
        judge(pins(), "PUT", host, "/mine/x", &[], ""),
        "sigv4_resource"
    );
    let point = "p-111122223333.s3-accesspoint.us-east-1.amazonaws.com";
    assert_eq!(judge(pins(), "GET", point, "/x", &[], ""), "sigv4_resource");
    let control = "111122223333.s3-control.us-east-1.amazonaws.com";
    assert_eq!(
        judge(pins(), "GET", control, "/v20180820/jobs/x", &[], ""),
        "sigv4_resource"
    );
}

#[test]
fn a_bare_plus_is_not_taken_for_either_of_its_readings_under_a_prefix() {
    let get = |target: &str| judge(buckets(&["mine/a b/"]), "GET", S3, target, &[], "");
    assert_eq!(get("/mine/a%20b/x"), "ok");
    assert_eq!(get("/mine/a+b/x"), "sigv4_resource");
    assert_eq!(get("/mine/a%20b/x+y"), "sigv4_resource");
}

/// Row 18: if nothing says which buckets are meant, they are those of the key's account.
#[test]
fn a_bucket_is_the_key_owners_where_none_is_named() {
    let added = |pins: Pins,
                 host: &str,
                 method: &str,
                 target: &str,
                 fields: &[(&str, &str)],
                 key: Option<&str>| {
        let head = head(host, method, target, fields);
        let endpoint = Endpoint::of(&head.origin.authority.host).unwrap();
        let Ok(Lookup::Known(action)) = Action::read(&endpoint, &head) else {
            panic!("the head says it");
        };
        let added = Scope::new(pins).unwrap().additions(&endpoint, &action, key);
        added.map(|fields| {
            let fields = fields
                .iter()
                .map(|(name, value)| format!("{name}={}", value.to_str().unwrap()));
            fields.collect::<Vec<_>>().join(" ")
        })
    };
    let (owner, source) = (
        "x-amz-expected-bucket-owner",
        "x-amz-source-expected-bucket-owner",
    );
    let own = format!("{owner}={KEY}");
    let usual = |method: &str, target: &str, fields: &[(&str, &str)]| {
        added(Pins::default(), S3, method, target, fields, Some(KEY)).unwrap()
    };
    assert_eq!(usual("PUT", "/bucket/key", &[]), own);
    assert_eq!(usual("GET", "/bucket", &[]), own);
    // It does no harm where S3's model has no such field, and where the operation is in no table.
    assert_eq!(usual("PUT", "/bucket/key?newthing=1", &[]), own);
    assert_eq!(usual("GET", "/", &[]), "");
    assert_eq!(usual("PUT", "/bucket", &[]), "");
    assert_eq!(usual("PUT", "/bucket/key", &[(owner, KEY)]), "");
    let copy = [("x-amz-copy-source", "a-b/c")];
    assert_eq!(
        usual("PUT", "/bucket/key", &copy),
        format!("{own} {source}={KEY}")
    );
    for fields in [[(owner, STRANGER)], [(source, STRANGER)]] {
        assert!(
            added(
                Pins::default(),
                S3,
                "PUT",
                "/bucket/key",
                &fields,
                Some(KEY)
            )
            .is_err()
        );
    }
    let point = format!("p-{STRANGER}.s3-accesspoint.us-east-1.amazonaws.com");
    assert!(added(Pins::default(), &point, "GET", "/key", &[], Some(KEY)).is_err());
    let point = point.replace(STRANGER, KEY);
    assert_eq!(
        added(Pins::default(), &point, "GET", "/key", &[], Some(KEY)).unwrap(),
        own
    );
    // An operator who names buckets, or any account, means it; and a key that does not encode its
    // account is not guessed at.
    for pins in [buckets(&["bucket"]), accounts(&["*"])] {
        assert_eq!(
            added(
                pins,
                S3,
                "PUT",
                "/bucket/key",
                &[(owner, STRANGER)],
                Some(KEY)
            )
            .unwrap(),
            ""
        );
    }
    assert_eq!(
        added(Pins::default(), S3, "PUT", "/bucket/key", &[], None).unwrap(),
        ""
    );
    let pinned = added(accounts(&[OWN]), S3, "PUT", "/bucket/key", &[], Some(KEY)).unwrap();
    assert_eq!(pinned, format!("{owner}={OWN}"));
    let store = Endpoint::own("s3", "auto", OwnStyle::Path);
    let Ok(Lookup::Known(action)) =
        Action::read(&store, &head("r2.test", "PUT", "/bucket/key", &[]))
    else {
        panic!("the head says it");
    };
    assert_eq!(
        Scope::default().additions(&store, &action, Some(KEY)),
        Ok(Vec::new())
    );
    assert!(Scope::new(accounts(&["*", OWN])).is_err());
}

proptest! {
    /// A key that a prefix does not cover is never permitted, however it is escaped.
    #[test]
    fn no_escaping_leaves_a_prefix(key in "[a-z/.]{1,12}", mask in 0_u32..4096) {
        let raw: String = key.bytes().enumerate().map(|(i, b)| {
            if mask >> (i % 12) & 1 == 1 { format!("%{b:02X}") } else { char::from(b).to_string() }
        }).collect();
        let text = format!("/mine/{raw}");
        if let Ok(target) = RequestTarget::parse(text.as_bytes(), EncodedSlash::Keep) {
            // In the form of the canonical target, which is what is sent.
            let sent = percent_encoding::percent_decode_str(&target.path()[1..]).decode_utf8().unwrap().into_owned();
            let verdict = judge_target(target);
            let inside = sent.strip_prefix("mine/").is_some_and(|key| key.starts_with("in/"));
            prop_assert!(verdict.is_err() || inside, "{sent}");
        }
    }
}

fn judge_target(target: RequestTarget) -> Result<(), OutOfScope> {
    let head = RequestHead {
        target,
        ..head(S3, "GET", "/", &[])
    };
    let endpoint = Endpoint::of(&head.origin.authority.host).unwrap();
    let Ok(Lookup::Known(action)) = Action::read(&endpoint, &head) else {
        return Err(OutOfScope::BucketHidden);
    };
    Scope::new(buckets(&["mine/in/"]))
        .unwrap()
        .permits_action(&endpoint, &head, &action)
}
