//! The summary of `exec` before the command starts: what applies, and what a person might miss.

use super::failure::Failure;
use super::generation::{self, EXEC};
use super::known_commands;
use super::lending;
use super::ports;
use super::profile::Profile;
use super::proposal;
use super::registries;
use super::resolve::ResolvedConfig;
use super::shell_proxy;
use super::terminal::{Terminal, safe};
use crate::config::{Allowed, Config};
use crate::credential::preset::PresetCredential;
use crate::credential::{SecretUnsafe, Stored, unexpected_reach};
use crate::gateway::floor;
use crate::launch::{self, Plan};
use crate::message::{Authority, HostPattern, Origin, Scheme};
use crate::names::{ReasonCode, SessionId};
use crate::origin::OriginSettings;
use crate::policy::HostScope;
use crate::session::Role;

/// Says, before anything else, that the command's work would be lost.
pub(super) fn tell_of_dropped(plan: &Plan, terminal: &Terminal) {
    if !plan.mounts.persistent {
        let folder = safe(&plan.mounts.working_directory.display().to_string());
        let dropped = "are dropped at the end: start in a folder of its own";
        terminal.warning("careful", &format!("changes in {folder} {dropped}"));
    }
}

/// What the summary is made from.
pub(super) struct Overview<'a> {
    pub config: &'a Config,
    pub resolved: &'a ResolvedConfig,
    pub plan: &'a Plan,
    pub profile: Option<&'a Profile>,
}

impl Overview<'_> {
    /// Prints it.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the policies or the credentials are refused.
    pub fn print(&self, terminal: &Terminal) -> Result<(), Failure> {
        let mut lines = vec![("network", self.network()?), ("lends", self.lends())];
        lines.extend(self.files().map(|text| ("file", text)));
        lines.extend(self.granted().map(|text| ("granted", text)));
        lines.extend(ports::told(&self.config.sandbox));
        lines.extend(self.agent().map(|text| ("agent", text)));
        lines.extend(self.unset().map(|text| ("not lent", text)));
        lines.extend(self.unfit().map(|text| ("not lent", text)));
        lines.extend(registries::untold(self.resolved).map(|text| ("registry", text)));
        lines.extend(self.projects().map(|text| ("project", text)));
        lines.push(("home", self.home()));
        lines.extend(listed(&self.plan.mounts.seen, " (to be read)").map(|text| ("sees", text)));
        lines.extend(listed(&self.config.sandbox.hide, "").map(|text| ("hides", text)));
        lines.extend(self.user().map(|text| ("user", text)));
        lines.extend(self.left_out().map(|text| ("left out", text)));
        for (name, text) in lines {
            terminal.entry(name, &safe(&text));
        }
        for text in self.warnings() {
            terminal.warning("careful", &safe(&text));
        }
        Ok(())
    }

    /// The files that are in force without being named: the project's, and the user's own.
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

    /// Where the rules are that `gateway allow` kept.
    fn granted(&self) -> Option<String> {
        let granted = self.config.granted.as_deref();
        let file = granted.filter(|file| file.exists())?.display();
        Some(format!(
            "what `gateway allow` kept for this project: edit {file} to take it back"
        ))
    }

    /// The agent whose profile applies, and what it keeps.
    fn agent(&self) -> Option<String> {
        let profile = self.profile?;
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

    /// What policies allow: those of files, and those that flags and presets stand for.
    fn network(&self) -> Result<String, Failure> {
        let policies = generation::of_exec(self.config, self.resolved)?;
        let session = SessionId::new(EXEC).map_err(|error| Failure::new(error.to_string()))?;
        let groups = self.config.groups.iter().map(|group| group.as_str().into());
        let Some(scopes) = policies.hosts_of(&session, &groups.collect::<Vec<_>>()) else {
            return Ok(String::from("any host, as the policies say"));
        };
        let mut hosts: Vec<String> = scopes.iter().map(|scope| self.reached(scope)).collect();
        hosts.sort();
        hosts.dedup();
        let is_for_others = policies.hosts().is_none_or(|all| !all.is_empty());
        let nothing = match is_for_others {
            true => "nothing: the policies are about other sessions or groups; see --group",
            false => "nothing: name a host with --allow, or a credential with --secret",
        };
        Ok(match hosts.is_empty() {
            true => nothing.to_owned(),
            false => some_of(&hosts, HOSTS_SHOWN, ", "),
        })
    }

    /// One host, with its port if only another than the usual one is allowed.
    fn reached(&self, scope: &HostScope) -> String {
        let name = match scope {
            HostScope::Host(name) => name.clone(),
            HostScope::Domain(name) => format!("*.{name}"),
        };
        let resolved = self.resolved;
        let allowed = resolved.allowed.iter().chain(&resolved.offered);
        let mut allowed = allowed.filter(|one| one.host.to_string() == name);
        let port = allowed.next().map(|one| one.port);
        let others = allowed.any(|one: &Allowed| Some(one.port) != port);
        match port {
            Some(port) if port != 443 && !others => format!("{name}:{port}"),
            _ => name,
        }
    }

    /// The credentials that the command can use, and where.
    fn lends(&self) -> String {
        let lendable = |stored: &&Stored| !matches!(stored.binding.role, Role::Part(_));
        let lent =
            self.resolved.stored.iter().filter(lendable).map(|stored| {
                match lending::is_lent(self.config, &stored.binding) {
                    true => lent_one(stored),
                    false => format!("{}, as the policies say", lent_one(stored)),
                }
            });
        match lent.collect::<Vec<_>>() {
            none if none.is_empty() => String::from("no credential"),
            lent => lent.join("; "),
        }
    }

    /// What presets would lend, if the user had set one of their variables.
    fn unset(&self) -> Option<String> {
        let one = |credential: &&PresetCredential| {
            let variables = credential.variables.join(", ");
            let none = match credential.variables.len() {
                1 => format!("{variables} is not set"),
                _ => format!("none of {variables} is set"),
            };
            let obtain = credential
                .obtain
                .as_ref()
                .map(|text| format!(": set {text}"));
            none + &obtain.unwrap_or_default()
        };
        let unset: Vec<String> = self.resolved.unset.iter().map(one).collect();
        (!unset.is_empty()).then(|| unset.join("; "))
    }

    /// The user's own variables that presets know, and that cannot be lent.
    fn unfit(&self) -> Option<String> {
        let one = |(variable, why): &(String, SecretUnsafe)| format!("{variable}: {why}");
        let unfit: Vec<String> = self.resolved.unfit.iter().map(one).collect();
        (!unfit.is_empty()).then(|| unfit.join("; "))
    }

    /// The host's own directories, that of the working directory first.
    fn projects(&self) -> impl Iterator<Item = String> {
        let mounts = &self.plan.mounts;
        let git = if self.plan.guards_git() {
            "; git's settings and hooks read-only: --writable-git"
        } else {
            ""
        };
        let persists = match mounts.persistent {
            true => format!("changes persist{git}"),
            false => String::from("changes are dropped at the end"),
        };
        let start = mounts.working_directory.as_path();
        let project = mounts.project().unwrap_or(start);
        let own = match start.strip_prefix(project) {
            Ok(below) if !below.as_os_str().is_empty() => {
                format!(
                    "{}, started in {} ({persists})",
                    project.display(),
                    below.display()
                )
            }
            _ => format!("{} ({persists})", project.display()),
        };
        let further = mounts.projects.iter();
        let further = further.filter(move |one| *one != project);
        let further = further.map(|one| format!("{} (too; changes persist)", one.display()));
        std::iter::once(own).chain(further)
    }

    /// What is visible of the home directory.
    fn home(&self) -> String {
        let place = self.plan.mounts.home.path().display();
        let launch::Home::Own(_) = self.plan.mounts.home else {
            return format!("{place} (empty, in memory)");
        };
        let seen = match self.plan.mounts.seen_in_home_by_name().as_slice() {
            [] => String::from("nothing of yours is seen"),
            names => format!("of yours it sees {}, and nothing else", names.join(", ")),
        };
        format!("{place} (in memory; {seen}: --see-home NAME)")
    }

    /// The user of the command, if it is another than the one who started it.
    fn user(&self) -> Option<String> {
        let user = self.plan.user();
        let other = user.uid != rustix::process::geteuid().as_raw();
        other.then(|| format!("uid {} gid {}", user.uid, user.gid))
    }

    /// The variables that the command does not get and might miss.
    fn left_out(&self) -> Option<String> {
        let stored = &self.resolved.stored;
        let is_lent = |name: &&String| {
            stored
                .iter()
                .any(|one| one.binding.variables.contains(*name))
        };
        let mut names = self.plan.left_out();
        names.retain(|name| !is_lent(&name));
        (!names.is_empty()).then(|| {
            let shown = some_of(&names, VARIABLES_SHOWN, ", ");
            format!("{shown}; --pass-env NAME passes a variable")
        })
    }

    /// What in the projects the command can use, although nobody lent it.
    fn warnings(&self) -> Vec<String> {
        let files = listed(&self.plan.secrets(), "").map(|files| {
            format!("{files} holds what looks like a secret, and the command can read it")
        });
        let sockets = listed(&self.plan.sockets(), "").map(|sockets| {
            format!("a program outside answers on {sockets}, which the command can reach")
        });
        let hide = self
            .config
            .sandbox
            .hide
            .iter()
            .filter(|path| !path.exists());
        let hide = hide.map(|path| format!("--hide {}: there is nothing to hide", path.display()));
        let open = "--learn=permit: the command may send anything to any host in this run";
        let open = self.config.open.then(|| open.to_owned());
        let settings = proposal::settings(Some(self.config));
        let allowed = self.resolved.allowed.iter();
        let ports = allowed.filter_map(|one| no_http(one).or_else(|| below(one, &settings)));
        let command = known_commands::limits(self.plan.launch());
        files
            .into_iter()
            .chain(sockets)
            .chain(hide)
            .chain(open)
            .chain(shell_proxy::unused(self.config))
            .chain(ports)
            .chain(command)
            .collect()
    }
}

/// Why a host that is allowed cannot be used as its name or port suggests.
fn no_http(allowed: &Allowed) -> Option<String> {
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

/// Why an allowed address would be refused all the same.
fn below(allowed: &Allowed, settings: &OriginSettings) -> Option<String> {
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

fn lent_one(stored: &Stored) -> String {
    let binding = &stored.binding;
    let hosts = binding
        .origins
        .iter()
        .map(|origin| origin.hosts.to_string());
    let hosts = some_of(&hosts.collect::<Vec<_>>(), HOSTS_SHOWN, ", ");
    let later = match stored.from.env_name() {
        Some(name) if std::env::var_os(name).is_none() => format!(", but {name} is not set"),
        Some(_) => String::new(),
        None => format!(", not yet read from {}", stored.from),
    };
    match binding.role {
        Role::Place if binding.variables.is_empty() => {
            format!("{} (phantom) to {hosts}{later}", binding.credential)
        }
        Role::Place => format!(
            "{} (phantom) to {hosts}{later}",
            binding.variables.join(", ")
        ),
        _ => {
            let reach = unexpected_reach(stored).map(|which| format!(", {which}"));
            let name = &binding.credential;
            format!(
                "{name} (signs) for {hosts}{}{later}",
                reach.unwrap_or_default()
            )
        }
    }
}

fn listed(paths: &[std::path::PathBuf], more: &str) -> Option<String> {
    let paths: Vec<String> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    (!paths.is_empty()).then(|| some_of(&paths, PATHS_SHOWN, ", ") + more)
}

/// The first of some texts, and how many more there are.
fn some_of(texts: &[String], most: usize, between: &str) -> String {
    let (shown, more) = texts.split_at(texts.len().min(most));
    match more.len() {
        0 => shown.join(between),
        count => format!("{} and {count} more", shown.join(between)),
    }
}

const HOSTS_SHOWN: usize = 12;
const PATHS_SHOWN: usize = 6;
/// How many variables the summary names.
const VARIABLES_SHOWN: usize = 8;
