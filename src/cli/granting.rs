//! The file of granted rules: who may write it, how a rule is put there, and how one ends.

use std::fs::{File, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use time::OffsetDateTime;

use super::app::App;
use super::failure::Failure;
use super::project::{project, working_directory};
use super::write::write;
use super::{granted, serving};
use crate::config::state;
use crate::control::GrantedRule;
use crate::files::{self, Consent, Unfit};

/// Reads the granted rules anew whenever one of them has ended, for ever, and removes it.
pub(super) async fn end_grants(app: Arc<App>) {
    let Some(path) = app.config.granted.clone() else {
        return;
    };
    // A rule that had ended before was never in force here.
    let mut seen = OffsetDateTime::now_utc();
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (now, file) = (OffsetDateTime::now_utc(), path.clone());
        let look = tokio::task::spawn_blocking(move || std::fs::read_to_string(file).ok());
        let Some(text) = look.await.ok().flatten() else {
            continue;
        };
        let grants = granted::RuleGrant::all_ending(&text).into_iter();
        let mut ends = grants.filter_map(|one| one.until);
        if ends.any(|until| (seen..now).contains(&until)) {
            // Each gateway of the folder does the same. Until one has, the rule is left out.
            if let Ok(_held) = hold(&path).await
                && let Ok(text) = files::read(&path, LARGEST_MIB)
            {
                let _ = write_allowed(&path, &granted::pruned(&text));
            }
            // One that is refused is tried again: until then, the rule is in force.
            if let Err(failure) = app.reload().await {
                tracing::error!(%failure, "a granted rule has ended, and is still in force");
                continue;
            }
        }
        seen = now;
    }
}

/// When a grant ends that holds for so many seconds, in seconds since 1970.
pub(super) fn until(seconds: u64) -> i64 {
    let now = OffsetDateTime::now_utc().unix_timestamp();
    now.saturating_add(i64::try_from(seconds).unwrap_or(i64::MAX))
}

/// Writes a rule into its file, whose text was `before`. What has ended meanwhile goes.
pub(super) fn keep(
    path: &Path,
    before: Option<&str>,
    rule: &GrantedRule,
    whose: &str,
) -> Result<(), Failure> {
    let text = before.map_or_else(|| granted::head(whose), str::to_owned);
    let until = rule
        .until
        .map(OffsetDateTime::from_unix_timestamp)
        .transpose();
    let until =
        until.map_err(|_| Failure::usage("it would hold for longer than can be counted"))?;
    let text = granted::with(&granted::pruned(&text), &rule.policy, until);
    write_allowed(path, &text)
}

/// Writes a rule into its file while no gateway has it in force.
pub(super) fn keep_later(path: &Path, rule: &GrantedRule, whose: &str) -> Result<(), Failure> {
    let _held = serving::runtime()?.block_on(hold(path))?;
    let before = path
        .exists()
        .then(|| files::read(path, LARGEST_MIB))
        .transpose();
    let before = before.map_err(|unfit| unread(path, &unfit))?;
    keep(path, before.as_deref(), rule, whose)
}

/// Says that the file of granted rules cannot be read.
pub(super) fn unread(path: &Path, unfit: &Unfit) -> Failure {
    let what = format!("the granted rules in {} cannot be read", path.display());
    Failure::of(what, unfit).next(unfit.remedy(path))
}

/// The folder or the configuration whose rules a file keeps.
pub(super) fn whose(app: &App, path: &Path) -> String {
    let config = app.config.file.as_deref();
    let here = working_directory().ok();
    let here = here.filter(|folder| state::granted_for(folder, config).as_deref() == Some(path));
    let of = config
        .map(Path::to_owned)
        .or(here)
        .or_else(|| project().ok());
    of.unwrap_or_default().display().to_string()
}

/// Writes the granted rules. A person granted them, so they are in force also where a command in a
/// sandbox could have written them.
pub(super) fn write_allowed(path: &Path, text: &str) -> Result<(), Failure> {
    if files::check_written(path).is_err() {
        let kept = Consent::to(&files::real(path), text).keep();
        kept.map_err(|unfit| Failure::of("the granted rules cannot be kept", &unfit))?;
    }
    write(path, text.as_bytes(), 0o600)
}

/// Holds the granted rules until this is dropped. Several gateways may share them, and each reads
/// them, writes them and takes back what is refused. What is locked is a file that no other user
/// can open: they may read the folder, and what one can open one can lock.
pub(super) async fn hold(path: &Path) -> Result<File, Failure> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder);
    let unkept = |error| Failure::of("the granted rules cannot be kept", &error);
    let mut private = File::options();
    private.create(true).append(true).mode(0o600);
    let open = || private.open(path.with_extension("lock"));
    let held = made.and_then(|()| open()).map_err(unkept)?;
    let until = Instant::now() + HELD_AT_MOST;
    loop {
        match held.try_lock() {
            Ok(()) => return Ok(held),
            Err(TryLockError::Error(error)) => return Err(unkept(error)),
            Err(TryLockError::WouldBlock) if Instant::now() > until => {
                return Err(Failure::new("another gateway changes the granted rules")
                    .next("allow it once more"));
            }
            Err(TryLockError::WouldBlock) => tokio::time::sleep(LOOKS_EVERY).await,
        }
    }
}

/// How long another gateway may take to put a rule into force.
const HELD_AT_MOST: Duration = Duration::from_secs(15);
const LOOKS_EVERY: Duration = Duration::from_millis(20);
/// As large as a policy file may be.
pub(super) const LARGEST_MIB: u64 = 16;
