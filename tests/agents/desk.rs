//! A user with a home, two projects, and a program that is called like an agent.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A user whom no system has.
pub const USER: u32 = 40963;
pub const REAL: &str = "ghp_C4n4ryC4n4ryC4n4ryC4n4ryC4n4ry0kPLHd";
/// Like what a login inside the sandbox leaves.
pub const LOGIN: &str = "sk-ant-oat01-Zx81kQmLpTnWc5RjYb3HvGs7DfKe9AqUoX2";

/// A user's home, two projects, and a program that is called like an agent.
pub struct Desk {
    pub folder: tempfile::TempDir,
}

impl Desk {
    /// With what the user wrote for an agent.
    pub fn new() -> Self {
        let desk = Self::bare();
        desk.write("home/.claude/CLAUDE.md", "as told");
        desk.write("home/.claude/skills/one", "a skill");
        desk.write("home/victim", "untouched");
        desk
    }

    /// With nothing that an agent sees.
    pub fn bare() -> Self {
        let folder = tempfile::tempdir_in("/srv").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let desk = Self { folder };
        // Its one argument is a script.
        desk.write("tools/claude", "#!/bin/sh\nexec sh -ec \"$1\"\n");
        desk.write("one/file", "one");
        desk.write("two/file", "two");
        desk.write("home/file", "in the home");
        desk
    }

    /// Makes a certificate of a host, `leaf.pem` with `key.pem`, by the CA `origin.pem`.
    pub fn certify(&self, host: &str) {
        let script = format!(
            "new='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
            openssl req -x509 $new -days 2 -subj /CN=ca -keyout ca.key -out origin.pem 2>/dev/null
            openssl req $new -subj /CN={host} -keyout key.pem -out csr 2>/dev/null
            echo subjectAltName=DNS:{host} >names
            openssl x509 -req -in csr -CA origin.pem -CAkey ca.key -days 2 -extfile names -out leaf.pem 2>/dev/null
            chmod 644 origin.pem"
        );
        let mut made = Command::new("sh");
        made.args(["-e", "-c", &script])
            .current_dir(self.folder.path());
        assert!(made.output().unwrap().status.success());
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, content: &str) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        let mode = if content.starts_with("#!") {
            0o755
        } else {
            0o600
        };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let below = |path: &&std::path::Path| *path != self.folder.path();
        for own in path.ancestors().take_while(below) {
            chown(own, Some(USER), Some(USER)).unwrap();
        }
    }

    pub fn command(&self, project: &str, arguments: &[&str]) -> Command {
        self.gateway(project, &[&["exec", "-v"], arguments].concat())
    }

    /// Any command of the program, in a project.
    pub fn gateway(&self, project: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
        command
            .args(arguments)
            .current_dir(self.at(project))
            .env_clear()
            .env("HOME", self.at("home"))
            .env(
                "PATH",
                format!("{}:/usr/bin:/bin", self.at("tools").display()),
            )
            .stdin(Stdio::null())
            .uid(USER)
            .gid(USER);
        command
    }

    /// The agent in the first project, with a script of its own and a token.
    pub fn claude(&self, flags: &[&str], script: &str) -> Command {
        self.of("one", flags, script)
    }

    /// Runs the agent with a script of its own.
    pub fn agent(&self, project: &str, flags: &[&str], script: &str) -> String {
        said(self.of(project, flags, script))
    }

    pub fn of(&self, project: &str, flags: &[&str], script: &str) -> Command {
        let tools = self.at("tools");
        let shown = ["--see", tools.to_str().unwrap()];
        let last = ["--", "claude", script];
        let mut command = self.command(project, &[flags, &shown, &last].concat());
        command.env("GITHUB_TOKEN", REAL);
        command
    }

    /// A file of the agent's home, as it is kept.
    pub fn kept(&self, name: &str) -> PathBuf {
        let projects = fs::read_dir(self.at("home/.local/state/gateway/projects"));
        let mut homes = projects.unwrap().map(|one| one.unwrap().path());
        homes.next().unwrap().join("home").join(name)
    }

    /// Starts the agent, which waits until the file `one/go-NAME` is there.
    pub fn waiting(&self, name: &str, script: &str) -> Child {
        let wait =
            format!("{script}; echo > up-{name}; until [ -e go-{name} ]; do sleep 0.05; done");
        let child = self.claude(&["-q"], &wait).spawn().unwrap();
        until(|| self.at(&format!("one/up-{name}")).exists());
        child
    }

    pub fn release(&self, name: &str, mut child: Child) {
        self.write(&format!("one/go-{name}"), "");
        assert!(child.wait().unwrap().success());
    }
}

/// Runs a command with a token, and returns what it said.
pub fn said(mut command: Command) -> String {
    let output: Output = command.env("GITHUB_TOKEN", REAL).output().unwrap();
    let all = [output.stdout, output.stderr].concat();
    let all = String::from_utf8_lossy(&all).into_owned();
    assert!(!all.contains(REAL), "{all}");
    all
}

/// Waits for a state.
pub fn until(holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "it never held");
        std::thread::sleep(Duration::from_millis(20));
    }
}
