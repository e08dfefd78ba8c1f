//! Variants of the known ways out: none of them is signed.

use super::*;

/// Variants of the known ways: each names a stranger, everybody or a bucket that is not pinned,
/// unless `change` makes it name a pinned one.
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
