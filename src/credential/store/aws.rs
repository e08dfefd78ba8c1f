//! AWS Secrets Manager, and the Parameter Store of AWS Systems Manager.
//!
//! AWS JSON 1.1: `GetSecretValue` (Secrets Manager API Reference) and `GetParameter` (Systems
//! Manager API Reference), signed by Signature Version 4.

use std::time::{Duration, SystemTime};

use gateway_message::Origin;
use gateway_sigv4::{SigningParams, sign_own};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request};
use serde::Deserialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::http::{HttpAnswer, Refusal, Refusals, Served, refused};
use super::json::{SecretFields, document};
use super::material::Material;
use super::{ReferenceMalformed, SecretRef, SecretSource, StoreError};

/// What a store of AWS needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsSettings {
    /// The service.
    pub service: AwsService,
    /// Its region.
    pub region: String,
    /// The key's id, the secret key, and the session token if there may be one.
    pub keys: Vec<SecretRef>,
}

gateway_names::words! {
    /// A service of AWS that keeps secrets.
    pub enum AwsService {
        /// Secrets Manager.
        Secret = "aws-secret",
        /// The Parameter Store of Systems Manager.
        Parameter = "aws-parameter",
    }
}

impl AwsService {
    /// Returns its name in hosts, ARNs and signatures.
    pub fn host(self) -> &'static str {
        match self {
            Self::Secret => "secretsmanager",
            Self::Parameter => "ssm",
        }
    }
}

impl AwsSettings {
    /// Checks a name or an ARN, which may be of another region.
    pub(super) fn check(&self, path: &str) -> Result<(), ReferenceMalformed> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"/_+=.@!:-".contains(&byte);
        let (service, region) = (self.service.host(), self.region.as_str());
        let of = path.strip_prefix("arn:").map(|arn| arn.split(':').skip(1));
        if !path.bytes().all(fits) {
            return Err(ReferenceMalformed::new(
                "its name has the characters A-Z, a-z, 0-9 and `/_+=.@!-`",
                "write for example `aws-secret:app/token#password`",
            ));
        }
        if of.is_some_and(|of| !of.take(2).eq([service, region])) {
            return Err(ReferenceMalformed::new(
                format!("its ARN is not of `{service}` in `{region}`, as the store is"),
                "name a [[store]] of that service and `region`",
            ));
        }
        Ok(())
    }
}

/// Secrets Manager, or the Parameter Store.
pub(super) struct AwsStore {
    settings: AwsSettings,
    keys: Vec<SecretSource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ParameterReply {
    parameter: SecretFields,
}

impl AwsStore {
    pub(super) fn new(settings: &AwsSettings, source: impl Fn(&SecretRef) -> SecretSource) -> Self {
        Self {
            keys: settings.keys.iter().map(source).collect(),
            settings: settings.clone(),
        }
    }

    async fn ask(
        &self,
        served: &Served,
        (action, content): (&'static str, Value),
    ) -> Result<HttpAnswer, StoreError> {
        let server = served.first()?;
        let content = content.to_string();
        let mut request = Request::new(Zeroizing::new(content.into_bytes()));
        *request.method_mut() = Method::POST;
        let fields = request.headers_mut();
        fields.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-amz-json-1.1"),
        );
        fields.insert("x-amz-target", HeaderValue::from_static(action));
        self.sign(&mut request, server).await?;
        let answer = served.client.send(server, request).await?;
        if answer.status.is_success() {
            Ok(answer)
        } else {
            Err(refused(answer.status.as_u16(), &answer.content, REFUSALS))
        }
    }

    /// Signs with keys that belong together.
    async fn sign(
        &self,
        request: &mut Request<Zeroizing<Vec<u8>>>,
        server: &Origin,
    ) -> Result<(), StoreError> {
        let mut parts = Vec::new();
        for source in &self.keys {
            let first = parts.first();
            let read = match first.and_then(|first| source.beside(first)) {
                Some(read) => read,
                None => source.resolve(None).await,
            };
            match read {
                Ok(read) => parts.push(read),
                // Lasting keys have no session token.
                Err(why) if parts.len() == 2 && why.cause.is_absent() => {}
                Err(why) => return Err(StoreError::Login(Box::new(why.cause))),
            }
        }
        let [id, key, ..] = &parts[..] else {
            return Err(StoreError::Unreachable("it has no keys"));
        };
        let (id, token) = (
            id.secret.text(),
            parts.get(2).map(|part| part.secret.text()),
        );
        let with = SigningParams {
            access_key: &id,
            secret: key.secret.expose(),
            session_token: token.as_ref().map(|token| token.as_str()),
            now: SystemTime::now(),
            longest_life: Duration::ZERO,
            content: None,
        };
        let scope = (
            server,
            self.settings.region.as_str(),
            self.settings.service.host(),
        );
        sign_own(request, scope, &with).map_err(|_| StoreError::Unreachable("its keys cannot sign"))
    }

    /// Reads a secret by its name or ARN.
    pub(super) async fn read(&self, served: &Served, path: &str) -> Result<Material, StoreError> {
        let (mut fields, value) = match self.settings.service {
            AwsService::Secret => {
                let asked = json!({ "SecretId": path });
                let asked = ("secretsmanager.GetSecretValue", asked);
                let answer = self.ask(served, asked).await?;
                (serde_json::from_slice(&answer.content), "SecretString")
            }
            AwsService::Parameter => {
                let asked = json!({ "Name": path, "WithDecryption": true });
                let answer = self.ask(served, ("AmazonSSM.GetParameter", asked)).await?;
                let reply = serde_json::from_slice::<ParameterReply>(&answer.content);
                (reply.map(|reply| reply.parameter), "Value")
            }
        };
        let fields: &mut SecretFields = fields.as_mut().map_err(|_| StoreError::Illegible)?;
        match (fields.take(value), fields.take("SecretBinary")) {
            (Some(text), _) => Ok(document(&text, served.lease.clone())),
            (None, Some(_)) => Err(StoreError::Binary),
            (None, None) => Err(StoreError::Illegible),
        }
    }
}

/// The errors of both services, "Common Errors" among them.
const REFUSALS: Refusals = &[
    (
        Refusal::Gone,
        "ResourceNotFoundException|ParameterNotFound|ParameterVersionNotFound|\
         marked for deletion|scheduled for deletion",
    ),
    (Refusal::Expired, "ExpiredToken"),
    (Refusal::Denied, "AccessDenied|NotAuthorized"),
    (
        Refusal::Other,
        "Credential should be scoped to a valid region|RequestExpired|Throttling|\
         DecryptionFailure|InvalidKeyId|InternalService",
    ),
    (
        Refusal::Login,
        "UnrecognizedClientException|InvalidClientTokenId|MissingAuthenticationToken|\
         InvalidSignature|SignatureDoesNotMatch",
    ),
];
