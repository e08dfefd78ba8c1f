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
mod opening;
mod proxy;
mod refusal;
mod refusal_counts;
mod respond;
mod serve;
mod tunnel;
mod upgrade;
mod watchdog;
mod worker;

pub use ids::Ids;
pub use limits::Limits;
pub use listener::{ListenerMode, SessionListener};
pub use listening_socket::ListeningSocket;
pub use refusal::chain;
pub use refusal_counts::RefusalCounts;
pub use worker::{SharedState, Worker};
