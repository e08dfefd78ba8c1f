//! `[[store]]`: where secrets are kept, and the gateway's login there. `[vault]` is the store of
//! that name and kind.

use std::path::PathBuf;
use std::time::Duration;

use gateway_credential::login::{
    ClientAuthentication, ClientSecret, Issuer, RequestFormat, TokenEndpoint, TokenGrant,
};
use gateway_credential::signing::sigv4::VARIABLES;
use gateway_credential::{
    AwsService, AwsSettings, LoginMethod, OpSettings, SecretRef, StoreKind, StoreSettings,
    VaultLogin, VaultSettings, is_store_name,
};
use gateway_message::Origin;

use super::certificates::Certificates;
use super::diagnostic::Hint;
use super::flags::aws_profile;
use super::login::{endpoint, service_account};
use super::reference::local;
use super::section::{Section, Variant, word};
use super::signing::SigningCredential;
use super::sigv4::label;
use super::{network, reference, units};

/// The login methods, each with its required and its optional keys.
const LOGINS: [Variant; 5] = [
    ("token", "token", ""),
    ("approle", "role_id", "secret_id mount"),
    ("jwt", "role jwt", "mount"),
    ("kubernetes", "role", "token_file mount"),
    ("cert", "client_certificate client_key", "role mount"),
];

/// The kinds, each with its required and its optional keys.
const KINDS: [Variant; 6] = [
    (VAULT, "addresses login", OF_VAULTS),
    ("op", "kind", "addresses token command"),
    ("aws-secret", "region", "addresses profile"),
    ("aws-parameter", "region", "addresses profile"),
    ("gcp-secret", "file", "addresses"),
    (
        "azure-secret",
        "addresses token_url client_id client_secret",
        "kind",
    ),
];

/// Reads a store, and adds it. Its name is noted even if it has mistakes.
pub(super) fn add(
    section: &Section<'_, '_>,
    stores: &mut Vec<StoreSettings>,
    names: &mut Vec<Box<str>>,
) {
    let (name, read) = store(section);
    if name.as_ref().is_some_and(|name| names.contains(name)) {
        mistake!(section, "name", "a second store has this name"; "a reference would mean either";
            "give one of them another `name`");
    }
    names.extend(name);
    stores.extend(read);
}

fn store(section: &Section<'_, '_>) -> (Option<Box<str>>, Option<StoreSettings>) {
    let is_vault = section.is(VAULT);
    if is_vault {
        let own =
            hint!("[vault] is the store of that name and kind"; "write `[[store]]` for [vault]");
        section.refuse(&["name", "kind"], "belongs to [[store]]", own);
    } else {
        require!(section, "kind"; "it says what the store is"; "add `kind = \"vault\"`");
    }
    let words = KINDS.map(|(word, ..)| (word, word));
    let kind = section.choice("kind", &words).or(is_vault.then_some(VAULT));
    let name = section.get("name", name).or_else(|| kind.map(Into::into));
    let mut servers = section.all("addresses", server);
    let (mut files, roots) = section.roots("roots");
    let ttl = section.get("ttl", |text| units::within_a_day(text, 1));
    let max_stale = section.get("max_stale", |text| units::within_a_day(text, 0));
    let certificate = section.certificates("client_certificate");
    files.extend(certificate.iter().map(|(file, _)| file.clone()));
    if let Some(kind) = kind.filter(|kind| *kind != VAULT) {
        section.variant(("kind", kind), (&KINDS, "name kind roots ttl max_stale"));
    }
    let read = by_kind(section, kind, (&mut servers, certificate));
    let read = read.zip(name.clone()).map(|(kind, name)| StoreSettings {
        name,
        servers,
        roots,
        files,
        ttl: ttl.unwrap_or(DEFAULT_TTL),
        max_stale: max_stale.unwrap_or(DEFAULT_STALE),
        kind,
    });
    (name, read)
}

/// Reads every key of a kind, to find each mistake, and builds the kind that was chosen.
fn by_kind(
    section: &Section<'_, '_>,
    kind: Option<&str>,
    (servers, certificate): (&mut Vec<Origin>, Option<Certificates>),
) -> Option<StoreKind> {
    let is_vault = kind.is_none_or(|kind| kind == VAULT);
    let namespace = section.get("namespace", path);
    if is_vault && kind.is_some() {
        require!(section, "addresses"; "it says where the vault is";
            "add `addresses = [\"https://vault.example:8200\"]`");
    }
    let token = local(section, "token");
    let login = is_vault.then(|| login(section, token.clone(), certificate));
    let region = section.get("region", label);
    let profile = section.get("profile", aws_profile);
    let (command, file) = (section.path("command"), section.path("file"));
    let url = section.get("token_url", endpoint);
    let client = section.get("client_id", word);
    let secret = local(section, "client_secret");
    let default = |servers: &mut Vec<Origin>, text: &str| {
        let known = server(text).ok().filter(|_| servers.is_empty());
        servers.extend(known);
    };
    Some(match kind? {
        VAULT => {
            let login = login.flatten()?;
            servers.first()?;
            StoreKind::Vault(VaultSettings { namespace, login })
        }
        "op" => StoreKind::Op(one_password(section, token, command)?),
        "gcp-secret" => {
            default(servers, "https://secretmanager.googleapis.com");
            let (grant, endpoint) = service_account(section, &file?, None)?;
            StoreKind::Gcp(issuer(endpoint, grant, GOOGLE.to_owned()))
        }
        "azure-secret" => {
            // The scope is that of the cloud: `vault.azure.net`, `vault.azure.cn` …
            let host = servers.first()?.authority.host.as_str();
            let cloud = host.split_once('.').map_or(host, |(_, cloud)| cloud);
            let scope = format!("https://{cloud}/.default");
            let (from, shown) = (secret?, ClientAuthentication::Post);
            StoreKind::Azure(Issuer {
                client: Some(client?),
                secret: Some(ClientSecret::Kept { from, shown }),
                ..issuer(url?, TokenGrant::ClientCredentials, scope)
            })
        }
        word => {
            let (service, region) = (AwsService::named(word)?, region?);
            let end = if region.starts_with("cn-") { ".cn" } else { "" };
            let host = service.host();
            default(
                servers,
                &format!("https://{host}.{region}.amazonaws.com{end}"),
            );
            let keys = match profile {
                Some(program) => {
                    let parts = SigningCredential::of_program(&program).parts;
                    parts.into_iter().map(|part| part.from).collect()
                }
                None => VARIABLES.map(SecretRef::env).to_vec(),
            };
            StoreKind::Aws(AwsSettings {
                service,
                region,
                keys,
            })
        }
    })
}

fn one_password(
    section: &Section<'_, '_>,
    token: Option<SecretRef>,
    command: Option<PathBuf>,
) -> Option<OpSettings> {
    if section.has("addresses") {
        require!(section, "token"; "a Connect server asks for it";
            "add `token = \"env:OP_CONNECT_TOKEN\"`");
        return token.map(OpSettings::Connect);
    }
    let without = hint!("it is for a Connect server; `op` has OP_SERVICE_ACCOUNT_TOKEN";
        "add `addresses`, or remove it");
    section.refuse(&["token"], "needs `addresses`", without);
    let program = command.unwrap_or_else(|| OP.into());
    let program =
        SecretRef::command(program, Vec::new(), None).passing(OF_OP.map(str::to_owned).to_vec());
    let span = section.span_of("command");
    reference::check(section.document, &span, "command", &program);
    Some(OpSettings::Command(program))
}

/// Returns an issuer of access tokens for one scope.
fn issuer(endpoint: TokenEndpoint, grant: TokenGrant, scope: String) -> Issuer {
    Issuer {
        endpoint,
        revocation: None,
        client: None,
        secret: None,
        scopes: vec![scope],
        grant,
        requests: RequestFormat::Form,
    }
}

fn name(text: &str) -> Result<Box<str>, Hint> {
    if is_store_name(text) {
        return Ok(text.into());
    }
    refused!("a store's name begins references: it has the characters a-z, 0-9 and `-`, starts with a letter, and is no \
              other kind of reference"; "write for example `vault` or `aws-prod`")
}

fn login(
    section: &Section<'_, '_>,
    token: Option<SecretRef>,
    certificate: Option<Certificates>,
) -> Option<VaultLogin> {
    let local = |key| local(section, key);
    let secret_id = local("secret_id");
    let (jwt, key) = (local("jwt"), local("client_key"));
    let (role, role_id) = (section.get("role", word), section.get("role_id", word));
    let token_file = section.path("token_file");
    let mount = section.get("mount", path);
    require!(section, "login"; "it says how the gateway gets its token";
        "add `login = \"approle\"`, `jwt`, `kubernetes`, `cert` or `token`");
    let chosen = section.choice("login", &LOGINS.map(|(word, ..)| (word, word)))?;
    section.variant(("login", chosen), (&LOGINS, COMMON));
    let method = match chosen {
        "token" => return token.map(VaultLogin::Token),
        "approle" => LoginMethod::AppRole {
            role_id: role_id?,
            secret_id,
        },
        "jwt" => LoginMethod::Jwt {
            role: role?,
            jwt: jwt?,
        },
        "kubernetes" => LoginMethod::Kubernetes {
            role: role?,
            token_file: token_file.unwrap_or_else(|| SERVICE_ACCOUNT.into()),
        },
        _ => LoginMethod::Certificate {
            role,
            chain: certificate?.1,
            key: key_file(section, &key?)?,
        },
    };
    Some(VaultLogin::Method {
        mount: mount.unwrap_or_else(|| chosen.to_owned()),
        method,
    })
}

fn key_file(section: &Section<'_, '_>, key: &SecretRef) -> Option<PathBuf> {
    if key.path().is_none() {
        mistake!(section, "client_key", "`client_key` is no file";
            "the key of a client certificate is read from a PEM file";
            "write `client_key = \"file:/path/key.pem\"`");
    }
    key.path().map(PathBuf::from)
}

fn server(text: &str) -> Result<Origin, Hint> {
    let server = network::server(
        text,
        hint!("an address is that of one server"; "write `https://vault.example:8200`"),
    )?;
    if network::is_open(&server) {
        return refused!("secrets would travel in clear text; `http` is for loopback addresses alone";
            "write `https://`");
    }
    Ok(server)
}

/// Checks a mount or a namespace, such as `auth-agents` or `team/one`.
fn path(text: &str) -> Result<String, Hint> {
    let text = text.trim_matches('/');
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && name.bytes().all(fits);
    if text.split('/').all(is_name) && text.len() <= 256 {
        Ok(text.to_owned())
    } else {
        refused!("a mount or namespace has names of the characters A-Z, a-z, 0-9 and `-_.`";
                "write for example `team/one`")
    }
}

const VAULT: &str = "vault";
/// The keys of every login of a vault.
const COMMON: &str = "name kind addresses roots namespace login ttl max_stale";
/// The keys of a vault that it need not have.
const OF_VAULTS: &str =
    "namespace mount token role role_id secret_id jwt token_file client_certificate client_key";
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
const GOOGLE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// The variables from which `op` takes its login.
const OF_OP: [&str; 4] = gateway_names::word_list(
    "OP_SERVICE_ACCOUNT_TOKEN OP_CONNECT_HOST OP_CONNECT_TOKEN OP_ACCOUNT",
);
/// Where 1Password's packages put its command.
const OP: &str = "/usr/bin/op";
const DEFAULT_TTL: Duration = Duration::from_secs(300);
const DEFAULT_STALE: Duration = Duration::from_secs(3600);
