//! The real launcher, in real namespaces: as root for another user, and as an ordinary user.
//!
//! This program is its own launcher, gateway and probe: it executes itself in these roles. Every
//! test fails where namespaces are refused; none is skipped.

#![expect(
    unsafe_code,
    reason = "the roles that it plays fork, exec and receive descriptors"
)]

mod driver;
mod gateway;
mod probe;
mod rows;

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = arguments.iter().filter_map(|a| a.to_str()).collect();
    match words.as_slice() {
        [::gateway::launch::SUBCOMMAND, ..] => driver::launch(&arguments[1..]),
        ["__driver", settings] => driver::drive(settings),
        ["__gateway", socket, manner] => gateway::serve(socket, manner),
        ["__probe", rest @ ..] => probe::run(rest),
        ["__escape"] => escape(),
        _ => harness(&words),
    }
}

fn escape() -> ExitCode {
    let all_held = ::gateway::escape::run(&mut std::io::stdout(), false);
    if all_held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs the rows whose names contain one of the words (all, without any), each in its own thread,
/// one after another.
fn harness(words: &[&str]) -> ExitCode {
    // A shell starts background jobs with these ignored, and commands in the sandbox would inherit
    // that.
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: no handler of this program is replaced, and its other threads have not begun.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let filters: Vec<&&str> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let exact = words.contains(&"--exact");
    if words.contains(&"--list") {
        rows::ROWS
            .iter()
            .for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let mut failed = Vec::new();
    let mut ran = 0;
    for (name, row) in rows::ROWS {
        let wanted = filters.is_empty()
            || filters.iter().any(|f| {
                if exact {
                    *name == **f
                } else {
                    name.contains(**f)
                }
            });
        if !wanted {
            continue;
        }
        ran += 1;
        let started = std::time::Instant::now();
        match std::panic::catch_unwind(row) {
            Ok(()) => println!("test {name} ... ok ({} ms)", started.elapsed().as_millis()),
            Err(_) => {
                println!("test {name} ... FAILED");
                failed.push(name);
            }
        }
    }
    driver::clean_up();
    println!(
        "\ntest result: {} passed; {} failed",
        ran - failed.len(),
        failed.len()
    );
    failed.iter().for_each(|name| println!("    {name}"));
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
