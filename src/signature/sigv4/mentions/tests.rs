//! What the search finds in paths, queries, fields and contents, and what it does not.

use super::*;
use gateway_message::EncodedSlash;

const OWN: &str = "111122223333";
const STRANGER: &str = "999999999999";

fn own_account(account: &str) -> bool {
    account == OWN
}

fn own_bucket(bucket: &str) -> bool {
    bucket == "mine"
}

const ACCOUNTS: AllowedMentions<'static> = AllowedMentions {
    accounts: Some(&own_account),
    buckets: None,
    store: None,
};
const STORE: AllowedMentions<'static> = AllowedMentions {
    store: Some(&own_bucket),
    ..ACCOUNTS
};
const BUCKETS: AllowedMentions<'static> = AllowedMentions {
    accounts: None,
    buckets: Some(&own_bucket),
    store: None,
};

fn shown(found: Result<Option<Mention>, Unreadable>) -> String {
    match found {
        Ok(None) => String::new(),
        Ok(Some(Mention::Account(account))) => account,
        Ok(Some(Mention::Grantee)) => "grantee".to_owned(),
        Ok(Some(Mention::Bucket(bucket))) => format!("bucket {bucket}"),
        Ok(Some(Mention::Everybody)) => "everybody".to_owned(),
        Err(Unreadable) => "unreadable".to_owned(),
    }
}

fn target(text: &str) -> String {
    let target = RequestTarget::parse(text.as_bytes(), EncodedSlash::Keep).unwrap();
    shown(in_target(&target, Some(Data::Nothing), ACCOUNTS))
}

fn content(kind: &str, text: &str) -> String {
    let typed = (Format::Typed { forms: true }, Data::Nothing);
    shown(in_content(Some(kind), text.as_bytes(), typed, ACCOUNTS))
}

fn json(text: &str) -> String {
    content("application/x-amz-json-1.1", text)
}

fn form(text: &str) -> String {
    content("application/x-www-form-urlencoded; charset=utf-8", text)
}

fn at_store(text: &str) -> String {
    let written = if text.starts_with('<') {
        Format::Xml
    } else {
        Format::Json
    };
    shown(in_content(
        None,
        text.as_bytes(),
        (written, Data::Nothing),
        STORE,
    ))
}

#[test]
fn a_strangers_account_in_path_or_query_is_found() {
    for text in [
        "/2015-03-31/functions/arn:aws:lambda:us-east-1:999999999999:function:x/invocations",
        "/2015-03-31/functions/arn%3Aaws%3Alambda%3Aus-east-1%3A999999999999%3Afunction%3Ax/invocations",
        "/999999999999/queue",
        "/2015-03-31/functions/999999999999:function:f/invocations",
        "/2015-03-31/functions/999999999999%3Afunction%3Af/invocations",
        "/?Action=Publish&TopicArn=arn%3Aaws%3Asns%3Aus-east-1%3A999999999999%3At",
        "/v1/x?domain=d&domain-owner=999999999999",
        "/111122223333/queue?n=see+999999999999+there",
        "/x?filter=a%253A999999999999%253Ab",
    ] {
        assert_eq!(target(text), STRANGER, "{text}");
    }
    for text in [
        "/2015-03-31/functions/arn:aws:lambda:us-east-1:111122223333:function:x/invocations",
        "/111122223333/queue",
        "/policies/arn:aws:iam::aws:policy%2FReadOnlyAccess",
        "/x?from=1700000000000&id=0e37df36-f698-11e6-8dd4-999999999999",
    ] {
        assert_eq!(target(text), "", "{text}");
    }
}

#[test]
fn a_strangers_account_in_content_is_found_however_it_is_written() {
    for text in [
        r#"{"TableName":"arn:aws:dynamodb:us-east-1:999999999999:table/t"}"#,
        r#"{"TableName":"mine","TableName":"\u0061rn:aws:dynamodb:us-east-1:999999999999:table/t","TableName":"mine"}"#,
        r#"{"RequestItems":{"arn:aws:dynamodb:us-east-1:999999999999:table/t":{}}}"#,
        r#"{"QueueUrl":"https://sqs.us-east-1.amazonaws.com/999999999999/q"}"#,
        r#"{"registryId":"999999999999"}"#,
        r#"{"registryId":999999999999}"#,
        r#"{"registryId":9.99999999999e11}"#,
        r#"{"CatalogId":"999999999999:s3tablescatalog/b"}"#,
        r#"{"FunctionName":"999999999999:function:f"}"#,
        r#"{"UserId":"9999-9999-9999"}"#,
        r#"{"anything":"in the middle (999999999999) of a text"}"#,
        r#"{"anything":["x",{"y":"x999999999999"}]}"#,
        r#"{"AttributeValue":"9999\u00399999999"}"#,
        // One encoding inside another.
        r#"{"Policy":"{\"Statement\":[{\"Principal\":{\"AWS\":\"arn:aws:iam::999999999999:root\"}}]}"}"#,
        r#"{"Policy":"{\"Statement\":[{\"Principal\":{\"AWS\":\"9999\\u00399999999\"}}]}"}"#,
        r#"{"Policy":"%7B%22AWS%22%3A%22arn%3Aaws%3Aiam%3A%3A999999999999%3Aroot%22%7D"}"#,
        r#"{"Policy":"%257B%2522AWS%2522%253A%2522%39%39%39999999999%2522%257D"}"#,
        r#"{"Policy":"&#x39;99999999999"}"#,
    ] {
        assert_eq!(json(text), STRANGER, "{text}");
    }
    assert_eq!(json(r#"{"AccountId":"1234"}"#), "000000001234");
    for text in [
        "Action=AssumeRole&RoleArn=arn%3Aaws%3Aiam%3A%3A999999999999%3Arole%2Fx",
        "Action=ModifySnapshotAttribute&CreateVolumePermission.Add.1.UserId=999999999999",
        "Action=ModifyDBSnapshotAttribute&ValuesToAdd.AttributeValue.1=999999999999",
        "PolicyDocument=%7B%22AWS%22%3A%22999999999999%22%7D",
        "999999999999=x",
    ] {
        assert_eq!(form(text), STRANGER, "{text}");
    }
    for text in [
        "<a><Arn>&#x61;rn:aws:s3:r:999999999999:x</Arn></a>",
        "<AccountId> 999999999999 </AccountId>",
        "<a b='999999999999'/>",
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><a>&#57;99999999999</a>",
        "<Policy>{&quot;AWS&quot;:&quot;arn:aws:iam::999999999999:root&quot;}</Policy>",
        "<Policy>{&quot;AWS&quot;:&quot;9999\\u00399999999&quot;}</Policy>",
    ] {
        assert_eq!(content("application/xml", text), STRANGER, "{text}");
    }
    for text in [
        r#"{"TableName":"t","n":[999999999999999, 99999999999, "1700000000000"]}"#,
        r#"{"Resource":"arn:aws:logs:*:*:*","Policy":"arn:aws:iam::aws:policy/ReadOnlyAccess"}"#,
        r#"{"ClientToken":"0e37df36-f698-11e6-8dd4-999999999999","digest":"sha256:ab999999999999cdab999999999999cdab999999999999cdab999999999999cd"}"#,
        r#"{"QueueUrl":"https://sqs.us-east-1.amazonaws.com/111122223333/q"}"#,
    ] {
        assert_eq!(json(text), "", "{text}");
    }
    assert_eq!(form("RoleArn=arn:aws:iam::111122223333:role/x"), "");
    assert_eq!(content("text/xml", "<a>arn:aws:s3:::bucket</a>"), "");
}

#[test]
fn what_opens_to_everybody_is_found() {
    for text in [
        r#"{"Principal":"*"}"#,
        r#"{"Effect":"Allow","Principal":"*"}"#,
        r#"{"Effect":"Allow","principal":{"AWS":"*"}}"#,
        r#"{"Effect":"Allow","Principal":{"AWS":["arn:aws:iam::111122223333:root","*"]}}"#,
        r#"{"Effect":"Allow","Effect":"Deny","Principal":"*"}"#,
        r#"{"Effect":"Allow","NotPrincipal":{"AWS":"111122223333"}}"#,
        r#"{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::*:root"}}"#,
        r#"{"Effect":"Allow","Principal":{"Federated":"accounts.google.com"}}"#,
        r#"{"Policy":"{\"Statement\":{\"Effect\":\"Allow\",\"Principal\":\"*\"}}"}"#,
        r#"{"Policy":"{\"Statement\":{\"Effect\":\"Allow\",\"\\u0050rincipal\":\"\\u002a\"}}"}"#,
        r#"{"statements":[{"principals":["*"]}]}"#,
        r#"{"AccountIdsToAdd":["All"]}"#,
        r#"{"AuthType":"NONE"}"#,
        r#"{"FunctionUrlAuthType":"NONE","Principal":"*"}"#,
    ] {
        assert_eq!(json(text), "everybody", "{text}");
    }
    for text in [
        "Action=ModifySnapshotAttribute&CreateVolumePermission.Add.1.Group=all",
        "Action=ModifySnapshotAttribute&UserGroup.1=all",
        "Action=ModifyImageAttribute&LaunchPermission.Add.1.Group=all",
        "Action=ModifyDBSnapshotAttribute&ValuesToAdd.AttributeValue.1=all",
        "Action=ModifyDBClusterSnapshotAttribute&ValuesToAdd.member.1=ALL",
        "Action=AddPermission&AWSAccountId.1=*",
        "Action=ModifyVpcEndpointServicePermissions&AddAllowedPrincipals.1=%2A",
        "Attributes.entry.1.key=Policy&Attributes.entry.1.value=%7B%22Effect%22%3A%22Allow%22%2C%22Principal%22%3A%22*%22%7D",
    ] {
        assert_eq!(form(text), "everybody", "{text}");
    }
    for text in [
        r#"{"Effect":"Deny","Principal":"*","Condition":{"Bool":{"aws:SecureTransport":"false"}}}"#,
        r#"{"Effect":"Allow","Principal":{"Service":"s3.amazonaws.com"},"Action":"*","Resource":"*"}"#,
        r#"{"Effect":"Allow","Principal":{"AWS":"111122223333"},"Condition":{"ArnLike":{"aws:PrincipalArn":"arn:aws:iam::111122223333:role/*"}}}"#,
        r#"{"Effect":"Allow","Principal":{"Federated":"arn:aws:iam::111122223333:saml-provider/x"}}"#,
        r#"{"filterPattern":"{ $.errorCode = \"*\" }","AuthType":"AWS_IAM"}"#,
    ] {
        assert_eq!(json(text), "", "{text}");
    }
    assert_eq!(form("Filter.1.Value.1=all&ExecutableBy.1=self&Name=*"), "");
}

#[test]
fn grantees_of_stores_are_found() {
    let id = "79a59df900b949e55d96a1e698fbacedfd6e09d98eacf8f8d5218e7cd47ef2be";
    for text in [
        format!(
            "<AccessControlPolicy><Grant><Grantee><ID>{id}</ID></Grantee></Grant></AccessControlPolicy>"
        ),
        format!(r#"{{"Effect":"Allow","Principal":{{"CanonicalUser":"{id}"}}}}"#),
        "<Grantee><EmailAddress>a@b.example</EmailAddress></Grantee>".to_owned(),
        "<Grantee xsi:type=\"AmazonCustomerByEmail\"></Grantee>".to_owned(),
    ] {
        assert_eq!(at_store(&text), "grantee", "{text}");
    }
    for group in ["AllUsers", "AuthenticatedUsers"] {
        let text = format!("<URI>http://acs.amazonaws.com/groups/global/{group}</URI>");
        assert_eq!(at_store(&text), "everybody");
    }
    let text = "<URI>http://acs.amazonaws.com/groups/s3/LogDelivery</URI>";
    assert_eq!(at_store(text), "");
}

#[test]
fn buckets_that_get_something_are_found() {
    for text in [
        "<ReplicationConfiguration><Destination><Bucket>arn:aws:s3:::theirs</Bucket></Destination></ReplicationConfiguration>",
        "<x:LoggingEnabled><x:TargetBucket>theirs</x:TargetBucket></x:LoggingEnabled>",
        "<S3><BucketName a='b'>t&#104;eirs</BucketName></S3>",
    ] {
        assert_eq!(at_store(text), "bucket theirs", "{text}");
        assert_eq!(
            at_store(
                &text
                    .replace("theirs", "mine")
                    .replace("t&#104;eirs", "mine")
            ),
            ""
        );
    }
    assert_eq!(
        at_store(
            "<CreateBucketConfiguration><Bucket><Type>Directory</Type></Bucket></CreateBucketConfiguration>"
        ),
        ""
    );
    let elsewhere = |text: &str| {
        let typed = (Format::Typed { forms: true }, Data::Nothing);
        shown(in_content(
            Some("application/json"),
            text.as_bytes(),
            typed,
            BUCKETS,
        ))
    };
    for text in [
        r#"{"S3DestinationConfiguration":{"BucketARN":"arn:aws:s3:::theirs"}}"#,
        r#"{"ResultConfiguration":{"OutputLocation":"s3://theirs/out"}}"#,
        r#"{"S3BucketName":"theirs","S3KeyPrefix":"x"}"#,
        r#"{"S3Object":{"Bucket":"theirs","Name":"x"}}"#,
        r#"{"QueryString":"UNLOAD (x) TO 's3://theirs/x'"}"#,
    ] {
        assert_eq!(elsewhere(text), "bucket theirs");
        assert_eq!(elsewhere(&text.replace("theirs", "mine")), "");
    }
    // No accounts are pinned there.
    assert_eq!(elsewhere(r#"{"Principal":"*","x":"999999999999"}"#), "");
}

#[test]
fn data_is_not_searched_and_where_it_goes_is() {
    let sent = |text: &str| {
        let data = Data::of("sqs", Some("SendMessage"));
        let typed = (Format::Typed { forms: true }, data);
        shown(in_content(
            Some("application/json"),
            text.as_bytes(),
            typed,
            ACCOUNTS,
        ))
    };
    let queue = |account: &str| {
        format!(
            r#"{{"QueueUrl":"https://sqs.us-east-1.amazonaws.com/{account}/q","MessageBody":"{{\"Principal\":\"*\",\"n\":999999999999}}"}}"#
        )
    };
    assert_eq!(sent(&queue(OWN)), "");
    assert_eq!(sent(&queue(STRANGER)), STRANGER);
}

#[test]
fn content_is_looked_through_in_time_that_grows_as_it_does() {
    let begun = std::time::Instant::now();
    assert_eq!(
        content("text/xml", &format!("<a>{}", "arn:".repeat(1 << 15))),
        "arn"
    );
    assert_eq!(
        content(
            "text/xml",
            &format!("<a>{}", "arn:aws:s3:::\u{e9}".repeat(1 << 15))
        ),
        ""
    );
    let long = format!(
        r#"{{"{}":[{}0]}}"#,
        "x".repeat(1 << 20),
        "0,".repeat(1 << 15)
    );
    assert_eq!(json(&long), "");
    assert_ne!(
        json(&format!(
            r#"{{"x":"{}"}}"#,
            "%25252525252525".repeat(1 << 15)
        )),
        ""
    );
    for word in ["a", "111122223333a", "111122223333z"] {
        assert_eq!(json(&format!(r#"{{"x":"{}"}}"#, word.repeat(1 << 16))), "");
    }
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

#[test]
fn escapes_that_never_end_are_looked_through_in_time_that_grows_as_they_do() {
    let begun = std::time::Instant::now();
    for piece in [
        "&#", "&#x", "&#1", "&", "\\\\u", "%", "%2", "%25", "{", "\\\"",
    ] {
        let length = if piece == "&#" { 4 << 20 } else { 1 << 20 };
        let _either = json(&format!(
            r#"{{"x":"{}"}}"#,
            piece.repeat(length / piece.len())
        ));
        assert!(
            begun.elapsed().as_secs() < 60,
            "{piece} {:?}",
            begun.elapsed()
        );
    }
    for piece in ["&#", "&amp;", "<a>", "<a b='&#49;'>", "</a"] {
        let _either = content(
            "text/xml",
            &format!("<a>{}", piece.repeat((1 << 20) / piece.len())),
        );
        assert!(
            begun.elapsed().as_secs() < 60,
            "{piece} {:?}",
            begun.elapsed()
        );
    }
}

#[test]
fn a_reference_is_read_however_long_its_number_is_written() {
    for digit in ["&#57;", "&#x39;", "&#X39;", "&#00000000000000000000057;"] {
        let text = json(&format!(r#"{{"x":"{}99999999999"}}"#, digit));
        assert_eq!(text, STRANGER, "{digit}");
    }
    for text in ["&#", "&#;", "&#5", "&#g;", "&#\u{e9};", "a&#x"] {
        assert_eq!(json(&format!(r#"{{"x":"{text}"}}"#)), "", "{text}");
    }
}

#[test]
fn a_text_in_many_forms_is_looked_at_a_few_times_and_refused() {
    let mut text = format!("%{}41{}", "25".repeat(6), "A".repeat(1 << 20));
    for _ in 0..5 {
        text = serde_json::to_string(&[text]).unwrap();
    }
    assert_eq!(
        json(&format!(
            r#"{{"x":{}}}"#,
            serde_json::to_string(&text).unwrap()
        )),
        "unreadable"
    );
    // A template in a form, escaped as its tools do, names nobody.
    let policy = format!(
        r#"{{"Effect":"Deny","Text":"\\u003c{}%20"}}"#,
        "a".repeat(1 << 20)
    );
    let template = format!(
        "TemplateBody={}",
        percent_encoding::utf8_percent_encode(&policy, percent_encoding::NON_ALPHANUMERIC)
    );
    assert_eq!(form(&template), "");
}

#[test]
fn a_query_that_cannot_be_looked_through_hides_nothing_behind_it() {
    let mut deep = "x".to_owned();
    for _ in 0..8 {
        deep = serde_json::to_string(&[deep]).unwrap();
    }
    let deep = percent_encoding::utf8_percent_encode(&deep, percent_encoding::NON_ALPHANUMERIC);
    assert_eq!(target(&format!("/?x={deep}")), "unreadable");
    assert_eq!(target(&format!("/?x={deep}&y={STRANGER}")), "unreadable");
    assert_eq!(target(&format!("/?y={STRANGER}&x={deep}")), STRANGER);
}

#[test]
fn content_that_cannot_be_read_is_not_taken_for_harmless() {
    let typed = |kind, text: &[u8], forms| {
        shown(in_content(
            kind,
            text,
            (Format::Typed { forms }, Data::Nothing),
            ACCOUNTS,
        ))
    };
    assert_eq!(content("application/cbor", "\u{1}"), "unreadable");
    assert_eq!(json("{"), "unreadable");
    assert_eq!(json("{} {}"), "unreadable");
    assert_eq!(typed(None, b"x", true), "unreadable");
    assert_eq!(typed(None, b"", true), "");
    // A service that parses JSON under any type must not receive it under a name that we read
    // differently.
    let text = r#"{"FunctionArn":"\u0061rn:aws:lambda:us-east-1:999999999999:function:f"}"#;
    let form = Some("application/x-www-form-urlencoded");
    assert_eq!(typed(form, text.as_bytes(), false), "unreadable");
    assert_eq!(content("application/xml", text), "unreadable");
    for text in [
        "<!DOCTYPE a [<!ENTITY x 'arn'>]><a>&x;:</a>",
        "<a>99999<!-- -->9999999</a>",
        "<a>99999<?x?>9999999</a>",
        "<a><![CDATA[999999999999]]></a>",
        "<?xml version='1.0' encoding='UTF-7'?><a>+ADk-</a>",
        "<a>&nine;</a>",
        "{}",
    ] {
        assert_eq!(content("application/xml", text), "unreadable", "{text}");
    }
    // A policy that a more lenient parser may accept, and encodings nested too deeply.
    assert_eq!(json(r#"{"Policy":"{'Principal':'*'}"}"#), "unreadable");
}
