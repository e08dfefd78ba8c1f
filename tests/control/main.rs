//! The control socket of the real program: its commands, who may use it, what it bounds.

#[path = "../rig/addresses.rs"]
mod addresses;
#[path = "../rig/arrivals.rs"]
mod arrivals;
mod asks;
#[path = "../rig/authority.rs"]
mod authority;
mod blocklist;
mod bounds;
mod budgets;
#[path = "../rig/certificates.rs"]
mod certificates;
mod commands;
mod created;
mod doors;
mod export_reload;
mod exports;
mod frozen;
mod grants;
mod keys;
mod labels;
mod learn;
mod listeners;
mod met;
mod metrics;
mod needs;
mod notices;
mod one_secret;
mod operators;
mod peers;
mod prints;
mod program;
mod project_file;
mod proposals;
mod refusals;
mod revoked;
mod sandbox;
mod servers;
mod sessions;
mod spend;
mod temporary;
mod upstream;
mod watch;
mod why;
