//! A secret cannot be printed for debugging.

pub fn print(secret: &gateway::credential::Secret) {
    println!("{secret:?}");
}
