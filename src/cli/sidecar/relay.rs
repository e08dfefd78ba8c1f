//! `gateway sidecar --to`: a port of loopback that leads to the Unix socket of a gateway's `proxy`,
//! for a sandbox without a network. It holds nothing, and reads nothing of what it passes on.

use std::cell::Cell;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::LocalSet;

use super::nearby::Nearby;
use crate::app::listen::client_environment::proxy_variables;
use crate::app::process::serving;
use crate::app::{Advise as _, Code, Context as _, Failure, Terminal, safe};

#[derive(Args)]
pub(crate) struct Relay {
    /// Relay connections to a gateway's `proxy` listener on a Unix socket, from a sandbox without a
    /// network
    #[arg(long, value_name = "unix:PATH", value_parser = socket)]
    to: PathBuf,
    /// Where clients find that proxy, on loopback
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:3128", value_parser = loopback)]
    listen: SocketAddr,
    /// The command to run with the proxy in its environment; with it the relay ends
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Relay {
    pub(super) fn run(self, terminal: Terminal) -> Result<Code, Failure> {
        let runtime = serving::runtime()?;
        let ended = LocalSet::new().block_on(&runtime, async {
            let listener = TcpListener::bind(self.listen).await;
            let listener = listener
                .context(format!("cannot listen on {}", self.listen))
                .advise("name another port: `--listen 127.0.0.1:PORT`")?;
            let at = listener.local_addr().context("the port has no address")?;
            let relay = relay(listener, self.to.clone(), terminal);
            if !Nearby::all().is_empty() {
                terminal.note(SHARED);
            }
            if self.command.is_empty() {
                let to = self.to.display();
                terminal.note(format!("gateway: http://{at} leads to unix:{to}"));
                match relay.await {}
            }
            tokio::select! {
                never = relay => match never {},
                code = run(&self.command, at) => code,
            }
        });
        runtime.shutdown_background();
        ended
    }
}

/// Relays connections, so many at once; the others wait.
async fn relay(listener: TcpListener, to: PathBuf, terminal: Terminal) -> Infallible {
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let is_told = Rc::new(Cell::new(false));
    loop {
        let place = free.clone().acquire_owned().await;
        let client = match listener.accept().await {
            Ok((client, _)) => client,
            // Out of descriptors: some connection ends.
            Err(_) => {
                tokio::time::sleep(ACCEPTS_AGAIN_AFTER).await;
                continue;
            }
        };
        let (to, is_told) = (to.clone(), is_told.clone());
        tokio::task::spawn_local(async move {
            let _place = place;
            match UnixStream::connect(&to).await {
                Ok(gateway) => {
                    is_told.set(false);
                    pass(client, gateway).await;
                }
                Err(error) => {
                    // The client is to see it at once.
                    let _ = client.set_zero_linger();
                    if !is_told.replace(true) {
                        let (to, error) = (to.display().to_string(), error.to_string());
                        terminal.note(format!(
                            "gateway: no gateway at {}: {error}; connections are refused",
                            safe(&to)
                        ));
                    }
                }
            }
        });
    }
}

/// Passes bytes both ways until both ends have closed, or one is gone.
async fn pass(mut client: TcpStream, mut gateway: UnixStream) {
    let _ = client.set_nodelay(true);
    let passed = copy_bidirectional_with_sizes(&mut client, &mut gateway, BUFFER, BUFFER).await;
    if passed.is_err() {
        let _ = client.set_zero_linger();
    }
}

/// Runs the command, and ends as it does.
async fn run(command: &[OsString], at: SocketAddr) -> Result<Code, Failure> {
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
    let child = Command::new(program)
        .args(arguments)
        .envs(proxy_variables(&at.to_string(), false))
        .spawn();
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

/// Waits for the command's end, and passes on what asks for it.
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
            // It may have ended just now; nobody has its number before it was waited for.
            let _ = rustix::process::kill_process(id, asked);
        }
    }
}

/// Reads `--to`.
fn socket(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("unix:").map(PathBuf::from);
    path.filter(|path| path.is_absolute()).ok_or_else(|| {
        "it is the Unix socket of a `proxy` listener, such as `unix:/run/gateway.sock`; no other way leads to a gateway".to_owned()
    })
}

/// Reads `--listen`.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: Option<SocketAddr> = text.parse().ok();
    let address = address.filter(|address| address.ip().is_loopback());
    address.ok_or_else(|| {
        "write an address of loopback and a port, such as `127.0.0.1:3128`: others would be the caller".to_owned()
    })
}

const SHARED: &str = "gateway: this network namespace is not the sandbox's alone: whoever is in it \
     is this user for the gateway, with `who = [\"unix\"]`";
const CONNECTIONS_MAX: usize = 256;
const BUFFER: usize = 32 * 1024;
const ACCEPTS_AGAIN_AFTER: Duration = Duration::from_millis(50);
