//! The program: arguments in, exit code out.

#![forbid(unsafe_code)]

use std::process::ExitCode;

/// An exchange has 8,000 instructions fewer than with that of glibc
/// (docs/benchmarks.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    gateway::cli::run(std::env::args_os())
}
