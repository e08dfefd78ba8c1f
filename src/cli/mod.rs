//! The command line, with one file per command, and the output for people.
//!
//! Exit codes: 0 for success; 1 for a failure or a check that did not pass; 2 for a wrong command
//! line or configuration. `exec` exits as its command does. It exits with 125 if the launcher
//! failed, 126 if the command cannot be run and 127 if there is no such command.

mod allow;
mod budgets;
mod certificates;
mod config_summary;
mod confirm;
mod console;
mod credential;
mod doctor;
mod exec;
mod fleet;
mod generate;
mod grants;
mod init;
mod last_run;
mod learn;
mod log;
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

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches as _, Parser, Subcommand};

use self::credential::{LoginCommand, secret};
use self::doctor::{demo, escape};
use self::exec::launching;
use self::log::watch;
use self::operate::{env, gateways, revoke};
use crate::app::{Code, Color, Failure, Terminal};

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

/// The commands. Those without a line here have theirs in files of their own. [`usage::GROUPS`]
/// says where the help lists them.
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
    /// Keep secrets in the key ring, and list the known services
    #[command(subcommand)]
    Secret(secret::SecretCommand),
    /// Explain what happened to a request, by the id in its response
    Why(why::Why),
    /// Show the running gateways
    Status(gateways::ChosenGateway),
    /// List sessions, make them, pause and end them
    #[command(subcommand)]
    Session(session::SessionCommand),
    /// Apply changed files to a running gateway: all of them, or none
    Reload(gateways::ChosenGateway),
    /// Revoke a credential in every gateway of yours, now and later
    ///
    /// When this returns, no further byte of its secret leaves.
    Revoke(revoke::RevokeSecret),
    /// Take a revocation back
    Restore(revoke::RevokeCommand),
    Allow(allow::Allow),
    Grants(grants::GrantsCommand),
    Budgets(budgets::BudgetsCommand),
    /// See the replicas that share a state, and stop one
    #[command(subcommand)]
    Fleet(fleet::FleetCommand),
    /// Decide about the project's own file, `gateway.toml`
    #[command(subcommand)]
    Project(projects::ProjectCommand),
    Init(init::Init),
    Deny(proposals::Deny),
    /// Log in to services; list, keep and forget logins
    #[command(subcommand)]
    Login(LoginCommand),
    /// Mint, narrow and revoke tokens, and show what they say
    #[command(subcommand)]
    Token(token::TokenCommand),
    Log(log::LogCommand),
    Watch(watch::WatchCommand),
    Console(console::ConsoleCommand),
    /// Print what points a client at a running `gateway serve`
    ///
    /// These are variables. With --into, writes all that its clients need into a folder.
    Env(env::Env),
    Sidecar(sidecar::Sidecar),
    /// Print what a shell completes, or write the manual pages
    #[command(subcommand)]
    Generate(generate::GenerateCommand),
}

/// Runs the command that the arguments name, prints its result, and returns the exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    crate::launch::note_inherited();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if let Some(code) = images(&arguments) {
        return code;
    }
    let read = usage::grouped(Cli::command()).try_get_matches_from(&arguments);
    let cli = match read.and_then(|matches| Cli::from_arg_matches(&matches)) {
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

/// Runs the other images of this program: the launcher, and commands in a sandbox.
fn images(arguments: &[OsString]) -> Option<ExitCode> {
    let terminal = Terminal::new(false, Color::Auto);
    let json = arguments.iter().any(|argument| argument == "--json");
    let ended = match arguments.get(1)?.to_str()? {
        demo::CLIENT => demo::client(&terminal),
        doctor::CLIENTS => {
            let outside = arguments.get(2)?.to_str()?;
            doctor::clients(&Terminal::new(json, Color::Auto), outside)
        }
        doctor::keys::CLIENT => {
            let checks = arguments.get(2)?.to_str()?;
            doctor::keys::client(&Terminal::new(json, Color::Auto), checks)
        }
        escape::SUBCOMMAND => escape::start(json),
        crate::escape::SUBCOMMAND => Ok(escape::inside(json)),
        crate::launch::SUBCOMMAND => launching::resume(&arguments[2..], &terminal),
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

impl Command {
    fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        match self {
            Self::Exec(command) => command.run(terminal),
            Self::Serve(command) => command.run(terminal),
            Self::Demo(command) => command.run(terminal),
            Self::Doctor(command) => command.run(terminal),
            Self::Policy(command) => command.run(terminal),
            Self::Secret(command) => match command.run(terminal)? {
                (_, Some(name)) => doctor::keys::anew(&name),
                (code, None) => Ok(code),
            },
            Self::Why(command) => command.run(terminal),
            Self::Status(chosen) => operate::status(&chosen, terminal),
            Self::Session(command) => command.run(terminal),
            Self::Reload(chosen) => operate::reload(&chosen, terminal),
            Self::Revoke(command) => command.run(terminal),
            Self::Restore(command) => command.restore(terminal),
            Self::Allow(command) => command.run(terminal),
            Self::Grants(command) => command.run(terminal),
            Self::Budgets(command) => command.run(terminal),
            Self::Fleet(command) => command.run(terminal),
            Self::Project(command) => command.run(terminal),
            Self::Init(command) => command.run(terminal),
            Self::Deny(command) => command.run(terminal),
            Self::Login(command) => command.run(terminal),
            Self::Token(command) => command.run(terminal),
            Self::Log(command) => command.run(terminal),
            Self::Watch(command) => command.run(terminal),
            Self::Console(command) => command.run(terminal),
            Self::Env(command) => command.run(terminal),
            Self::Sidecar(command) => command.run(terminal),
            Self::Generate(command) => command.run(Cli::command(), terminal),
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
    fn each_command_stands_in_one_group_of_the_help_and_on_one_line() {
        let commands = super::Cli::command();
        let mut declared: Vec<&str> = commands
            .get_subcommands()
            .map(clap::Command::get_name)
            .collect();
        let groups = super::usage::GROUPS.iter();
        let mut listed: Vec<&str> = groups.flat_map(|(_, names)| names.split(' ')).collect();
        declared.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, declared);
        assert!(listed.len() <= 27, "{} commands", listed.len());
        let help = super::usage::grouped(commands).render_help().to_string();
        for name in listed {
            let begin = format!("  {name} ");
            let lines = help.lines().filter(|line| line.starts_with(&begin));
            let lines: Vec<&str> = lines.collect();
            assert_eq!(lines.len(), 1, "{name}: {help}");
            assert!(lines[0].len() <= 80, "{}", lines[0]);
        }
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
