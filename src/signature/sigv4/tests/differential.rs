//! AWS's own Rust signer as the client: whatever it signs must verify, and what we sign again must
//! be what it would sign.

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SignatureLocation,
    SigningParams as AwsSigningParams, SigningSettings, UriPathNormalizationMode, sign as aws_sign,
};
use aws_sigv4::sign::{v4, v4a};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::prelude::*;

use super::super::AmzDate;
use super::super::key::sha256;
use super::*;

const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

#[derive(Debug, Clone)]
struct Case {
    method: &'static str,
    service: &'static str,
    path: String,
    query: Vec<(String, String)>,
    fields: Vec<(String, String)>,
    content: Vec<u8>,
    token: Option<String>,
    presigned: bool,
    asymmetric: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let text = "[ -~äé日]{0,12}";
    let segment = "[a-zA-Z0-9 +=&$@!*'(),:;~_äé日-]{1,10}";
    let name = "(x-amz-meta-[a-z]{1,5}|my-[a-z]{1,5}|range|content-type)";
    let parts = (
        prop::sample::select(vec!["GET", "PUT", "POST", "DELETE", "HEAD"]),
        prop::sample::select(vec!["s3", "sts", "dynamodb", "s3express", "lambda"]),
        prop::collection::vec(segment, 0..5),
        prop::collection::vec((text, text), 0..5),
        prop::collection::btree_map(name, "[!-~]([ -~]{0,16}[!-~])?", 0..4),
        prop::collection::vec(any::<u8>(), 0..64),
        prop::option::of("[A-Za-z0-9/+=]{16,64}"),
    );
    (parts, any::<bool>(), any::<bool>()).prop_map(
        |((method, service, path, query, fields, content, token), presigned, asymmetric)| {
            let encode = |text: &str| utf8_percent_encode(text, SEGMENT).to_string();
            Case {
                method,
                service,
                path: path
                    .iter()
                    .fold(String::new(), |path, segment| path + "/" + &encode(segment)),
                query: query
                    .iter()
                    .map(|(n, v)| (encode(n), encode(v)))
                    .filter(|(n, _)| !n.is_empty())
                    .collect(),
                fields: fields.into_iter().collect(),
                content,
                token,
                presigned,
                asymmetric,
            }
        },
    )
}

impl Case {
    /// The head as AWS's signer signs it.
    fn signed(&self) -> RequestHead {
        let now = AmzDate::parse("20260101T100000Z").unwrap().time();
        let secret = std::str::from_utf8(S3_SECRET).unwrap();
        let identity = Credentials::new(
            "AKIAIOSFODNN7EXAMPLE",
            secret,
            self.token.clone(),
            None,
            "test",
        )
        .into();
        let mut settings = SigningSettings::default();
        if self.service.starts_with("s3") {
            settings.percent_encoding_mode = PercentEncodingMode::Single;
            settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
            settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        }
        if self.presigned {
            settings.signature_location = SignatureLocation::QueryParams;
            settings.expires_in = Some(Duration::from_secs(300));
            settings.payload_checksum_kind = PayloadChecksumKind::NoHeader;
        }
        let params: AwsSigningParams<'_> = if self.asymmetric {
            let builder = v4a::SigningParams::builder()
                .identity(&identity)
                .region_set("*")
                .name(self.service);
            builder.time(now).settings(settings).build().unwrap().into()
        } else {
            let builder = v4::SigningParams::builder()
                .identity(&identity)
                .region("eu-west-1")
                .name(self.service);
            builder.time(now).settings(settings).build().unwrap().into()
        };
        let query: Vec<String> = self
            .query
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let mark = if query.is_empty() { "" } else { "?" };
        let path = if self.path.is_empty() {
            "/"
        } else {
            &self.path
        };
        let target = format!("{path}{mark}{}", query.join("&"));
        let uri = format!("https://example.amazonaws.com{target}");
        let body = if self.presigned && self.service.starts_with("s3") {
            SignableBody::UnsignedPayload
        } else {
            SignableBody::Bytes(&self.content)
        };
        let fields = self.fields.iter().map(|(name, value)| (&**name, &**value));
        let request = SignableRequest::new(self.method, &uri, fields, body).unwrap();
        let (instructions, _) = aws_sign(request, &params).unwrap().into_parts();
        let mut head = head(self.method, "example.amazonaws.com", &target, &[]);
        for (name, value) in &self.fields {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            head.fields
                .append(name, HeaderValue::from_str(value).unwrap());
        }
        for (name, value) in instructions.headers() {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            head.fields
                .insert(name, HeaderValue::from_str(value).unwrap());
        }
        let more: Vec<String> = instructions
            .params()
            .iter()
            .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, SEGMENT)))
            .collect();
        if !more.is_empty() {
            let query = head
                .target
                .query()
                .map(|query| format!("{query}&"))
                .unwrap_or_default();
            head.target = head
                .target
                .with_query(&format!("{query}{}", more.join("&")))
                .unwrap();
        }
        head
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_aws_signs_verifies_and_is_signed_again_as_aws_would(case in case()) {
        let mut head = case.signed();
        let hash: [u8; 32] = super::super::payload::unhex(&sha256(&case.content)).unwrap();
        let before = head.clone();
        let with = SigningParams {
            access_key: "AKIAIOSFODNN7EXAMPLE",
            secret: S3_SECRET,
            session_token: case.token.as_deref(),
            now: AmzDate::parse("20260101T100000Z").unwrap().time(),
            longest_life: Duration::from_secs(300),
            content: Some(&hash),
        };
        let (claim, _) = again(&mut head, S3_SECRET, Some(&hash), &with).unwrap();
        prop_assert_eq!(claim.service(), case.service);
        if !case.asymmetric {
            // Same key, same time, same names: the same signature.
            prop_assert_eq!(signature_of(&head), signature_of(&before));
        }
        proven(&head, S3_SECRET, Some(&hash)).unwrap();
        prop_assert_eq!(proven(&head, b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEZ", Some(&hash)).err(), Some(Fault::Mismatch));
    }

    #[test]
    fn nothing_that_is_signed_can_be_changed(case in case(), at in any::<prop::sample::Index>()) {
        let mut head = case.signed();
        let hash: [u8; 32] = super::super::payload::unhex(&sha256(&case.content)).unwrap();
        let names: Vec<HeaderName> = head.fields.keys().filter(|name| *name != "authorization").cloned().collect();
        if names.is_empty() {
            head.method = Method::PATCH;
        } else {
            let name = at.get(&names);
            let changed = format!("{}0", head.fields[name].to_str().unwrap());
            head.fields.insert(name, HeaderValue::from_str(&changed).unwrap());
        }
        prop_assert!(proven(&head, S3_SECRET, Some(&hash)).is_err());
    }
}
