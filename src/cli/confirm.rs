//! Asks the person at the terminal, and takes no other answer than a clear yes.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use super::failure::Failure;

/// Asks a question.
///
/// # Errors
/// Returns a [`Failure`] if there is no terminal: nobody can be asked.
pub(super) fn confirmed(question: &str) -> Result<bool, Failure> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(Failure::usage("nobody can be asked")
            .because("the standard input is no terminal")
            .next("look at what is shown, then repeat the command with `--yes`"));
    }
    let mut error = std::io::stderr().lock();
    // A question that cannot be shown is answered with no.
    let shown = write!(error, "{question} [y/N] ").and_then(|()| error.flush());
    let mut answer = String::new();
    let read = shown.and_then(|()| input.lock().read_line(&mut answer));
    Ok(read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes"))
}
