//! One decision is for one request.

pub async fn twice(credentials: &gateway::credential::Credentials, authorized: gateway::policy::Authorized) {
    let _ = credentials.verify(authorized).await;
    let _ = credentials.verify(authorized).await;
}
