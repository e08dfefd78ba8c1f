//! `gateway login`: the logins that the gateway holds, and those that are kept.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::SystemTime;

use clap::Args;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::runtime::Runtime;
use zeroize::Zeroizing;

use crate::app::login::stores as login_stores;
use crate::app::terminal::text::as_argument;
use crate::app::{App, ConfigFile, Failure, Terminal, safe};
use crate::cli::confirm::confirmed_aside;
use crate::config::{self, Config};
use crate::credential::login::{Issuer, Login, LoginPlace, TokenKind, Tokens, file};
use crate::credential::{ForgetOutcome, Logins, RowLogin, StoreError, Stores, UnreadRow, preset};
use crate::files;
use crate::names::CredentialName;
use crate::state::{GrantId, RowName};

/// Names a login.
#[derive(Args)]
pub(crate) struct LoginName {
    /// Its name, as `gateway login list` shows it
    name: String,
    #[command(flatten)]
    config: ConfigFile,
}

/// Names a login to forget, or all.
#[derive(Args)]
pub(crate) struct ForgetLogin {
    /// Its name, as `gateway login list` shows it
    #[arg(required_unless_present = "all")]
    name: Option<String>,
    /// All that are kept; says what else is kept for you, and how to remove that
    #[arg(long, conflicts_with = "name")]
    all: bool,
    #[command(flatten)]
    config: ConfigFile,
}

impl ForgetLogin {
    pub(super) async fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        let (name, config) = (self.name, self.config);
        match name {
            Some(name) => LoginName { name, config }.forget(terminal).await,
            None => forget_all(&self::config(&config)?, terminal).await,
        }
    }
}

/// A login that is listed.
struct ListedLogin {
    name: CredentialName,
    account: Option<String>,
    /// The file of its program; `None` if it is in the state.
    file: Option<String>,
    /// The grant of a session, unless a person has kept it.
    grant: Option<GrantId>,
    ends: Option<SystemTime>,
    hosts: Vec<String>,
}

impl LoginName {
    pub(super) async fn keep(
        &self,
        grant: Option<String>,
        terminal: &Terminal,
    ) -> Result<(), Failure> {
        let logins = opened(&config(&self.config)?, &[])?;
        let (name, mut waiting) = (self.login()?, waiting(&logins, terminal).await?);
        waiting.retain(|row| {
            let of = row.name.grant.as_ref().map(ToString::to_string);
            row.login.name == name && (grant.is_none() || grant == of)
        });
        if waiting.len() > 1 {
            // A command could log in under the name of another login.
            let what = format!("{} logins `{name}` wait to be kept", waiting.len());
            let next = "`gateway login list` tells whose each is; name one: `--grant ID`";
            return Err(Failure::usage(what).next(next));
        }
        let none = || {
            let what = format!("no login `{name}` waits to be kept");
            Failure::new(what).next("`gateway login list` lists them")
        };
        let row = waiting.pop().ok_or_else(none)?;
        if !logins.keep(&row.name).await.map_err(unkept)? {
            return Err(none());
        }
        let account = row.tokens.account();
        let line = format!("kept: {}", shown(&name, account.as_deref()));
        let document = json!({ "name": name.as_str(), "account": account, "kept": true });
        terminal.answer(&document, line);
        Ok(())
    }

    pub(super) async fn forget(&self, terminal: &Terminal) -> Result<(), Failure> {
        let (config, name) = (config(&self.config)?, self.login()?);
        let forgotten = forgotten(&config, &name).await?;
        if !forgotten.was_kept {
            let file = in_files(terminal).into_iter().find(|one| one.name == name);
            let failure = Failure::new(format!("no login `{name}` is kept"));
            return Err(match file.and_then(|one| one.file) {
                Some(file) => failure
                    .because(format!(
                        "its tokens are in `{file}`, which belongs to its program"
                    ))
                    .next("log out with that program"),
                None => failure.next("`gateway login list` lists them"),
            });
        }
        let (document, line) = told(&name, forgotten.is_revoked);
        terminal.answer(&document, line);
        Ok(())
    }

    fn login(&self) -> Result<CredentialName, Failure> {
        CredentialName::new(&self.name).map_err(|malformed| {
            let what = format!("there is no login `{}`", safe(&self.name));
            let failure = Failure::usage(what).because(malformed.to_string());
            failure.next("`gateway login list` lists them")
        })
    }
}

/// Forgets what is kept of a login, and ends it at its issuer.
async fn forgotten(config: &Config, name: &CredentialName) -> Result<ForgetOutcome, Failure> {
    let rows = opened(config, &[])?.rows(|row| row.login == *name).await;
    let rows = rows.unwrap_or_default().into_iter().flatten();
    let issued: Vec<Login> = rows.map(|row| row.login).collect();
    let forgotten = opened(config, &issued)?.forget(name).await;
    forgotten.map_err(|error| failed("nothing was forgotten", &error))
}

/// What is said of a login that was forgotten, as a document and as a line.
fn told(name: &CredentialName, is_revoked: bool) -> (Value, String) {
    let told = if is_revoked {
        "its issuer ended it"
    } else {
        "its issuer was not told: end it at the service, too"
    };
    let document = json!({ "name": name.as_str(), "forgotten": true, "revoked": is_revoked });
    (document, format!("forgotten: {name}; {told}"))
}

/// Forgets every login that is kept, and says what else is kept for the user.
async fn forget_all(config: &Config, terminal: &Terminal) -> Result<(), Failure> {
    let rows = opened(config, &[])?.rows(|_| true).await;
    let rows = rows.map_err(|error| failed("the logins cannot be listed", &error))?;
    let names = rows.into_iter().map(|row| match row {
        Ok(row) => row.name.login,
        Err(unread) => unread.name.login,
    });
    let (mut documents, mut left) = (Vec::new(), Vec::new());
    for name in names.collect::<BTreeSet<_>>() {
        let (document, line) = match forgotten(config, &name).await {
            Ok(forgotten) => told(&name, forgotten.is_revoked),
            Err(failure) => {
                left.push(name.to_string());
                let why = failure.why.unwrap_or_default();
                let line = format!("not forgotten: {name}; {}", safe(&why));
                let document = json!({ "name": name.as_str(), "forgotten": false, "why": why });
                (document, line)
            }
        };
        if !terminal.json() {
            terminal.line(line);
        }
        documents.push(document);
    }
    let kept = config::state::directory().filter(|folder| folder.exists());
    if terminal.json() {
        terminal.document(&json!({ "forgotten": documents, "kept": kept }));
    }
    if !left.is_empty() {
        return Err(Failure::new("not every login was forgotten")
            .because(format!("still kept: {}", left.join(", ")))
            .next("mend what is said of each, and run it again"));
    }
    if terminal.json() {
        return Ok(());
    }
    if documents.is_empty() {
        terminal.line("no login was kept");
    }
    if let Some(folder) = kept.map(|folder| as_argument(&folder)) {
        terminal.line(format!(
            "left: {folder} has phantoms, logs and the homes that agents kept; once no gateway \
             runs, `rm -r {folder}` removes it"
        ));
    }
    terminal.line("left: secrets of the key ring: `gateway secret list`, `gateway secret rm NAME`");
    Ok(())
}

/// Keeps the tokens of a login that a person made outside a sandbox.
///
/// # Errors
/// Returns a [`Failure`] if they cannot be written.
pub(crate) async fn keep_new(
    config: &Config,
    login: &Login,
    tokens: &Tokens,
) -> Result<(), Failure> {
    let logins = opened(config, &[])?;
    logins.write(login, tokens).await.map_err(unkept)
}

/// Returns the logins that the sessions of a gateway made.
pub(crate) fn made(app: &App) -> Vec<RowName> {
    app.shared.current().credentials.stores().logins().taken()
}

/// Asks a person whether to keep the logins that the command made, naming each account. Without a
/// terminal, prints the command that keeps them.
pub(crate) fn offer(runtime: &Runtime, app: &App, made: &[RowName], terminal: &Terminal) {
    let logins = app.shared.current().credentials.stores().logins();
    let waiting = if made.is_empty() {
        return;
    } else {
        runtime.block_on(waiting(&logins, terminal))
    };
    let waiting = waiting.unwrap_or_else(|failure| {
        terminal.fail(&failure);
        Vec::new()
    });
    for row in waiting.iter().filter(|row| made.contains(&row.name)) {
        let name = &row.login.name;
        let login = shown(name, row.tokens.account().as_deref());
        let made = format!("the command logged in: {login}{}", at_issuer(&row.login));
        let question = format!("gateway  login    {made}. Keep it for later runs?");
        match confirmed_aside(&question) {
            Some(true) => match runtime.block_on(logins.keep(&row.name)) {
                Ok(_) => terminal.entry_of_peer("login", &format!("kept: {login}")),
                Err(error) => terminal.fail(&unkept(error)),
            },
            Some(false) => match runtime.block_on(logins.drop(row)) {
                Ok(()) => terminal.entry_of_peer("login", &format!("not kept: {login}")),
                Err(error) => terminal.fail(&unkept(error)),
            },
            None => {
                let same = waiting.iter().filter(|one| one.login.name == *name);
                let grant = row.name.grant.as_ref().filter(|_| same.count() > 1);
                let grant = grant.map_or_else(String::new, |grant| format!(" --grant {grant}"));
                let keeps = format!("`gateway login keep {name}{grant}` keeps it for later runs");
                terminal.entry_of_peer("login", &format!("{made}. {keeps}"));
            }
        }
    }
}

pub(super) async fn list(config: &Config, terminal: &Terminal) -> Result<(), Failure> {
    let rows = opened(config, &[])?.rows(|_| true).await;
    let rows = rows.map_err(|error| failed("the logins cannot be listed", &error))?;
    let rows = readable(rows, terminal);
    let mut all: Vec<ListedLogin> = rows.into_iter().map(ListedLogin::of_row).collect();
    all.extend(in_files(terminal));
    all.sort_by(|one, other| one.name.cmp(&other.name));
    if terminal.json() {
        let all: Vec<Value> = all.iter().map(ListedLogin::document).collect();
        terminal.document(&json!({ "logins": all }));
    } else if all.is_empty() {
        terminal.line(
            "no login is kept, and none is in a program's file: `gateway login add URL` makes one",
        );
    } else {
        all.iter()
            .for_each(|one| terminal.line_of_peer(&one.line()));
    }
    Ok(())
}

impl ListedLogin {
    fn of_row(row: RowLogin) -> Self {
        Self {
            grant: row.name.grant.clone(),
            ..Self::of(&row.login, &row.tokens)
        }
    }

    fn of(login: &Login, tokens: &Tokens) -> Self {
        let access = login.tokens.iter();
        let access = access.filter(|one| one.kind == TokenKind::Access);
        Self {
            name: login.name.clone(),
            account: tokens.account(),
            file: match &login.place {
                LoginPlace::File(file) => Some(file.path.display().to_string()),
                LoginPlace::State => None,
            },
            grant: None,
            ends: tokens.expires,
            hosts: access
                .flat_map(|one| &one.origins)
                .map(ToString::to_string)
                .collect(),
        }
    }

    fn document(&self) -> Value {
        let place = self.file.as_deref().unwrap_or("state");
        json!({
            "name": self.name.as_str(), "account": self.account, "place": place,
            "kept": self.grant.is_none(), "grant": self.grant.as_ref().map(ToString::to_string),
            "ends": self.ends.and_then(moment), "hosts": self.hosts,
        })
    }

    fn line(&self) -> String {
        let place = match (&self.file, &self.grant) {
            (Some(file), _) => format!("in {}", safe(file)),
            (None, None) => "kept".to_owned(),
            (None, Some(grant)) => format!("made in a sandbox, not kept: --grant {grant}"),
        };
        let ends = self.ends.and_then(moment);
        let ends = ends.map(|text| format!("  until {}", text[..16].replace('T', " ")));
        let login = shown(&self.name, self.account.as_deref());
        format!("{login}  {place}{}", ends.unwrap_or_default())
    }
}

/// Returns the logins in the files of known programs. Reports why a file cannot be read.
fn in_files(terminal: &Terminal) -> Vec<ListedLogin> {
    let Some(home) = config::state::home() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for login in preset::logins().flat_map(|known| match known.at_home(&home) {
        Ok(logins) => logins,
        Err(why) => {
            terminal.note(format!("gateway: {}", safe(&why.to_string())));
            Vec::new()
        }
    }) {
        match tokens_of(&login) {
            Ok(tokens) => found.extend(tokens.map(|tokens| ListedLogin::of(&login, &tokens))),
            Err(why) => terminal.note(format!("gateway: {}", safe(&why))),
        }
    }
    found
}

/// Returns the tokens in a program's file; `None` if the file is missing or has none.
fn tokens_of(login: &Login) -> Result<Option<Tokens>, String> {
    let LoginPlace::File(at) = &login.place else {
        return Ok(None);
    };
    if !Path::exists(&at.path) {
        return Ok(None);
    }
    let text = files::shown(&at.path, 1).map(Zeroizing::new);
    let text = text.map_err(|unfit| format!("`{}`: {unfit}", at.path.display()))?;
    file::read(at, text.as_bytes()).map_err(|why| why.to_string())
}

/// Returns the named configuration, else the user's own file.
pub(super) fn config(named: &ConfigFile) -> Result<Config, Failure> {
    Ok(match named.find()? {
        Some(config) => config,
        None => Config::of_user()?.unwrap_or_default(),
    })
}

/// Opens the logins of the state, with clients for the issuers of these.
fn opened(config: &Config, issued: &[Login]) -> Result<Logins, Failure> {
    let issuers = issued.iter().filter_map(|login| login.issuer.as_ref());
    let stores = Stores::new(issuers.flat_map(Issuer::references));
    let settings = login_stores::settings(config, issued, |_| None)?;
    Ok(stores.with_logins(settings, None).logins())
}

/// Returns the logins that sessions made and no person has kept, the oldest first.
async fn waiting(logins: &Logins, terminal: &Terminal) -> Result<Vec<RowLogin>, Failure> {
    let rows = logins.rows(|row| row.grant.is_some()).await;
    let rows = rows.map_err(|error| failed("the logins cannot be read", &error))?;
    let mut rows = readable(rows, terminal);
    rows.sort_by_key(|row| row.written);
    Ok(rows)
}

/// Returns the readable rows. Reports why each other row cannot be read.
fn readable(rows: Vec<Result<RowLogin, UnreadRow>>, terminal: &Terminal) -> Vec<RowLogin> {
    let told = |why: UnreadRow| terminal.note(format!("gateway: {}", safe(&why.to_string())));
    rows.into_iter()
        .filter_map(|row| row.map_err(told).ok())
        .collect()
}

/// Names the server that issued a login: a command may log in under any name.
fn at_issuer(login: &Login) -> String {
    let issuer = login.issuer.as_ref().map(|issuer| &issuer.endpoint.origin);
    issuer.map_or_else(String::new, |origin| {
        format!(", at {}", origin.host_field())
    })
}

fn shown(name: &CredentialName, account: Option<&str>) -> String {
    match account {
        // A long account could fill the terminal, and look like lines of the gateway's own.
        Some(account) => {
            let account: String = account.chars().take(LONGEST_ACCOUNT).collect();
            format!("{name}, as {}", safe(&account))
        }
        None => format!("{name}, whose account its issuer does not tell"),
    }
}

const LONGEST_ACCOUNT: usize = 64;

fn moment(at: SystemTime) -> Option<String> {
    // A server may name any number, even of a year that no calendar has.
    let since = at.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let seconds = i64::try_from(since.as_secs()).ok()?;
    let at = OffsetDateTime::from_unix_timestamp(seconds).ok()?;
    at.format(&Rfc3339).ok()
}

fn unkept(error: StoreError) -> Failure {
    failed("the login is not kept", &error)
}

/// The cause says what to do.
fn failed(what: &str, error: &StoreError) -> Failure {
    Failure::of(what, error)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_login_may_end_after_every_calendar() {
        let at = |seconds| moment(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0).as_deref(), Some("1970-01-01T00:00:00Z"));
        assert_eq!(at(999_999_999_999_999), None);
    }

    #[test]
    fn a_login_is_told_with_its_issuer() {
        let login = preset::login_named("claude").and_then(|known| known.begun());
        let login = login.unwrap();
        assert_eq!(at_issuer(&login), ", at platform.claude.com");
        let issuer = None;
        assert_eq!(at_issuer(&Login { issuer, ..login }), "");
    }

    #[test]
    fn an_account_fills_no_terminal() {
        let name = CredentialName::new("mcp.example").unwrap();
        let shown = shown(&name, Some(&"ann ".repeat(1000)));
        assert_eq!(shown, format!("mcp.example, as {}", "ann ".repeat(16)));
    }
}
