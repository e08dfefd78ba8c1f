//! `gateway login add`: a person's login with a client id of their own.

mod browser;
mod device;

use std::sync::Arc;
use std::time::SystemTime;

use clap::Args;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use crate::app::reload::generation;
use crate::app::{Advise as _, ConfigFile, Context as _, Failure, Terminal, safe};
use crate::cli::credential::logins;
use crate::config::{Config, ConfiguredLogin};
use crate::credential::login::{Issuer, Login, RequestMembers, TokenEndpoint, TokenGrant, Tokens};
use crate::credential::{CachedSecret, HttpAnswer, HttpClient, Stores};
use crate::origin::StoreClient;

/// Log in to a service, with a client id of your own: that of a `[[login]]`
#[derive(Args)]
pub(crate) struct AddLogin {
    /// The login: the `name` of a `[[login]]`
    service: String,
    #[command(flatten)]
    config: ConfigFile,
}

/// An issuer to request tokens from.
struct LoginIssuer<'a> {
    issuer: &'a Issuer,
    client: Arc<dyn HttpClient>,
    secret: Option<CachedSecret>,
    terminal: &'a Terminal,
}

/// An issuer's error response (RFC 6749 §5.2).
#[derive(Deserialize)]
struct IssuerError {
    error: String,
}

impl AddLogin {
    pub(crate) async fn run(&self, terminal: &mut Terminal) -> Result<(), Failure> {
        let config = self.config.read(terminal)?;
        let own = self.own(&config)?;
        let (login, tokens) = log_in(&config, own, terminal).await?;
        logins::keep_new(&config, &login, &tokens).await?;
        let (ends, account) = (tokens.expires, tokens.account());
        let name = &own.login.name;
        let line = match &account {
            Some(account) => format!("logged in: {name}, as {}", safe(account)),
            None => format!("logged in: {name}"),
        };
        let document = json!({ "name": name.as_str(), "account": account, "ends": ends.map(unix) });
        terminal.answer(&document, line);
        Ok(())
    }

    /// Returns the login of that name, if a person can begin it.
    fn own<'c>(&self, config: &'c Config) -> Result<&'c ConfiguredLogin, Failure> {
        let named = |own: &&ConfiguredLogin| own.login.name.as_str() == self.service;
        let Some(own) = config.logins.iter().find(named) else {
            let names = crate::names::join(config.logins.iter().map(|own| &own.login.name), ", ");
            let why = if names.is_empty() {
                "the configuration has no `[[login]]`".to_owned()
            } else {
                format!("the configuration has: {names}")
            };
            let what = format!("there is no login `{}`", safe(&self.service));
            return Err(Failure::usage(what).because(why).next(
                "add a `[[login]]` with a client id of your own (docs/config.md); the login of a known tool is made by \
                 the tool itself: `gateway exec -- claude`",
            ));
        };
        let is_renewed = |issuer: &Issuer| issuer.grant == TokenGrant::Refresh;
        if !own.login.issuer.as_ref().is_some_and(is_renewed) {
            let what = format!("login `{}` needs nobody to log in", self.service);
            return Err(Failure::usage(what)
                .because("the gateway asks for its tokens with a key or a secret")
                .next("use it: `gateway exec` and `serve` do so by themselves"));
        }
        Ok(own)
    }
}

async fn log_in(
    config: &Config,
    own: &ConfiguredLogin,
    terminal: &Terminal,
) -> Result<(Login, Tokens), Failure> {
    let issuer = own.login.issuer.as_ref();
    let issuer = issuer.ok_or_else(|| Failure::usage("the login has no issuer"))?;
    let asked = LoginIssuer {
        client: client(config, issuer, own.device.as_ref())?,
        secret: secret(issuer).await?,
        issuer,
        terminal,
    };
    let tokens = match (&own.device, &own.authorize) {
        (Some(device), _) => asked.on_another_device(device).await?,
        (None, Some(page)) => asked.in_a_browser(page).await?,
        (None, None) => {
            return Err(Failure::usage("nothing says where the login begins")
                .because("the `[[login]]` has neither `device_url` nor `authorize_url`")
                .next("add the one that the service documents"));
        }
    };
    let secret = asked.secret.as_ref().map(|read| &*read.secret);
    let login = Login {
        issuer: Some(issuer.clone().knowing(secret)),
        ..own.login.clone()
    };
    Ok((login, tokens))
}

/// Returns a client that reaches only the servers of a login.
fn client(
    config: &Config,
    issuer: &Issuer,
    device: Option<&TokenEndpoint>,
) -> Result<Arc<dyn HttpClient>, Failure> {
    let mut servers = vec![issuer.endpoint.origin.clone()];
    servers.extend(device.map(|device| device.origin.clone()));
    let way = config.store_way(&servers);
    let client = StoreClient::new(servers, Vec::new(), None, way);
    Ok(Arc::new(client.map_err(|error| {
        generation::failed("the way to the issuer", &error)
    })?))
}

/// Returns the client's secret, if it has one.
async fn secret(issuer: &Issuer) -> Result<Option<CachedSecret>, Failure> {
    let Some(kept) = issuer.kept_secret() else {
        return Ok(None);
    };
    let source = Stores::new([kept]).source(kept);
    let read = source.resolve(None).await;
    read.map(Some)
        .context("the client's secret cannot be read")
        .advise("check `client_secret` of the `[[login]]`")
}

impl LoginIssuer<'_> {
    async fn ask(
        &self,
        at: &TokenEndpoint,
        members: RequestMembers<'_>,
    ) -> Result<HttpAnswer, Failure> {
        let secret = self.secret.as_ref().map(|read| &*read.secret);
        let request = self.issuer.asked(at, members, secret);
        let request = request.ok_or_else(|| Failure::new("the request cannot be made"))?;
        let answer = self.client.send(&at.origin, request).await;
        answer
            .context(format!("{at} was asked in vain"))
            .advise("check the address, and the network")
    }

    /// Returns the tokens of a response, or the issuer's error code.
    fn tokens(&self, answer: &HttpAnswer) -> Result<Result<Tokens, String>, Failure> {
        if answer.status == StatusCode::OK
            && let Some(tokens) = Tokens::of_answer(&answer.content, None)
        {
            return Ok(Ok(tokens));
        }
        match serde_json::from_slice::<IssuerError>(&answer.content) {
            Ok(said) => Ok(Err(said.error)),
            Err(_) => Err(self.illegible(answer, "an answer with tokens")),
        }
    }

    fn illegible(&self, answer: &HttpAnswer, wanted: &str) -> Failure {
        let at = &self.issuer.endpoint.origin.authority.host;
        Failure::new(format!("{at} answered {}", answer.status.as_u16()))
            .because(format!("it is not {wanted}"))
            .next("check the URLs and `client_id` of the `[[login]]`")
    }
}

/// Returns the failure for an issuer's error code.
fn refused(word: &str) -> Failure {
    let next = match word {
        "invalid_client" | "unauthorized_client" => "check `client_id` and `client_secret`",
        "invalid_scope" => "check `scopes`",
        "access_denied" => "allow it at the page that the service shows",
        _ => "begin again: `gateway login add`",
    };
    Failure::new("the service refused the login")
        .because(safe(word))
        .next(next)
}

fn unix(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}
