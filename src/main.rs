//! The program: arguments in, exit code out.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    gateway::cli::run(std::env::args_os())
}
