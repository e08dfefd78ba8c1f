//! A secret cannot be displayed.

pub fn print(secret: &gateway::credential::Secret) {
    println!("{secret}");
}
