//! git itself, before its own `http-backend`: pushes that are allowed, and refused in its words.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::rig::origin::{Seen, Step, ok};
use crate::rig::way::Way;
use crate::rig::{OTHER, Rig};
use crate::rows;

rows![git_pushes_more_than_is_held_and_shows_what_was_refused];

/// More than `max_buffered_request`.
const SIZE: u64 = 17 << 20;

fn git_pushes_more_than_is_held_and_shows_what_was_refused(rig: &Rig) {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_owned();
    let bare = at.join("o/r.git");
    git(
        &at,
        None,
        &["init", "-q", "--bare", &bare.display().to_string()],
    );
    let work = at.join("work");
    git(
        &at,
        None,
        &["init", "-q", "-b", "main", &work.display().to_string()],
    );
    let mut random = fs::File::open("/dev/urandom").unwrap().take(SIZE);
    let mut large = fs::File::create(work.join("large")).unwrap();
    io::copy(&mut random, &mut large).unwrap();
    git(&work, None, &["add", "."]);
    git(&work, None, &["commit", "-qm", "one"]);
    for path in ["/o/r.git/info/refs", "/o/r.git/git-receive-pack"] {
        let at = at.clone();
        rig.origins.on(path, move |seen| backend(&at, seen));
    }
    let way = Way::Connect;
    let proxy = format!("http://{}", rig.ports.proxy);
    for version in ["HTTP/1.1", "HTTP/2"] {
        let push = |buffer: &str, refs: &[&str]| {
            let version = format!("http.version={version}");
            let buffer = format!("http.postBuffer={buffer}");
            let url = format!("https://{OTHER}/o/r.git");
            let settings = ["-c", &version, "-c", &buffer, "push", &url];
            git(&work, Some(&proxy), &[&settings[..], refs].concat())
        };
        // In pieces, and at once.
        for (buffer, count) in [("65536", 3), ("99999999", 2)] {
            let told = push(buffer, &["main", "main:refs/heads/agent/y"]);
            let record = rig.records(way, count).remove(count - 1);
            assert_eq!(record["reason"], "policy_forbids", "{record}");
            assert_eq!(
                (&record["status"], &record["phase"]),
                (&403.into(), &"authorize".into())
            );
            let id = record["id"].as_str().unwrap();
            let reason = format!("(refused by gateway: policy_forbids; gateway why {id})");
            for name in ["main -> main", "main -> agent/y"] {
                let told_of = format!("! [remote rejected] {name} {reason}");
                assert!(told.contains(&told_of), "{version} {buffer}: {told}");
            }
            assert!(
                told.contains("remote: The gateway refused this request"),
                "{told}"
            );
            assert_eq!(rig.seen().len(), count - 1);
        }
        // A ref that is not there: git sends that it is nothing and becomes nothing.
        let told = push("65536", &[":refs/heads/agent/none"]);
        let record = rig.records(way, 3).remove(2);
        assert_eq!(record["reason"], "policy_forbids", "{told}\n{record}");
        let id = record["id"].as_str().unwrap();
        let told_of = format!(
            "! [remote rejected] agent/none (refused by gateway: policy_forbids; gateway why {id})"
        );
        assert!(told.contains(&told_of), "{version}: {told}");
        assert_eq!(rig.seen().len(), 2);
        let told = push("65536", &["main:refs/heads/agent/x"]);
        assert!(told.contains("[new branch]"), "{version}: {told}");
        let allowed = rig.records(way, 3);
        assert!(
            allowed.iter().all(|record| record["status"] == 200),
            "{allowed:?}"
        );
        rig.seen();
        let refs = git(&bare, None, &["for-each-ref"]);
        let agents = "refs/heads/agent/x";
        assert!(
            refs.ends_with(&format!("{agents}\n")) && refs.lines().count() == 1,
            "{refs}"
        );
        // The next push has all objects again.
        git(&bare, None, &["update-ref", "-d", agents]);
    }
    // Not searched for secrets: there are many bytes, and they are random.
    rig.origins.take_raw();
    rig.ends_now();
}

/// Runs git for at most a minute, and gives all that it prints.
fn git(at: &Path, proxy: Option<&str>, arguments: &[&str]) -> String {
    let mut command = Command::new("timeout");
    command.args(["60", "git"]).args(arguments).current_dir(at);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap());
    command.env("GIT_CONFIG_PARAMETERS", "'core.compression=0'");
    command.env("HOME", at).env("GIT_SSL_NO_VERIFY", "1");
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "a");
        command.env(format!("GIT_{who}_EMAIL"), "a@a.test");
    }
    command.envs(proxy.map(|proxy| ("https_proxy", proxy)));
    let done = command.output().unwrap();
    String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
}

/// What `git http-backend` answers.
fn backend(root: &PathBuf, seen: &Seen) -> Vec<Step> {
    let (path, query) = seen.target.split_once('?').unwrap_or((&seen.target, ""));
    let kind = seen.all("content-type").join("");
    let settings = ["-c", "safe.directory=*", "-c", "http.receivepack=true"];
    let mut child = Command::new("git")
        .args(settings)
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", &seen.method)
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("CONTENT_TYPE", kind)
        .env("CONTENT_LENGTH", seen.body.len().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all(&seen.body);
    drop(stdin);
    let out = child.wait_with_output().unwrap().stdout;
    let end = memchr::memmem::find(&out, b"\r\n\r\n").unwrap();
    let fields = String::from_utf8_lossy(&out[..end]) + "\r\n";
    ok(&fields, &out[end + 4..])
}
