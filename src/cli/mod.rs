//! The command line, with one file per command, and the output for people.
//!
//! Exit codes: 0 for success; 1 for a failure or a check that did not pass; 2 for a wrong command
//! line or configuration. `exec` exits as its command does. It exits with 125 if the launcher
//! failed, 126 if the command cannot be run and 127 if there is no such command.

mod allow;
mod completions;
mod config_summary;
mod confirm;
mod credential;
mod doctor;
mod exec;
mod grants;
mod init;
mod last_run;
mod learn;
mod log;
mod manual;
mod operate;
mod policy;
mod projects;
mod proposals;
mod refusal_lines;
mod remedy;
mod serve;
mod session;
mod sidecar;
mod token;
mod usage;
mod why;

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use self::credential::{login, logins, presets, secret};
use self::doctor::{demo, escape};
use self::exec::launching;
use self::log::{verify as audit, watch};
use self::operate::{ca, env, gateways, revoke};
use crate::app::process::{logging, serving, signals};
use crate::app::{Code, Color, Context as _, Failure, Terminal};

/// Everything that can be typed.
#[derive(Parser)]
#[command(name = "gateway", version, about = ABOUT, after_help = AFTER)]
struct Cli {
    /// Print JSON, one document
    #[arg(long, global = true, help_heading = "Output")]
    json: bool,
    /// Colour the output
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = Color::Auto, help_heading = "Output")]
    color: Color,
    #[command(subcommand)]
    command: Command,
}

/// The commands. Those without a line here have theirs in files of their own.
#[derive(Subcommand)]
enum Command {
    /// Run a command whose every connection goes through the gateway
    Exec(Box<exec::Exec>),
    Serve(serve::Serve),
    Demo(demo::Demo),
    Doctor(doctor::Doctor),
    /// Check, test and explain Cedar policies
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Keep secrets in the key ring
    #[command(subcommand)]
    Secret(secret::SecretCommand),
    /// Work with the audit log
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Explain what happened to a request, by the id in its response
    Why(why::Why),
    /// Show the running gateways
    Status(gateways::ChosenGateway),
    /// List the sessions of the running gateways
    Sessions(gateways::ChosenGateway),
    /// Make sessions at run time, and let them live longer
    #[command(subcommand)]
    Session(session::SessionCommand),
    /// Pause a session: its requests are refused until it is resumed
    Pause(operate::OneSession),
    /// Let a paused session go on
    Resume(operate::OneSession),
    /// End a session, and cut what it has under way: it never goes on
    End(operate::EndCommand),
    /// Apply changed files to a running gateway: all of them, or none
    Reload(gateways::ChosenGateway),
    /// Revoke a credential in every gateway of yours, now and later: when this returns, no further
    /// byte of its secret leaves
    Revoke(revoke::RevokeCommand),
    /// Take a revocation back
    Restore(revoke::RevokeCommand),
    Allow(allow::Allow),
    Grants(grants::GrantsCommand),
    /// Decide about the project's own file, `gateway.toml`
    #[command(subcommand)]
    Project(projects::ProjectCommand),
    Init(init::Init),
    Proposals(proposals::ProposalList),
    Deny(proposals::Deny),
    Login(login::LoginCommand),
    Logins(logins::LoginsCommand),
    /// Mint, narrow and revoke tokens, and show what they say
    #[command(subcommand)]
    Token(token::TokenCommand),
    Log(log::LogCommand),
    Watch(watch::WatchCommand),
    /// List the services that are known by name: their variables, origins and places
    Presets(presets::Presets),
    /// Print the CA certificate of a running `gateway serve`
    Ca(ca::CaCommand),
    /// Print the variables that point a client at a running `gateway serve`
    Env(env::Env),
    Sidecar(sidecar::Sidecar),
    Completions(completions::Completions),
    Man(manual::Manual),
}

/// Runs the command that the arguments name, prints its result, and returns the exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    if let Some(code) = images(&mut arguments) {
        return code;
    }
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => return usage::explain(&error, &arguments),
    };
    let mut terminal = Terminal::new(cli.json, cli.color);
    let ended = cli.command.run(&mut terminal);
    match ended.and_then(|code| terminal.written(code)) {
        Ok(code) => code.into(),
        Err(failure) => {
            terminal.fail(&failure);
            failure.code.into()
        }
    }
}

/// Runs the further images of `exec`: the launcher, and the gateway process behind it.
fn images(arguments: &mut Vec<OsString>) -> Option<ExitCode> {
    let terminal = Terminal::new(false, Color::Auto);
    let json = arguments.iter().any(|argument| argument == "--json");
    let ended = match arguments.get(1)?.to_str()? {
        demo::CLIENT => demo::client(&terminal),
        doctor::CLIENTS => {
            let outside = arguments.get(2)?.to_str()?;
            doctor::clients(&Terminal::new(json, Color::Auto), outside)
        }
        escape::SUBCOMMAND => escape::start(json),
        crate::escape::SUBCOMMAND => Ok(escape::inside(json)),
        crate::launch::SUBCOMMAND => launching::resume(&arguments[2..], &terminal),
        launching::GATEWAY_PROCESS if arguments.len() > 2 => {
            arguments.remove(1);
            let kept = arguments.remove(1);
            gateway_process(&kept, arguments)
        }
        _ => return None,
    };
    Some(ended.map_or_else(
        |failure| {
            terminal.fail(&failure);
            failure.code.into()
        },
        ExitCode::from,
    ))
}

fn gateway_process(kept: &OsStr, arguments: &[OsString]) -> Result<Code, Failure> {
    // It was started by the name of a link, `exe`.
    let _ = rustix::thread::set_name(c"gateway");
    // The launcher decides how long this process lives, and no signal that means something else.
    signals::outlive()?;
    // This runs before any secret is read. From here on, other processes cannot see the
    // environment, which only this process has.
    serving::harden()?;
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    let socket = socket.context("there is no enrolment socket")?;
    let kept = crate::launch::sealed::take(kept).context("there is no word of what is kept")?;
    // The terminal belongs to the command. Unless more is requested, only internal errors of the
    // gateway are shown.
    logging::start(tracing::Level::ERROR, true);
    if arguments
        .get(1)
        .is_some_and(|name| name == escape::SUBCOMMAND)
    {
        return escape::serve(socket.into());
    }
    match Cli::try_parse_from(arguments).map(|cli| cli.command) {
        Ok(Command::Exec(exec)) => exec.serve(socket.into(), kept),
        Ok(Command::Demo(demo)) => demo.serve(socket.into()),
        Ok(Command::Doctor(doctor)) => doctor.serve(socket.into()),
        _ => Err(Failure::usage(format!(
            "`{}` is for the gateway itself",
            launching::GATEWAY_PROCESS
        ))),
    }
}

impl Command {
    fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        match self {
            Self::Exec(command) => command.run(terminal),
            Self::Serve(command) => command.run(terminal),
            Self::Demo(command) => command.run(terminal),
            Self::Doctor(command) => command.run(terminal),
            Self::Policy(command) => command.run(terminal),
            Self::Secret(command) => command.run(terminal),
            Self::Audit(command) => command.run(terminal),
            Self::Why(command) => command.run(terminal),
            Self::Status(chosen) => operate::status(&chosen, terminal),
            Self::Sessions(chosen) => operate::list_sessions(&chosen, terminal),
            Self::Session(command) => command.run(terminal),
            Self::Pause(command) => command.run("pause", None, terminal),
            Self::Resume(command) => command.run("resume", None, terminal),
            Self::End(command) => command.run(terminal),
            Self::Reload(chosen) => operate::reload(&chosen, terminal),
            Self::Revoke(command) => command.revoke(terminal),
            Self::Restore(command) => command.restore(terminal),
            Self::Allow(command) => command.run(terminal),
            Self::Grants(command) => command.run(terminal),
            Self::Project(command) => command.run(terminal),
            Self::Init(command) => command.run(terminal),
            Self::Proposals(command) => command.run(terminal),
            Self::Deny(command) => command.run(terminal),
            Self::Login(command) => command.run(terminal),
            Self::Logins(command) => command.run(terminal),
            Self::Token(command) => command.run(terminal),
            Self::Log(command) => command.run(terminal),
            Self::Watch(command) => command.run(terminal),
            Self::Presets(command) => command.run(terminal),
            Self::Ca(command) => command.run(terminal),
            Self::Env(command) => command.run(terminal),
            Self::Sidecar(command) => command.run(terminal),
            Self::Completions(command) => command.run(Cli::command()),
            Self::Man(command) => command.run(Cli::command(), terminal),
        }
    }
}

const ABOUT: &str = "Gives a program that nobody trusts access to services, and never the secrets";

const AFTER: &str = "Exit codes: 0 it worked, 1 it failed or does not hold, 2 the command line or configuration is wrong; \
`exec` ends as its command does, or with 125 (launcher), 126 (cannot run), 127 (not found).";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn every_command_and_flag_is_declared_without_contradiction() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn the_help_has_no_name_of_the_code() {
        for mut command in each_command(super::Cli::command()) {
            let help = command.render_long_help().to_string();
            let of_the_code = |word: &&str| {
                let letters = word.as_bytes();
                let names = ["256MiB", "GitHub", "OpenBao"];
                let joins =
                    |pair: &[u8]| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase();
                letters.windows(2).any(joins) && !names.contains(word)
            };
            let words = help.split(|letter: char| !letter.is_ascii_alphanumeric());
            let found: Vec<&str> = words.filter(of_the_code).collect();
            assert!(found.is_empty(), "{}: {found:?}", command.get_name());
        }
    }

    fn each_command(command: clap::Command) -> Vec<clap::Command> {
        let below = command.get_subcommands().cloned().flat_map(each_command);
        let mut all: Vec<_> = below.collect();
        all.push(command);
        all
    }
}
