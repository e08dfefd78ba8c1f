//! No secret is fetched before a person lifted what policies ask a person for.

pub async fn early(credentials: &gateway::credential::Credentials, verified: gateway::credential::Verified) {
    let _ = credentials.attach(verified).await;
}
