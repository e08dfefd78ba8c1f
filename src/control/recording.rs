//! Records operators' acts, and runs other work that may wait for the disk of the audit log: off
//! the thread that serves all calls, and with a bound on the wait.

use std::time::Duration;

use gateway_audit::{self as audit, Act, AuditDecision, Log};
use gateway_grant::ControlRefusal;
use gateway_names::SessionId;
use gateway_policy::Operation;
use gateway_server::chain;
use http::StatusCode;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::operations::Operations;
use super::server::Control;

/// An operator's act, as it is recorded.
#[derive(Clone)]
pub(super) struct OperatorAct {
    operation: Operation,
    operator: String,
    session: Option<SessionId>,
    subject: String,
    decision: AuditDecision,
}

impl OperatorAct {
    /// An act that may be done.
    pub(super) fn new(
        operator: impl ToString,
        operation: Operation,
        session: Option<&SessionId>,
        subject: &str,
    ) -> Self {
        Self {
            operation,
            operator: operator.to_string(),
            session: session.cloned(),
            subject: subject.to_owned(),
            decision: AuditDecision::Allow,
        }
    }

    /// Returns the act as a refused one.
    pub(super) fn refused(self) -> Self {
        let decision = AuditDecision::Deny;
        Self { decision, ..self }
    }

    fn write(&self, log: &Log, failed: bool) -> Result<(), audit::Error> {
        log.act(Act {
            name: self.operation.as_str(),
            operator: &self.operator,
            session: self.session.as_ref(),
            subject: &self.subject,
            decision: self.decision,
            failed,
        })
    }
}

impl<O: Operations> Control<O> {
    /// Records an act. Call it before the act is done.
    ///
    /// # Errors
    /// Returns an error if the act cannot be recorded: then it may not be done. If its record is
    /// written later after all, so is a record that it was not done.
    pub(super) async fn record(&self, act: &OperatorAct) -> Result<(), ControlRefusal> {
        let (log, act) = (self.shared.log.clone(), act.clone());
        let (tell, mut told) = oneshot::channel();
        let asked = self.beside(move || {
            if tell.send(act.write(&log, false)).is_err() {
                tell_failed(&act, &log);
            }
        });
        let asked = asked.await;
        told.close();
        // The result may have come after the wait ended.
        match told.try_recv() {
            Ok(written) => written.map_err(|error| unrecorded().because(chain(&error))),
            Err(_) => asked.and_then(|()| Err(unrecorded())),
        }
    }

    /// Records an act that is already done, or is refused.
    ///
    /// # Errors
    /// Returns an error if it is not recorded in time.
    pub(super) async fn note(&self, act: OperatorAct) -> Result<(), ControlRefusal> {
        let log = self.shared.log.clone();
        let written = self.beside(move || act.write(&log, false)).await?;
        written.map_err(|error| unrecorded().because(chain(&error)))
    }

    /// Returns the outcome of a recorded act. A failure is recorded too.
    pub(super) async fn followed<T>(
        &self,
        act: &OperatorAct,
        done: Result<T, ControlRefusal>,
    ) -> Result<T, ControlRefusal> {
        if done.is_err() {
            let (log, act) = (self.shared.log.clone(), act.clone());
            // The response says why it was not done, whether or not that can be recorded.
            let _ = self.beside(move || tell_failed(&act, &log)).await;
        }
        done
    }

    /// Runs work that may wait for the disk of the log.
    ///
    /// # Errors
    /// Returns an error if it takes too long. It may still run to its end.
    pub(super) async fn beside<T: Send + 'static>(
        &self,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ControlRefusal> {
        let places = self.beside.clone();
        let running = async move {
            let place = places.acquire_owned().await.ok()?;
            let running = spawn_blocking(move || {
                let _place = place;
                run()
            });
            running.await.ok()
        };
        let run = timeout(WITHIN, running).await;
        run.ok().flatten().ok_or_else(|| {
            let what = "the audit log does not answer";
            ControlRefusal::new(StatusCode::SERVICE_UNAVAILABLE, what).next(SEE)
        })
    }
}

fn tell_failed(act: &OperatorAct, log: &Log) {
    if let Err(error) = act.write(log, true) {
        tracing::warn!(%error, "that an act failed cannot be recorded");
    }
}

fn unrecorded() -> ControlRefusal {
    let what = "the act cannot be recorded";
    ControlRefusal::new(StatusCode::SERVICE_UNAVAILABLE, what).next(SEE)
}

const SEE: &str = "see the disk of the audit log";
/// How long a call waits for the log.
const WITHIN: Duration = Duration::from_secs(5);
