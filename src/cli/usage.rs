//! Lists the commands by purpose, and explains an invalid command line without repeating possible
//! secrets.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::config::literal::looks_secret;

/// The groups of the help, each with its commands.
pub(super) const GROUPS: [(&str, &str); 6] = [
    ("Run programs", "exec serve sidecar env"),
    ("See what happens", "watch console log why"),
    ("Decide what is allowed", "allow deny grants policy project"),
    ("Secrets and tokens", "secret login token revoke restore"),
    ("Running gateways", "status session budgets fleet reload"),
    ("Set up and try", "init doctor demo generate"),
];

/// Lists the commands in the help by [`GROUPS`], since clap knows no headings for them.
pub(super) fn grouped(commands: clap::Command) -> clap::Command {
    let (header, literal) = (
        *commands.get_styles().get_header(),
        *commands.get_styles().get_literal(),
    );
    let line = |name: &str| {
        let about = commands.find_subcommand(name)?.get_about()?;
        Some(format!("  {literal}{name:<8}{literal:#}  {about}\n"))
    };
    let list = |(title, names): (&str, &str)| {
        let lines: String = names.split(' ').filter_map(line).collect();
        format!("{header}{title}:{header:#}\n{lines}\n")
    };
    let lists: String = GROUPS.into_iter().map(list).collect();
    commands.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{lists}\
         {header}Options:{header:#}\n{{options}}{{after-help}}"
    ))
}

/// Prints help, or the mistake in the arguments. Returns the exit code: 0 for help and version,
/// else 2.
pub(super) fn explain(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        return match error.print() {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
            _ => ExitCode::SUCCESS,
        };
    }
    let rendered = error.render();
    let terminal = std::io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let text = if terminal {
        rendered.ansi().to_string()
    } else {
        rendered.to_string()
    };
    let text = without_values(text, &doubtful(error, arguments));
    write!(std::io::stderr().lock(), "{text}").unwrap_or(());
    ExitCode::from(2)
}

/// Returns the texts of the command line that the message must not repeat.
///
/// A stray argument may be a secret that someone typed after a name (`secret set NAME VALUE`),
/// however simple it looks. An unknown flag or command is repeated, because users find typing
/// errors by seeing them.
fn doubtful(error: &clap::Error, arguments: &[OsString]) -> Vec<String> {
    let mut doubtful = Vec::new();
    let stray = [
        ErrorKind::UnknownArgument,
        ErrorKind::InvalidValue,
        ErrorKind::ValueValidation,
        ErrorKind::TooManyValues,
    ];
    if stray.contains(&error.kind()) {
        // If the valid values are listed, a short word is a mistyped one.
        let is_listed = error.get(ContextKind::ValidValue).is_some();
        let is_word = |text: &str| text.len() <= 12 && text.bytes().all(|b| b.is_ascii_lowercase());
        for (kind, value) in error.context() {
            match value {
                ContextValue::String(text) if kind == ContextKind::InvalidValue => {
                    doubtful.extend((!is_listed || !is_word(text)).then(|| text.clone()));
                }
                ContextValue::String(text)
                    if kind == ContextKind::InvalidArg && !text.starts_with(['-', '<']) =>
                {
                    doubtful.push(text.clone());
                }
                _ => {}
            }
        }
    }
    for argument in arguments.iter().skip(1) {
        let argument = argument.to_string_lossy();
        let value = argument
            .split_once('=')
            .map_or(argument.as_ref(), |(_, value)| value);
        doubtful.extend(
            [argument.as_ref(), value]
                .into_iter()
                .filter(|text| looks_secret(text))
                .map(str::to_owned),
        );
    }
    // The longest first, so that no part of a longer text remains.
    doubtful.sort_by_key(|text| std::cmp::Reverse(text.len()));
    doubtful
}

/// Removes values from the text. Clap quotes them as `'value'`; a short or common word is removed
/// only in its quotes.
fn without_values(mut text: String, values: &[String]) -> String {
    for value in values.iter().filter(|value| !value.is_empty()) {
        if looks_secret(value) {
            text = text.replace(value.as_str(), "(not shown)");
        } else {
            text = text.replace(&format!("'{value}'"), "'(not shown)'");
            // In a terminal, colour codes are between the quotes and the value.
            text = text.replace(&format!("m{value}\u{1b}["), "m(not shown)\u{1b}[");
        }
    }
    text
}
