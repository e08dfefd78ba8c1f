//! `gateway exec -- CMD`: a sandbox for one command, and the data path behind it.
//!
//! Three processes. The one that was typed starts the *gateway process*, which alone reads secrets,
//! and then becomes the *launcher* by a fresh image with a scrubbed environment, so that it is the
//! shell's job and holds nothing. The launcher makes the sandbox and runs CMD in it.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use clap::Args;

use super::assembly::Assembly;
use super::expand::Expanded;
use super::failure::{Code, Failure};
use super::flags::RunFlags;
use super::report;
use super::screen::{Screen, safe};
use super::serving;
use crate::body::Limit;
use crate::config::{Config, state};
use crate::credential::Stored;
use crate::credential::preset;
use crate::gateway::{Door, Doorway, chain};
use crate::intercept::{Responder, Synthetic, serve_tcp, serve_udp};
use crate::launch::after::{self, Watch};
use crate::launch::bounds::Bounds;
use crate::launch::enroll::{self, GatewayEnd, LauncherEnd, Listeners, Ready};
use crate::launch::{self, First, Launch, environment, program};
use crate::names::{SYSTEM_BUNDLES, SessionId};

/// The first argument of the gateway process.
pub const GATEWAY_PROCESS: &str = "__gateway";
/// The session of `exec`.
const SESSION: &str = "exec";
/// Names that the sandbox may resolve, each with a synthetic address of its own.
const NAMES: usize = 16_384;

/// Run a command whose every connection goes through the gateway
#[derive(Args)]
#[command(trailing_var_arg = true)]
pub struct Exec {
    #[command(flatten)]
    run: RunFlags,
    /// Let the command make user namespaces of its own (Chromium, bubblewrap, podman)
    #[arg(long)]
    allow_userns: bool,
    /// Let the command change settings and hooks of git in the project, which your own git obeys
    /// later
    #[arg(long)]
    writable_git: bool,
    /// Refuse new and changed files that tools run by themselves (Makefile, package.json, .envrc,
    /// .vscode …)
    #[arg(long)]
    guard_tools: bool,
    /// The command and its arguments
    #[arg(required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Exec {
    /// Makes the sandbox and runs the command; returns only where that fails before anything was
    /// started.
    ///
    /// # Errors
    /// A [`Failure`] with what is wrong; the command was never started.
    pub fn run(self, screen: &mut Screen) -> Result<Code, Failure> {
        let config = self.config()?;
        screen.warn(&config.warnings);
        let mut launch = self.launch(&config)?;
        let expanded = Expanded::of(&config, self.virtualises_known())?;
        let summary = launch::summary(&launch).map_err(not_launched)?;
        refuse_programs_of_the_workload(&expanded, &summary)?;
        keep_records_from_the_workload(&config, &summary)?;
        // As a whole, since a log that turns over makes further files.
        launch.own_folders.extend(config.audit_folder());
        if !self.run.quiet {
            report::before(screen, &summary, &expanded);
        }
        start(launch, &[])
    }

    /// Serves the sandbox that the launcher makes: the gateway process, whose standard input is the
    /// enrolment socket.
    ///
    /// # Errors
    /// A [`Failure`], which the launcher was told.
    pub fn serve(self, gateway: GatewayEnd) -> Result<Code, Failure> {
        let screen = Screen::new(false, super::Color::Auto);
        let runtime = serving::runtime()?;
        let assembly = self.config().and_then(|config| {
            let expanded = Expanded::of(&config, self.virtualises_known())?;
            Assembly::new(config, expanded)
        });
        serve_on(
            &runtime,
            gateway,
            assembly,
            (!self.run.quiet).then_some(&screen),
        )
    }

    fn config(&self) -> Result<Config, Failure> {
        self.run.config(&super::presets::known_variable)
    }

    /// Without a word of what is wanted, every variable that a preset knows is lent to its own
    /// hosts.
    fn virtualises_known(&self) -> bool {
        self.run.says_nothing()
    }

    fn launch(&self, config: &Config) -> Result<Launch, Failure> {
        let mut hide = config.sandbox.hide.clone();
        let own = config.own_files();
        hide.extend(own.iter().cloned());
        hide.extend(config.secret_files());
        Ok(Launch {
            arguments: self.command.clone(),
            projects: config.sandbox.write.clone(),
            see: config.sandbox.see.clone(),
            see_home: config.sandbox.see_home.clone(),
            sets: config
                .presets
                .iter()
                .filter_map(|name| preset::named(name))
                .flat_map(|preset| preset.home.clone())
                .collect(),
            hide,
            own,
            own_folders: config.policy.folders(),
            environment: environment::Rules {
                allow: config.sandbox.pass_env.clone(),
            },
            bounds: Bounds {
                memory_files: config.sandbox.memory_files.map(Limit::as_bytes),
                processes: config.sandbox.processes,
            },
            user: config.sandbox.user.as_deref().map(user).transpose()?,
            allow_userns: self.allow_userns || config.sandbox.allow_userns,
            writable_git: self.writable_git,
            guard_tools: self.guard_tools || config.sandbox.guard_tools,
            ..Launch::default()
        })
    }
}

fn user(name: &str) -> Result<launch::User, Failure> {
    name.parse().map_err(|error: launch::UserUnknown| {
        Failure::usage(format!("`--user {}` names no user", safe(name))).because(error.to_string())
    })
}

/// A secret's command runs outside the sandbox, so nothing that decides what it is may lie where
/// the workload can change it for good: neither the program, nor a link on its way, nor its
/// interpreter.
fn refuse_programs_of_the_workload(
    expanded: &Expanded,
    summary: &launch::Summary,
) -> Result<(), Failure> {
    let own = summary.persistent.then_some(&summary.working_directory);
    let writable = || summary.projects.iter().chain(own);
    for Stored { binding, from } in &expanded.stored {
        let names = from.program().map(program::names).unwrap_or_default();
        let changeable = |name: &PathBuf| writable().any(|folder| name.starts_with(folder));
        if names.iter().any(changeable) {
            return Err(Failure::usage(format!(
                "the command of credential `{}` is refused",
                binding.credential
            ))
            .because(
                "it, a link to it or its interpreter lies in a directory that the sandboxed command may change, and it runs \
                 outside the sandbox",
            )
            .next("move the program out of the project"));
        }
    }
    Ok(())
}

/// Refuses a log where the command could read or change it, and makes its folder, so that the
/// sandbox hides that as a whole.
///
/// A log turns over when the command makes it, and files that come later cannot be hidden one by
/// one.
fn keep_records_from_the_workload(
    config: &Config,
    summary: &launch::Summary,
) -> Result<(), Failure> {
    // Where there is no folder at all, the gateway process says so.
    let Some(folder) = config.audit_folder() else {
        return Ok(());
    };
    let refused = |why: String| {
        Err(
            Failure::usage(format!("the audit log in `{}` is refused", folder.display()))
                .because(why)
                .next("write it to a folder of its own outside: `--audit FILE`, or leave `--audit` and `[audit] path` out"),
        )
    };
    let own = summary.persistent.then_some(&summary.working_directory);
    let shared = || summary.projects.iter().chain(own);
    if let Some(project) = shared().find(|project| folder.starts_with(project)) {
        return refused(format!(
            "`{}` is the command's, which could read and change the records of what it did",
            project.display()
        ));
    }
    let inside = [summary.home.path(), &summary.working_directory];
    let inside = inside.into_iter().chain(shared().map(PathBuf::as_path));
    if let Some(inside) = inside
        .into_iter()
        .find(|inside| inside.starts_with(&folder))
    {
        return refused(format!(
            "the folder holds `{}`, so that it cannot be hidden from the command",
            inside.display()
        ));
    }
    // What keeps it from being made, the gateway process says when it opens the log.
    let _ = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder);
    Ok(())
}

/// Starts the gateway process, with `secrets` in its environment alone, then becomes the launcher.
///
/// # Errors
/// A [`Failure`] where either cannot be started. Otherwise this does not return.
pub fn start(launch: Launch, secrets: &[(&str, &str)]) -> Result<Code, Failure> {
    let (launcher, gateway) = enroll::pair().map_err(|error| {
        Failure::new("the enrolment socket cannot be made")
            .because(chain(&error))
            .coded(launch::LAUNCHER_FAILED)
    })?;
    let running = state::directory().map(|state| state.join("running"));
    let (announced, locks) = after::announce(&launch, running.as_deref()).map_err(not_launched)?;
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    arguments.insert(0, GATEWAY_PROCESS.into());
    Command::new("/proc/self/exe")
        .args(arguments)
        .envs(secrets.iter().copied())
        .stdin(Stdio::from(OwnedFd::from(gateway)))
        // It has nothing to print there; open, the file says that this sandbox runs.
        .stdout(Stdio::from(announced))
        .spawn()
        .map_err(|error| {
            Failure::new("the gateway process cannot be started")
                .because(error.to_string())
                .coded(launch::LAUNCHER_FAILED)
        })?;
    drop(locks);
    let error = launch::reexec(launch, launcher);
    Err(Failure::new("the launcher cannot be started")
        .because(error.to_string())
        .coded(launch::LAUNCHER_FAILED))
}

/// The launcher's own image: makes the sandbox, runs the command, and ends as it does.
pub fn resume(arguments: &[OsString], screen: &Screen) -> Result<Code, Failure> {
    let (launch, gateway): (Launch, LauncherEnd) = launch::resume(arguments).map_err(|error| {
        Failure::usage(format!(
            "`{}` is for the gateway itself",
            launch::SUBCOMMAND
        ))
        .because(error.to_string())
    })?;
    let ended = launch::run(launch, gateway);
    // The enrolment socket is closed by now: the gateway process writes its last records and ends.
    // It is our child.
    launch::await_children(FAREWELL);
    match ended {
        Ok(exit) => exit.resume(),
        Err(error) => {
            let code = error.exit_code().into();
            screen.fail(&not_launched(error));
            std::process::exit(code)
        }
    }
}

/// How long the launcher waits for the gateway process to write its last records and look at what
/// the command left.
const FAREWELL: std::time::Duration = std::time::Duration::from_secs(10);

/// A launch that failed, with what would help.
pub fn not_launched(error: launch::Error) -> Failure {
    let code = error.exit_code();
    let mut failure = Failure::new(chain(&error)).coded(code);
    if let Some(advice) = error.advice() {
        failure = failure.next(advice);
    }
    failure
}

/// The data path of one sandbox, until the launcher goes; what was refused meanwhile is printed
/// where there is a screen.
///
/// # Errors
/// A [`Failure`] where there is no runtime or terminal to leave; every other one is told to the
/// launcher, which prints it.
pub fn serve_on(
    runtime: &tokio::runtime::Runtime,
    gateway: GatewayEnd,
    assembly: Result<Assembly, Failure>,
    screen: Option<&Screen>,
) -> Result<Code, Failure> {
    serving::harden()?;
    // A session of its own: the terminal's signals are for the command, not for what serves it.
    rustix::process::setsid()
        .map_err(|error| Failure::new("cannot leave the terminal").because(error.to_string()))?;
    let mut watch = Watch::adopt(std::io::stdout());
    let served = assembly.and_then(|assembly| {
        match runtime.block_on(sandbox(&gateway, &assembly, &mut watch)) {
            Ok(first) => Ok((assembly, first)),
            Err(failure) => {
                runtime.block_on(serving::close(&assembly.shared));
                Err(failure)
            }
        }
    });
    let aftermath = |watch: Option<Watch>| watch.map(Watch::end).unwrap_or_default();
    match served {
        Ok((assembly, first)) => {
            serving::settle();
            runtime.block_on(gone(gateway));
            runtime.block_on(serving::close(&assembly.shared));
            assembly.shared.tell_suppressed();
            launch::await_end(&first, FAREWELL);
            let aftermath = aftermath(watch);
            if let Some(screen) = screen {
                report::refused(screen, &assembly);
                report::left(screen, &aftermath);
            }
            Ok(Code::Ok)
        }
        Err(failure) => {
            // The launcher may have gone meanwhile; then nobody is left to be told. It reads this
            // when it is ready for an answer, so the socket stays open until then.
            if gateway.refuse(&failure.to_string()).is_ok() {
                runtime.block_on(gone(gateway));
            }
            aftermath(watch);
            Ok(Code::Failed)
        }
    }
}

/// Serves the sandbox, and gives a handle of its first process.
async fn sandbox(
    gateway: &GatewayEnd,
    assembly: &Assembly,
    watch: &mut Option<Watch>,
) -> Result<First, Failure> {
    let id = SessionId::new(SESSION).map_err(|error| Failure::new(error.to_string()))?;
    let (session, ca) = assembly.open(&id, &assembly.config.groups).await?;
    let worker = serving::worker(&assembly.shared)?;
    serving::tend(&assembly.shared, vec![session.clone()]);
    // The launcher needs longer to make the sandbox than we did so far: only now we wait for it.
    let (hello, listeners) = gateway
        .hello()
        .map_err(|error| Failure::new("the launcher went").because(chain(&error)))?;
    let first = First::of(hello.pid)
        .map_err(|error| Failure::new("the sandbox went").because(error.to_string()))?;
    let Listeners {
        tcp,
        dns_tcp,
        dns_udp,
    } = listeners;
    let refused = assembly.shared.clone();
    let asks = session.clone();
    let responder = Arc::new(Responder::new(
        Synthetic::new(NAMES),
        Box::new(move |host| {
            refused
                .policies
                .current()
                .may_resolve(asks.id(), asks.groups(), host)
        }),
        Box::new(worker.name_observer(session.id())),
    ));
    let unusable = |error: std::io::Error| {
        Failure::new("a socket of the sandbox cannot be used").because(error.to_string())
    };
    let door = Door {
        session: session.clone(),
        ca: ca.clone(),
        way: Doorway::Transparent(responder.clone()),
    };
    serving::serve(&worker, nonblocking(tcp).map_err(unusable)?, Arc::new(door))?;
    let names = nonblocking(dns_tcp)
        .and_then(tokio::net::TcpListener::from_std)
        .map_err(unusable)?;
    tokio::spawn(serve_tcp(names, responder.clone()));
    let questions = std::net::UdpSocket::from(dns_udp);
    questions.set_nonblocking(true).map_err(unusable)?;
    tokio::spawn(serve_udp(questions, responder));
    let phantoms = session.phantoms();
    let environment = session.bindings().environment(&phantoms);
    let pem = ca.certificate_pem();
    let ready = Ready {
        ca_bundle_pem: bundle(&pem),
        ca_pem: pem.into_bytes(),
        set: environment
            .map(|(name, phantom)| (name.to_owned(), phantom.to_owned()))
            .collect(),
        unset: Vec::new(),
    };
    if let Some(watch) = watch {
        watch.seen();
    }
    gateway
        .ready(&ready)
        .map_err(|error| Failure::new("the launcher went").because(chain(&error)))?;
    Ok(first)
}

fn nonblocking(socket: OwnedFd) -> std::io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The system's bundle with the session's CA: clients that replace their own list by it lose
/// nothing.
fn bundle(ca: &str) -> Vec<u8> {
    let mut bundle = SYSTEM_BUNDLES
        .iter()
        .find_map(|path| std::fs::read(path).ok())
        .unwrap_or_default();
    if !bundle.ends_with(b"\n") {
        bundle.push(b'\n');
    }
    bundle.extend_from_slice(ca.as_bytes());
    bundle
}

/// Waits until the launcher has gone: its end of the socket closes with it.
async fn gone(gateway: GatewayEnd) {
    let socket = OwnedFd::from(gateway);
    // Nothing is sent after the enrolment; a hello may still come where it was refused in advance.
    let waiting =
        move || while rustix::io::read(&socket, &mut [0; 4096]).is_ok_and(|count| count > 0) {};
    let _ = tokio::task::spawn_blocking(waiting).await;
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn presets_show_sets_that_there_are() {
        for preset in preset::all() {
            for name in &preset.home {
                assert!(
                    launch::tools::SETS.iter().any(|set| set.name == name),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn a_secrets_command_may_not_lie_where_the_workload_can_change_it() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("secret");
        std::fs::write(&program, "#!/bin/sh\necho x\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let text = format!(
            "[[credential]]\nname = \"a\"\nfrom = {{ command = [{:?}] }}\norigins = [\"https://a.example.test\"]\n",
            program.display().to_string()
        );
        let config =
            Config::from_str(&text, std::path::Path::new("/nowhere/gateway.toml")).unwrap();
        let expanded = Expanded::of(&config, false).unwrap();
        let summary = |project: PathBuf, persistent: bool| launch::Summary {
            user: launch::User { uid: 1, gid: 1 },
            home: launch::Home::Empty("/tmp/home".into()),
            seen_in_home: Vec::new(),
            seen: Vec::new(),
            working_directory: project,
            persistent,
            projects: Vec::new(),
            left_out: Vec::new(),
        };
        let project = folder.path().canonicalize().unwrap();
        let refused = refuse_programs_of_the_workload(&expanded, &summary(project.clone(), true))
            .unwrap_err();
        assert!(refused.to_string().contains("runs outside the sandbox"));
        assert!(
            refuse_programs_of_the_workload(&expanded, &summary(project.clone(), false)).is_ok()
        );
        assert!(
            refuse_programs_of_the_workload(&expanded, &summary("/srv/other".into(), true)).is_ok()
        );
        // Nor may its interpreter, or a link on its way.
        let outside = tempfile::tempdir().unwrap();
        let link = outside.path().join("link");
        std::os::unix::fs::symlink(&project, &link).unwrap();
        std::fs::write(&program, format!("#!{}/python\n", outside.path().display())).unwrap();
        let outside = outside.path().canonicalize().unwrap();
        assert!(refuse_programs_of_the_workload(&expanded, &summary(outside, true)).is_err());
    }
}
