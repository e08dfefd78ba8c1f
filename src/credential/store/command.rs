//! Programs that print a secret: no shell, a small environment, bounded output and time.

use std::process::Stdio;
use std::time::Duration;

use gateway_names::SessionId;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use zeroize::{Zeroize as _, Zeroizing};

use super::backend::{Backend, CommandLine, FIXED_PATH};
use super::file::blocking;
use super::material::{Lease, Material};
use super::{SecretRef, SecretStore, StoreError, StoreFuture};
use crate::secret::trim_line_end;

/// Programs that print a secret.
///
/// The output is the secret itself, `{"secret": TEXT, "expires_in": SECONDS}`, or the document that
/// AWS's SDKs take from a `credential_process`, whose members become fields.
pub(super) struct CommandStore {
    deadline: Duration,
}

impl Default for CommandStore {
    fn default() -> Self {
        Self { deadline: DEADLINE }
    }
}

impl SecretStore for CommandStore {
    fn fetch<'a>(
        &'a self,
        from: &'a Backend,
        _: Option<&'a SessionId>,
    ) -> StoreFuture<'a, Material> {
        Box::pin(async move {
            let Backend::Command(line) = from else {
                return Err(StoreError::Absent);
            };
            let printed = tokio::time::timeout(self.deadline, run(line, &[], Stdio::null()))
                .await
                .map_err(|_| StoreError::TimedOut(self.deadline))??;
            // What it says of a failure may hold the secret.
            read(printed.map_err(|(cause, _)| cause)?, line.ttl)
        })
    }
}

/// Runs a program for at most 30 seconds, with these bytes at its standard input.
///
/// # Errors
/// [`StoreError`] if a sandbox could have written it, or if it fails.
pub async fn tell(program: &SecretRef, input: Vec<u8>) -> Result<(), StoreError> {
    let Backend::Command(line) = &program.backend else {
        return Err(StoreError::Absent);
    };
    let told = tokio::time::timeout(DEADLINE, run(line, &input, Stdio::null())).await;
    let told = told.map_err(|_| StoreError::TimedOut(DEADLINE))??;
    told.map(drop).map_err(|(cause, _)| cause)
}

/// Runs a program of a store, whose own words about a failure are returned for the store to read.
pub(super) async fn ask(
    program: &SecretRef,
    arguments: impl IntoIterator<Item = String>,
) -> Result<Printed, StoreError> {
    let Backend::Command(line) = &program.backend else {
        return Err(StoreError::Absent);
    };
    let mut line = line.clone();
    line.arguments.extend(arguments);
    run(&line, &[], Stdio::piped()).await
}

/// What a program printed, or why it failed and its words about that.
pub(super) type Printed = Result<Zeroizing<Vec<u8>>, (StoreError, Zeroizing<Vec<u8>>)>;

/// Runs the program with this input, and reads its output. If the future is dropped, the program
/// and its children are killed.
async fn run(line: &CommandLine, input: &[u8], errors: Stdio) -> Result<Printed, StoreError> {
    // Checked on each run: a sandbox may have begun since the last one.
    let checked = line.clone();
    blocking(move || Ok(checked.check()?)).await?;
    let mut command = Command::new(&line.program);
    command
        .args(&line.arguments)
        .env_clear()
        .env("PATH", FIXED_PATH)
        .envs(
            PASSED
                .iter()
                .copied()
                .chain(line.pass.iter().map(String::as_str))
                .filter_map(|name| Some((name, std::env::var_os(name)?))),
        )
        .current_dir("/")
        .stdin(if input.is_empty() {
            Stdio::null()
        } else {
            Stdio::piped()
        })
        .stdout(Stdio::piped())
        .stderr(errors)
        .process_group(0)
        .kill_on_drop(true);
    let mut child = command
        .spawn()
        .map_err(|error| StoreError::Start(error.kind()))?;
    // Declared after the child, so it is dropped first, while the group's number is still ours.
    let group = Group::of(&child);
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read it needs none of it.
        let _ = stdin.write_all(input).await;
    }
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (printed, said) = tokio::try_join!(output(stdout), output(stderr))?;
    let status = child.wait().await.map_err(|_| StoreError::Failed(None))?;
    group.ended();
    if status.success() {
        Ok(Ok(printed))
    } else {
        Ok(Err((StoreError::Failed(status.code()), said)))
    }
}

/// Reads all that a program writes, if it is not too much.
async fn output(from: Option<impl AsyncRead + Unpin>) -> Result<Zeroizing<Vec<u8>>, StoreError> {
    let Some(from) = from else {
        return Ok(Zeroizing::default());
    };
    // Allocated at once: a growing vector would leave copies behind.
    let mut printed = Zeroizing::new(Vec::with_capacity(MAX_OUTPUT_BYTES + 1));
    let read = from
        .take(MAX_OUTPUT_BYTES as u64 + 1)
        .read_to_end(&mut printed)
        .await;
    read.map_err(|_| StoreError::Unreachable("the command's output broke off"))?;
    if printed.len() > MAX_OUTPUT_BYTES {
        return Err(StoreError::Output(MAX_OUTPUT_BYTES));
    }
    Ok(printed)
}

/// A process group that is killed unless it has ended.
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
            // The group may have ended by itself.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// One of the objects that a program may print.
#[derive(Deserialize)]
struct PrintedSecret {
    secret: String,
    expires_in: Option<u64>,
}

/// The document that AWS's SDKs take from a `credential_process`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ProcessCredentials {
    version: u32,
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<String>,
}

impl Drop for ProcessCredentials {
    fn drop(&mut self) {
        self.secret_access_key.zeroize();
        self.session_token.zeroize();
    }
}

fn read(mut printed: Zeroizing<Vec<u8>>, ttl: Option<Duration>) -> Result<Material, StoreError> {
    if printed.first() != Some(&b'{') {
        trim_line_end(&mut printed);
        let lease = Lease::of(ttl.unwrap_or(DEFAULT_TTL));
        return Ok(Material::single(printed, Some(lease)));
    }
    // Tried one after the other, because serde's buffer for an untagged enum would not be wiped.
    match serde_json::from_slice::<PrintedSecret>(&printed) {
        Ok(answer) => one_secret(answer, ttl),
        Err(_) => {
            let document = serde_json::from_slice(&printed).map_err(|_| StoreError::Json)?;
            process_credentials(&document, ttl)
        }
    }
}

fn one_secret(mut answer: PrintedSecret, ttl: Option<Duration>) -> Result<Material, StoreError> {
    let value = Zeroizing::new(answer.secret.as_bytes().to_vec());
    answer.secret.zeroize();
    let said = match answer.expires_in {
        Some(0) => return Err(StoreError::Json),
        seconds => seconds.map(|seconds| Duration::from_secs(seconds.min(MAX_TTL_SECONDS))),
    };
    let lease = Lease::of(ttl.or(said).unwrap_or(DEFAULT_TTL));
    Ok(Material::single(value, Some(lease)))
}

fn process_credentials(
    document: &ProcessCredentials,
    ttl: Option<Duration>,
) -> Result<Material, StoreError> {
    if document.version != 1 {
        return Err(StoreError::Json);
    }
    let left = match &document.expiration {
        None => ttl.unwrap_or(DEFAULT_TTL),
        Some(text) => {
            let end = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| StoreError::Json)?;
            let left = Duration::try_from(end - OffsetDateTime::now_utc()).unwrap_or_default();
            if left.is_zero() {
                return Err(StoreError::Json);
            }
            // Run the program at least as often as for credentials without an end: it may have
            // newer ones.
            left.min(LONGEST_SET)
        }
    };
    let bytes = |text: &str| Zeroizing::new(text.as_bytes().to_vec());
    let material = Material::new(Some(Lease::of(left)))
        .with("AccessKeyId", bytes(&document.access_key_id))
        .with("SecretAccessKey", bytes(&document.secret_access_key));
    Ok(match &document.session_token {
        Some(token) => material.with("SessionToken", bytes(token)),
        None => material,
    })
}

/// What a credential helper needs to find its own session; none of it can hold a secret.
const PASSED: &[&str] = &gateway_names::word_list::<7>(
    "HOME USER LOGNAME LANG XDG_RUNTIME_DIR XDG_CONFIG_HOME DBUS_SESSION_BUS_ADDRESS",
);
const DEFAULT_TTL: Duration = Duration::from_secs(300);
const DEADLINE: Duration = Duration::from_secs(30);
/// The maximum output of a command, in bytes.
const MAX_OUTPUT_BYTES: usize = 64 * 1024;
const MAX_TTL_SECONDS: u64 = 86_400;
/// The longest time for which a set of credentials is kept.
const LONGEST_SET: Duration = Duration::from_secs(12 * 3600);

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn line(program: &str, arguments: &[&str]) -> Backend {
        Backend::Command(CommandLine {
            program: program.into(),
            arguments: arguments.iter().map(|one| (*one).to_owned()).collect(),
            ttl: None,
            pass: Vec::new(),
        })
    }

    async fn fetch(script: &str) -> Result<Material, StoreError> {
        let store = CommandStore::default();
        store.fetch(&line("/bin/sh", &["-c", script]), None).await
    }

    fn only(material: &Material) -> &[u8] {
        material.field(None).unwrap()
    }

    #[tokio::test]
    async fn what_a_command_prints_is_the_secret() {
        let fetched = fetch("echo CANARY-0001").await.ok().unwrap();
        assert_eq!(only(&fetched), b"CANARY-0001");
        assert_eq!(fetched.lease, Some(Lease::of(DEFAULT_TTL)));
    }

    #[tokio::test]
    async fn an_object_tells_the_lifetime() {
        let fetched = fetch(r#"echo '{"secret":"CANARY-0001","expires_in":100}'"#)
            .await
            .ok()
            .unwrap();
        assert_eq!(only(&fetched), b"CANARY-0001");
        assert_eq!(fetched.lease, Some(Lease::of(Duration::from_secs(100))));
    }

    #[tokio::test]
    async fn a_failing_or_babbling_command_yields_nothing_and_its_words_stay_inside() {
        for (script, cause) in [
            ("echo CANARY-0001; exit 3", StoreError::Failed(Some(3))),
            ("echo CANARY-0001 >&2; exit 1", StoreError::Failed(Some(1))),
            ("kill -9 $$", StoreError::Failed(None)),
            ("echo '{\"password\":\"CANARY-0001\"}'", StoreError::Json),
            ("echo '{CANARY-0001'", StoreError::Json),
            (
                "echo '{\"secret\":\"CANARY-0001\",\"expires_in\":0}'",
                StoreError::Json,
            ),
            (
                "head -c 70000 /dev/zero | tr '\\0' a",
                StoreError::Output(MAX_OUTPUT_BYTES),
            ),
            ("yes CANARY-0001", StoreError::Output(MAX_OUTPUT_BYTES)),
        ] {
            let error = fetch(script).await.err().unwrap();
            assert_eq!(error, cause, "{script}");
            assert!(!format!("{error} {error:?}").contains("CANARY"), "{script}");
        }
        let gone = line("/nonexistent/program", &[]);
        let error = CommandStore::default().fetch(&gone, None).await.err();
        assert_eq!(error, Some(StoreError::Start(std::io::ErrorKind::NotFound)));
    }

    #[tokio::test]
    async fn a_command_that_hangs_is_killed_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("alive");
        let deadline = Duration::from_millis(300);
        let store = CommandStore { deadline };
        let began = Instant::now();
        let script = format!("(sleep 1; touch {}) & sleep 30", mark.display());
        let fetched = store.fetch(&line("/bin/sh", &["-c", &script]), None).await;
        assert_eq!(fetched.err(), Some(StoreError::TimedOut(deadline)));
        assert!(began.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert!(!mark.exists());
    }

    #[tokio::test]
    async fn a_command_gets_a_small_environment_and_no_input() {
        // Cargo sets this variable for the test itself, so its absence proves the clearing.
        let fetched = fetch("cat; echo \"[${CARGO_MANIFEST_DIR:-absent}]$(pwd)\"")
            .await
            .ok()
            .unwrap();
        assert_eq!(only(&fetched), b"[absent]/");
    }

    #[tokio::test]
    async fn the_document_of_a_credential_process_is_one_reading_of_several_fields() {
        let print = |more: &str| {
            let document = format!(
                "{{\"Version\":1,\"AccessKeyId\":\"AKIA1\",\"SecretAccessKey\":\"CANARY1\"{more}}}"
            );
            format!("echo '{document}'")
        };
        let bare = fetch(&print("")).await.ok().unwrap();
        let field = |name| bare.field(Some(name)).map(|value| value.to_vec());
        assert_eq!(field("AccessKeyId"), Some(b"AKIA1".to_vec()));
        assert_eq!(field("SecretAccessKey"), Some(b"CANARY1".to_vec()));
        assert_eq!(field("SessionToken"), None);
        assert_eq!(bare.lease, Some(Lease::of(DEFAULT_TTL)));
        let more = ",\"SessionToken\":\"t\",\"Expiration\":\"2999-01-01T00:00:00Z\"";
        let lasting = fetch(&print(more)).await.ok().unwrap();
        assert_eq!(lasting.lease, Some(Lease::of(LONGEST_SET)));
        for more in [
            ",\"Expiration\":\"2001-01-01T00:00:00Z\"",
            ",\"Expiration\":\"soon\"",
            ",\"Version\":2",
        ] {
            let refused = fetch(&print(more)).await.err().unwrap();
            assert_eq!(refused, StoreError::Json, "{more}");
            assert!(!format!("{refused} {refused:?}").contains("CANARY"));
        }
    }
}
