//! The list of judges that may object to a request. They are consulted before the request may be
//! sent, and again while it is under way.

use std::sync::Arc;

use gateway_intercept::{Caller, TokenDenied};
use gateway_names::{CredentialName, PolicyId};
use gateway_session::{Bindings, Session};
use http::HeaderMap;

use super::generation::Generation;
use super::judged::JudgedRequest;

gateway_names::faults! {
    /// Why a request may not be sent, or may not go on.
    #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
    pub enum Objection {
        /// Its session has ended.
        SessionEnded = SessionEnded "the session has ended",
        /// The gateway has not heard from the state of its fleet for too long.
        Stale = StateStale "the gateway may lack decisions of its fleet",
        /// A credential that it is lent is revoked.
        Revoked = CredentialRevoked "the credential is revoked",
        /// The token of its caller was revoked, or has ended.
        TokenOver(TokenDenied) = TokenCaveat transparent,
        /// The evidence that identified its caller has ended.
        CallerOver = CallerRefused "nothing shows any more who is behind the connection",
        /// The policies do not allow it.
        Policy = Revoked
            "the policies do not allow the exchange any more: they changed while it was under way, or \
             its session got a label",
        /// The bindings no longer allow a credential that it is lent for such requests.
        Unbound = CredentialRemoved
            "the credentials changed while the exchange was under way, and one of its own was \
             removed or is not for such requests any more",
        /// A caveat of its caller's token does not allow it.
        Caveat(TokenDenied) = TokenCaveat transparent,
        /// Its session was created with a list of credentials, which does not contain this one.
        Unlent(CredentialName) = SessionLend "the session may not be lent `{0}`",
    }
}

/// The case before the judges. A judge does not object to a part that is not known yet.
pub struct JudgeInput<'a> {
    /// The session.
    pub session: Option<&'a Session>,
    /// The caller of the connection.
    pub caller: Option<&'a Caller>,
    /// The request, once it is ready to be judged.
    pub request: Option<&'a JudgedRequest>,
    /// The ruling of a generation that has not allowed the request before.
    pub ruling: Option<Ruling<'a>>,
}

/// The ruling of one generation of the configuration on a request.
pub struct Ruling<'a> {
    /// The policies that allow it; `None` if it is not allowed.
    pub(super) policies: Option<Arc<[PolicyId]>>,
    /// The bindings, unless the request's credentials were already presented by them.
    pub(super) bindings: Option<&'a Bindings>,
    pub(super) fields: &'a HeaderMap,
}

impl<'a> Ruling<'a> {
    /// Returns the ruling of a later generation. Policies that read a part of the request that was
    /// not kept do not allow it.
    pub fn later(
        request: &'a JudgedRequest,
        generation: &Generation,
        bindings: &'a Bindings,
    ) -> Self {
        Self {
            policies: request.still_allowed_by(generation),
            bindings: Some(bindings),
            fields: request.kept_fields(),
        }
    }
}

/// A proof that no judge objects. Only [`JudgeInput::hear`] makes it.
pub struct NoObjection(());

type Judge = fn(&JudgeInput<'_>) -> Option<Objection>;

/// The judges. If several object, the first in this order is reported.
const JUDGES: [Judge; 9] = [
    session, stale, revoked, token, caller, policy, bindings, caveats, lend_list,
];

impl JudgeInput<'_> {
    /// Consults every judge.
    ///
    /// # Errors
    /// The first [`Objection`] in the order of the list.
    pub fn hear(&self) -> Result<NoObjection, Objection> {
        self.hear_by(0..JUDGES.len())
    }

    /// Consults the judges in some order, which makes no difference.
    fn hear_by(&self, order: impl Iterator<Item = usize>) -> Result<NoObjection, Objection> {
        let objections = order.filter_map(|seat| Some((seat, JUDGES[seat](self)?)));
        let first = objections.min_by_key(|(seat, _)| *seat);
        first.map_or(Ok(NoObjection(())), |(_, objection)| Err(objection))
    }
}

fn session(case: &JudgeInput<'_>) -> Option<Objection> {
    (case.session?.is_over()).then_some(Objection::SessionEnded)
}

fn stale(case: &JudgeInput<'_>) -> Option<Objection> {
    // What goes on without a credential cannot be revoked.
    let lends = case.request.is_none_or(JudgedRequest::lends);
    (lends && gateway_session::is_stale()).then_some(Objection::Stale)
}

fn revoked(case: &JudgeInput<'_>) -> Option<Objection> {
    (case.request?.is_revoked()).then_some(Objection::Revoked)
}

fn token(case: &JudgeInput<'_>) -> Option<Objection> {
    let denied = case.caller?.token.as_ref()?.holds().err()?;
    Some(Objection::TokenOver(denied))
}

fn caller(case: &JudgeInput<'_>) -> Option<Objection> {
    (case.caller?.is_over()).then_some(Objection::CallerOver)
}

fn policy(case: &JudgeInput<'_>) -> Option<Objection> {
    let ruling = case.ruling.as_ref()?;
    (ruling.policies.is_none()).then_some(Objection::Policy)
}

fn bindings(case: &JudgeInput<'_>) -> Option<Objection> {
    let ruling = case.ruling.as_ref()?;
    let is_bound = case.request?.is_bound_by(ruling.bindings?, ruling.fields);
    (!is_bound).then_some(Objection::Unbound)
}

fn caveats(case: &JudgeInput<'_>) -> Option<Objection> {
    let (token, ruling) = (case.caller?.token.as_ref()?, case.ruling.as_ref()?);
    // Without an allowing policy, a token that names policies allows nothing.
    let policies = ruling.policies.as_deref().unwrap_or_default();
    let allowed = case.request?.allowed_by(token, policies, ruling.fields);
    Some(Objection::Caveat(allowed.err()?))
}

fn lend_list(case: &JudgeInput<'_>) -> Option<Objection> {
    let (session, mut asked) = (case.session?, case.request?.credentials().iter());
    let unlent = asked.find(|name| !session.may_be_lent(name))?;
    Some(Objection::Unlent(unlent.clone()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use gateway_intercept::{HeldToken, KEY_NUMBER, RevokedTokens, TokenPeer, TokenVerifier};
    use gateway_names::{ReasonCode, SessionId};
    use gateway_session::phantom::{Issue, PhantomKey};
    use gateway_session::{
        Binding, Creation, Lifetime, Moment, Revocation, Revocations, SessionSpec,
    };
    use gateway_token::{TokenKey, inspect};
    use proptest::prelude::*;

    use super::*;
    use crate::judged::tests::judged_of;
    use crate::question::tests::kept;

    /// An event after the request was judged: any of these, in any order.
    #[derive(Debug, Clone, Copy)]
    enum LateEvent {
        End,
        Revocation,
        TokenRevocation,
        Lapse,
        Denial,
        Removal,
        Caveat,
        LendList,
    }

    /// The events in the order in which a client is told of them.
    const ALL: [(LateEvent, ReasonCode); 8] = [
        (LateEvent::End, ReasonCode::SessionEnded),
        (LateEvent::Revocation, ReasonCode::CredentialRevoked),
        (LateEvent::TokenRevocation, ReasonCode::TokenCaveat),
        (LateEvent::Lapse, ReasonCode::CallerRefused),
        (LateEvent::Denial, ReasonCode::Revoked),
        (LateEvent::Removal, ReasonCode::CredentialRemoved),
        (LateEvent::Caveat, ReasonCode::TokenCaveat),
        (LateEvent::LendList, ReasonCode::SessionLend),
    ];

    fn token(is_narrow: bool, revoked: &Arc<RevokedTokens>) -> (HeldToken, String) {
        let session = SessionId::new("s1").unwrap();
        let host = if is_narrow {
            "other.example"
        } else {
            "api.github.com"
        };
        let ends = std::time::SystemTime::now() + Duration::from_secs(3600);
        let ends = ends
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let caveats = [
            gateway_token::Caveat::Before(ends),
            format!("host in {host}").parse().unwrap(),
        ];
        let key = TokenKey::derive(&[1; 32], KEY_NUMBER, &session);
        let text = key.mint([7; 12], &caveats).unwrap().as_str().to_owned();
        let by = TokenVerifier::new(|_: &SessionId| Some(([1; 32].into(), 0)), revoked.clone());
        (by.take(&text, TokenPeer::default()).unwrap(), text)
    }

    fn lends(names: &[&str]) -> Creation {
        let names = names.iter().map(|name| CredentialName::new(name).unwrap());
        Creation {
            key: None,
            made: 0,
            request: SessionSpec {
                name: None,
                user: None,
                groups: Vec::new(),
                lend: Some(names.collect()),
                seconds: 60,
                caveats: Vec::new(),
            },
        }
    }

    fn bindings(name: &str) -> Bindings {
        let binding = Binding {
            origins: vec!["https://api.github.com".parse().unwrap()],
            places: vec!["header:authorization:Bearer".parse().unwrap()],
            ..Binding::of(CredentialName::new(name).unwrap())
        };
        Bindings::new(vec![binding]).unwrap()
    }

    /// Lets these events happen in this order; returns the objection of judges in another order.
    fn answer(came: &[LateEvent], order: &[usize]) -> Option<ReasonCode> {
        let is = |one: LateEvent| came.iter().any(|other| *other as u8 == one as u8);
        let revocation = Arc::new(Revocation::default());
        let mut kept = kept("/");
        kept.revocations = Revocations::from_iter([revocation.clone()]);
        let request = judged_of(kept);
        let phantoms = Issue::new(&PhantomKey::from_bytes([1; 32])).finish();
        let end = Lifetime::new(Moment::now(), Duration::from_secs(3600));
        let id = SessionId::new("s1").unwrap();
        let lent = if is(LateEvent::LendList) {
            "other"
        } else {
            "github"
        };
        let session = Session::new(id, Vec::new(), phantoms, Some(end));
        let session = session.with_creation(Some(lends(&[lent])));
        let revoked = Arc::<RevokedTokens>::default();
        let (token, text) = token(is(LateEvent::Caveat), &revoked);
        let caller = Caller {
            token: Some(Arc::new(token)),
            ..Caller::default()
        };
        let (now, fields) = (bindings("github"), HeaderMap::new());
        let (mut policies, mut bound) = (Some(Arc::from([])), &now);
        let gone = bindings("other");
        for one in came {
            match one {
                LateEvent::End => session.extend(Lifetime::new(Moment::now(), Duration::ZERO)),
                LateEvent::Revocation => drop(revocation.set(true)),
                LateEvent::TokenRevocation => {
                    revoked.revoke(&BTreeSet::from([inspect(&text).unwrap().id]));
                }
                LateEvent::Lapse => caller.end(),
                LateEvent::Denial => policies = None,
                LateEvent::Removal => bound = &gone,
                // These held from the beginning.
                LateEvent::Caveat | LateEvent::LendList => {}
            }
        }
        let case = JudgeInput {
            session: Some(&session),
            caller: Some(&caller),
            request: Some(&request),
            ruling: Some(Ruling {
                policies,
                bindings: Some(bound),
                fields: &fields,
            }),
        };
        let asked = case.hear_by(order.iter().copied());
        let heard = case.hear().err();
        assert_eq!(asked.err(), heard);
        heard.map(|objection| objection.reason())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// Must show 4.
        #[test]
        fn whatever_came_in_whatever_order_the_judges_say_the_same_in_any_order(
            came in proptest::sample::subsequence(ALL.to_vec(), 0..=ALL.len()),
            mix in Just((0..JUDGES.len()).collect::<Vec<_>>()).prop_shuffle(),
            order in Just((0..ALL.len()).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let expected = came.first().map(|(_, reason)| *reason);
            let mut events: Vec<LateEvent> = came.iter().map(|(one, _)| *one).collect();
            events.sort_by_key(|one| order[*one as usize]);
            prop_assert_eq!(answer(&events, &mix), expected);
        }
    }

    #[test]
    fn each_judge_alone_stops_a_request_and_without_an_objection_it_goes_on() {
        let order: Vec<usize> = (0..JUDGES.len()).collect();
        assert_eq!(answer(&[], &order), None);
        for (one, reason) in ALL {
            assert_eq!(answer(&[one], &order), Some(reason), "{one:?}");
        }
    }
}
