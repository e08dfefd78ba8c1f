//! Which actions pins permit.

use super::*;

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
