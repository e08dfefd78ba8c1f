//! Records what is no exchange: the acts of operators, and signatures of commits.

use super::error::Error;
use super::log::Log;
use super::record::Record;
use super::redact::Redact;
use super::texts::{listed, show};
use super::words::AuditDecision;
use gateway_names::{PolicyId, ReasonCode, SessionId};
use std::time::Instant;

/// An operator's act, or attempt, through the control socket.
#[derive(Clone, Copy, Debug)]
pub struct Act<'a> {
    /// The name of the act, such as `session.end`.
    pub name: &'static str,
    /// The operator, such as `uid:1000`.
    pub operator: &'a str,
    /// The session that the act concerned.
    pub session: Option<&'a SessionId>,
    /// What else the act concerned, such as a policy; never a secret, a phantom or content.
    pub subject: &'a str,
    /// Whether the operator was allowed to act.
    pub decision: AuditDecision,
    /// Whether the act was not done after all. It also has an earlier record, from before.
    pub failed: bool,
}

/// A signature that a session got, or was refused.
#[derive(Clone, Debug)]
pub struct Signature<'a> {
    /// The session.
    pub session: &'a SessionId,
    /// The key's fingerprint and the repository.
    pub subject: &'a str,
    /// The policies that decided.
    pub policies: &'a [PolicyId],
    /// Their generation, if they were asked.
    pub generation: Option<u64>,
    /// Why it was refused.
    pub refused: Option<ReasonCode>,
    /// What failed, in words of the gateway.
    pub cause: &'static str,
}

impl Log {
    /// Writes a record of a signature, charged to the session's `account`. Returns once it is as
    /// durable as an exchange's is before its answer.
    ///
    /// # Errors
    /// As [`Log::act`], and [`Error::OverRate`] or [`Error::OverShare`], of which the session's
    /// next `suppressed` event tells. The signature may not be handed out.
    pub async fn signature(&self, of: Signature<'_>, account: &dyn Redact) -> Result<(), Error> {
        if let Some(account) = account.account() {
            let admitted = self.admit(account, Instant::now());
            admitted.inspect_err(|_| account.suppress(1))?;
        }
        let mut subject = of.subject.into();
        show(&mut subject, MOST_SUBJECT, None);
        let (policies, policies_more) = listed(of.policies, PolicyId::as_str);
        let record = Record {
            name: Some("commit.sign".into()),
            session: Some(of.session.as_str().into()),
            subject: Some(subject),
            policies,
            policies_more,
            generation: of.generation,
            reason: of.refused.map(|reason| reason.as_str().into()),
            blame: of.refused.map(|reason| reason.blame().as_str().into()),
            cause: (!of.cause.is_empty()).then(|| of.cause.into()),
            ..Record::now("signature")
        };
        let queued = self.queue(&record, of.refused.is_some())?;
        let flushed = self.flushed(&queued);
        if let Some(account) = account.account() {
            self.charge(account, queued.bytes);
        }
        match &flushed.failed {
            Some(error) => Err(error.clone()),
            None => self.settle(flushed.first + queued.place).await,
        }
    }

    /// Writes a record of an operator's act. Call it before the act is done.
    ///
    /// Does not wait for the disk; the next sync includes the record.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Write`], [`Error::Unsynced`]: the record was not written.
    pub fn act(&self, act: Act<'_>) -> Result<(), Error> {
        let mut subject = act.subject.into();
        show(&mut subject, MOST_SUBJECT, None);
        let record = Record {
            name: Some(act.name.into()),
            operator: Some(act.operator.into()),
            session: act.session.map(|session| session.as_str().into()),
            subject: (!subject.is_empty()).then_some(subject),
            decision: Some(act.decision.as_str().into()),
            outcome: act.failed.then(|| "failed".into()),
            ..Record::now("act")
        };
        self.append(&record, false).map(drop)
    }
}

const MOST_SUBJECT: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Durability;

    #[test]
    fn an_act_is_a_record_of_the_chain_with_who_did_what_to_whom() {
        let (log, memory) = Log::memory(Durability::Batch).unwrap();
        let session = SessionId::new("agent-1").unwrap();
        log.act(Act {
            name: "session.end",
            operator: "uid:1000",
            session: Some(&session),
            subject: "",
            decision: AuditDecision::Allow,
            failed: false,
        })
        .unwrap();
        let act = memory.records().pop().unwrap();
        let told = (
            act.kind.as_ref(),
            act.name.as_deref(),
            act.operator.as_deref(),
        );
        assert_eq!(told, ("act", Some("session.end"), Some("uid:1000")));
        assert_eq!(act.session.as_deref(), Some("agent-1"));
        assert_eq!(
            (act.decision.as_deref(), act.subject),
            (Some("allow"), None)
        );
        assert_eq!(act.hash.len(), 64);
    }
}
