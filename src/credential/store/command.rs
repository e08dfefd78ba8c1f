//! Programs that print a secret: no shell, small environment, bounded output and time.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use zeroize::{Zeroize as _, Zeroizing};

use super::set::Sets;
use super::{Fetched, Fetching, Lifetime, MAX_OUTPUT_BYTES, SecretStore, StoreError};
use crate::credential::secret::{Secret, trim_line_end};
use crate::session::{CommandLine, FIXED_PATH, Keeper, MAX_TTL_SECONDS, Reference};

/// Programs. What one prints is the secret itself, or `{"secret": TEXT, "expires_in": SECONDS}`;
/// or, where a part of a set is asked for, the set.
pub(super) struct CommandStore {
    deadline: Duration,
    sets: Sets,
}

impl CommandStore {
    /// Programs that must have ended by a deadline.
    pub(super) fn new(deadline: Duration) -> Self {
        Self {
            deadline,
            sets: Sets::default(),
        }
    }
}

impl SecretStore for CommandStore {
    fn fetch<'a>(&'a self, reference: &'a Reference) -> Fetching<'a> {
        Box::pin(async move {
            let Keeper::Command(line) = &reference.keeper else {
                return Err(StoreError::Absent);
            };
            let printed = async {
                tokio::time::timeout(self.deadline, run(line))
                    .await
                    .map_err(|_| StoreError::TimedOut(self.deadline))?
            };
            if let Some(member) = line.member {
                let part = self.sets.part(line, member, DEFAULT_TTL, printed).await?;
                return Ok(Fetched {
                    secret: Arc::new(Secret::kept(part.value, reference)?),
                    lifetime: Some(part.lifetime),
                    run: Some(part.run),
                });
            }
            let printed = printed.await?;
            let (value, expires_in) = read_output(printed)?;
            let ttl = line.ttl.or(expires_in).unwrap_or(DEFAULT_TTL);
            let secret = Arc::new(Secret::kept(value, reference)?);
            Ok(Fetched {
                secret,
                lifetime: Some(Lifetime::of(ttl)),
                run: None,
            })
        })
    }
}

/// Runs the program and reads what it prints; if the future is dropped, the program and its
/// children are killed.
async fn run(line: &CommandLine) -> Result<Zeroizing<Vec<u8>>, StoreError> {
    let mut command = Command::new(&line.program);
    command
        .args(&line.arguments)
        .env_clear()
        .env("PATH", FIXED_PATH)
        .envs(
            PASSED
                .iter()
                .filter_map(|name| Some((name, std::env::var_os(name)?))),
        )
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    let mut child = command
        .spawn()
        .map_err(|error| StoreError::Start(error.kind()))?;
    // Declared after the child, so dropped before it: the group's number is still ours.
    let group = Group::of(&child);
    let mut printed = Zeroizing::new(Vec::with_capacity(MAX_OUTPUT_BYTES + 1));
    let stdout = child
        .stdout
        .take()
        .ok_or(StoreError::Unreachable("the command has no output"))?;
    stdout
        .take(MAX_OUTPUT_BYTES as u64 + 1)
        .read_to_end(&mut printed)
        .await
        .map_err(|_| StoreError::Unreachable("the command's output broke off"))?;
    if printed.len() > MAX_OUTPUT_BYTES {
        return Err(StoreError::Output);
    }
    let status = child.wait().await.map_err(|_| StoreError::Failed(None))?;
    group.ended();
    if status.success() {
        Ok(printed)
    } else {
        Err(StoreError::Failed(status.code()))
    }
}

/// A process group that is killed unless it ended.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(
            child
                .id()
                .and_then(|id| i32::try_from(id).ok())
                .and_then(Pid::from_raw),
        )
    }

    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It may have ended by itself meanwhile, which is as good.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    secret: String,
    expires_in: Option<u64>,
}

fn read_output(
    mut printed: Zeroizing<Vec<u8>>,
) -> Result<(Zeroizing<Vec<u8>>, Option<Duration>), StoreError> {
    if printed.first() != Some(&b'{') {
        trim_line_end(&mut printed);
        return Ok((printed, None));
    }
    let mut answer: Answer = serde_json::from_slice(&printed).map_err(|_| StoreError::Json)?;
    let value = Zeroizing::new(answer.secret.as_bytes().to_vec());
    answer.secret.zeroize();
    match answer.expires_in {
        Some(0) => Err(StoreError::Json),
        seconds => Ok((
            value,
            seconds.map(|seconds| Duration::from_secs(seconds.min(MAX_TTL_SECONDS))),
        )),
    }
}

/// What a credential helper needs to find its own session; nothing that could hold a secret.
const PASSED: &[&str] = &[
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "DBUS_SESSION_BUS_ADDRESS",
];
const DEFAULT_TTL: Duration = Duration::from_secs(300);
pub(super) const DEADLINE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::credential::secret::SecretUnsafe;

    fn shell(script: &str) -> Reference {
        Reference::command("/bin/sh", vec!["-c".to_owned(), script.to_owned()], None)
    }

    async fn fetch(script: &str) -> Result<Fetched, StoreError> {
        CommandStore::new(Duration::from_secs(10))
            .fetch(&shell(script))
            .await
    }

    #[tokio::test]
    async fn what_a_command_prints_is_the_secret() {
        let fetched = fetch("echo CANARY-0001").await.ok().unwrap();
        assert!(fetched.secret.is(b"CANARY-0001"));
        assert_eq!(fetched.lifetime, Some(Lifetime::of(DEFAULT_TTL)));
    }

    #[tokio::test]
    async fn an_object_tells_the_lifetime() {
        let fetched = fetch(r#"echo '{"secret":"CANARY-0001","expires_in":100}'"#)
            .await
            .ok()
            .unwrap();
        assert!(fetched.secret.is(b"CANARY-0001"));
        let lifetime = fetched.lifetime.unwrap();
        assert_eq!(
            (
                lifetime.refresh_after.as_secs(),
                lifetime.expires_after.as_secs()
            ),
            (80, 100)
        );
    }

    #[tokio::test]
    async fn a_failing_or_babbling_command_yields_nothing_and_its_words_stay_inside() {
        for (script, cause) in [
            ("echo CANARY-0001; exit 3", StoreError::Failed(Some(3))),
            ("echo CANARY-0001 >&2; exit 1", StoreError::Failed(Some(1))),
            ("kill -9 $$", StoreError::Failed(None)),
            ("true", StoreError::Unsafe(SecretUnsafe::Empty)),
            (
                "printf 'CANARY-0001\\nCANARY-0002\\n'",
                StoreError::Unsafe(SecretUnsafe::Character),
            ),
            ("echo '{\"password\":\"CANARY-0001\"}'", StoreError::Json),
            ("echo '{CANARY-0001'", StoreError::Json),
            (
                "echo '{\"secret\":\"CANARY-0001\",\"expires_in\":0}'",
                StoreError::Json,
            ),
            ("head -c 70000 /dev/zero | tr '\\0' a", StoreError::Output),
            ("yes CANARY-0001", StoreError::Output),
        ] {
            let error = fetch(script).await.err().unwrap();
            assert_eq!(error, cause, "{script}");
            assert!(!format!("{error} {error:?}").contains("CANARY"), "{script}");
        }
        let gone = Reference::command("/nonexistent/program", vec![], None);
        let error = CommandStore::new(DEADLINE).fetch(&gone).await.err();
        assert_eq!(error, Some(StoreError::Start(std::io::ErrorKind::NotFound)));
    }

    #[tokio::test]
    async fn a_command_that_hangs_is_killed_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("alive");
        let store = CommandStore::new(Duration::from_millis(300));
        let began = Instant::now();
        let reference = shell(&format!("(sleep 1; touch {}) & sleep 30", mark.display()));
        assert_eq!(
            store.fetch(&reference).await.err(),
            Some(StoreError::TimedOut(store.deadline))
        );
        assert!(began.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert!(!mark.exists());
    }

    #[tokio::test]
    async fn a_command_gets_a_small_environment_and_no_input() {
        // Cargo sets the first variable for this test itself, so its absence proves the clearing.
        let fetched = fetch("cat; echo \"[${CARGO_MANIFEST_DIR:-absent}]$(pwd)\"")
            .await
            .ok()
            .unwrap();
        assert!(fetched.secret.is(b"[absent]/"));
    }
}
