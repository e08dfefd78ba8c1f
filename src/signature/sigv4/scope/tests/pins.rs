//! What pins say, and where a signature holds.

use super::*;

#[test]
fn every_mistake_in_pins_is_named() {
    let wrong = Pins {
        partitions: texts(&["aws", "aws-mars"]),
        regions: texts(&["eu-west-1", "auto", "*", "EU West", ""]),
        services: texts(&[
            "s3",
            "bedrock",
            "bedrock-runtime",
            "s3express",
            "nothing",
            "store",
        ]),
        own_services: texts(&["store"]),
        accounts: texts(&[OWN, "1234"]),
        buckets: texts(&["my-bucket", "my-bucket/a/b", "/x", "b"]),
        actions: texts(&["s3:Get*", "*:Get*", "s3:ListBucket", "S3:GetObject"]),
        credential_actions: texts(&["sts:AssumeRole", "sts:GetCallerIdentity", "sts:*"]),
    };
    let named: Vec<String> = Scope::new(wrong)
        .unwrap_err()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(named.len(), 12 - 1, "{named:#?}");
    assert!(named[0].contains("aws-mars"));
    assert!(Scope::new(Pins::default()).is_ok());
}

#[test]
fn a_signature_is_for_the_hosts_service_and_region_and_for_pinned_ones() {
    let place = |pins: Pins, host: &str, service: &str, regions: &[&str], set: bool| {
        let endpoint = Endpoint::of(&Host::parse(host.as_bytes()).unwrap()).unwrap();
        let asked = SignedFor {
            service,
            regions,
            set,
        };
        Scope::new(pins)
            .unwrap()
            .permits_place(&endpoint, &asked)
            .map_err(|e| e.to_string())
    };
    let eu = || Pins {
        regions: texts(&["eu-west-1"]),
        ..Pins::default()
    };
    assert_eq!(
        place(
            eu(),
            "s3.eu-west-1.amazonaws.com",
            "s3",
            &["eu-west-1"],
            false
        ),
        Ok(())
    );
    assert!(
        place(
            eu(),
            "s3.us-east-1.amazonaws.com",
            "s3",
            &["us-east-1"],
            false
        )
        .is_err()
    );
    // The old global host accepts any region, so the pin decides.
    assert_eq!(
        place(eu(), "b-1.s3.amazonaws.com", "s3", &["eu-west-1"], false),
        Ok(())
    );
    assert!(place(eu(), "b-1.s3.amazonaws.com", "s3", &["us-east-1"], false).is_err());
    // The scope of another service on a bucket's host (J01).
    assert!(place(Pins::default(), S3, "sts", &["us-east-1"], false).is_err());
    assert!(place(Pins::default(), S3, "s3", &["eu-west-1"], false).is_err());
    let service = |pins: &[&str], host: &str, service: &str| {
        let pins = Pins {
            services: texts(pins),
            ..Pins::default()
        };
        place(pins, host, service, &["us-east-1"], false).is_ok()
    };
    assert!(service(
        &["bedrock"],
        "bedrock-runtime.us-east-1.amazonaws.com",
        "bedrock"
    ));
    assert!(service(
        &["bedrock-runtime"],
        "bedrock-runtime.us-east-1.amazonaws.com",
        "bedrock"
    ));
    assert!(!service(
        &["bedrock-runtime"],
        "bedrock.us-east-1.amazonaws.com",
        "bedrock"
    ));
    assert!(!service(&["s3"], "sts.amazonaws.com", "sts"));
    let partition = |pin: &str, host: &str, region: &str| {
        let pins = Pins {
            partitions: texts(&[pin]),
            ..Pins::default()
        };
        place(pins, host, "sqs", &[region], false).is_ok()
    };
    assert!(partition(
        "aws-cn",
        "sqs.cn-north-1.amazonaws.com.cn",
        "cn-north-1"
    ));
    assert!(!partition(
        "aws-cn",
        "sqs.us-east-1.amazonaws.com",
        "us-east-1"
    ));
    assert!(!partition(
        "aws",
        "sqs.us-gov-west-1.amazonaws.com",
        "us-gov-west-1"
    ));
    // All regions at once (J13).
    let point = "m.mrap.accesspoint.s3-global.amazonaws.com";
    assert!(place(Pins::default(), point, "s3", &["*"], true).is_err());
    let all = || Pins {
        regions: texts(&["*"]),
        ..Pins::default()
    };
    assert_eq!(place(all(), point, "s3", &["*"], true), Ok(()));
    assert_eq!(place(eu(), point, "s3", &["eu-west-1"], true), Ok(()));
    assert!(place(eu(), point, "s3", &["eu-west-1", "us-east-1"], true).is_err());
    // An account in the host.
    let control = "999999999999.s3-control.us-east-1.amazonaws.com";
    assert!(place(accounts(&[OWN]), control, "s3", &["us-east-1"], false).is_err());
}

#[test]
fn a_pinned_account_is_told_to_s3() {
    let scope = Scope::new(accounts(&[OWN])).unwrap();
    let additions = |method: &str, target: &str, fields: &[(&str, &str)]| {
        let head = head(S3, method, target, fields);
        let endpoint = Endpoint::of(&head.origin.authority.host).unwrap();
        let Ok(Lookup::Known(action)) = Action::read(&endpoint, &head) else {
            panic!("the head says it");
        };
        let added = scope.additions(&endpoint, &action, None).unwrap();
        added
            .iter()
            .map(|(name, value)| format!("{name}={}", value.to_str().unwrap()))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let owner = "x-amz-expected-bucket-owner=111122223333";
    assert_eq!(additions("PUT", "/bucket/key", &[]), owner);
    assert_eq!(additions("GET", "/", &[]), "");
    assert_eq!(
        additions(
            "PUT",
            "/bucket/key",
            &[("x-amz-expected-bucket-owner", OWN)]
        ),
        ""
    );
    assert_eq!(
        additions(
            "GET",
            "/bucket/key?X-Amz-Expected-Bucket-Owner=111122223333&X-Amz-Signature=0",
            &[]
        ),
        ""
    );
    // In a request that is not a presigned URL, a parameter has no effect on S3.
    assert_eq!(
        additions(
            "GET",
            "/bucket/key?X-Amz-Expected-Bucket-Owner=111122223333",
            &[]
        ),
        owner
    );
    assert_eq!(
        additions("PUT", "/bucket/key", &[("x-amz-copy-source", "a-b/c")]),
        format!("{owner} x-amz-source-expected-bucket-owner=111122223333")
    );
    let put = |pins: &[&str], fields: &[(&str, &str)]| {
        judge(accounts(pins), "PUT", S3, "/bucket/key", fields, "")
    };
    assert_eq!(put(&[OWN], &[]), "ok");
    assert_eq!(
        put(&[OWN], &[("x-amz-expected-bucket-owner", "999999999999")]),
        "sigv4_resource"
    );
    // With two accounts the client must choose one.
    assert_eq!(put(&[OWN, "444455556666"], &[]), "sigv4_resource");
    assert_eq!(
        put(
            &[OWN, "444455556666"],
            &[("x-amz-expected-bucket-owner", "444455556666")]
        ),
        "ok"
    );
    // The encryption key may not be a stranger's; metadata stored with the object may say anything.
    let strange = "arn:aws:kms:us-east-1:999999999999:key/k";
    let key = "x-amz-server-side-encryption-aws-kms-key-id";
    assert_eq!(put(&[OWN], &[(key, strange)]), "sigv4_resource");
    assert_eq!(
        put(&[OWN], &[(key, &strange.replace('9', "1"))]),
        "sigv4_resource"
    );
    assert_eq!(
        put(&[OWN], &[(key, "arn:aws:kms:us-east-1:111122223333:key/k")]),
        "ok"
    );
    assert_eq!(put(&[OWN], &[("x-amz-meta-owner", "999999999999")]), "ok");
    let rename = [("x-amz-rename-source", "/other")];
    assert_eq!(
        judge(
            accounts(&[OWN]),
            "PUT",
            S3,
            "/bucket/key?renameObject",
            &rename,
            ""
        ),
        "sigv4_resource"
    );
    let own = Endpoint::own("s3", "auto", OwnStyle::Path);
    let refused = judge_at(
        &own,
        accounts(&[OWN]),
        &head("r2.test", "GET", "/bucket/key", &[]),
        "",
    );
    assert_eq!(refused, Err(OutOfScope::BucketOwner));
}

/// A service in no table has no action that a pin could name, and AWS's own hosts do not serve it.
#[test]
fn an_own_service_that_no_table_has_is_signed_for_unless_actions_are_pinned() {
    let own = Endpoint::own("store", "here", OwnStyle::Service);
    let judged = |pins: Pins, method: &str, target: &str, fields: &[(&str, &str)]| {
        judge_at(&own, pins, &head("store.test", method, target, fields), "")
    };
    let form = [("content-type", "application/x-www-form-urlencoded")];
    for (method, target, fields) in [
        ("GET", "/", &[][..]),
        ("DELETE", "/a/b?c=d", &[]),
        ("POST", "/?Action=AssumeRole&Action=x", &form),
        ("POST", "/", &[("x-amz-target", "Any.Thing")]),
    ] {
        assert_eq!(
            judged(Pins::default(), method, target, fields),
            Ok(()),
            "{target}"
        );
        assert_eq!(
            judged(actions(&["s3:*"]), method, target, fields),
            Err(OutOfScope::UnknownAction),
            "{target}"
        );
    }
    let stranger = judged(accounts(&[OWN]), "GET", "/999999999999/x", &[]);
    assert_eq!(
        stranger,
        Err(OutOfScope::account("999999999999", Where::Target))
    );
    let pinned = |services: &[&str]| Pins {
        services: texts(services),
        own_services: texts(&["store"]),
        ..Pins::default()
    };
    let asked = SignedFor {
        service: "store",
        regions: &["here"],
        set: false,
    };
    let place = |pins: Pins| Scope::new(pins).unwrap().permits_place(&own, &asked);
    assert_eq!(place(pinned(&["store"])), Ok(()));
    assert_eq!(place(pinned(&["s3"])), Err(OutOfScope::Service));
    let aws = Endpoint::of(&Host::parse(b"polly.us-east-1.amazonaws.com").unwrap()).unwrap();
    assert!(Scope::default().permits_place(&aws, &asked).is_err());
    let unsigned = Action::read(&own, &head("store.test", "GET", "/", &[])).unwrap();
    assert_eq!(Scope::default().permits_unsigned(&unsigned), Ok(()));
}
