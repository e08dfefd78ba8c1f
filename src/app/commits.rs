//! The agent of a sandbox that signs commits: opened by the first process, where the launcher can
//! mount its socket, and served by the gateway process.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::chown;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use gateway_commits::{Door, PublicKey, Signer};
use gateway_config::state;
use gateway_files::{SocketFile, private_folder};
use gateway_launch::{KeptFolder, LaunchPlan, exact, sealed};
use gateway_server::SharedState;
use gateway_session::Session;
use parking_lot::Mutex;
use rustix::io::FdFlags;
use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::settings::commit_key::{SshSigning, own_agent};

/// Where the socket is in a sandbox.
pub const INSIDE: &str = "/run/ssh-agent";

/// The open socket of an agent, in the first process. Its file goes with it.
pub struct OpenAgent {
    socket: SocketFile,
    agent: InheritedAgent,
}

/// The agent, as the gateway process inherits it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InheritedAgent {
    key: String,
    repository: String,
    #[serde(with = "exact::one")]
    path: PathBuf,
    /// The number of the listening socket.
    listener: i32,
}

impl OpenAgent {
    /// Opens the socket, and has the launcher show it.
    ///
    /// # Errors
    /// Returns a [`Failure`] if there is no place for it.
    pub fn open(signing: &SshSigning, plan: &mut LaunchPlan) -> Result<Self, Failure> {
        let failed = |why: String| {
            Failure::new("the agent that signs commits cannot be opened")
                .because(why)
                .next("run it without: `--no-sign`")
                .coded(gateway_launch::LAUNCHER_FAILED)
        };
        let folder = state::run_directory();
        let folder = folder.ok_or_else(|| failed("there is no folder for its socket".into()))?;
        private_folder(&folder).map_err(|error| failed(error.to_string()))?;
        let path = folder.join(format!("exec-{}.agent", std::process::id()));
        let socket = SocketFile::bind(&path, 0o600).map_err(|error| failed(error.to_string()))?;
        // The command may be another user's.
        chown(&path, Some(plan.user().uid), None).map_err(|error| failed(error.to_string()))?;
        plan.mounts.kept.push(KeptFolder {
            name: INSIDE.into(),
            folder: path.clone(),
        });
        let agent = InheritedAgent {
            key: signing.key.to_string(),
            repository: signing.repository.clone(),
            path,
            listener: -1,
        };
        Ok(Self { socket, agent })
    }

    /// Returns what the gateway process inherits, and the copy of the socket that it does.
    ///
    /// # Errors
    /// The error of the system, if there is no descriptor left.
    pub fn inherited(&self) -> io::Result<(InheritedAgent, OwnedFd)> {
        let copy = OwnedFd::from(self.socket.listener()?);
        rustix::io::fcntl_setfd(&copy, FdFlags::empty())?;
        let agent = InheritedAgent {
            listener: copy.as_raw_fd(),
            ..self.agent.clone()
        };
        Ok((agent, copy))
    }
}

/// The agent in the gateway process.
#[derive(Default)]
pub struct CommitSigning {
    /// The agent, as long as its sandbox is not there yet.
    waiting: Mutex<Option<(Signer, UnixListener)>>,
    door: OnceLock<Arc<Door>>,
    _file: Option<InheritedFile>,
}

/// The socket's file, which this process removes: the first process has become the launcher.
struct InheritedFile(PathBuf);

impl Drop for InheritedFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl CommitSigning {
    /// Takes over the agent that the first process opened.
    ///
    /// # Errors
    /// `InvalidInput` if this is no agent of a first process.
    pub fn inherit(agent: Option<InheritedAgent>) -> io::Result<Self> {
        let Some(agent) = agent else {
            return Ok(Self::default());
        };
        let file = InheritedFile(agent.path);
        let listener = sealed::adopt(agent.listener.to_string().as_ref())?;
        let key = PublicKey::parse(&agent.key);
        let signer = Signer {
            key: key.map_err(|fault| io::Error::new(io::ErrorKind::InvalidInput, fault))?,
            repository: agent.repository,
            agent: own_agent(),
        };
        Ok(Self {
            waiting: Mutex::new(Some((signer, listener.into()))),
            door: OnceLock::new(),
            _file: Some(file),
        })
    }

    /// Returns the fingerprint of the key that waits for its sandbox.
    pub fn fingerprint(&self) -> Option<String> {
        let waiting = self.waiting.lock();
        let (signer, _) = waiting.as_ref()?;
        Some(signer.key.fingerprint().to_owned())
    }

    /// Serves the session.
    ///
    /// # Errors
    /// The error of the system, if the socket cannot be waited on.
    pub fn serve(&self, shared: &Arc<SharedState>, session: &Arc<Session>) -> io::Result<()> {
        let Some((signer, listener)) = self.waiting.lock().take() else {
            return Ok(());
        };
        let (shared, log) = (shared.clone(), shared.log.clone());
        let policies = move || shared.current().policies.current();
        let door = Door::new(signer, (session.clone(), log), policies);
        let door = self.door.get_or_init(|| Arc::new(door)).clone();
        tokio::spawn(door.serve(tokio::net::UnixListener::from_std(listener)?));
        Ok(())
    }

    /// Returns how often signatures were refused, by what failed.
    pub fn refused(&self) -> Vec<(&'static str, u64)> {
        let refused = self.door.get().map(|door| door.refused());
        refused.into_iter().flatten().collect()
    }
}
