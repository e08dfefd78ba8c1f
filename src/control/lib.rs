//! The control socket: how an operator inspects a running gateway and gives it commands.
//!
//! HTTP/1.1 and JSON on a Unix socket that only the gateway's user and root can use, and, where the
//! configuration says so, on a port that only holders of client certificates can use.
//! `docs/openapi.json` describes every route. No answer holds a secret or a phantom.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod api;
mod budgets;
mod client;
mod creating;
mod events;
mod exposition;
mod operations;
mod proposed;
mod recording;
mod route;
mod server;
mod socket;
mod view;

pub use client::{Client, ControlFailure};
pub use operations::{
    CreatedSession, FleetAnswer, MintRequest, MintedToken, Operations, Proven, Reloaded,
    ReplicaView, RevocationHits,
};
pub use route::{ApiRoute, ROUTES};
pub use server::{Control, PortTls, serve, serve_port};
pub use socket::{Unusable, bind_socket, sockets};
pub use view::GatewayInfo;
