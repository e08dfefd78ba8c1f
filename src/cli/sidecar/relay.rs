//! `gateway sidecar --to`: relays the connections of a loopback port, and captured ones, to a
//! gateway's `proxy`. Its only secret is its token, and it does not read what it relays.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, ready};
use std::time::Duration;

use clap::{Args, value_parser};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{JoinSet, LocalSet};

use super::captured::{Captured, DnsSockets};
use super::lent::LentVariables;
use super::nearby::Nearby;
use super::uplink::{Proxy, Uplink, UplinkSettings, place, reference};
use crate::app::process::serving;
use crate::app::{Advise as _, Code, Context as _, Failure, Terminal, safe};
use crate::credential::SecretRef;
use crate::intercept::socks::answer_to_head;

#[derive(Args)]
pub(crate) struct Relay {
    /// Lead connections to a gateway's `proxy` listener: on a Unix socket, or elsewhere by TLS
    #[arg(long, value_name = "unix:PATH|https://HOST:PORT", value_parser = place)]
    to: Proxy,
    /// Where the token is that is presented elsewhere: `file:PATH` or `env:NAME`
    #[arg(long, value_name = "REFERENCE", value_parser = reference)]
    token_from: Option<SecretRef>,
    /// The CA of the gateway's certificate [default: those of the system]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The certificate that is presented elsewhere
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Where clients find that proxy, on loopback [default: 127.0.0.1:3128, unless `--transparent`]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = loopback)]
    listen: Option<SocketAddr>,
    /// Where `gateway sidecar rules` lead connections to
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = with_port, conflicts_with = "command")]
    transparent: Option<SocketAddr>,
    /// Where they lead DNS to
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = with_port, requires = "transparent")]
    dns: Option<SocketAddr>,
    /// How many connections it holds at a time; one more is refused at once
    #[arg(long, value_name = "NUMBER", default_value_t = 4096, value_parser = value_parser!(u32).range(1..=65_536))]
    connections: u32,
    /// The command to run with proxy, CA and phantoms in its environment; with it the relay ends
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Relay {
    pub(super) fn run(self, terminal: Terminal) -> Result<Code, Failure> {
        // The credentials it presents are not for the command, which runs as the same user.
        serving::harden()?;
        let runtime = serving::runtime()?;
        let ended = LocalSet::new().block_on(&runtime, self.lead(terminal));
        runtime.shutdown_background();
        ended
    }

    async fn lead(self, terminal: Terminal) -> Result<Code, Failure> {
        let is_alone = self.command.is_empty();
        let settings = UplinkSettings {
            token_from: self.token_from,
            ca: self.ca,
            certificate: self.certificate,
            key: self.key,
        };
        let way = Rc::new(settings.way(self.to, self.connections, terminal)?);
        way.check().await?;
        if way.presents_files && !is_alone {
            terminal.note(READABLE);
        }
        let usual = || self.transparent.is_none().then_some(USUAL);
        let proxy = match self.listen.or_else(usual) {
            Some(at) => Some(bind(at).await?),
            None => None,
        };
        if proxy.is_some() && !Nearby::all().is_empty() {
            terminal.note(SHARED);
        }
        let captured = self.transparent.map(|at| Captured::bind(at, self.dns));
        let captured = captured.transpose()?;
        let at = proxy.as_ref().map(TcpListener::local_addr);
        let at = at.transpose().context("the port has no address")?;
        if let Some(at) = at.filter(|_| is_alone) {
            terminal.note(format!("gateway: http://{at} leads to {way}"));
        }
        if let Some(at) = self.transparent.filter(|_| is_alone) {
            terminal.note(format!("gateway: what is captured at {at} leads to {way}"));
        }
        let relayed = relay(proxy, captured, way.clone());
        if is_alone {
            return Err(relayed.await);
        }
        let run = async {
            let at = at.ok_or_else(|| Failure::usage("there is no proxy for the command"))?;
            let (lent, lacks) = LentVariables::ask(&way, at).await;
            if let Some(why) = lacks {
                let text = format!("gateway: the command gets no CA and no phantoms: {why}");
                terminal.note(safe(&text));
            }
            run(&self.command, &lent.variables, way.variable.as_deref()).await
        };
        tokio::select! {
            failure = relayed => Err(failure),
            code = run => code,
        }
    }
}

async fn bind(at: SocketAddr) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(at).await;
    listener
        .context(format!("cannot listen on {at}"))
        .advise("name another port: `--listen 127.0.0.1:PORT`")
}

/// Relays connections of the proxy and captured ones, and answers DNS.
async fn relay(
    proxy: Option<TcpListener>,
    captured: Option<(TcpListener, Captured, Option<DnsSockets>)>,
    way: Rc<Uplink>,
) -> Failure {
    let (mut doors, mut questions) = (JoinSet::new(), None);
    if let Some(listener) = proxy {
        doors.spawn_local(accept(listener, way.clone(), None));
    }
    if let Some((listener, captured, asked)) = captured {
        let captured = Some(Rc::new(captured));
        doors.spawn_local(accept(listener, way, captured));
        questions = asked;
    }
    let failed = match questions {
        Some(questions) => questions.answer().await,
        None => std::future::pending().await,
    };
    match failed {
        Ok(never) => match never {},
        Err(error) => Failure::of("names can no longer be answered", &error),
    }
}

/// Relays connections. Those beyond the limit are reset at once.
async fn accept(listener: TcpListener, way: Rc<Uplink>, captured: Option<Rc<Captured>>) {
    loop {
        let mut client = match listener.accept().await {
            Ok((client, _)) => client,
            // Out of descriptors, until some connection ends.
            Err(_) => {
                tokio::time::sleep(ACCEPTS_AGAIN_AFTER).await;
                continue;
            }
        };
        let Some(place) = way.place() else {
            let _ = client.set_zero_linger();
            continue;
        };
        let (way, captured) = (way.clone(), captured.clone());
        tokio::task::spawn_local(async move {
            let _place = place;
            if pass(&mut client, &way, captured.as_deref()).await.is_err() {
                // The client should see the failure at once.
                let _ = client.set_zero_linger();
            }
        });
    }
}

/// Passes bytes both ways until both ends have closed, or one has failed.
async fn pass(client: &mut TcpStream, way: &Uplink, captured: Option<&Captured>) -> io::Result<()> {
    client.set_nodelay(true)?;
    SockRef::from(&*client).set_keepalive(true)?;
    let head = captured.map(|captured| captured.head(client)).transpose()?;
    let opened = way.open(head.as_deref().unwrap_or_default()).await;
    let mut gateway = opened.ok_or(io::ErrorKind::ConnectionRefused)?;
    if head.is_some() {
        let mut came = answer_to_head().map(|_| 0);
        tokio::time::timeout(ANSWERED_WITHIN, gateway.read_exact(&mut came)).await??;
        if came != answer_to_head() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
    }
    let (mut client_in, mut client_out) = client.split();
    let (mut gateway_in, mut gateway_out) = tokio::io::split(gateway);
    let up = copy(&mut client_in, &mut gateway_out);
    let down = copy(&mut gateway_in, &mut client_out);
    tokio::try_join!(up, down).map(drop)
}

/// Passes bytes until they end. While idle, it holds no buffer: thousands of connections are idle.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    loop {
        let came = poll_fn(|cx| {
            let mut buffer = [MaybeUninit::uninit(); BUFFER];
            let mut buffer = ReadBuf::uninit(&mut buffer);
            ready!(Pin::new(&mut *from).poll_read(cx, &mut buffer))?;
            Poll::Ready(io::Result::Ok(buffer.filled().to_vec()))
        });
        let came = came.await?;
        if came.is_empty() {
            return to.shutdown().await;
        }
        to.write_all(&came).await?;
    }
}

/// Runs the command, and exits as it does.
async fn run(
    command: &[OsString],
    variables: &BTreeMap<String, String>,
    variable: Option<&str>,
) -> Result<Code, Failure> {
    let [program, arguments @ ..] = command else {
        return Err(Failure::usage("there is no command"));
    };
    let signals = [
        SignalKind::terminate(),
        SignalKind::hangup(),
        SignalKind::interrupt(),
        SignalKind::quit(),
    ];
    let signals = signals.map(|kind| signal(kind).context("signals cannot be caught"));
    let [terminate, hangup, interrupt, quit] = signals;
    // A terminal sends the last two to the command as well.
    let (_interrupt, _quit) = (interrupt?, quit?);
    let mut command = Command::new(program);
    command.args(arguments).envs(variables);
    if let Some(variable) = variable {
        command.env_remove(variable);
    }
    let child = command.spawn();
    let child = child.map_err(|error| {
        let program = program.to_string_lossy();
        let code = match error.kind() {
            io::ErrorKind::NotFound => 127,
            _ => 126,
        };
        Failure::new(format!("`{}` cannot be run", safe(&program)))
            .because(error.to_string())
            .coded(code)
    })?;
    ended(child, terminate?, hangup?).await
}

/// Waits for the command's end, and passes on signals that ask for it.
async fn ended(
    mut child: Child,
    mut terminate: Signal,
    mut hangup: Signal,
) -> Result<Code, Failure> {
    loop {
        let asked = tokio::select! {
            status = child.wait() => {
                let status = status.context("the command cannot be waited for")?;
                let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
                return Ok(Code::Exactly(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)));
            }
            _ = terminate.recv() => rustix::process::Signal::TERM,
            _ = hangup.recv() => rustix::process::Signal::HUP,
        };
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(id) = id.and_then(rustix::process::Pid::from_raw) {
            // It may have ended just now; its number is not reused before it was waited for.
            let _ = rustix::process::kill_process(id, asked);
        }
    }
}

/// Reads `--listen`.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: Option<SocketAddr> = text.parse().ok();
    let address = address.filter(|address| address.ip().is_loopback());
    address.ok_or_else(|| {
        "write an address of loopback and a port, such as `127.0.0.1:3128`: others would be the caller".to_owned()
    })
}

/// Reads `--transparent` or `--dns`.
fn with_port(text: &str) -> Result<SocketAddr, String> {
    let address: Option<SocketAddr> = text.parse().ok();
    let address = address.filter(|address| address.port() > 0);
    address.ok_or_else(|| "write an address and a port, such as `[::]:15001`".to_owned())
}

const USUAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 3128);
const SHARED: &str = "gateway: this network namespace is not the sandbox's alone: whoever is in it \
     is this user for the gateway, or the caller of what the sidecar presents";
const READABLE: &str = "gateway: the command runs as the same user, and can read the files of what is \
     presented: `--token-from env:NAME`, which it does not get, or run it as another user";
/// How long a gateway may take to accept the destination of a captured connection.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);
const BUFFER: usize = 32 * 1024;
const ACCEPTS_AGAIN_AFTER: Duration = Duration::from_millis(50);
