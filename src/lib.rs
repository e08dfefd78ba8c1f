//! `gateway`: a transparent L7 egress gateway that injects credentials.
//!
//! The map. The crates under `src/` are the leaves: each builds by itself and knows only the leaves
//! that its `Cargo.toml` names. The modules of the program follow in their order: a module may use
//! those above it, never one below. `docs/architecture.md` tells the path of one request,
//! `tests/architecture.rs` guards the order.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

pub use gateway_audit as audit;
pub use gateway_body as body;
pub use gateway_escape as escape;
pub use gateway_launch as launch;
pub use gateway_message as message;
pub use gateway_names as names;
pub use gateway_recipe as recipe;
pub use gateway_sigv4 as sigv4;
pub use gateway_token as token;
pub use gateway_wire as wire;

pub mod files;
pub mod state;

// The path of one request.
pub mod credential;
pub mod gateway;
pub mod intercept;
pub mod origin;
pub mod policy;
pub mod session;

// What an operator of a running gateway asks of it, and where its records go.
pub mod control;
pub mod export;
pub mod grant;

pub mod config;

// The gateway that runs: its sessions, listeners, logins and reloads.
mod app;

// The top: what a person types.
pub mod cli;
