//! Starting a sandbox from a test, as `gateway exec` will: a driver process that starts the gateway
//! and becomes the launcher.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gateway::launch::enroll;
use gateway::launch::{self, Launch, LaunchPlan, User, repository};

/// The ordinary user of the tests. The number belongs to nobody.
pub const ANN: u32 = 12345;

/// A sandbox that a test is about to start.
pub struct Sandbox {
    pub launch: Launch,
    pub uid: u32,
    pub directory: PathBuf,
    pub variables: Vec<(OsString, OsString)>,
    pub manner: &'static str,
    pub home: PathBuf,
}

impl Sandbox {
    /// A command run by root, and therefore as nobody.
    pub fn by_root(arguments: &[&str]) -> Self {
        Self::new(0, arguments)
    }

    /// A command run by an ordinary user, as themselves.
    pub fn by_user(arguments: &[&str]) -> Self {
        Self::new(ANN, arguments)
    }

    /// Both.
    pub fn by_both(arguments: &[&str]) -> [Self; 2] {
        [Self::by_root(arguments), Self::by_user(arguments)]
    }

    /// One of this program's own probes, by both.
    pub fn probes(arguments: &[&str]) -> [Self; 2] {
        let mut all = vec!["__probe"];
        all.extend(arguments);
        Self::by_both(&all).map(|mut sandbox| {
            sandbox.launch.own_program = true;
            sandbox.launch.arguments.insert(0, "probe".into());
            sandbox
        })
    }

    fn new(uid: u32, arguments: &[&str]) -> Self {
        assert_eq!(
            rustix::process::geteuid().as_raw(),
            0,
            "these tests must be run by root: they are two users"
        );
        let home = scratch("home", uid);
        let directory = scratch("project", uid);
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self {
            launch: Launch {
                arguments: arguments.iter().map(OsString::from).collect(),
                ..Launch::default()
            },
            uid,
            directory,
            variables: vec![
                ("PATH".into(), path),
                (
                    "HOME".into(),
                    if uid == 0 {
                        "/root".into()
                    } else {
                        home.clone().into()
                    },
                ),
            ],
            manner: "serve",
            home,
        }
    }

    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let settings = serde_json::to_string(&(&self.launch, self.manner)).unwrap();
        command
            .args(["__driver", &settings])
            .env_clear()
            .envs(self.variables.iter().cloned());
        command.current_dir(&self.directory);
        if self.uid != 0 {
            command.uid(self.uid).gid(self.uid);
        }
        command
    }

    pub fn spawn(&self) -> Running {
        let child = self
            .command()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Running { child }
    }

    /// Runs it to its end, which must come within 30 seconds.
    pub fn run(&self) -> Output {
        self.spawn().finish()
    }

    /// Runs it, requires success, and returns its output.
    pub fn text(&self) -> String {
        let output = self.run();
        assert!(
            output.status.success(),
            "by {}: {}\n{}\n{}",
            self.uid,
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }
}

/// A running sandbox; it is killed when the test ends.
pub struct Running {
    pub child: Child,
}

impl Running {
    pub fn id(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn finish(mut self) -> Output {
        let mut stdout = self.child.stdout.take().unwrap();
        let mut stderr = self.child.stderr.take().unwrap();
        let out = std::thread::spawn(move || read_all(&mut stdout));
        let err = std::thread::spawn(move || read_all(&mut stderr));
        let until = Instant::now() + Duration::from_secs(30);
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                Instant::now() < until,
                "the sandbox did not end within 30 s"
            );
            std::thread::sleep(Duration::from_millis(2));
        };
        Output {
            status,
            stdout: out.join().unwrap(),
            stderr: err.join().unwrap(),
        }
    }

    /// Reads one line of the command's output.
    pub fn line(&mut self) -> String {
        let stdout = self.child.stdout.as_mut().unwrap();
        let mut line = Vec::new();
        let mut byte = [0];
        while stdout.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_all(from: &mut impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    from.read_to_end(&mut all).unwrap();
    all
}

/// Removes every scratch directory of this run.
pub fn clean_up() {
    let _ = std::fs::remove_dir_all(format!("/srv/gateway-netns/{}", std::process::id()));
    let _ = std::fs::remove_file("/srv/gateway-netns/elsewhere-secret");
    // Another run may be in progress.
    let _ = std::fs::remove_dir("/srv/gateway-netns");
}

/// A fresh directory that belongs to a user, below one that everybody may pass.
pub fn scratch(name: &str, uid: u32) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = PathBuf::from(format!(
        "/srv/gateway-netns/{}/{count}-{name}",
        std::process::id()
    ));
    std::fs::create_dir_all(&path).unwrap();
    let owner = if uid == 0 { 65534 } else { uid };
    own(&path, owner);
    path
}

pub fn own(path: &Path, uid: u32) {
    std::os::unix::fs::chown(path, Some(uid), Some(uid)).unwrap();
}

/// Writes a file that belongs to a user, with the directories above it.
pub fn plant(path: &Path, content: &str, uid: u32) {
    let mut missing: Vec<&Path> = path
        .ancestors()
        .skip(1)
        .take_while(|parent| !parent.exists())
        .collect();
    missing.reverse();
    for directory in missing {
        std::fs::create_dir(directory).unwrap();
        own(directory, uid);
    }
    std::fs::write(path, content).unwrap();
    own(path, uid);
}

/// Role: starts the gateway and becomes the launcher.
#[expect(
    clippy::zombie_processes,
    reason = "this process becomes the launcher, whose end ends the child"
)]
pub fn drive(settings: &str) -> ExitCode {
    let (launch, manner): (Launch, String) = serde_json::from_str(settings).unwrap();
    let mut plan = match LaunchPlan::of(launch) {
        Ok(plan) => plan,
        Err(error) => {
            tell(&error);
            return ExitCode::from(error.exit_code());
        }
    };
    let (launcher, gateway) = enroll::pair().unwrap();
    let gateway = OwnedFd::from(gateway);
    let number = gateway.as_raw_fd();
    let mut child = Command::new("/proc/self/exe");
    child
        .args(["__gateway", &number.to_string(), &manner])
        .env_clear()
        .stdin(Stdio::null());
    let user = rustix::process::geteuid().as_raw();
    let state = std::env::temp_dir().join(format!("gateway-test-state-{user}"));
    std::fs::create_dir_all(&state).unwrap();
    let announcement = repository::Announcement::new(&state).unwrap();
    let locks = repository::lock(&plan.mounts.projects).unwrap_or_default();
    let looked = plan.look_at_repositories(&state);
    if let Err(error) = looked {
        tell(&error);
        return ExitCode::from(error.exit_code());
    }
    child.stdout(announcement.as_fd().try_clone_to_owned().unwrap());
    announcement.tell(&plan.mounts, &locks).unwrap();
    // SAFETY: both calls are async-signal-safe, and touch no memory.
    unsafe {
        child.pre_exec(move || {
            libc::setsid();
            libc::fcntl(number, libc::F_SETFD, 0);
            Ok(())
        })
    };
    let child = child.spawn().unwrap();
    drop(locks);
    if let Some(path) = std::env::var_os("TEST_GATEWAY_PID_FILE") {
        std::fs::File::create(path)
            .unwrap()
            .write_all(child.id().to_string().as_bytes())
            .unwrap();
    }
    drop(gateway);
    let launcher = launcher.of(child.id().cast_signed());
    let error = launch::reexec(&plan, launcher);
    eprintln!("reexec: {error}");
    ExitCode::from(125)
}

/// Role: the launcher, as `main` will do it.
pub fn launch(arguments: &[OsString]) -> ExitCode {
    let (plan, gateway) = launch::resume(arguments).unwrap();
    let ended = launch::run(plan, &gateway);
    gateway.await_done(Duration::from_secs(10));
    match ended {
        Ok(exit) => exit.resume(),
        Err(error) => {
            tell(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

/// Tells an error as `main` will.
fn tell(error: &launch::Error) {
    eprintln!("gateway: {error}");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        eprintln!("gateway: because: {cause}");
        source = cause.source();
    }
    if let Some(advice) = error.advice() {
        eprintln!("gateway: {advice}");
    }
}

pub fn user(uid: u32) -> User {
    User { uid, gid: uid }
}
