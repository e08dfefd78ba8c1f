//! Serves connections: joins the other crates into the path of one request.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod answer;
mod answer_body;
mod callers;
mod captures;
mod clock;
mod conversation;
mod ending;
mod error_format;
mod exchange;
mod export_counts;
mod floor;
mod frame_edge;
mod guard;
mod ids;
mod internal;
mod limits;
mod lingering;
mod listener;
mod listening_socket;
mod metrics;
mod opening;
mod origin_time;
mod ports;
mod proposals;
mod propose;
mod proxy;
mod recent;
mod refusal;
mod refusal_counts;
mod respond;
mod route;
mod serve;
mod shared;
mod snapshot;
mod tokens;
mod tunnel;
mod upgrade;
mod watchdog;
mod worker;

pub use callers::{
    CallerSessions, ClientEnvironment, ClientPages, ClientProxy, ListenerSessions, LivePair,
    LiveSessions, RefusedCallers, SessionRequest,
};
pub use captures::{CaptureFuture, Captures};
pub use export_counts::ExportCounts;
pub use floor::floor;
pub use ids::Ids;
pub use limits::Limits;
pub use listener::{ListenerMode, ListenerSlot, SessionListener, SessionNames};
pub use listening_socket::{BoundSocket, ListeningSocket, SocketKeeper};
pub use metrics::{Distribution, Metrics};
pub use ports::{InwardSockets, OpenPort};
pub use proposals::{
    AskFault, AskedRequest, Proposal, ProposalError, ProposalState, Proposals, RequestedAccess,
    SpendFault, Unmet,
};
pub use recent::RecentRefusals;
pub use refusal::chain;
pub use refusal_counts::RefusalCounts;
pub use shared::{Notifier, SharedState};
pub use snapshot::Snapshot;
pub use worker::Worker;
