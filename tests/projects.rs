//! What a workload keeps in its project works in the next run: `gateway exec` by ordinary users,
//! the real git, and a real https origin.

#[path = "rig/addresses.rs"]
mod addresses;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Ordinary users. The numbers belong to nobody.
const ANN: u32 = 12345;
const BEN: u32 = 12346;

const SECRET: &str = "ghp_C4n4ryC4n4ryC4n4ryC4n4ryC4n4ry0kPLHd";

/// A server of git over https that takes only the real secret, and the homes of two users.
struct Host {
    folder: tempfile::TempDir,
    port: u16,
    server: Child,
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
        fs::write(folder.path().join("server.py"), SERVER).unwrap();
        let script = "
            new=\"-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes\"
            openssl req -x509 $new -days 2 -subj /CN=ca -keyout ca.key -out origin.pem 2>/dev/null
            openssl req $new -subj /CN=git.test -keyout key.pem -out csr 2>/dev/null
            echo subjectAltName=DNS:git.test >names
            openssl x509 -req -in csr -CA origin.pem -CAkey ca.key -days 2 -extfile names \\
                -out leaf.pem 2>/dev/null
            git init -q --bare -b main lab.git
            git -C lab.git config http.receivepack true
            git init -q -b main seed; cd seed
            git -c user.name=x -c user.email=x@x.test commit -q --allow-empty -m one
            git push -q ../lab.git main";
        let made = Command::new("sh")
            .args(["-e", "-c", script])
            .current_dir(folder.path())
            .env("HOME", folder.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", said(&made));
        let port = addresses::free().port();
        let server = Command::new("python3")
            .args(["server.py", &port.to_string(), SECRET])
            .current_dir(folder.path())
            .stderr(fs::File::create(folder.path().join("server.log")).unwrap())
            .spawn()
            .unwrap();
        let host = Self {
            folder,
            port,
            server,
        };
        let began = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(30), "no git server");
            std::thread::sleep(Duration::from_millis(20));
        }
        for (name, user) in [("ann", ANN), ("ben", BEN)] {
            host.user(name, user);
        }
        host
    }

    /// A home, a folder of work beside it, and the configuration of the gateway.
    fn user(&self, name: &str, user: u32) {
        let own = |path: PathBuf| chown(path, Some(user), Some(user)).unwrap();
        let home = self.at(name);
        fs::create_dir(&home).unwrap();
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
        for folder in ["one", "two"] {
            fs::create_dir(self.at(&format!("{name}-{folder}"))).unwrap();
            own(self.at(&format!("{name}-{folder}")));
        }
        let origin = self.at("origin.pem");
        let config = format!(
            "[[credential]]\nname = \"TOKEN\"\nfrom = \"env:TOKEN\"\norigins = [\"https://git.test\"]\n\
             places = [\"basic:password\"]\n\
             [[origin]]\nmatch = \"https://git.test\"\nroots = [\"{}\"]\nreplace_system_roots = true\n\
             connect = \"127.0.0.1:{}\"\n",
            origin.display(),
            self.port
        );
        fs::write(home.join("gateway.toml"), config).unwrap();
        own(home.join("gateway.toml"));
        own(home);
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The workload of a user: a script in the sandbox, in a folder.
    fn exec(&self, name: &str, folder: &str, flags: &[&str], script: &str) -> Output {
        let user = if name == "ann" { ANN } else { BEN };
        Command::new(env!("CARGO_BIN_EXE_gateway"))
            .args(["exec", "-q", "--config"])
            .arg(self.at(name).join("gateway.toml"))
            .args(flags)
            .args(["--", "/bin/sh", "-e", "-c", script])
            .current_dir(self.at(folder))
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.at(name))
            .env("TOKEN", SECRET)
            .stdin(Stdio::null())
            .uid(user)
            .gid(user)
            .output()
            .unwrap()
    }

    #[track_caller]
    fn inside(&self, name: &str, folder: &str, flags: &[&str], script: &str) -> String {
        let output = self.exec(name, folder, flags, script);
        let told = || format!("{}{}", said(&output), newest_log(self));
        assert!(output.status.success(), "{script}\n{}", told());
        String::from_utf8(output.stdout).unwrap()
    }

    fn phantom(&self, name: &str, folder: &str, flags: &[&str]) -> String {
        let phantom = self.inside(name, folder, flags, "printf %s \"$TOKEN\"");
        assert!(phantom.starts_with("ghp_") && phantom != SECRET);
        phantom
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

#[test]
fn git_clone_in_one_run_and_git_push_in_the_next() {
    let host = Host::new();
    // The phantom of the first run is in `.git/config` afterwards, as people write it.
    host.inside(
        "ann",
        "ann-one",
        &[],
        "git clone -q https://x-access-token:$TOKEN@git.test/lab.git work",
    );
    let kept = fs::read_to_string(host.at("ann-one/work/.git/config")).unwrap();
    assert!(kept.contains("ghp_") && !kept.contains(SECRET), "{kept}");
    let commit = "git -c user.name=a -c user.email=a@a.test commit -q --allow-empty -m two";
    // In the folder of the clone, as a person would.
    host.inside(
        "ann",
        "ann-one/work",
        &[],
        &format!("{commit}; git push -q origin HEAD:refs/heads/next"),
    );
    let pushed = Command::new("git")
        .args(["-c", "safe.directory=*", "-C"])
        .arg(host.at("lab.git"))
        .args(["log", "--format=%s", "next"])
        .output()
        .unwrap();
    assert_eq!(said(&pushed), "two\none\n");
    // In another project, it is another project's phantom.
    let stolen = format!(
        "git ls-remote {}",
        kept.lines()
            .find_map(|line| line.trim().strip_prefix("url = "))
            .unwrap()
    );
    host.phantom("ann", "ann-two", &[]);
    let refused = host.exec("ann", "ann-two", &[], &stolen);
    assert!(!refused.status.success(), "{}", said(&refused));
    let log = newest_log(&host);
    assert!(log.contains("phantom_foreign_session"), "{log}");
    // After `--fresh`, the old one is worth nothing here either.
    host.phantom("ann", "ann-one", &["--fresh"]);
    let refused = host.exec("ann", "ann-one/work", &[], "git ls-remote origin");
    assert!(!refused.status.success(), "{}", said(&refused));
}

fn newest_log(host: &Host) -> String {
    let logs = fs::read_dir(host.at("ann/.local/state/gateway/audit")).unwrap();
    let mut logs: Vec<PathBuf> = logs.map(|log| log.unwrap().path()).collect();
    logs.sort_by_key(|log| fs::metadata(log).unwrap().modified().unwrap());
    fs::read_to_string(logs.last().unwrap()).unwrap()
}

#[test]
fn phantoms_are_those_of_one_user_and_one_project_until_fresh_ones_are_asked_for() {
    let host = Host::new();
    let first = host.phantom("ann", "ann-one", &[]);
    assert_eq!(host.phantom("ann", "ann-one", &[]), first);
    let other_project = host.phantom("ann", "ann-two", &[]);
    let other_user = host.phantom("ben", "ben-one", &[]);
    assert!(first != other_project && first != other_user && other_project != other_user);
    // By another name of the same folder.
    std::os::unix::fs::symlink(host.at("ann-one"), host.at("link")).unwrap();
    assert_eq!(host.phantom("ann", "link", &[]), first);
    let fresh = host.phantom("ann", "ann-one", &["--fresh"]);
    assert_ne!(fresh, first);
    assert_eq!(host.phantom("ann", "ann-one", &[]), fresh);
    // Two runs at a time.
    let both: Vec<String> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| host.phantom("ann", "ann-one", &[])))
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    assert_eq!(both, [fresh.clone(), fresh.clone()]);
    // The state is the user's alone, hidden from the command, and tells nothing.
    let folder = host.at("ann/.local/state/gateway/sessions");
    let seen = format!("ls {} 2>&1 || true", folder.display());
    let seen = host.inside("ann", "ann-one", &["--see-home", ".local/state"], &seen);
    assert!(!seen.contains("exec.db"), "{seen}");
    for file in fs::read_dir(&folder).unwrap() {
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o77, 0);
        let content = fs::read(file.path()).unwrap();
        // What is kept for a user names folders.
        let is_users = file.file_name().to_string_lossy().starts_with("user.db");
        let name = (!is_users).then_some("ann-one");
        let secrets = [SECRET, &first, &fresh, &other_project];
        for needle in secrets.into_iter().chain(name) {
            let found = content
                .windows(needle.len())
                .any(|at| at == needle.as_bytes());
            assert!(!found, "{:?} holds {needle}", file.path());
        }
    }
}

#[test]
fn without_the_key_of_the_state_a_run_has_phantoms_of_its_own_and_forgets_no_project() {
    let host = Host::new();
    let one = host.phantom("ann", "ann-one", &[]);
    let two = host.phantom("ann", "ann-two", &[]);
    // As in a login without the key ring.
    let key = host.at("ann/.local/state/gateway/sessions/key");
    fs::rename(&key, host.at("ann/elsewhere")).unwrap();
    for flags in [&[][..], &["--fresh"]] {
        let run = host.exec("ann", "ann-one", flags, "printf %s \"$TOKEN\"");
        let told = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(run.status.success(), "{told}");
        assert_eq!(
            told.matches("the phantoms of this run are its own").count(),
            1,
            "{told}"
        );
        let own = String::from_utf8(run.stdout).unwrap();
        assert!(own.starts_with("ghp_") && own != SECRET && own != one && own != two);
    }
    assert!(!key.exists(), "no key was made in its place");
    fs::rename(host.at("ann/elsewhere"), &key).unwrap();
    assert_eq!(host.phantom("ann", "ann-one", &[]), one);
    assert_ne!(host.phantom("ann", "ann-one", &["--fresh"]), one);
    assert_eq!(host.phantom("ann", "ann-two", &[]), two);
}

const SERVER: &str = r#"
import base64, http.server, os, ssl, subprocess, sys

WANTED = "Basic " + base64.b64encode(b"x-access-token:" + sys.argv[2].encode()).decode()

class Git(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.headers.get("authorization") != WANTED:
            self.send_response(401)
            self.send_header("www-authenticate", "Basic realm=git")
            self.send_header("content-length", "0")
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        env = {"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": os.getcwd(), "GIT_HTTP_EXPORT_ALL": "1",
               "REQUEST_METHOD": self.command, "PATH_INFO": path, "QUERY_STRING": query, "REMOTE_USER": "x",
               "CONTENT_TYPE": self.headers.get("content-type", ""), "CONTENT_LENGTH": str(len(content)),
               "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""),
               "GIT_PROTOCOL": self.headers.get("git-protocol", "")}
        out = subprocess.run(["git", "http-backend"], env=env, input=content, stdout=subprocess.PIPE).stdout
        head, _, body = out.partition(b"\r\n\r\n")
        fields = [line.split(": ", 1) for line in head.decode().split("\r\n")]
        status = [value for name, value in fields if name.lower() == "status"]
        self.send_response(int(status[0].split()[0]) if status else 200)
        for name, value in fields:
            if name.lower() != "status":
                self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_GET

server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Git)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("leaf.pem", "key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"#;

#[test]
fn a_repository_is_the_project_of_its_folders_and_of_its_worktrees() {
    let host = Host::new();
    let make = "git init -q -b main .; mkdir -p sub/deep; touch sub/deep/file; git add .
        git -c user.name=a -c user.email=a@a.test commit -qm one; git worktree add -q ../ann-two/tree";
    let made = Command::new("sh")
        .args(["-e", "-c", make])
        .current_dir(host.at("ann-one"))
        .env("HOME", host.at("ann"))
        .uid(ANN)
        .gid(ANN)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", said(&made));
    let first = host.phantom("ann", "ann-one", &[]);
    let script = "git status --short; pwd; touch ../../new; printf %s \"$TOKEN\"";
    let below = host.inside("ann", "ann-one/sub/deep", &[], script);
    let place = host.at("ann-one/sub/deep");
    assert_eq!(below, format!("{}\n{first}", place.display()));
    assert!(host.at("ann-one/new").exists());
    // A worktree is another folder with the same commits.
    let tree = "git log --format=%s; test -e file; printf %s \"$TOKEN\"";
    let tree = host.inside("ann", "ann-two/tree/sub/deep", &[], tree);
    assert!(
        tree.starts_with("one\n") && !tree.ends_with(&first),
        "{tree}"
    );
    // `--here` takes the folder alone.
    let alone = "! test -e ../../.git; touch file; ! touch ../new 2>&-; printf %s \"$TOKEN\"";
    let alone = host.inside("ann", "ann-one/sub/deep", &["--here"], alone);
    assert_eq!(
        alone, first,
        "a new folder has the phantoms of the one above"
    );
}

#[test]
fn a_repository_of_another_user_or_of_the_home_is_no_project_of_what_is_below() {
    let host = Host::new();
    let head = |folder: &str, user: u32| {
        fs::create_dir_all(host.at(folder).join(".git")).unwrap();
        fs::write(host.at(folder).join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        chown(host.at(folder).join(".git"), Some(user), Some(user)).unwrap();
    };
    head("ann-one", BEN);
    head("ann", ANN);
    for folder in ["ann-one/sub", "ann/work"] {
        fs::create_dir(host.at(folder)).unwrap();
        chown(host.at(folder), Some(ANN), Some(ANN)).unwrap();
        host.inside("ann", folder, &[], "! test -e ../.git; touch file");
        assert!(host.at(folder).join("file").exists());
    }
}

#[test]
fn the_summary_says_where_changes_go_and_first_of_all_if_they_are_dropped() {
    let host = Host::new();
    let told = |folder: &str| {
        let run = Command::new(env!("CARGO_BIN_EXE_gateway"))
            .args(["exec", "-v", "--", "/bin/true"])
            .current_dir(folder)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", host.at("ann"))
            .uid(ANN)
            .gid(ANN)
            .output()
            .unwrap();
        assert!(run.status.success(), "{}", said(&run));
        String::from_utf8(run.stderr).unwrap()
    };
    let home = host.at("ann").display().to_string();
    for folder in [&home, "/", "/tmp"] {
        let told = told(folder);
        let first = told.lines().next().unwrap();
        let says = format!("changes in {folder} are dropped at the end");
        assert!(first.contains("careful") && first.contains(&says), "{told}");
    }
    fs::create_dir_all(host.at("ann-one/.git")).unwrap();
    fs::create_dir(host.at("ann-one/sub")).unwrap();
    fs::write(host.at("ann-one/.git/HEAD"), "ref: refs/heads/main\n").unwrap();
    for name in ["ann-one/.git", "ann-one/.git/HEAD", "ann-one/sub"] {
        chown(host.at(name), Some(ANN), Some(ANN)).unwrap();
    }
    let project = host.at("ann-one").display().to_string();
    let told = told(&format!("{project}/sub"));
    let says = format!("project  {project}, started in sub (changes persist");
    assert!(told.contains(&says) && !told.contains("careful"), "{told}");
}
