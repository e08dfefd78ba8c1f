//! `gateway console`: the page in a real Chromium, before the real program.

#[path = "../rig/addresses.rs"]
mod addresses;
mod answers;
mod browser;
#[expect(dead_code, reason = "the suite of the control socket uses the rest")]
#[path = "../control/program.rs"]
mod program;
mod rig;
mod strangers;
