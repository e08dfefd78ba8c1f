//! What pins permit, and what they do not.

use super::super::action::Reading;
use super::super::endpoint::OwnStyle;
use super::*;
use gateway_message::{Authority, EncodedSlash, Host, Origin, RequestTarget, Scheme};
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

fn judge_at(
    endpoint: &Endpoint,
    pins: Pins,
    head: &RequestHead,
    form: &str,
) -> Result<(), OutOfScope> {
    let scope = Scope::new(pins).unwrap();
    let action = match Action::read(endpoint, head).unwrap() {
        Reading::Known(action) => action,
        Reading::Form(pending) => pending.finish(form.as_bytes()).unwrap(),
    };
    scope.permits_action(endpoint, head, &action)?;
    scope.permits_content(endpoint, head, &action, form.as_bytes())
}

fn judge(
    pins: Pins,
    method: &str,
    host: &str,
    target: &str,
    fields: &[(&str, &str)],
    form: &str,
) -> String {
    let head = head(host, method, target, fields);
    let endpoint = Endpoint::of(&head.origin.authority.host).unwrap();
    match judge_at(&endpoint, pins, &head, form) {
        Ok(()) => "ok".to_owned(),
        Err(refused) => refused.reason().as_str().to_owned(),
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
fn actions_are_pinned_by_name() {
    let get = |pins: Pins, target: &str| judge(pins, "GET", S3, target, &[], "");
    assert_eq!(get(actions(&["s3:Get*"]), "/bucket/key"), "ok");
    assert_eq!(get(actions(&["s3:Get*"]), "/bucket"), "sigv4_action");
    assert_eq!(get(actions(&["s3:*Object"]), "/bucket/key"), "ok");
    assert_eq!(
        get(actions(&["s3:*Object"]), "/bucket/key?acl"),
        "sigv4_action"
    );
    assert_eq!(
        get(actions(&["s3:*"]), "/bucket/key?newthing"),
        "sigv4_action"
    );
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

#[test]
fn a_pinned_account_is_told_to_s3() {
    let scope = Scope::new(accounts(&[OWN])).unwrap();
    let additions = |method: &str, target: &str, fields: &[(&str, &str)]| {
        let head = head(S3, method, target, fields);
        let endpoint = Endpoint::of(&head.origin.authority.host).unwrap();
        let Ok(Reading::Known(action)) = Action::read(&endpoint, &head) else {
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
        judge(
            accounts(&[OWN]),
            "POST",
            host,
            target,
            &[json(kind)],
            content,
        )
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
    assert_eq!(
        lambda(map, "application/json", r#"{"FunctionName":"f"}"#),
        "ok"
    );
    let control = [
        ("x-amz-account-id", OWN),
        ("x-amz-account-id", "999999999999"),
    ];
    let host = "s3-control.us-east-1.amazonaws.com";
    assert_eq!(
        judge(
            accounts(&[OWN]),
            "GET",
            host,
            "/v20180820/jobs/x",
            &control,
            ""
        ),
        "sigv4_resource"
    );
}

const STRANGER: &str = "999999999999";
const KEY: &str = "777788889999";

/// M12: a pin requires what S3 itself requires a further permission for.
#[test]
fn a_field_that_asks_for_more_needs_its_own_action() {
    let put = |pins: &[&str], target: &str, fields: &[(&str, &str)]| {
        judge(actions(pins), "PUT", S3, target, fields, "")
    };
    assert_eq!(put(&["s3:PutObject"], "/bucket/key", &[]), "ok");
    for (field, value, asked) in [
        ("x-amz-acl", "public-read", "s3:PutObjectAcl"),
        ("x-amz-acl", "private", "s3:PutObjectAcl"),
        ("x-amz-grant-read", "id=x", "s3:PutObjectAcl"),
        ("x-amz-grant-full-control", "id=x", "s3:PutObjectAcl"),
        ("x-amz-grant-anything", "id=x", "s3:PutObjectAcl"),
        ("x-amz-tagging", "a=b", "s3:PutObjectTagging"),
        (
            "x-amz-object-lock-mode",
            "COMPLIANCE",
            "s3:PutObjectRetention",
        ),
        (
            "x-amz-object-lock-retain-until-date",
            "2099-01-01T00:00:00Z",
            "s3:PutObjectRetention",
        ),
        (
            "x-amz-object-lock-legal-hold",
            "ON",
            "s3:PutObjectLegalHold",
        ),
        (
            "x-amz-website-redirect-location",
            "https://evil.example",
            "s3:PutBucketWebsite",
        ),
        (
            "x-amz-server-side-encryption-aws-kms-key-id",
            "k",
            "kms:GenerateDataKey",
        ),
    ] {
        // A name in no table is refused in any case.
        let refused = if field.ends_with("anything") {
            "sigv4_resource"
        } else {
            "ok"
        };
        let target = format!("/bucket/key?{field}={}", value.replace('/', "%2F"));
        let folded = target.replace("x-amz", "X-Amz");
        for (target, fields) in [
            ("/bucket/key", &[(field, value)][..]),
            (&target, &[]),
            (&folded, &[]),
        ] {
            assert_eq!(
                put(&["s3:PutObject"], target, fields),
                "sigv4_action",
                "{target} {fields:?}"
            );
            assert_eq!(
                put(&["s3:PutObject", asked], target, fields),
                refused,
                "{target} {fields:?}"
            );
        }
    }
    let copy = [("x-amz-copy-source", "a-b/c")];
    assert_eq!(
        put(&["s3:CopyObject"], "/bucket/key", &copy),
        "sigv4_action"
    );
    assert_eq!(
        put(&["s3:CopyObject", "s3:GetObject"], "/bucket/key", &copy),
        "ok"
    );
    for (method, target, fields, pins, asked) in [
        (
            "DELETE",
            "/bucket/key?versionId=1",
            &[][..],
            "s3:DeleteObject",
            "s3:DeleteObjectVersion",
        ),
        (
            "GET",
            "/bucket/key?versionId=1",
            &[],
            "s3:GetObject",
            "s3:GetObjectVersion",
        ),
        (
            "DELETE",
            "/bucket/key",
            &[("x-amz-bypass-governance-retention", "true")],
            "s3:DeleteObject",
            "s3:BypassGovernanceRetention",
        ),
        (
            "POST",
            "/bucket?delete",
            &[("x-amz-bypass-governance-retention", "true")],
            "s3:DeleteObjects",
            "s3:BypassGovernanceRetention",
        ),
        (
            "POST",
            "/bucket/key?uploads",
            &[("x-amz-acl", "private")],
            "s3:CreateMultipartUpload",
            "s3:PutObjectAcl",
        ),
        (
            "PUT",
            "/bucket",
            &[("x-amz-acl", "private")],
            "s3:CreateBucket",
            "s3:PutBucketAcl",
        ),
        (
            "PUT",
            "/bucket",
            &[("x-amz-grant-write", "id=x")],
            "s3:CreateBucket",
            "s3:PutBucketAcl",
        ),
        (
            "PUT",
            "/bucket",
            &[("x-amz-object-ownership", "ObjectWriter")],
            "s3:CreateBucket",
            "s3:PutBucketOwnershipControls",
        ),
        (
            "PUT",
            "/bucket",
            &[("x-amz-bucket-object-lock-enabled", "true")],
            "s3:CreateBucket",
            "s3:PutObjectLockConfiguration",
        ),
    ] {
        assert_eq!(
            judge(actions(&[pins]), method, S3, target, fields, ""),
            "sigv4_action",
            "{method} {target}"
        );
        assert_eq!(
            judge(actions(&[pins, asked]), method, S3, target, fields, ""),
            "ok",
            "{method} {target}"
        );
    }
}

/// M13: a store may have a vendor field that unpacks, copies or deletes beside the key that was
/// judged.
#[test]
fn beside_pins_only_known_fields_are_taken() {
    let own = Endpoint::own("s3", "us-east-1", OwnStyle::Path);
    let aws = Endpoint::of(&Host::parse(S3.as_bytes()).unwrap()).unwrap();
    let sent = |endpoint: &Endpoint, pins: Pins, target: &str, fields: &[(&str, &str)]| {
        judge_at(
            endpoint,
            pins,
            &head("store.test", "PUT", target, fields),
            "",
        )
        .map_err(|why| why.reason().as_str())
    };
    let pinned = || [buckets(&["shared/in/"]), actions(&["s3:PutObject"])];
    let key = "/shared/in/x.tar";
    for name in [
        "x-amz-meta-snowball-auto-extract",
        "x-amz-meta-minio-snowball-prefix",
        "x-amz-meta-minio-snowball-ignore-dirs",
        "x-amz-newthing",
    ] {
        for endpoint in [&own, &aws] {
            for pins in pinned() {
                assert_eq!(
                    sent(endpoint, pins, key, &[(name, "true")]),
                    Err("sigv4_resource"),
                    "{name}"
                );
            }
            assert_eq!(
                sent(endpoint, Pins::default(), key, &[(name, "true")]),
                Ok(()),
                "{name}"
            );
        }
        let target = format!("{key}?{name}=true");
        for pins in pinned() {
            assert!(sent(&own, pins, &target, &[]).is_err(), "{name}");
        }
    }
    for name in [
        "x-minio-extract",
        "x-minio-force-delete",
        "x-minio-source-mtime",
        "x-minio-replication-actual-object-size",
        "x-rustfs-force-delete",
        "x-rgw-object-count",
        "x-goog-acl",
        "x-goog-copy-source",
        "x-oss-copy-source",
        "x-cos-acl",
        "x-obs-acl",
        "x-copy-from",
        "x-object-manifest",
        "x-delete-at",
        "cf-create-bucket-if-missing",
    ] {
        for pins in pinned() {
            assert_eq!(
                sent(&own, pins, key, &[(name, "true")]),
                Err("sigv4_resource"),
                "{name}"
            );
        }
        assert_eq!(
            sent(&own, Pins::default(), key, &[(name, "true")]),
            Ok(()),
            "{name}"
        );
    }
    for target in [
        "/shared/in/a?x-minio-extract=true",
        "/shared/in/a?extract=true",
        "/shared/in/a?x-new",
    ] {
        for pins in pinned() {
            assert!(sent(&own, pins, target, &[]).is_err(), "{target}");
        }
    }
    for (target, fields) in [
        (
            key,
            &[
                ("x-amz-meta-note", "a"),
                ("user-agent", "x"),
                ("x-amz-storage-class", "STANDARD"),
            ][..],
        ),
        (
            "/shared/in/a?x-id=PutObject",
            &[("amz-sdk-request", "attempt=1"), ("content-md5", "x")],
        ),
    ] {
        for pins in pinned() {
            assert_eq!(sent(&own, pins, target, fields), Ok(()), "{target}");
        }
    }
}

/// H3: with pinned accounts a bucket's settings are searched, and objects are not.
#[test]
fn what_opens_a_bucket_to_a_stranger_is_refused() {
    let id = "79a59df900b949e55d96a1e698fbacedfd6e09d98eacf8f8d5218e7cd47ef2be";
    let sent = |pins: &[&str], target: &str, fields: &[(&str, &str)], content: &str| {
        judge(accounts(pins), "PUT", S3, target, fields, content)
    };
    let policy = |principal: &str| {
        format!(
            r#"{{"Statement":[{{"Effect":"Allow","Principal":{principal},"Action":"s3:GetObject","Resource":"arn:aws:s3:::bucket/*"}}]}}"#
        )
    };
    let replication = |bucket: &str, account: &str| {
        format!(
            "<ReplicationConfiguration><Role>arn:aws:iam::{OWN}:role/r</Role><Rule><Destination><Bucket>arn:aws:s3:::{bucket}</Bucket>\
             <Account>{account}</Account></Destination></Rule></ReplicationConfiguration>"
        )
    };
    let acl = |id: &str| {
        format!(
            "<AccessControlPolicy><Grant><Grantee><ID>{id}</ID></Grantee></Grant></AccessControlPolicy>"
        )
    };
    let block = |value: &str| {
        format!(
            "<PublicAccessBlockConfiguration><BlockPublicAcls>TRUE</BlockPublicAcls><IgnorePublicAcls>true</IgnorePublicAcls>\
             <BlockPublicPolicy>{value}</BlockPublicPolicy><RestrictPublicBuckets>true</RestrictPublicBuckets></PublicAccessBlockConfiguration>"
        )
    };
    let guarded = block("true");
    for (target, content, expected) in [
        (
            "/bucket?policy",
            policy(&format!(r#"{{"AWS":"{OWN}"}}"#)),
            "ok",
        ),
        (
            "/bucket?policy",
            policy(&format!(r#"{{"AWS":"arn:aws:iam::{STRANGER}:root"}}"#)),
            "sigv4_resource",
        ),
        ("/bucket?policy", policy(r#""*""#), "sigv4_resource"),
        (
            "/bucket?policy",
            policy(&format!(r#"{{"CanonicalUser":"{id}"}}"#)),
            "sigv4_resource",
        ),
        ("/bucket?policy", "<a/>".to_owned(), "sigv4_resource"),
        ("/bucket?replication", replication("bucket", OWN), "ok"),
        (
            "/bucket?replication",
            replication("bucket", STRANGER),
            "sigv4_resource",
        ),
        (
            "/bucket?replication",
            replication("theirs", OWN),
            "sigv4_resource",
        ),
        ("/bucket?acl", acl(id), "sigv4_resource"),
        ("/bucket/key?acl", acl(id), "sigv4_resource"),
        (
            "/bucket?logging",
            "<B><LoggingEnabled><TargetBucket>theirs</TargetBucket></LoggingEnabled></B>"
                .to_owned(),
            "sigv4_resource",
        ),
        (
            "/bucket?notification",
            format!("<N><Topic>arn:aws:sns:us-east-1:{STRANGER}:t</Topic></N>"),
            "sigv4_resource",
        ),
        (
            "/bucket?inventory&id=x",
            format!("<I><AccountId>{STRANGER}</AccountId></I>"),
            "sigv4_resource",
        ),
        ("/bucket?tagging", "{}".to_owned(), "sigv4_resource"),
        ("/bucket?publicAccessBlock", guarded.clone(), "ok"),
        (
            "/bucket?publicAccessBlock",
            block("false"),
            "sigv4_resource",
        ),
        (
            "/bucket?publicAccessBlock",
            guarded.replace("<IgnorePublicAcls>true</IgnorePublicAcls>", ""),
            "sigv4_resource",
        ),
        (
            "/bucket/key",
            format!(r#"{{"Principal":"*","x":"{STRANGER}"}}"#),
            "ok",
        ),
        (
            "/bucket/key?partNumber=1&uploadId=x",
            STRANGER.to_owned(),
            "ok",
        ),
    ] {
        assert_eq!(
            sent(&[OWN], target, &[], &content),
            expected,
            "{target} {content}"
        );
    }
    assert_eq!(
        sent(
            &[OWN, id],
            "/bucket?acl",
            &[("x-amz-expected-bucket-owner", OWN)],
            &acl(id)
        ),
        "ok"
    );
    assert_eq!(sent(&[id, OWN], "/bucket/key", &[], ""), "ok");
    let coded = [("content-encoding", "gzip")];
    assert_eq!(
        sent(&[OWN], "/bucket?tagging", &coded, "<a/>"),
        "sigv4_resource"
    );
    for (field, value, expected) in [
        ("x-amz-acl", "private", "ok"),
        ("x-amz-acl", "bucket-owner-full-control", "ok"),
        ("x-amz-acl", "public-read", "sigv4_resource"),
        ("x-amz-acl", "public-read-write", "sigv4_resource"),
        ("x-amz-acl", "authenticated-read", "sigv4_resource"),
        (
            "x-amz-grant-read",
            &format!("id=\"{id}\""),
            "sigv4_resource",
        ),
        (
            "x-amz-grant-read",
            "emailAddress=\"a@b.example\"",
            "sigv4_resource",
        ),
        (
            "x-amz-grant-read",
            "uri=\"http://acs.amazonaws.com/groups/global/AllUsers\"",
            "sigv4_resource",
        ),
        (
            "x-amz-tagging",
            &format!("owner={STRANGER}"),
            "sigv4_resource",
        ),
    ] {
        assert_eq!(
            sent(&[OWN], "/bucket/key", &[(field, value)], ""),
            expected,
            "{field}: {value}"
        );
        let escaped =
            percent_encoding::utf8_percent_encode(value, percent_encoding::NON_ALPHANUMERIC);
        let target = format!("/bucket/key?{field}={escaped}");
        assert_eq!(sent(&[OWN], &target, &[], ""), expected, "{target}");
    }
    let removal = |host: &str, target: &str| {
        judge(
            accounts(&[OWN]),
            "DELETE",
            host,
            target,
            &[("x-amz-account-id", OWN)],
            "",
        )
    };
    assert_eq!(removal(S3, "/bucket?publicAccessBlock"), "sigv4_resource");
    let control = "s3-control.us-east-1.amazonaws.com";
    assert_eq!(
        removal(control, "/v20180820/configuration/publicAccessBlock"),
        "sigv4_resource"
    );
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
        let Ok(Reading::Known(action)) = Action::read(&endpoint, &head) else {
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
    let Ok(Reading::Known(action)) =
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

/// Variants of the known ways: each names a stranger, everybody or a bucket that is not pinned,
/// unless `change` makes it name what is.
fn tried(change: &dyn Fn(&str) -> String) -> Vec<String> {
    let pins = || Pins {
        buckets: texts(&["mine"]),
        ..accounts(&[OWN])
    };
    let json = |host: &str, target: &str, content: &str| {
        let host = format!("{host}.us-east-1.amazonaws.com");
        let fields = [
            ("x-amz-target", target),
            ("content-type", "application/x-amz-json-1.1"),
        ];
        judge(pins(), "POST", &host, "/", &fields, &change(content))
    };
    let form = |host: &str, content: &str| {
        let host = match host {
            "iam" => "iam.amazonaws.com".to_owned(),
            host => format!("{host}.us-east-1.amazonaws.com"),
        };
        judge(pins(), "POST", &host, "/", &[FORM], &change(content))
    };
    let rest = |host: &str, method: &str, target: &str, content: &str| {
        let host = format!("{host}.us-east-1.amazonaws.com");
        judge(
            pins(),
            method,
            &host,
            &change(target),
            &[("content-type", "application/json")],
            &change(content),
        )
    };
    let s3 = |method: &str, target: &str, content: &str| {
        judge(pins(), method, S3, &change(target), &[], &change(content))
    };
    let open = r#"{\"Statement\":[{\"Effect\":\"Allow\",\"Principal\":\"*\"}]}"#;
    let theirs =
        r#"{\"Statement\":[{\"Effect\":\"Allow\",\"Principal\":{\"AWS\":\"999999999999\"}}]}"#;
    let escaped = "%7B%22Effect%22%3A%22Allow%22%2C%22Principal%22%3A%22%2A%22%7D";
    let with = |member: &str, policy: &str| format!(r#"{{"x":"y","{member}":"{policy}"}}"#);
    let hosts = |method: &str, host: &str, target: &str| {
        judge(pins(), method, &change(host), target, &[], "")
    };
    vec![
        json("kms", "TrentService.CreateKey", &with("Policy", theirs)),
        json(
            "kms",
            "TrentService.CreateGrant",
            r#"{"GranteePrincipal":"arn:aws:iam::999999999999:root"}"#,
        ),
        json(
            "secretsmanager",
            "secretsmanager.PutResourcePolicy",
            &with("ResourcePolicy", open),
        ),
        json(
            "secretsmanager",
            "secretsmanager.ReplicateSecretToRegions",
            r#"{"AddReplicaRegions":[{"KmsKeyId":"arn:aws:kms:r:999999999999:key/k"}]}"#,
        ),
        json(
            "dynamodb",
            "DynamoDB_20120810.PutResourcePolicy",
            &with("Policy", theirs),
        ),
        json(
            "dynamodb",
            "DynamoDB_20120810.ExportTableToPointInTime",
            r#"{"S3Bucket":"theirs"}"#,
        ),
        json(
            "dynamodb",
            "DynamoDB_20120810.BatchExecuteStatement",
            r#"{"Statements":[{"Statement":"INSERT INTO \"arn:aws:dynamodb:r:999999999999:table/t\""}]}"#,
        ),
        json(
            "dynamodb",
            "DynamoDB_20120810.BatchWriteItem",
            r#"{"RequestItems":{"arn:aws:dynamodb:r:999999999999:table/t":[{"PutRequest":{"Item":{}}}]}}"#,
        ),
        json(
            "kinesis",
            "Kinesis_20131202.PutResourcePolicy",
            &with("Policy", theirs),
        ),
        json(
            "kinesis",
            "Kinesis_20131202.PutRecord",
            r#"{"StreamARN":"arn:aws:kinesis:r:999999999999:stream/s","Data":"x"}"#,
        ),
        json(
            "firehose",
            "Firehose_20150804.CreateDeliveryStream",
            r#"{"S3DestinationConfiguration":{"BucketARN":"arn:aws:s3:::theirs"}}"#,
        ),
        json(
            "logs",
            "Logs_20140328.PutResourcePolicy",
            &with("policyDocument", theirs),
        ),
        json(
            "logs",
            "Logs_20140328.PutDestinationPolicy",
            &with("accessPolicy", open),
        ),
        json(
            "logs",
            "Logs_20140328.PutSubscriptionFilter",
            r#"{"destinationArn":"arn:aws:logs:r:999999999999:destination:d"}"#,
        ),
        json(
            "logs",
            "Logs_20140328.CreateExportTask",
            r#"{"destination":"s3://theirs/x"}"#,
        ),
        json(
            "events",
            "AWSEvents.PutPermission",
            r#"{"Principal":"999999999999"}"#,
        ),
        json("events", "AWSEvents.PutPermission", r#"{"Principal":"*"}"#),
        json(
            "events",
            "AWSEvents.PutTargets",
            r#"{"Targets":[{"Arn":"arn:aws:events:r:999999999999:event-bus/b"}]}"#,
        ),
        json(
            "ssm",
            "AmazonSSM.ModifyDocumentPermission",
            r#"{"AccountIdsToAdd":["999999999999"]}"#,
        ),
        json(
            "ssm",
            "AmazonSSM.ModifyDocumentPermission",
            r#"{"AccountIdsToAdd":["All"]}"#,
        ),
        json(
            "ecr",
            "AmazonEC2ContainerRegistry_V20150921.SetRepositoryPolicy",
            &with("policyText", open),
        ),
        json(
            "glue",
            "AWSGlue.PutResourcePolicy",
            &with("PolicyInJson", theirs),
        ),
        json(
            "athena",
            "AmazonAthena.StartQueryExecution",
            r#"{"ResultConfiguration":{"OutputLocation":"s3://theirs/"}}"#,
        ),
        json(
            "cloudtrail",
            "CloudTrail_20131101.CreateTrail",
            r#"{"S3BucketName":"theirs"}"#,
        ),
        json(
            "sqs",
            "AmazonSQS.AddPermission",
            r#"{"AWSAccountIds":["*"]}"#,
        ),
        json(
            "organizations",
            "AWSOrganizationsV20161128.InviteAccountToOrganization",
            r#"{"Target":{"Id":"999999999999"}}"#,
        ),
        form("sqs", "Action=AddPermission&AWSAccountId.1=999999999999"),
        form(
            "sqs",
            &format!(
                "Action=SetQueueAttributes&Attribute.1.Name=Policy&Attribute.1.Value={escaped}"
            ),
        ),
        form("sns", "Action=AddPermission&AWSAccountId.member.1=*"),
        form(
            "sns",
            &format!("Action=SetTopicAttributes&AttributeName=Policy&AttributeValue={escaped}"),
        ),
        form(
            "iam",
            &format!("Action=CreateRole&AssumeRolePolicyDocument={escaped}"),
        ),
        form(
            "iam",
            "Action=UpdateAssumeRolePolicy&PolicyDocument=%7B%22Effect%22%3A%22Allow%22%2C%22Principal%22%3A%7B%22Federated%22%3A%22accounts.google.com%22%7D%7D",
        ),
        form(
            "ec2",
            "Action=ModifyImageAttribute&Version=2016-11-15&LaunchPermission.Add.1.UserId=9999-9999-9999",
        ),
        form(
            "ec2",
            "Action=CreateVpcPeeringConnection&Version=2016-11-15&PeerOwnerId=999999999999",
        ),
        form(
            "ec2",
            "Action=ModifyVpcEndpointServicePermissions&Version=2016-11-15&AddAllowedPrincipals.1=*",
        ),
        form(
            "ec2",
            "Action=CreateStoreImageTask&Version=2016-11-15&Bucket=theirs",
        ),
        form(
            "rds",
            "Action=ModifyDBClusterSnapshotAttribute&Version=2014-10-31&ValuesToAdd.member.1=999999999999",
        ),
        form(
            "rds",
            "Action=StartExportTask&Version=2014-10-31&S3BucketName=theirs",
        ),
        form(
            "redshift",
            "Action=AuthorizeSnapshotAccess&Version=2012-12-01&AccountWithRestoreAccess=999999999999",
        ),
        form(
            "cloudformation",
            "Action=SetStackPolicy&StackPolicyBody=%7B%22Principal%22%3A%22*%22%2C%22Effect%22%3A%22Allow%22%7D",
        ),
        rest(
            "lambda",
            "POST",
            "/2018-10-31/layers/l/versions/1/policy",
            r#"{"Principal":"*"}"#,
        ),
        rest(
            "lambda",
            "PUT",
            "/2021-10-31/functions/f/url",
            r#"{"AuthType":"NONE"}"#,
        ),
        rest(
            "lambda",
            "POST",
            "/2015-03-31/functions/999999999999%3Afunction%3Af/invocations",
            "{}",
        ),
        rest(
            "ram",
            "POST",
            "/createresourceshare",
            r#"{"principals":["999999999999"]}"#,
        ),
        rest(
            "elasticfilesystem",
            "PUT",
            "/2015-02-01/file-systems/f/policy",
            &with("Policy", theirs),
        ),
        rest(
            "backup",
            "PUT",
            "/backup-vaults/v/access-policy",
            &with("Policy", open),
        ),
        rest(
            "batch",
            "POST",
            "/v1/submitjob",
            r#"{"jobQueue":"arn:aws:batch:r:999999999999:job-queue/q"}"#,
        ),
        s3(
            "PUT",
            "/mine?replication",
            "<R><Bucket>arn:aws:s3:::theirs</Bucket></R>",
        ),
        s3(
            "PUT",
            "/mine?inventory&id=x",
            "<I><S3BucketDestination><Bucket>arn:aws:s3:::theirs</Bucket></S3BucketDestination></I>",
        ),
        s3(
            "PUT",
            "/mine?analytics&id=x",
            "<A><Bucket>arn:aws:s3:::theirs</Bucket></A>",
        ),
        s3(
            "POST",
            "/mine/key?restore",
            "<R><OutputLocation><S3><BucketName>theirs</BucketName></S3></OutputLocation></R>",
        ),
        s3(
            "PUT",
            "/mine?policy",
            r#"{"Effect":"Allow","NotPrincipal":{"AWS":"111122223333"}}"#,
        ),
        s3("POST", "/theirs?delete", ""),
        s3("POST", "/theirs/key?uploadId=x", ""),
        hosts("PUT", "theirs.s3.amazonaws.com", "/mine/key"),
        hosts(
            "PUT",
            "theirs.s3.dualstack.us-east-1.amazonaws.com",
            "/mine/key",
        ),
        hosts("PUT", "theirs.s3-fips.us-east-1.amazonaws.com", "/mine/key"),
        hosts("PUT", "theirs.s3-accelerate.amazonaws.com", "/mine/key"),
        hosts(
            "GET",
            "alias.mrap.accesspoint.s3-global.amazonaws.com",
            "/key",
        ),
        hosts(
            "GET",
            "p-111122223333.s3-object-lambda.us-east-1.amazonaws.com",
            "/key",
        ),
        hosts(
            "GET",
            "p-111122223333.op-1.s3-outposts.us-east-1.amazonaws.com",
            "/key",
        ),
        judge(
            pins(),
            "PUT",
            "s3-control.us-east-1.amazonaws.com",
            "/v20180820/accesspoint/p/policy",
            &[("x-amz-account-id", STRANGER)],
            "",
        ),
    ]
}

#[test]
fn no_sibling_of_a_known_way_is_signed() {
    let refused = tried(&str::to_owned);
    assert!(refused.len() >= 60, "{}", refused.len());
    let signed = |(at, verdict): (usize, &String)| (verdict != "sigv4_resource").then_some(at);
    let signed: Vec<usize> = refused.iter().enumerate().filter_map(signed).collect();
    assert!(signed.is_empty(), "of those that were tried: {signed:?}");
    // The same for pinned resources is signed, except the last four, whose bucket is unknown.
    let known = |text: &str| {
        let pairs = [
            (STRANGER, OWN),
            ("9999-9999-9999", "1111-2222-3333"),
            ("theirs", "mine"),
            (
                "accounts.google.com",
                "arn:aws:iam::111122223333:saml-provider/x",
            ),
            ("NotPrincipal", "Principal"),
            ("NONE", "AWS_IAM"),
            ("All\"", "111122223333\""),
            ("*", OWN),
            ("%2A", OWN),
            ("theirs.", "mine."),
        ];
        pairs
            .iter()
            .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    };
    let own = tried(&known);
    let refused = |(at, verdict): (usize, &String)| (verdict != "ok").then_some(at);
    let refused: Vec<usize> = own.iter().enumerate().filter_map(refused).collect();
    assert_eq!(refused, (own.len() - 4..own.len()).collect::<Vec<_>>());
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
    let Ok(Reading::Known(action)) = Action::read(&endpoint, &head) else {
        return Err(OutOfScope::BucketHidden);
    };
    Scope::new(buckets(&["mine/in/"]))
        .unwrap()
        .permits_action(&endpoint, &head, &action)
}
