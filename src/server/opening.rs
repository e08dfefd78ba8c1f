//! Records refusals that precede any request: of tunnels, handshakes and names.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use gateway_audit::Trail;
use gateway_intercept::explicit::{Opening, OpeningRefused};
use gateway_intercept::prefixed::Prefixed;
use gateway_intercept::{CallerRefused, ClientStream, Entry, dns, explicit};
use gateway_message::{Authority, Origin, Scheme};
use gateway_names::{ExchangeId, ReasonCode, SessionId};
use gateway_wire::socks::Reply;
use http::Version;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, timeout_at};

use super::error_format::ErrorFormat;
use super::listener::{Arrival, Inbound, ListenerMode, SelectedSession};
use super::recent::RecentRefusal;
use super::refusal::Refusal;
use super::respond::shown;
use super::shared::SharedState;
use super::worker::Worker;

impl Worker {
    /// Records a refusal that precedes any exchange, and answers it in HTTP.
    pub(super) async fn answer_opening(
        &self,
        io: &mut Prefixed<ClientStream>,
        inbound: Inbound<'_>,
        to: Option<&Authority>,
        refusal: Refusal,
    ) -> io::Result<()> {
        let id = self.record_opening(inbound, Entry::Connect, to, refusal.reason());
        write_refusal(io, to, (id, refusal)).await
    }

    /// Records that a listener refuses a caller, once for each address and cause. Returns the id of
    /// that record.
    pub(super) fn record_caller(
        &self,
        from: Arrival<'_>,
        refused: CallerRefused,
        asked: Option<&Authority>,
    ) -> ExchangeId {
        // No session redacts a stranger's record, so a host with a phantom is left out.
        let has_phantom =
            |to: &Authority| self.shared.sessions.has_folded(to.host.as_str().as_bytes());
        let asked = asked.filter(|to| !has_phantom(to));
        let (entry, fresh) = (from.listener.mode.entry(), self.shared.ids.next());
        let callers = &self.shared.refused_callers;
        let (id, is_first) = callers.count((entry, from.client), &refused, (fresh, asked));
        let host = asked.map_or_else(String::new, Authority::shown);
        self.shared
            .refused
            .count_of(&host, refused.reason, id, false);
        if is_first {
            let mut trail = Trail::begin(&self.shared.log, id, entry.as_str());
            trail.caller(refused.user.as_ref(), None, &[]);
            trail.client(from.client);
            trail.method("CONNECT");
            if let Some(to) = asked {
                trail.authority(to.host.as_str(), to.port);
            }
            trail.refuse(refused.reason);
            if !refused.cause.is_empty() {
                trail.cause(refused.cause);
            }
        }
        id
    }

    /// Refuses a caller in the protocol that the client of a proxy speaks. Only the first refusal
    /// is recorded: such a caller has no share of the log.
    pub(super) async fn refuse_caller(
        &self,
        mut io: Prefixed<ClientStream>,
        from: Arrival<'_>,
        refused: CallerRefused,
        asked: Option<Result<Opening, OpeningRefused>>,
        deadline: Instant,
    ) {
        let reason = refused.reason;
        let id = self.record_caller(from, refused, explicit::asks_for(&io).as_ref());
        if !matches!(from.listener.mode, ListenerMode::Proxy) {
            return;
        }
        let asked = match asked {
            Some(asked) => Ok(asked),
            None => timeout_at(deadline, explicit::ask(&mut io)).await,
        };
        // The client may be gone.
        let _ = match asked {
            Ok(Ok(Opening::Socks(_))) => io.write_all(&Reply::NotAllowed.message()).await,
            Ok(Ok(_)) => write_refusal(&mut io, None, (id, Refusal::Caller(reason))).await,
            _ => Ok(()),
        };
    }

    pub(super) async fn refuse_opening(
        &self,
        mut io: Prefixed<ClientStream>,
        inbound: Inbound<'_>,
        refused: OpeningRefused,
    ) {
        match refused {
            OpeningRefused::Io(_) => {}
            OpeningRefused::Socks(why) => {
                self.record_opening(inbound, Entry::Socks, None, why.reason());
            }
            other => {
                // The client may be gone; the refusal is recorded either way.
                let _ = self
                    .answer_opening(&mut io, inbound, None, Refusal::Opening(other))
                    .await;
            }
        }
    }

    pub(super) fn record_opening(
        &self,
        inbound: Inbound<'_>,
        entry: Entry,
        to: Option<&Authority>,
        reason: ReasonCode,
    ) -> ExchangeId {
        let mut trail = Trail::begin(&self.shared.log, self.shared.ids.next(), entry.as_str());
        let SelectedSession {
            session, caller, ..
        } = inbound.selected;
        trail.session(session.id(), session.clone());
        trail.client(inbound.from.client);
        if let Some(caller) = caller {
            trail.caller(caller.user.as_ref(), caller.token_id(), &caller.groups);
        }
        // The connection is refused either way. Beyond the session's share of the log, the refusal
        // is counted but not recorded.
        let _ = trail.admit();
        trail.method("CONNECT");
        if let Some(to) = to {
            trail.authority(to.host.as_str(), to.port);
        }
        trail.refuse(reason);
        let to = to.map(of_tunnel);
        let counts = &self.shared.refused;
        counts.count(&shown(to.as_ref()), reason, trail.id());
        let refusal = RecentRefusal {
            id: trail.id(),
            time: SystemTime::now(),
            reason,
            to,
            request: None,
        };
        self.shared.recent.add(session.id(), refusal);
        // A trail that is dropped unanswered writes its record.
        trail.id()
    }
}

/// Answers what precedes any exchange, in HTTP.
pub(super) async fn write_refusal(
    io: &mut Prefixed<ClientStream>,
    to: Option<&Authority>,
    (id, refusal): (ExchangeId, Refusal),
) -> io::Result<()> {
    let name = to.map_or_else(String::new, |to| {
        format!("{}:{}", to.host.to_uri(), to.port)
    });
    let (status, fields, content) =
        refusal.answer(id, Version::HTTP_11, ErrorFormat::Gateway, &name);
    let (status, phrase) = (status.as_u16(), refusal.reason_phrase(&name));
    let mut message = format!("HTTP/1.1 {status} {phrase}\r\n").into_bytes();
    for (name, value) in &fields {
        message.extend_from_slice(
            &[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat(),
        );
    }
    message.extend_from_slice(b"\r\n");
    message.extend_from_slice(&content);
    io.write_all(&message).await
}

/// Returns the origin of a tunnel that was not read. It counts as TLS, as in its record.
fn of_tunnel(authority: &Authority) -> Origin {
    Origin {
        scheme: Scheme::Https,
        authority: authority.clone(),
    }
}

impl SharedState {
    /// Returns an observer of a session's DNS queries. It records each name that no policy reaches
    /// once, whether or not an address was given out.
    pub fn name_observer(
        self: &Arc<Self>,
        session: &SessionId,
    ) -> Box<dyn Fn(&dns::Answer) + Send + Sync> {
        let (shared, session) = (self.clone(), session.clone());
        let seen = Mutex::new(HashSet::new());
        Box::new(move |answer| {
            shared.metrics.name(answer.verdict);
            let Some(host) = answer.host.as_ref().filter(|_| {
                use dns::DnsVerdict::{NameRefused, Unlisted};
                matches!(answer.verdict, NameRefused | Unlisted)
            }) else {
                return;
            };
            let mut seen = seen.lock();
            // Only a limited number of names is recorded, so that a workload cannot flood the log.
            if seen.len() >= REFUSED_NAMES || !seen.insert(host.clone()) {
                return;
            }
            drop(seen);
            let mut trail = Trail::begin(&shared.log, shared.ids.next(), "dns");
            if let Some(known) = shared.sessions.get(&session) {
                trail.session(&session, known);
                let _ = trail.admit();
            }
            trail.authority(host.as_str(), 0);
            trail.refuse(ReasonCode::DnsName);
            shared
                .refused
                .count(host.as_str(), ReasonCode::DnsName, trail.id());
        })
    }
}

/// How many refused names are recorded per session.
const REFUSED_NAMES: usize = 4096;
