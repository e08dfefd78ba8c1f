//! Google Cloud's Secret Manager.
//!
//! `GET /v1/projects/PROJECT/secrets/NAME/versions/VERSION:access` (Secret Manager API, REST
//! reference).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::bearer::BearerClient;
use super::http::{Refusal, Refusals, Served};
use super::json::{Text, document};
use super::material::Material;
use super::{ReferenceMalformed, StoreError};

#[derive(Deserialize)]
struct Reply {
    payload: Payload,
}

#[derive(Deserialize)]
struct Payload {
    data: Text,
}

/// Reads `PROJECT/NAME` or `PROJECT/NAME/VERSION`.
pub(super) async fn read(
    client: &BearerClient,
    served: &Served,
    path: &str,
) -> Result<Material, StoreError> {
    let [project, name, version] = parts(path).ok_or(StoreError::Place)?;
    let path = format!("/v1/projects/{project}/secrets/{name}/versions/{version}:access");
    let answer = client.get(served.first()?, &path, REFUSALS).await?;
    let reply: Reply =
        serde_json::from_slice(&answer.content).map_err(|_| StoreError::Illegible)?;
    let data = STANDARD.decode(reply.payload.data.0.as_bytes());
    let data = data
        .map(Zeroizing::new)
        .map_err(|_| StoreError::Illegible)?;
    let text = std::str::from_utf8(&data).map_err(|_| StoreError::Binary)?;
    Ok(document(text, served.lease.clone()))
}

pub(super) fn check(path: &str) -> Result<(), ReferenceMalformed> {
    parts(path).map(drop).ok_or_else(|| {
        ReferenceMalformed::new(
            "a secret of Google Cloud has a project and a name, and may have a version",
            "write for example `gcp-secret:my-project/token` or `gcp-secret:my-project/token/3`",
        )
    })
}

fn parts(path: &str) -> Option<[&str; 3]> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    let is_name = |part: &str| !part.is_empty() && !part.starts_with('.') && part.bytes().all(fits);
    let mut parts = path.split('/');
    let read = [
        parts.next()?,
        parts.next()?,
        parts.next().unwrap_or("latest"),
    ];
    let is_version = read[2] == "latest" || read[2].bytes().all(|byte| byte.is_ascii_digit());
    (parts.next().is_none() && is_version && read.iter().all(|part| is_name(part))).then_some(read)
}

/// The codes of `google.rpc.Code` that say why. Of a version that is disabled or destroyed, it is
/// FAILED_PRECONDITION.
const REFUSALS: Refusals = &[
    (Refusal::Denied, "SERVICE_DISABLED|PERMISSION_DENIED"),
    (Refusal::Gone, "NOT_FOUND|FAILED_PRECONDITION"),
    (Refusal::Login, "UNAUTHENTICATED"),
    (Refusal::Other, "RESOURCE_EXHAUSTED"),
];
