//! The program: arguments in, exit code out.

#![forbid(unsafe_code)]

use std::process::ExitCode;

/// An exchange has 8,000 instructions fewer than with that of glibc
/// (docs/benchmarks.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    #[cfg(target_env = "musl")]
    use_stack(STACK_PAGES);
    gateway::cli::run(std::env::args_os())
}

/// How much of its stack the main thread uses once, in pages of 4 KiB at least.
#[cfg(target_env = "musl")]
const STACK_PAGES: usize = 256;

/// Uses as many pages of the stack as it is told.
///
/// Cedar asks how much stack is left, and refuses to evaluate a policy with less than 100 KiB. musl
/// answers for the main thread with the part that was ever used, some 130 KiB at the start, so that
/// every request would be denied.
#[cfg(target_env = "musl")]
#[inline(never)]
fn use_stack(pages: usize) {
    let page = std::hint::black_box([0_u8; 4096]);
    if pages > 0 {
        use_stack(pages - 1);
    }
    std::hint::black_box(page);
}
