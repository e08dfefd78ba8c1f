//! What a running gateway knows of revocations: it obeys the file that all gateways of this user
//! share, and keeps there what operators revoke and what it knows of that.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use zeroize::Zeroizing;

use crate::app::Failure;
use crate::config::Config;
use crate::control::RevocationHits;
use crate::credential::login::{LoginPlace, TokenKind, file};
use crate::credential::{ReferenceMalformed, RevokedSecrets, SecretRef, preset, variable_name};
use crate::files::{self, Unfit};
use crate::gateway::SharedState;
use crate::names::SecretLabel;
use crate::state::{FingerprintKey, KnownOfSecret, RevokedFile, RevokedSecret};
use crate::token::PrefixId;

/// What is revoked for every gateway of this user.
#[derive(Default)]
pub(crate) struct KeptRevocations {
    file: Option<RevokedFile>,
    held: Mutex<HeldRevocations>,
    /// How many connections were severed before anybody told of the row that did it.
    untold: AtomicUsize,
}

/// What was in force last. Held while the file is read or changed and obeyed, so that what was read
/// last is in force.
#[derive(Default)]
struct HeldRevocations {
    /// What was revoked here and could not be kept.
    unkept: BTreeSet<SecretLabel>,
    /// The rows whose places were looked at in this process.
    looked_at: Vec<RevokedSecret>,
}

impl KeptRevocations {
    /// Those that a file keeps.
    pub(crate) fn kept_in(path: Option<PathBuf>) -> Self {
        Self {
            file: path.map(RevokedFile::at),
            ..Self::default()
        }
    }

    /// Puts a file of an older form aside, and obeys what is kept.
    ///
    /// # Errors
    /// As [`KeptRevocations::obey`] and [`KeptRevocations::refuse_own`].
    pub(crate) fn begin(&self, shared: &SharedState, config: &Config) -> Result<(), Failure> {
        if let Some(file) = &self.file
            && let Some(told) = put_aside(file)?
        {
            tracing::warn!("{told}");
        }
        self.refuse_own(config)?;
        self.obey(shared)
    }

    /// What a gateway of this configuration would do itself with what is revoked, and from where it
    /// reads that.
    ///
    /// # Errors
    /// Returns a [`Failure`] if what is revoked cannot be read.
    pub(crate) fn own_uses(&self, config: &Config) -> Result<Vec<(String, String)>, Failure> {
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

    /// Refuses a configuration by which the gateway itself would use what is revoked.
    ///
    /// # Errors
    /// Returns a [`Failure`] that names it, or as [`KeptRevocations::own_uses`].
    pub(crate) fn refuse_own(&self, config: &Config) -> Result<(), Failure> {
        let Some((does, from)) = self.own_uses(config)?.pop() else {
            return Ok(());
        };
        let what = format!("`{from}` is revoked, and the gateway itself {does} with it");
        let next =
            format!("take it out of the configuration, or lend it again: `gateway restore {from}`");
        Err(Failure::new(what).next(next))
    }

    /// Revokes what is revoked by now, and takes back what no longer is.
    ///
    /// # Errors
    /// Returns a [`Failure`] if that cannot be read. Then what was known holds.
    pub(crate) fn obey(&self, shared: &SharedState) -> Result<(), Failure> {
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
        shared.revoke_tokens(&file.tokens().map_err(unusable)?);
        if rows.is_empty() {
            return Ok(shared.obey(RevokedSecrets::default()));
        }
        let key = file.key().map_err(unusable)?;
        let is_new = held.looked_at != rows;
        let mut severed = 0;
        // What is learned of one row may hit more of another.
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

    /// Keeps that a secret is revoked, and obeys all that is kept.
    ///
    /// # Errors
    /// Returns a [`Failure`] if it cannot be kept. The secret is revoked here all the same.
    pub(crate) fn keep(
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
        })
    }

    /// Takes each revocation back that is called so, and obeys all that is kept. Returns the labels
    /// of these.
    ///
    /// # Errors
    /// Returns a [`Failure`] if that cannot be kept. Nothing has changed then.
    pub(crate) fn restore(
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

    /// Keeps that a token is revoked, as it is here already.
    ///
    /// # Errors
    /// Returns a [`Failure`] if it cannot be kept.
    pub(crate) fn keep_token(&self, id: PrefixId) -> Result<(), Failure> {
        let nowhere = || Failure::no_state_folder("there is no state to keep it in");
        let file = self.file.as_ref().ok_or_else(nowhere)?;
        let kept = file.revoke_token(&id);
        kept.map_err(|unfit| unusable(file, &unfit))
    }
}

/// Revokes the secret that a person calls so, with what is known of it without any gateway: the
/// places that the words mean, and what is in these now.
///
/// # Errors
/// Returns a [`Failure`] if that cannot be kept. Nothing has changed then.
pub(crate) fn revoke_in(file: &RevokedFile, label: &SecretLabel) -> Result<(), Failure> {
    let unusable = |unfit| unusable(file, &unfit);
    let places = meant(label.as_str());
    let known = KnownOfSecret {
        values: at_hand(&places, &file.key().map_err(unusable)?),
        places,
        ..KnownOfSecret::default()
    };
    file.revoke(label, &known, false).map_err(unusable)
}

/// Puts a file of an older form aside. Returns what a person is told of that.
///
/// # Errors
/// Returns a [`Failure`] if that cannot be done.
pub(crate) fn put_aside(file: &RevokedFile) -> Result<Option<String>, Failure> {
    let aside = file.put_aside().map_err(|unfit| unusable(file, &unfit))?;
    Ok(aside.map(|aside| {
        format!(
            "what was revoked by an earlier version is set aside in {} and holds no more: revoke it \
             again",
            aside.display()
        )
    }))
}

/// The places that are meant by a place, a variable, or the name of a known credential or login.
pub(crate) fn meant(label: &str) -> BTreeSet<String> {
    let mut places = BTreeSet::new();
    if let Some(login) = label.strip_prefix("login:") {
        // Its tokens end together.
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

/// The fingerprints of what is in these places now, as far as a look costs nothing.
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

/// The fingerprints of the tokens in the file of a known program's login.
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

/// How often what is learned of a revocation is put in force before the next look.
const ROUNDS: usize = 4;

/// Says that the file of what is revoked cannot be used.
pub(crate) fn unusable(file: &RevokedFile, unfit: &Unfit) -> Failure {
    let path = file.path().display();
    let what = format!("what is revoked cannot be read or kept in {path}");
    Failure::of(what, unfit).next("mend that file or its folder: every gateway of yours reads it")
}
