//! Group J: how far a signing credential reaches, whatever content, fields and unsigned requests
//! say (threats J05, J06).

use crate::rig::canary::percent;
use crate::rig::frames::{DATA, END_STREAM};
use crate::rig::origin::ok;
use crate::rig::sigv4::{Ask, Key, hash, judge};
use crate::rig::way::Way;
use crate::rig::{ACCOUNT, DB, PUBLIC, Rig, S3};
use crate::rows;
use crate::signing::{element, judged_of, new_key, refused, send, through, until};

rows![
    nothing_is_asked_of_a_signing_host_without_the_sessions_key,
    a_named_origin_takes_what_is_not_signed,
    content_that_names_a_stranger_is_not_signed,
    content_that_lets_everybody_in_is_not_signed,
    a_field_that_widens_needs_an_action_of_its_own,
    policy_is_told_all_that_is_asked_for,
    an_archive_is_not_unpacked_beyond_a_prefix,
    a_bucket_is_the_keys_accounts_where_none_is_named,
];

const OBJECTS: &str = "s3.eu-central-1.amazonaws.com";
const STRANGER: &str = "999999999999";
const CANONICAL: &str = "79a59df900b949e55d96a1e698fbacedfd6e09d98eacf8f8d5218e7cd47ef2be";

/// The same request over HTTP/2; expects the refusal.
fn refused_over_http2(rig: &Rig, way: Way, host: &str, bytes: &[u8], reason: &str) {
    let end = memchr::memmem::find(bytes, b"\r\n\r\n").unwrap();
    let (head, body) = (
        std::str::from_utf8(&bytes[..end]).unwrap(),
        &bytes[end + 4..],
    );
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap().split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let mut fields = vec![
        (":method", method.to_owned()),
        (":scheme", "https".into()),
        (":authority", host.to_owned()),
        (":path", path.to_owned()),
    ];
    let names: Vec<(String, String)> = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .filter(|(name, _)| name != "host")
        .collect();
    fields.extend(
        names
            .iter()
            .map(|(name, value)| (name.as_str(), value.clone())),
    );
    let fields: Vec<(&str, &str)> = fields
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let mut frames = rig.frames(way, host);
    frames.headers(1, &fields, body.is_empty());
    if !body.is_empty() {
        frames.frame(DATA, END_STREAM, 1, body);
    }
    let fate = frames.fate(1);
    let record = rig.record(way);
    assert!(
        fate.answered && record["reason"] == reason,
        "{way:?}: {record}"
    );
    assert!(rig.seen().is_empty(), "E got something over HTTP/2");
}

/// Refused on every entry point with TLS, over both protocols.
fn refused_everywhere(
    rig: &Rig,
    host: &str,
    bytes: impl Fn(Way) -> Vec<u8>,
    status: u16,
    reason: &str,
) {
    for way in Way::SECURE {
        refused(rig, way, host, &bytes(way), status, reason);
        refused_over_http2(rig, way, host, &bytes(way), reason);
    }
}

/// H17, M2: anonymous, signed with an old scheme, or by a stranger; at hosts of AWS and of the
/// operator.
fn nothing_is_asked_of_a_signing_host_without_the_sessions_key(rig: &Rig) {
    let stranger = Key {
        id: "AKIAATTACKER00000000".into(),
        secret: "attacker".into(),
        token: None,
    };
    let line = |method: &str, host: &str, target: &str, fields: &str| {
        format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n").into_bytes()
    };
    let presigned = Ask {
        region: "eu-central-1",
        path: "/theirs/key".into(),
        ..Ask::default()
    }
    .presign(OBJECTS, &stranger, 300);
    let loot = "Content-Length: 4\r\n\r\nloot";
    for (host, method, target, fields, status, reason) in [
        (OBJECTS, "GET", "/theirs/key", "", 403, "sigv4_absent"),
        (
            OBJECTS,
            "OPTIONS",
            "/theirs/key",
            "Origin: https://x.example\r\n",
            403,
            "sigv4_absent",
        ),
        (OBJECTS, "GET", "/bucket/key", "", 403, "sigv4_absent"),
        (
            "theirs.s3.eu-central-1.amazonaws.com",
            "GET",
            "/key",
            "",
            403,
            "sigv4_absent",
        ),
        (
            "theirs.s3.amazonaws.com",
            "GET",
            "/key",
            "",
            403,
            "sigv4_absent",
        ),
        (
            "theirs.s3-accelerate.amazonaws.com",
            "GET",
            "/key",
            "",
            403,
            "sigv4_absent",
        ),
        (
            "p-999999999999.s3-accesspoint.eu-central-1.amazonaws.com",
            "GET",
            "/key",
            "",
            403,
            "sigv4_absent",
        ),
        (
            "alias.mrap.accesspoint.s3-global.amazonaws.com",
            "GET",
            "/key",
            "",
            403,
            "sigv4_absent",
        ),
        // Where AWS's customers answer.
        (
            "theirs.s3-website.eu-central-1.amazonaws.com",
            "GET",
            "/key",
            "",
            403,
            "sigv4_absent",
        ),
        (
            "abcdefghij.execute-api.eu-central-1.amazonaws.com",
            "GET",
            "/key",
            "",
            403,
            "sigv4_absent",
        ),
        (
            "theirs-1.eu-central-1.elb.amazonaws.com",
            "GET",
            "/key",
            "",
            403,
            "sigv4_absent",
        ),
        // SigV2.
        (
            OBJECTS,
            "GET",
            "/theirs/key?AWSAccessKeyId=AKIAATTACKER00000000&Expires=4102444800&Signature=c2ln",
            "",
            403,
            "foreign_credential",
        ),
        (
            OBJECTS,
            "GET",
            "/theirs/key",
            "Authorization: AWS AKIAATTACKER00000000:c2ln\r\n",
            403,
            "sigv4_algorithm",
        ),
        (OBJECTS, "GET", &presigned, "", 403, "foreign_credential"),
        (
            OBJECTS,
            "GET",
            "/theirs/key",
            "x-amz-security-token: theirs\r\n",
            403,
            "foreign_credential",
        ),
        (
            OBJECTS,
            "GET",
            "/theirs/key",
            "x-amz-s3session-token: theirs\r\n",
            403,
            "foreign_credential",
        ),
        (
            OBJECTS,
            "GET",
            "/theirs/key",
            "x-amz-mfa: serial 123456\r\n",
            403,
            "sigv4_absent",
        ),
        (
            OBJECTS,
            "GET",
            "/theirs/key",
            "Cookie: session=theirs\r\n",
            403,
            "sigv4_absent",
        ),
        (
            OBJECTS,
            "GET",
            "/theirs/key?x-amz-security-token=theirs",
            "",
            400,
            "sigv4_malformed",
        ),
        (
            "cognito-idp.eu-central-1.amazonaws.com",
            "POST",
            "/",
            "x-amz-target: AWSCognitoIdentityProviderService.SignUp\r\ncontent-type: application/x-amz-json-1.1\r\ncontent-length: 0\r\n",
            403,
            "sigv4_absent",
        ),
        (
            DB,
            "POST",
            "/",
            "x-amz-target: DynamoDB_20120810.Scan\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: 0\r\n",
            403,
            "sigv4_absent",
        ),
        (S3, "GET", "/bucket/key", "", 403, "sigv4_absent"),
        ("bucket.s3.rig.test", "GET", "/key", "", 403, "sigv4_absent"),
    ] {
        refused_everywhere(
            rig,
            host,
            |_| line(method, host, target, fields),
            status,
            reason,
        );
    }
    for (host, path) in [
        (OBJECTS, "/theirs/key"),
        ("theirs.s3.eu-central-1.amazonaws.com", "/key"),
    ] {
        let bytes = |_| format!("PUT {path} HTTP/1.1\r\nHost: {host}\r\n{loot}").into_bytes();
        refused_everywhere(rig, host, bytes, 403, "sigv4_absent");
    }
    let form = "--x\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nk\r\n--x--\r\n";
    let bytes = |_| {
        let kind = "Content-Type: multipart/form-data; boundary=x";
        format!(
            "POST /theirs HTTP/1.1\r\nHost: {OBJECTS}\r\n{kind}\r\nContent-Length: {}\r\n\r\n{form}",
            form.len()
        )
        .into_bytes()
    };
    refused_everywhere(rig, OBJECTS, bytes, 403, "sigv4_post_form");
}

fn a_named_origin_takes_what_is_not_signed(rig: &Rig) {
    for way in Way::SECURE {
        let bytes = format!("GET /key HTTP/1.1\r\nHost: {PUBLIC}\r\n\r\n");
        let answer = send(rig, way, PUBLIC, bytes.as_bytes());
        let record = rig.record(way);
        assert_eq!(
            (answer.status, record["lent"].is_null()),
            (200, true),
            "{record}"
        );
        assert_eq!(rig.seen().len(), 1);
    }
}

fn at(
    host: &'static str,
    method: &'static str,
    target: &str,
    kind: &str,
    body: &str,
) -> (&'static str, Ask) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let service = host.split('.').next().unwrap();
    let store = service == "s3";
    let fields = [("content-type", kind)]
        .into_iter()
        .filter(|(_, kind)| !kind.is_empty());
    let ask = Ask {
        method,
        path: path.into(),
        query: query.into(),
        service,
        region: if host == "iam.amazonaws.com" {
            "us-east-1"
        } else {
            "eu-central-1"
        },
        body: body.as_bytes().to_vec(),
        payload: store.then(|| hash(body.as_bytes())),
        fields: fields
            .map(|(name, kind)| (name.into(), kind.into()))
            .collect(),
        ..Ask::default()
    };
    (host, ask)
}

fn calling(host: &'static str, target: &str, body: &str) -> (&'static str, Ask) {
    let (host, mut ask) = at(host, "POST", "/", "application/x-amz-json-1.1", body);
    ask.fields.push(("x-amz-target".into(), target.into()));
    (host, ask)
}

const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";

/// The ten calls of the finding, as boto3 writes them, for an account and a grantee.
fn sharing(account: &str, grantee: &str) -> Vec<(&'static str, Ask)> {
    let policy = format!(
        r#"{{"Version":"2012-10-17","Statement":[{{"Effect":"Allow","Principal":{{"AWS":"arn:aws:iam::{account}:root"}},"Action":"*","Resource":"*"}}]}}"#
    );
    let inside = policy.replace('"', "\\\"");
    let escaped = percent(policy.as_bytes(), |byte| byte.is_ascii_alphanumeric());
    vec![
        at(OBJECTS, "PUT", "/bucket?policy", "", &policy),
        at(
            OBJECTS,
            "PUT",
            "/bucket?replication",
            "",
            &format!(
                "<ReplicationConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Role>arn:aws:iam::{ACCOUNT}:role/r</Role><Rule>\
                 <Status>Enabled</Status><Destination><Bucket>arn:aws:s3:::bucket</Bucket><Account>{account}</Account></Destination></Rule>\
                 </ReplicationConfiguration>"
            ),
        ),
        at(
            OBJECTS,
            "PUT",
            "/bucket?acl",
            "",
            &format!(
                "<AccessControlPolicy><AccessControlList>{grantee}</AccessControlList></AccessControlPolicy>"
            ),
        ),
        at(
            "lambda.eu-central-1.amazonaws.com",
            "POST",
            "/2015-03-31/functions/f/policy",
            "application/json",
            &format!(
                r#"{{"StatementId":"s","Action":"lambda:InvokeFunction","Principal":"{account}"}}"#
            ),
        ),
        at(
            "ec2.eu-central-1.amazonaws.com",
            "POST",
            "/",
            FORM,
            &format!(
                "Action=ModifySnapshotAttribute&Version=2016-11-15&SnapshotId=snap-0&Attribute=createVolumePermission&OperationType=add&UserId.1={account}"
            ),
        ),
        at(
            "rds.eu-central-1.amazonaws.com",
            "POST",
            "/",
            FORM,
            &format!(
                "Action=ModifyDBSnapshotAttribute&Version=2014-10-31&DBSnapshotIdentifier=s&AttributeName=restore&ValuesToAdd.AttributeValue.1={account}"
            ),
        ),
        calling(
            "secretsmanager.eu-central-1.amazonaws.com",
            "secretsmanager.PutResourcePolicy",
            &format!(r#"{{"SecretId":"s","ResourcePolicy":"{inside}"}}"#),
        ),
        calling(
            "kms.eu-central-1.amazonaws.com",
            "TrentService.PutKeyPolicy",
            &format!(r#"{{"KeyId":"k","PolicyName":"default","Policy":"{inside}"}}"#),
        ),
        calling(
            "sqs.eu-central-1.amazonaws.com",
            "AmazonSQS.SetQueueAttributes",
            &format!(
                r#"{{"QueueUrl":"https://sqs.eu-central-1.amazonaws.com/{ACCOUNT}/q","Attributes":{{"Policy":"{inside}"}}}}"#
            ),
        ),
        at(
            "iam.amazonaws.com",
            "POST",
            "/",
            FORM,
            &format!(
                "Action=UpdateAssumeRolePolicy&Version=2010-05-08&RoleName=r&PolicyDocument={escaped}"
            ),
        ),
    ]
}

/// H3.
fn content_that_names_a_stranger_is_not_signed(rig: &Rig) {
    let grantee = format!(
        "<Grant><Grantee><ID>{CANONICAL}</ID></Grantee><Permission>READ</Permission></Grant>"
    );
    for (host, ask) in sharing(STRANGER, &grantee) {
        refused_everywhere(
            rig,
            host,
            |way| ask.write(host, &rig.key(way, "pinned"), ""),
            403,
            "sigv4_resource",
        );
    }
    for (host, ask) in sharing(ACCOUNT, "") {
        for way in Way::SECURE {
            let (_, judged) = through(rig, way, host, "pinned", &ask);
            assert_eq!(judged.body, ask.body);
        }
    }
    // Data means nothing to the service.
    let message = format!(
        r#"{{"QueueUrl":"https://sqs.eu-central-1.amazonaws.com/{ACCOUNT}/q","MessageBody":"{STRANGER} arn:aws:iam::{STRANGER}:root"}}"#
    );
    let (host, ask) = calling(
        "sqs.eu-central-1.amazonaws.com",
        "AmazonSQS.SendMessage",
        &message,
    );
    through(rig, Way::Connect, host, "pinned", &ask);
    let (host, ask) = at(OBJECTS, "PUT", "/bucket/key", "", STRANGER);
    through(rig, Way::Connect, host, "pinned", &ask);
}

fn content_that_lets_everybody_in_is_not_signed(rig: &Rig) {
    let open = r#"{"Statement":{"Effect":"Allow","Principal":"*","Action":"*","Resource":"*"}}"#;
    let lambda = "lambda.eu-central-1.amazonaws.com";
    let ec2 = |rest: &str| {
        let body = format!("Action={rest}&Version=2016-11-15");
        at("ec2.eu-central-1.amazonaws.com", "POST", "/", FORM, &body)
    };
    let mut public = at(OBJECTS, "PUT", "/bucket/key", "", "x");
    public
        .1
        .fields
        .push(("x-amz-acl".into(), "public-read".into()));
    let block = "<PublicAccessBlockConfiguration><BlockPublicAcls>false</BlockPublicAcls></PublicAccessBlockConfiguration>";
    for (host, ask) in [
        at(OBJECTS, "PUT", "/bucket?policy", "", open),
        at(OBJECTS, "PUT", "/bucket?publicAccessBlock", "", block),
        public,
        at(
            lambda,
            "POST",
            "/2015-03-31/functions/f/policy",
            "application/json",
            r#"{"StatementId":"s","Action":"x","Principal":"*"}"#,
        ),
        at(
            lambda,
            "POST",
            "/2021-10-31/functions/f/url",
            "application/json",
            r#"{"AuthType":"NONE"}"#,
        ),
        ec2("ModifySnapshotAttribute&SnapshotId=s&CreateVolumePermission.Add.1.Group=all"),
        ec2("ModifyImageAttribute&ImageId=i&LaunchPermission.Add.1.Group=all"),
        ec2("DisableSnapshotBlockPublicAccess"),
        at(
            "rds.eu-central-1.amazonaws.com",
            "POST",
            "/",
            FORM,
            "Action=ModifyDBSnapshotAttribute&Version=2014-10-31&AttributeName=restore&ValuesToAdd.AttributeValue.1=all",
        ),
        calling(
            "kms.eu-central-1.amazonaws.com",
            "TrentService.PutKeyPolicy",
            &format!(
                r#"{{"KeyId":"k","Policy":"{}"}}"#,
                open.replace('"', "\\\"")
            ),
        ),
    ] {
        refused_everywhere(
            rig,
            host,
            |way| ask.write(host, &rig.key(way, "pinned"), ""),
            403,
            "sigv4_resource",
        );
    }
    let denies = r#"{"Statement":{"Effect":"Deny","Principal":"*","Action":"*","Resource":"*"}}"#;
    let (host, ask) = at(
        OBJECTS,
        "PUT",
        "/bucket?policy",
        "",
        &denies.replace("\"Resource\":\"*\"", "\"Resource\":\"arn:aws:s3:::bucket\""),
    );
    through(rig, Way::Connect, host, "pinned", &ask);
}

/// M12: `writer` may put objects, and nothing else.
fn a_field_that_widens_needs_an_action_of_its_own(rig: &Rig) {
    let put = |fields: &[(&str, &str)], query: &str| {
        let (_, mut ask) = at(OBJECTS, "PUT", "/bucket/key", "", "content");
        ask.query = query.into();
        ask.fields.extend(
            fields
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        );
        ask
    };
    for (name, value) in [
        ("x-amz-acl", "public-read"),
        (
            "x-amz-grant-read",
            "uri=\"http://acs.amazonaws.com/groups/global/AllUsers\"",
        ),
        ("x-amz-grant-full-control", "id=\"x\""),
        ("x-amz-tagging", "a=b"),
        ("x-amz-website-redirect-location", "https://evil.example/"),
        ("x-amz-object-lock-mode", "COMPLIANCE"),
        ("x-amz-object-lock-legal-hold", "ON"),
        ("x-amz-server-side-encryption-aws-kms-key-id", "key"),
        ("x-amz-copy-source", "/bucket/other"),
    ] {
        let in_field = put(&[(name, value)], "");
        refused_everywhere(
            rig,
            OBJECTS,
            |way| in_field.write(OBJECTS, &rig.key(way, "writer"), ""),
            403,
            "sigv4_action",
        );
        let escaped = percent(value.as_bytes(), |byte| byte.is_ascii_alphanumeric());
        let in_query = put(&[], &format!("{name}={escaped}"));
        let bytes = |way| {
            let target = in_query.presign(OBJECTS, &rig.key(way, "writer"), 60);
            format!("PUT {target} HTTP/1.1\r\nHost: {OBJECTS}\r\nContent-Length: 0\r\n\r\n")
                .into_bytes()
        };
        refused_everywhere(rig, OBJECTS, bytes, 403, "sigv4_action");
    }
    let unknown = put(&[("x-amz-newthing", "x")], "");
    refused_everywhere(
        rig,
        OBJECTS,
        |way| unknown.write(OBJECTS, &rig.key(way, "writer"), ""),
        403,
        "sigv4_resource",
    );
    for way in Way::SECURE {
        through(
            rig,
            way,
            OBJECTS,
            "writer",
            &put(
                &[
                    ("x-amz-storage-class", "STANDARD"),
                    ("x-amz-meta-note", "a"),
                ],
                "",
            ),
        );
    }
}

/// M12, by policy alone: `granted` has no pins, and policy forbids what changes an object's access
/// list.
fn policy_is_told_all_that_is_asked_for(rig: &Rig) {
    let put = |fields: &[(&str, &str)], target: &str| {
        let (_, mut ask) = at(OBJECTS, "PUT", target, "", "content");
        ask.fields.extend(
            fields
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        );
        ask
    };
    for ask in [
        put(&[("x-amz-acl", "public-read")], "/bucket/key"),
        put(&[("x-amz-grant-read", "id=\"x\"")], "/bucket/key"),
        put(&[], "/bucket/key?x-amz-acl=public-read"),
        put(&[], "/bucket/key?acl"),
    ] {
        for way in Way::SECURE {
            let answer = send(
                rig,
                way,
                OBJECTS,
                &ask.write(OBJECTS, &rig.key(way, "granted"), ""),
            );
            let record = rig.record(way);
            let by_policy = record["reason"]
                .as_str()
                .is_some_and(|reason| reason.starts_with("policy_"));
            assert!(
                answer.status == 403 && by_policy,
                "{way:?}: {answer:?} {record}"
            );
            assert!(rig.seen().is_empty());
        }
    }
    through(
        rig,
        Way::Connect,
        OBJECTS,
        "granted",
        &put(&[], "/bucket/key"),
    );
}

/// M13: `tenant` has a prefix of a bucket in a store of the operator's own.
fn an_archive_is_not_unpacked_beyond_a_prefix(rig: &Rig) {
    let put = |fields: &[(&str, &str)], query: &str| Ask {
        method: "PUT",
        path: "/shared/incoming/x.tar".into(),
        query: query.into(),
        fields: fields
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..Ask::default()
    };
    for name in [
        "x-amz-meta-snowball-auto-extract",
        "x-amz-meta-minio-snowball-prefix",
        "x-minio-extract",
        "x-minio-force-delete",
        "x-minio-source-etag",
        "x-rustfs-force-delete",
        "x-goog-copy-source",
        "x-amz-newthing",
    ] {
        let ask = put(&[(name, "true")], "");
        refused_everywhere(
            rig,
            S3,
            |way| ask.write(S3, &rig.key(way, "tenant"), ""),
            403,
            "sigv4_resource",
        );
    }
    let ask = put(&[], "x-minio-extract=true");
    refused_everywhere(
        rig,
        S3,
        |way| ask.write(S3, &rig.key(way, "tenant"), ""),
        403,
        "sigv4_resource",
    );
    for way in Way::SECURE {
        through(
            rig,
            way,
            S3,
            "tenant",
            &put(&[("x-amz-meta-note", "a"), ("user-agent", "x")], ""),
        );
    }
}

/// H18: nothing is pinned; the account is the one encoded in the real key's id, 609629065308.
fn a_bucket_is_the_keys_accounts_where_none_is_named(rig: &Rig) {
    let host = format!("{ACCOUNT}.s3-control.eu-central-1.amazonaws.com");
    let path = "/v20180820/accessgrantsinstance/dataaccess";
    let owner = "x-amz-expected-bucket-owner";
    for way in Way::SECURE {
        let real = Key {
            id: "ASIAY34FZKBOKMUTVV7A".into(),
            ..new_key(rig)
        };
        let content = format!(
            "<?xml version=\"1.0\"?><GetDataAccessResult><Credentials><AccessKeyId>{}</AccessKeyId><SecretAccessKey>{}</SecretAccessKey>\
             <SessionToken>{}</SessionToken><Expiration>{}</Expiration></Credentials></GetDataAccessResult>",
            real.id,
            real.secret,
            real.token.as_deref().unwrap(),
            until(3600)
        );
        rig.origins.on(path, move |_| {
            ok("Content-Type: application/xml\r\n", content.as_bytes())
        });
        let grant = Ask {
            path: path.into(),
            query: "target=s3%3A%2F%2Fbucket%2F%2A&permission=READ".into(),
            region: "eu-central-1",
            fields: vec![("x-amz-account-id".into(), ACCOUNT.into())],
            ..Ask::default()
        };
        let answer = send(
            rig,
            way,
            &host,
            &grant.write(&host, &rig.key(way, "granted"), ""),
        );
        rig.record(way);
        judged_of(rig, "granted");
        let text = answer.text();
        let ours = Key {
            id: element(&text, "AccessKeyId"),
            secret: element(&text, "SecretAccessKey"),
            token: Some(element(&text, "SessionToken")),
        };
        let (_, ask) = at(OBJECTS, "PUT", "/theirs/key", "", "loot");
        let answer = send(rig, way, OBJECTS, &ask.write(OBJECTS, &ours, ""));
        let record = rig.record(way);
        assert_eq!(answer.status, 200, "{answer:?} {record}");
        let seen = rig.seen().remove(0);
        assert_eq!(seen.all(owner), ["609629065308"]);
        assert!(
            judge(&seen, &real)
                .unwrap()
                .signed
                .iter()
                .any(|name| name == owner)
        );
        let mut strange = ask.clone();
        strange.fields.push((owner.into(), STRANGER.into()));
        refused(
            rig,
            way,
            OBJECTS,
            &strange.write(OBJECTS, &ours, ""),
            403,
            "sigv4_resource",
        );
        rig.origins.on(path, |_| ok("", b""));
    }
}
