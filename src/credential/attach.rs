//! The last step before a request leaves: fetches each granted secret and replaces its phantom.

use std::sync::Arc;
use std::time::SystemTime;

use gateway_body::{self as body, Share};
use gateway_intercept::Request;
use gateway_message::{ByteRange, RequestHead};
use gateway_policy::{Allowed, Grant, JudgedRequest};
use gateway_session::{
    CredentialUse, Location, Revoked, Session, SigningContext, VerifiedSignature,
};
use http::header::{ACCEPT_ENCODING, IF_RANGE, RANGE};
use http::{HeaderName, HeaderValue, Method};

use super::credentialed::{AnswerPlan, Credentialed};
use super::credentials::Credentials;
use super::error::Error;
use super::exposed::own::OwnSearch;
use super::fetch::{FetchedSecrets, have_expired, leased};
use super::inject::content::inject_in_content;
use super::inject::messages::InjectMessages;
use super::inject::{AttachFailure, inject};
use super::mint::Minting;
use super::redactor::Redactor;
use super::search_snapshot::Wanted;
use super::store::CachedSecret;
use super::verify::{Settled, SignedGrant, Verified};

impl Credentials {
    /// Fetches each granted secret and replaces its phantom, or signs with it.
    ///
    /// Without a grant, nothing is fetched.
    ///
    /// # Errors
    /// [`Error`] by cause. The request is then dropped, and no part of it was sent.
    pub async fn attach(&self, settled: Settled) -> Result<Credentialed, Error> {
        let Verified {
            authorized,
            proof,
            asked,
        } = settled.0;
        let (mut request, allowed) = authorized.into_parts();
        let (here, session, grants) = (allowed.here(), allowed.session(), allowed.grants());
        let head = &mut request.head;
        let mut fetched = self.fetch_granted(&head.origin, session, grants).await?;
        let bound = self.fetch_bound(here, &fetched).await?;
        if have_expired(&fetched) {
            // One store took longer than the secret of another lasts. That store now answers from
            // memory. Boxed because the future is large and rare.
            let again = self.fetch_granted(&head.origin, session, grants);
            fetched = Box::pin(again).await?;
            if have_expired(&fetched) {
                return Err(Error::Unfit(AttachFailure::Expired));
            }
        }
        // The fetch may have waited, or may have found a value that is revoked. Whatever happens
        // from here on, no connection that could carry the secret outlives a revocation.
        still_lent(allowed.judged())?;
        let signs = proof.as_ref().map(|signed| signed.grant);
        let all = || grants.iter().map(Grant::lend).enumerate();
        let put_in = || all().filter(|(at, _)| Some(*at) != signs);
        // If the origin was ever lent a secret, its response may contain it, so it must be
        // searchable. A token of another session's login is searched for as far as possible.
        let is_any = |index| {
            let binding = self.bindings().at(index);
            let is_of_another = |name| self.logins().is_of_another(name, session.id());
            binding.is_some_and(|binding| !is_of_another(&binding.credential))
        };
        let wanted = Wanted {
            bound,
            lent: &fetched,
            strict: put_in().next().is_some()
                || here.is_managed() && here.positions().any(is_any)
                || self.formerly_managed(&head.origin, session.id()),
            signs: signs.is_some(),
            signed_for: here.is_signed_for(),
        };
        let mut redactor = self.look_for(session, &wanted)?;
        let target = request.head.target.clone();
        self.put_in(&mut request, put_in().map(|(_, lend)| lend), &fetched)?;
        let head = &mut request.head;
        let mut decoding = Share::of(session.decoding_of(&self.holding().decoding).clone());
        let mut range = match &redactor {
            Some(redactor) if redactor.is_strict() => ask_for_searchable(head, redactor.margin()),
            _ => None,
        };
        // A signed request stays unchanged, and only error responses to it are decoded. Any other
        // response may contain a token.
        if signs.is_none() && !redactor.as_ref().is_some_and(Redactor::is_strict) {
            body::ask_for_affordable(&mut head.fields, &mut decoding);
        }
        let tokens = |(session, asked)| Box::new(Minting::Tokens { session, asked });
        let mut minting = asked.map(|asked| tokens((session.clone(), asked)));
        if minting.is_some() {
            // A response that must be read is requested without a content coding.
            range = ask_for_searchable(head, None);
        }
        if let Some(SignedGrant { grant, proof }) = proof {
            let lend = grants.get(grant).ok_or(Error::Unknown)?.lend();
            if proof.mints() {
                minting = Some(Box::new(Minting::Temporary {
                    session: session.clone(),
                    parent: lend.credential().clone(),
                    revocations: lend.revocations(),
                }));
            }
            if minting.is_some() {
                head.fields.insert(ACCEPT_ENCODING, IDENTITY);
            }
            // Last, so that the request goes out exactly as signed.
            let made = self.sign(&mut request, session, lend, proof, &fetched)?;
            if let Some(redactor) = &mut redactor {
                redactor.made = redactor.searched.load().signatures.keep(made);
            }
        }
        let answer = AnswerPlan {
            lent: redactor,
            messages: self.messages(&request, &allowed, &fetched).await?,
            tokens: of_logins(fetched),
            method: request.head.method.clone(),
            range,
            target,
            session: session.clone(),
            upgrade: request.upgrade.take(),
            minting,
            decoding,
        };
        Ok(Credentialed {
            request,
            allowed,
            answer,
        })
    }

    /// Notes that a service refused the login tokens that a request was lent.
    pub fn refused(&self, plan: &AnswerPlan) {
        for token in &plan.tokens {
            if let Some(name) = token.login() {
                let logins = self.stores().logins();
                logins.refuse(plan.session.id(), name, &token.secret);
            }
        }
    }

    /// Returns what reads the messages after an upgrade: it injects the granted secrets, and finds
    /// others. `None` if there is nothing to do.
    async fn messages(
        &self,
        request: &Request,
        allowed: &Allowed,
        fetched: &FetchedSecrets,
    ) -> Result<Option<Box<InjectMessages>>, Error> {
        if request.upgrade.is_none() {
            return Ok(None);
        }
        let search = allowed.here().in_messages(&request.head);
        let own = self.own(allowed.session()).await?;
        if search.is_none() && own.is_none() {
            return Ok(None);
        }
        let own = own.map(|own| OwnSearch::new(own, request.head.origin.clone()));
        let granted = allowed.grants().iter().map(Grant::lend);
        let granted = granted.filter(|lend| matches!(lend.spot(), Location::Message));
        let secrets = granted.filter_map(|lend| {
            let lease = leased(fetched, lend.credential()).ok()?;
            Some((lend.credential().clone(), lease.clone()))
        });
        let (session, secrets) = (allowed.session().clone(), secrets.collect());
        let messages = InjectMessages::new(search, own, session, secrets);
        Ok(Some(Box::new(messages)))
    }

    /// Replaces the phantom of each use with the fetched secret.
    fn put_in<'u>(
        &self,
        request: &mut Request,
        uses: impl Iterator<Item = &'u CredentialUse>,
        fetched: &FetchedSecrets,
    ) -> Result<(), Error> {
        let mut in_content = Vec::new();
        for one in uses {
            let ready = &self.slot(one.index())?.ready;
            let secret = &leased(fetched, one.credential())?.secret;
            let RequestHead { fields, target, .. } = &mut request.head;
            match one.spot() {
                // Secrets for messages are inserted later.
                Location::Message => {}
                Location::Content(at) => in_content.push((at.clone(), one, &**secret)),
                _ => inject(fields, target, one, secret, ready).map_err(Error::Unfit)?,
            }
        }
        if in_content.is_empty() {
            Ok(())
        } else {
            inject_in_content(request, in_content).map_err(Error::Unfit)
        }
    }

    /// Signs a request with the fetched secrets, or with the session's temporary credentials.
    fn sign(
        &self,
        request: &mut Request,
        session: &Arc<Session>,
        lend: &CredentialUse,
        proof: Box<dyn VerifiedSignature>,
        fetched: &FetchedSecrets,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let temporary = match lend.claimed().and_then(|claimed| claimed.temporary()) {
            Some((minted, names)) => {
                let secrets = self.exposed(session)?.minted(minted);
                Some((names, secrets.ok_or(Error::Unknown)?))
            }
            None => None,
        };
        let parts = match &temporary {
            Some((names, minted)) => {
                let texts = minted.secrets.iter().map(|secret| secret.expose());
                names.iter().copied().zip(texts).collect()
            }
            None => {
                let signing = lend.signing().ok_or(Error::Unknown)?;
                signing.texts(|part| Some(leased(fetched, part).ok()?.secret.expose()))
            }
        };
        let with = SigningContext {
            parts,
            now: SystemTime::now(),
            last: &self.slot(lend.index())?.history.last,
            budget: session.part_of(&self.holding().budget),
        };
        Ok(proof.sign(&mut request.head, &mut request.content, &with)?)
    }
}

/// The tokens of logins among the fetched secrets.
/// Checks, at the last moment, that what a request is lent may still be lent.
fn still_lent(judged: &JudgedRequest) -> Result<(), Error> {
    if judged.is_revoked() {
        return Err(Revoked.into());
    }
    let is_stale = judged.lends() && gateway_session::is_stale();
    (!is_stale).then_some(()).ok_or(Error::Stale)
}

fn of_logins(fetched: FetchedSecrets) -> Vec<CachedSecret> {
    let all = fetched.into_iter().map(|(_, cached)| cached);
    all.filter(|cached| cached.login().is_some()).collect()
}

/// No content coding.
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");

/// Fields by which a client requests a part of the content: `Range`, and Azure's own form of it.
static RANGES: [HeaderName; 2] = [RANGE, HeaderName::from_static("x-ms-range")];

/// Fields by which a client requests a delta, or accepts compressed messages: RFC 3229, gRPC, the
/// Connect protocol.
static UNSEARCHABLE: [HeaderName; 3] = [
    HeaderName::from_static("a-im"),
    HeaderName::from_static("grpc-accept-encoding"),
    HeaderName::from_static("connect-accept-encoding"),
];

/// Requests a response in which echoes can be found, and whose length reveals nothing of a secret.
///
/// An echo in a coding that we cannot decode could not be found (threats I03), nor one in a message
/// that is compressed separately. And a compressed length reveals how alike parts of the content
/// are, such as a client's guess and an echo of the secret (BREACH).
///
/// An echo split across two partial responses could not be found either. So a range is requested
/// with a margin, and only the range is returned. Without a margin, or with several ranges, the
/// whole is requested (RFC 9110 §14.2: a server may ignore a range, and so may we).
fn ask_for_searchable(head: &mut RequestHead, margin: Option<u64>) -> Option<ByteRange> {
    let fields = &mut head.fields;
    let mut asked = None;
    // Searched in one pass: few requests have any of these fields.
    let is_one = |name: &HeaderName| {
        RANGES.contains(name) || UNSEARCHABLE.contains(name) || *name == IF_RANGE
    };
    if fields.keys().any(is_one) {
        for name in &UNSEARCHABLE {
            fields.remove(name);
        }
        asked = margin.and_then(|margin| {
            let mut all = RANGES.iter().flat_map(|name| {
                let values = fields.get_all(name).iter();
                values.map(move |value| (name, value))
            });
            let ((name, value), None) = (all.next()?, all.next()) else {
                return None;
            };
            let range = ByteRange::parse(value).filter(|_| head.method == Method::GET)?;
            Some((name, range, range.with_margin(margin)))
        });
        for name in &RANGES {
            fields.remove(name);
        }
        match &asked {
            Some((name, _, wide)) => drop(fields.insert(*name, wide.clone())),
            None => drop(fields.remove(IF_RANGE)),
        }
    }
    fields.insert(ACCEPT_ENCODING, IDENTITY);
    asked.map(|(_, range, _)| range)
}
