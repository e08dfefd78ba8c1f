//! No secret is fetched, and nothing signed with it, before the client's signature was verified.

pub async fn early(credentials: &gateway::credential::Credentials, authorized: gateway::policy::Authorized) {
    let _ = credentials.attach(authorized).await;
}
