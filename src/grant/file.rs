//! The file of granted rules: how it is written, read and changed, and how its rules expire. A
//! comment above each rule gives the time of the grant, and of its end if it expires.

use std::fs::{File, TryLockError};
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gateway_files::{self as files, Consent};
use gateway_policy::Source;
use gateway_server::chain;
use http::StatusCode;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::error::ControlRefusal;

/// A rule that a person granted.
pub struct GrantedRule {
    /// The rule, in Cedar.
    pub rule: String,
    /// When it was granted; `None` if its file does not say.
    pub since: Option<OffsetDateTime>,
    /// When it expires, if it does.
    pub until: Option<OffsetDateTime>,
    /// Where the rule stands in the text.
    place: Range<usize>,
    /// Where it stands with its comment.
    whole: Range<usize>,
}

impl GrantedRule {
    /// Returns the grants in a file's text, in their order.
    pub fn all(text: &str) -> Vec<Self> {
        let rules = Source::new("", text).rules();
        let mut all: Vec<Self> = rules.into_iter().map(|rule| Self::of(text, rule)).collect();
        all.sort_by_key(|one| one.place.start);
        all
    }

    /// Returns the grants in a text that expire.
    pub(super) fn all_ending(text: &str) -> impl Iterator<Item = Self> {
        let ending = text.contains(UNTIL).then(|| Self::all(text));
        let all = ending.into_iter().flatten();
        all.filter(|one| one.until.is_some())
    }

    fn of(text: &str, (place, rule): (Range<usize>, String)) -> Self {
        let above = text[..place.start].trim_end();
        let line = above.rfind('\n').map_or(0, |end| end + 1);
        let told = above[line..].strip_prefix(MARK);
        let mut parts = told.into_iter().flat_map(|told| told.split(UNTIL));
        let at = |text: &str| OffsetDateTime::parse(text.trim(), &Rfc3339).ok();
        Self {
            rule,
            since: parts.next().and_then(at),
            // A time that cannot be read is in the past.
            until: parts
                .next()
                .map(|text| at(text).unwrap_or(OffsetDateTime::UNIX_EPOCH)),
            whole: told.map_or(place.start, |_| line)..place.end,
            place,
        }
    }

    /// Whether it has expired.
    pub fn is_over(&self) -> bool {
        self.until
            .is_some_and(|until| until <= OffsetDateTime::now_utc())
    }

    /// Returns the rule in one line: the method, the host with port and path, and the credential.
    pub fn shown(&self) -> String {
        let rest = |name: &str| {
            self.rule
                .split_once(name)
                .map(|(_, rest)| rest.trim_start())
        };
        let after = |name: &str| rest(name)?.strip_prefix('"')?.split('"').next();
        let port = rest("context.port ==").unwrap_or_default();
        let port = port.split(|c: char| !c.is_ascii_digit()).next();
        let domain = || after("Gateway::Domain::").map(|domain| format!("*.{domain}"));
        let host = after("Gateway::Host::").map(str::to_owned);
        let path = after("context.path ==").or_else(|| after("context.path like"));
        let parts = [
            after("context.method ==").map(|method| format!("{method} ")),
            host.or_else(domain),
            port.filter(|port| !["", "443"].contains(port))
                .map(|port| format!(":{port}")),
            path.map(str::to_owned),
            after("Gateway::Credential::").map(|name| format!(", lends {name}")),
        ];
        parts.into_iter().flatten().collect()
    }

    /// Returns the session, user or group that the rule is for; `None` if it is for all.
    pub fn whom(&self) -> Option<String> {
        let kinds = [
            ("principal == Gateway::Session::\"", "session"),
            ("principal in Gateway::User::\"", "user"),
            ("principal in Gateway::Group::\"", "group"),
        ];
        kinds.iter().find_map(|(before, kind)| {
            let name = self.rule.split_once(before)?.1.split('"').next()?;
            Some(format!("{kind} {name}"))
        })
    }

    /// Removes it from the text that it was read from.
    pub fn removed_from(&self, text: &str) -> String {
        let (before, after) = (&text[..self.whole.start], &text[self.whole.end..]);
        let after = after.strip_prefix('\n').unwrap_or(after);
        format!("{}\n{after}", before.trim_end())
    }
}

/// Adds rules to a file's text. A known rule that never expires stays; the expiry of any other
/// known rule is replaced.
fn with(text: &str, rules: &str, until: Option<OffsetDateTime>) -> String {
    let time = |at: OffsetDateTime| at.format(&Rfc3339).unwrap_or_default();
    let until = until.map(|at| format!("{UNTIL}{}", time(at)));
    let until = until.unwrap_or_default();
    let mut text = text.to_owned();
    for GrantedRule { rule, .. } in GrantedRule::all(rules) {
        let mut known = GrantedRule::all(&text).into_iter();
        match known.find(|one| one.rule == rule) {
            Some(known) if known.until.is_none() => continue,
            Some(known) => text = known.removed_from(&text),
            None => {}
        }
        let since = time(OffsetDateTime::now_utc());
        text.push_str(&format!("\n{MARK}{since}{until}\n{rule}\n"));
    }
    text
}

/// Removes expired rules from a text.
pub(super) fn pruned(mut text: String) -> String {
    let ended = |text: &str| GrantedRule::all_ending(text).find(GrantedRule::is_over);
    while let Some(one) = ended(&text) {
        text = one.removed_from(&text);
    }
    text
}

/// Leaves expired rules out of a source. The others keep their places.
pub fn leave_out_ended(source: &mut Source) {
    let ended = GrantedRule::all_ending(&source.text).filter(GrantedRule::is_over);
    let ended: Vec<_> = ended.map(|one| one.place).collect();
    ended.into_iter().for_each(|place| source.leave_out(place));
}

/// The file that keeps the rules granted for a folder or a configuration.
#[derive(Clone)]
pub struct GrantedFile(PathBuf);

/// A change of the file, which other gateways wait for until this is dropped.
pub struct ChangedFile<'f> {
    _lock: File,
    file: &'f GrantedFile,
    before: Option<String>,
}

impl ChangedFile<'_> {
    /// Undoes the change.
    pub(super) fn undo(&self) {
        // The caller reports the refusal. If this fails too, the next reload reports the file.
        let _ = match &self.before {
            Some(before) => self.file.write(before).map_err(drop),
            None => std::fs::remove_file(&self.file.0).map_err(drop),
        };
    }
}

impl GrantedFile {
    /// Will use the file at this path.
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads the file's rules, and the folder or configuration that they are for, if it says so.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn read(&self) -> Result<(Option<String>, Vec<GrantedRule>), ControlRefusal> {
        let text = self.text()?;
        let of = text.lines().find_map(|line| line.strip_prefix(OF));
        Ok((of.map(str::to_owned), GrantedRule::all(&text)))
    }

    fn text(&self) -> Result<String, ControlRefusal> {
        files::read(&self.0, LARGEST_MIB).map_err(|unfit| ControlRefusal::unread(&self.0, &unfit))
    }

    /// Adds a rule for the named folder or configuration, and removes expired rules.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub async fn add(
        &self,
        policy: &str,
        until: Option<i64>,
        of: &str,
    ) -> Result<ChangedFile<'_>, ControlRefusal> {
        let until = until.map(OffsetDateTime::from_unix_timestamp).transpose();
        let uncounted = "it would hold for longer than can be counted";
        let uncounted = |_| ControlRefusal::new(StatusCode::UNPROCESSABLE_ENTITY, uncounted);
        let until = until.map_err(uncounted)?;
        self.change(|before| {
            let text = before.unwrap_or_else(|| format!("{HEAD}{OF}{of}\n"));
            Ok(with(&pruned(text), policy, until))
        })
        .await
    }

    /// Removes a rule.
    ///
    /// # Errors
    /// Returns an error if the rule is gone, or the file cannot be changed.
    pub async fn remove(&self, rule: &str) -> Result<(), ControlRefusal> {
        let gone = ControlRefusal::conflict("it was taken back meanwhile").next("gateway grants");
        let without = |before: Option<String>| {
            let text = before.unwrap_or_default();
            let mut all = GrantedRule::all(&text).into_iter();
            let found = all.find(|one| one.rule == rule).ok_or(gone)?;
            Ok(found.removed_from(&text))
        };
        self.change(without).await.map(drop)
    }

    /// Changes the text. Several gateways may share the file, so each locks it until it has read,
    /// written and, if a rule is refused, restored it. The lock is another file, which no other
    /// user can open: others may read the folder, and a file that they can open they can lock.
    pub(super) async fn change(
        &self,
        change: impl FnOnce(Option<String>) -> Result<String, ControlRefusal>,
    ) -> Result<ChangedFile<'_>, ControlRefusal> {
        let lock = self.lock().await?;
        let before = self.0.exists().then(|| self.text()).transpose()?;
        self.write(&change(before.clone())?)?;
        Ok(ChangedFile {
            _lock: lock,
            file: self,
            before,
        })
    }

    async fn lock(&self) -> Result<File, ControlRefusal> {
        let folder = self.0.parent().unwrap_or(Path::new("/"));
        let mut private = std::fs::DirBuilder::new();
        let made = private.recursive(true).mode(0o700).create(folder);
        let lock = made.and_then(|()| files::lock_file(&self.0.with_extension("lock")));
        let lock = lock.map_err(|error| ControlRefusal::unkept(&error))?;
        let until = Instant::now() + HELD_AT_MOST;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(lock),
                Err(TryLockError::Error(error)) => return Err(ControlRefusal::unkept(&error)),
                Err(TryLockError::WouldBlock) if Instant::now() > until => {
                    let what = "another gateway changes the granted rules";
                    return Err(ControlRefusal::unavailable(what).next("allow it once more"));
                }
                Err(TryLockError::WouldBlock) => tokio::time::sleep(LOOKS_EVERY).await,
            }
        }
    }

    /// Writes the text. A person granted the rules, so they are in force also where a command in a
    /// sandbox could have written them.
    fn write(&self, text: &str) -> Result<(), ControlRefusal> {
        if files::check_written(&self.0).is_err() {
            let kept = Consent::to(&files::real(&self.0), text).keep();
            kept.map_err(|unfit| ControlRefusal::unkept(&unfit))?;
        }
        files::replace_private(&self.0, text.as_bytes()).map_err(|error| {
            let what = format!("`{}` cannot be written", self.0.display());
            ControlRefusal::unavailable(what).because(chain(&error))
        })
    }
}

/// How long another gateway may take to put a rule into force.
const HELD_AT_MOST: Duration = Duration::from_secs(15);
const LOOKS_EVERY: Duration = Duration::from_millis(20);
/// As large as a policy file may be.
const LARGEST_MIB: u64 = 16;
const MARK: &str = "// granted ";
const UNTIL: &str = " until ";
const HEAD: &str =
    "// Rules that an operator granted with `gateway allow`. `gateway grants` lists them.\n";
const OF: &str = "// For ";

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str =
        "@id(\"a\")\npermit(principal, action, resource == Gateway::Host::\"a.test\");";
    const TWO: &str = "permit(principal, action, resource == Gateway::Host::\"b.test\") when { context.port == 80 };";

    #[test]
    fn what_was_added_is_read_ends_and_is_removed_alone() {
        let now = OffsetDateTime::now_utc();
        let text = with(&format!("{HEAD}{OF}/p\n"), &format!("{ONE}\n{TWO}"), None);
        let text = with(&text, TWO, Some(now));
        let all = GrantedRule::all(&text);
        assert!(text.contains("\n// For /p\n"), "{text}");
        assert!(
            all.iter()
                .all(|one| one.since.is_some() && one.until.is_none()),
            "{text}"
        );
        assert_eq!(
            all.iter().map(GrantedRule::shown).collect::<Vec<_>>(),
            ["a.test", "b.test:80"]
        );
        let text = with(&all[1].removed_from(&text), TWO, Some(now));
        let mut source = Source::new("x", &text);
        leave_out_ended(&mut source);
        assert_eq!(source.rules().len(), 1, "{text}");
        // Granted anew, for longer, it holds.
        let text = with(&text, TWO, Some(now + time::Duration::hours(1)));
        assert_eq!(
            GrantedRule::all(&text)
                .iter()
                .filter(|one| !one.is_over())
                .count(),
            2,
            "{text}"
        );
        let by_hand = GrantedRule::all(&format!("// mine\n{ONE}"));
        assert!(by_hand[0].since.is_none() && by_hand[0].until.is_none());
        let broken = GrantedRule::all(&format!("// granted x until y\n{ONE}"));
        assert!(broken[0].is_over());
    }
}
