//! The control socket of the real program: its commands, who may use it, what it bounds.

mod bounds;
mod commands;
mod exports;
mod grants;
mod keys;
mod learn;
mod listeners;
mod metrics;
mod peers;
mod program;
mod project_file;
mod refusals;
mod sandbox;
mod sessions;
mod why;
