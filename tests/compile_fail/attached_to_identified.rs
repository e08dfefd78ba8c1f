//! No secret is fetched before policy has judged.

pub async fn early(credentials: &gateway::credential::Credentials, identified: gateway::session::Identified) {
    let _ = credentials.attach(identified).await;
}
