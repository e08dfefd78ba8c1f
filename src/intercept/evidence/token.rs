//! `token`: a macaroon that the client presents. It names the session, and narrows permissions.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use gateway_names::{CredentialName, PolicyId, SessionId};
use gateway_token::{
    CaveatDenied, ConnectionEvidence, PrefixId, TokenKey, TokenLimit, TokenRefused, TokenUse,
    VerifiedToken, verify,
};
use zeroize::Zeroizing;

use super::certificate::HeldCertificate;
use super::live_evidence::LiveEvidence;
use crate::client_stream::ClientStream;
use crate::proxy_tls::now;

/// The number of the only key for tokens.
pub const KEY_NUMBER: u8 = 1;

/// The ids of revoked tokens; all tokens derived from them are revoked, too.
#[derive(Default)]
pub struct RevokedTokens(ArcSwap<BTreeSet<PrefixId>>);

impl RevokedTokens {
    /// Revokes more tokens. Returns whether one was not revoked before. Revocations are permanent.
    pub fn revoke(&self, ids: &BTreeSet<PrefixId>) -> bool {
        // Called every second, nearly always without a change.
        let is_news = !ids.is_subset(&self.0.load());
        if is_news {
            self.0
                .rcu(|all| ids.union(all).copied().collect::<BTreeSet<_>>());
        }
        is_news
    }

    fn has(&self, token: &VerifiedToken) -> bool {
        let all = self.0.load();
        !all.is_empty() && token.is_revoked(&|id| all.contains(id))
    }
}

/// Returns the secret from which the keys of a live session's tokens are derived, and how many
/// earlier sessions had its name.
type RootOf = dyn Fn(&SessionId) -> Option<(Zeroizing<[u8; 32]>, u64)> + Send + Sync;

/// Verifies tokens.
pub struct TokenVerifier {
    root_of: Box<RootOf>,
    revoked: Arc<RevokedTokens>,
}

impl TokenVerifier {
    /// Verifies tokens of the sessions for which `root_of` returns a secret.
    #[must_use]
    pub fn new(
        root_of: impl Fn(&SessionId) -> Option<(Zeroizing<[u8; 32]>, u64)> + Send + Sync + 'static,
        revoked: Arc<RevokedTokens>,
    ) -> Self {
        Self {
            root_of: Box::new(root_of),
            revoked,
        }
    }

    /// Verifies a token that a client presents now.
    ///
    /// # Errors
    /// [`TokenDenied`] if it is not genuine, was revoked, or is not for this peer and time.
    pub fn take(&self, text: &str, peer: TokenPeer) -> Result<HeldToken, TokenDenied> {
        let before = Cell::new(0);
        let key = |number, session: &SessionId| {
            let (root, of) = (self.root_of)(session).filter(|_| number == KEY_NUMBER)?;
            before.set(of);
            Some(TokenKey::derive(&root, number, session))
        };
        let verified = verify(text, key).map_err(|refused| match refused {
            TokenRefused::NotOurs => TokenDenied::NotOurs,
            TokenRefused::Caveat(..) => TokenDenied::Unknown,
        })?;
        let held = HeldToken {
            verified,
            before: before.get(),
            peer,
            revoked: self.revoked.clone(),
        };
        held.holds()?;
        Ok(held)
    }
}

/// The peer that presents a token, as the connection shows it.
#[derive(Clone, Default)]
pub struct TokenPeer {
    address: Option<IpAddr>,
    /// The names from other evidence, for the caveat `as`.
    names: Arc<[String]>,
    /// The certificate, if there is one, which may cease to hold.
    certificate: Option<Arc<HeldCertificate>>,
}

impl TokenPeer {
    /// Returns the peer of a connection: its address, or the user and group of a Unix socket, and
    /// its certificate.
    #[must_use]
    pub fn of(stream: &ClientStream) -> Self {
        let names = match stream.carrier() {
            ClientStream::Unix(stream) => stream.peer_cred().ok(),
            _ => None,
        };
        let names =
            names.map(|peer| [format!("uid:{}", peer.uid()), format!("gid:{}", peer.gid())]);
        Self {
            address: stream.peer_addr().map(|address| address.ip()),
            names: names.into_iter().flatten().collect(),
            certificate: HeldCertificate::of(stream)
                .and_then(Result::ok)
                .map(Arc::new),
        }
    }
}

/// An accepted token.
pub struct HeldToken {
    verified: VerifiedToken,
    before: u64,
    peer: TokenPeer,
    revoked: Arc<RevokedTokens>,
}

impl HeldToken {
    /// Returns the session whose key verified it: its name, and how many earlier ones had that.
    #[must_use]
    pub fn session(&self) -> (&SessionId, u64) {
        (self.verified.session(), self.before)
    }

    /// Returns the id of the token.
    #[must_use]
    pub fn id(&self) -> Option<PrefixId> {
        self.verified.id()
    }

    /// Returns the peer that presents the token.
    pub(super) fn peer(&self) -> TokenPeer {
        self.peer.clone()
    }

    /// Checks that the token still holds for its peer.
    ///
    /// # Errors
    /// [`TokenDenied`] if it was revoked, or has ended.
    pub fn holds(&self) -> Result<(), TokenDenied> {
        if self.revoked.has(&self.verified) {
            return Err(TokenDenied::Revoked);
        }
        let certificate = self.peer.certificate.as_deref();
        let certificate = certificate.filter(|one| one.holds());
        let names = self.peer.names.iter().map(String::as_str);
        let names = names.chain(certificate.into_iter().flat_map(HeldCertificate::names));
        let evidence: Vec<&str> = names.collect();
        let door = ConnectionEvidence {
            peer: self.peer.address,
            evidence: &evidence,
            now: now(),
        };
        Ok(self.verified.at_connection(&door)?)
    }

    /// What it and all that shares each limit may use up, or be used for.
    pub fn limits(&self) -> impl Iterator<Item = (PrefixId, &TokenLimit)> {
        self.verified.limits()
    }

    /// Whether the token may be lent a credential.
    #[must_use]
    pub fn lends(&self, credential: &CredentialName) -> bool {
        self.verified.lends(credential)
    }

    /// Checks that the token allows a request that policy allows.
    ///
    /// # Errors
    /// [`TokenDenied::Caveat`] by the first caveat that refuses.
    pub fn allows<'a, C, P>(
        &self,
        of: impl FnOnce(u64) -> TokenUse<'a, C, P>,
    ) -> Result<(), TokenDenied>
    where
        C: Iterator<Item = &'a CredentialName> + Clone,
        P: Iterator<Item = &'a PolicyId> + Clone,
    {
        Ok(self.verified.allows(&of(now()))?)
    }
}

gateway_names::concealed!(HeldToken);

/// Why a token is refused, in words for the gateway's own record, without text of the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenDenied {
    /// No key of this gateway made the token.
    #[error("the token is none of this gateway's")]
    NotOurs,
    /// A caveat of the token is unknown.
    #[error("the token has a caveat that no gateway knows")]
    Unknown,
    /// The token was revoked.
    #[error("the token is revoked")]
    Revoked,
    /// A caveat refuses.
    #[error(transparent)]
    Caveat(#[from] CaveatDenied),
}

#[cfg(test)]
mod tests {
    use gateway_token::Caveat;

    use super::*;

    fn peer(address: &str) -> TokenPeer {
        TokenPeer {
            address: address.parse().ok(),
            names: Arc::new([]),
            certificate: None,
        }
    }

    fn minted(root: &[u8; 32], caveats: &[&str]) -> Zeroizing<String> {
        let caveats: Vec<Caveat> = caveats.iter().map(|text| text.parse().unwrap()).collect();
        let session = SessionId::new("agent-1").unwrap();
        let key = TokenKey::derive(root, KEY_NUMBER, &session);
        let token = key.mint([7; 12], &caveats).unwrap();
        Zeroizing::new(token.as_str().to_owned())
    }

    #[test]
    fn a_token_is_taken_where_and_while_it_holds_and_a_derived_one_falls_with_it() {
        let revoked = Arc::<RevokedTokens>::default();
        let root_of = |id: &SessionId| (id.as_str() == "agent-1").then(|| ([1; 32].into(), 7));
        let by = TokenVerifier::new(root_of, revoked.clone());
        let soon = Caveat::Before(now() + 60).to_string();
        let here = "from 192.0.2.0/24";
        let take = |caveats: &[&str], from| by.take(&minted(&[1; 32], caveats), peer(from));
        let held = take(&[&soon, here], "192.0.2.1").unwrap();
        assert_eq!(held.session(), (&SessionId::new("agent-1").unwrap(), 7));
        assert_eq!(held.holds(), Ok(()));
        let denied = |caveats: &[&str], from| take(caveats, from).unwrap_err();
        assert_eq!(
            denied(&[&soon, here], "192.0.3.1"),
            CaveatDenied::From.into()
        );
        assert_eq!(
            denied(&["before 2020-01-01T00:00:00Z"], "192.0.2.1"),
            CaveatDenied::Before.into()
        );
        assert_eq!(denied(&[], "192.0.2.1"), CaveatDenied::Endless.into());
        let other = by.take(&minted(&[2; 32], &[&soon]), peer("192.0.2.1"));
        assert_eq!(other.unwrap_err(), TokenDenied::NotOurs);
        let parent = minted(&[1; 32], &[&soon]);
        let child = gateway_token::attenuate(&parent, &["method in GET".parse().unwrap()]).unwrap();
        let child = by.take(child.as_str(), peer("192.0.2.1")).unwrap();
        let id = gateway_token::inspect(&parent).unwrap().id;
        assert!(revoked.revoke(&BTreeSet::from([id])));
        assert!(!revoked.revoke(&BTreeSet::from([id])));
        assert_eq!(child.holds(), Err(TokenDenied::Revoked));
        // It has the same first link, and a different second one.
        assert_eq!(held.holds(), Err(TokenDenied::Revoked));
        assert_eq!(format!("{child:?}"), "HeldToken { .. }");
    }
}
