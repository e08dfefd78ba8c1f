//! Group J at AWS's own hosts, where E answers here; the tricks that every signer must refuse; and
//! a service that AWS does not have.

use crate::rig::canary::random;
use crate::rig::origin::ok;
use crate::rig::sigv4::{Ask, Key, hash, judge, stamp};
use crate::rig::way::{Response, Way};
use crate::rig::{ACCOUNT, DB, OWN, Rig, S3, STS};
use crate::rows;
use crate::signing::{element, judged_of, new_key, post, put, refused, send, through, until};

rows![
    whose_bucket_it_is_is_said_and_signed,
    a_strangers_resource_is_out_of_reach,
    what_access_grants_give_stays_in_the_gateway,
    what_returns_credentials_is_refused_at_awss_own_hosts,
    every_region_at_once_is_refused,
    each_trick_with_a_signature_is_refused_in_the_services_own_shape,
    a_service_that_aws_does_not_have_is_signed_for,
];

const OBJECTS: &str = "s3.eu-central-1.amazonaws.com";
const TABLES: &str = "dynamodb.eu-central-1.amazonaws.com";
const STRANGER: &str = "999999999999";
const OWNER: &str = "x-amz-expected-bucket-owner";
const SOURCE: &str = "x-amz-copy-source";
const SOURCE_OWNER: &str = "x-amz-source-expected-bucket-owner";

fn at_aws(path: &str, fields: &[(&str, &str)]) -> Ask {
    Ask {
        path: path.into(),
        region: "eu-central-1",
        fields: fields
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..Ask::default()
    }
}

/// J06: S3 itself refuses a bucket of another account, because it is told the owner.
fn whose_bucket_it_is_is_said_and_signed(rig: &Rig) {
    for way in [Way::Connect, Way::Transparent] {
        for (host, path) in [
            (OBJECTS, "/bucket/key"),
            ("bucket.s3.eu-central-1.amazonaws.com", "/key"),
        ] {
            for said in [&[][..], &[(OWNER, ACCOUNT)]] {
                let (seen, judged) = through(rig, way, host, "pinned", &at_aws(path, said));
                assert_eq!(seen.all(OWNER), [ACCOUNT]);
                assert!(judged.signed.iter().any(|name| name == OWNER), "{judged:?}");
            }
        }
        let copy = Ask {
            method: "PUT",
            ..at_aws("/bucket/copy", &[(SOURCE, "/shared/in/a")])
        };
        let (seen, judged) = through(rig, way, OBJECTS, "pinned", &copy);
        for name in [OWNER, SOURCE_OWNER] {
            assert_eq!(seen.all(name), [ACCOUNT]);
            assert!(
                judged.signed.iter().any(|signed| signed == name),
                "{judged:?}"
            );
        }
        let target = at_aws("/bucket/key", &[]).presign(OBJECTS, &rig.key(way, "pinned"), 300);
        let bytes = format!("GET {target} HTTP/1.1\r\nHost: {OBJECTS}\r\n\r\n");
        let answer = send(rig, way, OBJECTS, bytes.as_bytes());
        rig.record(way);
        assert_eq!(answer.status, 200, "{answer:?}");
        let (seen, judged) = judged_of(rig, "pinned");
        assert_eq!(seen.all(OWNER), [ACCOUNT]);
        assert_eq!(judged.signed, ["host", OWNER]);
    }
}

/// J06: buckets, keys and accounts, wherever they stand.
fn a_strangers_resource_is_out_of_reach(rig: &Rig) {
    let way = Way::Connect;
    let key = rig.key(way, "pinned");
    let point = format!("point-{STRANGER}.s3-accesspoint.eu-central-1.amazonaws.com");
    let put = |path: &str, fields: &[(&str, &str)]| Ask {
        method: "PUT",
        ..at_aws(path, fields)
    };
    for (host, ask) in [
        (OBJECTS, at_aws("/attackers/key", &[])),
        (
            "attackers.s3.eu-central-1.amazonaws.com",
            at_aws("/key", &[]),
        ),
        (&point, at_aws("/key", &[])),
        (OBJECTS, at_aws("/shared/out/key", &[])),
        (OBJECTS, at_aws("/shared/in/../out/key", &[])),
        (OBJECTS, at_aws("/shared/in%2f..%2fout", &[])),
        (OBJECTS, put("/bucket/key", &[(SOURCE, "/attackers/key")])),
        (OBJECTS, put("/bucket/key", &[(SOURCE, "/shared/out/key")])),
        (OBJECTS, put("/bucket/key", &[(OWNER, STRANGER)])),
        (
            OBJECTS,
            put(
                "/bucket/key",
                &[(SOURCE, "/bucket/a"), (SOURCE_OWNER, STRANGER)],
            ),
        ),
    ] {
        let answer = refused(
            rig,
            way,
            host,
            &ask.write(host, &key, ""),
            403,
            "sigv4_resource",
        );
        assert!(
            answer.text().contains("<Code>AccessDenied</Code>"),
            "{answer:?}"
        );
    }
    let table = |account: &str| {
        let name = format!("{{\"TableName\":\"arn:aws:dynamodb:eu-central-1:{account}:table/t\"}}");
        post(name.as_bytes(), "DynamoDB_20120810.Scan")
    };
    through(rig, way, TABLES, "pinned", &table(ACCOUNT));
    let bytes = table(STRANGER).write(TABLES, &key, "");
    let answer = refused(rig, way, TABLES, &bytes, 403, "sigv4_resource");
    let content: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(content["__type"], "AccessDeniedException");
}

/// J03, I07: `s3control:GetDataAccess`, which returns STS credentials.
fn what_access_grants_give_stays_in_the_gateway(rig: &Rig) {
    let host = format!("{ACCOUNT}.s3-control.eu-central-1.amazonaws.com");
    let path = "/v20180820/accessgrantsinstance/dataaccess";
    let ask = Ask {
        query: "target=s3%3A%2F%2Fbucket%2F%2A&permission=READ".into(),
        ..at_aws(path, &[("x-amz-account-id", ACCOUNT)])
    };
    for way in [Way::Connect, Way::Transparent] {
        let real = new_key(rig);
        let content = format!(
            "<?xml version=\"1.0\"?><GetDataAccessResult><Credentials><AccessKeyId>{}</AccessKeyId><SecretAccessKey>{}</SecretAccessKey>\
             <SessionToken>{}</SessionToken><Expiration>{}</Expiration></Credentials><MatchedGrantTarget>s3://bucket/*</MatchedGrantTarget>\
             </GetDataAccessResult>",
            real.id,
            real.secret,
            real.token.as_deref().unwrap(),
            until(3600)
        );
        rig.origins.on(path, move |_| {
            ok("Content-Type: application/xml\r\n", content.as_bytes())
        });
        let answer = send(
            rig,
            way,
            &host,
            &ask.write(&host, &rig.key(way, "granted"), ""),
        );
        let record = rig.record(way);
        assert_eq!(answer.status, 200, "{answer:?} {record}");
        judged_of(rig, "granted");
        let text = answer.text();
        let ours = Key {
            id: element(&text, "AccessKeyId"),
            secret: element(&text, "SecretAccessKey"),
            token: Some(element(&text, "SessionToken")),
        };
        assert!(ours.id != real.id && ours.secret != real.secret && ours.token != real.token);
        let bytes = at_aws("/bucket/key", &[]).write(OBJECTS, &ours, "");
        let answer = send(rig, way, OBJECTS, &bytes);
        let record = rig.record(way);
        assert_eq!(answer.status, 200, "{answer:?} {record}");
        assert_eq!(record["lent"][0]["credential"], "granted", "{record}");
        judge(&rig.seen().remove(0), &real).unwrap();
        rig.origins.on(path, |_| ok("", b""));
        // A credential that is not named for it is refused, in this service's error format.
        let bytes = ask.write(&host, &rig.key(way, "pinned"), "");
        let answer = refused(rig, way, &host, &bytes, 403, "sigv4_action");
        let text = answer.text();
        assert!(
            text.starts_with("<ErrorResponse>") && text.contains("s3control:GetDataAccess"),
            "{text}"
        );
    }
}

/// J03: an action of each protocol that returns a credential, and an unknown one beside such
/// actions.
fn what_returns_credentials_is_refused_at_awss_own_hosts(rig: &Rig) {
    let way = Way::Connect;
    let key = rig.key(way, "granted");
    let json = |service: &'static str, target: &str| Ask {
        service,
        ..post(b"{}", target)
    };
    let form = |service: &'static str, region: &'static str, action: &str| Ask {
        method: "POST",
        path: "/".into(),
        service,
        region,
        body: format!("Action={action}&Version=2010-05-08").into_bytes(),
        payload: None,
        fields: vec![(
            "content-type".into(),
            "application/x-www-form-urlencoded; charset=utf-8".into(),
        )],
        ..Ask::default()
    };
    let get = |service: &'static str, path: &str| Ask {
        service,
        payload: None,
        ..at_aws(path, &[])
    };
    for (host, ask, what) in [
        (
            "secretsmanager.eu-central-1.amazonaws.com",
            json("secretsmanager", "secretsmanager.GetSecretValue"),
            "secretsmanager:GetSecretValue",
        ),
        (
            "api.ecr.eu-central-1.amazonaws.com",
            json(
                "ecr",
                "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken",
            ),
            "ecr:GetAuthorizationToken",
        ),
        (
            "secretsmanager.eu-central-1.amazonaws.com",
            json("secretsmanager", "secretsmanager.GetEverything"),
            "not known here",
        ),
        (
            "iam.amazonaws.com",
            form("iam", "us-east-1", "CreateAccessKey"),
            "iam:CreateAccessKey",
        ),
        (
            "ec2.eu-central-1.amazonaws.com",
            form("ec2", "eu-central-1", "GetPasswordData"),
            "ec2:GetPasswordData",
        ),
        (
            "lambda.eu-central-1.amazonaws.com",
            get("lambda", "/2015-03-31/functions/name"),
            "lambda:GetFunction",
        ),
    ] {
        let bytes = ask.write(host, &key, "");
        let answer = refused(rig, way, host, &bytes, 403, "sigv4_action");
        assert!(answer.text().contains(what), "{answer:?}");
    }
    // Nothing is injected into an unsigned request, and yet its response would be a credential.
    let host = "portal.sso.eu-central-1.amazonaws.com";
    let bytes = format!(
        "GET /federation/credentials?role_name=admin&account_id={ACCOUNT} HTTP/1.1\r\nHost: {host}\r\n\r\n"
    );
    refused(rig, way, host, bytes.as_bytes(), 403, "sigv4_action");
}

/// A SigV4a request for these regions, with an invalid signature.
fn asymmetric(host: &str, service: &str, id: &str, regions: &str) -> String {
    let at = stamp(0);
    format!(
        "GET /bucket/key HTTP/1.1\r\nHost: {host}\r\nx-amz-date: {at}\r\nx-amz-region-set: {regions}\r\nx-amz-content-sha256: {}\r\nAuthorization: AWS4-ECDSA-P256-SHA256 \
         Credential={id}/{}/{service}/aws4_request, SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-region-set, Signature=3044{}\r\n\r\n",
        hash(b""),
        &at[..8],
        "02200102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20".repeat(2)
    )
}

/// J13: at a place of one region, and at a multi-region access point, which takes a set of them.
fn every_region_at_once_is_refused(rig: &Rig) {
    let point = "alias.mrap.accesspoint.s3-global.amazonaws.com";
    for way in [Way::Connect, Way::Transparent] {
        for (host, credential) in [
            (S3, "aws"),
            (OBJECTS, "pinned"),
            (point, "pinned"),
            (point, "granted"),
        ] {
            for regions in ["*", "*,*", "us-east-1,*", "eu-*"] {
                let bytes = asymmetric(host, "s3", rig.phantom(way, credential), regions);
                let answer = refused(rig, way, host, bytes.as_bytes(), 403, "sigv4_scope");
                assert!(
                    answer.text().contains("<Code>AccessDenied</Code>"),
                    "{answer:?}"
                );
            }
        }
    }
}

/// What a trick is, the request, and how it is refused.
fn tricks(
    ask: &Ask,
    host: &str,
    key: &Key,
    real: &Key,
) -> Vec<(&'static str, Vec<u8>, u16, &'static str)> {
    let signed = String::from_utf8(ask.write(host, key, "")).unwrap();
    let authorization = signed
        .lines()
        .find(|line| line.starts_with("authorization"))
        .unwrap();
    let line = |target: &str, fields: &str| {
        let kind = ask
            .fields
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"));
        let kind: String = kind.collect();
        format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{kind}{fields}\r\n").into_bytes()
    };
    let url = |expires: u32| ask.presign(host, key, expires);
    let (today, yesterday) = (stamp(0)[..8].to_owned(), stamp(-86_400)[..8].to_owned());
    let unsigned_host = Ask {
        unsigned: vec!["host"],
        ..ask.clone()
    };
    let everywhere = Ask {
        region: "*",
        ..ask.clone()
    };
    vec![
        (
            "a region `*`",
            everywhere.write(host, key, ""),
            403,
            "sigv4_scope",
        ),
        (
            "header and query",
            line(&url(60), &format!("{authorization}\r\n")),
            400,
            "sigv4_ambiguous",
        ),
        (
            "a parameter twice",
            line(&format!("{}&X-Amz-Date=20200101T000000Z", url(60)), ""),
            400,
            "sigv4_ambiguous",
        ),
        (
            "a parameter in another case",
            line(&url(60).replace("X-Amz-Date", "x-amz-date"), ""),
            400,
            "sigv4_malformed",
        ),
        (
            "the host is not signed",
            unsigned_host.write(host, key, ""),
            403,
            "sigv4_unsigned",
        ),
        (
            "another day in the scope",
            signed
                .replace(&format!("/{today}/"), &format!("/{yesterday}/"))
                .into_bytes(),
            403,
            "sigv4_date",
        ),
        (
            "a life of more than seven days",
            line(&url(604_801), ""),
            400,
            "sigv4_expiry",
        ),
        (
            "the real key's id",
            ask.write(host, real, ""),
            403,
            "foreign_credential",
        ),
        (
            "the real key's id with the phantom's secret",
            ask.write(
                host,
                &Key {
                    id: real.id.clone(),
                    ..key.clone()
                },
                "",
            ),
            403,
            "foreign_credential",
        ),
    ]
}

fn each_trick_with_a_signature_is_refused_in_the_services_own_shape(rig: &Rig) {
    let way = Way::Connect;
    let (key, real) = (rig.key(way, "aws"), rig.real_key("aws"));
    let caller = Ask {
        path: "/".into(),
        query: "Action=GetCallerIdentity&Version=2011-06-15".into(),
        service: "sts",
        ..Ask::default()
    };
    let scan = post(b"{}", "DynamoDB_20120810.ListTables");
    let shape = |host: &str, reason: &str, answer: &Response| {
        let text = answer.text();
        match host {
            S3 => {
                text.starts_with("<?xml")
                    && text.contains("<Error><Code>")
                    && text.contains("<RequestId>")
            }
            STS => text.starts_with("<ErrorResponse><Error><Type>Sender</Type><Code>"),
            _ => {
                let content: serde_json::Value =
                    serde_json::from_slice(&answer.body).unwrap_or_default();
                content["__type"].is_string()
                    && content["reason"] == reason
                    && content["message"].is_string()
            }
        }
    };
    for (host, ask) in [
        (S3, &put(b"")),
        (S3, &Ask::default()),
        (STS, &caller),
        (DB, &scan),
    ] {
        for (what, bytes, status, reason) in tricks(ask, host, &key, &real) {
            let answer = refused(rig, way, host, &bytes, status, reason);
            assert!(shape(host, reason, &answer), "{what} at {host}: {answer:?}");
            assert!(
                answer.field("gateway-exchange").is_some(),
                "{what}: {answer:?}"
            );
        }
    }
}

/// An endpoint that the operator named with a service of their own: the general rules apply, and no
/// action can be pinned.
fn a_service_that_aws_does_not_have_is_signed_for(rig: &Rig) {
    let ask = |method: &'static str, path: &str, body: &[u8]| Ask {
        method,
        path: path.into(),
        query: "b=2&a=%2F".into(),
        service: "own-service",
        region: "here",
        body: body.to_vec(),
        payload: None,
        ..Ask::default()
    };
    let content = random(2000).into_bytes();
    for way in Way::SECURE {
        for (method, path, body) in [
            ("GET", "/", &b""[..]),
            ("GET", "/a%20b/c", b""),
            ("POST", "/anything", &content),
            ("PUT", "/x/y/", b""),
        ] {
            let (seen, judged) = through(rig, way, OWN, "aws", &ask(method, path, body));
            assert_eq!(
                (seen.target, &judged.body[..]),
                (format!("{path}?b=2&a=%2F"), body)
            );
        }
        let key = rig.key(way, "actor");
        let bytes = ask("GET", "/", b"").write(OWN, &key, "");
        refused(rig, way, OWN, &bytes, 403, "sigv4_action");
        let strange = Ask {
            service: "other-service",
            ..ask("GET", "/", b"")
        };
        refused(
            rig,
            way,
            OWN,
            &strange.write(OWN, &rig.key(way, "aws"), ""),
            403,
            "sigv4_scope",
        );
        // AWS's own hosts do not serve it, and no other credential may use it.
        let bytes = ask("GET", "/", b"").write(OBJECTS, &rig.key(way, "granted"), "");
        refused(rig, way, OBJECTS, &bytes, 403, "sigv4_scope");
    }
}
