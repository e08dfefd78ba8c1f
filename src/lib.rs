//! `gateway`: a transparent L7 egress gateway that injects credentials.
//!
//! The program: its commands. Everything else is in the crates under
//! `src/`, each with its purpose and the crates that it may use in its `Cargo.toml`. They have the
//! names of their folders here. `docs/architecture.md` is the map.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

pub use gateway_app as app;
pub use gateway_audit as audit;
pub use gateway_body as body;
pub use gateway_commits as commits;
pub use gateway_config as config;
pub use gateway_control as control;
pub use gateway_credential as credential;
pub use gateway_escape as escape;
pub use gateway_export as export;
pub use gateway_files as files;
pub use gateway_grant as grant;
pub use gateway_intercept as intercept;
pub use gateway_launch as launch;
pub use gateway_message as message;
pub use gateway_names as names;
pub use gateway_origin as origin;
pub use gateway_policy as policy;
pub use gateway_recipe as recipe;
pub use gateway_server as server;
pub use gateway_session as session;
pub use gateway_sigv4 as sigv4;
pub use gateway_spend as spend;
pub use gateway_state as state;
pub use gateway_token as token;
pub use gateway_wire as wire;

// The top: what a person types.
pub mod cli;
