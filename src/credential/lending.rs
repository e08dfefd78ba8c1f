//! What the answers of a session are searched for: every secret that an origin could know, whoever
//! it was lent to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::attach::{Credentials, Error, is_optional};
use super::credentialed::Lent;
use super::echo;
use super::guesses::Guesses;
use super::scrub::{Echoes, Guessed, Sought, Unscrubbable};
use super::secret::{Secret, mask};
use super::sign::Fetched;
use super::store::StoreError;
use crate::message::Origin;
use crate::names::{CredentialName, SessionId};
use crate::session::Session;
use crate::session::phantom::{Issue, Phantom};

/// What a session's answers are searched for.
pub(super) struct Lending {
    known: Vec<Known>,
    /// All that is searched for: what is known, and what was minted.
    searched: Vec<Known>,
    /// Something was lent: the answers of all origins are searched, for the workload may have
    /// carried it on.
    lent: bool,
    pub(super) echoes: Arc<Echoes>,
    guesses: Arc<Guesses>,
    pub(super) signatures: Arc<Signatures>,
    /// The search that looks for signatures, too, and up to the how manieth.
    with_signatures: Mutex<Option<(u64, Arc<Echoes>)>>,
}

/// A secret that an origin could know.
#[derive(Clone)]
struct Known {
    secret: Arc<Secret>,
    /// What the session holds of it, or would; `None` where there can be no phantom of it.
    phantom: Option<Phantom>,
}

/// A secret, and of which credential.
type Named = (CredentialName, Arc<Secret>);

/// What is looked for in an answer, and why.
pub(super) struct Wanted<'r> {
    /// What the request is lent.
    pub(super) lent: &'r Fetched,
    /// What else is bound to its origin.
    pub(super) bound: Vec<Named>,
    /// Whether an answer that cannot be searched is refused.
    pub(super) strict: bool,
    /// Whether the request is signed.
    pub(super) signs: bool,
    /// Whether a credential signs for its origin.
    pub(super) signed_for: bool,
}

impl Credentials {
    /// Every secret that is bound to an origin beside those that the request is lent, whether its
    /// session holds the credential or not: another session, or an earlier run, may have shown it
    /// to the origin, which may show it to anybody.
    ///
    /// What the store does not have is no secret. What it cannot say, and never said, would be
    /// given on unknown if it came.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where a store fails that never gave the secret.
    pub(super) async fn fetch_bound(
        &self,
        session: &SessionId,
        origin: &Origin,
        lent: &Fetched,
    ) -> Result<Vec<Named>, Error> {
        let mut bound = Vec::new();
        for index in self.bindings().bound_to(origin) {
            let binding = self.bindings().at(index).ok_or(Error::Unknown)?;
            let is_lent = || lent.iter().any(|(name, _)| *name == binding.credential);
            // Nobody can send back what nobody was sent: not even a signature tells anything of a
            // private key.
            let slot = self.slot(index)?;
            if slot.source.reference().private_key().is_some() || is_lent() {
                continue;
            }
            // None is made to be looked for; what was made for any session is.
            if slot.source.is_issued() {
                let latest = slot.latest();
                bound.extend(latest.map(|secret| (binding.credential.clone(), secret)));
                continue;
            }
            match slot.source.resolve(Some(session)).await {
                Ok(lease) => bound.push((binding.credential.clone(), lease.secret)),
                Err(why) if why.cause.is_absent() || is_optional(binding) => {}
                // It cannot be used, so it was not.
                Err(why) if matches!(why.cause, StoreError::Unsafe(_)) => {}
                Err(_) if slot.has_given() => {}
                Err(why) => return Err(Error::Unavailable(Box::new(why))),
            }
        }
        // What is too short cannot be lent, either.
        bound.retain(|(_, secret)| secret.expose().len() >= echo::SHORTEST);
        Ok(bound)
    }

    /// Adds to what the session's answers are searched for; gives what to look for in this one.
    pub(super) fn look_for(
        &self,
        session: &Session,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Lent>, Error> {
        let lends = !wanted.lent.is_empty();
        loop {
            let known = self.lending_of(session.id());
            if known
                .as_ref()
                .is_some_and(|known| known.guesses.are_spent())
            {
                return Err(Guessed.into());
            }
            let needed = lends || wanted.signs || !wanted.bound.is_empty();
            let lent_before = known.as_ref().is_some_and(|known| known.lent);
            if !needed && !lent_before {
                return Ok(None);
            }
            let missing = self.missing(known.as_deref(), wanted)?;
            let lending = match known {
                Some(known) if missing.is_empty() && (known.lent || !lends) => known,
                before => {
                    let lent = lends || lent_before;
                    let after = self.extended(session, before.as_deref(), missing, lent)?;
                    if !self.exchange(session.id(), before.as_ref(), &after) {
                        continue;
                    }
                    after
                }
            };
            return Ok(Some(Lent {
                lending,
                echoes: None,
                made: Vec::new(),
                signed_for: wanted.signed_for,
                strict: wanted.strict,
                signed: !wanted.strict && (wanted.signs || !lends && !wanted.bound.is_empty()),
            }));
        }
    }

    /// Has answers of the session searched for the minted credentials that are kept for it, too.
    pub(super) fn look_for_kept(&self, session: &Session) -> Result<(), Error> {
        loop {
            let before = self.lending_of(session.id());
            let after = self.extended(session, before.as_deref(), Vec::new(), true)?;
            if self.exchange(session.id(), before.as_ref(), &after) {
                return Ok(());
            }
        }
    }

    /// What is not searched for yet, with all that its store gave before: what was shown then may
    /// come back now.
    fn missing(&self, known: Option<&Lending>, wanted: &Wanted<'_>) -> Result<Vec<Named>, Error> {
        let is_known = |secret: &Arc<Secret>| {
            known.is_some_and(|known| {
                known
                    .known
                    .iter()
                    .any(|one| Arc::ptr_eq(&one.secret, secret))
            })
        };
        let lent = wanted
            .lent
            .iter()
            .map(|(name, lease)| (name, &lease.secret));
        let bound = wanted.bound.iter().map(|(name, secret)| (name, secret));
        let mut missing: Vec<Named> = Vec::new();
        for (name, secret) in lent.chain(bound) {
            if is_known(secret) || secret.is_private_key() {
                continue;
            }
            let given = match self.bindings().index_of(name) {
                Some(index) => self.slot(index)?.gave(secret),
                None => vec![secret.clone()],
            };
            missing.extend(
                given
                    .into_iter()
                    .filter(|one| !is_known(one))
                    .map(|one| (name.clone(), one)),
            );
        }
        Ok(missing)
    }

    /// What was searched for and more, with the search for all of it. Built outside of every lock.
    fn extended(
        &self,
        session: &Session,
        before: Option<&Lending>,
        missing: Vec<Named>,
        lent: bool,
    ) -> Result<Arc<Lending>, Error> {
        let mut known = before.map_or_else(Vec::new, |before| before.known.clone());
        known.extend(missing.into_iter().map(|(name, secret)| {
            Known {
                phantom: session
                    .phantoms()
                    .of(&name)
                    .cloned()
                    .or_else(|| self.stranger(&name, &secret)),
                secret,
            }
        }));
        // A rotated secret is looked for beside its predecessors, the latest of them.
        let surplus = known.len().saturating_sub(MOST_KNOWN);
        known.drain(..surplus);
        let guesses = match before {
            Some(before) => before.guesses.clone(),
            None => Arc::new(Guesses::new(Some(session.id().clone()))),
        };
        let kept = self.kept().pairs(session.id());
        let kept = kept.into_iter().map(|(phantom, secret)| Known {
            secret,
            phantom: Some(phantom),
        });
        let all: Vec<Known> = known.iter().cloned().chain(kept).collect();
        Ok(Arc::new(Lending {
            echoes: Arc::new(search(&all, &[], guesses.clone()).map_err(Error::Unscrubbable)?),
            known,
            searched: all,
            lent,
            guesses,
            signatures: before.map_or_else(Arc::default, |before| before.signatures.clone()),
            with_signatures: Mutex::default(),
        }))
    }

    /// What stands for a secret that the session holds no phantom of: drawn as phantoms are, from a
    /// key that no session has, so that it is worth nothing in any.
    fn stranger(&self, name: &CredentialName, secret: &Secret) -> Option<Phantom> {
        let mut issue = Issue::new(self.strangers()?);
        issue
            .issue(name, &secret.shape(), |text| secret.is(text))
            .ok()
    }

    fn lending_of(&self, session: &SessionId) -> Option<Arc<Lending>> {
        let sessions = self
            .sessions()
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        sessions.get(session).cloned()
    }

    /// Puts one in the place of another, unless somebody else did.
    fn exchange(
        &self,
        session: &SessionId,
        before: Option<&Arc<Lending>>,
        after: &Arc<Lending>,
    ) -> bool {
        let mut sessions = self
            .sessions()
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let same = match (sessions.get(session), before) {
            (Some(now), Some(before)) => Arc::ptr_eq(now, before),
            (None, None) => true,
            _ => false,
        };
        if same {
            sessions.insert(session.clone(), after.clone());
        }
        same
    }
}

impl Lending {
    /// The search of an answer to a request that failed, in which services repeat signatures: what
    /// was made for the request, and the latest of the session.
    pub(super) fn with_signatures(&self, made: &[Text]) -> Result<Arc<Echoes>, Error> {
        let (number, mut signatures) = self.signatures.that_hold();
        let is_late = |text: &&Text| !signatures.iter().any(|late| Arc::ptr_eq(late, text));
        let older: Vec<Text> = made.iter().filter(is_late).cloned().collect();
        if signatures.is_empty() && older.is_empty() {
            return Ok(self.echoes.clone());
        }
        let kept = || {
            self.with_signatures
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if let Some((of, echoes)) = &*kept()
            && *of == number
            && older.is_empty()
        {
            return Ok(echoes.clone());
        }
        let is_usual = older.is_empty();
        signatures.extend(older);
        let echoes = search(&self.searched, &signatures, self.guesses.clone());
        let echoes = Arc::new(echoes.map_err(Error::Unscrubbable)?);
        if is_usual {
            *kept() = Some((number, echoes.clone()));
        }
        Ok(echoes)
    }
}

fn search(
    known: &[Known],
    signatures: &[Text],
    guesses: Arc<Guesses>,
) -> Result<Echoes, Unscrubbable> {
    let stand_ins: Vec<_> = known
        .iter()
        .map(|known| match &known.phantom {
            Some(phantom) => known.secret.stand_in(phantom),
            None => mask(known.secret.expose()),
        })
        .collect();
    let secrets = known
        .iter()
        .zip(&stand_ins)
        .map(|(known, stand_in)| Sought {
            secret: known.secret.expose(),
            stand_in,
            phantom: known
                .phantom
                .as_ref()
                .map_or(stand_in, |phantom| phantom.reveal().as_bytes()),
        });
    let masks: Vec<_> = signatures.iter().map(|text| mask(text)).collect();
    let whole = signatures
        .iter()
        .zip(&masks)
        .map(|(text, mask)| (&text[..], &mask[..]));
    Echoes::of(secrets, whole, guesses)
}

/// A signature as it was written.
pub(super) type Text = Arc<Zeroizing<Vec<u8>>>;

/// The signatures that were made for a session. Each is good for its request for some minutes, from
/// wherever that is sent.
#[derive(Default)]
pub(super) struct Signatures(Mutex<Late>);

/// The latest signatures.
#[derive(Default)]
struct Late {
    texts: VecDeque<(Instant, Text)>,
    /// How many there were at all.
    number: u64,
}

impl Signatures {
    /// Keeps a signature's texts for as long as it is good, and gives those that can be looked for.
    pub(super) fn keep(&self, texts: Vec<Vec<u8>>) -> Vec<Text> {
        let texts = texts.into_iter().map(|text| Arc::new(Zeroizing::new(text)));
        // A mask of what is masked already would be the same.
        let hides = |text: &Text| text.len() >= echo::SHORTEST && mask(text)[..] != text[..];
        let texts: Vec<Text> = texts.filter(hides).collect();
        let mut late = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        late.number += texts.len() as u64;
        let now = Instant::now();
        late.texts
            .extend(texts.iter().map(|text| (now, text.clone())));
        let surplus = late.texts.len().saturating_sub(MOST_SIGNATURES);
        late.texts.drain(..surplus);
        texts
    }

    pub(super) fn are_none(&self) -> bool {
        let late = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        late.texts.is_empty()
    }

    /// The latest that are still good, and how many there were at all.
    fn that_hold(&self) -> (u64, Vec<Text>) {
        let late = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let hold = late
            .texts
            .iter()
            .filter(|(made, _)| made.elapsed() < HOLDS_FOR);
        (late.number, hold.map(|(_, text)| text.clone()).collect())
    }
}

/// Secrets that the answers of one session are searched for.
const MOST_KNOWN: usize = 256;

/// The latest signatures of one session.
const MOST_SIGNATURES: usize = 32;

/// AWS takes a signature for 15 minutes, others for less.
const HOLDS_FOR: Duration = Duration::from_secs(15 * 60);

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::credential::store::Lease;
    use crate::credential::stored::stored;
    use crate::credential::{MemoryStore, Stores};
    use crate::session::Binding;
    use crate::session::phantom::{PhantomKey, Phantoms};
    use crate::session::stage::{GITHUB, binding, head, name};

    const STORED: &str = "env:github";

    struct Stage {
        store: Arc<MemoryStore>,
        credentials: Credentials,
    }

    fn stage(bindings: Vec<Binding>) -> Stage {
        let store = Arc::new(MemoryStore::default());
        let stores = Stores::with(Arc::<MemoryStore>::clone(&store));
        Stage {
            credentials: Credentials::new(stored(bindings), &stores).unwrap(),
            store,
        }
    }

    fn github() -> Stage {
        let places = ["header:authorization:Bearer"];
        stage(vec![binding("github", &["https://good.example"], &places)])
    }

    impl Stage {
        async fn session(&self, id: &str, key: u8) -> Session {
            let key = PhantomKey::from_bytes([key; 32]);
            let phantoms = self
                .credentials
                .issue(&SessionId::new(id).unwrap(), &key, |_| true)
                .await;
            self.with(id, phantoms.unwrap())
        }

        fn with(&self, id: &str, phantoms: Phantoms) -> Session {
            let bindings = self.credentials.bindings().clone();
            Session::new(
                SessionId::new(id).unwrap(),
                Vec::new(),
                bindings,
                phantoms,
                None,
            )
        }

        /// What is looked for in an answer of the origin to a request that is lent nothing.
        async fn asks(&self, session: &Session, origin: &str) -> Result<Option<Lent>, Error> {
            let origin = head(origin, "/", &[]).origin;
            let lent = Vec::new();
            let wanted = Wanted {
                bound: self
                    .credentials
                    .fetch_bound(session.id(), &origin, &lent)
                    .await?,
                lent: &lent,
                strict: self.credentials.bindings().manages(&origin),
                signs: false,
                signed_for: true,
            };
            self.credentials.look_for(session, &wanted)
        }

        async fn shown(&self, session: &Session, origin: &str, text: &str) -> String {
            let lent = self
                .asks(session, origin)
                .await
                .unwrap()
                .expect("it is searched");
            let shown = lent.scrub_whole(Bytes::from(text.to_owned())).unwrap();
            String::from_utf8(shown.to_vec()).unwrap()
        }
    }

    #[tokio::test]
    async fn an_answer_is_searched_for_all_that_is_bound_before_anything_was_lent() {
        let stage = github();
        stage.store.put(STORED, GITHUB.as_bytes(), None);
        let ours = stage.session("ours", 1).await;
        let none = stage.with("none", Phantoms::none());
        let phantom = ours
            .phantoms()
            .of(&name("github"))
            .unwrap()
            .reveal()
            .to_owned();
        assert_eq!(
            stage.shown(&ours, "https://good.example", GITHUB).await,
            phantom
        );
        // A session that does not hold the credential is shown something else of its shape, worth
        // nothing in any.
        let shown = stage.shown(&none, "https://good.example", GITHUB).await;
        assert!(
            shown.len() == GITHUB.len() && shown.starts_with("ghp_"),
            "{shown}"
        );
        assert!(shown != phantom && shown != GITHUB);
        assert_eq!(
            stage.shown(&none, "https://good.example", GITHUB).await,
            shown
        );
        let lent = stage.asks(&ours, "https://good.example").await.unwrap();
        assert!(lent.is_some_and(|lent| lent.is_strict()));
        // Nothing is bound there and nothing was lent: nothing is searched.
        assert!(
            stage
                .asks(&ours, "https://other.example")
                .await
                .unwrap()
                .is_none()
        );
    }

    #[tokio::test]
    async fn what_a_store_gave_before_is_looked_for_in_every_session() {
        let stage = github();
        let life = Lease::of(std::time::Duration::from_millis(20));
        stage.store.put(STORED, GITHUB.as_bytes(), Some(life));
        let first = stage.session("first", 1).await;
        stage.shown(&first, "https://good.example", "x").await;
        tokio::time::sleep(std::time::Duration::from_millis(30)).await;
        let renewed = GITHUB.replace('z', "y");
        stage.store.put(STORED, renewed.as_bytes(), None);
        stage.shown(&first, "https://good.example", "x").await;
        let second = stage.session("second", 2).await;
        let shown = stage
            .shown(
                &second,
                "https://good.example",
                &format!("{GITHUB} {renewed}"),
            )
            .await;
        let phantom = second.phantoms().of(&name("github")).unwrap().reveal();
        assert_eq!(shown, format!("{phantom} {phantom}"));
    }

    #[tokio::test]
    async fn what_a_store_cannot_say_is_closed_and_what_it_does_not_have_is_no_secret() {
        let stage = github();
        let session = stage.with("none", Phantoms::none());
        assert!(
            stage
                .asks(&session, "https://good.example")
                .await
                .unwrap()
                .is_none()
        );
        let stage = github();
        let fault = StoreError::Unreachable("it is down");
        stage.store.fail(STORED, fault, Duration::ZERO);
        let asked = stage.asks(&session, "https://good.example").await;
        assert!(matches!(asked, Err(Error::Unavailable(_))));
        assert!(stage.asks(&session, "https://other.example").await.is_ok());
    }

    #[tokio::test]
    async fn a_session_that_guessed_is_refused_and_others_are_not() {
        let stage = github();
        stage.store.put(STORED, GITHUB.as_bytes(), None);
        let ours = stage.session("ours", 1).await;
        for length in [6, 7] {
            stage
                .shown(&ours, "https://good.example", &GITHUB[4..4 + length])
                .await;
        }
        let lent = stage
            .asks(&ours, "https://good.example")
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            lent.scrub_whole(Bytes::from_static(&GITHUB.as_bytes()[4..12])),
            Err(Guessed)
        );
        let refused = stage
            .asks(&ours, "https://good.example")
            .await
            .err()
            .unwrap();
        assert_eq!(refused.reason().as_str(), "secret_guessed");
        let others = stage.session("others", 2).await;
        assert!(stage.asks(&others, "https://good.example").await.is_ok());
    }

    #[test]
    fn signatures_are_kept_so_many_and_none_that_hides_nothing() {
        let signatures = Signatures::default();
        assert!(signatures.are_none());
        for at in 0..100 {
            signatures.keep(vec![format!("signature/{at}+=").into_bytes()]);
        }
        assert_eq!(signatures.that_hold().1.len(), MOST_SIGNATURES);
        let none = signatures.keep(vec![b"xxxxxxxxxx".to_vec(), b"short".to_vec()]);
        assert!(none.is_empty() && signatures.that_hold().0 == 100);
    }

    #[tokio::test]
    async fn answers_that_fail_share_a_search_until_something_is_signed() {
        let stage = github();
        stage.store.put(STORED, GITHUB.as_bytes(), None);
        let session = stage.session("ours", 1).await;
        let lent = stage
            .asks(&session, "https://good.example")
            .await
            .unwrap()
            .unwrap();
        let lending = lent.lending;
        let first = lending.signatures.keep(vec![b"signature/1+=".to_vec()]);
        let one = lending.with_signatures(&first).unwrap();
        assert!(Arc::ptr_eq(&one, &lending.with_signatures(&[]).unwrap()));
        for at in 0..MOST_SIGNATURES {
            lending
                .signatures
                .keep(vec![format!("signature/{at}/+=").into_bytes()]);
        }
        let other = lending.with_signatures(&[]).unwrap();
        assert!(!Arc::ptr_eq(&one, &other) && other.scrub(&first[0]).is_none());
        // What was made for the request itself is looked for however late its answer comes.
        let own = lending.with_signatures(&first).unwrap();
        assert!(own.scrub(&first[0]).is_some());
    }
}
