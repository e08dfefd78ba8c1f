//! `gateway console`: a page in the browser that shows a running gateway, and answers what waits
//! for a person. It is served on the loopback, to whoever has its one-time link, and it calls the
//! control socket as the other commands do.

mod answers;
mod charts;
mod day;
mod door;
mod feed;
mod pages;
mod requests;
mod shown;
mod stream;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::app::process::serving;
use crate::app::process::signals::Signals;
use crate::app::{Code, Context as _, Failure, Terminal, safe};
use crate::cli::console::door::Door;
use crate::cli::console::shown::Console;
use crate::cli::log::watch_events::whole_records;
use crate::cli::operate::gateways::ChosenGateway;

/// Open a page to watch a gateway, and to answer what waits
///
/// Prints a link that works once, within five minutes, and serves the page on this machine's
/// loopback until it is ended.
#[derive(Args)]
pub(super) struct ConsoleCommand {
    /// The port of the loopback [default: a free one]
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    port: u16,
    #[command(flatten)]
    chosen: ChosenGateway,
}

impl ConsoleCommand {
    pub(super) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        serving::runtime()?.block_on(self.serve(terminal))
    }

    async fn serve(self, terminal: &Terminal) -> Result<Code, Failure> {
        let mut signals = Signals::catch()?;
        let (sockets, port) = listen(self.port).await?;
        let console = Arc::new(Console::new(Door::new(port)?));
        let records = console.show(&self.chosen).await?;
        let link = console.door.link();
        if terminal.json() {
            terminal.document(&json!({ "link": &*link }));
        } else {
            terminal.line(link);
            terminal.note("gateway: open it within 5 minutes; it works once. Ctrl-C ends the page");
        }
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        for socket in sockets {
            tokio::spawn(accept(socket, places.clone(), console.clone()));
        }
        tokio::select! {
            _ = signals.next() => Ok(Code::Ok),
            () = follow(&console, &self.chosen, records, terminal) => Ok(Code::Ok),
            () = console.door.unopened() => {
                Err(Failure::new("nobody opened the link in time").next("gateway console"))
            }
        }
    }
}

/// Follows the records of the gateway, and of the next one when it has ended.
async fn follow(
    console: &Console,
    chosen: &ChosenGateway,
    mut records: Incoming,
    terminal: &Terminal,
) {
    loop {
        let mut unread = Vec::new();
        while let Some(Ok(frame)) = records.frame().await {
            let data = frame.data_ref().map_or(&[][..], |data| &**data);
            let new = whole_records(&mut unread, data);
            let mut feed = console.feed.lock();
            new.into_iter().for_each(|record| feed.add(record));
        }
        if let Some(ended) = console.hide() {
            let name = safe(&ended.gateway.name);
            terminal.note(format!(
                "gateway: `{name}` has ended; the page waits for another"
            ));
        }
        records = loop {
            tokio::time::sleep(LOOKS_EVERY).await;
            if let Ok(records) = console.show(chosen).await {
                break records;
            }
        };
        if let Some(shown) = console.shown() {
            terminal.note(format!(
                "gateway: the page shows `{}`",
                safe(&shown.gateway.name)
            ));
        }
    }
}

/// Listens on both loopbacks, since browsers look for `localhost` at both: at the other, somebody
/// else would be asked in our name.
async fn listen(port: u16) -> Result<(Vec<TcpListener>, u16), Failure> {
    let taken =
        || Failure::new("the port of the loopback is taken").next("choose another: `--port`");
    for _ in 0..TRIES {
        let here = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let here = here.map_err(|error| taken().because(error.to_string()))?;
        let chosen = here.local_addr().context("a socket has no address")?.port();
        match TcpListener::bind((Ipv6Addr::LOCALHOST, chosen)).await {
            Ok(there) => return Ok((vec![here, there], chosen)),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            // This machine has no IPv6.
            Err(_) => return Ok((vec![here], chosen)),
        }
    }
    Err(taken())
}

/// Serves whoever connects. Anyone on this machine may.
async fn accept(socket: TcpListener, places: Arc<Semaphore>, console: Arc<Console>) {
    loop {
        let Ok((stream, _)) = socket.accept().await else {
            tokio::time::sleep(ACCEPTS_AGAIN).await;
            continue;
        };
        // Without a place, the connection is closed at once.
        if let Ok(place) = places.clone().try_acquire_owned() {
            let console = console.clone();
            tokio::spawn(async move {
                let _place = place;
                connection(stream, console).await;
            });
        }
    }
}

/// Serves one request of a connection.
async fn connection(stream: TcpStream, console: Arc<Console>) {
    let service = service_fn(|request| {
        let console = console.clone();
        async move { Ok::<_, std::convert::Infallible>(answers::answer(&console, request).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .keep_alive(false)
        .max_headers(MOST_FIELDS)
        .max_buf_size(MOST_BUFFERED)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = serving.await {
        tracing::debug!(%error, "a connection of the page ended");
    }
}

/// How many connections are served at a time.
const CONNECTIONS: usize = 64;
const HEAD_WITHIN: Duration = Duration::from_secs(5);
const MOST_FIELDS: usize = 64;
const MOST_BUFFERED: usize = 16 << 10;
const ACCEPTS_AGAIN: Duration = Duration::from_millis(50);
/// How often another gateway is looked for.
const LOOKS_EVERY: Duration = Duration::from_millis(500);
/// How many ports are tried, if others have them on the other loopback.
const TRIES: usize = 16;
