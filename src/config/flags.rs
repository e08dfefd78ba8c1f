//! Turns flags into the same [`Config`] as a file, so that the simple case needs no file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use gateway_credential::SecretRef;
use gateway_message::{OriginPattern, Scheme};
use gateway_names::CredentialName;
use gateway_policy::Source;

use super::bind;
use super::credential::{Credential, login_name, requested_preset};
use super::diagnostic::{Diagnostic, Hint, Position, Severity, remedy};
use super::document::{literal_hint, resolve_path};
use super::listener::Listener;
use super::literal::{looks_secret, shown};
use super::network;
use super::origin::Origin;
use super::reference::{self, variables};
use super::section::characters;
use super::signing::SigningCredential;
use super::sigv4;
use super::variable::sandbox_variable;
use super::{Config, ConfigError, HostPort, port, sandbox, state, validate};

/// The groups of flags in the help, in their order there.
pub const REACH: &str = "What it may reach";
/// What the workload sees of the machine.
pub const SEE: &str = "What it may see and change";
/// Flags for agents.
pub const AGENTS: &str = "Agents";
/// Flags for ports.
pub const PORTS: &str = "Ports";
/// All other flags.
pub const MORE: &str = "More";

/// The flags by which a configuration is named or made.
#[derive(Args, Clone, Default)]
pub struct Flags {
    /// Inject a secret at a host; the workload gets a phantom in the variable NAME. REFERENCE is
    /// env:NAME, file:/PATH or keyring:SERVICE/NAME
    #[arg(long = "secret", value_name = "NAME[@HOST[:PORT]][=REFERENCE]", help_heading = REACH)]
    pub secrets: Vec<String>,
    /// Allow a service's hosts and inject the credentials in its usual variables; `github:read`
    /// leaves no more than reading (see `gateway secret presets`)
    #[arg(long = "preset", value_name = "NAME[:PERMISSION]", help_heading = REACH)]
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
    /// Allow a host, or `*.DOMAIN`; port 443 unless named. `http://HOST` allows it in clear text,
    /// on port 80 unless named, where no credential goes
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
    /// How to answer DNS queries for names that no policy allows: `explain` gives an address, where
    /// the gateway refuses with the reason; `strict` says that it does not exist
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

/// Reads the values of flags, and collects their mistakes.
struct Line {
    directory: PathBuf,
    home: Option<PathBuf>,
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
        let none = Config {
            home: state::home(),
            ..Config::default()
        };
        let mut config = read.unwrap_or(Ok(none)).unwrap_or_else(|refused| {
            mistakes = refused.mistakes;
            Config::default()
        });
        let mut line = Line {
            directory: std::path::absolute(".").unwrap_or_else(|_| PathBuf::from("/")),
            home: config.home.clone(),
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
        if mistakes.iter().any(|one| one.severity != Severity::Warning) {
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
            let read = line.secret(text, known);
            let read = read.and_then(|(credential, allowed)| {
                config.check_store(&credential.from)?;
                Ok((credential, allowed))
            });
            let read = line.take("--secret", "the flag cannot be read", read);
            let Some((credential, allowed)) = read else {
                continue;
            };
            config.allow.extend(allowed);
            if credential.origins.is_empty() {
                config.flag_presets.extend(credential.preset.clone());
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
            line.error("--secret", what, hint);
        }
        if self.aws.is_none() && !self.buckets.is_empty() {
            mistake!(line, "--bucket", "`--bucket` needs `--aws`";
                "it is about the credentials that `--aws` names";
                "add `--aws`, or write `buckets` to the credential in the file");
        }
        let (directory, home) = (line.directory.clone(), line.home.clone());
        let path = |text: &str| resolve_path(text, &directory, home.as_deref());
        let presets = line.each("--preset", &self.presets, |text| {
            requested_preset(text, path)
        });
        let presets = config.request(presets);
        config.flag_presets.extend(presets);
        config.presets.extend(config.flag_presets.iter().cloned());
        config.presets.sort();
        config.presets.dedup();
        let logins = line.each("--login", &self.logins, login_name);
        config.flag_logins.extend(logins.iter().cloned());
        config.named_logins.extend(logins);
        config.named_logins.sort();
        config.named_logins.dedup();
    }

    fn reach(&self, config: &mut Config, line: &mut Line) {
        let read = |text: &str| Ok((network::allowed(text)?, network::has_path(text)));
        for (origin, has_path) in line.each("--allow", &self.allow, read) {
            if has_path {
                config.warnings.push(path_is_left_out(&origin));
            }
            let (host, port) = (origin.hosts.clone(), origin.port);
            config.allow.push(HostPort { host, port });
            if origin.scheme == Scheme::Http {
                clear_text(config, origin);
            }
        }
        let (directory, home) = (line.directory.clone(), line.home.clone());
        let read = |text: &str| {
            let path = resolve_path(text, &directory, home.as_deref())?;
            Source::read(&path)?;
            Ok(path)
        };
        let files = line.each("--policy", &self.policies, read);
        config.policy.files.extend(files);
        let audit = line.paths("--audit", self.audit.as_slice());
        config.audit.path = audit.into_iter().next().or(config.audit.path.take());
    }
}

impl SandboxFlags {
    fn add_to(&self, config: &mut Config, line: &mut Line) {
        let group = |text: &str| Ok(super::listener::name(text)?.as_str().to_owned());
        config
            .groups
            .extend(line.each("--group", &self.groups, group));
        let own = &mut config.sandbox;
        own.see.extend(line.paths("--see", &self.see));
        own.hide.extend(line.paths("--hide", &self.hide));
        own.write.extend(line.paths("--write", &self.write));
        own.see_home
            .extend(line.each("--see-home", &self.see_home, sandbox::of_home));
        own.pass_env
            .extend(line.each("--pass-env", &self.pass_env, variables));
        let dns = line.each("--dns", self.dns.as_slice(), sandbox::SandboxDns::read);
        own.dns = dns.first().copied().unwrap_or(own.dns);
        own.publish
            .extend(line.each("--publish", &self.publish, port::published));
        own.host_port
            .extend(line.each("--host-port", &self.host_port, port::host_port));
        let users = line.each("--user", self.user.as_slice(), |text| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte);
            characters(text, 64, fits).ok_or_else(|| {
                hint!("it is no user's name or number"; "write for example `nobody` or `1000:1000`")
            })
        });
        own.user = users.into_iter().next().or(own.user.take());
        for (what, hint) in validate::sandbox_contradictions(config) {
            line.error("command line", what, hint);
        }
    }
}

impl Line {
    fn error(&mut self, flag: &str, what: impl Into<String>, hint: Hint) {
        self.found.push(Diagnostic {
            position: Position::whole(&Arc::from(flag)),
            severity: Severity::Error,
            what: what.into(),
            why: hint.why,
            remedy: hint.remedy,
        });
    }

    fn take<T>(&mut self, flag: &str, what: &str, read: Result<T, Hint>) -> Option<T> {
        read.map_err(|hint| self.error(flag, what, hint)).ok()
    }

    fn value<T>(&mut self, flag: &str, text: &str, read: Result<T, Hint>) -> Option<T> {
        let what = format!("the value is {}", shown(text));
        self.take(flag, &what, read)
    }

    /// Returns the values of a flag, read by `read`. Records those that `read` refuses.
    fn each<T>(
        &mut self,
        flag: &str,
        texts: &[String],
        read: impl Fn(&str) -> Result<T, Hint>,
    ) -> Vec<T> {
        let values = texts.iter();
        let values = values.filter_map(|text| self.value(flag, text, read(text)));
        values.collect()
    }

    fn paths(&mut self, flag: &str, texts: &[String]) -> Vec<PathBuf> {
        let (directory, home) = (self.directory.clone(), self.home.clone());
        let read = |text: &str| resolve_path(text, &directory, home.as_deref());
        self.each(flag, texts, read)
    }

    /// Reads `NAME[@HOST[:PORT]][=REFERENCE]`. Returns the credential, and the hosts that it
    /// allows.
    fn secret(
        &self,
        text: &str,
        known: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(Credential, Option<HostPort>), Hint> {
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
        let variable = sandbox_variable(name).map_err(|hint| Hint::new(hint.why, example))?;
        let own_name = CredentialName::new(name).map_err(remedy(example))?;
        let from = match kept {
            Some(text) => {
                let resolve =
                    |path: &str| resolve_path(path, &self.directory, self.home.as_deref());
                let read = reference::parse(text, resolve)?;
                read.check()?;
                read
            }
            None => SecretRef::env(variable.clone()),
        };
        let mut credential = Credential::named(own_name, from);
        credential.env = vec![variable];
        credential.preset = known(name);
        let Some(host) = host else {
            let known = credential.known();
            if known.is_none_or(|known| known.origins.is_empty()) {
                return refused!("no preset knows that variable and its host, so nothing says where its secret may go";
                    "write `{name}@HOST`");
            }
            return Ok((credential, None));
        };
        let (host, port) = network::host_and_port(host, Scheme::Https.default_port())?;
        credential.origins.push(OriginPattern {
            scheme: Scheme::Https,
            hosts: host.clone(),
            port,
        });
        Ok((credential, Some(HostPort { host, port })))
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

/// Allows an http origin in clear text, and keeps the rest of the rule that covers it.
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
            hint!("`AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` are not both set";
                "set them, or name a profile of the AWS CLI: `--aws=PROFILE`")
        });
    }
    Ok(Credential::aws_from(&aws_profile(profile)?))
}

/// Returns the program that prints the credentials of a profile of the AWS CLI.
pub(super) fn aws_profile(profile: &str) -> Result<SecretRef, Hint> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@+/:".contains(&byte);
    if profile.starts_with('-') || characters(profile, 128, fits).is_none() {
        return refused!("it is no name of a profile"; "write for example `dev`");
    }
    let program = std::env::var_os("PATH")
        .iter()
        .flat_map(std::env::split_paths)
        .map(|folder| folder.join("aws"))
        .find(|path| path.is_absolute() && path.is_file());
    let program = program
        .and_then(|path| path.to_str().map(str::to_owned))
        .ok_or_else(|| {
            hint!("a profile's credentials are printed by the AWS CLI, and there is no program `aws` in PATH";
                "install it, or set the credentials as variables and write `--aws`")
        })?;
    let arguments = format!("configure export-credentials --profile {profile} --format process");
    let arguments = arguments.split(' ').map(str::to_owned).collect();
    let from = SecretRef::command(program, arguments, None);
    from.check()?;
    Ok(from)
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

#[cfg(test)]
mod tests {
    use gateway_credential::preset;

    use super::*;

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
