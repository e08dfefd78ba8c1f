//! Only `credential` sees a secret's bytes.

pub fn bytes(secret: &gateway::credential::Secret) -> &[u8] {
    secret.expose()
}

pub fn field(secret: &gateway::credential::Secret) -> &[u8] {
    &secret.bytes
}
