//! The agent of a sandbox that signs commits: opened by the first process, where the launcher can
//! mount its socket, and served by the gateway process.

use std::fmt::Display;
use std::io;
use std::os::unix::fs::chown;
use std::sync::{Arc, OnceLock};

use gateway_commits::{Door, Signer};
use gateway_config::state;
use gateway_files::{SocketFile, private_folder};
use gateway_launch::{KeptFolder, LaunchPlan};
use gateway_server::SharedState;
use gateway_session::Session;
use parking_lot::Mutex;

use crate::Failure;
use crate::settings::commit_key::{SshSigning, own_agent};

/// Where the socket is in a sandbox.
pub const INSIDE: &str = "/run/ssh-agent";

/// The agent of a sandbox, or none. The file of its socket goes with it.
#[derive(Default)]
pub struct CommitSigning {
    /// What signs, as long as its sandbox is not there yet.
    waiting: Mutex<Option<Signer>>,
    door: OnceLock<Arc<Door>>,
    socket: Option<SocketFile>,
}

impl CommitSigning {
    /// Opens the socket, and has the launcher show it.
    ///
    /// # Errors
    /// Returns a [`Failure`] if there is no place for it.
    pub fn open(signing: &SshSigning, plan: &mut LaunchPlan) -> Result<Self, Failure> {
        let failed = |why: &dyn Display| {
            Failure::new("the agent that signs commits cannot be opened")
                .because(why.to_string())
                .next("run it without: `--no-sign`")
                .coded(gateway_launch::LAUNCHER_FAILED)
        };
        let folder = state::run_directory().ok_or_else(|| failed(&"there is no folder"))?;
        private_folder(&folder).map_err(|error| failed(&error))?;
        // Process numbers of two namespaces are alike.
        let name = getrandom::u64().map_err(|error| failed(&error))?;
        let path = folder.join(format!("exec-{name:x}.agent"));
        let socket = SocketFile::bind(&path, 0o600).map_err(|error| failed(&error))?;
        // The command may be another user's.
        chown(&path, Some(plan.user().uid), None).map_err(|error| failed(&error))?;
        plan.mounts.kept.push(KeptFolder {
            name: INSIDE.into(),
            folder: path,
        });
        let signer = Signer {
            key: signing.key.clone(),
            repository: signing.repository.clone(),
            agent: own_agent(),
        };
        Ok(Self {
            waiting: Mutex::new(Some(signer)),
            door: OnceLock::new(),
            socket: Some(socket),
        })
    }

    /// Returns the fingerprint of the key that waits for its sandbox.
    pub fn fingerprint(&self) -> Option<String> {
        let waiting = self.waiting.lock();
        Some(waiting.as_ref()?.key.fingerprint().to_owned())
    }

    /// Serves the session.
    ///
    /// # Errors
    /// The error of the system, if the socket cannot be waited on.
    pub fn serve(&self, shared: &Arc<SharedState>, session: &Arc<Session>) -> io::Result<()> {
        let (Some(signer), Some(socket)) = (self.waiting.lock().take(), &self.socket) else {
            return Ok(());
        };
        let listener = tokio::net::UnixListener::from_std(socket.listener()?)?;
        let (shared, log) = (shared.clone(), shared.log.clone());
        let policies = move || shared.current().policies.current();
        let door = Door::new(signer, (session.clone(), log), policies);
        let door = self.door.get_or_init(|| Arc::new(door)).clone();
        tokio::spawn(door.serve(listener));
        Ok(())
    }

    /// Returns how often signatures were refused, by what failed.
    pub fn refused(&self) -> Vec<(&'static str, u64)> {
        let refused = self.door.get().map(|door| door.refused());
        refused.into_iter().flatten().collect()
    }
}
