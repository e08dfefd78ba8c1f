//! One proof is for one request.

pub async fn twice(credentials: &gateway::credential::Credentials, verified: gateway::credential::Verified) {
    let _ = credentials.attach(verified).await;
    let _ = credentials.attach(verified).await;
}
