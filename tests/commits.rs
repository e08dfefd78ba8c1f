//! Commits are signed in a sandbox by the user's own agent outside, and nothing else is:
//! `gateway exec` by an ordinary user, with the real git, ssh-keygen and ssh-agent.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use gateway::commits::PublicKey;
use gateway::wire::ssh_agent::{Request, SignRequest};
use serde_json::Value;

/// An ordinary user, whom every system has: ssh-keygen needs a name. It is `daemon`.
const ANN: u32 = 1;
/// How many commits are rebased.
const COMMITS: usize = 200;

/// A user's home directory with a repository, keys, and an agent that has them.
struct Host {
    folder: tempfile::TempDir,
    agent: Option<Child>,
}

impl Host {
    /// A user whose git signs nothing.
    fn plain() -> Self {
        assert_eq!(
            rustix::process::geteuid().as_raw(),
            0,
            "these tests must be run by root: they are two users"
        );
        let folder = tempfile::tempdir_in("/srv").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let host = Self {
            folder,
            agent: None,
        };
        for name in ["home", "home/.ssh", "log", "work", "work/hello"] {
            fs::create_dir(host.at(name)).unwrap();
            chown(host.at(name), Some(ANN), Some(ANN)).unwrap();
            fs::set_permissions(host.at(name), fs::Permissions::from_mode(0o700)).unwrap();
        }
        host.sh(
            "git config --global user.name Ann; git config --global user.email ann@example.com
             git config --global init.defaultBranch main; git init -q
             git remote add origin git@git.example:octo/hello.git
             echo 0 > file; git add file; git commit -q -m zero
             for name in id other; do ssh-keygen -q -t ed25519 -N '' -C ann -f ~/.ssh/$name; done
             echo \"ann@example.com $(cat ~/.ssh/id.pub)\" > ~/allowed",
        );
        host
    }

    /// A user whose git signs every commit by the agent.
    fn new() -> Self {
        let mut host = Self::plain();
        host.start_agent("/bin/false");
        host.sh(
            "git config --global gpg.format ssh; git config --global user.signingKey ~/.ssh/id.pub
             git config --global commit.gpgSign true
             git config --global gpg.ssh.allowedSignersFile ~/allowed
             ssh-add -q ~/.ssh/id; ssh-add -q ~/.ssh/other",
        );
        host
    }

    /// Starts the agent, which asks a person by this program.
    fn start_agent(&mut self, asks: &str) {
        let mut agent = self.command("/usr/bin/ssh-agent");
        agent.env("SSH_ASKPASS", asks).env("DISPLAY", ":0");
        agent.env("SSH_ASKPASS_REQUIRE", "force");
        let agent = agent.arg("-D").arg("-a").arg(self.at("home/agent"));
        self.agent = Some(agent.stdout(Stdio::null()).spawn().unwrap());
        while !self.at("home/agent").exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn stop_agent(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.kill().unwrap();
            agent.wait().unwrap();
            let _ = fs::remove_file(self.at("home/agent"));
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.at(name), text).unwrap();
        chown(self.at(name), Some(ANN), Some(ANN)).unwrap();
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(0o700)).unwrap();
        self.at(name)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.at("work/hello"))
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.at("home"))
            .env("SSH_AUTH_SOCK", self.at("home/agent"))
            .stdin(Stdio::null())
            .uid(ANN)
            .gid(ANN);
        command
    }

    /// A script of the user's own, outside, which must succeed.
    #[track_caller]
    fn sh(&self, script: &str) -> String {
        let mut shell = self.command("/bin/sh");
        let output = shell.args(["-e", "-c", script]).output().unwrap();
        assert!(output.status.success(), "{script}\n{}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn exec(&self, flags: &[&str], script: &str) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_gateway"));
        command
            .args(["exec", "-v", "--audit"])
            .arg(self.at("log/audit.jsonl"));
        command.args(flags).args(["--", "/bin/sh", "-c", script]);
        command
    }

    /// A script in the sandbox, which must succeed. Returns what it and the gateway print.
    #[track_caller]
    fn inside(&self, flags: &[&str], script: &str) -> String {
        let output = self.exec(flags, script).output().unwrap();
        assert!(output.status.success(), "{script}\n{}", said(&output));
        said(&output)
    }

    /// A script in the sandbox, which must fail after it began.
    #[track_caller]
    fn fails_inside(&self, flags: &[&str], script: &str) -> String {
        let output = self.exec(flags, script).output().unwrap();
        let code = output.status.code();
        assert!(!matches!(code, Some(0 | 125..=127)), "{}", said(&output));
        said(&output)
    }

    /// Returns the records of signatures since the last call: the reason of each, or `signed`, and
    /// its cause.
    fn signatures(&self) -> Vec<(String, String)> {
        let path = self.at("log/audit.jsonl");
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_file(path).unwrap();
        let records = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let records = records.filter(|record: &Value| record["kind"] == "signature");
        let text = |value: &Value, other: &str| value.as_str().unwrap_or(other).to_owned();
        records
            .inspect(|record| {
                assert!(
                    text(&record["subject"], "").ends_with(REPOSITORY),
                    "{record}"
                )
            })
            .map(|record| {
                (
                    text(&record["reason"], "signed"),
                    text(&record["cause"], ""),
                )
            })
            .collect()
    }

    /// Returns only the reasons.
    fn reasons(&self) -> Vec<String> {
        self.signatures()
            .into_iter()
            .map(|(reason, _)| reason)
            .collect()
    }

    fn key(&self, name: &str) -> PublicKey {
        let text = fs::read_to_string(self.at(&format!("home/.ssh/{name}.pub"))).unwrap();
        PublicKey::parse(&text).unwrap()
    }

    /// Sends messages to an agent from inside, each on the same connection. Returns the kind of
    /// each answer: 14 is a signature, 5 a refusal.
    fn asks(&self, flags: &[&str], messages: &[Vec<u8>]) -> Vec<u8> {
        let hex = |message: &Vec<u8>| message.iter().map(|b| format!("{b:02x}")).collect();
        let messages: Vec<String> = messages.iter().map(hex).collect();
        self.write("work/hello/client", CLIENT);
        let script = format!("perl client $SSH_AUTH_SOCK {}", messages.join(" "));
        let output = self.exec(flags, &script).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let kinds = printed.lines().map(|kind| kind.parse());
        kinds
            .collect::<Result<_, _>>()
            .unwrap_or_else(|_| panic!("{}", said(&output)))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop_agent();
    }
}

const REPOSITORY: &str = " git.example/octo/hello";

/// Sends each message of its arguments to a socket, and prints the kind of each answer.
const CLIENT: &str = r#"
use IO::Socket::UNIX;
my $agent = IO::Socket::UNIX->new(Peer => shift) or die "no agent: $!";
for (@ARGV) {
  $agent->syswrite(pack("H*", $_));
  my ($head, $body) = ("", "");
  while (length $head < 5) { $agent->sysread($head, 5 - length $head, length $head) or exit }
  my ($length, $kind) = unpack("NC", $head);
  while (length $body < $length - 1) { $agent->sysread($body, $length, length $body) or exit }
  print "$kind\n";
}
"#;

fn said(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{out}{err}")
}

/// Prints a figure, although the test passes.
fn figure(what: &str, value: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{value:>10}  {what}");
}

fn sign(key: &PublicKey, data: &[u8]) -> Vec<u8> {
    let (key, flags) = (key.blob(), 0);
    Request::Sign(SignRequest { key, data, flags }).write()
}

fn commit() -> Vec<u8> {
    of_namespace(b"git")
}

fn of_namespace(namespace: &[u8]) -> Vec<u8> {
    let parts = [namespace, b"", b"sha512", &[7; 64]].map(counted);
    [&b"SSHSIG"[..], &parts.concat()].concat()
}

fn counted(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

/// Must show 1.
#[test]
fn commits_a_merge_a_tag_and_a_rebase_of_200_are_signed_inside_and_verify_outside() {
    let host = Host::new();
    let began = Instant::now();
    let told = host.inside(
        &[],
        &format!(
            "set -e; git checkout -q -b side
             for n in $(seq {COMMITS}); do echo $n > side; git add side; git commit -q -m $n; done
             git checkout -q main; echo 1 > main; git add main; git commit -q -S -m one
             git checkout -q side; git rebase -q main
             git checkout -q -b merged main; echo 2 > two; git add two; git commit -q -m two
             git merge -q --no-edit side; git tag -s -m v1 v1"
        ),
    );
    figure(
        "ms for 200 commits, their rebase, a merge and a tag",
        began.elapsed().as_millis(),
    );
    assert!(told.contains("signs"), "{told}");
    assert!(told.contains(host.key("id").fingerprint()), "{told}");
    let verified = host.sh("git log --format=%G? merged");
    let good = verified.lines().filter(|line| *line == "G").count();
    assert_eq!(good, COMMITS + 3, "{verified}");
    // The first commit was made before there was a key.
    assert_eq!(verified.lines().last(), Some("N"));
    host.sh("git tag -v v1 2> ~/verified; grep -q 'Good \"git\" signature for ann@' ~/verified");
    let reasons = host.reasons();
    assert_eq!(reasons.len(), 2 * COMMITS + 4);
    // The socket goes with the run.
    let left = fs::read_dir(host.at("home/.local/state/gateway/run")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(
        reasons.iter().all(|reason| reason == "signed"),
        "{reasons:?}"
    );
}

/// Must show 1: what is no commit, and another key.
#[test]
fn a_login_another_namespace_and_another_key_are_refused_and_recorded() {
    let host = Host::new();
    let own = host.key("id");
    let login = [
        &counted(&[9; 32])[..],
        &[50],
        &counted(b"git"),
        &counted(b"ssh-connection"),
        &counted(b"publickey"),
        &[1],
        &counted(b"ssh-ed25519"),
        &counted(own.blob()),
    ]
    .concat();
    let sha1 = [
        &b"SSHSIG"[..],
        &[&b"git"[..], b"", b"sha1", &[7; 20]].map(counted).concat(),
    ]
    .concat();
    let flagged = Request::Sign(SignRequest {
        key: own.blob(),
        data: &commit(),
        flags: 4,
    })
    .write();
    let asked = [
        sign(&own, &commit()),
        sign(&own, &login),
        sign(&own, &of_namespace(b"file")),
        sign(&own, &of_namespace(b"")),
        sign(&own, &sha1),
        sign(&own, &[&commit()[..], b"x"].concat()),
        sign(&own, b""),
        flagged,
        sign(&host.key("other"), &commit()),
        Request::Identities.write(),
        sign(&own, &commit()),
    ];
    assert_eq!(host.asks(&[], &asked), [14, 5, 5, 5, 5, 5, 5, 5, 5, 12, 14]);
    let malformed = ["sign_malformed"; 7];
    let reasons = [&["signed"][..], &malformed, &["sign_key", "signed"]].concat();
    assert_eq!(host.reasons(), reasons);
    // Requests that change the agent, that lock it, and that no agent has.
    let others = [17_u8, 18, 19, 22, 25, 27, 0, 200].map(|kind| counted(&[kind, 0, 0, 0, 0]));
    assert_eq!(host.asks(&[], &others), [5; 8]);
    assert_eq!(host.sh("ssh-add -l | wc -l").trim(), "2");
    // What is longer than a message may be ends the connection, and no other one.
    let long = [&(1_u32 << 20).to_be_bytes()[..], &[13]].concat();
    assert!(host.asks(&[], &[long]).is_empty());
    // ssh-keygen itself, as the workload would use it.
    let flag = ["--see", host.at("home/allowed").to_str().unwrap()].map(str::to_owned);
    let flags: Vec<&str> = flag.iter().map(String::as_str).collect();
    let public = fs::read_to_string(host.at("home/.ssh/id.pub")).unwrap();
    host.write("work/hello/id.pub", &public);
    let told = host.fails_inside(&flags[..0], "echo x | ssh-keygen -Y sign -n file -f id.pub");
    assert!(told.contains("agent refused operation"), "{told}");
    assert!(told.contains("namespace is not `git`"), "{told}");
}

/// Must show 1: without policy. A reload applies to a running session.
#[test]
fn policies_say_which_key_signs_for_which_repository() {
    let host = Host::new();
    let key = host.key("id").fingerprint().to_owned();
    let policy = |text: &str| host.write("home/policy.cedar", text);
    let path = policy("permit(principal, action == Gateway::Action::\"GET\", resource);");
    let flags = ["--policy", path.to_str().unwrap()];
    let commits = "git commit -q --allow-empty -m x";
    let told = host.fails_inside(&flags, commits);
    // The line that permits it is told, and does.
    let line = told.split('`').find(|text| text.starts_with("permit("));
    let line = line.unwrap_or_else(|| panic!("{told}")).to_owned();
    assert_eq!(host.reasons(), ["policy_default_deny"]);
    policy(&line);
    host.inside(&flags, commits);
    assert_eq!(host.reasons(), ["signed"]);
    let sign = format!(
        "action == Gateway::Action::\"commit.sign\", resource == Gateway::SigningKey::\"{key}\""
    );
    let of = |name: &str| {
        format!("permit(principal, {sign}) when {{ context.repository == \"{name}\" }};")
    };
    policy(&of("git.example/octo/hello"));
    host.inside(&flags, commits);
    policy(&of("git.example/octo/other"));
    host.fails_inside(&flags, commits);
    policy(&format!(
        "{line} @id(\"no\") forbid(principal, action, resource);"
    ));
    host.fails_inside(&flags, commits);
    assert_eq!(
        host.reasons(),
        ["signed", "policy_default_deny", "policy_forbids"]
    );
    // A permit of another key permits nothing.
    policy(&line.replace(&key, host.key("other").fingerprint()));
    host.fails_inside(&flags, commits);
    // What cannot be meant is refused with its line.
    policy(&format!("\n@ask(\"Sign?\") forbid(principal, {sign});"));
    let output = host.exec(&flags, commits).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(
        said(&output).contains("policy.cedar:2:1"),
        "{}",
        said(&output)
    );
    policy(&line);
    fs::remove_file(host.at("log/audit.jsonl")).unwrap();
    let waits = "git commit -q --allow-empty -m x && touch first
                 while ! test -e reloaded; do sleep 0.05; done
                 git commit -q --allow-empty -m x; test $? -ne 0 && touch second";
    let mut run = host
        .exec(&flags, waits)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    await_file(&host.at("work/hello/first"));
    policy("// Nothing is permitted.");
    std::thread::sleep(Duration::from_secs(3));
    host.write("work/hello/reloaded", "");
    run.wait().unwrap();
    assert!(host.at("work/hello/second").exists());
    assert_eq!(host.reasons(), ["signed", "policy_default_deny"]);
}

/// Waits for a file that a command makes.
fn await_file(path: &std::path::Path) {
    let until = Instant::now() + Duration::from_secs(30);
    while !path.exists() {
        assert!(Instant::now() < until, "{} is not made", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_session_that_is_paused_or_has_ended_signs_nothing() {
    let host = Host::new();
    let script = "git commit -q --allow-empty -m x && touch first
        while ! test -e paused; do sleep 0.05; done; git commit -q --allow-empty -m x; touch second
        while ! test -e resumed; do sleep 0.05; done; git commit -q --allow-empty -m x; touch third
        while ! test -e ended; do sleep 0.05; done; git commit -q --allow-empty -m x";
    let mut run = host
        .exec(&[], script)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let gateway = env!("CARGO_BIN_EXE_gateway");
    let steps = [
        ("first", "pause", "paused"),
        ("second", "resume", "resumed"),
        ("third", "end", "ended"),
    ];
    for (done, act, file) in steps {
        await_file(&host.at(&format!("work/hello/{done}")));
        host.sh(&format!("{gateway} session {act} exec < /dev/null"));
        host.write(&format!("work/hello/{file}"), "");
    }
    run.wait().unwrap();
    let reasons = ["signed", "session_paused", "signed", "session_ended"];
    assert_eq!(host.reasons(), reasons);
}

/// Must show 1: the agent with a confirmation, locked, without the key, and gone.
#[test]
fn the_agents_own_no_is_a_no_and_says_why() {
    let mut host = Host::new();
    let commits = "git commit -S -q --allow-empty -m x";
    let [yes, no] = [("yes", 0), ("no", 1)].map(|(name, code)| {
        let script = format!("#!/bin/sh\necho yes\necho \"$@\" >> $HOME/asked\nexit {code}\n");
        host.write(&format!("home/{name}"), &script)
    });
    for (asks, reason) in [(&yes, "signed"), (&no, "sign_agent")] {
        host.stop_agent();
        host.start_agent(asks.to_str().unwrap());
        host.sh("rm -f ~/asked; ssh-add -q -c ~/.ssh/id");
        let output = host.exec(&[], commits).output().unwrap();
        assert_eq!(
            output.status.success(),
            reason == "signed",
            "{}",
            said(&output)
        );
        assert_eq!(host.reasons(), [reason]);
        let asked = fs::read_to_string(host.at("home/asked")).unwrap();
        assert!(asked.contains(host.key("id").fingerprint()), "{asked}");
    }
    let cause = |host: &Host| host.signatures().pop().unwrap();
    host.stop_agent();
    host.start_agent("/bin/false");
    // Commits that nobody wants signed go on as before, and the person is told.
    let told = host.inside(&[], "git commit -q --allow-empty -m x");
    assert!(
        told.contains("unsigned") && told.contains("ssh-add FILE"),
        "{told}"
    );
    assert!(host.reasons().is_empty());
    let told = host.fails_inside(&[], commits);
    assert!(told.contains("ssh-add FILE"), "{told}");
    assert!(cause(&host).1.contains("lacks the key"));
    host.sh("ssh-add -q ~/.ssh/id");
    host.inside(&[], commits);
    assert_eq!(cause(&host).0, "signed");
    let lock = |flag: &str| {
        host.sh(&format!(
            "SSH_ASKPASS={} SSH_ASKPASS_REQUIRE=force DISPLAY=:0 ssh-add -q {flag}",
            yes.display()
        ))
    };
    lock("-x");
    assert!(host.fails_inside(&[], commits).contains("ssh-add -X"));
    assert_eq!(cause(&host).0, "sign_agent");
    lock("-X");
    host.inside(&[], commits);
    assert_eq!(cause(&host).0, "signed");
    host.stop_agent();
    assert!(host.fails_inside(&[], commits).contains("gone"));
    assert!(cause(&host).1.contains("gone"));
    let mut without = host.exec(&[], commits);
    let output = without.env_remove("SSH_AUTH_SOCK").output().unwrap();
    assert!(
        said(&output).contains("`SSH_AUTH_SOCK` is not set"),
        "{}",
        said(&output)
    );
}

#[test]
fn what_does_not_sign_by_ssh_is_told_and_no_sign_turns_it_off() {
    let host = Host::plain();
    let told = host.inside(
        &[],
        "test -z \"$SSH_AUTH_SOCK\" && git commit -q --allow-empty -m x",
    );
    assert!(!told.contains("sign"), "{told}");
    host.sh("git config --global commit.gpgSign true; git config --global user.signingKey ABCD");
    let told = host.inside(
        &[],
        "test -z \"$SSH_AUTH_SOCK\" && git commit -q --allow-empty -m x",
    );
    for line in [
        "`gpg.format = openpgp`",
        "`git config --global gpg.format ssh`",
        "`git config --global user.signingKey ~/.ssh/id_ed25519.pub`",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    let mut host = host;
    host.start_agent("/bin/false");
    host.sh("git config --global gpg.format ssh; ssh-add -q ~/.ssh/id");
    let of = |key: &str| host.sh(&format!("git config --global user.signingKey \"{key}\""));
    of("$HOME/.ssh/absent.pub");
    assert!(host.inside(&[], "true").contains("absent.pub"));
    // By the private key's path, the public key's, and literally.
    for kind in ["rsa", "ecdsa"] {
        host.sh(&format!(
            "ssh-keygen -q -t {kind} -N '' -f ~/.ssh/{kind}; ssh-add -q ~/.ssh/{kind}"
        ));
        of(&format!("~/.ssh/{kind}.pub"));
        host.inside(&[], "git commit -q --allow-empty -m x");
        host.sh(&format!(
            "echo \"ann@example.com $(cat ~/.ssh/{kind}.pub)\" > ~/allowed
             git config --global gpg.ssh.allowedSignersFile ~/allowed; git verify-commit HEAD"
        ));
    }
    assert_eq!(host.reasons(), ["signed"; 2]);
    for key in [
        "$HOME/.ssh/id",
        "~/.ssh/id.pub",
        "key::$(cat ~/.ssh/id.pub)",
    ] {
        of(key);
        host.inside(&[], "git commit -q --allow-empty -m x");
    }
    assert_eq!(host.reasons(), ["signed"; 3]);
    let off = "test -z \"$SSH_AUTH_SOCK\" && git commit -q --allow-empty -m x";
    let told = host.inside(&["--no-sign"], off);
    assert!(!told.contains("sign"), "{told}");
    let config = host.write("home/own.toml", "[sandbox]\nno_sign = true\n");
    host.inside(&["--config", config.to_str().unwrap()], off);
    // An earlier command may have written the repository's own settings.
    host.sh("git config user.signingKey ~/.ssh/other.pub");
    let told = host.inside(&[], "test -z \"$SSH_AUTH_SOCK\"");
    assert!(
        told.contains("the repository's own `user.signingKey` is not obeyed"),
        "{told}"
    );
    assert!(host.reasons().is_empty());
}

/// Must show 5: a signature costs at most 5 ms more than the agent's own, and `exec -- true` what
/// it did.
#[test]
fn a_signature_costs_little_more_than_the_agents_own_and_exec_what_it_did() {
    let host = Host::new();
    host.write(
        "work/hello/client",
        &CLIENT.replace("print \"$kind\\n\"", "$kind == 14 or die"),
    );
    host.write("work/hello/timed", TIMED);
    let message: String = sign(&host.key("id"), &commit())
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let script = |socket: &str| format!("perl timed {socket} {message}");
    let median = |text: &str| -> u64 { text.lines().find_map(|line| line.parse().ok()).unwrap() };
    let mut runs: Vec<(u64, u64)> = (0..5)
        .map(|_| {
            let own = median(&host.sh(&script("$SSH_AUTH_SOCK")));
            (own, median(&host.inside(&[], &script("$SSH_AUTH_SOCK"))))
        })
        .collect();
    runs.sort_by_key(|(own, inside)| inside.saturating_sub(*own));
    let (own, inside) = runs[runs.len() / 2];
    figure("µs, a signature by the agent itself", own);
    figure("µs, a signature from inside", inside);
    let mut true_runs = [Vec::new(), Vec::new()];
    for _ in 0..15 {
        for (all, flags) in true_runs.iter_mut().zip([&["--no-sign"][..], &[]]) {
            let began = Instant::now();
            host.inside(flags, "true");
            all.push(began.elapsed().as_micros());
        }
    }
    let [without, with] = true_runs.map(|mut all| {
        all.sort_unstable();
        all[all.len() / 2]
    });
    figure("µs, `exec --no-sign -- true`", without);
    figure("µs, `exec -- true` of a user who signs", with);
    assert!(
        inside < own + 5_000,
        "{inside} µs, and {own} µs by the agent itself"
    );
}

/// Has a socket sign a message 200 times, and prints the median in microseconds.
const TIMED: &str = r#"
use IO::Socket::UNIX; use Time::HiRes qw(time);
my ($path, $message) = @ARGV;
my $agent = IO::Socket::UNIX->new(Peer => $path) or die "no agent: $!";
my @all;
for (1..200) {
  my $began = time;
  $agent->syswrite(pack("H*", $message));
  my ($head, $body) = ("", "");
  while (length $head < 5) { $agent->sysread($head, 5 - length $head, length $head) or die }
  my ($length, $kind) = unpack("NC", $head);
  $kind == 14 or die "refused";
  while (length $body < $length - 1) { $agent->sysread($body, $length, length $body) or die }
  push @all, int((time - $began) * 1e6);
}
my @sorted = sort { $a <=> $b } @all;
print "$sorted[100]\n";
"#;
