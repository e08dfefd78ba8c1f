//! What pins permit, and what they do not.

use super::super::action::Reading;
use super::super::endpoint::OwnStyle;
use super::*;
use crate::message::{Authority, EncodedSlash, Host, Origin, RequestTarget, Scheme};
use http::{HeaderMap, Version};
use proptest::prelude::*;

fn head(host: &str, method: &str, target: &str, fields: &[(&str, &str)]) -> RequestHead {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        map.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    RequestHead {
        method: Method::from_bytes(method.as_bytes()).unwrap(),
        origin: Origin {
            scheme: Scheme::Https,
            authority: Authority {
                host: Host::parse(host.as_bytes()).unwrap(),
                port: 443,
            },
        },
        target: RequestTarget::parse(target.as_bytes(), EncodedSlash::Keep).unwrap(),
        fields: map,
        version: Version::HTTP_11,
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn judge_at(endpoint: &Endpoint, pins: Pins, head: &RequestHead, form: &str) -> Result<(), OutOfScope> {
    let scope = Scope::new(pins).unwrap();
    let action = match Action::read(endpoint, head).unwrap() {
        Reading::Known(action) => action,
        Reading::Form(pending) => pending.finish(form.as_bytes()).unwrap(),
    };
    scope.permits_action(endpoint, head, &action)?;
    scope.permits_content(endpoint, head, form.as_bytes())
}

fn judge(pins: Pins, method: &str, host: &str, target: &str, fields: &[(&str, &str)], form: &str) -> String {
    let head = head(host, method, target, fields);
    let endpoint = Endpoint::of(&head.origin.authority.host).unwrap();
    match judge_at(&endpoint, pins, &head, form) {
        Ok(()) => "ok".to_owned(),
        Err(refused) => refused.reason().to_owned(),
    }
}

const S3: &str = "s3.us-east-1.amazonaws.com";
const OWN: &str = "111122223333";
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

fn actions(pins: &[&str]) -> Pins {
    Pins {
        actions: texts(pins),
        ..Pins::default()
    }
}

fn buckets(pins: &[&str]) -> Pins {
    Pins {
        buckets: texts(pins),
        ..Pins::default()
    }
}

fn accounts(pins: &[&str]) -> Pins {
    Pins {
        accounts: texts(pins),
        ..Pins::default()
    }
}

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
        let asked = Asked {
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
        place(eu(), "s3.eu-west-1.amazonaws.com", "s3", &["eu-west-1"], false),
        Ok(())
    );
    assert!(place(eu(), "s3.us-east-1.amazonaws.com", "s3", &["us-east-1"], false).is_err());
    // The old global host takes any region, and so the pin decides.
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
    assert!(!partition("aws-cn", "sqs.us-east-1.amazonaws.com", "us-east-1"));
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
fn actions_are_pinned_by_name() {
    let get = |pins: Pins, target: &str| judge(pins, "GET", S3, target, &[], "");
    assert_eq!(get(actions(&["s3:Get*"]), "/bucket/key"), "ok");
    assert_eq!(get(actions(&["s3:Get*"]), "/bucket"), "sigv4_action");
    assert_eq!(get(actions(&["s3:*Object"]), "/bucket/key"), "ok");
    assert_eq!(get(actions(&["s3:*Object"]), "/bucket/key?acl"), "sigv4_action");
    assert_eq!(get(actions(&["s3:*"]), "/bucket/key?newthing"), "sigv4_action");
    assert_eq!(get(Pins::default(), "/bucket/key?newthing"), "ok");
    assert!(matches("a*b*c", "axbxc") && matches("a*", "a") && matches("*", "x:y"));
    assert!(!matches("a*b*c", "axcxb") && !matches("a*a", "a"));
}

#[test]
fn what_returns_credentials_is_denied_until_it_is_named() {
    let sts = |pins: Pins, action: &str| {
        judge(
            pins,
            "POST",
            "sts.amazonaws.com",
            "/",
            &[FORM],
            &format!("Action={action}"),
        )
    };
    assert_eq!(sts(Pins::default(), "GetCallerIdentity"), "ok");
    assert_eq!(sts(Pins::default(), "AssumeRole"), "sigv4_action");
    assert_eq!(sts(actions(&["sts:*"]), "AssumeRole"), "sigv4_action");
    assert_eq!(sts(Pins::default(), "NewThing"), "sigv4_action");
    let named = Pins {
        credential_actions: texts(&["sts:AssumeRole"]),
        ..Pins::default()
    };
    assert_eq!(sts(named.clone(), "AssumeRole"), "ok");
    assert_eq!(sts(named, "GetSessionToken"), "sigv4_action");
    assert_eq!(
        judge(
            Pins::default(),
            "GET",
            S3,
            "/data--use1-az4--x-s3?session",
            &[],
            ""
        ),
        "sigv4_action"
    );
}

#[test]
fn a_request_without_a_signature_gets_no_credentials_either() {
    let unsigned = |method: &str, host: &str, target: &str, fields: &[(&str, &str)]| {
        let head = head(host, method, target, fields);
        let endpoint = Endpoint::of(&head.origin.authority.host).unwrap();
        let reading = Action::read(&endpoint, &head).unwrap();
        let scope = Scope::new(Pins {
            credential_actions: texts(&["cognito-identity:GetOpenIdToken"]),
            ..Pins::default()
        });
        scope.unwrap().permits_unsigned(&reading).is_ok()
    };
    assert!(!unsigned("POST", "sts.amazonaws.com", "/", &[FORM]));
    assert!(!unsigned(
        "GET",
        "sts.amazonaws.com",
        "/?Action=AssumeRoleWithWebIdentity",
        &[]
    ));
    let portal = "portal.sso.us-east-1.amazonaws.com";
    assert!(!unsigned(
        "GET",
        portal,
        "/federation/credentials?role_name=r&account_id=1",
        &[]
    ));
    assert!(unsigned("GET", portal, "/assignment/accounts", &[]));
    let identity = "cognito-identity.us-east-1.amazonaws.com";
    let json = ("content-type", "application/x-amz-json-1.1");
    let target = |name: &'static str| ("x-amz-target", name);
    let credentials = target("AWSCognitoIdentityService.GetCredentialsForIdentity");
    assert!(!unsigned("POST", identity, "/", &[credentials, json]));
    let named = target("AWSCognitoIdentityService.GetOpenIdToken");
    assert!(unsigned("POST", identity, "/", &[named, json]));
    assert!(unsigned("GET", S3, "/bucket/key", &[]));
    assert!(unsigned("GET", S3, "/bucket/key?newthing", &[]));
}

#[test]
fn no_parameter_and_no_host_makes_a_credential_of_a_store_an_unknown_request() {
    let own = |style: OwnStyle<'_>, method: &str, target: &str| {
        let endpoint = Endpoint::own("s3", "us-east-1", style);
        let head = head("store.test", method, target, &[FORM]);
        judge_at(&endpoint, Pins::default(), &head, "").is_ok()
    };
    let session = |target: &str| {
        let host = "bucket--use1-az4--x-s3.s3express-use1-az4.us-east-1.amazonaws.com";
        judge(Pins::default(), "GET", host, target, &[], "")
    };
    for target in [
        "/?session",
        "/?session&x=1&y=2",
        "/?Session",
        "/?sess%69on&new",
        "/key?session&new",
    ] {
        assert_eq!(session(target), "sigv4_action", "{target}");
    }
    assert_eq!(session("/?newthing"), "ok");
    let (path, host) = (OwnStyle::Path, OwnStyle::VirtualHost("bucket"));
    for (style, method, target) in [
        (path, "POST", "/"),
        (path, "PUT", "/minio/admin/v3/set-user-status"),
        (host, "PUT", "/minio/admin/v3/set-user-status"),
        (host, "GET", "/m%69nio/admin/v3/list-users"),
        (path, "POST", "/bucket/key"),
        (host, "POST", "/"),
        (host, "POST", "/key?Action=AssumeRole"),
        (path, "GET", "/admin/user?uid=root"),
        (host, "GET", "/admin/metadata/user?key=root"),
    ] {
        assert!(!own(style, method, target), "{method} {target}");
    }
    for (style, method, target) in [
        (path, "POST", "/bucket/key?uploads"),
        (path, "GET", "/bucket?list-type=2&metadata=true"),
        (path, "GET", "/bucket/minio/key"),
        (host, "GET", "/a/minio"),
        (path, "PUT", "/admin/key"),
    ] {
        assert!(own(style, method, target), "{method} {target}");
    }
}

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
        ("GET", "/shared?list-type=2&prefix=te", &[], "sigv4_resource"),
        ("GET", "/shared?list-type=2", &[], "sigv4_resource"),
        ("HEAD", "/shared", &[], "ok"),
        ("GET", "/shared?policy", &[], "sigv4_resource"),
        ("POST", "/shared?delete", &[], "sigv4_resource"),
        ("PUT", "/mine/a", &[("x-amz-copy-source", "mine/b")], "ok"),
        ("PUT", "/mine/a", &[("x-amz-copy-source", "shared/team/b")], "ok"),
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
        // The canonical target resolves dot segments; the verbatim one of S3 does not, and its keys are looked at as they are.
        let verdict = judge(pins(), method, S3, target, fields, "");
        assert_eq!(verdict, expected, "{method} {target} {fields:?}");
    }
    let twice = "/mine/a?prefix=x&prefix=y";
    let head = head(S3, "GET", twice, &[]);
    let endpoint = Endpoint::of(&head.origin.authority.host).unwrap();
    assert!(Action::read(&endpoint, &head).is_err());
    let host = "attacker.s3.us-east-1.amazonaws.com";
    assert_eq!(judge(pins(), "PUT", host, "/mine/x", &[], ""), "sigv4_resource");
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

#[test]
fn a_pinned_account_is_told_to_s3() {
    let scope = Scope::new(accounts(&[OWN])).unwrap();
    let additions = |method: &str, target: &str, fields: &[(&str, &str)]| {
        let head = head(S3, method, target, fields);
        let endpoint = Endpoint::of(&head.origin.authority.host).unwrap();
        let Ok(Reading::Known(action)) = Action::read(&endpoint, &head) else {
            panic!("the head says it");
        };
        let added = scope.additions(&action);
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
        additions("PUT", "/bucket/key", &[("x-amz-expected-bucket-owner", OWN)]),
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
    // In a request that is no URL of its own, a parameter binds S3 to nothing.
    assert_eq!(
        additions("GET", "/bucket/key?X-Amz-Expected-Bucket-Owner=111122223333", &[]),
        owner
    );
    assert_eq!(
        additions("PUT", "/bucket/key", &[("x-amz-copy-source", "a-b/c")]),
        format!("{owner} x-amz-source-expected-bucket-owner=111122223333")
    );
    let put =
        |pins: &[&str], fields: &[(&str, &str)]| judge(accounts(pins), "PUT", S3, "/bucket/key", fields, "");
    assert_eq!(put(&[OWN], &[]), "ok");
    assert_eq!(
        put(&[OWN], &[("x-amz-expected-bucket-owner", "999999999999")]),
        "sigv4_resource"
    );
    // With two accounts the client must say which.
    assert_eq!(put(&[OWN, "444455556666"], &[]), "sigv4_resource");
    assert_eq!(
        put(
            &[OWN, "444455556666"],
            &[("x-amz-expected-bucket-owner", "444455556666")]
        ),
        "ok"
    );
    // The key with which it is encrypted may not be a stranger's; what is kept with the object may say anything.
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

/// A service that is in no table has no action that a pin could name, and AWS's own hosts do not have it.
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
    assert_eq!(stranger, Err(OutOfScope::Account("999999999999".to_owned())));
    let pinned = |services: &[&str]| Pins {
        services: texts(services),
        own_services: texts(&["store"]),
        ..Pins::default()
    };
    let asked = Asked {
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

#[test]
fn a_strangers_resource_is_refused_wherever_it_is_named() {
    let json = |kind: &'static str| ("content-type", kind);
    let dynamo = |content: &str| {
        let fields = [
            ("x-amz-target", "DynamoDB_20120810.PutItem"),
            json("application/x-amz-json-1.0"),
        ];
        let host = "dynamodb.us-east-1.amazonaws.com";
        judge(accounts(&[OWN]), "POST", host, "/", &fields, content)
    };
    assert_eq!(dynamo(r#"{"TableName":"t"}"#), "ok");
    assert_eq!(
        dynamo(r#"{"TableName":"arn:aws:dynamodb:us-east-1:999999999999:table/t"}"#),
        "sigv4_resource"
    );
    assert_eq!(dynamo("\u{0}"), "sigv4_resource");
    let sns = |form: &str| {
        judge(
            accounts(&[OWN]),
            "POST",
            "sns.us-east-1.amazonaws.com",
            "/",
            &[FORM],
            form,
        )
    };
    assert_eq!(
        sns("Action=Publish&TopicArn=arn:aws:sns:us-east-1:111122223333:t"),
        "ok"
    );
    assert_eq!(
        sns("Action=Publish&TopicArn=arn:aws:sns:us-east-1:999999999999:t"),
        "sigv4_resource"
    );
    let quicksight = |account: &str| {
        let target = format!("/accounts/{account}/dashboards");
        let host = "quicksight.us-east-1.amazonaws.com";
        judge(accounts(&[OWN]), "GET", host, &target, &[], "")
    };
    assert_eq!(quicksight(OWN), "ok");
    assert_eq!(quicksight("999999999999"), "sigv4_resource");
    let lambda = |target: &str, kind: &'static str, content: &str| {
        let host = "lambda.us-east-1.amazonaws.com";
        judge(accounts(&[OWN]), "POST", host, target, &[json(kind)], content)
    };
    let name = "/2015-03-31/functions/999999999999:function:f/invocations";
    assert_eq!(lambda(name, "application/json", "{}"), "sigv4_resource");
    let mapped = r#"{"FunctionName":"\u0061rn:aws:lambda:us-east-1:999999999999:function:f"}"#;
    let map = "/2015-03-31/event-source-mappings";
    for kind in [
        "application/json",
        "application/x-www-form-urlencoded",
        "text/xml",
    ] {
        assert_eq!(lambda(map, kind, mapped), "sigv4_resource", "{kind}");
    }
    assert_eq!(lambda(map, "application/json", r#"{"FunctionName":"f"}"#), "ok");
    let control = [("x-amz-account-id", OWN), ("x-amz-account-id", "999999999999")];
    let host = "s3-control.us-east-1.amazonaws.com";
    assert_eq!(
        judge(accounts(&[OWN]), "GET", host, "/v20180820/jobs/x", &control, ""),
        "sigv4_resource"
    );
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
            // As the canonical target has it, which is what is sent.
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
    let Ok(Reading::Known(action)) = Action::read(&endpoint, &head) else {
        return Err(OutOfScope::BucketHidden);
    };
    Scope::new(buckets(&["mine/in/"]))
        .unwrap()
        .permits_action(&endpoint, &head, &action)
}
