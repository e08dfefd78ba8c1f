//! The user's own SSH agent outside, which has the keys.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::key::PublicKey;
use gateway_wire::ssh_agent::{Answer, MOST, Request, SignRequest};

gateway_names::words! {
    /// Why the agent did not sign.
    pub enum AgentFailure {
        /// There is none.
        Absent = "there is no agent: `SSH_AUTH_SOCK` is not set outside",
        /// Nothing answers at its socket, not in time, not as an agent, or it is another user's.
        Gone = "the agent is gone: none of yours answers at `SSH_AUTH_SOCK` outside",
        /// It does not list the key.
        Lacks = "the agent lacks the key, or is locked: `ssh-add FILE` or `ssh-add -X` outside",
        /// It has the key and refuses.
        Refused = "the agent refused: its question was not answered with yes",
    }
}

/// The agent at a socket; without one, nothing is signed.
#[derive(Debug, Clone)]
pub struct Agent(Option<PathBuf>);

impl Agent {
    /// Returns the agent at this path.
    pub fn at(path: Option<PathBuf>) -> Self {
        Self(path.filter(|path| path.is_absolute()))
    }

    /// Has the agent sign data with a key. It may ask a person first.
    pub(crate) async fn sign(
        &self,
        key: &PublicKey,
        (data, flags): (&[u8], u32),
    ) -> Result<Vec<u8>, AgentFailure> {
        let request = SignRequest {
            key: key.blob(),
            data,
            flags,
        };
        let answer = self.ask(&Request::Sign(request), SIGNS_WITHIN).await?;
        match Answer::read(&answer) {
            Ok(Answer::Signature(signature)) => Ok(signature.to_vec()),
            Ok(Answer::Failure) => Err(self.has(key).await.err().unwrap_or(AgentFailure::Refused)),
            _ => Err(AgentFailure::Gone),
        }
    }

    /// Checks that the agent lists the key.
    ///
    /// # Errors
    /// [`AgentFailure`]
    pub async fn has(&self, key: &PublicKey) -> Result<(), AgentFailure> {
        let answer = self.ask(&Request::Identities, LISTS_WITHIN).await?;
        match Answer::read(&answer) {
            Ok(Answer::Identities(keys)) if keys.contains(&key.blob()) => Ok(()),
            Ok(Answer::Identities(_) | Answer::Failure) => Err(AgentFailure::Lacks),
            _ => Err(AgentFailure::Gone),
        }
    }

    async fn ask(&self, request: &Request<'_>, within: Duration) -> Result<Vec<u8>, AgentFailure> {
        let path = self.0.as_ref().ok_or(AgentFailure::Absent)?;
        let exchange = async {
            let mut stream = UnixStream::connect(path).await?;
            if stream.peer_cred()?.uid() != rustix::process::geteuid().as_raw() {
                return Ok(None);
            }
            stream.write_all(&request.write()).await?;
            receive(&mut stream).await
        };
        let answer = timeout(within, exchange)
            .await
            .ok()
            .and_then(io::Result::ok);
        answer.flatten().ok_or(AgentFailure::Gone)
    }
}

/// Receives a message, without its length; `None` at the end of the stream.
pub(crate) async fn receive(stream: &mut UnixStream) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read.map(drop)?,
    }
    let length = u32::from_be_bytes(length) as usize;
    if !(1..=MOST).contains(&length) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    Ok(Some(message))
}

/// A person may have to answer, or touch a key.
const SIGNS_WITHIN: Duration = Duration::from_secs(300);
const LISTS_WITHIN: Duration = Duration::from_secs(2);
