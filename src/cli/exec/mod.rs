//! `gateway exec -- CMD`: a sandbox for one command, and the data path behind it.
//!
//! There are three processes. The one that the user started forks the *gateway process*, which
//! alone reads secrets. It then re-executes itself as the *launcher* with a scrubbed environment,
//! so the launcher is the shell's job and holds no secret. The launcher creates the sandbox and
//! runs CMD in it.

pub(crate) mod company;
pub(crate) mod gateway_process;
pub(crate) mod into;
pub(crate) mod known_commands;
pub(crate) mod launching;
pub(crate) mod overview;
pub(crate) mod package_caches;
pub(crate) mod ports;
pub(crate) mod printed_lines;
pub(crate) mod registries;
pub(crate) mod summary;
pub(crate) mod written;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use clap::Args;
use tokio::runtime::Runtime;

use crate::app::commits::{self, CommitSigning};
use crate::app::kept_home::KeptHome;
use crate::app::login::run_logins;
use crate::app::project::{changeable, project, working_directory};
use crate::app::reload::source::{ConfigSource, RunMode};
use crate::app::session::store::Persistence;
use crate::app::settings::commit_key::SshSigning;
use crate::app::settings::profile::Profile;
use crate::app::settings::project_file::AllowedFile;
use crate::app::settings::resolve::{ResolvedConfig, known_secrets};
use crate::app::settings::shell_secrets::{SecretAnswers, ShellLoans};
use crate::app::settings::{git_access, project_file};
use crate::app::{App, Code, Color, Failure, RunFlags, Terminal, safe};
use crate::body::Limit;
use crate::cli::exec::gateway_process::serve_on;
use crate::cli::exec::launching::not_launched;
use crate::cli::exec::overview::Overview;
use crate::cli::exec::package_caches::PackageCaches;
use crate::cli::exec::printed_lines::PrintedLines;
use crate::cli::last_run::LastRun;
use crate::cli::learn::LearnMode;
use crate::cli::{learn, log, projects};
use crate::config::{AGENTS, Config, MORE, REACH, SEE, SandboxFlags, state};
use crate::credential::preset;
use crate::files;
use crate::launch::bounds::Bounds;
use crate::launch::enroll::GatewayEnd;
use crate::launch::{self, Launch, LaunchPlan, MountPlan, environment};
use crate::names::real_path;

/// Run a command whose every connection goes through the gateway
#[derive(Args)]
#[command(trailing_var_arg = true, after_help = EXAMPLES)]
pub struct Exec {
    /// Lend only the credentials that flags, presets and the configuration name, not those of known
    /// variables
    #[arg(long, help_heading = REACH, display_order = 900)]
    no_lend: bool,
    /// Sign no commits: else git signs them inside as it does outside, by your own SSH agent
    #[arg(long, help_heading = REACH, display_order = 900)]
    no_sign: bool,
    /// Let the command make user namespaces of its own (Chromium, bubblewrap, podman)
    #[arg(long, help_heading = SEE, display_order = 900)]
    allow_userns: bool,
    /// Let the command change settings and hooks of git in the project, which your own git obeys
    /// later
    #[arg(long, help_heading = SEE, display_order = 900)]
    writable_git: bool,
    /// Refuse new and changed files that tools run by themselves (Makefile, package.json, .envrc,
    /// .vscode …)
    #[arg(long, help_heading = SEE, display_order = 900)]
    guard_tools: bool,
    /// Take the working directory alone as the project, not the repository that it is in
    #[arg(long, help_heading = SEE, display_order = 900)]
    here: bool,
    /// Run the command as this agent: its hosts, its variables, what it keeps. The command's name
    /// chooses, unless this names another, or `none`
    #[arg(long, value_name = "NAME", help_heading = AGENTS)]
    profile: Option<String>,
    #[command(flatten)]
    sandbox: SandboxFlags,
    /// Print the whole summary, also what was said in this project before
    #[arg(long, short, help_heading = MORE)]
    verbose: bool,
    /// Leave the project's own file, `gateway.toml`, out, whatever was decided about it
    #[arg(long, help_heading = MORE)]
    no_project: bool,
    /// Propose a project file for what the command asked for, at its end. Meanwhile it may reach
    /// what it may anyway (`refuse`), or any host (`permit`)
    #[arg(long, value_name = "refuse|permit", num_args = 0..=1, require_equals = true, default_missing_value = "refuse", value_enum, hide_possible_values = true, help_heading = AGENTS)]
    learn: Option<LearnMode>,
    /// Write what `--learn` proposes without a question
    #[arg(long, requires = "learn", help_heading = AGENTS)]
    yes: bool,
    #[arg(long = "learning", hide = true, requires = "learn")]
    is_learning: bool,
    /// Forget what the agent and package managers kept in this project
    #[arg(long, help_heading = AGENTS)]
    fresh_home: bool,
    /// Run the command in the sandbox of this session, which another `gateway exec` began: its id,
    /// or the name of its gateway (`exec-1234`)
    #[arg(long, value_name = "SESSION", conflicts_with_all = NOT_INTO, help_heading = MORE)]
    into: Option<String>,
    /// The gateway of the session to enter, if several run: its process number, its name, or the
    /// path of its control socket
    #[arg(long, value_name = "PID|NAME|SOCKET", requires = "into", help_heading = MORE)]
    gateway: Option<String>,
    #[command(flatten)]
    run: RunFlags,
    /// It prints what its command prints.
    #[arg(long, hide = true)]
    json: bool,
    /// The command and its arguments
    #[arg(required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Exec {
    /// Creates the sandbox and runs the command. Returns only on a failure before anything was
    /// started.
    ///
    /// # Errors
    /// Returns a [`Failure`] that says why. The command was never started.
    pub fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        if self.json || terminal.json() {
            return Err(Failure::usage("`exec` has no `--json`")
                .because("it prints what its command prints")
                .next("`gateway status --json` and `gateway log --json` tell of its session"));
        }
        if let Some(session) = self.into {
            return into::enter(session, self.gateway, self.command);
        }
        let config = self.config_asked(terminal)?;
        if self.learn.is_some() && !self.is_learning {
            return learn::run(&config, self.yes, terminal);
        }
        ports::refuse_other_gateways(&config.sandbox)?;
        let profile = self.profile()?;
        let resolved = self.resolved(&config, terminal)?;
        let mut launch = self.launch(&config)?;
        let is_off = self.no_sign || config.sandbox.no_sign;
        let project = launch.project.as_deref().filter(|_| !is_off);
        let commits = project.map_or(Ok(None), SshSigning::of);
        let mut settings = Vec::new();
        if let Ok(Some(signing)) = &commits {
            settings = signing.settings();
            let socket = ("SSH_AUTH_SOCK".to_owned(), commits::INSIDE.to_owned());
            launch.variables.extend([socket]);
        }
        launch
            .variables
            .extend(git_access::variables(resolved.bindings(), settings));
        launch
            .hide
            .extend(run_logins::moved_files(&resolved.logins));
        registries::tell(&resolved, &mut launch);
        let mut plan = launching::plan(launch)?;
        launching::recover(&plan.mounts.projects, terminal)?;
        if !self.run.quiet {
            overview::tell_of_dropped(&plan, terminal);
        }
        terminal.warn(&config.warnings);
        if self.run.names_file() && !self.run.quiet {
            project_file::tell_of_left_out(&working_directory()?, terminal);
        }
        let is_told = self.run.quiet || self.no_project || config.project.is_some();
        if !is_told && !self.run.names_file() {
            project_file::tell_of_undecided(&working_directory()?, terminal)?;
        }
        let (kept_home, caches) = self.kept_folders(&config, &plan)?;
        let kept = kept_home.iter().map(KeptHome::folder);
        let kept = kept.chain(caches.iter().map(PackageCaches::folder));
        written::note(&plan.mounts, kept.map(Path::to_owned))?;
        // Again, since the paths that this command may write count too.
        self.config_asked(terminal)?;
        registries::refuse_of_a_command(&resolved)?;
        plan.hide(own_folders(&config, &plan.mounts)?)
            .map_err(not_launched)?;
        if let Some(kept) = &kept_home {
            plan.mounts.kept = kept.prepare(plan.user(), self.fresh_home)?;
        }
        if let Some(caches) = &caches {
            let made = caches.prepare(plan.user(), self.fresh_home)?;
            plan.mounts.kept.extend(made);
        }
        let signing = commits.as_ref().ok().and_then(Option::as_ref);
        let agent = signing.map(|signing| CommitSigning::open(signing, &mut plan));
        let agent = agent.transpose()?.unwrap_or_default();
        let kept_project = self.kept_project(&config)?.filter(|_| !self.verbose);
        let overview = |plan: &LaunchPlan| {
            let overview = Overview {
                config: &config,
                resolved: &resolved,
                plan,
                profile: profile.as_ref(),
                commits: &commits,
                is_verbose: self.verbose,
            };
            if self.run.quiet {
                Ok(())
            } else {
                overview.print(&mut PrintedLines::of(kept_project.as_deref()), terminal)
            }
        };
        launching::start(plan, &[], overview, |runtime, gateway| {
            self.serve(runtime, gateway, kept_home, agent)
        })
    }

    /// Serves the sandbox that the launcher creates. This is the gateway process.
    ///
    /// # Errors
    /// Returns a [`Failure`] that was already sent to the launcher.
    fn serve(
        &self,
        runtime: &Runtime,
        gateway: GatewayEnd,
        kept: Option<KeptHome>,
        commits: CommitSigning,
    ) -> Result<Code, Failure> {
        let terminal = Terminal::new(false, Color::Auto);
        let app = self.config(project_file::decided).and_then(|mut config| {
            config.commit_key = commits.fingerprint();
            let shell = self.shell_loans(self.answers(&config)?.as_ref())?;
            let resolved = ResolvedConfig::of(&config, &shell)?;
            let keeping = self.keeping(&config)?;
            let source = ConfigSource {
                run: self.run.clone(),
                sandbox: self.sandbox.clone(),
                shell,
                project: config.project.clone(),
                open: config.open,
                commit_key: config.commit_key.clone(),
                profile: self.profile()?,
                granted: config.granted.clone(),
                runs_as: RunMode::Exec,
            };
            let app = App::new(config, resolved, RunMode::Exec, Vec::new())?
                .obeying(state::revoked_file())
                .keeping(keeping)
                .keeping_home(kept)
                .signing(commits)
                .reloading_from(source);
            log::begin(&app.shared.log, &self.shown_run()?);
            Ok(app)
        });
        serve_on(
            runtime,
            gateway,
            app,
            |app| self.note_run(app),
            (!self.run.quiet).then_some(&terminal),
        )
    }

    /// Names the command and its folder, without arguments, which may hold secrets.
    fn shown_run(&self) -> Result<String, Failure> {
        let command = self.command.first().map(Path::new);
        let name = command.and_then(Path::file_name).unwrap_or_default();
        Ok(format!(
            "{} in {}",
            name.display(),
            self.project()?.display()
        ))
    }

    /// Records where this run's log is, unless the command could change that note.
    fn note_run(&self, app: &App) {
        if let (Ok(project), Ok(true)) = (project(), keeps(&app.config)) {
            LastRun::begin(&project, app);
        }
    }

    /// Reads the configuration. In a terminal, asks a person once about all of its files that a
    /// command could have written; the project's own needs `gateway project allow`.
    fn config_asked(&self, terminal: &Terminal) -> Result<Config, Failure> {
        let read = || self.config(project_file::in_force);
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return read();
        }
        let (shown, mut named) = files::traced(|| {
            let look = || read().inspect(|config| drop(config.policy.sources()));
            files::to_show(look)
        });
        let config = shown?;
        named.retain(|path| config.project.as_ref() != Some(path));
        if self.run.names_file() || !config.policy.files.is_empty() {
            let unallowed = files::unallowed(named);
            if !unallowed.is_empty() {
                projects::ask(&unallowed, &config, terminal)?;
            }
        }
        read()
    }

    /// Reads the configuration, with the project's file that `found` returns.
    fn config(&self, found: FindProjectFile) -> Result<Config, Failure> {
        let is_out = self.no_project || self.run.names_file();
        let file = if is_out {
            Ok(None)
        } else {
            found(&working_directory()?)
        };
        let file = file.map_err(|failure| match failure.code {
            Code::Usage => failure,
            _ => failure.coded(launch::LAUNCHER_FAILED),
        })?;
        let mut config = self.run.config_in(file.as_ref(), &self.sandbox)?;
        config.granted = state::granted_for(&self.project()?, config.file.as_deref());
        // No rule is read from a folder that the command may change.
        if state::granted_directory().is_some() && !keeps(&config)? {
            // A command may have written the decisions in that folder, too.
            if config.project.is_some() {
                config = self.run.config_in(None, &self.sandbox)?;
            }
            config.granted = None;
        }
        if let Some(profile) = self.profile()? {
            profile.add_to(&mut config);
        }
        config.open = self.learn == Some(LearnMode::Permit);
        Ok(config)
    }

    /// Adds presets and known secrets to the configuration. Asks a person about secrets without an
    /// answer.
    fn resolved(&self, config: &Config, terminal: &Terminal) -> Result<ResolvedConfig, Failure> {
        let mut answers = self.answers(config)?;
        let shell = self.shell_loans(answers.as_ref())?;
        let resolved = ResolvedConfig::of(config, &shell)?;
        let is_asked = shell.is_asked && !config.policy.decide();
        if is_asked
            && let Some(answers) = &mut answers
            && answers.ask(&resolved.withheld, terminal)?
        {
            return ResolvedConfig::of(config, &self.shell_loans(Some(answers))?);
        }
        Ok(resolved)
    }

    /// Returns the answers about the project.
    fn answers(&self, config: &Config) -> Result<Option<SecretAnswers>, Failure> {
        let project = self.kept_project(config)?;
        project.as_deref().map(SecretAnswers::of).transpose()
    }

    /// Returns the project, if its data can be kept: not in a folder that the command may change.
    fn kept_project(&self, config: &Config) -> Result<Option<PathBuf>, Failure> {
        keeps(config)?.then(|| self.project()).transpose()
    }

    fn shell_loans(&self, answers: Option<&SecretAnswers>) -> Result<ShellLoans, Failure> {
        Ok(if self.no_lend {
            ShellLoans::default()
        } else {
            let none = SecretAnswers::default();
            ShellLoans::of(self.profile()?.as_ref(), answers.unwrap_or(&none))
        })
    }

    /// Returns the project whose phantoms, rules and homes are kept.
    fn project(&self) -> Result<PathBuf, Failure> {
        if self.here {
            working_directory()
        } else {
            project()
        }
    }

    /// Returns whose phantoms are kept: none in a folder that the command may change.
    fn keeping(&self, config: &Config) -> Result<Persistence, Failure> {
        match config.state_folder() {
            Some(folder) if changeable(config, &folder)? => Ok(Persistence::Nothing),
            _ => Ok(Persistence::Project(self.project()?)),
        }
    }

    fn profile(&self) -> Result<Option<Profile>, Failure> {
        let command = self.command.first().map(OsString::as_os_str);
        Profile::of(self.profile.as_deref(), command.unwrap_or_default())
    }

    /// Returns the kept folders of the agent's home, and the caches of package managers.
    fn kept_folders(
        &self,
        config: &Config,
        plan: &LaunchPlan,
    ) -> Result<(Option<KeptHome>, Option<PackageCaches>), Failure> {
        if !plan.mounts.persistent || !keeps(config)? {
            return Ok((None, None));
        }
        let (profile, project) = (self.profile()?, self.project()?);
        let home = KeptHome::of(profile.as_ref(), &project, plan, &config.sandbox.see_home);
        Ok((home, PackageCaches::of(&project, plan)))
    }

    fn launch(&self, config: &Config) -> Result<Launch, Failure> {
        let mut hide = config.sandbox.hide.clone();
        let own = config.own_files();
        hide.extend(own.iter().cloned());
        hide.extend(config.secret_files());
        Ok(Launch {
            arguments: self.command.clone(),
            project: Some(self.project()?),
            projects: config.sandbox.write.clone(),
            see: config.sandbox.see.clone(),
            see_home: config.sandbox.see_home.clone(),
            sets: config
                .presets
                .iter()
                .chain(&config.offered_presets)
                .chain(&config.keyed_presets)
                .filter_map(|name| preset::named(name))
                .flat_map(|preset| preset.home.clone())
                .collect(),
            variables: self
                .profile()?
                .map(|profile| profile.variables)
                .unwrap_or_default(),
            hide,
            own,
            own_folders: config.policy.folders(),
            read_only: project_file::guarded(&self.project()?, &working_directory()?),
            environment: environment::VariableRules {
                allow: config.sandbox.pass_env.clone(),
                secrets: known_secrets(),
            },
            bounds: Bounds {
                memory_files: config.sandbox.memory_files.map(Limit::as_bytes),
                processes: config.sandbox.processes,
            },
            ports: ports::of(&config.sandbox)?,
            user: config.sandbox.user.as_deref().map(user).transpose()?,
            allow_userns: self.allow_userns || config.sandbox.allow_userns,
            writable_git: self.writable_git,
            guard_tools: self.guard_tools || config.sandbox.guard_tools,
            ..Launch::default()
        })
    }
}

/// Whether a project's data can be kept: there is a folder that the command cannot change.
fn keeps(config: &Config) -> Result<bool, Failure> {
    let folder = state::granted_directory();
    folder.map_or(Ok(false), |folder| Ok(!changeable(config, &folder)?))
}

/// Finds the project's file in force for a folder.
type FindProjectFile = fn(&Path) -> Result<Option<AllowedFile>, Failure>;

/// Returns the folders of the gateway's own files that change while it runs. Each is hidden as a
/// whole: a log, for example, creates further files when it rotates.
fn own_folders(config: &Config, mounts: &MountPlan) -> Result<Vec<PathBuf>, Failure> {
    let audit = config.audit_folder();
    if let Some(folder) = &audit {
        keep_from_the_workload(folder, "the audit log", "--audit FILE", mounts)?;
    }
    if let (Some(folder), Some(_)) = (config.state_folder(), &config.state.path) {
        keep_from_the_workload(&folder, "the state", "[state] path", mounts)?;
    }
    let mut folders: Vec<PathBuf> = audit.into_iter().collect();
    folders.extend(state_folders(config)?);
    folders.extend(keep_control_from_the_workload(config, mounts)?);
    // The sockets of other runs are there, wherever the control socket is.
    let run = state::run_directory().and_then(|folder| real_path(&folder).ok());
    folders.extend(run.filter(|folder| !folders.contains(folder)));
    Ok(folders)
}

/// Returns the folders of the state, created so that the sandbox hides each as a whole. If one
/// cannot be created, the gateway process reports that.
fn state_folders(config: &Config) -> Result<Vec<PathBuf>, Failure> {
    let mut hidden = Vec::new();
    let shared = state::sessions_folder().map(|folder| files::real(&folder));
    let own = files::user_database().and_then(|path| path.parent().map(Path::to_owned));
    let granted = state::granted_directory();
    let folders = BTreeSet::from([config.state_folder(), granted, shared, own]);
    for folder in folders.into_iter().flatten() {
        if !changeable(config, &folder)? {
            let _ = files::private_folder(&folder);
            hidden.push(folder);
        }
    }
    Ok(hidden)
}

fn user(name: &str) -> Result<launch::User, Failure> {
    name.parse().map_err(|error: launch::UserUnknown| {
        Failure::usage(format!("`--user {}` names no user", safe(name))).because(error.to_string())
    })
}

/// Refuses to write to a folder that the command could read or change. Creates the folder, so that
/// the sandbox hides it as a whole.
///
/// The command can make a log rotate, and files created later cannot be hidden one by one.
fn keep_from_the_workload(
    folder: &Path,
    what: &str,
    setting: &str,
    mounts: &MountPlan,
) -> Result<(), Failure> {
    let refused = |why: String| {
        let place = folder.display();
        Err(Failure::usage(format!("{what} in `{place}` is refused"))
            .because(why)
            .next(format!(
                "write it to a folder of its own outside: `{setting}`, or leave that out"
            )))
    };
    let mut shared = mounts.projects.iter();
    if let Some(project) = shared.find(|project| folder.starts_with(project)) {
        return refused(format!(
            "`{}` is the command's, which could read and change what is written there",
            project.display()
        ));
    }
    let inside = [mounts.home.path(), &mounts.working_directory];
    let shared = mounts.projects.iter().map(PathBuf::as_path);
    let mut inside = inside.into_iter().chain(shared);
    if let Some(inside) = inside.find(|inside| inside.starts_with(folder)) {
        return refused(format!(
            "the folder holds `{}`, so that it cannot be hidden from the command",
            inside.display()
        ));
    }
    // If it cannot be created, the gateway process reports that when it opens the file.
    make(folder);
    Ok(())
}

fn make(folder: &Path) {
    let mut builder = std::fs::DirBuilder::new();
    let _ = builder.recursive(true).mode(0o700).create(folder);
}

/// Returns the folder of the control socket, created so that the sandbox hides it as a whole.
///
/// The socket is created while the sandbox is, so it cannot be hidden by itself.
fn keep_control_from_the_workload(
    config: &Config,
    mounts: &MountPlan,
) -> Result<Option<PathBuf>, Failure> {
    let named = config.control.path.as_deref();
    let folder = named.map(|path| path.parent().unwrap_or(path).to_owned());
    let Some(folder) = folder.or_else(state::run_directory) else {
        return Ok(None);
    };
    // If it cannot be created, the gateway process reports why there is no socket.
    make(&folder);
    let folder = real_path(&folder).unwrap_or(folder);
    let mut projects = mounts.projects.iter();
    if let Some(project) = projects.find(|project| folder.starts_with(project)) {
        let what = format!("a control socket in `{}` is refused", folder.display());
        return Err(Failure::usage(what)
            .because(format!(
                "`{}` is the command's, which could end or allow itself what you may",
                project.display()
            ))
            .next("name a `[control] path` outside, or set XDG_RUNTIME_DIR"));
    }
    Ok(Some(folder))
}

const EXAMPLES: &str = "\
Examples:
  gateway exec --allow example.com --preset npm -- npm ci   what it may reach
  gateway exec --see ~/reference --write ~/out -- make       what it may see and change
  gateway exec --fresh-home -- claude                        agents
  gateway exec --publish 3000 -- npm run dev                 ports
  gateway exec --into exec-1234 -- sh                        more";

/// The settings that create a sandbox. A running sandbox cannot change them.
const NOT_INTO: [&str; 13] = crate::names::word_list(
    "RunFlags Flags SandboxFlags allow_userns writable_git guard_tools here no_lend no_sign learn \
     profile no_project fresh_home",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_show_sets_that_there_are() {
        for preset in preset::all() {
            for name in &preset.home {
                let mut sets = launch::tools::SETS.iter();
                assert!(sets.any(|(set, _)| set == name), "{name}");
            }
        }
    }
}
