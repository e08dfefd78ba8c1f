//! The revocations that a running gateway applies: it follows the file that all gateways of this
//! user share, and stores there what operators revoke and what it learns about it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use zeroize::Zeroizing;

use crate::Failure;
use gateway_config::Config;
use gateway_control::RevocationHits;
use gateway_credential::login::{LoginPlace, TokenKind, file};
use gateway_credential::{ReferenceMalformed, RevokedSecrets, SecretRef, preset, variable_name};
use gateway_files::{self as files, BadFile};
use gateway_names::SecretLabel;
use gateway_server::SharedState;
use gateway_state::{FingerprintKey, KnownOfSecret, RevokedFile, RevokedSecret, SharedRevocation};
use gateway_token::PrefixId;

/// The revocations for every gateway of this user.
#[derive(Default)]
pub struct KeptRevocations {
    file: Option<RevokedFile>,
    held: Mutex<HeldRevocations>,
    /// How many connections were severed before their revocation was reported.
    untold: AtomicUsize,
}

/// A revocation that the fleet does not have yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Untold {
    /// Of a secret.
    Secret(RevokedSecret),
    /// Of a token.
    Token(PrefixId),
}

/// The revocations in force. Locked while the file is read or changed and then applied, so that the
/// latest read is the one in force.
#[derive(Default)]
struct HeldRevocations {
    /// Revocations by this gateway that could not be stored.
    unkept: BTreeSet<SecretLabel>,
    /// The rows whose places this process has read.
    looked_at: Vec<RevokedSecret>,
    /// Those of the fleet, which hold though the file lacks them: `restore` that did not reach the
    /// fleet has changed the file alone.
    shared: Vec<RevokedSecret>,
}

impl KeptRevocations {
    /// Uses the revocations of a file.
    pub fn kept_in(path: Option<PathBuf>) -> Self {
        Self {
            file: path.map(RevokedFile::at),
            ..Self::default()
        }
    }

    /// Sets a file of an older form aside, and applies the stored revocations.
    ///
    /// # Errors
    /// As [`KeptRevocations::obey`] and [`KeptRevocations::refuse_own`].
    pub fn begin(&self, shared: &SharedState, config: &Config) -> Result<(), Failure> {
        if let Some(file) = &self.file
            && let Some(told) = put_aside(file)?
        {
            tracing::warn!("{told}");
        }
        self.refuse_own(config)?;
        self.obey(shared)
    }

    /// Returns the gateway's own uses of revoked secrets under this configuration, each with the
    /// reference of the secret.
    ///
    /// # Errors
    /// Returns a [`Failure`] if revocations cannot be read.
    pub fn own_uses(&self, config: &Config) -> Result<Vec<(String, String)>, Failure> {
        let Some(file) = &self.file else {
            return Ok(Vec::new());
        };
        let unusable = |unfit| unusable(file, &unfit);
        let rows = file.read().map_err(unusable)?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let key = Some(file.key().map_err(unusable)?);
        let revoked = RevokedSecrets { rows, key };
        let own = config.own_references();
        let own = own.filter(|(_, from)| revoked.covers(from));
        let shown = |(does, from): (&str, &SecretRef)| (does.to_owned(), from.to_string());
        Ok(own.map(shown).collect())
    }

    /// Refuses a configuration by which the gateway itself would use a revoked secret.
    ///
    /// # Errors
    /// Returns a [`Failure`] that names the secret, or as [`KeptRevocations::own_uses`].
    pub fn refuse_own(&self, config: &Config) -> Result<(), Failure> {
        let Some((does, from)) = self.own_uses(config)?.pop() else {
            return Ok(());
        };
        let what = format!("`{from}` is revoked, and the gateway itself {does} with it");
        let next =
            format!("take it out of the configuration, or lend it again: `gateway restore {from}`");
        Err(Failure::new(what).next(next))
    }

    /// Applies the current revocations, and undoes those that were taken back.
    ///
    /// # Errors
    /// Returns a [`Failure`] if they cannot be read. The known ones then stay in force.
    pub fn obey(&self, shared: &SharedState) -> Result<(), Failure> {
        let severed = self.obey_with(&mut self.held.lock(), shared)?;
        self.untold.fetch_add(severed, Ordering::Relaxed);
        Ok(())
    }

    fn obey_with(
        &self,
        held: &mut HeldRevocations,
        shared: &SharedState,
    ) -> Result<usize, Failure> {
        let unkept = held.unkept.iter().map(|label| {
            let mut row = RevokedSecret::by(label.clone());
            row.known.places = meant(label.as_str());
            row
        });
        let mut rows: Vec<_> = unkept.collect();
        let Some(file) = &self.file else {
            return Ok(shared.obey(RevokedSecrets { rows, key: None }));
        };
        let unusable = |unfit| unusable(file, &unfit);
        rows.extend(file.read().map_err(unusable)?);
        let lacks = |one: &&RevokedSecret| rows.iter().all(|row| row.label != one.label);
        let missing: Vec<_> = held.shared.iter().filter(lacks).cloned().collect();
        rows.extend(missing);
        shared.revoke_tokens(&file.tokens().map_err(unusable)?);
        if rows.is_empty() {
            return Ok(shared.obey(RevokedSecrets::default()));
        }
        let key = file.key().map_err(unusable)?;
        let is_new = held.looked_at != rows;
        let mut severed = 0;
        // Facts that are learned of one row may hit more of another.
        for _ in 0..ROUNDS {
            severed += shared.obey(RevokedSecrets {
                rows: rows.clone(),
                key: Some(key.clone()),
            });
            let mut is_more = false;
            let learned = shared.current().credentials.learned();
            for (row, (label, mut known)) in rows.iter_mut().zip(learned) {
                if is_new {
                    known.values.extend(at_hand(&row.known.places, &key));
                }
                let before = row.known.clone();
                row.known.add(&known);
                if row.known != before {
                    is_more = true;
                    if let Err(unfit) = file.revoke(&label, &known, true) {
                        tracing::warn!("{}", unusable(unfit));
                    }
                }
            }
            if !is_more {
                break;
            }
        }
        held.looked_at = rows;
        Ok(severed)
    }

    /// Stores that a secret is revoked, and applies all revocations.
    ///
    /// # Errors
    /// Returns a [`Failure`] if it cannot be stored. The secret is revoked here all the same.
    pub fn keep(
        &self,
        label: &SecretLabel,
        shared: &SharedState,
    ) -> Result<RevocationHits, Failure> {
        let mut held = self.held.lock();
        let kept = match &self.file {
            Some(file) => revoke_in(file, label),
            None => Err(Failure::no_state_folder("there is no state to keep it in")),
        };
        if let Err(failure) = kept {
            held.unkept.insert(label.clone());
            return Err(failure);
        }
        held.unkept.remove(label);
        let severed = self.obey_with(&mut held, shared)?;
        Ok(RevocationHits {
            lent: shared.current().credentials.hits(label),
            own: Vec::new(),
            severed: severed + self.untold.swap(0, Ordering::Relaxed),
            fleet: Ok(Vec::new()),
        })
    }

    /// Undoes each revocation with this label, and applies the rest. Returns the labels of the
    /// undone ones.
    ///
    /// # Errors
    /// Returns a [`Failure`] if this cannot be stored. Nothing has changed then.
    pub fn restore(
        &self,
        label: &SecretLabel,
        shared: &SharedState,
    ) -> Result<Vec<SecretLabel>, Failure> {
        let mut held = self.held.lock();
        let mut restored = match &self.file {
            Some(file) => file
                .restore(label)
                .map_err(|unfit| unusable(file, &unfit))?,
            None => Vec::new(),
        };
        restored.extend(held.unkept.take(label));
        self.obey_with(&mut held, shared)?;
        Ok(restored)
    }

    /// Writes the revocations that all replicas share to the file. Returns those that the file has
    /// beside them.
    ///
    /// # Errors
    /// Returns a [`Failure`] if it cannot be written.
    pub fn mirror(
        &self,
        secrets: &[SharedRevocation],
        tokens: &[(String, u64)],
    ) -> Result<Vec<Untold>, Failure> {
        let mut held = self.held.lock();
        let in_force = secrets.iter().filter(|one| one.restored.is_none());
        held.shared = in_force.map(|one| one.secret.clone()).collect();
        let nowhere = || Failure::no_state_folder("there is no state to keep it in");
        let file = self.file.as_ref().ok_or_else(nowhere)?;
        let unusable = |unfit| unusable(file, &unfit);
        file.follow(secrets, tokens).map_err(unusable)?;
        let mut own = file.read().map_err(unusable)?;
        let is_shared = |one: &RevokedSecret| {
            let mut shared = secrets.iter();
            shared.any(|shared| shared.secret.label == one.label && shared.restored.is_none())
        };
        own.retain(|one| !is_shared(one));
        let mut own: Vec<Untold> = own.into_iter().map(Untold::Secret).collect();
        let known = |id: &PrefixId| tokens.iter().any(|(known, _)| *known == id.to_string());
        let all = file.tokens().map_err(unusable)?;
        own.extend(all.into_iter().filter(|id| !known(id)).map(Untold::Token));
        Ok(own)
    }

    /// Stores that a token is revoked. It is revoked here already.
    ///
    /// # Errors
    /// Returns a [`Failure`] if it cannot be stored.
    pub fn keep_token(&self, id: PrefixId) -> Result<(), Failure> {
        let nowhere = || Failure::no_state_folder("there is no state to keep it in");
        let file = self.file.as_ref().ok_or_else(nowhere)?;
        let kept = file.revoke_token(&id);
        kept.map_err(|unfit| unusable(file, &unfit))
    }
}

/// Revokes the secret with this label, using what can be known without a gateway: the places that
/// the label means, and their present values.
///
/// # Errors
/// Returns a [`Failure`] if this cannot be stored. Nothing has changed then.
pub fn revoke_in(file: &RevokedFile, label: &SecretLabel) -> Result<(), Failure> {
    let unusable = |unfit| unusable(file, &unfit);
    let places = meant(label.as_str());
    let known = KnownOfSecret {
        values: at_hand(&places, &file.key().map_err(unusable)?),
        places,
        ..KnownOfSecret::default()
    };
    file.revoke(label, &known, false).map_err(unusable)
}

/// Sets a file of an older form aside. Returns the message for a person.
///
/// # Errors
/// Returns a [`Failure`] if this fails.
pub fn put_aside(file: &RevokedFile) -> Result<Option<String>, Failure> {
    let aside = file.put_aside().map_err(|unfit| unusable(file, &unfit))?;
    Ok(aside.map(|aside| {
        format!(
            "what was revoked by an earlier version is set aside in {} and holds no more: revoke it \
             again",
            aside.display()
        )
    }))
}

/// Returns the places meant by a place, a variable, or the name of a known credential or login.
pub fn meant(label: &str) -> BTreeSet<String> {
    let mut places = BTreeSet::new();
    if let Some(login) = label.strip_prefix("login:") {
        // The tokens of a login end together.
        places.insert(format!(
            "login:{}",
            login.split('#').next().unwrap_or(login)
        ));
    } else if label.contains(':') {
        places.insert(label.to_owned());
    }
    if variable_name(label).is_ok() {
        places.insert(format!("env:{label}"));
    }
    let mut presets = preset::all().flat_map(|preset| &preset.credentials);
    if let Some(known) = presets.find(|known| known.name.as_str() == label) {
        let variables = known.variables.iter();
        places.extend(variables.map(|variable| format!("env:{variable}")));
    }
    if preset::login_named(label).is_some() {
        places.insert(format!("login:{label}"));
    }
    places
}

/// Returns the fingerprints of these places' values, if reading them costs nothing.
fn at_hand(places: &BTreeSet<String>, key: &FingerprintKey) -> BTreeSet<String> {
    let mut values = BTreeSet::new();
    for place in places {
        if let Some(login) = place.strip_prefix("login:") {
            values.extend(tokens_of(login, key));
        }
        let path = |path: &str| Ok::<_, ReferenceMalformed>(PathBuf::from(path));
        let from = SecretRef::parse(place, path).ok();
        values.extend(from.and_then(|from| from.fingerprint_now(key)));
    }
    values
}

/// Returns the fingerprints of the tokens in the login file of a known program.
fn tokens_of(login: &str, key: &FingerprintKey) -> Vec<String> {
    let home = files::home();
    let known = preset::login_named(login).zip(home);
    let found = known.and_then(|(known, home)| known.at_home(&home).ok());
    let own = found.into_iter().flatten();
    let mut own = own.filter(|one| one.name.as_str() == login);
    let Some(LoginPlace::File(of)) = own.next().map(|login| login.place) else {
        return Vec::new();
    };
    let text = std::fs::read(&of.path).ok().map(Zeroizing::new);
    let tokens = text.and_then(|text| file::read(&of, &text).ok().flatten());
    let texts = TokenKind::ALL
        .iter()
        .filter_map(|kind| tokens.as_ref()?.of(*kind));
    texts
        .filter(|text| !text.is_empty())
        .map(|text| key.of(text.as_bytes()))
        .collect()
}

/// How many times newly learned facts of revocations are applied before the next look.
const ROUNDS: usize = 4;

/// Returns the failure that the file of revocations cannot be used.
pub fn unusable(file: &RevokedFile, unfit: &BadFile) -> Failure {
    let path = file.path().display();
    let what = format!("what is revoked cannot be read or kept in {path}");
    Failure::of(what, unfit).next("mend that file or its folder: every gateway of yours reads it")
}
