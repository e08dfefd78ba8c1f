//! The rig of the attack matrix: the real program between an attacker's client and the test's
//! origins.
//!
//! One `gateway serve` with proxy and TLS listeners of two sessions, and one `gateway exec` whose
//! command is a relay, so that raw bytes come in by capture too. After every case [`Rig::settle`]
//! checks the invariants I1 to I4 of the threat catalogue.

pub mod canary;
pub mod certificates;
pub mod frames;
pub mod gate;
pub mod names;
pub mod origin;
pub mod relay;
pub mod sigv4;
pub mod way;

use std::collections::VecDeque;
use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use canary::Canary;
use certificates::Authority;
use frames::Frames;
use gate::Gate;
use names::Names;
use origin::{Origins, Seen};
use relay::Relay;
use way::{Raw, Response, Way, Wire};

use crate::addresses::free;

/// A host that is allowed and managed: all credentials but `other` are bound to it.
pub const GOOD: &str = "good.rig.test";
/// A host that is allowed, and to which no credential is bound.
pub const OTHER: &str = "other.rig.test";
/// A host that is allowed, and to which only `other` is bound.
pub const SECOND: &str = "second.rig.test";
/// As `GOOD`, over HTTP/2.
pub const H2: &str = "h2.rig.test";
/// As `OTHER`, for a row that needs a new connection.
pub const FRESH: &str = "fresh.rig.test";
/// As `OTHER`, over HTTP/2, from an origin whose connections take some streams alone.
pub const FRAIL: &str = "h2-frail.rig.test";
/// As `OTHER`, from an origin that offers HTTP/2 and then asks for HTTP/1.1.
pub const EITHER: &str = "h2-either.rig.test";
/// A host that is not allowed; its address is X.
pub const EVIL: &str = "evil.rig.test";
/// An S3 endpoint for which `aws` and `temp` sign.
pub const S3: &str = "s3.rig.test";
/// A bucket of it that takes requests without a signature.
pub const PUBLIC: &str = "public.s3.rig.test";
/// A DynamoDB endpoint for which they sign.
pub const DB: &str = "db.rig.test";
/// An STS endpoint for which they sign; `temp` may assume roles.
pub const STS: &str = "sts.rig.test";
/// An origin whose requests `exchange` signs by a recipe.
pub const EXCHANGE: &str = "exchange.rig.test";
/// An endpoint of S3 Express for which they sign.
pub const EXPRESS: &str = "express.rig.test";
/// An endpoint of a service that AWS does not have, for which `aws` and `actor` sign.
pub const OWN: &str = "own.rig.test";
/// An origin that takes names with `_` and `.` for fields, and `%2F` in a path; `xkey` is bound to
/// it.
pub const LOOSE: &str = "loose.rig.test";
/// An origin to which `renewed` is bound, and the same over HTTP/2.
pub const RENEWED: &str = "renewed.rig.test";
pub const RENEWED2: &str = "h2-renewed.rig.test";
/// Hosts at which the credentials of presets are bound.
pub const SLACK: &str = "slack.rig.test";
pub const GITLAB: &str = "gitlab.rig.test";
pub const DISCORD: &str = "discord.rig.test";
pub const SENTRY: &str = "sentry.rig.test";
pub const DATADOG: &str = "datadog.rig.test";
pub const GEMINI: &str = "gemini.rig.test";
pub const HUGGINGFACE: &str = "huggingface.rig.test";
pub const TELEGRAM: &str = "telegram.rig.test";
/// A service that takes credentials in its content, and the same over HTTP/2.
pub const PLACES: &str = "places.rig.test";
pub const PLACES2: &str = "h2-places.rig.test";
/// An authorization server that no preset knows, and a service that its tokens are for.
pub const AUTH: &str = "auth.rig.test";
pub const MCP: &str = "mcp.rig.test";
/// An authorization server whose tokens the operator lets pass.
pub const PASSED: &str = "passed.rig.test";
/// The hosts of a login that a preset knows.
pub const CLAUDE: &str = "platform.claude.com";
pub const ANTHROPIC: &str = "api.anthropic.com";
/// A host whose forms policy reads, as those of a payment service.
pub const MONEY: &str = "money.rig.test";
/// A host whose JSON policy reads, as that of a model provider: allowed by what it says alone.
pub const MODEL: &str = "model.rig.test";
/// The account of `pinned`.
pub const ACCOUNT: &str = "111122223333";
/// The password of the proxy that requires one.
pub const PROXY_PASSWORD: &str = "proxy-password-canary";

/// Everything together.
pub struct Rig {
    /// Its files.
    pub dir: tempfile::TempDir,
    /// The name server.
    pub names: Names,
    /// E and X.
    pub origins: Origins,
    /// The secrets.
    pub canaries: Vec<Canary>,
    /// The real access key id of `temp`.
    temp_id: String,
    /// `gateway serve`.
    pub served: Gate,
    /// `gateway exec`.
    pub sandboxed: Gate,
    /// The relay inside the sandbox.
    pub relay: Relay,
    /// Phantoms of session B.
    pub phantoms_b: std::collections::HashMap<String, String>,
    /// Listeners.
    pub ports: Ports,
    /// What the sandbox has seen since the last [`Rig::settle`].
    pub visible: Arc<Mutex<Vec<u8>>>,
    books: Mutex<Books>,
}

/// What of a gateway the ways lead to.
pub struct Doors<'a> {
    /// Its proxy.
    pub proxy: SocketAddr,
    /// Its TLS listener.
    pub tls: SocketAddr,
    /// The relay inside its sandbox.
    pub relay: &'a Relay,
}

/// Where the listeners are.
#[derive(Clone, Copy)]
pub struct Ports {
    /// Session A's proxy.
    pub proxy: SocketAddr,
    /// Session A's TLS listener.
    pub tls: SocketAddr,
    /// Session A's proxy that requires a password.
    pub guarded: SocketAddr,
    /// Session B's proxy.
    pub proxy_b: SocketAddr,
    /// Session B's TLS listener.
    pub tls_b: SocketAddr,
}

#[derive(Default)]
struct Books {
    served: VecDeque<Value>,
    sandboxed: VecDeque<Value>,
    ends: Vec<Value>,
    lent: usize,
    reached: usize,
    perhaps_reached: usize,
    seen: Vec<Seen>,
    requests: usize,
    text: String,
}

impl Books {
    /// The records of the gateway behind an entry point.
    fn of(&mut self, way: Way) -> &mut VecDeque<Value> {
        if way.is_transparent() {
            &mut self.sandboxed
        } else {
            &mut self.served
        }
    }
}

fn file(path: &Path, mode: u32, content: &str) {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(path)
        .unwrap();
    file.write_all(content.as_bytes()).unwrap();
}

/// Variables of a phantoms file, in the order of the credentials.
fn phantoms(pair: impl Fn(&str) -> Option<String>) -> std::collections::HashMap<String, String> {
    CREDENTIALS
        .iter()
        .map(|(name, ..)| {
            (
                (*name).to_owned(),
                pair(&variable(name)).expect("a phantom for each credential"),
            )
        })
        .chain(SERVICES.iter().map(|(name, variable, ..)| {
            (
                (*name).to_owned(),
                pair(variable).expect("a phantom for each service"),
            )
        }))
        .chain(IN_CONTENT.iter().map(|(name, variable, ..)| {
            let phantom = pair(variable).expect("a phantom for each place");
            ((*name).to_owned(), phantom)
        }))
        .chain(SIGNING.iter().map(|(name, variable, _)| {
            (
                (*name).to_owned(),
                pair(variable).expect("a phantom for each part"),
            )
        }))
        .chain(pair("RENEWED_TOKEN").map(|phantom| ("renewed".to_owned(), phantom)))
        .collect()
}

fn variable(credential: &str) -> String {
    format!("{}_TOKEN", credential.to_uppercase())
}

/// Name, pattern of the secret, place, origins besides `GOOD`.
const CREDENTIALS: [(&str, &str, &str, &[&str]); 6] = [
    (
        "bearer",
        "sk-live-%%",
        "header:authorization:Bearer",
        &["https://h2.rig.test"],
    ),
    (
        "xkey",
        "xk/%+%",
        "header:x-api-key",
        &["https://h2.rig.test", "https://loose.rig.test"],
    ),
    ("basic", "bp-%", "basic:password", &[]),
    ("cookie", "ck-%", "cookie:sid", &["https://h2.rig.test"]),
    ("query", "qk/%+%", "query:key", &["https://h2.rig.test"]),
    ("other", "ot-%%", "header:authorization:Bearer", &[]),
];

/// Credentials of presets: name, variable, pattern of the secret, preset, host.
const SERVICES: [(&str, &str, &str, &str, &str); 9] = [
    ("slack", "SLACK_BOT_TOKEN", "xoxb-%%", "slack", SLACK),
    ("gitlab", "GITLAB_TOKEN", "glpat-%%", "gitlab", GITLAB),
    ("discord", "DISCORD_TOKEN", "dc-%%", "discord", DISCORD),
    ("sentry", "SENTRY_AUTH_TOKEN", "sntryu_%%", "sentry", SENTRY),
    ("datadog-api", "DD_API_KEY", "da-%%", "datadog", DATADOG),
    (
        "datadog-application",
        "DD_APP_KEY",
        "dp-%%",
        "datadog",
        DATADOG,
    ),
    ("gemini", "GEMINI_API_KEY", "AIza%%", "gemini", GEMINI),
    (
        "huggingface",
        "HF_TOKEN",
        "hf_%%",
        "huggingface",
        HUGGINGFACE,
    ),
    (
        "telegram",
        "TELEGRAM_BOT_TOKEN",
        "7123456789:AA%%",
        "telegram",
        TELEGRAM,
    ),
];

/// Credentials in content at `PLACES`: name, variable, pattern of the secret, place. That of
/// `pinned-field` is for `/pinned` alone.
const IN_CONTENT: [(&str, &str, &str, &str); 4] = [
    ("field", "FIELD_TOKEN", "fm/%+%", "form:token"),
    ("pointer", "POINTER_TOKEN", "js/%+%", "json:/auth/token"),
    ("part", "PART_TOKEN", "mp/%+%", "multipart:token"),
    ("pinned-field", "PINNED_FIELD", "pf/%+%", "form:pinned"),
];

/// The parts of the signing credentials: name, variable, pattern of the secret. The access key id
/// of `temp` is not a canary, because each signed request carries one.
const SIGNING: [(&str, &str, &str); 17] = [
    ("aws", "AWS_ACCESS_KEY_ID", "AKIA%"),
    ("aws-secret", "AWS_SECRET_ACCESS_KEY", "%%"),
    ("temp", "TEMP_ID", "ASIA%"),
    ("temp-secret", "TEMP_SECRET", "%/%"),
    ("temp-token", "TEMP_TOKEN", "%%%%%%%%%%%%"),
    ("pinned", "PINNED_ID", "AKIA%"),
    ("pinned-secret", "PINNED_SECRET", "%%"),
    ("granted", "GRANTED_ID", "AKIA%"),
    ("granted-secret", "GRANTED_SECRET", "%%"),
    ("actor", "ACTOR_ID", "AKIA%"),
    ("actor-secret", "ACTOR_SECRET", "%%"),
    ("writer", "WRITER_ID", "AKIA%"),
    ("writer-secret", "WRITER_SECRET", "%%"),
    ("tenant", "TENANT_ID", "AKIA%"),
    ("tenant-secret", "TENANT_SECRET", "%%"),
    ("exchange", "BINANCE_API_KEY", "%%%%"),
    ("exchange-secret", "BINANCE_API_SECRET", "%%%%"),
];

/// What the command of `renewed` prints, one after the other: name and pattern. The first is what
/// the phantoms are made for.
pub const RENEWALS: [(&str, &str); 3] = [
    ("renewed-first", "ghs_%%"),
    ("renewed-long", "ghs_%%.%%%%%%%%%%%%_%%%%%%%%%%%"),
    ("renewed-short", "ghs_%"),
];

/// What authorization servers issue.
const ISSUED: [(&str, &str); 4] = [
    ("access", "at-%%%"),
    ("next", "nt-%%%"),
    ("refresh", "rt-%%%"),
    ("id", "it-%%%"),
];

/// What they sign for.
const ENDPOINTS: &str = r#"endpoints = [
    { origin = "https://s3.rig.test", service = "s3", region = "us-east-1" },
    { origin = "https://*.s3.rig.test", service = "s3", region = "us-east-1" },
    { origin = "https://db.rig.test", service = "dynamodb", region = "eu-central-1" },
    { origin = "https://sts.rig.test", service = "sts", region = "us-east-1" },
    { origin = "https://express.rig.test", service = "s3express", region = "us-east-1" },
    { origin = "https://own.rig.test", service = "own-service", region = "here" },
]
unsigned = ["https://public.s3.rig.test"]
"#;

/// Hosts that policy allows, with their ports; those below `dns.test` are resolved by the test's
/// name server.
pub const ALLOWED: [&str; 57] = [
    AUTH,
    MCP,
    PASSED,
    CLAUDE,
    ANTHROPIC,
    GOOD,
    OTHER,
    FRESH,
    FRAIL,
    EITHER,
    MONEY,
    SECOND,
    H2,
    S3,
    "bucket.s3.rig.test",
    PUBLIC,
    DB,
    STS,
    EXPRESS,
    OWN,
    EXCHANGE,
    LOOSE,
    RENEWED,
    RENEWED2,
    SLACK,
    GITLAB,
    DISCORD,
    SENTRY,
    DATADOG,
    GEMINI,
    HUGGINGFACE,
    TELEGRAM,
    PLACES,
    PLACES2,
    "tls12.rig.test",
    "dark.rig.test",
    "expired.rig.test",
    "selfsigned.rig.test",
    "ofaca.rig.test",
    "wrongname.rig.test",
    "wrongusage.rig.test",
    "flip.dns.test",
    "mixed.dns.test",
    "mapped.dns.test",
    "translated.dns.test",
    "private.dns.test",
    "nothing.dns.test",
    "metadata.dns.test",
    "127.0.0.1",
    "10.0.0.1",
    "169.254.169.254",
    "100.100.100.200",
    "::1",
    "fd00:ec2::254",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "metadata.google.internal",
];

/// The policies of the rig.
pub fn policies() -> String {
    let mut text = String::new();
    for (at, host) in ALLOWED.iter().enumerate() {
        text.push_str(&format!(
            "@id(\"rig/allow-{at}\")\npermit(principal, action in Gateway::Action::\"any\", \
             resource == Gateway::Host::\"{host}\") when {{ context.port != 22 }};\n"
        ));
    }
    for name in CREDENTIALS
        .iter()
        .map(|one| one.0)
        .chain(SERVICES.iter().map(|one| one.0))
        .chain(IN_CONTENT.iter().map(|one| one.0))
        .chain(["aws", "temp", "actor", "tenant", "exchange", "renewed"])
    {
        text.push_str(&format!(
            "@id(\"rig/lend-{name}\")\npermit(principal, action == Gateway::Action::\"lend\", \
             resource == Gateway::Credential::\"{name}\") when {{ context.origin in Gateway::Domain::\"rig.test\" }};\n"
        ));
    }
    text.push_str(FIRST_PARTY);
    text.push_str(FORBIDS);
    text.push_str(BY_CONTENT);
    text
}

/// AWS's own hosts, where the test's origin answers.
const FIRST_PARTY: &str = r#"
@id("rig/aws")
permit(principal, action in Gateway::Action::"any", resource in Gateway::Domain::"amazonaws.com");
@id("rig/lend-at-aws")
permit(principal, action == Gateway::Action::"lend", resource) when {
    [Gateway::Credential::"pinned", Gateway::Credential::"granted", Gateway::Credential::"writer"].contains(resource) && context.origin in Gateway::Domain::"amazonaws.com"
};
@id("rig/no-list")
forbid(principal, action == Gateway::Action::"lend", resource == Gateway::Credential::"granted")
when { context.actions.contains("s3:PutObjectAcl") };
"#;

const FORBIDS: &str = r#"
@id("rig/no-secret")
forbid(principal, action, resource) when { context.prefixes.contains("/secret") };
@id("rig/no-admin")
forbid(principal, action, resource in Gateway::Domain::"rig.test") when { context.segments.contains("0:admin") };
@id("rig/no-delete")
forbid(principal, action == Gateway::Action::"DELETE", resource);
@id("rig/no-other")
forbid(principal, action == Gateway::Action::"other", resource);
@id("rig/no-bad-repo")
forbid(principal, action, resource) when { context.query.any.contains("repo=bad") };
@id("rig/no-logout")
forbid(principal, action, resource) when { context.path == "/bot{}/logOut" };
@id("rig/no-role")
forbid(principal, action, resource) when { context.fields.any.contains("x-role: admin") };
"#;

/// What depends on content.
const BY_CONTENT: &str = r#"
@id("rig/large-refunds")
forbid(principal, action == Gateway::Action::"POST", resource == Gateway::Host::"money.rig.test")
when { context.content.amount > 5000 && context.path == "/v1/refunds" };
@id("rig/small-models")
permit(principal, action == Gateway::Action::"POST", resource == Gateway::Host::"model.rig.test")
when {
    ["gpt-4o-mini", "claude-haiku-4-5"].contains(context.content.model) && context.content.max_tokens <= 1024 &&
    ["/v1/chat/completions", "/v1/messages"].contains(context.path)
};
@id("rig/no-field")
forbid(principal, action == Gateway::Action::"lend", resource)
when { context.place == "form:token" && context.path == "/nolend" };
@id("rig/no-messages")
forbid(principal, action == Gateway::Action::"lend", resource)
when { context.place == "websocket:/d/token" && context.path == "/nolend" };
@id("rig/small-payments")
forbid(principal, action == Gateway::Action::"lend", resource == Gateway::Credential::"bearer")
when { context.path == "/pay" && context.content.amount > 5000 };
@id("rig/no-merge")
forbid(principal, action, resource == Gateway::Host::"other.rig.test")
when { context.path == "/graphql" && context.graphql.fields.contains("mutation.mergePullRequest") };
@id("rig/own-branches")
forbid(principal, action, resource == Gateway::Host::"other.rig.test")
when {
    context.segments.contains("2:git-receive-pack") &&
    (context.git.refs.contains("delete") || !["refs/heads/agent"].containsAll(context.git.folders))
};
@id("rig/one-tool")
forbid(principal, action, resource == Gateway::Host::"other.rig.test")
when { context.path == "/mcp" && !["echo", "sum"].containsAll(context.mcp.tools) };
@id("bounded-tool") forbid(principal, action, resource == Gateway::Host::"other.rig.test")
when { context.path == "/mcp" && context.mcp.tools.contains("sum") && context.content.summand > 5 };
@id("titles") forbid(principal, action, resource == Gateway::Host::"other.rig.test")
when { context.path == "/titles" && !["one", "two"].contains(context.content.title) };
@id("notes") forbid(principal, action, resource == Gateway::Host::"other.rig.test")
when { context.path == "/notes" && context.content.note != "good" };
@id("rig/no-hosted-tools")
forbid(principal, action, resource == Gateway::Host::"other.rig.test")
when {
    context.path == "/v1/responses" &&
    !(context.model.hosted_tools.isEmpty() && context.model.max_tokens <= 100)
};
"#;

/// What policies read of content.
pub const FACTS: &str = r#"
[[fact]]
name = "amount"
type = "Long"
origins = ["https://money.rig.test"]
form = "amount"
[[fact]]
name = "amount"
type = "Long"
origins = ["https://good.rig.test"]
json = "/amount"
[[fact]]
name = "model"
type = "String"
origins = ["https://model.rig.test"]
json = "/model"
[[fact]]
name = "max_tokens"
type = "Long"
origins = ["https://model.rig.test"]
json = "/max_tokens"
[[fact]]
name = "summand"
type = "Long"
origins = ["https://other.rig.test"]
tool = "sum"
json = "/n"
[[fact]]
name = "title"
type = "String"
origins = ["https://other.rig.test"]
multipart = "title"
[[fact]]
name = "note"
type = "String"
origins = ["https://other.rig.test"]
text = true
[[read]]
as = "graphql"
origins = ["https://other.rig.test"]
path = "/graphql"
[[read]]
as = "git"
origins = ["https://other.rig.test"]
[[read]]
as = "mcp"
origins = ["https://other.rig.test"]
path = "/mcp"
[[read]]
as = "model"
origins = ["https://other.rig.test"]
path = "/v1/responses"
"#;

impl Rig {
    /// Starts everything.
    pub fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("rig").tempdir().unwrap();
        let at = dir.path().to_owned();
        fs::set_permissions(&at, fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["audit", "secrets", "work"] {
            fs::create_dir(at.join(name)).unwrap();
            let mode = if name == "work" { 0o755 } else { 0o700 };
            fs::set_permissions(at.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let authority = Arc::new(Authority::new());
        file(&at.join("origins.pem"), 0o644, &authority.pem);
        let names = Names::start();
        let origins = Origins::start(&authority);
        let patterns = CREDENTIALS
            .iter()
            .map(|(name, pattern, ..)| (*name, *pattern));
        let parts = SIGNING.iter().map(|(name, _, pattern)| (*name, *pattern));
        let services = SERVICES
            .iter()
            .map(|(name, _, pattern, ..)| (*name, *pattern));
        let mut canaries: Vec<Canary> = patterns
            .chain(services)
            .chain(
                IN_CONTENT
                    .iter()
                    .map(|(name, _, pattern, _)| (*name, *pattern)),
            )
            .chain(parts)
            .chain(RENEWALS)
            .chain(ISSUED)
            .map(|(name, pattern)| Canary::new(name, pattern))
            .collect();
        for canary in &canaries {
            file(&at.join("secrets").join(canary.name), 0o600, &canary.secret);
        }
        let at_temp = canaries
            .iter()
            .position(|canary| canary.name == "temp")
            .unwrap();
        let temp_id = canaries.remove(at_temp).secret;
        let first = canaries.iter().find(|one| one.name == RENEWALS[0].0);
        renew(&at, &first.unwrap().secret);
        file(&at.join("secrets/proxy"), 0o600, PROXY_PASSWORD);
        for name in ["rig.cedar", "sandbox.cedar"] {
            file(&at.join(name), 0o644, &policies());
        }
        fs::copy(
            concat!(env!("CARGO_MANIFEST_DIR"), "/policies/default.cedar"),
            at.join("default.cedar"),
        )
        .unwrap();
        let ports = Ports {
            proxy: free(),
            tls: free(),
            guarded: free(),
            proxy_b: free(),
            tls_b: free(),
        };
        let shared = settings(&origins, &names, &at);
        file(
            &at.join("serve.toml"),
            0o644,
            &format!("{}{shared}", listeners(&ports)),
        );
        file(
            &at.join("exec.toml"),
            0o644,
            // Each gateway reads a file of its own anew when it changes.
            &format!(
                "[audit]\npath = \"audit/exec.jsonl\"\n{}",
                shared.replace("rig.cedar", "sandbox.cedar")
            ),
        );
        let bearer = &canaries[0].secret;
        let served = serve(&at, "serve.toml", bearer);
        let mut served = Gate::new(served, at.join("audit/serve.jsonl"), at.join("serve.log"));
        served.wait_for_log(&ports.tls_b.to_string());
        let (sandboxed, relay) = exec(&at, "exec.toml", bearer);
        let mut sandboxed = Gate::new(sandboxed, at.join("audit/exec.jsonl"), at.join("exec.log"));
        let read = |session: &str| {
            let text = fs::read_to_string(at.join(format!("phantoms-{session}.env"))).unwrap();
            phantoms(|name| {
                text.lines()
                    .find_map(|line| Some(line.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
            })
        };
        served.phantoms = read("a");
        let phantoms_b = read("b");
        sandboxed.phantoms = phantoms(|name| relay.environment.get(name).cloned());
        let rig = Self {
            dir,
            names,
            origins,
            canaries,
            temp_id,
            served,
            sandboxed,
            relay,
            phantoms_b,
            ports,
            visible: Arc::default(),
            books: Mutex::default(),
        };
        rig.visible
            .lock()
            .unwrap()
            .extend_from_slice(&rig.relay.environment_bytes);
        rig
    }

    /// The gateway behind an entry point.
    pub fn gate(&self, way: Way) -> &Gate {
        if way.is_transparent() {
            &self.sandboxed
        } else {
            &self.served
        }
    }

    /// The phantom that the client of an entry point has.
    pub fn phantom(&self, way: Way, credential: &str) -> &str {
        &self.gate(way).phantoms[credential]
    }

    /// The secret of a credential; of `renewed`, that for which its phantoms are made.
    pub fn secret(&self, credential: &str) -> &str {
        let credential = match credential {
            "renewed" => RENEWALS[0].0,
            other => other,
        };
        let known = self
            .canaries
            .iter()
            .find(|canary| canary.name == credential);
        known.map_or(&self.temp_id, |canary| &canary.secret)
    }

    /// Has the command of `renewed` print another secret, and waits until the one before has ended.
    pub fn renew(&self, name: &str) {
        renew(self.dir.path(), self.secret(name));
        std::thread::sleep(Duration::from_millis(2100));
    }

    /// What a client signs with: `aws`, or `temp` with its session token.
    pub fn key(&self, way: Way, name: &str) -> sigv4::Key {
        let part = |part: &str| {
            self.gate(way)
                .phantoms
                .get(&format!("{name}{part}"))
                .cloned()
        };
        sigv4::Key {
            id: part("").unwrap(),
            secret: part("-secret").unwrap(),
            token: part("-token"),
        }
    }

    /// What an origin verifies with.
    pub fn real_key(&self, name: &str) -> sigv4::Key {
        let part = |part: &str| {
            let known = self
                .canaries
                .iter()
                .find(|canary| canary.name == format!("{name}{part}"));
            known.map(|canary| canary.secret.clone())
        };
        sigv4::Key {
            id: part("").unwrap_or_else(|| self.temp_id.clone()),
            secret: part("-secret").unwrap(),
            token: part("-token"),
        }
    }

    /// Connects to a listener.
    pub fn dial(&self, address: SocketAddr) -> Wire {
        Wire::clear(
            Raw::Tcp(TcpStream::connect(address).unwrap()),
            &self.visible,
        )
    }

    /// Connects from inside the sandbox.
    pub fn inside(&self, to: &str) -> Result<Wire, String> {
        Ok(Wire::clear(
            Raw::Relay(self.relay.connect(to)?),
            &self.visible,
        ))
    }

    /// Opens a connection to `host:port` up to the point where its bytes start.
    ///
    /// # Errors
    /// What the gateway said instead.
    pub fn tunnel(&self, way: Way, host: &str, port: u16) -> Result<Wire, Response> {
        let doors = Doors {
            proxy: self.ports.proxy,
            tls: self.ports.tls,
            relay: &self.relay,
        };
        self.tunnel_by(&doors, way, host, port)
    }

    /// The same at the doors of another gateway.
    ///
    /// # Errors
    /// What the gateway said instead.
    pub fn tunnel_by(
        &self,
        doors: &Doors<'_>,
        way: Way,
        host: &str,
        port: u16,
    ) -> Result<Wire, Response> {
        match way {
            Way::Connect | Way::ConnectClear => {
                let mut wire = self.dial(doors.proxy);
                wire.send(
                    format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n")
                        .as_bytes(),
                );
                let head = wire.line(b"\r\n\r\n").unwrap_or_default();
                if head.starts_with(b"HTTP/1.1 200 ") {
                    return Ok(wire);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let (body, _) = wire.rest();
                let status = head
                    .split(' ')
                    .nth(1)
                    .and_then(|word| word.parse().ok())
                    .unwrap_or(0);
                Err(Response {
                    status,
                    head,
                    body,
                    ..Response::default()
                })
            }
            Way::Socks | Way::SocksClear => {
                let mut wire = self.dial(doors.proxy);
                match self.socks(&mut wire, host.as_bytes(), port) {
                    0 => Ok(wire),
                    code => Err(Response {
                        status: code.into(),
                        ..Response::default()
                    }),
                }
            }
            Way::Tls => Ok(self.dial(doors.tls)),
            Way::Forward => Ok(self.dial(doors.proxy)),
            Way::Transparent | Way::TransparentClear => {
                let inside = doors.relay.connect(&format!("{host}:{port}"));
                inside
                    .map(|stream| Wire::clear(Raw::Relay(stream), &self.visible))
                    .map_err(|_| Response::default())
            }
        }
    }

    /// Asks for a name over SOCKS5, and returns the reply's code (255: none).
    pub fn socks(&self, wire: &mut Wire, host: &[u8], port: u16) -> u8 {
        wire.send(&[5, 1, 0]);
        wire.exactly(2).expect("a method is chosen");
        let length = u8::try_from(host.len()).unwrap();
        wire.send(&[&[5, 1, 0, 3, length][..], host, &port.to_be_bytes()].concat());
        wire.exactly(10).map_or(255, |reply| reply[1])
    }

    /// A connection on which requests to a host can be written.
    pub fn open(&self, way: Way, host: &str) -> Wire {
        self.open_with(way, host, &["http/1.1"])
    }

    fn open_with(&self, way: Way, host: &str, alpn: &[&str]) -> Wire {
        let wire = self
            .tunnel(way, host, way.port())
            .unwrap_or_else(|refused| panic!("{way:?}: {refused:?}"));
        if way.is_secure() {
            wire.secure(Some(host), alpn)
                .unwrap_or_else(|error| panic!("{way:?}: {error}"))
        } else {
            wire
        }
    }

    /// A connection for frames by hand.
    pub fn frames(&self, way: Way, host: &str) -> Frames {
        Frames::begin(self.open_with(way, host, &["h2"]))
    }

    /// Fills a template: `{T}` is the text before the path, `{H}` the host, `{PH:name}` a phantom.
    pub fn fill(&self, way: Way, host: &str, template: &str) -> Vec<u8> {
        let before = if way == Way::Forward {
            format!("http://{host}")
        } else {
            String::new()
        };
        let mut text = template.replace("{T}", &before).replace("{H}", host);
        for (name, phantom) in &self.gate(way).phantoms {
            text = text.replace(&format!("{{PH:{name}}}"), phantom);
        }
        text.into_bytes()
    }

    /// Sends a filled template on a fresh connection, and reads the first response.
    pub fn ask(&self, way: Way, host: &str, template: &str) -> Response {
        self.open(way, host).ask(&self.fill(way, host, template))
    }

    /// Waits for this many exchange records of a gateway, and takes them.
    pub fn records(&self, way: Way, count: usize) -> Vec<Value> {
        let until = Instant::now() + Duration::from_secs(6);
        loop {
            self.pull();
            let mut books = self.books();
            let queue = books.of(way);
            if queue.len() >= count {
                return queue.drain(..count).collect();
            }
            assert!(
                Instant::now() < until,
                "{way:?}: {} records of {count}: {queue:?}",
                queue.len()
            );
            drop(books);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The single record of an exchange.
    pub fn record(&self, way: Way) -> Value {
        self.records(way, 1).remove(0)
    }

    /// Takes the `end` records so far, after waiting for one.
    pub fn ends(&self) -> Vec<Value> {
        let until = Instant::now() + Duration::from_secs(6);
        loop {
            self.pull();
            let ends = std::mem::take(&mut self.books().ends);
            if !ends.is_empty() || Instant::now() > until {
                return ends;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Takes the `end` records so far, without waiting.
    pub fn every_end(&self) -> Vec<Value> {
        self.pull();
        std::mem::take(&mut self.books().ends)
    }

    /// Forgets the `end` records so far: for cases about something else.
    pub fn ends_now(&self) {
        self.pull();
        self.books().ends.clear();
    }

    /// Takes all records of a gateway so far.
    pub fn every_record(&self, way: Way) -> Vec<Value> {
        self.pull();
        let mut books = self.books();
        books.of(way).drain(..).collect()
    }

    /// Declares that this many requests reached E through another gateway than the rig's own.
    pub fn uncounted(&self, count: usize) {
        self.pull();
        self.books().requests -= count;
    }

    /// Declares that so many loans, each for a WebSocket, were not used.
    pub fn unlent(&self, count: usize) {
        self.pull();
        self.books().lent -= count;
    }

    /// Discards the records so far, whatever they are.
    pub fn forget_records(&self) {
        self.pull();
        let mut books = self.books();
        books.served.clear();
        books.sandboxed.clear();
    }

    /// Waits a moment, and discards a gateway's records: for bytes that are no exchange, which each
    /// listener reports differently.
    pub fn abandon_records(&self, way: Way) {
        std::thread::sleep(Duration::from_millis(40));
        self.every_record(way);
    }

    /// Notes a request of the gateway's own with a secret, of which no record tells.
    pub fn sent_by_the_gateway(&self) {
        let mut books = self.books();
        books.reached += 1;
        books.lent += 1;
    }

    /// What E has received since the last call.
    pub fn seen(&self) -> Vec<Seen> {
        self.pull();
        std::mem::take(&mut self.books().seen)
    }

    /// A failed case may have poisoned the lock; what it left behind is discarded anyway.
    fn books(&self) -> std::sync::MutexGuard<'_, Books> {
        self.books
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn pull(&self) {
        let mut books = self.books();
        let seen = self.origins.take_seen();
        books.requests += seen.len();
        books.seen.extend(seen);
        for (gate, served) in [(&self.served, true), (&self.sandboxed, false)] {
            for record in gate.take_records() {
                books.text.push_str(&record.to_string());
                match record["kind"].as_str() {
                    Some("exchange") => {}
                    Some("end") => {
                        books.ends.push(record);
                        continue;
                    }
                    _ => continue,
                }
                books.lent += record["lent"].as_array().map_or(0, Vec::len);
                match record["phase"].as_str() {
                    Some("answer") => books.reached += 1,
                    Some("attach" | "forward") => books.perhaps_reached += 1,
                    _ => {}
                }
                if served {
                    books.served.push_back(record)
                } else {
                    books.sandboxed.push_back(record)
                }
            }
        }
    }

    /// Checks the invariants that hold after every case.
    ///
    /// I1: no canary where the sandbox, a log or an origin outside the pinned position could see
    /// it. I2: E received exactly the requests that were allowed. I3: there is no record that the
    /// case did not account for. I4: both gateways serve the next request.
    pub fn settle(&self) {
        std::thread::sleep(Duration::from_millis(15));
        self.pull();
        {
            let mut books = self.books();
            assert!(
                books.served.is_empty(),
                "I3: records too many: {:?}",
                books.served
            );
            assert!(
                books.sandboxed.is_empty(),
                "I3: records too many: {:?}",
                books.sandboxed
            );
            let (least, most) = (books.reached, books.reached + books.perhaps_reached);
            assert!(
                (least..=most).contains(&books.requests),
                "I2: E has got {} requests, the log tells of {least} to {most}: {:?}",
                books.requests,
                books.seen
            );
            let visible = std::mem::take(&mut *self.visible.lock().unwrap());
            let text = std::mem::take(&mut books.text);
            for (what, bytes) in [
                ("what the sandbox saw", visible),
                ("the audit log", text.into_bytes()),
                ("the log of serve", self.served.take_log()),
                ("the log of exec", self.sandboxed.take_log()),
            ] {
                let leaks = canary::seen(&self.canaries, &bytes);
                assert!(
                    leaks.is_empty(),
                    "I1: {what} holds {leaks:?}: {}",
                    String::from_utf8_lossy(&bytes)
                );
            }
            let at_origin = self.origins.take_raw();
            let secrets = canary::count(&self.canaries, &at_origin);
            assert_eq!(
                secrets,
                books.lent,
                "I1: secrets at E against loans in the log: {}",
                String::from_utf8_lossy(&at_origin)
            );
            assert!(
                memchr::memmem::find(&at_origin, PROXY_PASSWORD.as_bytes()).is_none(),
                "I1: the proxy's password is at E"
            );
            assert_eq!(self.origins.touched(), 0, "X was touched");
            let asked = self.names.take_asked();
            assert!(asked.is_empty(), "names were asked for: {asked:?}");
            *books = Books::default();
        }
        for way in [Way::Connect, Way::Transparent] {
            assert!(
                self.gate(way).is_alive(),
                "I4: the gateway of {way:?} ended"
            );
            let started = Instant::now();
            let answer = self.ask(way, OTHER, "GET /alive HTTP/1.1\r\nHost: {H}\r\n\r\n");
            assert_eq!(answer.status, 200, "I4: {answer:?}");
            assert!(
                started.elapsed() < Duration::from_secs(1),
                "I4: a benign request took {:?}",
                started.elapsed()
            );
            self.record(way);
        }
        self.pull();
        *self.books() = Books::default();
        self.origins.take_raw();
        self.visible.lock().unwrap().clear();
    }

    /// Prints what the gateways have warned of since the last case, and discards what a failed one
    /// has left behind, so that the next one is tested by itself.
    pub fn abandon(&self) {
        std::thread::sleep(Duration::from_millis(300));
        self.pull();
        *self.books() = Books::default();
        self.origins.take_raw();
        self.names.take_asked();
        self.visible.lock().unwrap().clear();
        for said in [self.served.take_log(), self.sandboxed.take_log()] {
            let said = String::from_utf8_lossy(&said);
            let warnings = said.lines().filter(|line| line.contains(" WARN "));
            warnings.for_each(|line| println!("{line}"));
        }
    }
}

fn settings(origins: &Origins, names: &Names, at: &Path) -> String {
    let (e, clear, x) = (origins.tls, origins.clear, origins.x);
    let mut text = format!(
        "[policy]\nfiles = [\"rig.cedar\", \"default.cedar\"]\n\
         [resolver]\nservers = [\"{}\"]\nhosts_file = false\n\
         [limits]\nhandshake_timeout = \"2s\"\nhead_timeout = \"2s\"\nconnect_timeout = \"2s\"\nidle_timeout = \"30s\"\nprogress_timeout = \"30s\"\n",
        names.address
    );
    // The operator has not said that this one may be reached in clear text.
    text.push_str(&format!(
        "[[origin]]\nmatch = \"http://dark.rig.test\"\nconnect = \"{clear}\"\n"
    ));
    let mut rule = |pattern: &str, connect: String, more: &str| {
        let roots = if pattern.starts_with("https") {
            "roots = [\"origins.pem\"]\n"
        } else {
            "cleartext = true\n"
        };
        text.push_str(&format!(
            "[[origin]]\nmatch = \"{pattern}\"\n{connect}\n{roots}{more}"
        ));
    };
    rule("https://*.rig.test", format!("connect = \"{e}\""), "");
    rule("https://*.amazonaws.com", format!("connect = \"{e}\""), "");
    for host in [CLAUDE, ANTHROPIC] {
        rule(&format!("https://{host}"), format!("connect = \"{e}\""), "");
    }
    rule(
        &format!("https://{PASSED}"),
        format!("connect = \"{e}\""),
        "token_answers = \"pass\"\n",
    );
    rule("http://*.rig.test", format!("connect = \"{clear}\""), "");
    rule(
        "https://h2.rig.test",
        format!("connect = \"{e}\""),
        "http = \"2\"\n",
    );
    rule(
        "https://h2-places.rig.test",
        format!("connect = \"{e}\""),
        "http = \"2\"\n",
    );
    rule(
        "https://h2-frail.rig.test",
        format!("connect = \"{e}\""),
        "http = \"2\"\n",
    );
    rule(
        "https://h2-either.rig.test",
        format!("connect = \"{e}\""),
        "http = \"2\"\n",
    );
    rule(
        "https://h2-renewed.rig.test",
        format!("connect = \"{e}\""),
        "http = \"2\"\n",
    );
    rule(
        "https://loose.rig.test",
        format!("connect = \"{e}\""),
        "underscores = true\nencoded_slash = true\n",
    );
    rule("https://dark.rig.test", format!("connect = \"{e}\""), "");
    rule("https://evil.rig.test", format!("connect = \"{x}\""), "");
    rule("http://evil.rig.test", format!("connect = \"{x}\""), "");
    rule(
        &format!("https://good.rig.test:{}", x.port()),
        format!("connect = \"{e}\""),
        "",
    );
    rule(
        &format!("https://flip.dns.test:{}", e.port()),
        "addresses = [\"127.0.0.1/32\"]".to_owned(),
        "",
    );
    rule(
        &format!("https://mixed.dns.test:{}", e.port()),
        "addresses = [\"127.0.0.1/32\"]".to_owned(),
        "",
    );
    for (name, _, place, more) in CREDENTIALS {
        let host = if name == "other" { SECOND } else { GOOD };
        let mut all = vec![format!("\"https://{host}\"")];
        all.extend(more.iter().map(|origin| format!("\"{origin}\"")));
        let from = if name == "bearer" {
            "env:RIG_BEARER".to_owned()
        } else {
            format!("file:secrets/{name}")
        };
        // What tests send besides a session.
        let cookies = if name == "cookie" {
            "cookies = [\"a\", \"c\"]\n"
        } else {
            ""
        };
        text.push_str(&format!(
            "[[credential]]\nname = \"{name}\"\nfrom = \"{from}\"\norigins = [{}]\nplaces = [\"{place}\"]\nenv = [\"{}\"]\n{cookies}",
            all.join(", "),
            variable(name)
        ));
    }
    text.push_str(FACTS);
    for (name, variable, _, preset, host) in SERVICES {
        text.push_str(&format!(
            "[[credential]]\nname = \"{name}\"\nfrom = \"file:secrets/{name}\"\npreset = \"{preset}\"\norigins = [\"https://{host}\"]\nenv = [\"{variable}\"]\n"
        ));
    }
    for (name, variable, _, place) in IN_CONTENT {
        let pins = match name {
            "pinned-field" => "path = \"/pinned\"\n",
            _ => "",
        };
        text.push_str(&format!(
            "[[credential]]\nname = \"{name}\"\nfrom = \"file:secrets/{name}\"\norigins = [\"https://{PLACES}\", \"https://{PLACES2}\"]\nplaces = [\"{place}\"]\nenv = [\"{variable}\"]\n{pins}"
        ));
    }
    text.push_str(
        "[[credential]]\nname = \"aws\"\nsign = \"sigv4\"\n\
         parts = { access_key = \"file:secrets/aws\", secret_key = \"file:secrets/aws-secret\" }\n",
    );
    text.push_str(ENDPOINTS);
    text.push_str(
        "[[credential]]\nname = \"temp\"\nsign = \"sigv4\"\ncredential_actions = [\"sts:AssumeRole\", \"s3:CreateSession\"]\nenv = [\"TEMP_ID\", \"TEMP_SECRET\", \"TEMP_TOKEN\"]\n\
         parts = { access_key = \"file:secrets/temp\", secret_key = \"file:secrets/temp-secret\", session_token = \"file:secrets/temp-token\" }\n",
    );
    text.push_str(ENDPOINTS);
    let part = |name: &str| {
        format!(
            "parts = {{ access_key = \"file:secrets/{name}\", secret_key = \"file:secrets/{name}-secret\" }}"
        )
    };
    for (name, variable, more) in [
        (
            "pinned",
            "PINNED",
            format!("accounts = [\"{ACCOUNT}\"]\nbuckets = [\"bucket\", \"shared/in/\"]"),
        ),
        (
            "granted",
            "GRANTED",
            "credential_actions = [\"s3control:GetDataAccess\"]".to_owned(),
        ),
        (
            "writer",
            "WRITER",
            "actions = [\"s3:PutObject\"]\nbuckets = [\"bucket\"]".to_owned(),
        ),
        (
            "tenant",
            "TENANT",
            format!(
                "buckets = [\"shared/incoming/\"]\nendpoints = [{{ origin = \"https://{S3}\", service = \"s3\", region = \"us-east-1\" }}]"
            ),
        ),
        (
            "actor",
            "ACTOR",
            format!(
                "actions = [\"s3:*\"]\nendpoints = [{{ origin = \"https://{OWN}\", service = \"own-service\", region = \"here\" }}]"
            ),
        ),
    ] {
        let parts = part(name);
        text.push_str(&format!(
            "[[credential]]\nname = \"{name}\"\nsign = \"sigv4\"\n{parts}\nenv = [\"{variable}_ID\", \"{variable}_SECRET\"]\n{more}\n"
        ));
    }
    text.push_str(
        "[[credential]]\nname = \"exchange\"\nsign = \"binance-hmac\"\norigins = [\"https://exchange.rig.test\"]\n\
         parts = { key = \"file:secrets/exchange\", secret = \"file:secrets/exchange-secret\" }\n",
    );
    text.push_str(&format!(
        "[[credential]]\nname = \"renewed\"\norigins = [\"https://{RENEWED}\", \"https://{RENEWED2}\"]\n\
         places = [\"header:x-renewed\"]\nenv = [\"RENEWED_TOKEN\"]\n\
         from = {{ command = [\"/bin/cat\", \"{}\"] }}\n",
        at.join("secrets/renewed").display()
    ));
    text
}

fn listeners(ports: &Ports) -> String {
    let mut text = String::from(
        "[audit]\npath = \"audit/serve.jsonl\"\n[ca]\ncertificate = \"ca-{session}.pem\"\n[phantoms]\nenv_file = \"phantoms-{session}.env\"\n",
    );
    for (kind, address, session) in [
        ("proxy", ports.proxy, "a"),
        ("tls", ports.tls, "a"),
        ("proxy", ports.guarded, "a"),
        ("proxy", ports.proxy_b, "b"),
        ("tls", ports.tls_b, "b"),
    ] {
        text.push_str(&format!(
            "[[listener]]\nkind = \"{kind}\"\naddress = \"{address}\"\nsession = \"{session}\"\n"
        ));
        if address == ports.guarded {
            text.push_str("who = [\"password\"]\npasswords = { agent = \"file:secrets/proxy\" }\n");
        }
    }
    text
}

fn log(path: PathBuf) -> Stdio {
    fs::File::create(path).unwrap().into()
}

/// Has the command of `renewed` print this from now on.
fn renew(at: &Path, secret: &str) {
    let printed = format!("{{\"secret\":\"{secret}\",\"expires_in\":2}}");
    file(&at.join("secrets/renewed"), 0o600, &printed);
}

/// Starts `gateway serve` in a folder.
pub fn serve(at: &Path, config: &str, bearer: &str) -> std::process::Child {
    let name = config.replace(".toml", ".log");
    Command::new(env!("CARGO_BIN_EXE_gateway"))
        .args(["serve", "--config", config])
        .current_dir(at)
        .env("RIG_BEARER", bearer)
        .env("RUST_LOG", "trace")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log(at.join(name)))
        .spawn()
        .unwrap()
}

/// Starts `gateway exec` in a folder below one, with the relay as its command.
pub fn exec(at: &Path, config: &str, bearer: &str) -> (std::process::Child, Relay) {
    let name = at.join(config.replace(".toml", ".log"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_gateway"))
        .args(["exec", "-q", "--config", &format!("../{config}"), "--see"])
        .arg(std::env::current_exe().unwrap().parent().unwrap())
        .arg("--")
        .arg(std::env::current_exe().unwrap())
        .arg("__relay")
        .current_dir(at.join("work"))
        .env("RIG_BEARER", bearer)
        .env("RUST_LOG", "trace")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log(name.clone()))
        .spawn()
        .unwrap();
    match Relay::new(child.stdin.take().unwrap(), child.stdout.take().unwrap()) {
        Some(relay) => (child, relay),
        None => panic!(
            "the sandbox does not start: {}",
            fs::read_to_string(name).unwrap()
        ),
    }
}
