//! Serves connections: joins the other modules into the path of one request.

mod answer;
mod answer_body;
mod clock;
mod conversation;
mod error_format;
mod exchange;
mod guard;
mod ids;
mod limits;
mod lingering;
mod listener;
mod listening_socket;
mod metrics;
mod opening;
mod origin_time;
mod proxy;
mod refusal;
mod refusal_counts;
mod respond;
mod serve;
mod shared;
mod snapshot;
mod tunnel;
mod upgrade;
mod watchdog;
mod worker;

pub use ids::Ids;
pub use limits::Limits;
pub use listener::{ListenerMode, ListenerSlot, SessionListener};
pub use listening_socket::ListeningSocket;
pub use metrics::{Distribution, Metrics};
pub use refusal::chain;
pub use refusal_counts::RefusalCounts;
pub use shared::SharedState;
pub use snapshot::Snapshot;
pub use worker::Worker;
