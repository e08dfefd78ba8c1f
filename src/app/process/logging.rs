//! Writes the program's internal events to standard error, filtered by `RUST_LOG`.
//!
//! They help operators to find a fault. The audit log records requests, decisions and responses.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, format, layer};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::terminal::standard_error::StandardError;

/// Starts to write events to standard error.
///
/// `unless_asked` is the level of the gateway's own events if `RUST_LOG` is unset or invalid. For a
/// person who reads them next to a command's output and did not set it, they look like the
/// program's other lines. A second call changes nothing.
pub fn start(unless_asked: tracing::Level, is_for_a_person: bool) {
    let asked = std::env::var("RUST_LOG").ok();
    let asked = asked.and_then(|asked| asked.parse::<Targets>().ok());
    let is_for_a_person = is_for_a_person && asked.is_none();
    let filter = asked.unwrap_or_else(|| Targets::new().with_target("gateway", unless_asked));
    let events = layer()
        .with_ansi(false)
        .with_writer(|| StandardError)
        .event_format(Line { is_for_a_person });
    // Fails only if logging has already started. The first filter then stays.
    let _ = tracing_subscriber::registry()
        .with(filter)
        .with(events)
        .try_init();
}

/// Formats an event as a line. For a person, it is what happened, then the event's values.
struct Line {
    is_for_a_person: bool,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if !self.is_for_a_person {
            return format()
                .with_ansi(false)
                .format_event(context, writer, event);
        }
        writer.write_str("gateway: ")?;
        context
            .field_format()
            .format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}
