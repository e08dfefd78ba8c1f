//! A channel carries the one exchange that it was opened for.

use gateway::credential::Credentialed;

pub async fn twice(channel: gateway::origin::Channel, one: Credentialed, other: Credentialed) {
    let _ = channel.forward(one).await;
    let _ = channel.forward(other).await;
}
