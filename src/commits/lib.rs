//! Signatures of commits for a workload, by the user's own SSH agent outside.
//!
//! The workload asks an agent of its own, the [`Door`], which answers two requests: which key there
//! is, and to sign a commit or tag of git with it. That is the format `SSHSIG` in the namespace
//! `git`, which no server takes for a login. Each signature is judged by policy and recorded before
//! the workload has it. The gateway holds no key.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod agent;
mod door;
mod key;

pub use agent::{Agent, AgentFailure};
pub use door::{Door, Signer};
pub use key::{KeyMalformed, PublicKey};
