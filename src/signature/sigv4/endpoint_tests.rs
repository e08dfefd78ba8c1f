//! Tests of hosts: AWS's endpoints, and hosts that are not.

use super::super::hosts::NotFirstParty;
use super::*;
use gateway_message::Host;
use proptest::prelude::*;

fn of(host: &str) -> Result<Endpoint, NotFirstParty> {
    Endpoint::of(&Host::parse(host.as_bytes()).unwrap())
}

/// `service region style`, or the refusal.
fn shown(host: &str) -> String {
    match of(host) {
        Err(refused) => format!("!{refused:?}"),
        Ok(found) => {
            let signings: Vec<_> = found
                .signings
                .iter()
                .map(|s| match &s.regions {
                    EndpointRegions::One(region) => format!("{} {region}", s.service),
                    EndpointRegions::Any(partition) => format!("{} any-{partition}", s.service),
                    EndpointRegions::Set => format!("{} set", s.service),
                })
                .collect();
            let style = match found.style {
                Style::Service => String::new(),
                Style::Path => " path".to_owned(),
                Style::VirtualHost { bucket } => format!(" bucket={bucket}"),
                Style::AccessPoint { name } => format!(" point={name}"),
            };
            let account = found
                .account
                .map(|a| format!(" account={a}"))
                .unwrap_or_default();
            format!("{}{style}{account}", signings.join("|"))
        }
    }
}

#[test]
fn a_host_of_aws_says_its_service_and_its_region() {
    for (host, expected) in [
        ("dynamodb.eu-west-1.amazonaws.com", "dynamodb eu-west-1"),
        (
            "dynamodb-fips.us-east-1.amazonaws.com",
            "dynamodb us-east-1",
        ),
        ("dynamodb.us-east-1.api.aws", "dynamodb us-east-1"),
        (
            "123456789012.ddb.us-east-2.amazonaws.com",
            "dynamodb us-east-2 account=123456789012",
        ),
        ("sts.amazonaws.com", "sts us-east-1"),
        ("sts.eu-central-1.amazonaws.com", "sts eu-central-1"),
        ("iam.amazonaws.com", "iam us-east-1"),
        // Two partitions share the suffix, and this host.
        (
            "cloudfront.amazonaws.com",
            "cloudfront us-east-1|cloudfront us-gov-west-1",
        ),
        ("route53.amazonaws.com", "route53 us-east-1"),
        (
            "organizations.us-east-1.amazonaws.com",
            "organizations us-east-1",
        ),
        ("lambda.us-gov-west-1.amazonaws.com", "lambda us-gov-west-1"),
        ("lambda.cn-north-1.amazonaws.com.cn", "lambda cn-north-1"),
        ("sqs.eusc-de-east-1.amazonaws.eu", "sqs eusc-de-east-1"),
        ("ec2.us-iso-east-1.c2s.ic.gov", "ec2 us-iso-east-1"),
        ("ec2.us-isob-east-1.sc2s.sgov.gov", "ec2 us-isob-east-1"),
        ("monitoring.us-west-2.amazonaws.com", "monitoring us-west-2"),
        ("email.eu-west-1.amazonaws.com", "ses eu-west-1"),
        (
            "bedrock-runtime.us-east-1.amazonaws.com",
            "bedrock us-east-1",
        ),
        ("api.ecr.us-east-1.amazonaws.com", "ecr us-east-1"),
        ("eu-west-1.queue.amazonaws.com", "sqs eu-west-1"),
        ("queue.amazonaws.com", "sqs us-east-1"),
        (
            "streams.dynamodb.us-east-1.amazonaws.com",
            "dynamodb us-east-1",
        ),
        (
            "data-servicediscovery.eu-west-1.amazonaws.com",
            "servicediscovery eu-west-1",
        ),
    ] {
        assert_eq!(shown(host), expected, "{host}");
    }
}

#[test]
fn every_spelling_of_an_s3_host_is_read() {
    for (host, expected) in [
        ("s3.amazonaws.com", "s3 any-aws path"),
        ("s3.eu-west-1.amazonaws.com", "s3 eu-west-1 path"),
        ("s3-eu-west-1.amazonaws.com", "s3 eu-west-1 path"),
        ("s3-external-1.amazonaws.com", "s3 us-east-1 path"),
        ("s3-fips.us-east-2.amazonaws.com", "s3 us-east-2 path"),
        (
            "s3-fips-us-gov-west-1.amazonaws.com",
            "s3 us-gov-west-1 path",
        ),
        ("s3.dualstack.us-west-2.amazonaws.com", "s3 us-west-2 path"),
        ("s3.cn-north-1.amazonaws.com.cn", "s3 cn-north-1 path"),
        ("my-bucket.s3.amazonaws.com", "s3 any-aws bucket=my-bucket"),
        (
            "my-bucket.s3.eu-west-1.amazonaws.com",
            "s3 eu-west-1 bucket=my-bucket",
        ),
        (
            "bucket.with.dots.s3.eu-west-1.amazonaws.com",
            "s3 eu-west-1 bucket=bucket.with.dots",
        ),
        (
            "b-1.s3.dualstack.us-west-2.amazonaws.com",
            "s3 us-west-2 bucket=b-1",
        ),
        (
            "my-bucket.s3-accelerate.amazonaws.com",
            "s3 any-aws bucket=my-bucket",
        ),
        (
            "my-bucket.s3-accelerate.dualstack.amazonaws.com",
            "s3 any-aws bucket=my-bucket",
        ),
        (
            "point-123456789012.s3-accesspoint.us-east-1.amazonaws.com",
            "s3 us-east-1 point=point-123456789012 account=123456789012",
        ),
        (
            "point-123456789012.s3-accesspoint-fips.dualstack.us-east-1.amazonaws.com",
            "s3 us-east-1 point=point-123456789012 account=123456789012",
        ),
        (
            "p-123456789012.op-01ac5d28a6a232904.s3-outposts.us-east-1.amazonaws.com",
            "s3-outposts us-east-1 point=p-123456789012.op-01ac5d28a6a232904 account=123456789012",
        ),
        (
            "l-123456789012.s3-object-lambda.us-east-1.amazonaws.com",
            "s3-object-lambda us-east-1 point=l-123456789012 account=123456789012",
        ),
        (
            "mfzwi23gnjvgw.mrap.accesspoint.s3-global.amazonaws.com",
            "s3 set point=mfzwi23gnjvgw.mrap.accesspoint",
        ),
        (
            "123456789012.s3-control.us-east-1.amazonaws.com",
            "s3 us-east-1 account=123456789012",
        ),
        (
            "data--use1-az4--x-s3.s3express-use1-az4.us-east-1.amazonaws.com",
            "s3express us-east-1 bucket=data--use1-az4--x-s3",
        ),
        (
            "s3express-control.us-east-1.amazonaws.com",
            "s3express us-east-1 path",
        ),
        (
            "data--use1-az4--x-s3.s3express-use1-az5.us-east-1.amazonaws.com",
            "!Service",
        ),
        ("s3-accelerate.amazonaws.com", "!Service"),
        ("x.s3-control.us-east-1.amazonaws.com", "!Service"),
        ("point.s3-accesspoint.us-east-1.amazonaws.com", "!Service"),
    ] {
        assert_eq!(shown(host), expected, "{host}");
    }
}

#[test]
fn a_host_at_which_a_stranger_answers_is_not_first_party() {
    for (host, expected) in [
        ("s3.amazonaws.com.evil.test", "!Elsewhere"),
        ("evil-amazonaws.com", "!Elsewhere"),
        ("amazonaws.com", "!Elsewhere"),
        ("s3.us-east-1.amazonaws.com.cn", "!Region"),
        ("sts.cn-north-1.amazonaws.com", "!Region"),
        ("sts.us-east-1.api.aws.evil.test", "!Elsewhere"),
        ("abcdef.execute-api.us-east-1.amazonaws.com", "!Service"),
        ("execute-api.us-east-1.amazonaws.com", "!Service"),
        ("abc.lambda-url.us-east-1.on.aws", "!Elsewhere"),
        ("d111111abcdef8.cloudfront.net", "!Elsewhere"),
        ("bucket.s3-website-us-east-1.amazonaws.com", "!Website"),
        ("bucket.s3-website.eu-central-1.amazonaws.com", "!Website"),
        ("x.appsync-api.us-east-1.amazonaws.com", "!Service"),
        ("lb-1.us-east-1.elb.amazonaws.com", "!Service"),
        ("search-x-y.us-east-1.es.amazonaws.com", "!Service"),
        ("ec2-1-2-3-4.compute-1.amazonaws.com", "!Service"),
        ("db.abc.us-east-1.rds.amazonaws.com", "!Service"),
        ("a1b2.iot.us-east-1.amazonaws.com", "!Service"),
        ("evil.dynamodb.us-east-1.amazonaws.com", "!Service"),
        ("12345.ddb.us-east-1.amazonaws.com", "!Service"),
        ("sts.us-east-9.amazonaws.com", "!Region"),
        ("us-east-1.amazonaws.com", "!Service"),
        ("127.0.0.1", "!Elsewhere"),
        ("localhost", "!Elsewhere"),
    ] {
        assert_eq!(shown(host), expected, "{host}");
    }
    assert!(Host::parse(b"us-east-1#.evil").is_err());
    assert!(Host::parse(b"s3.us-east-1.amazonaws.com/evil").is_err());
}

#[test]
fn a_scope_that_is_not_the_hosts_is_refused() {
    let check = |host: &str, service: &str, region: &str| {
        of(host).unwrap().check(service, &[region], false)
    };
    assert_eq!(
        check("s3.eu-west-1.amazonaws.com", "s3", "eu-west-1"),
        Ok(())
    );
    assert_eq!(
        check("s3.eu-west-1.amazonaws.com", "sts", "eu-west-1"),
        Err(ScopeMismatch::Service)
    );
    assert_eq!(
        check("s3.eu-west-1.amazonaws.com", "s3", "us-east-1"),
        Err(ScopeMismatch::Region)
    );
    assert_eq!(
        check("iam.amazonaws.com", "iam", "eu-west-1"),
        Err(ScopeMismatch::Region)
    );
    assert_eq!(check("b-1.s3.amazonaws.com", "s3", "eu-west-1"), Ok(()));
    assert_eq!(
        check("b-1.s3.amazonaws.com", "s3", "cn-north-1"),
        Err(ScopeMismatch::Region)
    );
    assert_eq!(
        check("b-1.s3.amazonaws.com", "s3", "us-east-1/x"),
        Err(ScopeMismatch::Region)
    );
    let set = |host: &str, regions: &[&str]| of(host).unwrap().check("s3", regions, true);
    let point = "m.mrap.accesspoint.s3-global.amazonaws.com";
    assert_eq!(set(point, &["*"]), Ok(()));
    assert_eq!(set(point, &["us-east-1", "eu-west-1"]), Ok(()));
    assert_eq!(set(point, &["us-evil-1"]), Err(ScopeMismatch::Region));
    assert_eq!(set(point, &[]), Err(ScopeMismatch::RegionSet));
    assert_eq!(
        check(point, "s3", "us-east-1"),
        Err(ScopeMismatch::RegionSet)
    );
    assert_eq!(
        set("s3.eu-west-1.amazonaws.com", &["*"]),
        Err(ScopeMismatch::Region)
    );
    assert_eq!(set("s3.eu-west-1.amazonaws.com", &["eu-west-1"]), Ok(()));
}

#[test]
fn an_own_endpoint_is_what_the_operator_says() {
    let own = Endpoint::own("s3", "auto", OwnStyle::VirtualHost("mine"));
    assert_eq!(own.check("s3", &["auto"], false), Ok(()));
    assert_eq!(
        own.check("s3", &["us-east-1"], false),
        Err(ScopeMismatch::Region)
    );
    assert!(own.is_object_store());
    let table = Endpoint::own("dynamodb", "local", OwnStyle::Service);
    assert!(table.apis().iter().any(|api| api.id == "dynamodb"));
    assert!(!table.is_object_store() && !table.takes_exact_paths());
    let exact = Endpoint::own("store", "here", OwnStyle::Exact);
    assert!(exact.apis().is_empty() && exact.takes_exact_paths() && !exact.is_object_store());
}

proptest! {
    /// Whatever stands before it, a host that does not end in one of AWS's suffixes is never AWS's.
    #[test]
    fn no_host_elsewhere_is_first_party(front in "[a-z0-9.-]{0,30}", end in "(evil\\.test|amazonaws\\.com\\.evil|aws\\.example|notamazonaws\\.com)") {
        if let Ok(host) = Host::parse(format!("{front}.s3.us-east-1.{end}").as_bytes()) {
            prop_assert_eq!(Endpoint::of(&host), Err(NotFirstParty::Elsewhere));
        }
    }

    /// The host determines what it is signed for, including the region, if it has one.
    #[test]
    fn a_region_that_is_signed_for_stands_in_the_host(stem in "(s3|sts|dynamodb|ec2|[a-z-]{2,12})", region in "(us-east-1|eu-west-1|us-evil-1|cn-north-1|[a-z]{2}-[a-z]{4}-[0-9])") {
        let text = format!("{stem}.{region}.amazonaws.com");
        if let Ok(host) = Host::parse(text.as_bytes())
            && let Ok(found) = Endpoint::of(&host)
            && !found.is_object_store()
        {
            prop_assert!(found.signings.iter().all(|s| s.regions == EndpointRegions::One(region.clone().into())), "{text}");
        }
    }
}
