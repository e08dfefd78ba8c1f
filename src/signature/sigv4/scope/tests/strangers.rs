//! Resources of strangers, and what opens a bucket to one.

use super::*;

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
