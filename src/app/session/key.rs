//! Finds the key that seals the state, or creates one at the first start.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::store_clients;
use crate::{Context as _, Failure, note};
use gateway_config::Config;
use gateway_config::state::KEY_IN_RING;
use gateway_credential::{DEFAULT_SERVICE, SecretRef, Stores, Unavailable, ring};
use gateway_names::CredentialName;
use gateway_server::chain;
use gateway_state::{
    KeyMark, LoginRows, PostgresServer, PostgresState, SealingKey, SqliteState, StateError,
    StateFile,
};

/// The places that may hold the key.
pub struct KeyPlaces<'c> {
    config: &'c Config,
    /// The file for the key if there is no key ring.
    file: SecretRef,
    ring: SecretRef,
}

/// Why there is no key.
pub enum KeyError {
    /// The store is in use, and its key is not available.
    Lost(Failure),
    /// The place of the key, or the store, is faulty.
    Unusable(Failure),
}

impl From<Failure> for KeyError {
    fn from(failure: Failure) -> Self {
        Self::Unusable(failure)
    }
}

/// A key, and the word for its place in the store's mark.
type PlacedKey = (SealingKey, &'static str);

impl<'c> KeyPlaces<'c> {
    /// Returns the places of a configuration whose state is in `folder`.
    pub fn new(config: &'c Config, folder: &Path) -> Self {
        Self {
            config,
            file: SecretRef::file(folder.join("key")),
            ring: SecretRef::keyring(DEFAULT_SERVICE, KEY_IN_RING),
        }
    }

    /// Opens a store with its key. A new store gets one. If the key is lost, `forgets` says whether
    /// to begin anew with another key, without any earlier session.
    ///
    /// # Errors
    /// Returns [`KeyError`] if the key of a store in use is unavailable, or is another key.
    pub async fn unlock(
        &self,
        store: StateFile,
        forgets: bool,
    ) -> Result<(SqliteState, Arc<SealingKey>), KeyError> {
        // Locked, or two processes would create different keys.
        let _alone = self.lock()?;
        let unreadable = |error| Failure::of("the state cannot be read", &error);
        if let Some(mark) = store.key_mark().await.map_err(unreadable)? {
            match self.known(&mark).await {
                Err(_) if forgets => {
                    store.forget().await.map_err(unreadable)?;
                    note(FORGOTTEN);
                }
                known => {
                    let key = Arc::new(known.map_err(KeyError::Lost)?);
                    return Ok((store.unlock(key.clone(), &mark), key));
                }
            }
        }
        let (key, source) = self.first().await?;
        let mark = key.mark(source).context(UNMADE)?;
        let key = Arc::new(key);
        let set = store.set_key_mark(mark.clone()).await;
        set.map_err(unreadable)?;
        Ok((store.unlock(key.clone(), &mark), key))
    }

    /// Returns the place of the key of a fleet, which the configuration names.
    pub fn of_fleet(config: &'c Config) -> Self {
        Self::new(config, Path::new("/"))
    }

    /// Opens the store of a fleet with its key. A new store gets the configured one.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the key is unavailable, or is another one.
    pub async fn unlock_server(
        &self,
        server: PostgresServer,
    ) -> Result<(Arc<PostgresState>, Arc<SealingKey>), Failure> {
        let unreadable = |error| Failure::of("the state cannot be read", &error);
        let (key, source) = self.first().await?;
        if server.key_mark().await.map_err(unreadable)?.is_none() {
            // Another replica may be faster, with the same key.
            let mark = key.mark(source).context(UNMADE)?;
            match server.set_key_mark(&mark, &key).await {
                Ok(()) => note("gateway: a new fleet begins: the database had none"),
                Err(StateError::Refused(_)) => {}
                Err(error) => return Err(unreadable(error)),
            }
        }
        let mark = server.key_mark().await.map_err(unreadable)?;
        let mark = mark.filter(|mark| key.made(mark)).ok_or_else(|| {
            Failure::new("the state of the fleet cannot be opened")
                .because("it was sealed with another key than `key` of [state] names")
                .next("give every replica the same key")
        })?;
        let key = Arc::new(key);
        Ok((server.unlock(key.clone(), &mark), key))
    }

    /// Returns the key of the rows of logins. The first row gets one.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the key of existing rows is unavailable, or if no key can be
    /// stored.
    pub async fn of_logins(&self, rows: &LoginRows) -> Result<SealingKey, Failure> {
        let unusable = |error: &StateError| Failure::of(UNMADE, error);
        let made = gateway_files::private_folder(rows.folder());
        made.map_err(|error| unusable(&error.into()))?;
        let _alone = self.lock()?;
        if let Some(mark) = rows.key_mark().map_err(|error| unusable(&error))? {
            match self.known(&mark).await {
                // There are no rows, so the key's loss costs nothing.
                Err(_) if rows.names().is_ok_and(|names| names.is_empty()) => {}
                known => {
                    return known.map_err(|lost| {
                        let failure = Failure::new("the logins that are kept cannot be opened");
                        let next = "give the key back, or `gateway login forget` each";
                        failure.because(lost.why.unwrap_or_default()).next(next)
                    });
                }
            }
        }
        let (key, source) = self.first().await?;
        let mark = key.mark(source);
        let mark = mark.context(UNMADE)?;
        let set = rows.set_key_mark(&mark);
        set.map_err(|error| unusable(&error))?;
        Ok(key)
    }

    /// Returns the key with which a store's mark was made.
    async fn known(&self, mark: &KeyMark) -> Result<SealingKey, Failure> {
        let configured = self.config.state.key.as_ref();
        let reference = match (configured, mark.source.as_str()) {
            (Some(reference), _) => reference,
            (None, IN_RING) => &self.ring,
            (None, IN_FILE) => &self.file,
            (None, _) => {
                return Err(lost(
                    "it was sealed with a key of the configuration, and `key` of [state] is not set",
                ));
            }
        };
        match self.read(reference).await {
            Ok(Some(key)) if key.made(mark) => Ok(key),
            Ok(Some(_)) => Err(lost(&format!("`{reference}` holds another key"))),
            Ok(None) => Err(no_key(reference)),
            Err(error) => Err(lost(&chain(&error))),
        }
    }

    /// Returns the key of a new store: the configured one, the one of other stores, or a new one.
    async fn first(&self) -> Result<PlacedKey, Failure> {
        if let Some(reference) = &self.config.state.key {
            let read = self.read(reference).await;
            let read = read.context(UNMADE)?;
            return Ok((read.ok_or_else(|| no_key(reference))?, "configured"));
        }
        let is_in_file = self.file.path().is_some_and(Path::exists);
        let (reference, source) = if is_in_file {
            (&self.file, IN_FILE)
        } else {
            match in_ring() {
                Ok(()) => (&self.ring, IN_RING),
                Err(why) => {
                    self.set_in_file(&why)?;
                    (&self.file, IN_FILE)
                }
            }
        };
        let read = self.read(reference).await;
        let read = read.context(UNMADE)?;
        Ok((read.ok_or_else(|| no_key(reference))?, source))
    }

    /// Creates a key in a file, and reports why it is not in the key ring.
    fn set_in_file(&self, why: &str) -> Result<(), Failure> {
        let path = self.file.path().unwrap_or(Path::new("key"));
        let text = SealingKey::draw().context(UNMADE)?;
        let written = gateway_files::create_private(path, text.as_bytes());
        written.context(UNMADE)?;
        // This is reported once: the next start finds the file.
        note(format!(
            "gateway: sessions are sealed with a key in {} (mode 0600), not in a key ring: {why}",
            path.display()
        ));
        Ok(())
    }

    /// Reads the key of a reference; `None` if its value is not a key.
    async fn read(&self, reference: &SecretRef) -> Result<Option<SealingKey>, Unavailable> {
        let kept_in = self.config.stores.iter();
        let kept_in = kept_in.filter(|store| reference.store() == Some(&*store.name));
        let made = store_clients::stores(self.config, kept_in).unwrap_or_default();
        let stores = Stores::with_stores([reference], made);
        let secret = stores.source(reference).resolve(None).await?.secret;
        Ok(secret.sealing_key())
    }

    fn lock(&self) -> Result<Option<std::fs::File>, Failure> {
        let Some(file) = self.file.path() else {
            return Ok(None);
        };
        let lock = gateway_files::lock_file(&file.with_extension("lock"));
        let locked = lock.and_then(|lock| lock.lock().map(|()| Some(lock)));
        locked.context(UNMADE)
    }
}

/// Makes sure that the key ring has a key. Its client may block, so it runs on its own thread.
fn in_ring() -> Result<(), String> {
    let set = || {
        let names = ring::list().map_err(|error| error.to_string())?;
        if names.iter().any(|name| name == KEY_IN_RING) {
            return Ok(());
        }
        let text = SealingKey::draw().map_err(|error| error.to_string())?;
        let name = CredentialName::new(KEY_IN_RING).map_err(|error| error.to_string())?;
        let value = zeroize::Zeroizing::new(text.as_bytes().to_vec());
        ring::set(&name, value).map_err(|error| error.to_string())
    };
    let (tell, told) = std::sync::mpsc::channel();
    // A locked ring asks its user, who may be absent. Then the thread's result is dropped.
    std::thread::spawn(move || drop(tell.send(set())));
    let answer = told.recv_timeout(DEADLINE);
    answer.unwrap_or_else(|_| Err(String::from("it does not answer")))
}

fn lost(why: &str) -> Failure {
    Failure::new("the sessions that are kept cannot be opened")
        .because(why)
        .next("give the key back, or start with `--fresh`: workloads then need their new phantoms and CA")
}

fn no_key(reference: &SecretRef) -> Failure {
    Failure::usage(format!(
        "`{reference}` holds no key that can seal the state"
    ))
    .because("a key is 32 random bytes in base64")
    .next("make one: `openssl rand -base64 32`")
}

const FORGOTTEN: &str = "gateway: the key of the sessions is lost, so all of them begin anew, also \
                         those that were ended or paused";
const UNMADE: &str = "there is no key to seal the state with";
const IN_RING: &str = "keyring";
const IN_FILE: &str = "file";
const DEADLINE: Duration = Duration::from_secs(30);
