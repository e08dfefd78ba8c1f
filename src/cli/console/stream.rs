//! What happens, as a page follows it: server-sent events with parts of the page.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use maud::Markup;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{MissedTickBehavior, interval};

use crate::cli::console::feed::Wanted;
use crate::cli::console::pages::{self, Answers};
use crate::cli::console::requests::rows;
use crate::cli::console::shown::Console;

/// The content of the stream. It ends when its page leaves.
pub(super) struct Events(Receiver<Bytes>);

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let event = self.0.poll_recv(cx);
        event.map(|event| Some(Ok(Frame::data(event?))))
    }
}

/// Begins a stream of what is wanted.
pub(super) fn begin(console: &Arc<Console>, wanted: Wanted, place: OwnedSemaphorePermit) -> Events {
    let (tell, told) = channel(4);
    let console = console.clone();
    tokio::spawn(async move {
        let _place = place;
        // The page has left.
        let _ = follow(&console, &wanted, &tell).await;
    });
    Events(told)
}

/// Tells the page everything new, until it leaves, or has to be loaded anew.
async fn follow(console: &Console, wanted: &Wanted, tell: &Sender<Bytes>) -> Option<()> {
    let began = console.shown();
    let (mut seen, mut state, mut ticks) = (0, String::new(), 0u32);
    let mut is_gone = false;
    let mut tick = interval(LOOKS_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = tell.closed() => return None,
        }
        let shown = match (console.shown(), &began) {
            (Some(now), Some(then)) if now.form_token == then.form_token => now,
            (Some(_), _) => return event(tell, "reload", "").await,
            (None, _) if is_gone => continue,
            (None, _) => {
                is_gone = true;
                event(tell, "gone", "").await?;
                continue;
            }
        };
        if let Some(new) = news(console, wanted, &mut seen) {
            event(tell, "rows", &new.into_string()).await?;
        }
        if ticks % STATE_EVERY == 0 {
            let answers = Answers::of(&shown).await;
            let spent = answers.spent();
            let now = {
                let mut feed = console.feed.lock();
                spent.into_iter().for_each(|spent| feed.day.spend(spent));
                pages::state(&shown, &answers, &feed).into_string()
            };
            if now != state {
                event(tell, "state", &now).await?;
                state = now;
            }
        }
        ticks = ticks.wrapping_add(1);
    }
}

/// Returns the requests that are new to a page.
fn news(console: &Console, wanted: &Wanted, seen: &mut u64) -> Option<Markup> {
    let feed = console.feed.lock();
    let since = std::mem::replace(seen, feed.changes);
    let mut new = feed.latest(wanted, since).peekable();
    new.peek()?;
    Some(rows(new))
}

async fn event(tell: &Sender<Bytes>, name: &str, content: &str) -> Option<()> {
    let content = content.replace('\n', "\ndata: ");
    let event = format!("event: {name}\ndata: {content}\n\n");
    tell.send(event.into()).await.ok()
}

const LOOKS_EVERY: Duration = Duration::from_millis(200);
/// In which of these moments the gateway is asked how it is.
const STATE_EVERY: u32 = 5;
