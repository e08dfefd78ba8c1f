//! Which action a request asks for.

use super::*;
use gateway_message::{Authority, EncodedSlash, Host, Origin, RequestTarget, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
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

fn read(
    host: &str,
    method: &str,
    target: &str,
    fields: &[(&str, &str)],
) -> Result<Lookup, ActionFault> {
    let head = head(host, method, target, fields);
    let endpoint = Endpoint::of(&head.origin.authority.host).unwrap();
    Action::read(&endpoint, &head)
}

/// The name of the action, with the form if it determines it, or the refusal.
fn named(host: &str, method: &str, target: &str, fields: &[(&str, &str)], form: &str) -> String {
    match read(host, method, target, fields) {
        Err(fault) => format!("!{fault:?}"),
        Ok(Lookup::Known(action)) => action.name().to_string(),
        Ok(Lookup::Form(pending)) => match pending.finish(form.as_bytes()) {
            Ok(action) => action.name().to_string(),
            Err(fault) => format!("!{fault:?}"),
        },
    }
}

const DYNAMO: &str = "dynamodb.us-east-1.amazonaws.com";
const STS: &str = "sts.us-east-1.amazonaws.com";
const FORM: (&str, &str) = (
    "content-type",
    "application/x-www-form-urlencoded; charset=utf-8",
);
const JSON: (&str, &str) = ("content-type", "application/x-amz-json-1.0");

#[test]
fn a_target_names_the_operation_of_json_protocols() {
    let get = ("x-amz-target", "DynamoDB_20120810.GetItem");
    assert_eq!(
        named(DYNAMO, "POST", "/", &[get, JSON], ""),
        "dynamodb:GetItem"
    );
    for (target, fields) in [
        ("/", &[get, get, JSON][..]),
        ("/", &[get, FORM]),
        ("/?Action=PutItem", &[get, JSON]),
        ("/?action=PutItem", &[get, JSON]),
        ("/?X-Amz-Target=DynamoDB_20120810.PutItem", &[get, JSON]),
        ("/?x-amz-target=DynamoDB_20120810.PutItem", &[JSON]),
        ("/other", &[get, JSON]),
        ("/", &[get, ("content-type", "Application/X-Amz-Json-1.0")]),
        ("/", &[get, JSON, JSON]),
        (
            "/",
            &[
                get,
                ("content-type", "application/x-amz-json-1.0; charset=utf-16"),
            ],
        ),
        ("/", &[get, JSON, ("smithy-protocol", "rpc-v2-cbor")]),
        (
            "/service/DynamoDB_20120810/operation/PutItem",
            &[get, JSON, ("smithy-protocol", "rpc-v2-cbor")],
        ),
    ] {
        assert_eq!(
            named(DYNAMO, "POST", target, fields, ""),
            "!Ambiguous",
            "{target} {fields:?}"
        );
    }
    assert_eq!(named(DYNAMO, "GET", "/", &[get, JSON], ""), "!Ambiguous");
    for strange in [
        "DynamoDB_20120810.getitem",
        "dynamodb_20120810.GetItem",
        "GetItem",
        "AmazonSQS.SendMessage",
        ".",
    ] {
        let target = ("x-amz-target", strange);
        assert_eq!(
            named(DYNAMO, "POST", "/", &[target, JSON], ""),
            "dynamodb:?",
            "{strange}"
        );
    }
}

#[test]
fn a_form_or_query_names_the_operation_of_the_query_protocol() {
    let post = |target: &str, form: &str| named(STS, "POST", target, &[FORM], form);
    assert_eq!(
        post("/", "Action=AssumeRole&Version=2011-06-15"),
        "sts:AssumeRole"
    );
    assert_eq!(
        post("/?Action=GetCallerIdentity", "Version=2011-06-15"),
        "sts:GetCallerIdentity"
    );
    assert_eq!(post("/", "%41ction=Assume%52ole"), "sts:AssumeRole");
    assert_eq!(
        named(
            STS,
            "GET",
            "/?Action=GetCallerIdentity&Version=2011-06-15",
            &[],
            ""
        ),
        "sts:GetCallerIdentity"
    );
    assert_eq!(
        named(STS, "POST", "/?Action=GetCallerIdentity", &[], ""),
        "sts:GetCallerIdentity"
    );
    assert_eq!(
        named(
            "ec2.us-east-1.amazonaws.com",
            "POST",
            "/",
            &[FORM],
            "Action=RunInstances"
        ),
        "ec2:RunInstances"
    );
    assert_eq!(
        named(
            "rds.us-east-1.amazonaws.com",
            "POST",
            "/",
            &[FORM],
            "Action=DescribeDBInstances"
        ),
        "rds:DescribeDBInstances"
    );
    for (target, form) in [
        ("/?Action=GetCallerIdentity", "Action=AssumeRole"),
        ("/", "Action=GetCallerIdentity&Action=AssumeRole"),
        ("/", "action=GetCallerIdentity&Action=AssumeRole"),
        ("/", "ACTION=AssumeRole"),
        ("/?Action=GetCallerIdentity&Action=AssumeRole", ""),
        ("/?aCtion=AssumeRole", "Action=GetCallerIdentity"),
        ("/?Action=GetCallerIdentity", "%61ction=AssumeRole"),
    ] {
        assert_eq!(post(target, form), "!Ambiguous", "{target} {form}");
    }
    assert_eq!(
        named(
            STS,
            "POST",
            "/?Action=GetCallerIdentity",
            &[],
            "Action=AssumeRole"
        ),
        "!Ambiguous"
    );
    assert_eq!(
        named(
            STS,
            "POST",
            "/?Action=GetCallerIdentity",
            &[("content-type", "text/plain")],
            ""
        ),
        "!Ambiguous"
    );
    let balancers = |form: &str| {
        let host = "elasticloadbalancing.us-east-1.amazonaws.com";
        named(host, "POST", "/", &[FORM], form)
    };
    for (version, expected) in [
        ("&Version=2012-06-01", "elb:DeleteLoadBalancer"),
        ("&Version=2015-12-01", "elbv2:DeleteLoadBalancer"),
        ("&Version=2015-12-01&Version=2012-06-01", "!Ambiguous"),
        ("&Version=2011-11-15", "elb:?"),
        ("", "elb:?"),
    ] {
        assert_eq!(
            balancers(&format!("Action=DeleteLoadBalancer{version}")),
            expected
        );
    }
    // STS has no JSON protocol, so a target names nothing there; nor does a GET with content show
    // everything that it asks for.
    let target = ("x-amz-target", "-.GetCallerIdentity");
    assert_eq!(named(STS, "POST", "/", &[target, JSON], ""), "sts:?");
    let get = named(STS, "GET", "/?Action=GetCallerIdentity", &[FORM], "");
    assert_eq!(get, "!Ambiguous");
    let twice = (
        "content-type",
        "application/x-www-form-urlencoded; charset=utf-8; charset=utf-7",
    );
    assert_eq!(named(STS, "POST", "/", &[twice], ""), "!Ambiguous");
    assert_eq!(post("/", "Version=1"), "sts:?");
    assert_eq!(post("/", "Action=assumerole"), "sts:?");
    assert_eq!(post("/", "Action="), "sts:?");
}

#[test]
fn a_service_of_several_protocols_is_read_in_each_but_not_in_two_at_once() {
    let sqs = "sqs.us-east-1.amazonaws.com";
    let send = ("x-amz-target", "AmazonSQS.SendMessage");
    assert_eq!(
        named(sqs, "POST", "/", &[send, JSON], ""),
        "sqs:SendMessage"
    );
    assert_eq!(
        named(sqs, "POST", "/1/q", &[FORM], "Action=SendMessage"),
        "sqs:SendMessage"
    );
    assert_eq!(
        named(sqs, "POST", "/", &[send, FORM], "Action=DeleteQueue"),
        "!Ambiguous"
    );
    assert_eq!(
        named(sqs, "POST", "/", &[send], "Action=DeleteQueue"),
        "!Ambiguous"
    );
    let cloudwatch = "monitoring.us-east-1.amazonaws.com";
    let cbor = [
        ("smithy-protocol", "rpc-v2-cbor"),
        ("content-type", "application/cbor"),
    ];
    let put = "/service/GraniteServiceVersion20100801/operation/PutMetricData";
    assert_eq!(
        named(cloudwatch, "POST", put, &cbor, ""),
        "cloudwatch:PutMetricData"
    );
    assert_eq!(named(cloudwatch, "POST", put, &cbor[1..], ""), "!Ambiguous");
    assert_eq!(named(cloudwatch, "POST", "/", &cbor, ""), "!Ambiguous");
    assert_eq!(
        named(
            cloudwatch,
            "POST",
            &format!("{put}?Action=DeleteAlarms"),
            &cbor,
            ""
        ),
        "!Ambiguous"
    );
    assert_eq!(
        named(
            cloudwatch,
            "POST",
            "/service/Other/operation/PutMetricData",
            &cbor,
            ""
        ),
        "cloudwatch:?"
    );
}

#[test]
fn method_and_path_name_the_operation_of_rest_protocols() {
    for (host, method, target, expected) in [
        (
            "lambda",
            "POST",
            "/2015-03-31/functions/f/invocations",
            "lambda:Invoke",
        ),
        (
            "lambda",
            "GET",
            "/2015-03-31/functions/f",
            "lambda:GetFunction",
        ),
        (
            "lambda",
            "GET",
            "/2015-03-31/functions",
            "lambda:ListFunctions",
        ),
        (
            "lambda",
            "GET",
            "/2015-03-31/functions/",
            "lambda:ListFunctions",
        ),
        (
            "lambda",
            "GET",
            "/2015-03-31/%66unctions/f/",
            "lambda:GetFunction",
        ),
        ("lambda", "GET", "/2015-03-31/functions//f", "lambda:?"),
        ("lambda", "GET", "/2015-03-31/Functions/f", "lambda:?"),
        ("lambda", "BREW", "/2015-03-31/functions/f", "lambda:?"),
        (
            "bedrock-runtime",
            "POST",
            "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Aprofile%2Fx/invoke",
            "bedrock-runtime:InvokeModel",
        ),
        (
            "bedrock-runtime",
            "POST",
            "/model/m/invoke-with-response-stream",
            "bedrock-runtime:InvokeModelWithResponseStream",
        ),
        ("eks", "GET", "/clusters/c", "eks:DescribeCluster"),
        (
            "email",
            "POST",
            "/v2/email/outbound-emails",
            "sesv2:SendEmail",
        ),
        (
            "codeartifact",
            "POST",
            "/v1/authorization-token",
            "codeartifact:GetAuthorizationToken",
        ),
    ] {
        let host = format!("{host}.us-east-1.amazonaws.com");
        assert_eq!(named(&host, method, target, &[], ""), expected, "{target}");
    }
    let target = ("x-amz-target", "AWSLambda.Invoke");
    assert_eq!(
        named(
            "lambda.us-east-1.amazonaws.com",
            "GET",
            "/2015-03-31/functions/f",
            &[target],
            ""
        ),
        "!Ambiguous"
    );
    assert_eq!(
        named(
            "email.us-east-1.amazonaws.com",
            "POST",
            "/",
            &[FORM],
            "Action=SendEmail"
        ),
        "ses:SendEmail"
    );
}

#[test]
fn s3_is_told_by_method_path_and_sub_resource() {
    let s3 = "s3.us-east-1.amazonaws.com";
    for (method, target, expected) in [
        ("GET", "/", "s3:ListBuckets"),
        ("GET", "/bucket", "s3:ListObjects"),
        ("GET", "/bucket/", "s3:ListObjects"),
        ("GET", "/bucket?list-type=2&prefix=a", "s3:ListObjectsV2"),
        ("GET", "/bucket?list-type=3", "s3:?"),
        ("GET", "/bucket/key", "s3:GetObject"),
        (
            "GET",
            "/bucket/key?x-id=GetObject&versionId=1&response-content-type=a",
            "s3:GetObject",
        ),
        ("GET", "/bucket/key?partNumber=1", "s3:GetObject"),
        ("GET", "/bucket/key?acl", "s3:GetObjectAcl"),
        ("GET", "/bucket?acl", "s3:GetBucketAcl"),
        ("GET", "/bucket?policy", "s3:GetBucketPolicy"),
        ("PUT", "/bucket?policy", "s3:PutBucketPolicy"),
        (
            "GET",
            "/bucket?lifecycle",
            "s3:GetBucketLifecycleConfiguration",
        ),
        (
            "PUT",
            "/bucket?notification",
            "s3:PutBucketNotificationConfiguration",
        ),
        (
            "GET",
            "/bucket?inventory",
            "s3:ListBucketInventoryConfigurations",
        ),
        (
            "GET",
            "/bucket?inventory&id=1",
            "s3:GetBucketInventoryConfiguration",
        ),
        ("GET", "/bucket?versions", "s3:ListObjectVersions"),
        ("GET", "/bucket?uploads", "s3:ListMultipartUploads"),
        ("GET", "/bucket?session", "s3:CreateSession"),
        ("HEAD", "/bucket", "s3:HeadBucket"),
        ("PUT", "/bucket", "s3:CreateBucket"),
        ("DELETE", "/bucket", "s3:DeleteBucket"),
        ("POST", "/bucket?delete", "s3:DeleteObjects"),
        ("POST", "/bucket", "s3:?"),
        ("POST", "/bucket/key", "s3:?"),
        ("PUT", "/bucket/key", "s3:PutObject"),
        ("PUT", "/bucket//key", "s3:PutObject"),
        (
            "PUT",
            "/bucket/key?partNumber=1&uploadId=u",
            "s3:UploadPart",
        ),
        ("POST", "/bucket/key?uploads", "s3:CreateMultipartUpload"),
        (
            "POST",
            "/bucket/key?uploadId=u",
            "s3:CompleteMultipartUpload",
        ),
        (
            "DELETE",
            "/bucket/key?uploadId=u",
            "s3:AbortMultipartUpload",
        ),
        ("GET", "/bucket/key?uploadId=u", "s3:ListParts"),
        (
            "POST",
            "/bucket/key?select&select-type=2",
            "s3:SelectObjectContent",
        ),
        ("GET", "/bucket/key?acl&tagging", "!Ambiguous"),
        ("GET", "/bucket/key?acl&acl", "!Ambiguous"),
        ("GET", "/bucket/key?newthing", "s3:?"),
        ("GET", "/bucket?session&newthing", "s3:?"),
        ("GET", "/bucket/key?ACL", "s3:?"),
        ("GET", "//key", "!Bucket"),
        ("GET", "/b%2Fx/key", "!Bucket"),
        ("GET", "/arn:aws:s3:::x/key", "!Bucket"),
    ] {
        assert_eq!(
            named(s3, method, target, &[], ""),
            expected,
            "{method} {target}"
        );
    }
    let host = "my.bucket.s3.us-east-1.amazonaws.com";
    assert_eq!(named(host, "GET", "/", &[], ""), "s3:ListObjects");
    assert_eq!(named(host, "GET", "/other/key", &[], ""), "s3:GetObject");
    let Ok(Lookup::Known(action)) = read(host, "GET", "/other/k%2Fe%20y%2B", &[]) else {
        panic!("the head says it");
    };
    let call = action.s3().unwrap();
    assert_eq!(call.bucket.as_deref(), Some("my.bucket"));
    assert_eq!(call.key.as_deref(), Some("other/k/e y+"));
    assert!(!call.key_has_plus);
}

#[test]
fn the_source_of_a_copy_is_read_wherever_it_stands() {
    let s3 = "s3.us-east-1.amazonaws.com";
    let copy = |target: &str, fields: &[(&str, &str)]| match read(s3, "PUT", target, fields) {
        Ok(Lookup::Known(action)) => {
            format!("{} {:?}", action.name(), action.s3().unwrap().source)
        }
        other => format!("{other:?}"),
    };
    let source = ("x-amz-copy-source", "/other/a%20b?versionId=1");
    let object = r#"Some(Object { bucket: "other", key: "a b" })"#;
    assert_eq!(
        copy("/bucket/key", &[source]),
        format!("s3:CopyObject {object}")
    );
    assert_eq!(
        copy("/bucket/key?X-Amz-Copy-Source=other%2Fa%2520b", &[]),
        format!("s3:CopyObject {object}")
    );
    assert_eq!(
        copy("/bucket/key?partNumber=1&uploadId=u", &[source]),
        format!("s3:UploadPartCopy {object}")
    );
    let arn = (
        "x-amz-copy-source",
        "arn:aws:s3:us-east-1:999999999999:accesspoint/p/object/k",
    );
    assert!(copy("/bucket/key", &[arn]).contains("Arn"));
    for (target, fields) in [
        ("/bucket/key?x-amz-copy-source=a%2Fb", &[source][..]),
        ("/bucket/key", &[source, source]),
        ("/bucket/key?acl", &[source]),
        ("/bucket", &[source]),
        ("/bucket/key", &[source, ("x-amz-rename-source", "/k")]),
    ] {
        assert_eq!(copy(target, fields), "Err(Ambiguous)", "{target}");
    }
    assert_eq!(
        copy("/bucket/key", &[("x-amz-copy-source", "other")]),
        "Err(Key)"
    );
}

#[test]
fn what_returns_credentials_is_known_and_an_unknown_neighbour_is_taken_for_it() {
    let returns = |host: &str, method: &str, target: &str, fields: &[(&str, &str)], form: &str| {
        let host = format!("{host}.us-east-1.amazonaws.com");
        match read(&host, method, target, fields).unwrap() {
            Lookup::Known(action) => action.returns_credentials(),
            Lookup::Form(pending) => pending
                .finish(form.as_bytes())
                .unwrap()
                .returns_credentials(),
        }
    };
    assert!(returns("sts", "POST", "/", &[FORM], "Action=AssumeRole"));
    assert!(!returns(
        "sts",
        "POST",
        "/",
        &[FORM],
        "Action=GetCallerIdentity"
    ));
    assert!(returns("sts", "POST", "/", &[FORM], "Action=Assumerole"));
    let json = |target: &'static str| [("x-amz-target", target), JSON];
    assert!(returns(
        "secretsmanager",
        "POST",
        "/",
        &json("secretsmanager.GetSecretValue"),
        ""
    ));
    assert!(!returns(
        "secretsmanager",
        "POST",
        "/",
        &json("secretsmanager.ListSecrets"),
        ""
    ));
    assert!(returns(
        "secretsmanager",
        "POST",
        "/",
        &json("secretsmanager.getSecretValue"),
        ""
    ));
    assert!(!returns(
        "dynamodb",
        "POST",
        "/",
        &json("DynamoDB_20120810.NewThing"),
        ""
    ));
    assert!(returns(
        "codeartifact",
        "POST",
        "//v1/authorization-token",
        &[],
        ""
    ));
    assert!(returns("lambda", "GET", "/2015-03-31/functions/f", &[], ""));
    assert!(returns(
        "portal.sso",
        "GET",
        "/federation/credentials?role_name=r&account_id=1",
        &[],
        ""
    ));
    assert!(!returns("s3", "GET", "/bucket/key?newthing", &[], ""));
}

#[test]
fn a_store_of_ones_own_does_not_lend_its_administration() {
    let own = Endpoint::own("s3", "us-east-1", super::super::endpoint::OwnStyle::Path);
    let action = |method: &str, target: &str| match Action::read(
        &own,
        &head("minio.test", method, target, &[]),
    ) {
        Ok(Lookup::Known(action)) => action,
        other => panic!("{other:?}"),
    };
    assert!(action("PUT", "/minio/admin/v3/add-service-account").returns_credentials());
    assert!(action("POST", "/?Action=AssumeRole").returns_credentials());
    assert!(!action("PUT", "/bucket/minio/admin").returns_credentials());
    assert!(action("PUT", "/bucket/minio/admin").is_known());
}

/// Each operation of each REST API, requested by its own template, is read as that operation or its
/// twin in an older API of one host.
#[test]
fn every_rest_template_reads_as_its_own_operation() {
    let mut wrong = Vec::new();
    for api in Tables::get()
        .apis()
        .filter(|api| api.speaks("rest") && api.id != "s3")
    {
        for operation in api.operations() {
            let route = operation.route.as_ref().unwrap();
            let query = route.query.iter().map(|(name, value)| match value {
                Some(value) => format!("{name}={value}"),
                None => (*name).to_owned(),
            });
            let target = format!(
                "/{}?{}",
                route.path.join("/"),
                query.collect::<Vec<_>>().join("&")
            );
            let target = target
                .replace("{+}", "a/b")
                .replace("{@}", "111122223333")
                .replace("{}", "x.y");
            let head = head("x.test", route.method, &target, &[]);
            let read = rest::read(&[api], &head).map(|action| action.operation);
            if read != Ok(Some(operation.name)) {
                wrong.push(format!("{}:{} {target}: {read:?}", api.id, operation.name));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

proptest! {
    /// Whatever a request to STS looks like, it is refused, or it is read as `AssumeRole` if
    /// exactly that is named.
    #[test]
    fn no_spelling_hides_an_action(in_query in "(|Action=AssumeRole|action=AssumeRole|Action=GetCallerIdentity|%41ction=AssumeRole)", in_form in "(|Action=AssumeRole|ACTION=AssumeRole|Action=GetCallerIdentity|A%63tion=AssumeRole)", typed: bool) {
        let fields: &[_] = if typed { &[FORM] } else { &[] };
        let name = named(STS, "POST", &format!("/?{in_query}"), fields, &in_form);
        let says_assume = in_query.contains("AssumeRole") || in_form.contains("AssumeRole");
        if says_assume {
            prop_assert!(name == "sts:AssumeRole" || name == "!Ambiguous", "{name}");
        }
        prop_assert_eq!(name.starts_with('!'), (!in_query.is_empty() && !in_form.is_empty()) || (!typed && !in_form.is_empty()) || in_query.starts_with('a') || in_form.starts_with("AC"));
    }
}
