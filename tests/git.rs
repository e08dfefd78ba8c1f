//! What a person runs afterwards outside does not run the workload's programs: `gateway exec` by an
//! ordinary user, then that user's git.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// An ordinary user. The number belongs to nobody.
const ANN: u32 = 12345;

/// A user's home directory with a project in it, and a mark that the workload's program leaves if
/// it runs outside.
struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        assert_eq!(
            rustix::process::geteuid().as_raw(),
            0,
            "these tests must be run by root: they are two users"
        );
        let folder = tempfile::tempdir_in("/srv").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let host = Self { folder };
        for name in ["home", "work", "work/project"] {
            fs::create_dir(host.at(name)).unwrap();
            chown(host.at(name), Some(ANN), Some(ANN)).unwrap();
        }
        host.sh(
            "home",
            "git config --global user.name Ann; git config --global user.email ann@example.com
             git config --global init.defaultBranch main; git config --global protocol.file.allow always
             git config --global advice.detachedHead false",
        );
        host
    }

    /// With a repository in the project, of one commit.
    fn with_repository() -> Self {
        let host = Self::new();
        host.sh(
            "work/project",
            "git init -q; echo 1 > file; git add file; git commit -q -m one",
        );
        host
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, program: &str, folder: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.at(folder))
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.at("home"))
            .env("MARK", self.at("work/project/ran"))
            .env("HOST", self.folder.path())
            .stdin(Stdio::null())
            .uid(ANN)
            .gid(ANN);
        command
    }

    /// A script of the user's own, outside, which must succeed.
    #[track_caller]
    fn sh(&self, folder: &str, script: &str) -> String {
        let output = self
            .command("/bin/sh", folder)
            .args(["-e", "-c", script])
            .output()
            .unwrap();
        assert!(output.status.success(), "{script}\n{}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn exec(&self, folder: &str, flags: &[&str], script: &str) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_gateway"), folder);
        command
            .args(["exec", "-v"])
            .args(flags)
            .args(["--", "/bin/sh", "-c"]);
        command.arg(format!(
            "MARK={}; {EVIL}\n{script}",
            self.at("work/project/ran").display()
        ));
        command
    }

    /// The workload: a script in the sandbox. Returns its output and the gateway's.
    #[track_caller]
    fn inside(&self, folder: &str, flags: &[&str], script: &str) -> String {
        let output = self.exec(folder, flags, script).output().unwrap();
        assert!(
            !matches!(output.status.code(), Some(125..=127)),
            "{}",
            said(&output)
        );
        said(&output)
    }

    /// What a prompt, an editor and a person do in a folder. Returns whether a program of the
    /// workload's ran.
    fn git_runs(&self, folder: &str) -> bool {
        for words in [
            &["status", "--short"][..],
            &["log", "-1"],
            &["diff"],
            &["stash", "-q"],
            &["add", "-A"],
            &["commit", "-q", "--allow-empty", "-m", "outside"],
            &["checkout", "-q", "-B", "other"],
            &["checkout", "-q", "."],
            &["submodule", "status"],
            &["submodule", "update", "--init"],
            &["fetch", "-q"],
        ] {
            if self.at(folder).is_dir() {
                // git may refuse what it finds; it must not run it.
                let mut git = self.command("/usr/bin/git", folder);
                git.args(words).output().unwrap();
            }
        }
        self.at("work/project/ran").exists()
    }
}

#[test]
fn the_probes_of_doctor_change_nothing_and_start_no_program_of_the_path() {
    let host = Host::with_repository();
    let state = || {
        host.sh(
            "work/project",
            "git log --all --format=%H; git status --short",
        )
    };
    let before = state();
    host.sh(
        "work",
        r#"mkdir tools; cd tools
        for name in git sleep; do printf '#!/bin/sh\n: > %s\n' "$MARK" > $name; chmod +x $name; done"#,
    );
    let path = format!("{}:/usr/bin:/bin", host.at("work/tools").display());
    let mut doctor = host.command(env!("CARGO_BIN_EXE_gateway"), "work/project");
    let output = doctor.args(["doctor", "--escape"]).env("PATH", path);
    let output = output.output().unwrap();
    assert!(said(&output).contains("git-settings"), "{}", said(&output));
    assert!(!host.at("work/project/ran").exists());
    assert_eq!(state(), before);
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .concat()
}

/// Shell functions of the workload: `arm CONFIG` writes a setting that makes git run a program,
/// `hook FILE` a hook, `sub` makes an armed repository there, and `link FOLDER` names it in the
/// index.
const EVIL: &str = r#"
    evil() { printf '#!/bin/sh\ntouch %s\n' "$MARK"; }
    arm() { printf '[core]\n\tfsmonitor = touch %s;:\n\thooksPath = %s/evil-hooks\n' "$MARK" "$PWD" >> "$1"; }
    hook() { evil > "$1"; chmod +x "$1"; }
    sub() { mkdir -p $1; git init -q $1; git -C $1 -c user.name=n -c user.email=e commit -q --allow-empty -m s; arm $1/.git/config; }
    armed() { git init -q --bare "$1"; git -C "$1" config --unset core.bare; git -C "$1" config core.worktree "$2"; arm "$1/config"; }
    link() { git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),$1; }
    mkdir -p evil-hooks; for h in pre-commit post-checkout post-index-change; do hook evil-hooks/$h; done
"#;

/// Adds entries to an index: `MODE:PATH:OBJECT`.
const FORGE: &str = r#"
forge() { python3 -c '
import hashlib, struct, sys
file, *new = sys.argv[1:]
old = open(file, "rb").read()
count, at, entries = struct.unpack(">I", old[8:12])[0], 12, []
for _ in range(count):
    length = struct.unpack(">H", old[at + 60:at + 62])[0] & 0xfff
    end = (62 + length + 8) & ~7
    entries.append((old[at + 62:at + 62 + length], old[at:at + end]))
    at += end
for one in new:
    mode, path, object = one.split(":")
    path = path.encode()
    entry = bytes(24) + struct.pack(">I", int(mode, 8)) + bytes(12) + bytes.fromhex(object) + struct.pack(">H", len(path)) + path
    entries.append((path, entry + bytes(((62 + len(path) + 8) & ~7) - len(entry))))
out = b"DIRC" + struct.pack(">II", 2, len(entries)) + b"".join(entry for _, entry in sorted(entries))
open(file, "wb").write(out + hashlib.sha1(out).digest())
' "$@"; }
split() { python3 -c '
import hashlib, struct
base = open(".git/index", "rb").read()
open(".git/sharedindex." + base[-20:].hex(), "wb").write(base)
none = (struct.pack(">II", 0, 1) + bytes(12)) * 2
out = b"DIRC" + struct.pack(">II", 2, 0) + b"link" + struct.pack(">I", 60) + base[-20:] + none
open(".git/index", "wb").write(out + hashlib.sha1(out).digest())
'; }
blob() { printf '#!/bin/sh\ntouch "%s"\n' "$MARK" | git hash-object -w --stdin; }
"#;

/// Ways to make the user's git run something afterwards: a name, what the user has before, and what
/// the workload does. Each runs where nothing is guarded, but those in [`CLOSED`].
const WAYS: &str = r#"
settings =>  => arm .git/config
settings, replaced =>  => cp .git/config c; arm c; mv -f c .git/config
a hook =>  => hook .git/hooks/pre-commit
hooks, replaced =>  => rm -rf .git/hooks; mkdir h; hook h/pre-commit; mv h .git/hooks
hooks that were absent => rm -rf .git/hooks => mkdir .git/hooks; hook .git/hooks/pre-commit
another .git =>  => mv .git gone; sub .
a commondir =>  => cp -r .git common; arm common/config; rm -f common/commondir .git/commondir; echo ../common > .git/commondir
a commondir, replaced =>  => cp -r .git common; arm common/config; rm -f common/commondir; echo ../common > c; mv -f c .git/commondir
settings of the worktree => git config extensions.worktreeConfig true => arm .git/config.worktree
an include that is there => touch inc; git config include.path ../inc => arm inc
an include that is not there => git config include.path ../a/inc => mkdir -p a; arm a/inc
an include of an include => touch a b; git config include.path ../a; git config -f a include.path b => arm b
an include of the user's own => git config --global include.path ~/../work/project/inc => arm inc
an include of a file outside => git config --global include.path ~/more; git config -f ~/more include.path $PWD/inc; touch inc => arm inc
the user's own settings => mv ~/.gitconfig own; ln -s $PWD/own ~/.gitconfig => arm own
the user's own settings, replaced => mv ~/.gitconfig own; ln -s $PWD/own ~/.gitconfig => cp own o; arm o; mv -f o own
the user's own settings, by a link => mv ~/.gitconfig own; ln -s own link; ln -s $PWD/link ~/.gitconfig => cp own o; arm o; mv -f o link
the user's own settings, by a folder => mkdir -p own/git; ln -s $PWD/own ~/.config => arm own/git/config
the user's own settings that are not there => mv ~/.gitconfig own; ln -s $PWD/none ~/.gitconfig => arm none
the user's own settings, without a repository => rm -rf .git; mv ~/.gitconfig own; ln -s $PWD/own ~/.gitconfig => arm own; git init -q sub; touch sub/x
the user's own include, without a repository => rm -rf .git; git config --global include.path $PWD/inc => arm inc; git init -q sub; touch sub/x
a conditional include => git config 'includeIf.gitdir:**.path' ../inc => arm inc
a folder of hooks => mkdir hooks; git config core.hooksPath hooks => hook hooks/pre-commit; mv hooks gone; mkdir -p hooks; hook hooks/pre-commit
a folder of hooks that is not there => git config core.hooksPath a/hooks => mkdir -p a/hooks; hook a/hooks/pre-commit
a folder of hooks, in every repository => git config --global core.hooksPath hooks => mkdir hooks; hook hooks/pre-commit
the target of a hook => mkdir x; echo '#!/bin/sh' > x/h; chmod +x x/h; ln -s ../../x/h .git/hooks/pre-commit => hook x/h; mv x y; mkdir -p x; hook x/h
a second name of the settings => mkdir x; ln .git/config x/c; chmod 0 x => chmod 755 x; arm x/c
a second name of a hook => mkdir -p n/x; echo '#!/bin/sh' > n/x/y; chmod +x n/x/y; ln n/x/y .git/hooks/pre-commit => hook n/x/y
settings of a submodule => SUBMODULE => arm .git/modules/sub/config
a submodule, replaced => SUBMODULE => rm -rf sub; sub sub; cp -r .git/modules/sub own 2>/dev/null
a submodule's commondir => SUBMODULE => cp -r .git/modules/sub own; git -C own config --unset core.worktree; arm own/config; echo ../../../own > .git/modules/sub/commondir
a submodule that is not checked out => git init -q ../lib; git -C ../lib commit -q --allow-empty -m l; git update-index --add --cacheinfo 160000,$(git -C ../lib rev-parse HEAD),sub; git commit -q -m sub => sub sub
a nested repository's settings => mkdir -p sub/deeper; git init -q sub/deeper; git -C sub/deeper commit -q --allow-empty -m d; git add sub 2>/dev/null => arm sub/deeper/.git/config; mv sub gone; mkdir -p sub; mv gone/deeper sub/ 2>/dev/null
a linked worktree's common settings => git worktree add -q wt => arm $(git -C wt rev-parse --git-common-dir)/config
a new submodule =>  => sub sub; link sub
a new submodule, split index =>  => git update-index --split-index; sub sub; link sub
a new submodule, built =>  => sub node_modules/x; link node_modules/x
a new submodule by a file =>  => sub sub; mv sub/.git x; git -C sub init -q --separate-git-dir=$PWD/y . ; rm -rf y; echo gitdir: ../x > sub/.git; link sub
a new submodule by a link =>  => sub sub; mv sub/.git x; ln -s ../x sub/.git; link sub
a new submodule's own worktree settings =>  => sub s; mv s sub; git -C sub config --unset core.fsmonitor; git -C sub config --unset core.hooksPath; git -C sub config extensions.worktreeConfig true; arm sub/.git/config.worktree; link sub
a new submodule's include =>  => git init -q sub; git -C sub commit -q --allow-empty -m s; arm sub/x; git -C sub config include.path ../x; link sub
a new submodule, closed =>  => sub sub; link sub; chmod 500 sub/.git sub
a planted module => mkdir -p vendor/lib; git init -q ../lib; git -C ../lib commit -q --allow-empty -m l; git config -f .gitmodules submodule.vendor/lib.path vendor/lib; git config -f .gitmodules submodule.vendor/lib.url ../lib; git update-index --add --cacheinfo 160000,$(git -C ../lib rev-parse HEAD),vendor/lib; git add .gitmodules; git commit -q -m sub => d=.git/modules/vendor/lib; mkdir -p .git/modules/vendor; git init -q --bare $d; git --git-dir=$d config core.bare false; git --git-dir=$d config core.worktree ../../../../vendor/lib; git --git-dir=$d config remote.origin.url $PWD/../lib; hook $d/hooks/post-checkout
a planted module of a worktree => mkdir lib; git init -q ../lib; git -C ../lib commit -q --allow-empty -m l; git config -f .gitmodules submodule.lib.path lib; git config -f .gitmodules submodule.lib.url ../lib; git update-index --add --cacheinfo 160000,$(git -C ../lib rev-parse HEAD),lib; git add .gitmodules; git commit -q -m sub; git worktree add -q wt => d=.git/worktrees/wt/modules/lib; mkdir -p .git/worktrees/wt/modules; git init -q --bare $d; git --git-dir=$d config core.bare false; git --git-dir=$d config core.worktree ../../../../../wt/lib; git --git-dir=$d config remote.origin.url $PWD/../lib; hook $d/hooks/post-checkout
hooks of a worktree => mkdir .husky; git config core.hooksPath .husky; git worktree add -q wt => mkdir -p wt/.husky; hook wt/.husky/post-index-change; touch wt/file
hooks of a new worktree => mkdir .husky; git config core.hooksPath .husky => git worktree add -q sub; mkdir -p sub/.husky; hook sub/.husky/post-index-change; touch sub/file; link sub
hooks of a new submodule by the user's own setting => git config --global core.hooksPath .githooks => git init -q sub; touch sub/f; git -C sub add f; git -C sub commit -q -m s; mkdir sub/.githooks; hook sub/.githooks/post-index-change; touch sub/f; link sub
a submodule of a new submodule => true => p=sub; for i in $(seq 131); do p=$p/d; done; mkdir -p $p; git init -q $p; git -C $p commit -q --allow-empty -m s; (cd $p; sub inner; link inner); link $p
a .git file with a space at its end =>  => armed ".git/modules/x " $PWD/sub; mkdir -p sub .git/modules/x; printf 'gitdir: ../.git/modules/x \n' > sub/.git; link sub
a .git file of two lines =>  => d=$(printf 'x\ny'); armed ".git/modules/$d" $PWD/sub; mkdir -p sub .git/modules/x; printf 'gitdir: ../.git/modules/x\ny\n' > sub/.git; link sub
a commondir of two lines =>  => d=$(printf '..\nfoo'); mkdir -p .git/worktrees/w sub; armed ".git/worktrees/$d" $PWD/sub; cp .git/HEAD .git/worktrees/w; printf '../..\nfoo\n' > .git/worktrees/w/commondir; echo $PWD/sub/.git > .git/worktrees/w/gitdir; echo gitdir: ../.git/worktrees/w > sub/.git; link sub
a repository at the top => rm -rf .git => sub .
a bare repository at the top => rm -rf .git => git init -q --bare x; mv x/HEAD x/objects x/refs .; printf '[core]\n\tbare = false\n\tworktree = .\n' > config; arm config
"#;

/// Ways in which the user enters the folder first.
const ENTERED: &str = r#"
nested =>  => sub sub
hooks of a new .git file => mkdir .husky; git config core.hooksPath .husky => mkdir -p sub/.husky; echo 'gitdir: ../.git' > sub/.git; hook sub/.husky/post-index-change; touch sub/file
hooks of a .git file => mkdir .husky sub; git config core.hooksPath .husky; echo 'gitdir: ../.git' > sub/.git => mkdir -p sub/.husky; hook sub/.husky/post-index-change; touch sub/file
cloned =>  => git clone -q . sub; arm sub/.git/config
bare =>  => git init -q --bare sub; git -C sub config core.bare false; git -C sub config core.worktree .; arm sub/config; touch sub/README
not listable =>  => sub sub; chmod 311 sub
not listable around it =>  => sub sub; chmod 100 sub/.git sub
its settings cannot be read =>  => sub sub; chmod 000 sub/.git/config
settings of more than is read =>  => sub sub; head -c 1100000 /dev/zero | tr '\0' '#' >> sub/.git/config
a link for a head =>  => sub sub; rm sub/.git/HEAD; ln -s refs/heads/none sub/.git/HEAD
a link of the kernel's =>  => mkdir -p y/.git/z sub/y/.git; armed sub/y/.git/z $PWD/sub; echo gitdir: /proc/self/cwd/y/.git/z > sub/.git
an empty .git beside a bare one =>  => mkdir -p sub/.git; armed sub $PWD/sub
a bare one by its commondir =>  => mkdir -p sub; armed evilr $PWD/sub; git -C evilr config --unset core.worktree; git -C evilr config remote.origin.url /x; git -C evilr config remote.origin.uploadpack "touch $MARK;:"; cp .git/HEAD sub; echo ../evilr > sub/commondir
aliases and filters =>  => git init -q sub; git -C sub config alias.st '!touch '$MARK; git -C sub config diff.external 'touch '$MARK; git -C sub config filter.x.clean 'touch '$MARK; echo '* filter=x' > sub/.gitattributes; touch sub/f
a forged worktree => git worktree add -q wt; rm -r wt; git worktree prune => git init -q --bare own; arm own/config; git -C own config --unset core.bare; mkdir -p .git/worktrees/x sub; cp own/HEAD .git/worktrees/x; echo ../../../own > .git/worktrees/x/commondir; echo $PWD/sub/.git > .git/worktrees/x/gitdir; echo gitdir: ../.git/worktrees/x > sub/.git
"#;

/// What the user has before, where a way says so.
const SUBMODULE: &str = "git init -q ../lib; cd ../lib; echo 1 > a; git add a; git commit -q -m lib; cd ../project; git submodule --quiet add ../lib sub; git commit -q -m sub";

/// Runs a way, and then git outside. Returns what the gateway said, and whether git ran something.
#[track_caller]
fn tried(before: &str, script: &str, flags: &[&str]) -> (String, bool) {
    let host = Host::with_repository();
    host.sh("work/project", &before.replace("SUBMODULE", SUBMODULE));
    let told = host.inside("work/project", flags, script);
    let mut folders = [
        "work",
        "work/project",
        "work/project/sub",
        "work/project/wt",
    ]
    .iter();
    (told, folders.any(|folder| host.git_runs(folder)))
}

#[test]
fn no_way_of_settings_hooks_or_repositories_runs_anything() {
    let rows = WAYS
        .lines()
        .chain(ENTERED.lines())
        .filter(|row| !row.is_empty());
    let (mut ways, mut controls) = (0, 0);
    for row in rows {
        let [name, before, script] = row.split(" => ").collect::<Vec<_>>().try_into().unwrap();
        let (told, ran) = tried(before, script, &[]);
        assert!(!ran, "{name}: {told}");
        let (told, ran) = tried(before, script, &["--writable-git"]);
        assert!(ran || CLOSED.contains(&name), "{name} is no way: {told}");
        (ways, controls) = (ways + 1, controls + usize::from(ran));
    }
    println!("{ways} ways held; {controls} ran where nothing was guarded");
}

/// What git itself does not enter, whoever guards it.
const CLOSED: [&str; 6] = [
    "not listable around it",
    "its settings cannot be read",
    "a submodule's commondir",
    "a bare repository at the top",
    "a new submodule, closed",
    "a link for a head",
];

/// Runs the workload until its script has ended, then `outside`, and lets the workload end. Returns
/// what the gateway says.
#[track_caller]
fn meanwhile(host: &Host, folder: &str, script: &str, outside: impl FnOnce()) -> Output {
    host.sh(folder, "rm -f go; mkfifo go");
    let script = format!("{{ {script}\n}} >&2; echo ready; read line < go");
    let mut command = host.exec(folder, &[], &script);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let line = first_line(&mut child);
    if line == "ready\n" {
        outside();
        // A command that was ended reads no more.
        host.sh(folder, "timeout 5 sh -c 'echo > go' || true; rm go");
    }
    child.wait_with_output().unwrap()
}

/// The first line of a child's output. The rest is not read.
fn first_line(child: &mut std::process::Child) -> String {
    let mut line = String::new();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    line
}

#[track_caller]
fn until(mut is_so: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < end, "it does not come to it");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// While the command runs, a watch puts away what git outside would run at once.
#[test]
fn git_outside_runs_nothing_while_the_command_runs() {
    for (before, script) in [
        ("true", "sub sub; link sub"),
        ("true", "link sub; sub sub"),
        (
            "true",
            "sub sub; mkdir a; mv sub a/sub; link sub; mv a/sub sub",
        ),
        (
            "true",
            "git update-index --index-version 4; sub sub; link sub",
        ),
        ("rm -rf .git", "sub ."),
        (
            "rm -rf .git",
            "git init -q; git commit -q --allow-empty -m x; sleep 0.2; arm .git/config",
        ),
        (
            "rm -rf .git",
            "git init -q --bare x; mv x/HEAD x/objects x/refs .; printf '[core]\n\tbare = false\n\tworktree = .\n' > config; arm config",
        ),
    ] {
        let host = Host::with_repository();
        host.sh("work/project", before);
        let output = meanwhile(
            &host,
            "work/project",
            &format!("{script}; sleep 0.3"),
            || {
                assert!(!host.git_runs("work/project"), "{script}");
            },
        );
        assert!(
            said(&output).contains("gateway  off"),
            "{script}: {}",
            said(&output)
        );
    }
}

/// A command that holds a mark open writes no other name into it.
#[test]
fn a_mark_of_what_was_put_away_leads_nowhere_else() {
    let write = "import os, time; f = os.open('sub/.git', os.O_RDWR); open('up', 'w'); time.sleep(1); os.ftruncate(f, 0); os.pwrite(f, b'gitdir: ../own\\n', 0); time.sleep(20)";
    let write =
        format!("python3 -c \"{write}\" & for i in $(seq 20); do [ -e up ] || sleep 0.1; done");
    for (before, script) in [
        (
            "true",
            "sub e; mv e/.git own; sub sub; link sub; sleep 0.5; WRITE; sleep 1.2",
        ),
        (
            "sub sub",
            "sub e; mv e/.git own; WRITE; link sub; sleep 1.5",
        ),
    ] {
        let host = Host::with_repository();
        host.inside("work/project", &[], before);
        let script = script.replace("WRITE", &write);
        let output = meanwhile(&host, "work/project", &script, || {
            assert!(!host.git_runs("work/project"), "{script}");
        });
        assert!(!host.git_runs("work/project/sub"), "{}", said(&output));
    }
}

/// The settings of a repository outside count in the worktree of it in which a command starts.
#[test]
fn hooks_of_a_worktree_elsewhere_are_guarded() {
    let host = Host::with_repository();
    host.sh(
        "work/project",
        "git config core.hooksPath .husky; git worktree add -q ../linked",
    );
    let script = "mkdir -p .husky; hook .husky/post-index-change; touch file";
    let told = host.inside("work/linked", &[], script);
    assert!(!host.git_runs("work/linked"), "{told}");
    host.inside("work/linked", &["--writable-git"], script);
    assert!(host.git_runs("work/linked"), "it is a way");
}

/// How often git outside is quicker than the watch, in tries of which each has one.
#[test]
fn the_watch_is_quick() {
    let host = Host::with_repository();
    let (tries, mut won) = (40, 0);
    for _ in 0..tries {
        host.sh(
            "work/project",
            "rm -rf sub* evil-hooks ran; git reset -q --hard; touch up",
        );
        let script = "sub sub.new; link sub; rm up; sleep 0.1; mv sub.new/.git sub/.git 2>/dev/null || mv sub.new sub; sleep 0.3";
        let mut child = host.exec("work/project", &["-q"], script).spawn().unwrap();
        until(|| !host.at("work/project/up").exists());
        while child.try_wait().unwrap().is_none() {
            host.command("/usr/bin/git", "work/project")
                .args(["status", "--short"])
                .output()
                .unwrap();
        }
        won += usize::from(host.at("work/project/ran").exists());
    }
    println!("git outside was quicker in {won} of {tries} tries");
    assert!(won < tries / 2, "{won}");
}

#[test]
fn a_command_that_goes_on_is_ended() {
    let host = Host::with_repository();
    let script = "sub s; link sub; for i in $(seq 100); do rm -f sub/.git; cp -r s/. sub 2>/dev/null || mkdir sub; sleep 0.1; done; echo SURVIVED";
    let output = host.exec("work/project", &[], script).output().unwrap();
    assert_eq!(output.status.code(), Some(137), "{}", said(&output));
    assert!(
        said(&output).contains("the command was ended: it went on"),
        "{}",
        said(&output)
    );
    assert!(!said(&output).contains("SURVIVED"));
}

/// The user's own `git config` replaces the file, and takes the mount off it.
#[test]
fn settings_that_the_user_changes_meanwhile_are_guarded_again() {
    let host = Host::with_repository();
    let script = "for i in $(seq 20); do until [ -e go$i ]; do sleep 0.01; done; sleep 0.05; echo '[x]' >> .git/config && echo WROTE $i; touch done$i; done";
    let mut child = host.exec("work/project", &[], script);
    let mut child = child
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    for i in 1..=20 {
        host.sh("work/project", &format!("git config a.b c{i}; touch go{i}"));
        until(|| {
            host.at(&format!("work/project/done{i}")).exists()
                || child.try_wait().unwrap().is_some()
        });
    }
    let output = child.wait_with_output().unwrap();
    assert!(!said(&output).contains("WROTE"), "{}", said(&output));
    assert!(
        said(&output).contains(".git/config, settings of git"),
        "{}",
        said(&output)
    );
    assert_eq!(host.sh("work/project", "git config a.b"), "c20\n");
}

#[test]
fn an_index_makes_git_write_nowhere_but_in_the_working_tree() {
    let host = Host::with_repository();
    host.sh("work/project", "mkdir src; echo 1 > src/x; git add -A; git commit -qm src; git init -q known; cd known; echo 1 > x; git add x; git commit -qm x");
    let scripts = [
        "forge .git/index 100755:.git/hooks/post-checkout:$(blob)",
        "forge .git/index 100644:../outside:$(blob)",
        "forge .git/index 100755:src/../.GIT/hooks/post-checkout:$(blob)",
        "hook=$(cd known; blob); forge known/.git/index 100755:../.git/hooks/post-checkout:$hook",
        "git init -q new; cd new; echo 1 > x; git add x; forge .git/index 100755:../.git/hooks/post-checkout:$(blob)",
        "forge .git/index 100755:.git/hooks/post-checkout:$(blob); split",
        "git init -q new; cd new; git config remote.origin.url /sha256; echo 1 > x; git add x; forge .git/index 100755:../.git/hooks/post-checkout:$(blob)",
    ];
    for script in scripts {
        let said = host.inside("work/project", &[], &format!("{FORGE}\n{script}"));
        assert!(
            said.contains("leads out of the working tree"),
            "{script}\n{said}"
        );
        for folder in ["", "src", "known", "new"] {
            let folder = host.at("work/project").join(folder);
            if folder.is_dir() {
                let mut git = host.command("/usr/bin/git", "work/project");
                git.current_dir(folder)
                    .args(["checkout", "-q", "."])
                    .output()
                    .unwrap();
            }
        }
        let forged = "ls ../outside .git/hooks/post-checkout ran 2>/dev/null || true";
        assert_eq!(host.sh("work/project", forged), "", "{script}");
        host.sh(
            "work/project",
            "git reset -q --hard; git -C known reset -q --hard; rm -rf new",
        );
    }
    // None that git writes is moved.
    for script in [
        "git update-index --split-index",
        "git update-index --index-version 4",
        "git update-index --untracked-cache",
        "git sparse-checkout set src; git add file",
    ] {
        let said = host.inside(
            "work/project",
            &[],
            &format!("{script}; echo 2 >> src/x; git add src/x"),
        );
        assert!(
            !said.contains("gateway  moved") && !said.contains("unread"),
            "{script}\n{said}"
        );
    }
}

/// Nothing that git outside writes lands where the workload's links lead.
#[test]
fn git_outside_writes_through_no_link_of_the_workloads() {
    for name in [
        "COMMIT_EDITMSG",
        "logs/HEAD",
        "logs/refs/heads/main",
        "index",
        "ORIG_HEAD",
        "packed-refs",
        "FETCH_HEAD",
        "MERGE_MSG",
        "objects/pack/multi-pack-index",
        "objects/17",
    ] {
        let host = Host::with_repository();
        host.sh("home", "echo mine > .bashrc");
        let script = format!(
            "rm -f .git/{name}; ln -s {0} .git/{name}; git init -q sub; mkdir -p sub/.git/logs/refs/heads; rm -f sub/.git/{name}; ln -s {0} sub/.git/{name}",
            host.at("home/.bashrc").display()
        );
        let said = host.inside("work/project", &[], &script);
        host.git_runs("work/project");
        host.git_runs("work/project/sub");
        assert_eq!(host.sh("home", "cat .bashrc"), "mine\n", "{name}");
        assert!(
            said.matches("git would write elsewhere").count() > 0,
            "{name}: {said}"
        );
        let moved = host.sh("home", "find .local/state/gateway/aside -type l | wc -l");
        assert_eq!(moved, "2\n", "{name}: {said}");
    }
    let host = Host::with_repository();
    host.sh("work/project", "echo private > ../key");
    let script = r#"h=0123456789abcdef0123456789abcdef01234567; mkdir -p .git/rr-cache/$h
        printf '<<<<<<<\na\n=======\nb\n>>>>>>>\n' > .git/rr-cache/$h/preimage; printf "$h\t../key\0" > .git/MERGE_RR"#;
    host.inside("work/project", &[], script);
    host.sh("work/project", "echo 3 >> file; git commit -qam work");
    assert_eq!(host.sh("work/project", "ls .git/rr-cache/*"), "preimage\n");
}

#[test]
fn git_works_inside_and_leaves_nothing_of_ours() {
    let host = Host::with_repository();
    host.sh("work", "git init -q --bare remote.git; cd project; git remote add origin ../remote.git; git push -q origin main; git worktree add -q ../project/wt -b wt");
    host.sh("work/project", SUBMODULE);
    let before = host.sh("work/project", "ls -A .git | sort; ls -A | sort");
    let remote = host.at("work/remote.git");
    let script = "set -e; rm -r evil-hooks; echo 2 >> file; git add file; git commit -q -m two; git checkout -q -b side; echo 3 >> file; git commit -q -a -m three
        git checkout -q main; git merge -q side; git branch -q -d side; echo 4 >> file; git stash -q; git stash pop -q; git commit -q -a -m four
        git tag t; git pack-refs --all; git tag -d t > /dev/null; git gc -q; git rebase -q --force-rebase HEAD~1; git reset -q --soft HEAD~1; git commit -q -m again
        git cherry-pick --keep-redundant-commits HEAD > /dev/null; git notes add -m n; git bisect start HEAD HEAD~2 > /dev/null; git bisect reset > /dev/null
        git fetch -q; git push -q origin main; git push -q -u origin main:new 2> said || true; cat said; rm said
        (cd wt; echo w > w; git add w; git commit -qm w; git worktree list > /dev/null); (cd sub; echo 2 >> a; git commit -qam s)
        git clone -q . /tmp/c; git init -q fresh; git -C fresh commit -q --allow-empty -m f; git worktree add -q made
        git config a.b c 2> said && echo NO; cat said; rm said; git fsck; git status --short; echo done";
    let flags = ["--write", remote.to_str().unwrap()];
    let told = host.inside("work/project", &flags, script);
    assert!(told.contains("done\n") && !told.contains("NO\n"), "{told}");
    assert!(told.contains("Device or resource busy"), "{told}");
    assert!(
        !told.contains("gateway  off") && !told.contains("gateway  moved"),
        "{told}"
    );
    assert!(
        host.sh("work/project", "git log --format=%s -2")
            .starts_with("again\nagain\n")
    );
    assert_eq!(
        host.sh("work/remote.git", "git log --format=%s -1 new"),
        "again\n"
    );
    host.sh("work/project", "git fsck --strict; git -C wt status; git -C made status; rm -rf fresh made; git worktree prune; git config a.b c");
    let after = host.sh("work/project", "rm -rf .git/ORIG_HEAD .git/FETCH_HEAD .git/gc.log .git/packed-refs .git/AUTO_MERGE .git/info/refs; ls -A .git | sort; ls -A | sort");
    assert_eq!(after, before);
}

/// Both sides commit at the same time.
#[test]
fn nobodys_commits_are_lost() {
    let host = Host::with_repository();
    host.sh("work/project", "git worktree add -q wt -b inner");
    let script = "for i in $(seq 200); do echo $i > in; git add in; until git commit -qm in$i 2>/dev/null; do sleep 0.01; done; done";
    let mut child = host.exec("work/project/wt", &["-q"], script);
    let mut child = child.spawn().unwrap();
    for i in 0..50 {
        host.sh("work/project", &format!("echo {i} > out; git add out; until git commit -qm out{i} 2>/dev/null; do sleep 0.01; done"));
    }
    assert!(child.wait().unwrap().success());
    let count = |branch: &str| host.sh("work/project", &format!("git rev-list --count {branch}"));
    assert_eq!(
        (count("inner"), count("main")),
        ("201\n".into(), "51\n".into())
    );
    host.sh("work/project", "git fsck --strict");
}

#[test]
fn a_folder_without_a_repository_has_nothing_of_ours_afterwards() {
    let host = Host::new();
    host.inside("work/project", &[], "git status; rm -r evil-hooks");
    assert_eq!(host.sh("work/project", "ls -A"), "");
    host.inside("work/project", &[], "mkdir -p .git/hooks; rm -r evil-hooks");
    assert_eq!(
        host.sh("work/project", "find . -mindepth 1 | sort"),
        "./.git\n./.git/hooks\n"
    );
    host.sh("work/project", "rm -r .git");
    // One that may run something has another name, which is told, and a command may remove it.
    let told = host.inside("work/project", &[], "git init -q; arm .git/config");
    let put_off = "find . -mindepth 1 -maxdepth 1 -name '.git*'";
    let name = host.sh("work/project", put_off);
    let name = name.trim().strip_prefix("./").unwrap();
    let wanted = format!("gateway  off      .git (now {name}): put away, since its settings have");
    assert!(told.contains(&wanted), "{wanted}: {told}");
    host.inside("work/project", &[], &format!("rm -r {name} evil-hooks"));
    assert_eq!(host.sh("work/project", "ls -A"), "");
    // One that runs nothing stays, and is told.
    let told = host.inside(
        "work/project",
        &[],
        "git init -q; git commit -q --allow-empty -m x",
    );
    assert!(told.contains("whose settings run nothing"), "{told}");
    assert_eq!(host.sh("work/project", "git log --format=%s"), "x\n");
    for home in [None, Some(""), Some("/nonexistent")] {
        let host = Host::new();
        let mut exec = host.command(env!("CARGO_BIN_EXE_gateway"), "work/project");
        exec.env_remove("HOME")
            .envs(home.map(|home| ("HOME", home)));
        let output = exec.args(["exec", "-v", "--", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{}", said(&output));
        assert_eq!(host.sh("work/project", "ls -A"), "");
    }
}

/// What an earlier command made is guarded as a person's is, and removed outside.
#[test]
fn what_an_earlier_command_made_is_guarded_in_a_later_run() {
    for (script, wanted) in [
        ("arm d/nested/.git/config", "Read-only file system"),
        (
            "{ printf '[core]\n\tfsmonitor = touch %s;:\n' \"$MARK\" >&3; sleep 20; } 3>>d/nested/.git/config &",
            "Read-only file system",
        ),
        (
            "hook d/nested/.git/hooks/pre-commit",
            "Read-only file system",
        ),
        (
            "mv d d2 && mkdir d && cp -r d2/nested d && arm d/nested/.git/config",
            "Device or resource busy",
        ),
        ("rm -rf d", "Device or resource busy"),
    ] {
        let host = Host::with_repository();
        let told = host.inside("work/project", &[], "git clone -q . d/nested");
        assert!(told.contains("new git  d/nested/.git"), "{told}");
        let script = format!("{script}\nsleep 0.3");
        let output = meanwhile(&host, "work/project", &script, || {
            assert!(!host.git_runs("work/project/d/nested"), "{script}");
        });
        assert!(
            said(&output).contains(wanted),
            "{script}: {}",
            said(&output)
        );
        assert!(!host.git_runs("work/project/d/nested"), "{script}");
        host.sh("work/project", "rm -rf d");
    }
}

/// Git in a folder whose repository was put away fails with the reason, and changes nothing above.
#[test]
fn a_folder_whose_repository_was_put_away_is_no_part_of_the_one_above() {
    let host = Host::with_repository();
    host.sh(
        "work/project",
        "mkdir src; echo 1 > src/x; git add src; git commit -q -m src; git sparse-checkout set src",
    );
    let script = "sub sub; echo 1 > sub/f; git init -q --bare bare; arm bare/config
        sub real; mkdir linked; mv real/.git x; ln -s ../x linked/.git; git worktree add -q wt 2> /dev/null";
    let told = host.inside("work/project", &[], script);
    // Settings of a sparse worktree run nothing, so it stays.
    assert!(told.contains("new git  wt/.git"), "{told}");
    let top = host.sh("work/project/wt", "git rev-parse --show-toplevel");
    assert_eq!(top.trim(), host.at("work/project/wt").display().to_string());
    let state = || {
        host.sh(
            "work/project",
            "git log --all --format=%H; git ls-files; git stash list",
        )
    };
    let before = state();
    let folders = ["sub", "bare", "linked"];
    let fails = |told: &str, folder: &str| {
        let other = if folder == "bare" {
            "HEAD.off-"
        } else {
            ".git.off-"
        };
        let wanted = format!("put away by gateway, see {other}");
        assert!(told.contains(&wanted), "{folder}: {told}");
    };
    for folder in folders {
        for words in [
            &["status"][..],
            &["add", "-A"],
            &["commit", "-qam", "x"],
            &["reset", "--hard"],
            &["stash"],
        ] {
            let mut git = host.command("/usr/bin/git", &format!("work/project/{folder}"));
            let output = git.args(words).output().unwrap();
            assert_eq!(output.status.code(), Some(128), "{}", said(&output));
            fails(&said(&output), folder);
        }
    }
    assert_eq!(state(), before);
    // So it is inside; what is put in that place is judged, and all of it can be removed.
    for folder in folders {
        let told = host.inside("work/project", &[], &format!("git -C {folder} status"));
        fails(&told, folder);
        assert!(!told.contains("gateway  off "), "{told}");
    }
    let told = host.inside(
        "work/project",
        &[],
        "sub z; mv z/.git y; echo gitdir: ../y > sub/.git",
    );
    assert!(told.contains("gateway  off      sub/.git"), "{told}");
    assert!(!host.git_runs("work/project/sub"), "{told}");
    let told = host.inside("work/project", &[], "rm -r sub bare linked && echo gone");
    assert!(
        told.contains("gone\n") && !told.contains("gateway  off "),
        "{told}"
    );
}

/// What cannot be guarded is said, with the flag that goes on without; the rest works.
#[test]
fn what_cannot_be_guarded_is_said() {
    let host = Host::with_repository();
    // A `.git` that is a link, and settings that are one, as Android's `repo` makes them.
    host.sh(
        "work/project",
        "mv .git real; ln -s real .git; mv real/config c; ln -s ../c real/config",
    );
    let inside = host.inside(
        "work/project",
        &[],
        "arm c; arm real/config; rm .git; mv real r; sub .",
    );
    assert!(!host.git_runs("work/project"), "{inside}");
    // A second name out of reach of a path.
    let host = Host::with_repository();
    let deep = "import os; top = os.getcwd(); os.mkdir('y'); os.chdir('y')\nfor _ in range(20): os.mkdir('d' * 250); os.chdir('d' * 250)\nos.link(top + '/.git/config', 'c')";
    host.sh("work/project", &format!("python3 -c \"{deep}\""));
    let output = host.exec("work/project", &[], "true").output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{}", said(&output));
    let told = said(&output);
    assert!(
        told.contains("hard links") && told.contains("--writable-git"),
        "{told}"
    );
    host.inside("work/project", &["--writable-git"], "true");
}

#[test]
fn a_launcher_that_is_killed_leaves_nothing_that_runs() {
    let host = Host::with_repository();
    let script = "sub s; link sub; arm .git/config; echo armed; sleep 60";
    let mut child = host.exec("work/project", &["-q"], script);
    let mut child = child
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(first_line(&mut child), "armed\n");
    child.kill().unwrap();
    child.wait().unwrap();
    until(|| !host.at("work/project/s/.git").is_dir());
    until(|| !host.at("work/project/.git/commondir").exists());
    assert!(!host.git_runs("work/project") && !host.git_runs("work/project/s"));
    // Killed with its gateway process, the next run looks through what it left, and says so.
    let script = "rm -rf s; sub s; link sub; echo up; sleep 60";
    let mut child = host.exec("work/project", &["-q"], script);
    let mut child = child
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(first_line(&mut child), "up\n");
    let gateway = host.sh(
        "work/project",
        &format!("ps -o pid= --ppid {} | head -1", child.id()),
    );
    host.sh("work/project", &format!("kill -9 {}", gateway.trim()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(host.at("work/project/.git/commondir").exists());
    host.sh(
        "work/project",
        "git status --short; git commit -q --allow-empty -m x",
    );
    assert!(host.git_runs("work/project/s"));
    fs::remove_file(host.at("work/project/ran")).unwrap();
    let next = said(&host.exec("work/project", &["-q"], "true").output().unwrap());
    assert!(
        next.contains("now it was") && next.contains("s/.git"),
        "{next}"
    );
    assert!(!host.git_runs("work/project/s"));
    assert!(!host.at("work/project/.git/commondir").exists());
    let next = said(&host.exec("work/project", &["-q"], "true").output().unwrap());
    assert!(!next.contains("now it was"), "{next}");
}

#[test]
fn a_record_that_was_not_written_whole_stops_nothing_and_one_of_another_form_is_named() {
    let host = Host::with_repository();
    let record = ".local/state/gateway/unswept/record";
    let write = |text: &str| {
        let script = format!("mkdir -p $(dirname {record}); printf '%s' '{text}' > {record}");
        host.sh("home", &script);
    };
    for started in ["", "{", "{\"file\":", "{\"file\":{\"Unix\":[47,"] {
        write(started);
        let told = host.inside("work/project", &["-q"], "echo runs");
        assert!(told.starts_with("runs\n"), "{started}: {told}");
        assert!(!host.at("home").join(record).exists(), "{started}");
    }
    write("{\"another\":\"form\"}");
    let mut refused = host.exec("work/project", &["-q"], "echo runs");
    let refused = refused.output().unwrap();
    let told = said(&refused);
    assert_eq!(refused.status.code(), Some(125), "{told}");
    assert!(told.contains("unswept/record` has another form"), "{told}");
}

#[test]
fn a_sandbox_that_ends_does_not_uncover_another_in_the_same_project() {
    for home in ["home", "work/other-home"] {
        let host = Host::with_repository();
        host.sh("work", "mkdir other-home");
        host.sh("work/project", "mkfifo go");
        let script = "echo ready; read line < go; arm .git/config; echo ../evil > .git/commondir; arm .git/config.worktree";
        let mut first = host.exec("work/project", &["-q"], script);
        let mut first = first
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        first_line(&mut first);
        let mut second = host.exec("work/project", &[], "true");
        let second = second.env("HOME", host.at(home)).output().unwrap();
        assert!(second.status.success(), "{}", said(&second));
        assert!(
            host.at("work/project/.git/commondir").exists(),
            "the other's mount lies on it"
        );
        host.sh("work/project", "echo > go");
        first.wait().unwrap();
        assert!(!host.git_runs("work/project"));
        assert!(!host.at("work/project/.git/commondir").exists());
    }
}

#[test]
fn what_tools_read_by_themselves_is_told_and_guarded_on_request() {
    let host = Host::with_repository();
    host.sh("work/project", "mkdir docs .claude; echo own > docs/config.toml; ln -s docs .cargo; echo '{}' > .claude/settings.json; git add -A; git commit -qm t");
    let script = "GIT_SEQUENCE_EDITOR=true git rebase -q -i --exec false HEAD~1 2> /dev/null; echo x > .envrc; mkdir .vscode; echo x > .vscode/tasks.json; mkdir kept; ln -s kept .zed; mkdir -p node_modules/x; echo x > node_modules/x/.envrc; touch p.cedar
        echo bad > docs/config.toml; mv .claude gone; touch Makefile";
    let told = host.inside("work/project", &[], script);
    for name in [
        ".envrc, which direnv",
        ".vscode",
        ".zed",
        "p.cedar",
        ".git/rebase-merge: look at its steps",
    ] {
        assert!(told.contains(name), "{name}: {told}");
    }
    assert!(
        !told.contains("node_modules") && !told.contains("Makefile"),
        "{told}"
    );
    host.sh(
        "work/project",
        "git rebase --abort; git checkout -q .; git clean -qfdx",
    );
    for flags in [&["--guard-tools"][..], &["--config", "gateway.toml"]] {
        fs::write(
            host.at("work/project/gateway.toml"),
            "[sandbox]\nguard_tools = true\n",
        )
        .unwrap();
        if flags.len() == 2 {
            host.sh(
                "work/project",
                &format!(
                    "{} project allow --yes gateway.toml",
                    env!("CARGO_BIN_EXE_gateway")
                ),
            );
        }
        let said = host.inside("work/project", flags, script);
        let files = host.sh("work/project", "cat docs/config.toml .claude/settings.json; find . -name .zed -o -name .envrc -not -path '*node_modules*' -o -name tasks.json");
        assert_eq!(files, "own\n{}\n", "{said}");
        host.sh(
            "work/project",
            "git rebase --abort || true; git checkout -q .; git clean -qfdx",
        );
    }
}

/// Whatever is killed at whatever moment: git and the next run find nothing in their way.
#[test]
fn a_kill_at_any_moment_leaves_nothing_in_the_way() {
    let host = Host::with_repository();
    host.sh(
        "work/project",
        "git worktree add -q wt -b inner; git config core.hooksPath a/hooks",
    );
    let rounds = 100;
    for round in 0..rounds {
        let script =
            "echo 2 > f; git add f; git commit -qm f; touch .git/x; sub s 2> /dev/null; sleep 0.2";
        let mut command = host.exec("work/project", &["-q"], script);
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(round * 7 % 350));
        let list = format!("ps -o pid= --ppid {}", child.id());
        let children = host
            .command("/bin/sh", "work")
            .args(["-c", &list])
            .output()
            .unwrap();
        let children = String::from_utf8(children.stdout).unwrap();
        // The launcher itself, the gateway process, or the first process of the sandbox.
        let nth = (round % 3) as usize;
        match nth
            .checked_sub(1)
            .and_then(|nth| children.split_whitespace().nth(nth))
        {
            None => child.kill().unwrap(),
            Some(pid) => drop(host.command("/bin/kill", "work").args(["-9", pid]).output()),
        }
        child.wait().unwrap();
        if round % 10 == 9 {
            // The gateway process of a killed launcher has its end yet to come.
            std::thread::sleep(std::time::Duration::from_millis(500));
            assert!(!host.git_runs("work/project"), "round {round}");
            host.sh(
                "work/project",
                "rm -f .git/*.lock; git status --short; git fsck",
            );
        }
    }
    host.inside("work/project", &["-q"], "rm -rf s");
    // A gateway process that ends puts away what is left.
    let left = "ls -A .git a 2>/dev/null | grep -E 'commondir|config.worktree|^hooks$' || true";
    let mut shown = String::new();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while shown != "hooks\n" {
        assert!(std::time::Instant::now() < end, "left: {shown}");
        shown = host.sh("work/project", left);
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(host.folder.path().to_str().unwrap()));
}

/// Whichever process is killed at whichever step.
#[test]
fn a_killed_run_loses_nothing_that_it_answered_and_leaves_no_process() {
    let host = Host::with_repository();
    host.sh("home", "mkdir -m 700 log");
    let mut answered = 0;
    for round in 0..100_u64 {
        let end = host.at("work/project/end");
        let _ = fs::remove_file(&end);
        let log = host.at(&format!("home/log/{round}"));
        let flags = ["-q", "--audit", log.to_str().unwrap()];
        let mut child = host.exec("work/project", &flags, "touch end");
        let child = child.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = child.spawn().unwrap();
        // From the start on, and from the command's last act on.
        let step = if round % 2 == 0 { 6000 } else { 2000 };
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while round % 2 == 1 && !end.exists() && std::time::Instant::now() < limit {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        std::thread::sleep(std::time::Duration::from_micros(round / 6 * step));
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let children = fs::read_to_string(children).unwrap_or_default();
        // The launcher, the gateway process, and the first process of the sandbox.
        let mut all = vec![child.id().to_string()];
        all.extend(children.split_whitespace().map(str::to_owned));
        let nth = (round / 2 % 3) as usize;
        let killed = all.get(nth).unwrap_or(&all[0]);
        let killed = Command::new("kill").args(["-9", killed]).output();
        killed.unwrap();
        let code = child.wait().unwrap().code();
        until(|| {
            all.iter().all(|one| {
                let stat = fs::read_to_string(format!("/proc/{one}/stat"));
                stat.map_or(true, |stat| stat.contains(") Z "))
            })
        });
        answered += u32::from(code == Some(0));
        if code == Some(0) || log.metadata().is_ok_and(|about| about.len() > 0) {
            let mut verify = host.command(env!("CARGO_BIN_EXE_gateway"), "work");
            let verified = verify.args(["log", "verify"]).arg(&log).output().unwrap();
            let is_whole = match verified.status.code() {
                Some(0) => true,
                // Only the proof of its end is missing.
                Some(4) => code != Some(0),
                _ => false,
            };
            assert!(is_whole, "{round}: {code:?}: {}", said(&verified));
        }
    }
    assert!(answered > 0);
    host.inside("work/project", &["-q"], "true");
    until(|| {
        host.sh("work/project", "ls .git")
            .find("commondir")
            .is_none()
    });
    assert_eq!(
        host.sh("work/project", "git status --short"),
        "?? end\n?? evil-hooks/\n"
    );
    let unswept = host.at("home/.local/state/gateway/unswept");
    assert_eq!(fs::read_dir(unswept).unwrap().count(), 0);
}

#[test]
fn the_terminal_is_as_it_was() {
    let host = Host::with_repository();
    let gateway = env!("CARGO_BIN_EXE_gateway");
    let evil = r"stty raw -echo; printf '\033]4;1;#000\033\\'";
    let line = format!("{gateway} exec -q -- sh -c \"{evil}\"; stty -a; {gateway} exec -- true");
    let mut script = host.command("/usr/bin/script", "work/project");
    let output = script
        .env("TERM", "xterm")
        .args(["-qec", &line, "/dev/null"])
        .output()
        .unwrap();
    let said = said(&output);
    assert!(
        said.contains(" icanon") && said.contains(" echo "),
        "{said}"
    );
    let (_, after) = said.split_once("]4;1;#000").unwrap();
    assert!(after.contains("\u{1b}]104\u{1b}\\"), "{said:?}");
}

#[test]
fn nothing_is_left_that_runs_as_the_user_for_others() {
    let host = Host::new();
    let said = host.inside(
        "work/project",
        &[],
        "cp /bin/sh a; chmod 4755 a; chmod u+s a; install -m 6755 /bin/sh b; mkdir d; chmod 4775 d; touch c
         git init -q --shared=group sub; cd sub; touch x; git add x; git commit -q -m shared; git log --format=%s",
    );
    assert!(said.contains("shared\n"), "{said}");
    let left = host.sh("work/project", "find . -perm -4000; ls");
    assert!(!left.contains("./") && left.contains('a'), "{left}");
}
