//! Turns flags into the same [`Config`] as a file, so that the simple case needs no file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use crate::credential::SecretRef;
use crate::message::{OriginPattern, Scheme};
use crate::names::CredentialName;
use crate::policy::Source;

use super::bind;
use super::credential::Credential;
use super::diagnostic::{Diagnostic, Hint, Position, Severity};
use super::document::{literal_hint, resolve_path};
use super::listener::Listener;
use super::literal::{looks_secret, shown};
use super::network;
use super::origin::Origin;
use super::reference::{self, variables};
use super::signing::SigningCredential;
use super::sigv4;
use super::variable::sandbox_variable;
use super::{Allowed, Config, ConfigError, port, sandbox, state, validate};

/// The groups of flags in the help, in their order there.
pub const REACH: &str = "What it may reach";
/// What of the machine is there.
pub const SEE: &str = "What it may see and change";
/// What is for agents.
pub const AGENTS: &str = "Agents";
/// What listens.
pub const PORTS: &str = "Ports";
/// All else.
pub const MORE: &str = "More";

/// The flags by which a configuration is named or made.
#[derive(Args, Clone, Default)]
pub struct Flags {
    /// Inject a secret at a host; the workload gets a phantom in the variable NAME. REFERENCE is
    /// env:NAME, file:/PATH or keyring:SERVICE/NAME
    #[arg(long = "secret", value_name = "NAME[@HOST[:PORT]][=REFERENCE]", help_heading = REACH)]
    pub secrets: Vec<String>,
    /// Allow a service's hosts and inject the credentials in its usual variables (see `gateway
    /// presets`)
    #[arg(long = "preset", value_name = "NAME", help_heading = REACH)]
    pub presets: Vec<String>,
    /// Use the login of a program of yours, such as `claude` or `gh`. The gateway renews it, and
    /// the workload gets its file with phantoms
    #[arg(long = "login", value_name = "NAME", help_heading = REACH)]
    pub logins: Vec<String>,
    /// Sign requests to AWS with your credentials, from the environment or from a profile of the
    /// AWS CLI
    #[arg(long, value_name = "PROFILE", num_args = 0..=1, require_equals = true, default_missing_value = "", help_heading = REACH)]
    pub aws: Option<String>,
    /// Restrict --aws to these S3 buckets, or to a prefix in one
    #[arg(long = "bucket", value_name = "NAME[/PREFIX]", help_heading = REACH)]
    pub buckets: Vec<String>,
    /// Allow a host, or `*.DOMAIN`; port 443 unless named. `http://HOST` allows it in clear text, on
    /// port 80 unless named, where no credential goes
    #[arg(long, value_name = "[http://]HOST[:PORT]", help_heading = REACH)]
    pub allow: Vec<String>,
    /// Add a Cedar policy file, or a pattern such as `policies/*.cedar`
    #[arg(long = "policy", value_name = "FILE", help_heading = REACH)]
    pub policies: Vec<String>,
    /// Read settings from a file
    #[arg(long, value_name = "FILE", help_heading = MORE)]
    pub config: Option<PathBuf>,
    /// Write the audit log to this file
    #[arg(long, value_name = "FILE", help_heading = MORE)]
    pub audit: Option<String>,
    /// Give the workload new phantoms, and in `serve` a new CA, instead of those of the last start
    #[arg(long, help_heading = MORE)]
    pub fresh: bool,
    /// A proxy beside the listeners of the file, which `serve` alone has.
    #[arg(skip)]
    pub listen: Option<SocketAddr>,
}

/// The flags of a sandbox and its session, which `exec` alone makes.
#[derive(Args, Clone, Default)]
pub struct SandboxFlags {
    /// Let the workload read a path of the host
    #[arg(long, value_name = "PATH", help_heading = SEE)]
    pub see: Vec<String>,
    /// Let the workload see more of your home: a set such as `claude`, or a path in it. Changes are
    /// discarded
    #[arg(long, value_name = "NAME_OR_PATH", help_heading = SEE)]
    pub see_home: Vec<String>,
    /// Hide a path from the workload
    #[arg(long, value_name = "PATH", help_heading = SEE)]
    pub hide: Vec<String>,
    /// Let the workload write to a path; changes persist
    #[arg(long, value_name = "PATH", help_heading = SEE)]
    pub write: Vec<String>,
    /// Pass a variable to the workload, in addition to the harmless ones; `PREFIX*` passes several
    #[arg(long, value_name = "NAME", help_heading = SEE)]
    pub pass_env: Vec<String>,
    /// What DNS tells of a name that no policy reaches: `explain` gives it an address, where the
    /// gateway refuses with the reason; `strict` says that it does not exist
    #[arg(long, value_name = "explain|strict", help_heading = REACH, display_order = 900)]
    pub dns: Option<String>,
    /// Let this machine reach a server in the sandbox, at 127.0.0.1 unless HOST names another
    /// address
    #[arg(long, value_name = "[HOST:]PORT[:INSIDE]", help_heading = PORTS)]
    pub publish: Vec<String>,
    /// Let the workload reach one service of this machine, at 127.0.0.1:PORT; its bytes pass
    /// unread, and no secret is injected
    #[arg(long, value_name = "PORT", help_heading = PORTS)]
    pub host_port: Vec<String>,
    /// Put the session in a group that policies name
    #[arg(long = "group", value_name = "NAME", help_heading = MORE)]
    pub groups: Vec<String>,
    /// Run the workload as this user, which root alone may [default for root: the user who called
    /// sudo, or nobody]
    #[arg(long, value_name = "NAME", help_heading = MORE)]
    pub user: Option<String>,
}

/// Collects what is wrong with the flags.
struct Line {
    directory: PathBuf,
    found: Vec<Diagnostic>,
}

impl Flags {
    /// Reads the file that the flags name, if any, and adds the flags to it.
    ///
    /// `known` returns the preset of a variable, such as `github` for `GITHUB_TOKEN`.
    ///
    /// # Errors
    /// Returns a [`ConfigError`] with every mistake of the file and of the flags.
    pub fn config(
        &self,
        sandbox: &SandboxFlags,
        known: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Config, ConfigError> {
        let named = self.config.as_deref().map(Config::load);
        self.added_to(named, sandbox, known)
    }

    /// Adds the flags to a configuration that was read, or to none.
    ///
    /// # Errors
    /// As [`Flags::config`].
    pub fn added_to(
        &self,
        read: Option<Result<Config, ConfigError>>,
        sandbox: &SandboxFlags,
        known: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Config, ConfigError> {
        let mut mistakes = Vec::new();
        let none = || {
            Ok(Config {
                home: state::home(),
                ..Config::default()
            })
        };
        let mut config = read.unwrap_or_else(none).unwrap_or_else(|refused| {
            mistakes = refused.mistakes;
            Config::default()
        });
        let mut line = Line {
            directory: std::path::absolute(".").unwrap_or_else(|_| PathBuf::from("/")),
            found: Vec::new(),
        };
        mistakes.append(&mut config.unusable);
        config.state.fresh = self.fresh;
        self.credentials(&mut config, &mut line, known);
        self.reach(&mut config, &mut line);
        if let Some(address) = self.listen {
            config.listeners.push(Listener::proxy(address));
            let certificate = config.ca.certificate.take();
            config.ca.certificate = certificate.or_else(state::certificate);
        }
        sandbox.add_to(&mut config, &mut line);
        mistakes.append(&mut line.found);
        config.warnings.extend(validate::permits_nothing(&config));
        if mistakes
            .iter()
            .any(|mistake| mistake.severity != Severity::Warning)
        {
            return Err(ConfigError { mistakes });
        }
        Ok(config)
    }

    fn credentials(
        &self,
        config: &mut Config,
        line: &mut Line,
        known: &dyn Fn(&str) -> Option<String>,
    ) {
        let configured = config.credentials.len();
        for text in &self.secrets {
            let read = secret(text, &line.directory, config.home.as_deref(), known);
            let Some((credential, allowed)) =
                line.take("--secret", "the flag cannot be read", read)
            else {
                continue;
            };
            config.allow.extend(allowed);
            if credential.origins.is_empty() {
                config.presets.extend(credential.preset.clone());
            }
            config.credentials.push(credential);
        }
        if let Some(profile) = &self.aws {
            let read = aws(profile).and_then(|credential| pinned(credential, &self.buckets));
            let credential = line.take("--aws", "the credentials of AWS cannot be named", read);
            config.credentials.extend(credential);
        }
        for credential in &mut config.credentials[configured..] {
            credential.by_flag = true;
        }
        for (_, what, hint) in bind::mistakes(&config.credentials, &config.logins) {
            line.refuse("--secret", what, hint);
        }
        if self.aws.is_none() && !self.buckets.is_empty() {
            let hint = Hint::new(
                "it is about the credentials that `--aws` names",
                "add `--aws`, or write `buckets` to the credential in the file",
            );
            line.refuse("--bucket", String::from("`--bucket` needs `--aws`"), hint);
        }
        for text in &self.presets {
            let read = super::credential::known_preset(text);
            config.presets.extend(line.value("--preset", text, read));
        }
        config.presets.sort();
        config.presets.dedup();
        for text in &self.logins {
            let read = super::credential::login_name(text);
            config
                .named_logins
                .extend(line.value("--login", text, read));
        }
        config.named_logins.sort();
        config.named_logins.dedup();
    }

    fn reach(&self, config: &mut Config, line: &mut Line) {
        for text in &self.allow {
            if let Some(origin) = line.value("--allow", text, network::allowed(text)) {
                if network::has_path(text) {
                    config.warnings.push(path_is_left_out(&origin));
                }
                let (host, port) = (origin.hosts.clone(), origin.port);
                config.allow.push(Allowed { host, port });
                if origin.scheme == Scheme::Http {
                    clear_text(config, origin);
                }
            }
        }
        for text in &self.policies {
            let path = resolve_path(text, &line.directory, config.home.as_deref());
            let read = path.and_then(|path| {
                Source::read(&path)?;
                Ok(path)
            });
            let file = line.value("--policy", text, read);
            config.policy.files.extend(file);
        }
        if let Some(text) = &self.audit {
            let path = resolve_path(text, &line.directory, config.home.as_deref());
            config.audit.path = line
                .value("--audit", text, path)
                .or(config.audit.path.take());
        }
    }
}

impl SandboxFlags {
    fn add_to(&self, config: &mut Config, line: &mut Line) {
        for text in &self.groups {
            if let Some(name) = line.value("--group", text, super::listener::name(text)) {
                config.groups.push(name.as_str().to_owned());
            }
        }
        let home = config.home.clone();
        for (flag, texts, list) in [
            ("--see", &self.see, &mut config.sandbox.see),
            ("--hide", &self.hide, &mut config.sandbox.hide),
            ("--write", &self.write, &mut config.sandbox.write),
        ] {
            for text in texts {
                let path = resolve_path(text, &line.directory, home.as_deref());
                list.extend(line.value(flag, text, path));
            }
        }
        for text in &self.see_home {
            let read = sandbox::of_home(text);
            config
                .sandbox
                .see_home
                .extend(line.value("--see-home", text, read));
        }
        for text in &self.pass_env {
            config
                .sandbox
                .pass_env
                .extend(line.value("--pass-env", text, variables(text)));
        }
        if let Some(text) = &self.dns {
            let read = line.value("--dns", text, sandbox::SandboxDns::read(text));
            config.sandbox.dns = read.unwrap_or(config.sandbox.dns);
        }
        for text in &self.publish {
            let read = line.value("--publish", text, port::published(text));
            config.sandbox.publish.extend(read);
        }
        for text in &self.host_port {
            let read = line.value("--host-port", text, port::host_port(text));
            config.sandbox.host_port.extend(read);
        }
        if let Some(user) = &self.user {
            let fits = !user.is_empty()
                && user.len() <= 64
                && user
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte));
            let read = if fits {
                Ok(user.clone())
            } else {
                Err(Hint::new(
                    "it is no user's name or number",
                    "write for example `nobody` or `1000:1000`",
                ))
            };
            config.sandbox.user = line.value("--user", user, read);
        }
        for (what, hint) in validate::sandbox_contradictions(config) {
            line.refuse("command line", what, hint);
        }
    }
}

impl Line {
    fn refuse(&mut self, flag: &str, what: String, hint: Hint) {
        self.found.push(Diagnostic {
            position: Position::whole(&Arc::from(flag)),
            severity: Severity::Error,
            what,
            why: hint.why,
            remedy: hint.remedy,
        });
    }

    fn take<T>(&mut self, flag: &str, what: &str, read: Result<T, Hint>) -> Option<T> {
        read.map_err(|hint| self.refuse(flag, what.to_owned(), hint))
            .ok()
    }

    fn value<T>(&mut self, flag: &str, text: &str, read: Result<T, Hint>) -> Option<T> {
        let what = format!("the value is {}", shown(text));
        self.take(flag, &what, read)
    }
}

fn path_is_left_out(origin: &OriginPattern) -> Diagnostic {
    Diagnostic {
        position: Position::whole(&Arc::from("--allow")),
        severity: Severity::Warning,
        what: format!("every path of `{}` is allowed", origin.hosts),
        why: String::from("the flag names a host, and the path of the URL is left out"),
        remedy: String::from("to allow some paths only, write a policy: `--policy FILE`"),
    }
}

/// Lets an http origin be reached, with what the file says of it.
fn clear_text(config: &mut Config, origin: OriginPattern) {
    let mut known = config.origins.iter_mut().map(|known| &mut known.rule);
    if let Some(rule) = known.find(|rule| rule.matches == origin) {
        rule.cleartext = true;
        return;
    }
    let covering = Origin::covering(&config.origins, &origin);
    config.origins.push(Origin::in_clear_text(origin, covering));
}

/// Returns the AWS credentials from the environment, or those the AWS CLI prints for a profile.
fn aws(profile: &str) -> Result<Credential, Hint> {
    if profile.is_empty() {
        return Credential::aws().ok_or_else(|| {
            Hint::new(
                "`AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` are not both set",
                "set them, or name a profile of the AWS CLI: `--aws=PROFILE`",
            )
        });
    }
    let fits = profile.len() <= 128
        && !profile.starts_with('-')
        && profile
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-@+/:".contains(&byte));
    if !fits {
        return Err(Hint::new(
            "it is no name of a profile",
            "write for example `--aws=dev`",
        ));
    }
    let program = std::env::var_os("PATH")
        .iter()
        .flat_map(std::env::split_paths)
        .map(|folder| folder.join("aws"))
        .find(|path| path.is_absolute() && path.is_file());
    let program = program
        .and_then(|path| path.to_str().map(str::to_owned))
        .ok_or_else(|| {
            Hint::new(
                "a profile's credentials are printed by the AWS CLI, and there is no program `aws` in PATH",
                "install it, or set the credentials as variables and write `--aws`",
            )
        })?;
    let arguments = [
        "configure",
        "export-credentials",
        "--profile",
        profile,
        "--format",
        "process",
    ];
    let from = SecretRef::command(program, arguments.map(str::to_owned).to_vec(), None);
    from.check()?;
    Ok(Credential::aws_from(&from))
}

/// Restricts the credential to these buckets, if any are named.
fn pinned(credential: Credential, buckets: &[String]) -> Result<Credential, Hint> {
    let (false, Some(signing)) = (buckets.is_empty(), &credential.signing) else {
        return Ok(credential);
    };
    let signer = sigv4::for_buckets(buckets.to_vec()).map_err(|mistakes| {
        let all: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        Hint::new(
            all.join("; "),
            "write for example `--bucket reports` or `--bucket shared/incoming/`",
        )
    })?;
    Ok(Credential {
        signing: Some(SigningCredential {
            signer: Arc::new(signer),
            parts: signing.parts.clone(),
            recipe_file: None,
        }),
        ..credential
    })
}

/// Reads `NAME[@HOST[:PORT]][=REFERENCE]`. Returns the credential and the hosts that it makes the
/// session allow.
fn secret(
    text: &str,
    directory: &Path,
    home: Option<&Path>,
    known: &dyn Fn(&str) -> Option<String>,
) -> Result<(Credential, Option<Allowed>), Hint> {
    let (bound, kept) = match text.split_once('=') {
        Some((bound, kept)) => (bound, Some(kept)),
        None => (text, None),
    };
    let (name, host) = match bound.split_once('@') {
        Some((name, host)) => (name, Some(host)),
        None => (bound, None),
    };
    if looks_secret(name) {
        return Err(literal_hint());
    }
    let example =
        "write for example `GITHUB_TOKEN@api.github.com`, or `NAME@HOST=keyring:gateway/NAME`";
    let name_hint = |why: String| Hint::new(why, example);
    let variable_name = sandbox_variable(name).map_err(|hint| name_hint(hint.why))?;
    let credential_name =
        CredentialName::new(name).map_err(|malformed| name_hint(malformed.to_string()))?;
    let from = match kept {
        Some(text) => {
            let read = reference::parse(text, |path| resolve_path(path, directory, home))?;
            read.check()?;
            read
        }
        None => SecretRef::env(variable_name.clone()),
    };
    let mut credential = Credential::named(credential_name, from);
    credential.env = vec![variable_name];
    credential.preset = known(name);
    let Some(host) = host else {
        let known = credential.known();
        if known.is_none_or(|known| known.origins.is_empty()) {
            return Err(Hint::new(
                "no preset knows that variable and its host, so nothing says where its secret may go",
                format!("write `{name}@HOST`"),
            ));
        }
        return Ok((credential, None));
    };
    let (host, port) = network::host_and_port(host, Scheme::Https.default_port())?;
    credential.origins.push(OriginPattern {
        scheme: Scheme::Https,
        hosts: host.clone(),
        port,
    });
    Ok((credential, Some(Allowed { host, port })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credential::preset;

    fn flags(edit: impl FnOnce(&mut Flags)) -> Result<Config, ConfigError> {
        with_sandbox(|flags, _| edit(flags))
    }

    fn with_sandbox(
        edit: impl FnOnce(&mut Flags, &mut SandboxFlags),
    ) -> Result<Config, ConfigError> {
        let (mut flags, mut sandbox) = (Flags::default(), SandboxFlags::default());
        edit(&mut flags, &mut sandbox);
        flags.config(&sandbox, &|name| {
            preset::of_variable(name).map(|(preset, _)| preset.name.clone())
        })
    }

    #[test]
    fn a_secret_flag_binds_one_host_and_allows_it_and_nothing_else() {
        let config =
            flags(|flags| flags.secrets = vec!["GITHUB_TOKEN@api.github.com".into()]).unwrap();
        let credential = &config.credentials[0];
        assert_eq!(credential.from, SecretRef::env("GITHUB_TOKEN"));
        assert_eq!(credential.env, ["GITHUB_TOKEN"]);
        assert_eq!(credential.preset.as_deref(), Some("github"));
        assert_eq!(credential.origins[0].to_string(), "https://api.github.com");
        assert_eq!(config.allow.len(), 1);
        assert_eq!(config.allow[0].host, credential.origins[0].hosts);
        assert!(config.presets.is_empty());
    }

    #[test]
    fn a_known_variable_without_a_host_takes_those_of_its_preset() {
        let config = flags(|flags| flags.secrets = vec!["GITHUB_TOKEN".into()]).unwrap();
        assert_eq!(config.presets, ["github"]);
        assert!(config.allow.is_empty());
    }

    #[test]
    fn a_reference_and_a_port_may_follow() {
        let config =
            flags(|flags| flags.secrets = vec!["K@api.corp.test:8443=keyring:gateway/K".into()])
                .unwrap();
        assert_eq!(config.credentials[0].from.to_string(), "keyring:gateway/K");
        assert_eq!(
            config.credentials[0].origins[0].to_string(),
            "https://api.corp.test:8443"
        );
    }

    #[test]
    fn a_url_allows_its_host_and_warns_of_a_path_that_limits_nothing() {
        for (url, warns) in [("https://a.test/v1?k=1", true), ("https://a.test/", false)] {
            let config = flags(|flags| flags.allow = vec![url.to_owned()]).unwrap();
            assert_eq!(config.allow[0].host.to_string(), "a.test");
            let warned = config.warnings.iter().map(|one| one.what.as_str());
            let expected = warns.then_some("every path of `a.test` is allowed");
            assert!(warned.eq(expected), "{url}");
        }
    }

    #[test]
    fn an_http_host_is_allowed_in_clear_text_and_a_domain_is_not() {
        let allow = |text: &str| flags(|flags| flags.allow = vec![text.into()]);
        let config = allow("http://deb.debian.org").unwrap();
        let rule = &config.origins[0].rule;
        assert_eq!(config.allow[0].port, 80);
        assert!(rule.cleartext && rule.matches.to_string() == "http://deb.debian.org");
        for text in ["deb.debian.org", "https://deb.debian.org", "*.debian.org"] {
            let config = allow(text).unwrap();
            assert!(
                config.origins.is_empty() && config.allow[0].port == 443,
                "{text}"
            );
        }
        for text in ["http://*.debian.org", "ftp://a.test"] {
            assert!(allow(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_http_host_keeps_what_the_file_says_of_its_domain() {
        let file = "[[origin]]\nmatch = \"http://*.corp.test\"\ncleartext = true\nconnect = \"127.0.0.1:8081\"\n";
        let mut config =
            Config::from_str(file, std::path::Path::new("/nowhere/gateway.toml")).unwrap();
        clear_text(&mut config, "http://a.corp.test".parse().unwrap());
        let [domain, host] = &config.origins[..] else {
            panic!("{:?}", config.origins);
        };
        assert_eq!(host.rule.connect, domain.rule.connect);
        assert_eq!(host.rule.matches.to_string(), "http://a.corp.test");
    }

    #[test]
    fn every_bad_flag_is_reported_at_once() {
        let refused = with_sandbox(|flags, sandbox| {
            flags.secrets = vec![
                "UNKNOWN".into(),
                "PATH@h.test".into(),
                "A@h.test".into(),
                "A@h.test".into(),
            ];
            flags.allow = vec!["*.com".into(), "h:0".into()];
            flags.policies = vec!["/nonexistent/x.cedar".into()];
            sandbox.pass_env = vec!["A".into(), "1X".into()];
            sandbox.user = Some("a b".into());
            sandbox.groups = vec!["a b".into()];
        })
        .unwrap_err();
        assert_eq!(refused.mistakes.len(), 10, "{refused}");
    }

    #[test]
    fn a_literal_secret_in_a_flag_is_refused_and_not_repeated() {
        let canary = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
        for text in [
            canary.to_owned(),
            format!("A@h.test={canary}"),
            format!("A=env:{canary}"),
            format!("{canary}@h.test"),
            "A@h.test=hunter2".into(),
        ] {
            let refused = flags(|flags| flags.secrets = vec![text.clone()]).unwrap_err();
            let told = format!("{refused} {refused:?}");
            assert!(
                !told.contains("0123456789abc") && !told.contains("hunter2"),
                "{told}"
            );
        }
    }
}
