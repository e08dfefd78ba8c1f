//! The summary of `exec` before the command starts: the settings in force, and likely surprises.

use std::path::Path;

use crate::app::login::run_logins;
use crate::app::login::run_logins::UnusedLogin;
use crate::app::settings::commit_key::SshSigning;
use crate::app::settings::profile;
use crate::app::settings::profile::Profile;
use crate::app::settings::resolve::ResolvedConfig;
use crate::app::settings::shell_secrets::Withheld;
use crate::app::{Failure, Terminal, safe};
use crate::cli::config_summary::ConfigSummary;
use crate::cli::exec::printed_lines::PrintedLines;
use crate::cli::exec::{company, known_commands, ports, registries};
use crate::cli::remedy;
use crate::config::{Config, HostPort};
use crate::credential::preset::{self, PresetCredential};
use crate::credential::{ConfiguredCredential, SecretUnsafe, unexpected_reach};
use crate::launch::{self, LaunchPlan, is_secret_name};
use crate::message::{Authority, HostPattern, Origin, OriginPattern, Scheme};
use crate::names::ReasonCode;
use crate::origin::OriginSettings;
use crate::policy::generate;
use crate::server::floor;
use crate::session::Role;

/// Warns, before anything else, that the command's changes would be lost.
pub(crate) fn tell_of_dropped(plan: &LaunchPlan, terminal: &Terminal) {
    if !plan.mounts.persistent {
        let folder = safe(&plan.mounts.working_directory.display().to_string());
        let dropped = "are dropped at the end: start in a folder of its own";
        terminal.warning("careful", &format!("changes in {folder} {dropped}"));
    }
}

/// The input of the summary.
pub(crate) struct Overview<'a> {
    pub config: &'a Config,
    pub resolved: &'a ResolvedConfig,
    pub plan: &'a LaunchPlan,
    pub profile: Option<&'a Profile>,
    pub commits: &'a Result<Option<SshSigning>, String>,
    /// Whether to print everything in full.
    pub is_verbose: bool,
}

impl Overview<'_> {
    /// Prints the summary: hosts and credentials in one line if they are not new in this project,
    /// and the new lines of the rest.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the policies or the credentials are refused.
    pub fn print(&self, said: &mut PrintedLines, terminal: &Terminal) -> Result<(), Failure> {
        let summary = ConfigSummary::of(self.config, self.resolved)?;
        let (network, lends) = (self.network(&summary), self.lends(&summary));
        let is_new = said.is_new("network", &network) | said.is_new("lends", &lends);
        if is_new {
            terminal.entry("network", &safe(&network));
            terminal.entry("lends", &safe(&lends));
        } else {
            let (name, text) = self.in_one_line(&summary);
            terminal.entry(&name, &safe(&text));
        }
        for (name, text) in self.details(&summary) {
            // What went wrong is said each time.
            if said.is_new(name, &text) | (name == "unsigned") {
                terminal.entry(name, &safe(&text));
            }
        }
        said.keep();
        for text in self.warnings() {
            terminal.warning("careful", &safe(&text));
        }
        Ok(())
    }

    fn details(&self, summary: &ConfigSummary) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        lines.extend(self.files().map(|text| ("file", text)));
        lines.extend(self.granted().map(|text| ("granted", text)));
        lines.extend(ports::told(&self.config.sandbox));
        lines.extend(self.agent().map(|text| ("agent", text)));
        lines.extend(self.commits());
        lines.extend(self.unused().map(|text| ("not lent", text)));
        lines.extend(self.withheld(summary).map(|text| ("not lent", text)));
        lines.extend(self.unset().map(|text| ("not lent", text)));
        lines.extend(self.unfit().map(|text| ("not lent", text)));
        lines.extend(registries::untold(self.resolved).map(|text| ("registry", text)));
        lines.extend(self.projects().map(|text| ("project", text)));
        lines.push(("home", self.home()));
        lines.extend(listed(&self.plan.mounts.seen, " (read-only)").map(|text| ("sees", text)));
        lines.extend(listed(&self.config.sandbox.hide, "").map(|text| ("hides", text)));
        lines.extend(self.user().map(|text| ("user", text)));
        lines.extend(self.not_passed().map(|text| ("env", text)));
        lines
    }

    /// Returns the first host, the credentials and the folder.
    fn in_one_line(&self, summary: &ConfigSummary) -> (String, String) {
        let hosts = match summary.hosts().as_deref() {
            None => String::from("any host"),
            Some([]) => String::from("no host"),
            Some([only]) => only.clone(),
            Some([first, more @ ..]) => format!("{first} +{}", more.len()),
        };
        // This may omit something, but never states more than there is.
        let (there, waiting): (Vec<_>, Vec<_>) = summary
            .lends
            .iter()
            .map(|(stored, _)| stored)
            .partition(|stored| self.later(stored).is_none());
        let there: Vec<String> = there.into_iter().map(lent_name).collect();
        let names = match (&there[..], &waiting[..], self.profile) {
            ([], [first, ..], Some(_)) => {
                let later = self.later(first).unwrap_or_default();
                format!("nothing yet ({}{later})", lent_name(first))
            }
            ([], ..) => String::from("nothing"),
            _ => some_of(&there, LENT_SHOWN, ", "),
        };
        let (project, below) = self.project();
        let home = self.plan.mounts.home.path();
        let project = match project.strip_prefix(home) {
            Ok(below) => format!("~/{}", below.display()),
            Err(_) => project.display().to_string(),
        };
        let folder = match below {
            Some(below) => format!("{project}, in {}", below.display()),
            None => project,
        };
        (hosts, format!("lends {names}; {folder}; -v tells all"))
    }

    /// Returns the files in force that were not named: the project's, and the user's own.
    fn files(&self) -> impl Iterator<Item = String> {
        let (project, user) = (&self.config.project, &self.config.user);
        let project = project
            .as_ref()
            .map(|file| format!("{}, as you allowed it", file.display()));
        let user = user
            .as_ref()
            .map(|file| format!("{}, your own", file.display()));
        project.into_iter().chain(user)
    }

    /// Returns the file of the rules that `gateway allow` stored.
    fn granted(&self) -> Option<String> {
        let granted = self.config.granted.as_deref();
        granted.filter(|file| file.exists())?;
        let told = "what `gateway allow` kept for this project: `gateway grants` lists it, and \
                    `gateway grants remove N` takes it back";
        Some(told.to_owned())
    }

    /// Returns the agent whose profile applies, and its kept folders.
    fn agent(&self) -> Option<String> {
        let Some(profile) = self.profile else {
            let name = profile::wrapped(&self.plan.launch().arguments)?;
            let flag = format!("`--profile {name}` applies it");
            return Some(format!(
                "no profile, since {name} is not the command itself: {flag}"
            ));
        };
        let kept = self
            .plan
            .mounts
            .kept
            .iter()
            .filter(|kept| profile.keep.contains(&kept.name))
            .map(|kept| format!("~/{}", kept.name.display()));
        let kept: Vec<String> = kept.collect();
        let keeps = match (&kept[..], &profile.keep[..]) {
            (_, []) => String::from("it keeps nothing"),
            ([], _) => String::from("nothing of its home is kept here"),
            _ => format!(
                "keeps {} for this project: --fresh-home forgets it",
                kept.join(", ")
            ),
        };
        Some(format!(
            "{}, by its profile `{}`; {keeps}",
            profile.title, profile.name
        ))
    }

    /// Returns the key that signs commits, or why none does.
    fn commits(&self) -> Option<(&'static str, String)> {
        let signing = match self.commits {
            Ok(signing) => signing.as_ref()?,
            Err(why) => return Some(("unsigned", format!("commits: {why}"))),
        };
        let key = signing.key.fingerprint();
        if let Some(why) = signing.unready {
            return Some(("unsigned", format!("commits, by the key {key}: {why}")));
        }
        let repository = &signing.repository;
        let mut text = format!("commits of {repository}, by your agent with the key {key}");
        if self.config.policy.decide() {
            let permit = generate::permit_sign(None, key, None);
            let permit: Vec<&str> = permit.split_whitespace().collect();
            text += &format!(", if a policy permits it: `{}`", permit.join(" "));
        }
        Some(("signs", text))
    }

    /// Returns the hosts that policies allow, from files, flags and presets.
    fn network(&self, summary: &ConfigSummary) -> String {
        let nothing = if self.config.policy.decide() {
            "nothing: the policies are about other sessions or groups; see --group"
        } else {
            "nothing: name a host with --allow, or a credential with --secret"
        };
        match summary.hosts() {
            None => String::from("any host, as the policies say"),
            Some(hosts) if hosts.is_empty() => nothing.to_owned(),
            Some(hosts) => {
                let hosts: Vec<String> = hosts.iter().map(|name| self.reached(name)).collect();
                some_of(&hosts, HOSTS_SHOWN, ", ")
            }
        }
    }

    /// Returns one host, with its port if only an unusual one is allowed.
    fn reached(&self, name: &str) -> String {
        let resolved = self.resolved;
        let allowed = resolved.allowed.iter().chain(&resolved.offered);
        let mut allowed = allowed.filter(|one| one.host.to_string() == name);
        let port = allowed.next().map(|one| one.port);
        let others = allowed.any(|one: &HostPort| Some(one.port) != port);
        match port {
            Some(port) if port != 443 && !others => format!("{name}:{port}"),
            _ => name.to_owned(),
        }
    }

    /// Returns the credentials that the command can use, with their origins.
    fn lends(&self, summary: &ConfigSummary) -> String {
        let lent = summary.lends.iter();
        let lent = lent.map(|(stored, to)| lent_one(stored, self.later(stored), to));
        match lent.collect::<Vec<_>>() {
            none if none.is_empty() => String::from("no credential"),
            lent => lent.join("; "),
        }
    }

    /// Returns the condition that a credential still waits for.
    fn later(&self, stored: &ConfiguredCredential) -> Option<String> {
        let login = stored.from.login_name();
        let login = login.map(|name| self.resolved.logins.iter().find(|one| one.name == *name));
        match (stored.from.env_name(), login) {
            (Some(name), _) if std::env::var_os(name).is_none() => {
                Some(format!(", but {name} is not set"))
            }
            (_, Some(Some(login))) if !run_logins::is_there(login) => {
                Some(", once the command has logged in".to_owned())
            }
            (Some(_), _) | (_, Some(_)) => None,
            (None, None) => Some(format!(", not yet read from {}", stored.from)),
        }
    }

    /// Returns the known secrets of the shell that are not named, with the flags that lend them,
    /// and the credentials that no rule lends.
    fn withheld(&self, summary: &ConfigSummary) -> Option<String> {
        let named = |one: &Withheld| format!("{} (`{}`)", one.variables.join(", "), one.flag());
        let withheld = self.resolved.withheld.iter().map(named);
        let unlent = summary.unlent.iter();
        let unlent = unlent.map(|one| format!("{}: no policy lends it", lent_name(one)));
        withheld.chain(unlent).reduce(|all, one| all + ", " + &one)
    }

    /// Returns the agent's unused logins, and the flags that choose them.
    fn unused(&self) -> Option<String> {
        let one = |one: &UnusedLogin| {
            let (login, instead) = (&one.login, &one.instead);
            format!("login {login}, since {instead} is used: `--login {login}` uses it instead")
        };
        joined(self.resolved.unused.iter().map(one))
    }

    /// Returns the credentials that presets would lend if one of their variables were set.
    fn unset(&self) -> Option<String> {
        let one = |credential: &&PresetCredential| {
            let variables = credential.variables.join(", ");
            let none = match credential.variables.len() {
                1 => format!("{variables} is not set"),
                _ => format!("none of {variables} is set"),
            };
            let preset = credential
                .variables
                .first()
                .and_then(|one| preset::of_variable(one));
            let login = preset.and_then(|(preset, _)| preset.logins.first());
            match login {
                None => none,
                Some(login) => format!("{none}; `--login {}` uses a login instead", login.name),
            }
        };
        joined(self.resolved.unset.iter().map(one))
    }

    /// Returns the user's own variables that presets know and that cannot be lent.
    fn unfit(&self) -> Option<String> {
        let one = |(variable, why): &(String, SecretUnsafe)| format!("{variable}: {why}");
        joined(self.resolved.unfit.iter().map(one))
    }

    /// The project, and the folder in it where the command starts, if it is another.
    fn project(&self) -> (&Path, Option<&Path>) {
        let start = self.plan.mounts.working_directory.as_path();
        let project = self.plan.mounts.project().unwrap_or(start);
        let below = start.strip_prefix(project).ok();
        (project, below.filter(|below| !below.as_os_str().is_empty()))
    }

    /// The host's own directories, that of the working directory first.
    fn projects(&self) -> impl Iterator<Item = String> {
        let mounts = &self.plan.mounts;
        let git = if self.plan.guards_git() {
            "; git's settings and hooks read-only: --writable-git"
        } else {
            ""
        };
        let persists = if mounts.persistent {
            format!("changes persist{git}")
        } else {
            String::from("changes are dropped at the end")
        };
        let (project, below) = self.project();
        let started = below.map(|below| format!(", started in {}", below.display()));
        let started = started.unwrap_or_default();
        let own = format!("{}{started} ({persists})", project.display());
        let further = mounts.projects.iter();
        let further = further.filter(move |one| *one != project);
        let further = further.map(|one| format!("{} (too; changes persist)", one.display()));
        std::iter::once(own).chain(further)
    }

    /// Returns the home directory, with its visible parts.
    fn home(&self) -> String {
        let place = self.plan.mounts.home.path().display();
        let launch::Home::Own(_) = self.plan.mounts.home else {
            return format!("{place} (empty, in memory)");
        };
        let seen = match self.plan.mounts.seen_in_home_by_name().as_slice() {
            [] => String::from("none of your files"),
            names => format!("of your files only {}", names.join(", ")),
        };
        format!("{place} (in memory; {seen}: --see-home NAME)")
    }

    /// Returns the user of the command, if it is not the one who started it.
    fn user(&self) -> Option<String> {
        let user = self.plan.user();
        let other = user.uid != rustix::process::geteuid().as_raw();
        other.then(|| format!("uid {} gid {}", user.uid, user.gid))
    }

    /// Returns the variables that the command does not get and might miss.
    fn not_passed(&self) -> Option<String> {
        let stored = &self.resolved.stored;
        let mut known = stored.iter().flat_map(|one| one.binding.variables.clone());
        let withheld = self.resolved.withheld.iter();
        let withheld = withheld.flat_map(|one| one.variables.clone());
        let known: Vec<String> = known.by_ref().chain(withheld).collect();
        let mut names = self.plan.left_out();
        names.retain(|name| !known.contains(name));
        (!names.is_empty()).then(|| {
            let most = if self.is_verbose {
                names.len()
            } else {
                VARIABLES_SHOWN
            };
            let shown = some_of(&names, most, ", ");
            // A secret is suggested only as a loan, never as it is.
            let first = |is_secret| {
                let mut all = names.iter();
                all.find(|name| is_secret_name(name.as_bytes()) == is_secret)
            };
            let secret =
                first(true).map(|name| format!("; --secret {name}@HOST lends a phantom of it"));
            let plain = first(false).map(|name| format!("; --pass-env {name} passes it as it is"));
            format!(
                "not passed: {shown}{}{}",
                secret.unwrap_or_default(),
                plain.unwrap_or_default()
            )
        })
    }

    /// Returns warnings about secrets in the projects that the command can use without a loan.
    fn warnings(&self) -> Vec<String> {
        let found = self.plan.secrets().into_iter();
        let found = found.map(|(path, key)| match key {
            Some(key) => format!("{} (`{key}`)", path.display()),
            None => path.display().to_string(),
        });
        let found: Vec<String> = found.collect();
        let files = (!found.is_empty()).then(|| some_of(&found, PATHS_SHOWN, ", "));
        let files = files.map(|files| {
            format!("{files} holds what looks like a secret, and the command can read it")
        });
        let sockets = listed(&self.plan.sockets(), "").map(|sockets| {
            format!("a program outside answers on {sockets}, which the command can reach")
        });
        let hide = self.config.sandbox.hide.iter();
        let hide = hide.filter(|path| !path.exists());
        let hide = hide.map(|path| format!("--hide {}: there is nothing to hide", path.display()));
        let open = "--learn=permit: the command may send anything to any host in this run";
        let open = self.config.open.then(|| open.to_owned());
        let settings = remedy::origins(Some(self.config));
        let allowed = self.resolved.allowed.iter();
        let ports = allowed.filter_map(|one| no_http(one).or_else(|| below(one, &settings)));
        let command = known_commands::limits(self.plan.launch());
        files
            .into_iter()
            .chain(sockets)
            .chain(hide)
            .chain(open)
            .chain(company::unused(self.config))
            .chain(ports)
            .chain(command)
            .collect()
    }
}

/// Returns why an allowed host cannot be used as its name or port suggests.
fn no_http(allowed: &HostPort) -> Option<String> {
    let (host, port) = (allowed.host.to_string(), allowed.port);
    let is_local = host == "localhost"
        || allowed
            .host
            .host()
            .ip()
            .is_some_and(|address| address.is_loopback());
    let why = match port {
        _ if is_local => {
            "in the sandbox that is the sandbox itself; `--host-port` reaches a service of this machine"
        }
        22 => "SSH does not pass, only HTTP does: let git use https",
        25 | 465 | 587 => "mail does not pass, only HTTP does",
        1433 | 3306 | 5432 | 6379 | 27017 => "databases' own protocols do not pass, only HTTP does",
        _ => return None,
    };
    Some(format!("--allow {host}:{port}: {why}"))
}

/// Returns why an allowed address would still be refused.
fn below(allowed: &HostPort, settings: &OriginSettings) -> Option<String> {
    let HostPattern::Exact(host) = &allowed.host else {
        return None;
    };
    let authority = Authority {
        host: host.clone(),
        port: allowed.port,
    };
    let clear = Origin {
        scheme: Scheme::Http,
        authority: authority.clone(),
    };
    let is_clear = settings.rule(&clear).is_some_and(|rule| rule.cleartext);
    let tls = Origin {
        scheme: Scheme::Https,
        authority,
    };
    let reason = floor(if is_clear { &clear } else { &tls }, settings)?;
    let remedy = match reason {
        ReasonCode::SsrfResolvedIp => " It needs `addresses` in `[[origin]]`, too.",
        _ => "",
    };
    let port = allowed.port;
    Some(format!(
        "--allow {host}:{port}: {}{remedy}",
        reason.meaning()
    ))
}

/// Returns the name by which the command knows a credential.
fn lent_name(stored: &ConfiguredCredential) -> String {
    let binding = &stored.binding;
    match binding.role {
        Role::Place if !binding.variables.is_empty() => binding.variables.join(", "),
        _ if stored.from.login_name() == Some(&binding.credential) => {
            format!("login {}", binding.credential)
        }
        _ => binding.credential.to_string(),
    }
}

fn lent_one(stored: &ConfiguredCredential, later: Option<String>, to: &[OriginPattern]) -> String {
    let hosts: Vec<String> = to.iter().map(|origin| origin.hosts.to_string()).collect();
    let hosts = some_of(&hosts, HOSTS_SHOWN, ", ");
    let later = later.unwrap_or_default();
    let name = lent_name(stored);
    match stored.binding.role {
        Role::Place => format!("{name} (phantom) to {hosts}{later}"),
        _ => {
            let reach = unexpected_reach(stored).map(|which| format!(", {which}"));
            let reach = reach.unwrap_or_default();
            format!("{name} (signs) for {hosts}{reach}{later}")
        }
    }
}

fn joined(texts: impl Iterator<Item = String>) -> Option<String> {
    texts.reduce(|all, one| all + "; " + &one)
}

fn listed(paths: &[std::path::PathBuf], more: &str) -> Option<String> {
    let paths: Vec<String> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    (!paths.is_empty()).then(|| some_of(&paths, PATHS_SHOWN, ", ") + more)
}

/// Returns the first of some texts, and how many more there are.
fn some_of(texts: &[String], most: usize, between: &str) -> String {
    let (shown, more) = texts.split_at(texts.len().min(most));
    match more.len() {
        0 => shown.join(between),
        count => format!("{} and {count} more", shown.join(between)),
    }
}

const HOSTS_SHOWN: usize = 12;
const LENT_SHOWN: usize = 3;
const PATHS_SHOWN: usize = 6;
/// How many variables the summary names.
const VARIABLES_SHOWN: usize = 8;
