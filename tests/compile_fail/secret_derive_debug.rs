//! Nothing that holds a secret can derive Debug around it.

#[derive(Debug)]
struct Holder {
    secret: std::sync::Arc<gateway::credential::Secret>,
}
