//! The workload's agent: it has one key, judges and records each signature, and has the user's own
//! agent make it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use gateway_audit::{Log, Signature};
use gateway_names::ReasonCode;
use gateway_policy::{Generation, Verdict};
use gateway_session::{Session, SessionStatus};
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::agent::{Agent, receive};
use super::key::{PublicKey, fingerprint};
use gateway_wire::ssh_agent::{Answer, Request, SignRequest, check_signed};

/// What signs for whom.
#[derive(Debug, Clone)]
pub struct Signer {
    /// The one key of the workload's agent.
    pub key: PublicKey,
    /// The repository, for policies.
    pub repository: String,
    /// The user's own agent.
    pub agent: Agent,
}

/// The agent of one session.
pub struct Door {
    signer: Signer,
    session: Arc<Session>,
    log: Log,
    policies: Box<dyn Fn() -> Arc<Generation> + Send + Sync>,
    /// How often signatures were refused, by what failed.
    refused: Mutex<BTreeMap<&'static str, u64>>,
    /// Held while the user's agent is asked.
    turn: tokio::sync::Mutex<()>,
}

gateway_names::concealed!(Door, signer);

/// Why a signature is refused.
struct Refused {
    reason: ReasonCode,
    /// What failed, in words of the gateway.
    cause: &'static str,
    verdict: Option<Verdict>,
}

fn refused<T>(reason: ReasonCode, cause: &'static str) -> Result<T, Refused> {
    Err(Refused {
        reason,
        cause,
        verdict: None,
    })
}

impl Door {
    /// Makes the agent of a session, whose signatures are judged by the policies in force.
    pub fn new(
        signer: Signer,
        (session, log): (Arc<Session>, Log),
        policies: impl Fn() -> Arc<Generation> + Send + Sync + 'static,
    ) -> Self {
        Self {
            signer,
            session,
            log,
            policies: Box::new(policies),
            refused: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Returns how often signatures were refused, by what failed.
    pub fn refused(&self) -> BTreeMap<&'static str, u64> {
        self.refused.lock().clone()
    }

    /// Serves the socket until the runtime ends.
    pub async fn serve(self: Arc<Self>, listener: UnixListener) {
        let free = Arc::new(Semaphore::new(MOST_CLIENTS));
        loop {
            // The others wait in the socket's queue.
            let Ok(place) = free.clone().acquire_owned().await else {
                return;
            };
            let Ok((stream, _)) = listener.accept().await else {
                // Without a free descriptor, the next one may close in a moment.
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            };
            let door = self.clone();
            tokio::spawn(async move {
                let _ = door.converse(stream).await;
                drop(place);
            });
        }
    }

    async fn converse(&self, mut stream: UnixStream) -> io::Result<()> {
        while let Some(message) = receive(&mut stream).await? {
            let answer = match Request::read(&message) {
                Ok(Request::Identities) => Answer::Identities(vec![self.signer.key.blob()]).write(),
                Ok(Request::Sign(request)) => match self.signature(&request).await {
                    Some(signature) => Answer::Signature(&signature).write(),
                    None => Answer::Failure.write(),
                },
                Ok(Request::Other) | Err(_) => Answer::Failure.write(),
            };
            stream.write_all(&answer).await?;
        }
        Ok(())
    }

    /// Judges the request, has it signed, and records what came of it. Without a record there is
    /// no signature.
    async fn signature(&self, request: &SignRequest<'_>) -> Option<Vec<u8>> {
        let (signature, verdict, refused, cause) = match self.sign(request).await {
            Ok((signature, verdict)) => (Some(signature), Some(verdict), None, ""),
            Err(Refused {
                reason,
                cause,
                verdict,
            }) => (None, verdict, Some(reason), cause),
        };
        if refused.is_some() {
            *self.refused.lock().entry(cause).or_default() += 1;
        }
        let policies = verdict.as_ref().map(Verdict::deciding);
        let record = Signature {
            session: self.session.id(),
            subject: &format!("{} {}", fingerprint(request.key), self.signer.repository),
            policies: policies.as_deref().unwrap_or_default(),
            generation: verdict.map(|verdict| verdict.generation),
            refused,
            cause,
        };
        let recorded = self.log.signature(record, &*self.session).await;
        let failed = |error| tracing::warn!(%error, "a signature is not recorded nor handed out");
        recorded.map_err(failed).ok().and(signature)
    }

    async fn sign(&self, request: &SignRequest<'_>) -> Result<(Vec<u8>, Verdict), Refused> {
        let SignRequest { key, data, flags } = *request;
        if let Err(fault) = check_signed(data) {
            return refused(ReasonCode::SignMalformed, fault.as_str());
        }
        if key != self.signer.key.blob() {
            return refused(ReasonCode::SignKey, "it is another key than git's own");
        }
        if !self.signer.key.signs_by(flags) {
            return refused(
                ReasonCode::SignMalformed,
                "the key does not sign by that hash",
            );
        }
        // A person answers one question after the other.
        let _turn = self.turn.lock().await;
        let verdict = self.judge()?;
        let signed = self
            .signer
            .agent
            .sign(&self.signer.key, (data, flags))
            .await;
        let signature = signed.map_err(|failure| Refused {
            reason: ReasonCode::SignAgent,
            cause: failure.as_str(),
            verdict: Some(verdict),
        })?;
        // A person may have taken minutes to answer the agent.
        Ok((signature, self.judge()?))
    }

    /// Judges by the policies in force, while the session lives.
    fn judge(&self) -> Result<Verdict, Refused> {
        if self.session.is_over() {
            return refused(ReasonCode::SessionEnded, "the session has ended");
        }
        if self.session.status() == SessionStatus::Paused {
            return refused(ReasonCode::SessionPaused, "the session is paused");
        }
        let (key, repository) = (self.signer.key.fingerprint(), &self.signer.repository);
        let verdict = (self.policies)().sign(&self.session, key, repository);
        // A label that is not given could not forbid what comes next.
        let is_bound = verdict
            .obligations
            .is_some()
            .then_some(ReasonCode::PolicyUnjudged);
        match verdict.outcome.reason().or(is_bound) {
            None => Ok(verdict),
            Some(reason) => Err(Refused {
                reason,
                cause: "policies do not allow `commit.sign` with the key",
                verdict: Some(verdict),
            }),
        }
    }
}

/// How many clients an agent answers at a time.
const MOST_CLIENTS: usize = 32;
