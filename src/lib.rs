//! `gateway`: a transparent L7 egress gateway that injects credentials.
//!
//! The map of the house, rooms in floor order; a room may use the rooms above it in this list and
//! the ground floor, never one below. `docs/architecture.md` tells the path of one request,
//! `tests/architecture.rs` guards the floors.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]

// Ground floor: pure, no I/O.
pub mod body;
pub mod enroll;
pub mod files;
pub mod message;
pub mod names;
pub mod prefixes;
pub mod signature;

// The path of one request.
pub mod audit;
pub mod credential;
pub mod gateway;
pub mod intercept;
pub mod origin;
pub mod policy;
pub mod session;

// The top: what a person types, and the launcher, which shares nothing with the data path but
// `enroll`.
pub mod cli;
pub mod config;
pub mod launch;
