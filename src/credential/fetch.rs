//! Fetches the secrets that a request is lent.

use gateway_message::Origin;
use gateway_names::CredentialName;
use gateway_policy::Grant;
use gateway_session::{Session, SigningPart};
use tokio::time::Instant;

use super::credentials::Credentials;
use super::error::Error;
use super::secret::SecretUnsafe;
use super::store::CachedSecret;

/// The fetched secrets, each with its credential's name.
pub(super) type FetchedSecrets = Vec<(CredentialName, CachedSecret)>;

impl Credentials {
    /// Fetches the secret of each grant, and the other parts of a signing credential.
    pub(super) async fn fetch_granted(
        &self,
        origin: &Origin,
        session: &Session,
        grants: &[Grant],
    ) -> Result<FetchedSecrets, Error> {
        let mut fetched = Vec::with_capacity(grants.len());
        for grant in grants {
            // INVARIANT: a grant names the origin that it was given for; policy made both from one
            // request.
            if grant.origin() != origin {
                return Err(Error::Unknown);
            }
            let lend = grant.lend();
            // The session keeps temporary credentials itself.
            if lend
                .claimed()
                .is_some_and(|claimed| claimed.temporary().is_some())
            {
                continue;
            }
            let named = (lend.credential(), lend.index());
            self.fetch(named, session, &mut fetched).await?;
            if let Some(signing) = lend.signing() {
                // If the session has no phantom for an optional part, the credential does not have
                // that part.
                let held = |part: &&SigningPart| session.phantoms().of(&part.credential).is_some();
                for SigningPart { credential, .. } in signing.parts.iter().skip(1).filter(held) {
                    let index = self.bindings().index_of(credential).ok_or(Error::Unknown)?;
                    self.fetch((credential, index), session, &mut fetched)
                        .await?;
                }
                unlike_phantoms(session, &fetched)?;
            }
        }
        Ok(fetched)
    }

    /// Fetches a credential's secret.
    ///
    /// If another secret of the request is stored in the same place, both come from the same read,
    /// so that parts of different versions are never mixed.
    async fn fetch(
        &self,
        (name, index): (&CredentialName, usize),
        session: &Session,
        fetched: &mut FetchedSecrets,
    ) -> Result<(), Error> {
        let slot = self.slot(index)?;
        let source = &slot.source;
        let cached = match fetched.iter().find_map(|(_, other)| source.beside(other)) {
            Some(beside) => beside,
            None => source.resolve(Some(session.id())).await,
        };
        slot.count(cached.is_ok());
        let cached = cached.map_err(|why| Error::Unavailable(Box::new(why)))?;
        self.note(index, &cached.secret);
        fetched.push((name.clone(), cached));
        Ok(())
    }
}

/// Returns the fetched secret of a credential.
///
/// # Errors
/// [`Error::Unknown`] if it was not fetched.
pub(super) fn leased<'l>(
    fetched: &'l FetchedSecrets,
    name: &CredentialName,
) -> Result<&'l CachedSecret, Error> {
    let mut all = fetched.iter();
    let found = all.find(|(known, _)| known == name);
    Ok(&found.ok_or(Error::Unknown)?.1)
}

/// Whether a fetched secret may no longer be used.
pub(super) fn have_expired(fetched: &FetchedSecrets) -> bool {
    let mut ends = fetched.iter().filter_map(|(_, lease)| lease.expires);
    ends.any(|end| Instant::now() >= end)
}

/// Checks that the secrets fetched for a signature do not equal the session's phantoms by chance.
fn unlike_phantoms(session: &Session, fetched: &FetchedSecrets) -> Result<(), Error> {
    let phantoms = session.phantoms();
    for (name, lease) in fetched {
        let phantom = phantoms.of(name).ok_or(Error::Unknown)?;
        if lease.secret.is(phantom.reveal().as_bytes()) {
            return Err(Error::Unfit(SecretUnsafe::Phantom.into()));
        }
    }
    Ok(())
}
