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
            .arg("exec")
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

    /// What a prompt, an editor and a person do in these folders; no program of the workload's may
    /// run.
    #[track_caller]
    fn git_runs_nothing_of_the_workloads(&self, folders: &[&str]) {
        for folder in folders {
            if !self.at(folder).is_dir() {
                continue;
            }
            for words in [
                &["status", "--short"][..],
                &["diff"],
                &["add", "-A"],
                &["commit", "-q", "--allow-empty", "-m", "outside"],
                &["checkout", "-q", "-B", "other"],
                &["submodule", "status"],
                &["gc", "-q"],
                &["-C", "sub", "status", "--short"],
            ] {
                // git may refuse what it finds; it must not run it.
                let output = self
                    .command("/usr/bin/git", folder)
                    .args(words)
                    .output()
                    .unwrap();
                assert!(
                    !self.at("work/project/ran").exists(),
                    "{folder}: git {words:?}\n{}",
                    said(&output)
                );
            }
        }
    }
}

#[test]
fn the_probes_of_doctor_leave_the_users_repository_as_it_was() {
    let host = Host::with_repository();
    let state = || {
        host.sh(
            "work/project",
            "git log --all --format=%H; git status --short",
        )
    };
    let before = state();
    let mut doctor = host.command(env!("CARGO_BIN_EXE_gateway"), "work/project");
    let output = doctor.args(["doctor", "--escape"]).output().unwrap();
    assert!(said(&output).contains("git-settings"), "{}", said(&output));
    assert_eq!(state(), before);
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .concat()
}

/// Shell functions of the workload: `arm CONFIG` writes a setting that makes git run a program,
/// `hook FILE` a hook.
const EVIL: &str = r#"
    evil() { printf '#!/bin/sh\ntouch %s\n' "$MARK"; }
    arm() { printf '[core]\n\tfsmonitor = touch %s;:\n\thooksPath = %s/evil-hooks\n' "$MARK" "$PWD" >> "$1"; }
    hook() { evil > "$1"; chmod +x "$1"; }
    mkdir -p evil-hooks; for h in pre-commit post-checkout post-index-change; do hook evil-hooks/$h; done
"#;

/// A way to make git run something, with what the host has before, and the folders in which git is
/// run afterwards.
#[track_caller]
fn held(host: &Host, folder: &str, script: &str) -> String {
    let said = host.inside(folder, &[], script);
    host.git_runs_nothing_of_the_workloads(&[
        "work",
        "work/project",
        "work/project/sub",
        "work/project/sub/deeper",
        "work/project/target",
    ]);
    said
}

#[test]
fn the_tests_own_ways_run_where_nothing_is_guarded() {
    let host = Host::with_repository();
    host.inside(
        "work/project",
        &["--writable-git"],
        "arm .git/config; hook .git/hooks/pre-commit",
    );
    host.sh("work/project", "git status --short");
    assert!(host.at("work/project/ran").exists());
    let host = Host::with_repository();
    host.inside(
        "work/project",
        &["--writable-git"],
        "git init -q sub; arm sub/.git/config",
    );
    host.sh("work/project/sub", "git status --short");
    assert!(host.at("work/project/ran").exists());
    let host = Host::with_repository();
    let script =
        format!("{ARMED_SUB}; git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub");
    host.inside("work/project", &["--writable-git"], &script);
    // The way that the documentation names for as long as the command runs.
    host.sh(
        "work/project",
        "git status --ignore-submodules=all; git diff --ignore-submodules=all",
    );
    assert!(!host.at("work/project/ran").exists());
    host.sh("work/project", "git status --short");
    assert!(host.at("work/project/ran").exists());
}

#[test]
fn settings_and_hooks_of_the_repository_are_not_written() {
    let host = Host::with_repository();
    host.sh(
        "work/project",
        "echo '#!/bin/sh' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    );
    held(
        &host,
        "work/project",
        "arm .git/config; hook .git/hooks/pre-commit; hook .git/hooks/post-commit
         cp .git/config c; arm c; mv -f c .git/config; rm -rf .git/hooks; mkdir h; hook h/pre-commit; mv h .git/hooks
         mv .git gone; git init -q; arm .git/config",
    );
}

#[test]
fn a_commondir_leads_git_nowhere() {
    for put in [
        "echo ../common > .git/commondir",
        "rm -f .git/commondir; echo ../common > .git/commondir",
        "echo ../common > c; mv -f c .git/commondir",
        "echo ../common > c; ln -sf ../c .git/commondir",
        "mv .git/commondir .git/x; echo ../common > c; ln c .git/commondir",
    ] {
        let host = Host::with_repository();
        let script = format!("cp -r .git common; rm -f common/commondir; arm common/config; {put}");
        held(&host, "work/project", &script);
        assert!(!host.at("work/project/.git/commondir").exists(), "{put}");
    }
}

#[test]
fn a_repository_that_the_workload_makes_runs_nothing() {
    let host = Host::new();
    let said = held(
        &host,
        "work/project",
        "git init -q; echo 1 > f; git add f; git commit -q -m inside; arm .git/config; hook .git/hooks/pre-commit",
    );
    assert!(
        said.contains("settings and hooks are set aside in it"),
        "{said}"
    );
    assert!(
        host.sh("work/project", "git log --format=%s")
            .contains("inside")
    );
    // The next sandbox treats what is there as the user's own, and guards it.
    held(
        &host,
        "work/project",
        "arm .git/config; hook .git/hooks/pre-commit; echo ../x > .git/commondir",
    );
}

#[test]
fn hooks_that_were_absent_do_not_come() {
    let host = Host::with_repository();
    host.sh("work/project", "rm -rf .git/hooks");
    held(
        &host,
        "work/project",
        "mkdir .git/hooks; hook .git/hooks/pre-commit; hook .git/hooks/post-checkout",
    );
    assert!(!host.at("work/project/.git/hooks").exists());
}

#[test]
fn a_worktrees_file_stays_what_it_is() {
    let host = Host::with_repository();
    host.sh("work/project", "mv .git ../main.git; git --git-dir ../main.git config core.bare true; rm file; git --git-dir ../main.git worktree add -q wt; rm -f wt/evil; mv wt/.git .; rm -r wt; git --git-dir ../main.git worktree repair .; git checkout -q .");
    let status = host.inside(
        "work/project",
        &[],
        "echo 2 >> file; git commit -qam inside && git log --format=%s",
    );
    assert!(status.contains("inside\n"), "{status}");
    let said = held(
        &host,
        "work/project",
        "cp -r ../main.git own; arm own/config; rm -f .git; echo gitdir: own > .git; echo gitdir: own > g; mv -f g .git
         common=$(git rev-parse --git-common-dir); here=$(git rev-parse --git-dir)
         arm $common/config; hook $common/hooks/pre-commit; echo own > $here/commondir; echo /srv > $here/gitdir && echo MOVED; arm $here/config.worktree; mkdir $common/worktrees/x",
    );
    assert!(!said.contains("MOVED"), "{said}");
    assert!(
        host.sh("work/project", "git log --format=%s")
            .contains("inside")
    );
}

#[test]
fn a_submodules_settings_are_not_written() {
    let host = Host::with_repository();
    host.sh("work", "git init -q lib; cd lib; echo 1 > a; git add a; git commit -q -m lib; cd ../project; git submodule add -q ../lib sub; git commit -q -m sub");
    let said = held(
        &host,
        "work/project",
        "cd sub; echo 2 >> a; git commit -qam inside || echo NO; cd ..; git -C sub log --format=%s
         arm .git/modules/sub/config; hook .git/modules/sub/hooks/pre-commit; echo ../../../x > .git/modules/sub/commondir
         mv .git/modules/sub .git/modules/gone; rm -f sub/.git; cp -r .git/modules/sub own; arm own/config; echo gitdir: ../own > sub/.git
         mv sub elsewhere; mkdir sub; git init -q sub; arm sub/.git/config; arm .git/modules/sub/config.worktree",
    );
    assert!(
        said.contains("inside\n") && !said.contains("NO\n"),
        "{said}"
    );
    assert!(!host.at("work/project/.git/modules/sub/commondir").exists());
}

#[test]
fn a_nested_repositorys_settings_are_not_written() {
    let host = Host::with_repository();
    host.sh(
        "work/project",
        "mkdir -p sub/deeper; git init -q sub/deeper",
    );
    held(
        &host,
        "work/project",
        "arm sub/deeper/.git/config; hook sub/deeper/.git/hooks/pre-commit; echo ../x > sub/deeper/.git/commondir
         mv sub gone; mv sub/deeper sub/gone; mkdir -p sub/deeper; git init -q sub/deeper; arm sub/deeper/.git/config",
    );
}

#[test]
fn a_forged_worktree_opens_no_other_directory() {
    let forms = [
        // A worktree's own files, wherever they are.
        "echo gitdir: ../fake > sub/.git; mkdir fake; echo $PWD/sub/.git > fake/gitdir; echo $VICTIM > fake/commondir",
        "mkdir -p x/worktrees/a; echo gitdir: ../x/worktrees/a > sub/.git; echo $PWD/sub/.git > x/worktrees/a/gitdir; echo $VICTIM > x/worktrees/a/commondir",
        // Where git puts them, but through a link.
        "mkdir -p x/a; ln -s $VICTIM v; ln -s ../x w; mkdir y; ln -s ../x y/worktrees; echo gitdir: ../y/worktrees/a > sub/.git; echo $PWD/sub/.git > x/a/gitdir; echo ../../v > x/a/commondir",
        // The project above, as a repository of its own.
        "git init -q --bare b; mv b/HEAD b/objects b/refs .; mkdir -p worktrees/a; echo gitdir: ../worktrees/a > sub/.git; echo $PWD/sub/.git > worktrees/a/gitdir; echo ../.. > worktrees/a/commondir",
        // A submodule that names its folder.
        "echo gitdir: .. > sub/.git; printf '[core]\n\tworktree = sub\n' > config; git init -q --bare b; mv b/HEAD b/objects b/refs .",
        "ln -s $VICTIM fake; echo gitdir: ../fake > sub/.git",
    ];
    for form in forms {
        let host = Host::new();
        host.sh("work", "mkdir victim project/sub; echo mine > victim/diary; echo mine > project/diary; printf '[core]\n\tworktree = /nowhere\n' > victim/config");
        let victim = host.at("work/victim");
        // As if it had been made by a command that was killed before anything was set aside.
        host.sh(
            "work/project",
            &form.replace("$VICTIM", &victim.display().to_string()),
        );
        let script = format!(
            "for d in {} {}; do cat $d/diary; echo bad > $d/diary; done",
            victim.display(),
            host.at("work/project").display()
        );
        let said = host.inside("work/project/sub", &[], &script);
        assert!(!said.contains("mine\n"), "{form}: {said}");
        assert_eq!(
            host.sh("work", "cat victim/diary project/diary"),
            "mine\nmine\n",
            "{form}"
        );
    }
}

#[test]
fn a_repository_beside_the_working_directory_is_told() {
    let host = Host::with_repository();
    host.sh("work/project", "git worktree add -q ../wt");
    let said = host.inside("work/wt", &[], "git status");
    let expected = format!(
        "{} (too; changes persist)",
        host.at("work/project/.git").display()
    );
    assert!(said.contains(&expected), "{said}");
}

#[test]
fn what_is_no_file_of_gits_is_not_read() {
    for form in [
        "mkfifo .git",
        "ln -s /dev/zero .git",
        "git init -q; rm .git/config; mkfifo .git/config",
        "mkdir -p .git/objects .git/refs; echo x > .git/HEAD; ln -s /dev/zero .git/config",
        "truncate -s 8G .git",
    ] {
        let host = Host::new();
        host.sh("work/project", form);
        let mut child = host
            .exec("work/project", &[], "true")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(15);
        while child.try_wait().unwrap().is_none() {
            if std::time::Instant::now() > until {
                child.kill().unwrap();
                panic!("{form}: it still reads");
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[test]
fn settings_of_a_worktree_alone_do_not_come() {
    let host = Host::with_repository();
    host.sh("work/project", "git config extensions.worktreeConfig true");
    held(
        &host,
        "work/project",
        "rm -f .git/config.worktree; arm .git/config.worktree; arm c; mv -f c .git/config.worktree",
    );
    assert!(!host.at("work/project/.git/config.worktree").exists());
}

#[test]
fn new_repositories_of_every_form_run_nothing() {
    for (name, script) in [
        (
            "nested",
            "git init -q sub; arm sub/.git/config; hook sub/.git/hooks/pre-commit",
        ),
        (
            "cloned",
            "git clone -q . sub; arm sub/.git/config; cd sub; mkdir -p deeper; git init -q deeper; arm deeper/.git/config",
        ),
        (
            "file",
            "mkdir sub; git init -q --bare x; arm x/config; echo gitdir: ../x > sub/.git",
        ),
        (
            "link",
            "mkdir sub; git init -q --bare x; arm x/config; ln -s ../x sub/.git",
        ),
        (
            "commondir",
            "git init -q sub; cp -r sub/.git x; arm x/config; echo ../../x > sub/.git/commondir",
        ),
        (
            "worktree",
            "git init -q sub; git -C sub config extensions.worktreeConfig true; arm sub/.git/config.worktree",
        ),
        (
            "bare",
            "git init -q --bare sub; git -C sub config core.bare false; git -C sub config core.worktree .; arm sub/config",
        ),
        (
            "bare with files",
            "git init -q --bare sub; git -C sub config core.bare false; git -C sub config core.worktree .; arm sub/config; touch sub/README sub/Makefile",
        ),
        (
            "bare above",
            "git init -q --bare sub; git -C sub config core.bare false; git -C sub config core.worktree .; arm sub/config; git init -q sub/deeper; arm sub/deeper/.git/config",
        ),
        (
            "bare at the top",
            "rm .git/HEAD; git init -q --bare x; mv x/HEAD x/objects x/refs .; printf '[core]\n\tbare = false\n\tworktree = .\n' > config; arm config",
        ),
        (
            "link for a head",
            "git init -q sub; rm sub/.git/HEAD; ln -s refs/heads/none sub/.git/HEAD; mkdir sub/.git/gateway; arm sub/.git/config",
        ),
        (
            "not listable",
            "git init -q sub; arm sub/.git/config; chmod 311 sub",
        ),
        (
            "not writable",
            "git init -q sub; arm sub/.git/config; chmod 500 sub/.git",
        ),
        (
            "not writable around it",
            "git init -q sub; arm sub/.git/config; chmod 500 sub sub/.git",
        ),
        (
            "not listable around it",
            "git init -q sub; arm sub/.git/config; chmod 100 sub sub/.git",
        ),
        (
            "in another case",
            "git init -q sub; arm sub/.git/config; mv sub/.git sub/.GIT",
        ),
        (
            "included",
            "git init -q sub; arm sub/x; git -C sub config include.path ../x",
        ),
        (
            "built",
            "mkdir target; git init -q target; arm target/.git/config; mv target sub",
        ),
        (
            "aliased",
            "git init -q sub; git -C sub config alias.status '!touch '$MARK; git -C sub config core.pager 'touch '$MARK; git -C sub config diff.external 'touch '$MARK; git -C sub config filter.x.clean 'touch '$MARK; echo '* filter=x' > sub/.gitattributes; touch sub/f",
        ),
        (
            "installed, and named by the index",
            "git init -q node_modules/x; cd node_modules/x; echo 1 > f; git add f; git commit -q -m s; arm .git/config
             H=$(git rev-parse HEAD); cd ../..; git update-index --add --cacheinfo 160000,$H,node_modules/x",
        ),
        (
            "bare, and built",
            "git init -q --bare target; git -C target config core.bare false; git -C target config core.worktree .; arm target/config",
        ),
        (
            "with the names taken",
            "git init -q sub; arm sub/.git/config; cd sub; for i in '' $(seq -f -%g 1 99); do touch .git.set-aside$i; done
             for i in $(seq 0 99); do mkdir .git/set-aside-by-gateway-$i; done",
        ),
        (
            "set aside by name",
            "git init -q sub; arm sub/.git/config; mkdir sub/.git/set-aside-by-gateway-0; touch sub/.git/set-aside-by-gateway-0/config",
        ),
    ] {
        let host = Host::with_repository();
        let said = held(&host, "work/project", script);
        let told = ["set aside", "could not be"]
            .iter()
            .any(|word| said.contains(word));
        assert!(told, "{name}: {said}");
    }
}

/// Runs the workload until its script has ended, then `outside`, and lets the workload end. Returns
/// what the gateway says.
#[track_caller]
fn meanwhile(host: &Host, folder: &str, script: &str, outside: impl FnOnce()) -> String {
    host.sh(folder, "rm -f go; mkfifo go");
    let script = format!("{{ {script}\n}} >&2; echo ready; read line < go");
    let mut child = host
        .exec(folder, &[], &script)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let line = first_line(&mut child);
    if line == "ready\n" {
        outside();
        host.sh(folder, "echo > go; rm go");
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(line, "ready\n", "{}", said(&output));
    said(&output)
}

/// Starts a command that says `ready` first.
#[track_caller]
fn until_ready(mut command: Command) -> std::process::Child {
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    assert_eq!(first_line(&mut child), "ready\n");
    child
}

/// The first line of a child's output. The rest is not read.
fn first_line(child: &mut std::process::Child) -> String {
    let mut line = String::new();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    line
}

/// A script of the workload: a repository in `sub`, armed.
const ARMED_SUB: &str = "mkdir -p sub; cd sub; git init -q . && git -c user.name=n -c user.email=e commit -q --allow-empty -m s
    arm .git/config; cd ..";

#[test]
fn git_outside_runs_nothing_in_an_absent_submodule_meanwhile() {
    let host = Host::with_repository();
    host.sh("work", "git init -q lib; cd lib; echo 1 > a; git add a; git commit -q -m lib; cd ../project; git submodule add -q ../lib sub; git commit -q -m sub; cd ..; git clone -q project clone");
    let script = format!(
        "{ARMED_SUB}; mv sub gone; rm -rf sub; {ARMED_SUB}; cd {}; git status; git add -A",
        host.at("work/clone").display()
    );
    let said = meanwhile(&host, "work/clone", &script, || {
        // It works, too.
        host.sh(
            "work/clone",
            "git status --short; git diff; git add -A; git submodule status",
        );
        host.git_runs_nothing_of_the_workloads(&["work/clone"]);
    });
    assert!(said.contains("Untracked"), "{said}");
    assert_eq!(host.sh("work/clone", "ls -A sub"), "");
    host.sh("work/clone", "git submodule update -q --init; cat sub/a");
    // Nothing stays where the workload made nothing.
    host.sh("work", "git clone -q project idle");
    host.inside("work/idle", &[], "ls sub");
    assert_eq!(host.sh("work/idle", "ls -A sub"), "");
}

#[test]
fn git_outside_runs_nothing_in_a_new_submodule_meanwhile() {
    let link = "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub";
    for script in [
        format!("{ARMED_SUB}; {link}"),
        format!("{link}; {ARMED_SUB}"),
        format!("{ARMED_SUB}; mkdir a; mv sub a/sub; {link}; mv a/sub sub"),
        format!("{ARMED_SUB}; mv sub/.git x; echo gitdir: ../x > sub/.git; {link}"),
        format!("git update-index --split-index; {ARMED_SUB}; {link}"),
        format!("git update-index --index-version 4; {ARMED_SUB}; {link}"),
    ] {
        let host = Host::with_repository();
        let said = meanwhile(
            &host,
            "work/project",
            &format!("{script}; sleep 0.2"),
            || {
                host.git_runs_nothing_of_the_workloads(&["work/project"]);
            },
        );
        assert!(said.contains("sub/.git (now .git.set-aside-"), "{said}");
    }
}

#[test]
fn a_repository_above_the_project_does_not_come() {
    let host = Host::new();
    held(
        &host,
        "work/project",
        "git init -q ..; arm ../.git/config; cd ..; git init -q; arm .git/config",
    );
    let host = Host::new();
    host.sh("work/project", "git init -q; mkdir sub");
    held(
        &host,
        "work/project/sub",
        "arm ../.git/config; hook ../.git/hooks/pre-commit; git init -q; arm .git/config",
    );
}

#[test]
fn what_the_settings_name_in_the_project_is_not_written() {
    for (before, script) in [
        (
            "mkdir .hooks; touch .hooks/x; git config core.hooksPath .hooks",
            "hook .hooks/pre-commit; mv .hooks gone; mkdir .hooks; hook .hooks/pre-commit",
        ),
        (
            "mkdir -p .husky/_; touch .husky/_/x; git config core.hooksPath .husky/_",
            "hook .husky/_/pre-commit; hook .husky/pre-commit; mv .husky gone; cp -r evil-hooks .husky",
        ),
        (
            "touch .own; git config include.path ../.own",
            "arm .own; rm -f .own; arm .own",
        ),
        (
            "mkdir s; echo '#!/bin/sh' > s/p; chmod +x s/p; rm -rf .git/hooks; mkdir .git/hooks; ln -s ../../s/p .git/hooks/pre-commit",
            "hook s/p; rm -f s/p; hook s/p; mv s gone; mkdir s; hook s/p",
        ),
        (
            "echo '#!/bin/sh' > clean; chmod +x clean; git config filter.x.clean ./clean; echo '* filter=x' > .gitattributes",
            "hook clean; rm -f clean; hook clean; touch file",
        ),
        (
            "mkdir s; echo '#!/bin/sh' > s/mon.sh; git config core.fsmonitor 'sh s/mon.sh'",
            "hook s/mon.sh; rm -f s/mon.sh; mv s gone; mkdir -p s; hook s/mon.sh",
        ),
        (
            "mkdir tools; echo cat > tools/strip; git config filter.x.clean 'sh tools/strip %f'; echo '* filter=x' > .gitattributes",
            "hook tools/strip; rm -rf tools; mkdir -p tools; hook tools/strip; touch file",
        ),
        (
            "mkdir s; echo '#!/bin/sh' > s/d; chmod +x s/d; git config diff.external 'env A=b \"./s/d\"'",
            "hook s/d; rm -rf s; mkdir -p s; hook s/d; echo 3 > file",
        ),
        (
            "mkdir 'my hooks'; touch 'my hooks/x'; git config core.hooksPath 'my hooks'",
            "hook 'my hooks/pre-commit'; mv 'my hooks' gone; cp -r evil-hooks 'my hooks'",
        ),
        (
            "git config core.hooksPath .githooks",
            "mkdir .githooks; hook .githooks/pre-commit; hook .githooks/post-index-change",
        ),
        (
            "git config include.path ../local.gitconfig",
            "arm local.gitconfig",
        ),
        (
            "git config include.path ../a; printf '[core]\nhooksPath = hh\n' > a; mkdir hh; touch hh/x",
            "hook hh/pre-commit; mv hh g; cp -r evil-hooks hh",
        ),
        (
            "git config --global core.hooksPath .own; mkdir .own; touch .own/x",
            "hook .own/pre-commit; mv .own g; cp -r evil-hooks .own",
        ),
        ("git config --global include.path $PWD/mine", "arm mine"),
        (
            "mkdir .git/branchless; touch .git/branchless/config; git config include.path branchless/config",
            "arm .git/branchless/config; rm -f .git/branchless/config; arm .git/branchless/config; mv .git/branchless x; mkdir .git/branchless; arm .git/branchless/config",
        ),
        (
            "git config include.path branchless/config",
            "mkdir .git/branchless; arm .git/branchless/config",
        ),
        (
            "mkdir .git/mine; git config core.hooksPath .git/mine",
            "hook .git/mine/pre-commit; mv .git/mine x; cp -r evil-hooks .git/mine",
        ),
        (
            "git config core.hooksPath .git/mine",
            "cp -r evil-hooks .git/mine",
        ),
        (
            "mkdir -p s/h; touch s/h/x; ln -s s/h .hooks; git config core.hooksPath .hooks",
            "hook s/h/pre-commit; rm -f .hooks; cp -r evil-hooks .hooks; mkdir .hooks; hook .hooks/pre-commit; mv s gone; mkdir s; cp -r evil-hooks s/h",
        ),
        (
            "git config --global core.hooksPath .own",
            "git init -q sub; cp -r evil-hooks sub/.own",
        ),
        (
            "mv ~/.gitconfig own; ln -s ../work/project/own ~/.gitconfig",
            "arm own; cp own o; arm o; mv o own",
        ),
        (
            "mkdir s; ln -s s .hooks; git config core.hooksPath .hooks/h",
            "cp -r evil-hooks s/h; rm -f .hooks; mkdir .hooks; cp -r evil-hooks .hooks/h",
        ),
        (
            "touch own; ln -s ../own .git/own; git config include.path own",
            "arm own; rm -f .git/own; arm .git/own; arm o; mv -f o .git/own",
        ),
        (
            "git config --global core.hooksPath .own; mkdir -p sub; git init -q sub; mkdir sub/.own; touch sub/.own/x",
            "hook sub/.own/pre-commit; mv sub/.own g; cp -r evil-hooks sub/.own",
        ),
        (
            "git config --global core.hooksPath .own; mkdir -p sub; git init -q sub",
            "cp -r evil-hooks sub/.own",
        ),
        (
            "git config --global core.hooksPath .own",
            "git init -q sub; cp -r evil-hooks sub/.own",
        ),
        (
            "mv ~/.gitconfig own; ln -s ../work/project/own ~/.gitconfig",
            "arm own; cp own o; arm o; mv o own",
        ),
    ] {
        let host = Host::with_repository();
        host.sh("work/project", before);
        held(&host, "work/project", script);
    }
}

#[test]
fn what_the_repository_above_names_in_the_project_is_not_written() {
    for (before, script) in [
        (
            "mkdir sub/.husky; touch sub/.husky/x; git config core.hooksPath sub/.husky",
            "hook .husky/pre-commit; mv .husky gone; cp -r evil-hooks .husky",
        ),
        (
            "git config core.hooksPath sub/.husky",
            "cp -r evil-hooks .husky",
        ),
        (
            "touch sub/own; git config include.path ../sub/own",
            "arm own; rm -f own; arm own",
        ),
        ("git config include.path ../sub/own", "arm own"),
        (
            "mkdir sub/s; echo '#!/bin/sh' > sub/s/m; git config core.fsmonitor 'sh sub/s/m'",
            "hook s/m; mv s gone; mkdir s; hook s/m",
        ),
    ] {
        let host = Host::with_repository();
        host.sh("work/project", &format!("mkdir sub; {before}"));
        held(&host, "work/project/sub", script);
    }
}

#[test]
fn an_operation_in_progress_stays_as_the_user_began_it() {
    let conflict = "git checkout -q -b topic; echo t > file; git commit -qam t; echo u > g; git add g; git commit -qm u; git checkout -q -b up main; echo m > file; git commit -qam m";
    let strategy =
        "evil > x; chmod +x x; mkdir -p git-merge-..; echo resolved > file; git add file";
    for (begin, script, go_on) in [
        (
            "git checkout -q topic; git rebase up || true",
            "echo \"exec touch $MARK\" > .git/rebase-merge/git-rebase-todo; echo \"exec touch $MARK\" > t; mv -f t .git/rebase-merge/git-rebase-todo; printf ../../x > .git/rebase-merge/strategy; mv .git/rebase-merge x1; cp -r x1 .git/rebase-merge",
            "git rebase --continue",
        ),
        (
            "git cherry-pick topic~1 topic || true",
            "printf '[options]\n\tstrategy = ../../x\n' > .git/sequencer/opts; rm -rf .git/sequencer; mv .git/sequencer y",
            "git cherry-pick --continue",
        ),
        (
            "git worktree add -q ../wt topic; cd ../wt; git rebase up || true",
            "echo resolved > ../wt/file; echo \"exec touch $MARK\" > .git/worktrees/wt/rebase-merge/git-rebase-todo; cd ../wt; git add file",
            "cd ../wt; git rebase --continue",
        ),
    ] {
        let host = Host::with_repository();
        host.sh("work/project", &format!("{conflict}; {begin}"));
        let wt = host.at("work/wt");
        fs::create_dir_all(&wt).unwrap();
        chown(&wt, Some(ANN), Some(ANN)).unwrap();
        let flags = ["--write", wt.to_str().unwrap()];
        host.inside(
            "work/project",
            &flags,
            &format!("{strategy}; {script}; true"),
        );
        host.sh("work/project", &format!("export GIT_EDITOR=true; {go_on}"));
        assert!(!host.at("work/project/ran").exists(), "{begin}");
    }
}

#[test]
fn a_file_of_several_names_is_guarded_under_each() {
    let host = Host::with_repository();
    host.sh(
        "work/project",
        "ln .git/config c; mkdir -p node_modules/x hooks; echo '#!/bin/sh' > hooks/pre-commit; chmod +x hooks/pre-commit; ln hooks/pre-commit node_modules/x/y; ln hooks/pre-commit ../z; git config core.hooksPath hooks; ln -f .git/config c",
    );
    let evil = "arm c; hook node_modules/x/y; mv node_modules/x x; mv node_modules n; rm -f c";
    held(&host, "work/project", evil);
    // Names that are out of reach of a path, and in folders that only their owner could open.
    let host = Host::with_repository();
    host.sh(
        "work/project",
        "mkdir x; ln .git/config x/c; chmod 0 x; mkdir y",
    );
    held(&host, "work/project", "chmod 755 x; arm x/c");
    let deep = "import os; top = os.getcwd(); os.chdir('y')\nfor _ in range(20): os.mkdir('d' * 250); os.chdir('d' * 250)\nos.link(top + '/.git/config', 'c')";
    host.sh("work/project", &format!("python3 -c \"{deep}\""));
    let output = host.exec("work/project", &[], "true").output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{}", said(&output));
    assert!(said(&output).contains("hard links"), "{}", said(&output));
}

#[test]
fn how_content_is_read_stays_as_it_was() {
    let host = Host::with_repository();
    host.sh(
        "work",
        "git clone -q --shared project shared; cd shared; echo '* -filter' > .git/info/attributes",
    );
    let objects = host.at("work/project/.git/objects");
    host.inside(
        "work/shared",
        &["--see", objects.to_str().unwrap()],
        "for f in info/attributes objects/info/alternates; do echo x > .git/$f; rm -f .git/$f; echo x > y; mv y .git/$f; done; mv .git/info .git/i; mv .git/objects .git/o
         echo 2 >> file; git commit -qam inside; git gc -q",
    );
    let left = host.sh(
        "work/shared",
        "git log --format=%s -1; cat .git/info/attributes .git/objects/info/alternates",
    );
    let objects = host.at("work/project/.git/objects");
    assert_eq!(left, format!("inside\n* -filter\n{}\n", objects.display()));
}

#[test]
fn what_settings_in_other_places_name_is_not_written() {
    let before = "mkdir -p ../conf/git hooks; touch hooks/x; printf '[core]\n\thooksPath = hooks\n' > ../conf/git/config";
    for (variable, place) in [
        ("XDG_CONFIG_HOME", "work/conf"),
        ("GIT_CONFIG_GLOBAL", "work/conf/git/config"),
        ("GIT_CONFIG_SYSTEM", "work/conf/git/config"),
    ] {
        let host = Host::with_repository();
        host.sh("work/project", before);
        let script = "hook hooks/pre-commit; mv hooks gone; cp -r evil-hooks hooks; true";
        let place = host.at(place);
        let mut exec = host.exec("work/project", &[], script);
        assert!(exec.env(variable, &place).status().unwrap().success());
        let mut git = host.command("/usr/bin/git", "work/project");
        git.args(["-c", "user.name=n", "-c", "user.email=e"]);
        let committed = git.args(["commit", "-q", "--allow-empty", "-m", "x"]);
        assert!(committed.env(variable, &place).status().unwrap().success());
        assert!(!host.at("work/project/ran").exists(), "{variable}");
    }
}

#[test]
fn git_outside_writes_through_no_link_and_obeys_no_bare_folder_meanwhile() {
    let host = Host::with_repository();
    host.sh("home", "echo mine > .bashrc");
    let link = format!(
        "rm -f .git/COMMIT_EDITMSG; ln -s {} .git/COMMIT_EDITMSG; sleep 0.2",
        host.at("home/.bashrc").display()
    );
    meanwhile(&host, "work/project", &link, || {
        host.sh("work/project", "git commit -q --allow-empty -m outside");
    });
    assert_eq!(host.sh("home", "cat .bashrc"), "mine\n");
    host.sh("work/project", "mkdir sub; touch sub/x");
    let bare = "git init -q --bare x; mv x/* .; git config -f config core.bare false; git config -f config core.worktree .; arm config; sleep 0.2";
    meanwhile(&host, "work/project/sub", bare, || {
        host.git_runs_nothing_of_the_workloads(&["work/project/sub"]);
    });
}

#[test]
fn what_settings_name_in_git_is_set_aside_at_once() {
    let host = Host::with_repository();
    let before = "git config include.path branchless/config; mkdir .git/branchless";
    host.sh("work/project", before);
    let script = "arm .git/branchless/config; sleep 0.2";
    let said = meanwhile(&host, "work/project", script, || {
        host.git_runs_nothing_of_the_workloads(&["work/project"]);
    });
    assert_eq!(
        said.matches("config (now config.set-aside-").count(),
        1,
        "{said}"
    );
    // What is no file there does not keep the next one from starting.
    host.sh("work/project", "mkfifo .git/branchless/config");
    host.inside("work/project", &[], "true");
    assert!(!host.at("work/project/.git/branchless/config").exists());
}

#[test]
fn plain_words_of_the_users_settings_name_no_files() {
    let host = Host::with_repository();
    let settings = "[credential]\n\thelper = store\n[color]\n\tui = auto\n[push]\n\tdefault = simple\n[alias]\n\tb = !npm run build\n\tc = !cd src/app && ls\n[safe]\n\tdirectory = PLACE/auto\n";
    let place = host.at("work/project");
    let settings = settings.replace("PLACE", &place.display().to_string());
    fs::write(host.at("work/settings"), settings).unwrap();
    host.sh(
        "work/project",
        "cat ../settings >> ~/.gitconfig; mkdir auto",
    );
    let script = "mkdir -p store build src/app && touch store/x build/x auto/x simple";
    host.inside("work/project", &[], script);
    let left = host.sh(
        "work/project",
        "ls -d store/x build/x auto/x simple src/app",
    );
    assert_eq!(left.lines().count(), 5, "{left}");
}

#[test]
fn a_link_in_a_guarded_place_is_refused() {
    let host = Host::with_repository();
    host.sh("work/project", "mv .git/hooks h; ln -s ../h .git/hooks");
    let output = host.exec("work/project", &[], "true").output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{}", said(&output));
    assert!(
        said(&output).contains("--writable-git"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_name_left_by_one_sandbox_does_not_weaken_the_next() {
    let host = Host::with_repository();
    held(
        &host,
        "work/project",
        "touch .git/gitdir; mkdir .git/gateway",
    );
    held(
        &host,
        "work/project",
        "arm .git/config; hook .git/hooks/pre-commit; rm -rf .git/hooks; echo x > .git/commondir",
    );
}

#[test]
fn git_outside_writes_nothing_through_a_link_of_the_workloads() {
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
    ] {
        let host = Host::with_repository();
        host.sh("home", "echo mine > .bashrc");
        let script = format!("rm -f .git/{name}; ln -s {} .git/{name}; git init -q sub; rm -f sub/.git/{name}; mkdir -p sub/.git/logs/refs/heads
            ln -s {0} sub/.git/{name}; ln -s {0} profile", host.at("home/.bashrc").display());
        let said = held(&host, "work/project", &script);
        assert_eq!(host.sh("home", "cat .bashrc"), "mine\n", "{name}");
        assert!(
            said.contains(&format!("unlinked .git/{name}"))
                || said.contains(&format!(", .git/{name}")),
            "{said}"
        );
        assert!(
            said.contains("profile, leading out of the project"),
            "{said}"
        );
    }
}

#[test]
fn git_works_inside_and_leaves_nothing_of_ours() {
    let host = Host::with_repository();
    let before = host.sh("work/project", "ls -A .git | sort; ls -A | sort");
    let said = host.inside(
        "work/project",
        &[],
        "set -e; rm -r evil-hooks; echo 2 >> file; git add file; git commit -q -m two; git checkout -q -b side; echo 3 >> file; git commit -q -a -m three
         git checkout -q main; git merge -q side; git branch -q -d side; echo 4 >> file; git stash -q; git stash pop -q; git commit -q -a -m four
         git tag t; git pack-refs --all; git tag -d t > /dev/null; git gc -q; git rebase -q --force-rebase HEAD~1; git reset -q --soft HEAD~1; git commit -q -m again; git fsck; git status --short; echo done",
    );
    assert!(
        said.contains("done\n") && !said.contains("set aside"),
        "{said}"
    );
    assert_eq!(
        host.sh("work/project", "git log --format=%s"),
        "again\nthree\ntwo\none\n"
    );
    host.sh("work/project", "git fsck --strict; git config a.b c; rm -f .git/ORIG_HEAD .git/gc.log .git/packed-refs .git/AUTO_MERGE");
    assert_eq!(
        host.sh("work/project", "ls -A .git | sort; ls -A | sort"),
        before
    );
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

#[test]
fn a_project_without_a_repository_has_none_afterwards() {
    let host = Host::new();
    host.inside("work/project", &[], "git status; rm -r evil-hooks");
    assert_eq!(host.sh("work/project", "ls -A"), "");
    host.inside(
        "work/project",
        &["--writable-git"],
        "git init -q; git config a.b c",
    );
    assert_eq!(host.sh("work/project", "git config a.b"), "c\n");
}

#[test]
fn a_project_that_is_read_only_stays_as_it_was() {
    let init = "chmod 700 .; git init -q; chmod 500 . .git";
    for (script, left) in [("true", "555\n"), (init, ".git\n500\n")] {
        let host = Host::new();
        host.sh("work/project", "chmod 555 .");
        let said = host.inside("work/project", &[], script);
        assert!(!said.contains("could not be"), "{said}");
        assert_eq!(host.sh("work/project", "ls -A; stat -c %a ."), left);
        host.git_runs_nothing_of_the_workloads(&["work/project"]);
    }
}

#[test]
fn what_refuses_to_start_leaves_nothing_in_the_project() {
    let host = Host::new();
    for home in [None, Some(""), Some("/nonexistent")] {
        let mut exec = host.command(env!("CARGO_BIN_EXE_gateway"), "work/project");
        exec.env_remove("HOME");
        exec.envs(home.map(|home| ("HOME", home)));
        let output = exec.args(["exec", "--", "true"]).output().unwrap();
        let told = said(&output);
        assert_eq!(output.status.code(), Some(125), "{told}");
        let names = home.filter(|home| !home.is_empty()).unwrap_or("HOME");
        assert!(told.contains(names) && told.contains("next: "), "{told}");
        assert_eq!(host.sh("work/project", "ls -A"), "", "{told}");
    }
}

#[test]
fn a_launcher_that_is_killed_leaves_nothing_armed() {
    let host = Host::new();
    let script =
        "git init -q; arm .git/config; git init -q sub; arm sub/.git/config; echo armed; sleep 60";
    let mut child = host
        .exec("work/project", &["-q"], script)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let line = first_line(&mut child);
    assert_eq!(line, "armed\n");
    // While it runs, too, the project's own place holds.
    assert!(
        !host
            .command("/usr/bin/git", "work/project")
            .arg("status")
            .status()
            .unwrap()
            .success()
    );
    assert!(!host.at("work/project/ran").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let settled = || {
        let mut entries = fs::read_dir(host.at("work/project/sub/.git"))
            .unwrap()
            .flatten();
        entries.any(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .starts_with("set-aside-by-")
        })
    };
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !settled() {
        assert!(
            std::time::Instant::now() < until,
            "the gateway process did not settle"
        );
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    host.git_runs_nothing_of_the_workloads(&["work/project", "work/project/sub"]);
}

#[test]
fn a_sandbox_that_ends_does_not_uncover_another_in_the_same_project() {
    another_is_not_uncovered("home");
}

#[test]
fn a_sandbox_of_another_home_does_not_uncover_one_in_the_same_project() {
    another_is_not_uncovered("other-home");
}

#[track_caller]
fn another_is_not_uncovered(home: &str) {
    let host = Host::with_repository();
    host.sh("work", "mkdir other-home");
    let home = if home == "home" {
        host.at("home")
    } else {
        host.at("work/other-home")
    };
    host.sh("work/project", "mkfifo go");
    let script = "echo ready; read line < go; arm .git/config; echo ../evil > .git/commondir; arm .git/config.worktree; mkdir .git/modules/x";
    let mut first = host
        .exec("work/project", &["-q"], script)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    first_line(&mut first);
    let second = host
        .exec("work/project", &[], "true")
        .env("HOME", home)
        .output()
        .unwrap();
    assert!(second.status.success(), "{}", said(&second));
    assert!(
        host.at("work/project/.git/commondir").exists(),
        "the other sandbox's mount lies on it"
    );
    host.sh("work/project", "echo > go");
    first.wait().unwrap();
    host.git_runs_nothing_of_the_workloads(&["work/project"]);
    assert!(!host.at("work/project/.git/commondir").exists());
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

/// One sandbox makes a repository, a second one begins, the first one ends, and the second one arms
/// what the first one's end has disarmed.
#[test]
fn what_one_sandbox_made_is_not_the_users_to_another_one() {
    let host = Host::with_repository();
    host.sh("work/project", "mkfifo go again");
    let begin = |script: &str| until_ready(host.exec("work/project", &[], script));
    let rebase =
        "mkdir .git/rebase-merge; echo exec touch $MARK > .git/rebase-merge/git-rebase-todo";
    let first = begin(&format!(
        "git init -q sub; arm sub/.git/config; {rebase}; echo ready; read line < go"
    ));
    let second =
        begin("echo ready; read line < again; git -C sub config a.b c; arm sub/.git/config");
    host.sh("work/project", "echo > go");
    let first = said(&first.wait_with_output().unwrap());
    assert!(first.contains("new git  sub/.git"), "{first}");
    host.sh("work/project", "echo > again");
    let second = said(&second.wait_with_output().unwrap());
    assert!(second.contains("new git  sub/.git"), "{second}");
    assert!(second.contains(".git/rebase-merge (now"), "{second}");
    host.git_runs_nothing_of_the_workloads(&["work/project", "work/project/sub"]);
}

#[test]
fn files_that_tools_run_are_told_at_the_end() {
    let host = Host::with_repository();
    host.sh("work/project", "echo all: > Makefile; mkdir app; echo '{}' > app/package.json; touch AGENTS.md; mkdir .vscode; touch .vscode/settings.json");
    let script = "echo bad >> Makefile; touch -d 2001-01-01 Makefile; echo bad > app/package.json; echo x > .envrc; mkdir -p deep/.vscode; echo x > deep/.vscode/tasks.json
        printf x > \"$(printf 'a\\033[31m.mk')\"; mv AGENTS.md a; mv a AGENTS.md; echo x > main.c";
    let said = host.inside("work/project", &[], script);
    for expected in [
        "changed  Makefile, which make runs",
        "changed  app/package.json, which npm",
        "new      .envrc, which direnv",
        "new      deep/.vscode/tasks.json, which VS Code",
        "new      `a\\u{1b}[31m.mk`, which make",
        "changed  AGENTS.md",
    ] {
        assert!(said.contains(expected), "no {expected} in\n{said}");
    }
    assert!(
        !said.contains("main.c") && !said.contains("settings.json") && !said.contains('\u{1b}'),
        "{said}"
    );
    let said = host.inside("work/project", &[], "true");
    assert!(!said.contains("which"), "{said}");
    let said = host.inside("work/project", &["-q"], "echo x >> Makefile");
    assert_eq!(said, "");
    let said = host.inside("work/project", &[], "rm Makefile");
    assert!(said.contains("removed  Makefile, which make"), "{said}");
}

#[test]
fn many_files_of_one_kind_hide_none_of_another() {
    let host = Host::with_repository();
    let flood = "for i in $(seq 50); do echo > $i.mk; ln -s /etc/x $i.l; done; echo x > .envrc";
    let said = host.inside("work/project", &[], flood);
    for expected in [
        "new      .envrc, which direnv",
        "and 45 more, which make",
        "and 45 more, leading out",
    ] {
        assert!(said.contains(expected), "no {expected} in\n{said}");
    }
    let list = said.rsplit_once("see ").unwrap().1.trim();
    let whole = fs::read_to_string(list).unwrap();
    assert_eq!(whole.matches(".mk").count(), 50, "{whole}");
}

#[test]
fn what_no_list_of_tools_names_is_told_if_a_dot_begins_it() {
    let host = Host::with_repository();
    host.sh(
        "work/project",
        "mkdir docs; touch docs/config.toml .strange; ln -s docs .cargo",
    );
    let script = "mkdir .hg .unheard-of; echo x > .hg/hgrc; echo x > .pdbrc; echo x > .unheard-of/rc; echo x > .unheard-of/b; rm .strange
        echo x >> docs/config.toml; mkdir kept; echo x > kept/settings.json; ln -s kept .claude
        mkdir closed; echo x > closed/.envrc; chmod 444 closed";
    let said = host.inside("work/project", &[], script);
    for expected in [
        "new      .hg/hgrc, which Mercurial",
        "new      .pdbrc, which pdb",
        "new      .unheard-of/ (2 files), which a tool may",
        "removed  .strange",
        "changed  docs/config.toml, which cargo",
        "new      .claude, which Claude Code",
        "new      closed/.envrc, which direnv",
    ] {
        assert!(said.contains(expected), "no {expected} in\n{said}");
    }
}

#[test]
fn a_link_that_leads_out_through_another_is_told() {
    let host = Host::with_repository();
    let said = host.inside(
        "work/project",
        &[],
        "mkdir -p a/b; ln -s ../.. a/b/s; ln -s s/../victim a/b/out; ln -s ../b a/b/in",
    );
    assert!(said.contains("new link a/b/out, leading"), "{said}");
    assert!(!said.contains("a/b/in"), "{said}");
}

#[test]
fn what_is_too_deep_for_a_name_is_found_and_told() {
    let host = Host::with_repository();
    let script = "perl -e '$d = \"d\" x 250; for (1..20) { mkdir $d; chdir $d } mkdir q(.git); open F, q(>.git/config); open F, q(>.envrc)'";
    let said = host.inside("work/project", &[], script);
    assert!(said.contains("/.git: could not be set aside"), "{said}");
    assert!(said.contains("/.envrc, which direnv"), "{said}");
    assert!(said.lines().all(|line| line.len() < 500), "{said}");
}

/// Git continues what was begun, and runs what its state says.
#[test]
fn what_git_would_obey_later_is_set_aside() {
    let rebase = "GIT_SEQUENCE_EDITOR='sed -i 1s/pick/edit/' git rebase -q -i HEAD~1; echo \"exec touch $MARK\" > $(git rev-parse --git-dir)/rebase-merge/git-rebase-todo";
    let host = Host::with_repository();
    host.sh(
        "work/project",
        "git commit -q --allow-empty -m two; git worktree add -q tree -b tree
         git init -q ../other; cd ../other; git commit -q --allow-empty -m one; git commit -q --allow-empty -m two
         cd ../project; git submodule --quiet add ../other module; git commit -q -m module",
    );
    let begun = format!("{rebase}; (cd tree; {rebase}); (cd module; {rebase})");
    let script = format!("{begun}
        echo '* filter=x' > .git/info/attributes; mkdir -p .git/objects/info; echo /x > .git/objects/info/alternates
        echo x > .git/lazygit.yml");
    let said = host.inside("work/project", &[], &script);
    for name in [
        ".git/rebase-merge",
        ".git/worktrees/tree/rebase-merge",
        ".git/modules/module/rebase-merge",
        ".git/info/attributes",
        ".git/objects/info/alternates",
        ".git/lazygit.yml",
    ] {
        assert!(said.contains(&format!("{name} (now ")), "{name}: {said}");
    }
    for folder in ["", "/tree", "/module"] {
        let folder = format!("work/project{folder}");
        host.sh(&folder, "git rebase --continue || true");
        assert!(!host.at("work/project/ran").exists(), "{folder}");
    }
}

/// What looks like a bare repository now is the user's folder still.
#[test]
fn what_makes_a_users_folder_look_like_a_repository_moves_none_of_it() {
    let host = Host::with_repository();
    host.sh(
        "work/project",
        "mkdir -p src/lib docs; echo 1 > src/main.rs; ln -s main.rs src/l; touch src/lib/a Makefile; git add .; git commit -q -m two; echo 2 > src/new.rs",
    );
    let all =
        "find . -not -path './.git/*' -not -name evil-hooks -not -path './evil-hooks/*' | sort";
    let before = host.sh("work/project", all);
    let said = held(
        &host,
        "work/project",
        "for i in . src; do mkdir $i/objects $i/refs; : > $i/HEAD; done; echo bad >> Makefile",
    );
    assert!(
        said.contains("src/HEAD (now") && said.contains("changed  Makefile"),
        "{said}"
    );
    host.sh("work/project", "find . -name 'HEAD.set-aside-*' -not -path './.git/*' -delete; rmdir objects refs src/objects src/refs");
    assert_eq!(host.sh("work/project", all), before);
}

#[test]
fn sandboxes_in_worktrees_of_one_repository_leave_each_others_alone() {
    let host = Host::with_repository();
    host.sh(
        "work/project",
        "git worktree add -q ../a -b a; mkfifo ../a/go",
    );
    let first = host
        .exec(
            "work/a",
            &[],
            "echo 2 >> file; git commit -qam two; read line < go",
        )
        .spawn();
    let mut first = first.unwrap();
    until(|| {
        host.at("work/project/.git/refs/heads/a").exists()
            && host.sh("work/a", "git log --format=%s -1") == "two\n"
    });
    host.sh(
        "work/project",
        "git worktree add -q ../b -b b; mkfifo ../b/go; git commit -q --allow-empty -m x; GIT_SEQUENCE_EDITOR='sed -i 1s/pick/edit/' git rebase -q -i HEAD~1",
    );
    let mut second = host
        .exec(
            "work/b",
            &[],
            "touch up; read line < go; echo 3 >> file; git commit -qam three",
        )
        .spawn()
        .unwrap();
    until(|| host.at("work/b/up").exists());
    host.sh("work/a", "echo > go");
    first.wait().unwrap();
    host.sh("work/b", "git status --short; echo > go");
    second.wait().unwrap();
    for (folder, last) in [("work/a", "two\n"), ("work/b", "three\n")] {
        assert_eq!(host.sh(folder, "git log --format=%s -1"), last);
    }
    host.sh("work/project", "git rebase --continue");
}

#[track_caller]
fn until(is_so: impl Fn() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !is_so() {
        assert!(std::time::Instant::now() < end, "it does not come to it");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_project_that_became_a_link_leads_the_end_nowhere() {
    let host = Host::with_repository();
    host.sh("work", "mkdir victim; cd victim; git init -q; git config alias.x '!true'; echo own > Makefile; git init -q nested; git -C nested config alias.x '!true'; mkdir ../project/inner");
    let victim = "cat .git/config nested/.git/config Makefile; find . | sort";
    let before = host.sh("work/victim", victim);
    let link = format!(
        "while [ ! -e inner/up ]; do sleep 0.05; done; mv inner moved; ln -s {} inner; touch done; sleep 3",
        host.at("work/victim").display()
    );
    let mut outer = host.exec("work/project", &["-q"], &link).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    host.inside(
        "work/project/inner",
        &["--guard-tools"],
        "touch up; sleep 2",
    );
    assert!(host.at("work/project/done").exists());
    outer.wait().unwrap();
    assert_eq!(host.sh("work/victim", victim), before);
}

#[test]
fn links_of_many_steps_do_not_hold_up_the_end() {
    let host = Host::with_repository();
    let script = "perl -e 'for (1..1000) { mkdir q(a); chdir q(a) }'; for i in 1 2 3 4; do ln -s $(printf 'a/%.0s' $(seq 1000))x l$i; ln -s $(printf 'a/%.0s' $(seq 1000)) k$i; done
        git init -q sub; arm sub/.git/config";
    let began = std::time::Instant::now();
    held(&host, "work/project", script);
    assert!(
        began.elapsed() < std::time::Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
}

/// As the test above, but the first one's repository looks like a place of the gateway's until the
/// first one has ended.
#[test]
fn what_looks_like_another_sandboxs_place_is_not_the_users_to_that_one() {
    let host = Host::with_repository();
    host.sh("work/project", "mkfifo go again");
    let begin = |script: &str| until_ready(host.exec("work/project", &[], script));
    let make = |sub: &str| {
        format!(
            "git init -q {sub}; arm {sub}/.git/config; rm {sub}/.git/HEAD; mkdir {sub}/.git/gateway"
        )
    };
    let first = begin(&format!(
        "{}; mkdir -p bare/.git/gateway; echo ready; read line < go",
        make("sub")
    ));
    let second = begin(
        "echo ready; read line < again; cd sub/.git; echo 'ref: refs/heads/main' > HEAD; rmdir gateway
        cd ../..; rmdir bare/.git/gateway bare/.git; git init -q bare; arm bare/.git/config",
    );
    host.sh("work/project", "echo > go");
    let first = said(&first.wait_with_output().unwrap());
    assert!(first.contains("sub/.git: settings and"), "{first}");
    host.sh("work/project", "echo > again");
    let second = said(&second.wait_with_output().unwrap());
    assert!(second.contains("bare/.git"), "{second}");
    host.git_runs_nothing_of_the_workloads(&[
        "work/project",
        "work/project/sub",
        "work/project/bare",
    ]);
}

/// One sandbox ends while the place of another one, in a folder within, is in use.
#[test]
fn the_place_of_a_sandbox_within_outlasts_the_outer_one() {
    let host = Host::new();
    host.sh("work/project", "mkdir sub; mkfifo go sub/again");
    let begin = |folder: &str, script: &str| until_ready(host.exec(folder, &["-q"], script));
    let mut outer = begin("work/project", "echo ready; read line < go");
    let mut inner = begin(
        "work/project/sub",
        "git init -q; git config user.name x; git config user.email x; git commit -q --allow-empty -m one; echo ready; read line < again",
    );
    host.sh("work/project", "echo > go");
    outer.wait().unwrap();
    host.sh("work/project", "echo > sub/again");
    inner.wait().unwrap();
    let log = host.sh("work/project/sub", "git log --format=%s");
    assert_eq!(log, "one\n");
}

#[test]
fn many_long_paths_neither_fill_the_memory_nor_hide_a_repository() {
    let host = Host::with_repository();
    let script = "perl -e '$d = q(d) x 250; for (1..110) { mkdir $d; chdir $d } for (1..6000) { open F, qq(>.f$_) } mkdir q(x); chdir q(x); mkdir q(.git); open F, q(>.git/config)'
        git init -q sub; arm sub/.git/config
        git init -q full; arm full/.git/config; (cd full/.git/logs || mkdir full/.git/logs && cd full/.git/logs; perl -e '$d = q(d) x 250; for (1..100) { mkdir $d; chdir $d } for (1..500) { symlink q(/etc), $_ }'; ln -s $HOME/x HEAD)
        mkdir .git/x; cd .git/x; perl -e '$d = q(d) x 250; for (1..60) { mkdir $d; chdir $d } for (1..2000) { open F, qq(>.f$_) }'
        mkdir ../rebase-merge";
    let began = std::time::Instant::now();
    let said = held(&host, "work/project", script);
    assert!(said.contains("sub/.git: settings"), "{said}");
    assert!(said.contains("full/.git (now"), "{said}");
    assert!(said.contains(".git/rebase-merge (now"), "{said}");
    assert!(said.contains("unsearched"), "{said}");
    let list =
        "cd .local/state; find . -name left.txt -size -8M -exec grep -c '/x/.git: could not' {} +";
    assert_eq!(host.sh("home", list), "1\n");
    let took = began.elapsed();
    assert!(took < std::time::Duration::from_secs(20), "{took:?}");
}

#[test]
fn links_of_many_steps_hide_nothing_that_the_users_links_lead_to() {
    let host = Host::with_repository();
    host.sh(
        "work/project",
        "mkdir -p config/vscode docs; echo 1 > config/vscode/tasks.json; echo 1 > docs/guide.md
        ln -s config/vscode .vscode; ln -s docs/guide.md CLAUDE.md; mkdir -p n/a; ln -s ../../docs/guide.md n/a/AGENTS.md",
    );
    let script = "perl -e 'mkdir q(z); mkdir q(z/d); symlink q(d/../) x 800 . q(d), q(z/l0);
            for (1..37) { symlink q(l) . ($_ - 1) . q(/../) . q(d/../) x 700 . q(d), qq(z/l$_) }
            for $f (0..39) { mkdir qq(f$f); symlink q(../z/l37), qq(f$f/$_) for 0..59 }'
        echo 2 >> config/vscode/tasks.json; echo 2 >> docs/guide.md; echo 2 > config/vscode/settings.json";
    let said = host.inside("work/project", &[], script);
    let list = "cd .local/state; find . -name left.txt -exec cat {} +";
    let told = host.sh("home", list);
    for line in [
        "new      config/vscode/settings.json",
        "changed  config/vscode/tasks.json",
        "changed  docs/guide.md",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    for link in [".vscode", "CLAUDE.md", "n/a/AGENTS.md"] {
        let told = told.contains(&format!("project/{link},"));
        assert!(!told, "{link}: {said}");
    }
}

#[test]
fn repositories_in_gits_own_folders_run_nothing() {
    let host = Host::with_repository();
    host.sh(
        "work/project",
        "mkdir .git/custom; git init -q --separate-git-dir=.git/custom/s s; git -C s commit -q --allow-empty -m one",
    );
    let new = [".git/refs/x", ".git/logs/x", ".git/objects/x", ".git/lfs/x"];
    let make = |path: &&str| {
        format!(
            "git init -q --bare {path}; git --git-dir={path} config core.bare false; git --git-dir={path} config core.worktree $PWD; arm {path}/config; "
        )
    };
    let script: String = new.iter().map(make).collect();
    let script =
        format!("git -C s commit -q --allow-empty -m two; {script} arm .git/custom/s/config");
    let said = held(&host, "work/project", &script);
    let log = host.sh("work/project/s", "git log --format=%s");
    assert_eq!(log, "two\none\n");
    host.git_runs_nothing_of_the_workloads(&["work/project/s"]);
    for path in new {
        host.git_runs_nothing_of_the_workloads(&[&format!("work/project/{path}")]);
        assert!(said.contains(path), "{path}: {said}");
    }
}

#[test]
fn the_users_own_names_are_neither_renamed_nor_removed() {
    let host = Host::with_repository();
    host.sh(
        "work/project",
        "mkdir -p conf/hooks head/hooks; echo own > conf/config; echo own > conf/hooks/x; ln -s x conf/hooks/l; mkdir conf/branches; echo 1 > conf/branches/config; echo own > head/HEAD; echo own > head/config
        rm -r .git/hooks; mkdir .git/hooks ../shared .git/rr-cache; rmdir .git/rr-cache; ln -s ../../shared .git/rr-cache; ln -s ../../shared .git/lfs; sleep 1.1",
    );
    let own = "find conf head .git/hooks .git/rr-cache ! -name '*.set-aside-*' | sort; cat conf/config conf/hooks/x head/HEAD head/config";
    let before = host.sh("work/project", own);
    let script = "mkdir conf/objects conf/refs head/objects head/refs; echo 'ref: refs/heads/main' > conf/HEAD
        arm conf/config; sed -i '/./d' conf/config; echo own > conf/config; touch -h .git/rr-cache; rm .git/lfs; ln -s /etc .git/lfs";
    let said = held(&host, "work/project", script);
    for name in ["conf/HEAD", "conf/objects", "head/refs", ".git/lfs"] {
        assert!(said.contains(&format!("{name} (now ")), "{name}: {said}");
    }
    assert_eq!(host.sh("work/project", own), before, "{said}");
    assert_eq!(
        host.sh("work/project", "ls -d .git/modules .git/worktrees || true"),
        ""
    );
    assert!(!host.at("work/project/.git/lfs").is_symlink());
}

#[test]
fn a_repository_whose_settings_cannot_be_read_is_not_taken_for_harmless() {
    let host = Host::with_repository();
    let script = "git init -q sub; arm sub/.git/config; chmod 0 sub/.git/config";
    host.inside("work/project", &[], script);
    host.sh("work/project", "chmod 644 sub/.git/config");
    host.git_runs_nothing_of_the_workloads(&["work/project/sub"]);
}

#[test]
fn a_folder_that_became_a_link_hides_no_file_of_tools() {
    let host = Host::with_repository();
    host.sh("work/project", "mkdir app; echo all: > app/Makefile");
    let script = "mkdir target; mv app target/app; ln -s target/app app; echo bad >> app/Makefile";
    let said = host.inside("work/project", &[], script);
    assert!(said.contains("removed  app/Makefile, which make"), "{said}");
}

#[test]
fn with_guard_tools_what_the_user_changes_meanwhile_stays() {
    let host = Host::with_repository();
    host.sh("work/project", "echo all: > Makefile; mkfifo go");
    let mut child = host
        .exec(
            "work/project",
            &["--guard-tools"],
            "touch up; read line < go",
        )
        .spawn()
        .unwrap();
    until(|| host.at("work/project/up").exists());
    host.sh("work/project", "echo own >> Makefile; echo > go");
    child.wait().unwrap();
    assert_eq!(host.sh("work/project", "cat Makefile"), "all:\nown\n");
}

#[test]
fn a_folder_that_an_earlier_run_closed_keeps_nothing_armed() {
    let host = Host::with_repository();
    host.inside("work/project", &[], "mkdir -p x/y; chmod 000 x");
    let said = held(
        &host,
        "work/project",
        "git init -q sub; arm sub/.git/config",
    );
    assert!(said.contains("set aside"), "{said}");
    let mode = fs::metadata(host.at("work/project/x"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0);
}

#[test]
fn with_guard_tools_no_such_file_changes_or_comes() {
    let host = Host::with_repository();
    host.sh(
        "work/project",
        "echo all: > Makefile; mkdir sub docs; echo '{}' > sub/package.json; echo own > docs/config.toml; ln -s docs .cargo",
    );
    host.sh("work/project", "mkdir mk; echo all: > mk/main; ln -s mk/main linked.mk; mkdir .claude; echo '{}' > .claude/settings.json");
    let script = "echo bad > mk/main; mv mk gone; mv .claude gone; rm linked.mk; echo bad > docs/config.toml
        echo bad > Makefile; rm -f Makefile; echo bad > sub/package.json; mv sub gone; mkdir -p sub; echo bad > sub/package.json
        echo x > .envrc; mkdir .vscode; echo x > .vscode/tasks.json; ln -s main.c GNUmakefile; mkdir kept; echo x > kept/settings.json; ln -s kept .zed
        git config a.b c; echo 2 >> file; git commit -qam inside";
    let check = |said: &str| {
        assert!(said.contains(".envrc (now .envrc.set-aside-"), "{said}");
        let files = host.sh("work/project", "cat Makefile docs/config.toml; find . -name .zed -o -name .envrc -o -name tasks.json -o -name package.json -o -name GNUmakefile; cat $(find . -name package.json)");
        assert!(
            !files.contains("bad") && files.matches("package.json").count() <= 1,
            "{files}"
        );
        let kept = host.sh("work/project", "cat linked.mk .claude/settings.json");
        assert_eq!(kept, "all:\n{}\n");
        assert!(
            !files.contains(".zed")
                && !files.contains(".envrc")
                && !files.contains("tasks.json")
                && !files.contains("GNU"),
            "{files}"
        );
    };
    check(&host.inside("work/project", &["--guard-tools"], script));
    fs::write(
        host.at("work/project/gateway.toml"),
        "[sandbox]\nguard_tools = true\n",
    )
    .unwrap();
    let mut allow = host.command(env!("CARGO_BIN_EXE_gateway"), "work/project");
    allow.args(["project", "allow", "--yes", "gateway.toml"]);
    assert!(allow.status().unwrap().success());
    check(&host.inside("work/project", &["--config", "gateway.toml"], script));
}

#[test]
fn programs_in_the_folders_of_path_are_told() {
    let host = Host::with_repository();
    let bin = host.at("work/project/bin").display().to_string();
    let script = "mkdir bin; cp /bin/true bin/ls; cp /bin/true top; echo x > bin/note; echo x > bin/Makefile; ln -s ls bin/git; rm -f old; mkdir -p .github; echo x > .github/.envrc";
    let run = |path: &str| {
        host.sh("work/project", "rm -rf bin top .github");
        let mut command = host.exec("work/project", &[], script);
        said(&command.env("PATH", path).output().unwrap())
    };
    let told = run(&format!("{bin}:/usr/bin:/bin"));
    let shell = "bin/git, bin/ls, which your shell (`PATH`) runs or obeys";
    assert!(told.contains(shell), "{told}");
    assert!(!told.contains("bin/note"), "{told}");
    // The name of a file says more than that of its folder.
    assert!(told.contains(".github/.envrc, which direnv runs"), "{told}");
    let told = run("/usr/bin:/bin:.");
    assert!(told.contains("top, which your shell (`PATH`)"), "{told}");
    assert!(!told.contains("bin/ls"), "{told}");
}

#[test]
fn a_run_that_changes_nothing_leaves_the_folders_as_they_were() {
    let host = Host::with_repository();
    host.sh("work/project", "mkdir -p a/b c target/d");
    // In `.` and `.git`, placeholders are made and removed.
    let find = "find a c target .git/* -type d -printf '%C@ %m %p\\n'";
    let before = host.sh("work/project", find);
    host.inside("work/project", &[], "true");
    assert_eq!(host.sh("work/project", find), before);
}

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
hook() { printf '#!/bin/sh\ntouch "%s"\n' "$MARK" | git hash-object -w --stdin; }
"#;

#[test]
fn an_index_makes_git_write_nowhere_but_in_the_working_tree() {
    let host = Host::with_repository();
    host.sh("work/project", "mkdir src; echo 1 > src/x; git add -A; git commit -qm src; git init -q known; cd known; echo 1 > x; git add x; git commit -qm x");
    let scripts = [
        "forge .git/index 100755:.git/hooks/post-checkout:$(hook)",
        "forge .git/index 100644:../outside:$(hook)",
        "forge .git/index 100755:src/../.git/hooks/post-checkout:$(hook)",
        "hook=$(cd known; hook); forge known/.git/index 100755:../.git/hooks/post-checkout:$hook",
        "git init -q new; cd new; echo 1 > x; git add x; forge .git/index 100755:../.git/hooks/post-checkout:$(hook)",
    ];
    for script in scripts {
        let said = host.inside("work/project", &[], &format!("{FORGE}\n{script}"));
        assert!(
            said.contains("set aside") && said.contains("index"),
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
}

#[test]
fn a_sandbox_in_a_worktree_forges_no_index_of_the_repository() {
    let host = Host::with_repository();
    host.sh("work/project", "git worktree add -q ../tree");
    let common = host.at("work/project/.git").display().to_string();
    for script in [
        format!("forge {common}/index 100755:.git/hooks/post-checkout:$(hook)"),
        format!(
            "forge {common}/worktrees/tree/index 100755:../project/.git/hooks/post-checkout:$(hook)"
        ),
    ] {
        let said = host.inside("work/tree", &[], &format!("{FORGE}\n{script}"));
        assert!(
            said.contains("set aside") || said.contains("Error"),
            "{said}"
        );
        for folder in ["work/project", "work/tree"] {
            host.sh(folder, "git reset -q; git checkout -q .");
        }
        assert!(
            !host.at("work/project/.git/hooks/post-checkout").exists(),
            "{script}"
        );
    }
}

#[test]
fn while_the_command_runs_a_forged_index_is_set_aside_at_once() {
    let host = Host::with_repository();
    let script = format!(
        "{FORGE}\nforge .git/index 100755:.git/hooks/post-checkout:$(hook); touch done; while [ ! -e go ]; do sleep 0.05; done"
    );
    let mut child = host.exec("work/project", &["-q"], &script).spawn().unwrap();
    until(|| host.at("work/project/done").exists());
    until(|| !host.at("work/project/.git/index").exists());
    host.sh("work/project", "git reset -q; git checkout -q .; touch go");
    child.wait().unwrap();
    assert!(!host.at("work/project/.git/hooks/post-checkout").exists());
}

/// A script of the workload: the function `raw MODE`, which writes an index that leads to
/// `../outside` in a way that a reader may overlook.
const RAW: &str = r#"
raw() { id=$(echo evil | git hash-object -w --stdin); python3 - "$id" "$@" <<'P'
import struct, sys
id, mode, file = bytes.fromhex(sys.argv[1]), sys.argv[2], sys.argv[3]
name = b"../outside"
def index(flags, name, rest):
    entry = bytes(24) + struct.pack(">I", 0o100644) + bytes(12) + id + struct.pack(">H", flags) + name
    return b"DIRC" + struct.pack(">II", 2, 1) + entry + rest
plain = index(len(name), name, bytes(8 - (62 + len(name)) % 8))
with open(file, "wb") as out:
    if mode == "plain": out.write(plain + bytes(20))
    if mode == "end": out.write(index(0xfff, name, b""))
    if mode == "large":
        out.write(plain + b"ZZZZ" + struct.pack(">I", 256 << 20)); out.seek(256 << 20, 1); out.write(bytes(20))
P
}
"#;

#[test]
fn an_index_is_read_as_git_reads_it() {
    for script in [
        "raw end .git/index",
        "raw large .git/index",
        "chmod 0311 .git; raw plain .git/index",
        "raw plain .git/index; chmod 0 .git",
        "raw plain .git/index; chmod 0 .git/index",
        "git init -q new; raw plain new/.git/index; chmod 0311 new/.git",
        "git init -q new; raw plain new/.git/index; chmod 0 new/.git",
        "git init -q new; raw plain new/.git/index; printf '[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n\tobjectformat = sha1\n' > new/.git/config",
        "git init -q new; raw plain new/.git/index; printf '[core]\n\trepositoryformatversion = 1\n[extensions \"x\"]\n\tobjectformat = sha256\n' > new/.git/config",
        "git init -q new; raw plain new/.git/index; printf '[extensions]\n\tobjectformat = sha256\n' > new/.git/config",
    ] {
        let host = Host::with_repository();
        let said = host.inside("work/project", &[], &format!("{RAW}\n{script}"));
        assert!(
            said.contains(".git/index (now index.set-aside-"),
            "{script}\n{said}"
        );
        let checkout = "chmod u+rwx .git; git checkout -q . || true
            [ ! -d new ] || { chmod u+rwx new/.git; cd new; git checkout -q . || true; }";
        host.sh("work/project", checkout);
        let outside = "ls ../outside outside 2>/dev/null || true";
        assert_eq!(host.sh("work/project", outside), "", "{script}");
    }
}

#[test]
fn an_index_that_changes_through_a_mapping_is_read_again_at_the_end() {
    let host = Host::with_repository();
    let script = r#"raw plain .git/new; python3 - <<'P'
import mmap, os, time
content = open(".git/new", "rb").read().replace(b"../outside", b"aa/outside")
open(".git/new", "wb").write(content)
mapped = mmap.mmap(os.open(".git/new", os.O_RDWR), 0)
at = content.index(b"aa/outside")
os.rename(".git/new", ".git/index")
time.sleep(0.2)
mapped[at:at + 1] = b"a"
time.sleep(0.2)
open(".git/x.lock", "w").close()
time.sleep(0.5)
mapped[at:at + 2] = b".."
P"#;
    let said = host.inside("work/project", &[], &format!("{RAW}\n{script}"));
    assert!(said.contains(".git/index (now index.set-aside-"), "{said}");
}

#[test]
fn many_shared_indexes_do_not_hold_up_the_end() {
    let host = Host::with_repository();
    let script = r#"python3 - <<'P'
import struct
entry = bytes(24) + struct.pack(">I", 0o160000) + bytes(32) + struct.pack(">H", 8)
for file in range(20):
    with open(".git/sharedindex.%040x" % file, "wb") as out:
        out.write(b"DIRC" + struct.pack(">II", 2, 100000))
        out.write(b"".join(entry + b"%08x\0\0" % at for at in range(100000)) + bytes(20))
P
date +%s"#;
    let said = host.inside("work/project", &[], script);
    let ended = said.lines().find_map(|line| line.parse::<u64>().ok());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let took = now.unwrap().as_secs() - ended.unwrap();
    assert!(took < 10, "{took} s\n{said}");
    assert!(!said.contains("index (now"), "{said}");
}

#[test]
fn a_merge_of_the_users_outside_of_the_project_goes_on_meanwhile() {
    let host = Host::with_repository();
    host.sh("work/project", "git checkout -qb other; echo 2 > file; git commit -qam 2; git checkout -q main; echo 3 > file; git commit -qam 3; git worktree add -qb tree ../tree; git config rerere.enabled true");
    let list = "ls .git | grep MERGE_RR";
    let said = meanwhile(&host, "work/tree", "true", || {
        host.sh("work/project", "git merge other || true; sleep 0.5");
        assert_eq!(host.sh("work/project", list), "MERGE_RR\n");
    });
    assert_eq!(host.sh("work/project", list), "MERGE_RR\n", "{said}");
    assert!(said.contains("MERGE_RR"), "{said}");
    let script = "echo > $(git rev-parse --git-dir)/MERGE_RR";
    let said = host.inside("work/tree", &[], script);
    assert!(said.contains("MERGE_RR (now"), "{said}");
}

#[test]
fn no_commit_outside_copies_what_the_command_named_into_the_repository() {
    let host = Host::with_repository();
    host.sh("work/project", "echo private > ../key; echo 2 >> file");
    let script = r#"h=0123456789abcdef0123456789abcdef01234567; mkdir -p .git/rr-cache/$h
        printf '<<<<<<<\na\n=======\nb\n>>>>>>>\n' > .git/rr-cache/$h/preimage; printf "$h\t../key\0" > .git/MERGE_RR"#;
    let live = format!("{script}\ntouch done; while [ ! -e go ]; do sleep 0.05; done");
    let mut child = host.exec("work/project", &["-q"], &live).spawn().unwrap();
    until(|| host.at("work/project/done").exists());
    until(|| !host.at("work/project/.git/MERGE_RR").exists());
    host.sh("work/project", "git commit -qam live; touch go");
    child.wait().unwrap();
    host.inside("work/project", &[], script);
    host.sh("work/project", "echo 3 >> file; git commit -qam work");
    assert_eq!(host.sh("work/project", "ls .git/rr-cache/*"), "preimage\n");
}

#[test]
fn a_link_in_a_repository_is_set_aside_once() {
    let host = Host::with_repository();
    let said = host.inside("work/project", &[], "ln -s /etc/x .git/x; sleep 2");
    let names = host.sh("work/project", "ls -A .git | grep set-aside || true");
    assert!(names.lines().count() <= 1, "{names}{said}");
    assert!(names.matches("set-aside").count() <= 1, "{names}");
}

#[test]
fn an_index_that_takes_long_to_read_holds_up_neither_the_end_nor_the_watch() {
    let host = Host::with_repository();
    let script = r#"cp .git/index i; python3 -c '
import struct
open(".git/index", "wb").write(b"DIRC" + struct.pack(">II", 2, 0) + (b"IEOT" + struct.pack(">II", 0xffffffff, 1)) * 30000)
'; sleep 1; cp i .git/index; git init -q sub; arm sub/.git/config"#;
    let began = std::time::Instant::now();
    let said = host.inside("work/project", &[], script);
    assert!(
        began.elapsed() < std::time::Duration::from_secs(30),
        "{said}"
    );
    host.git_runs_nothing_of_the_workloads(&["work/project/sub"]);
}

#[test]
fn no_index_that_git_writes_is_taken_for_a_forged_one() {
    let work = "for i in 1 2 3; do echo $i >> file; echo $i > new$i; mkdir -p d$i; echo x > d$i/x; git add -A; git commit -qm $i; done; git mv new1 moved; echo 9 >> file; git add file";
    for settings in [
        "git update-index --split-index; echo 2 >> file; git add file",
        "git config index.version 4; git update-index --index-version 4",
        "git config index.threads 4; git config feature.manyFiles true",
        "mkdir d1 e1; echo x > d1/x; echo x > e1/x; git add -A; git commit -qm all; git sparse-checkout set --cone --sparse-index d1",
        "rm -rf .git; git init -q --object-format=sha256; git add -A; git commit -qm one",
        "git config splitIndex.maxPercentChange 1; git config index.threads 4; git config core.splitIndex true; git update-index --split-index",
    ] {
        let host = Host::with_repository();
        host.sh("work/project", settings);
        let said = host.inside("work/project", &[], work);
        assert!(!said.contains("index.set-aside"), "{settings}\n{said}");
        let log = host.sh("work/project", "git log --oneline; git status --short");
        assert!(log.contains("new1 -> moved"), "{settings}\n{log}");
    }
}

#[test]
fn a_large_index_with_a_table_of_offsets_stays() {
    let host = Host::with_repository();
    let script = r#"id=$(git hash-object -w file)
for version in 2 4; do
    seq 30000 | sed "s/.*/100644 $id 0\tmany\/&/" | git -c index.threads=4 update-index --index-version $version --index-info
    grep -c IEOT .git/index; sleep 1
    seq 30000 | sed "s/.*/0 $id 0\tmany\/&/" | git -c index.threads=4 update-index --index-info; sleep 0.5
done
seq 30000 | sed "s/.*/100644 $id 0\tmany\/&/" | git -c index.threads=4 update-index --split-index --index-info"#;
    let said = host.inside("work/project", &[], script);
    assert!(said.starts_with("1\n1\n"), "{said}");
    assert!(!said.contains("set aside"), "{said}");
    let count = host.sh("work/project", "git ls-files | wc -l");
    assert_eq!(count, "30001\n", "{said}");
}

#[test]
fn the_index_of_a_new_repository_stays() {
    let host = Host::with_repository();
    let work = "git add -A; git -c user.name=n -c user.email=e commit -qm one; git update-index --split-index; echo 2 >> x; git add x; cd ..";
    for (folder, options) in [
        ("one", ""),
        ("two", "--object-format=sha256"),
        ("three", "--object-format=sha1"),
    ] {
        let script = format!("git init -q {options} {folder}; cd {folder}; echo 1 > x; {work}");
        let said = host.inside("work/project", &[], &script);
        assert!(!said.contains("index.set-aside"), "{folder}\n{said}");
        let status = host.sh(&format!("work/project/{folder}"), "git status --short");
        assert_eq!(status, "M  x\n", "{folder}\n{said}");
    }
}

#[test]
fn a_head_of_the_users_in_the_working_directory_stays() {
    let host = Host::new();
    host.sh("work/project", "echo mine > HEAD");
    let script = "mkdir objects refs; echo '[core] fsmonitor = evil' > config; sleep 1";
    let said = host.inside("work/project", &[], script);
    assert!(said.contains("set aside"), "{said}");
    assert_eq!(host.sh("work/project", "cat HEAD"), "mine\n");
    let is_bare = "git rev-parse --is-bare-repository 2>/dev/null || true";
    assert_eq!(host.sh("work/project", is_bare), "");
}

#[test]
fn what_npm_answers_is_kept_where_the_command_cannot_write_it_alone() {
    let host = Host::with_repository();
    let npm = "mkdir ../bin ../log; printf '#!/bin/sh\necho https://registry.example\n' > ../bin/npm; chmod 755 ../bin/npm; chmod 700 ../log";
    host.sh("work/project", npm);
    let log = host.at("work/log/a.jsonl").display().to_string();
    let path = format!("{}:/usr/bin:/bin", host.at("work/bin").display());
    for (state, is_kept) in [("home/state", true), ("work/project/state", false)] {
        let mut command = host.exec("work/project", &["--audit", &log], "true");
        command
            .env("PATH", &path)
            .env("XDG_STATE_HOME", host.at(state));
        let output = command.output().unwrap();
        // A state that could not be hidden from the command stops it.
        assert_eq!(output.status.success(), is_kept, "{}", said(&output));
        let kept = host.at(state).join("gateway/answers/npm");
        assert_eq!(kept.exists(), is_kept, "{state}\n{}", said(&output));
    }
}

#[test]
fn settings_beyond_what_is_read_of_them_do_not_stay() {
    let host = Host::new();
    let script = r#"git init -q; git init -q sub
        for one in . sub; do perl -e '$end = qq([core]\n) . qq(\tbare = false\n) x 70000;
            $begin = qq([remote "o"]\n\turl = https://a/); print $begin, q(y) x ((1 << 20) - length($begin . $end)), qq(\n), $end' > $one/.git/config
            arm $one/.git/config; done"#;
    let said = held(&host, "work/project", script);
    assert!(said.contains("new git  .git, sub/.git"), "{said}");
}

#[test]
fn a_repository_that_is_made_to_look_like_a_place_is_searched() {
    let host = Host::with_repository();
    let script = "mkdir .git/rebase-merge .git/gateway; echo exec touch $MARK > .git/rebase-merge/git-rebase-todo
        rm .git/HEAD .git/logs/HEAD; ln -s $HOME/x .git/logs/HEAD";
    let said = held(&host, "work/project", script);
    assert!(said.contains(".git/rebase-merge (now"), "{said}");
    assert!(said.contains("unlinked .git/logs/HEAD"), "{said}");
}

/// A lock that the command took and sent in a message outlives it for some milliseconds.
#[test]
fn a_lock_of_the_commands_in_a_message_is_no_other_sandbox() {
    let host = Host::with_repository();
    let send = "import array, fcntl, os, socket
d = os.open('.', os.O_RDONLY); fcntl.flock(d, fcntl.LOCK_SH)
for i in range(100):
    a, b = socket.socketpair(); f = array.array('i', [a.fileno(), b.fileno(), d])
    for s in (a, b): s.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, f)])
os._exit(0)";
    let script = format!("mkdir .git/rebase-merge; python3 -c \"{send}\"");
    let said = held(&host, "work/project", &script);
    assert!(said.contains(".git/rebase-merge (now"), "{said}");
}

#[test]
fn a_new_repository_with_many_names_is_renamed_as_a_whole() {
    let host = Host::with_repository();
    let script = "git init -q sub; arm sub/.git/config; cd sub/.git; perl -e 'for (1..20_000) { open F, qq(>n$_) }'";
    let said = held(&host, "work/project", script);
    assert!(said.contains("sub/.git (now"), "{said}");
}

#[test]
fn folders_that_may_not_be_written_keep_nothing_armed() {
    let host = Host::new();
    let script = "git init -q; arm .git/config; for i in 1 2 3 4 5 6 7 8; do mkdir .git/x$i; chmod 555 .git/x$i; done";
    let said = held(&host, "work/project", script);
    assert!(said.contains("new git  .git: settings"), "{said}");
}

#[test]
fn a_module_that_settings_name_is_guarded() {
    let host = Host::with_repository();
    host.sh(
        "work/project",
        "git config filter.n.clean 'python3 -m own.strip'; echo '* filter=n' > .gitattributes",
    );
    let module = "open(__import__('os').environ['MARK'], 'w')";
    let script = format!("mkdir own; echo \"{module}\" > own/strip.py; echo 2 > file");
    let said = held(&host, "work/project", &script);
    assert!(said.contains("own/strip.py"), "{said}");
}

#[test]
fn a_folder_of_a_tool_has_no_folders_that_nobody_reads() {
    let host = Host::with_repository();
    let script = "mkdir -p .claude/skills/target; echo x > .claude/skills/target/SKILL.md";
    let said = host.inside("work/project", &[], script);
    assert!(said.contains(".claude/skills/target/SKILL.md"), "{said}");
}

/// As the test before, but a program outside, which is the command's standard input, keeps the lock
/// for as long as it likes.
#[test]
fn a_lock_of_the_commands_in_a_message_to_a_program_outside_is_no_other_sandbox() {
    let host = Host::with_repository();
    let send = "import array, fcntl, os, socket
d = os.open('.', os.O_RDONLY); fcntl.flock(d, fcntl.LOCK_SH)
socket.socket(fileno=0).sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [d]))])
os._exit(0)";
    let script = format!("mkdir .git/rebase-merge; python3 -c \"{send}\"");
    let (ours, outside) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut exec = host.exec("work/project", &[], &script);
    let output = exec
        .stdin(std::os::fd::OwnedFd::from(ours))
        .output()
        .unwrap();
    drop(outside);
    let told = said(&output);
    // In a namespace of processes of its own, the gateway cannot know who has the lock.
    let is_first = *fs::read_link("/proc/self/ns/pid").unwrap() == *"pid:[4026531836]";
    let expected = match is_first {
        true => ".git/rebase-merge (now",
        false => "a program outside has a lock",
    };
    assert!(
        told.contains("rebase-merge") && told.contains(expected),
        "{told}"
    );
}

#[test]
fn an_index_that_the_user_writes_in_place_stays_meanwhile() {
    let host = Host::with_repository();
    let told = meanwhile(&host, "work/project", "true", || {
        host.sh(
            "work/project",
            "cp .git/index i; head -c 40 i > .git/index; sleep 0.3; cat i > .git/index; rm i",
        );
    });
    assert!(!told.contains("index"), "{told}");
    assert_eq!(host.sh("work/project", "git status --short file"), "");
}

#[test]
fn what_cannot_be_brought_out_is_no_repository_where_it_stays() {
    let host = Host::new();
    let script =
        "git init -q; arm .git/config; cd .git; perl -e 'for (1..11_000) { open F, qq(>n$_) }'";
    let said = held(&host, "work/project", script);
    assert!(said.contains("armed    .git"), "{said}");
    host.git_runs_nothing_of_the_workloads(&["work/project/.git/gateway"]);
}
