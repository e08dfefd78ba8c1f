//! Revoked secrets, by the places that secrets are read from and the values that were read there. A
//! secret is identified by its place, whatever its name.

use std::collections::BTreeSet;
use std::sync::Arc;

use gateway_names::SecretLabel;
use gateway_session::Revocation;
use gateway_state::{FingerprintKey, KnownOfSecret, RevokedSecret};

use super::configured::ConfiguredCredential;
use super::secret::Secret;
use super::secret_history::SecretHistory;
use super::store::SecretRef;

/// The revocations for every gateway of this user, and the key of their fingerprints.
#[derive(Default)]
pub struct RevokedSecrets {
    /// The revocations.
    pub rows: Vec<RevokedSecret>,
    /// The key of the fingerprints. Without it, no value is compared.
    pub key: Option<FingerprintKey>,
}

/// Each place that a generation reads or has read secrets from, and the revocations.
#[derive(Default)]
pub(super) struct SecretPlaces {
    revoked: RevokedSecrets,
    places: Vec<SecretPlace>,
}

/// A place, with the names under which its secret was lent.
struct SecretPlace {
    from: SecretRef,
    labels: BTreeSet<String>,
    /// The values that were read there and compared with the revoked ones.
    read: Arc<SecretHistory>,
    revocation: Arc<Revocation>,
}

impl RevokedSecrets {
    /// Whether a row revokes this place's secret, by one of its labels, its place or one of its
    /// values.
    fn is_hit(&self, row: &RevokedSecret, place: &SecretPlace) -> bool {
        let at = place.from.place(self.key.as_ref());
        row.names(&place.labels, &at)
            || row.covers(&at)
            || place.read.all().iter().any(|one| self.has_value(row, one))
    }

    /// Whether a row revokes a secret that the gateway itself reads from this place.
    pub fn covers(&self, from: &SecretRef) -> bool {
        let at = from.place(self.key.as_ref());
        let labels = from.env_name().map(str::to_owned).into_iter().collect();
        let print = self.key.as_ref().and_then(|key| from.fingerprint_now(key));
        let mut rows = self.rows.iter();
        rows.any(|row| {
            let values = &row.known.values;
            let has_value = print.as_ref().is_some_and(|print| values.contains(print));
            has_value || row.names(&labels, &at) || row.covers(&at)
        })
    }

    fn has_value(&self, row: &RevokedSecret, secret: &Secret) -> bool {
        let key = self.key.as_ref().filter(|_| !row.known.values.is_empty());
        key.is_some_and(|key| row.known.values.contains(&key.of(secret.expose())))
    }
}

impl SecretPlaces {
    /// Returns the revocation of a credential's place and the history of its values. From now on,
    /// the place is also known by the credential's name and variables.
    pub(super) fn of(
        &mut self,
        stored: &ConfiguredCredential,
    ) -> (Arc<Revocation>, Arc<SecretHistory>) {
        let mut places = self.places.iter();
        let known = places.position(|one| one.from.is_same_place(&stored.from));
        let at = known.unwrap_or_else(|| {
            self.places.push(SecretPlace {
                from: stored.from.clone(),
                labels: stored
                    .from
                    .env_name()
                    .map(str::to_owned)
                    .into_iter()
                    .collect(),
                read: Arc::default(),
                revocation: Arc::default(),
            });
            self.places.len() - 1
        });
        let place = &mut self.places[at];
        place.labels.insert(stored.binding.credential.to_string());
        let variables = stored.binding.variables.iter().cloned();
        place.labels.extend(variables);
        self.judge(at);
        let place = &self.places[at];
        (place.revocation.clone(), place.read.clone())
    }

    /// Applies these revocations. Returns how many connections were severed, and whether any
    /// place's revocation changed.
    pub(super) fn obey(&mut self, revoked: RevokedSecrets) -> (usize, bool) {
        self.revoked = revoked;
        let judged = (0..self.places.len()).map(|at| self.judge(at));
        judged.fold((0, false), |all, one| (all.0 + one.0, all.1 | one.1))
    }

    /// Revokes the secret with this label, until the next rows are applied.
    pub(super) fn revoke(&mut self, label: &SecretLabel) -> usize {
        let rows = &mut self.revoked.rows;
        if !rows.iter().any(|row| row.label == *label) {
            rows.push(RevokedSecret::by(label.clone()));
        }
        let judged = (0..self.places.len()).map(|at| self.judge(at).0);
        judged.sum()
    }

    /// Severs every connection that may carry a secret.
    pub(super) fn sever(&self) {
        self.places
            .iter()
            .for_each(|place| place.revocation.sever());
    }

    fn judge(&self, at: usize) -> (usize, bool) {
        let place = &self.places[at];
        let mut rows = self.revoked.rows.iter();
        let is_revoked = rows.any(|row| self.revoked.is_hit(row, place));
        let before = place.revocation.is_revoked();
        (place.revocation.set(is_revoked), before != is_revoked)
    }

    /// Notes the value that was read at a place, before it is lent. A revoked value revokes the
    /// place, wherever the value was read when it was revoked.
    pub(super) fn note(&self, from: &SecretRef, secret: &Arc<Secret>) {
        let mut rows = self.revoked.rows.iter();
        let mut places = self.places.iter();
        if let Some(place) = places.find(|one| one.from.is_same_place(from)) {
            if rows.any(|row| self.revoked.has_value(row, secret)) {
                place.revocation.set(true);
            }
            // Afterwards, so that a reader that finds the value here finds the revocation too.
            place.read.add(secret, None);
        }
    }

    /// Returns the labels of all revocations.
    pub(super) fn labels(&self) -> impl Iterator<Item = &SecretLabel> {
        self.revoked.rows.iter().map(|row| &row.label)
    }

    /// Returns which of these places the row with this label hits.
    pub(super) fn hits<'s>(
        &self,
        label: &SecretLabel,
        all: impl Iterator<Item = &'s SecretRef>,
    ) -> Vec<bool> {
        let row = self.revoked.rows.iter().find(|row| row.label == *label);
        let is_hit = |from: &SecretRef| {
            let place = self.places.iter().find(|one| one.from.is_same_place(from));
            row.zip(place)
                .is_some_and(|(row, place)| self.revoked.is_hit(row, place))
        };
        all.map(is_hit).collect()
    }

    /// Returns what the places here add to each row that covers them: their labels, their
    /// references, and the fingerprints of their values.
    pub(super) fn learned(&self) -> Vec<(SecretLabel, KnownOfSecret)> {
        let key = self.revoked.key.as_ref();
        let learned = self.revoked.rows.iter().map(|row| {
            let mut known = KnownOfSecret::default();
            for place in &self.places {
                let at = place.from.place(key);
                if row.names(&place.labels, &at) || row.covers(&at) {
                    let read = place.read.all();
                    let prints = key
                        .into_iter()
                        .flat_map(|key| read.iter().map(move |one| key.of(one.expose())));
                    known.values.extend(prints);
                    known.names.extend(place.labels.iter().cloned());
                    known.places.insert(at);
                }
            }
            (row.label.clone(), known)
        });
        learned.collect()
    }
}
