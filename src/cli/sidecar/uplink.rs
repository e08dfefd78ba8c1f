//! A sidecar's way to its gateway: a Unix socket, or TLS to a gateway elsewhere. The token is its
//! only secret.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::either::Either;

use crate::app::{Advise as _, Code, Context as _, Failure, Terminal, safe};
use crate::cli::certificates;
use crate::config::{Hint, parse_reference};
use crate::credential::{SecretRef, UpstreamLogin};
use crate::intercept::explicit;
use crate::message::{Authority, Origin, OriginPattern, Scheme};
use crate::names::ReasonCode;
use crate::origin::{Error, RemoteProxy, RemoteRefused, Tunnel};

/// The credentials for a gateway elsewhere, and the roots to trust.
pub(super) struct UplinkSettings {
    pub(super) token_from: Option<SecretRef>,
    pub(super) ca: Option<PathBuf>,
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
}

/// The address of the gateway's `proxy` listener.
#[derive(Clone)]
pub(super) enum Proxy {
    Unix(PathBuf),
    Elsewhere(Origin),
}

/// The way to the gateway, with its current state.
pub(super) struct Uplink {
    place: Proxy,
    elsewhere: Option<RemoteProxy>,
    /// The variable that holds the token. It is for the sidecar alone.
    pub(super) variable: Option<String>,
    /// Whether files hold the presented credentials.
    pub(super) presents_files: bool,
    terminal: Terminal,
    /// The last reported reason why the gateway is not reached.
    told: RefCell<Option<String>>,
    is_tried: Cell<bool>,
    most: u32,
    places: Arc<Semaphore>,
    /// When too many connections were last reported.
    told_full: Cell<Option<Instant>>,
}

/// A connection that the gateway accepted.
pub(super) type ProxyConnection = Either<UnixStream, Tunnel>;

impl UplinkSettings {
    pub(super) fn way(self, to: Proxy, most: u32, terminal: Terminal) -> Result<Uplink, Failure> {
        let variable = self.token_from.as_ref().and_then(SecretRef::env_name);
        let variable = variable.map(str::to_owned);
        let elsewhere = match &to {
            Proxy::Elsewhere(at) => Some(self.proxy(at)?),
            Proxy::Unix(_) => None,
        };
        let is_shown = [&self.ca, &self.certificate].map(Option::is_some);
        if elsewhere.is_none() && (is_shown.contains(&true) || self.token_from.is_some()) {
            return Err(Failure::usage("nothing is presented at a Unix socket")
                .because("its clients present what they have, and the kernel tells who they are")
                .next("leave out `--token-from`, `--ca` and `--certificate`"));
        }
        let is_read = self.token_from.is_some() && variable.is_none();
        let fit = fit_in_descriptors();
        if fit < most {
            terminal.note(format!(
                "gateway: the limit of open files allows {fit} connections"
            ));
        }
        let most = most.min(fit);
        Ok(Uplink {
            presents_files: is_read || self.key.is_some(),
            place: to,
            elsewhere,
            variable,
            terminal,
            told: RefCell::default(),
            is_tried: Cell::new(false),
            most,
            places: Arc::new(Semaphore::new(most as usize)),
            told_full: Cell::new(None),
        })
    }

    fn proxy(&self, at: &Origin) -> Result<RemoteProxy, Failure> {
        let roots = self.ca.as_deref();
        let roots = roots.map(|path| certificates::read("--ca", path));
        let pair = self.certificate.as_deref().zip(self.key.as_deref());
        let identity = pair.map(|(certificate, key)| {
            certificates::identity(("--certificate", certificate), ("--key", key))
        });
        if let Some(from) = &self.token_from {
            certificates::private("--token-from", from)?;
        }
        let login = self.token_from.clone().map(UpstreamLogin::token_at);
        let (roots, identity) = (roots.transpose()?, identity.transpose()?);
        RemoteProxy::new(at.clone(), roots.unwrap_or_default(), identity, login)
            .context("the way to the gateway cannot be set up")
            .coded(Code::Usage.number())
    }
}

impl Uplink {
    /// Checks that a gateway elsewhere serves this caller.
    pub(super) async fn check(&self) -> Result<(), Failure> {
        let Some(elsewhere) = &self.elsewhere else {
            return Ok(());
        };
        match elsewhere.check().await {
            Err(RemoteRefused::Refuses {
                reason: Some(ReasonCode::SessionPaused),
                ..
            }) => {
                self.terminal.note(PAUSED);
                Ok(())
            }
            checked => checked.map_err(|refused| self.failure(&refused)),
        }
    }

    /// Returns a permit for one connection. Reports once a minute that there is none.
    pub(super) fn place(&self) -> Option<OwnedSemaphorePermit> {
        let place = self.places.clone().try_acquire_owned().ok();
        let is_told = |at: Instant| at.elapsed() < TOLD_AGAIN_AFTER;
        if place.is_none() && !self.told_full.get().is_some_and(is_told) {
            self.told_full.set(Some(Instant::now()));
            self.terminal.note(format!(
                "gateway: more than {} connections at a time: others are refused (`--connections`)",
                self.most
            ));
        }
        place
    }

    /// Opens a connection to the gateway's proxy, and sends `then`. A failure is reported once;
    /// while it lasts, one connection tries, and the others fail at once.
    pub(super) async fn open(&self, then: &[u8]) -> Option<ProxyConnection> {
        let is_down = self.told.borrow().is_some();
        if is_down && self.is_tried.replace(true) {
            return None;
        }
        let opened = self.try_open(then).await;
        self.is_tried.set(false);
        match opened {
            Ok(opened) => {
                self.told.replace(None);
                Some(opened)
            }
            Err(failure) => {
                let text = failure?.to_string();
                if self.told.replace(Some(text.clone())).as_ref() != Some(&text) {
                    let note = format!("gateway: connections are refused: {text}");
                    self.terminal.note(safe(&note));
                }
                None
            }
        }
    }

    /// The failure is `None` where another attempt has reported the same.
    async fn try_open(&self, then: &[u8]) -> Result<ProxyConnection, Option<Failure>> {
        let Some(elsewhere) = &self.elsewhere else {
            let Proxy::Unix(path) = &self.place else {
                return Err(Some(Failure::new("there is no way")));
            };
            let opened = async {
                let mut stream = UnixStream::connect(path).await?;
                stream.write_all(then).await?;
                Ok(Either::Left(stream))
            };
            let opened: std::io::Result<_> = opened.await;
            let opened = opened.context(format!("no gateway at {}", path.display()));
            return opened.map_err(Some);
        };
        match elsewhere.open(&explicit::itself(), then).await {
            Ok(tunnel) => Ok(Either::Right(tunnel)),
            Err(RemoteRefused::AsBefore) => Err(None),
            Err(refused) => Err(Some(self.failure(&refused))),
        }
    }

    fn failure(&self, refused: &RemoteRefused) -> Failure {
        let next = match refused {
            RemoteRefused::NoToken(_) => "write it to the place that `--token-from` names",
            RemoteRefused::Unreached(Error::Tls(_)) => {
                "`--ca FILE` names the CA of its certificate, if that is none of the system's"
            }
            RemoteRefused::Unreached(_) | RemoteRefused::AsBefore => {
                "is `gateway serve` running there?"
            }
            RemoteRefused::Unanswered(_) => {
                "it must be a `proxy` listener with `tls`; some want `--certificate` and `--key`"
            }
            RemoteRefused::Asks => "name what is presented: `--token-from file:PATH`",
            RemoteRefused::Token => "mint another one there: `gateway token mint`",
            RemoteRefused::Refuses {
                reason: Some(ReasonCode::SessionEnded),
                ..
            } => "its session has ended: mint a token of one that lives",
            RemoteRefused::Full => {
                "raise `connections_per_session` or `connections` of its `[limits]`"
            }
            RemoteRefused::Refuses { .. } => "its log says why",
        };
        Failure::of(format!("no way through {}", self.place), refused).next(next)
    }
}

impl fmt::Display for Uplink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Elsewhere(Origin { authority, .. }) => {
                let Authority { host, port } = authority;
                write!(f, "https://{}:{port}", host.to_uri())
            }
        }
    }
}

/// How many connections the limit of open files allows: two descriptors each, at most.
fn fit_in_descriptors() -> u32 {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    u32::try_from(files.saturating_sub(OWN_DESCRIPTORS) / 2).unwrap_or(u32::MAX)
}

/// Reads `--to`.
pub(super) fn place(text: &str) -> Result<Proxy, String> {
    let path = text.strip_prefix("unix:").map(PathBuf::from);
    if let Some(path) = path.filter(|path| path.is_absolute()) {
        return Ok(Proxy::Unix(path));
    }
    let is_url = text.starts_with("https://");
    let origin = is_url.then(|| text.parse::<OriginPattern>().ok()?.exact());
    let origin = origin.flatten();
    let origin = origin.filter(|origin| origin.scheme == Scheme::Https);
    origin.map(Proxy::Elsewhere).ok_or_else(|| {
        "it is a `proxy` listener: its Unix socket, such as `unix:/run/gateway.sock`, or one with `tls`, such as `https://gateway.example.com:8443`".to_owned()
    })
}

/// Reads `--token-from`. Its messages never repeat the text, which may be the token.
pub(super) fn reference(text: &str) -> Result<SecretRef, String> {
    let absolute = |path: &str| {
        let unread = |error: std::io::Error| Hint::new(error.to_string(), "name its whole path");
        std::path::absolute(path).map_err(unread)
    };
    let reference = parse_reference(text, absolute);
    let reference = reference.map_err(|hint| format!("{}: {}", hint.why, hint.remedy))?;
    if reference.store().is_some() {
        Err("write `file:PATH` or `env:NAME`".to_owned())
    } else {
        Ok(reference)
    }
}

/// Open files that belong to no single connection: listeners, and those to a gateway elsewhere.
const OWN_DESCRIPTORS: u64 = 128;
const TOLD_AGAIN_AFTER: Duration = Duration::from_secs(60);
const PAUSED: &str = "gateway: the session is paused: its requests are refused until somebody there \
     resumes it";
