//! `certificate`: a client certificate of a proxy's TLS, with a SPIFFE id or a common name.

use std::sync::Arc;

use arc_swap::ArcSwap;
use gateway_names::User;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;

use super::live_evidence::LiveEvidence;
use super::x509::CertificateHolder;
use crate::client_stream::ClientStream;
use crate::proxy_tls::{ProxyTls, now};

/// A verified client certificate. It holds for as long as its proxy would accept it again.
pub struct HeldCertificate {
    chain: Vec<CertificateDer<'static>>,
    /// The user that the certificate names.
    pub user: User,
    /// The group: the trust domain of a SPIFFE id.
    pub groups: Vec<Arc<str>>,
    ends: u64,
    door: Arc<ArcSwap<ProxyTls>>,
    /// The settings by which it was last verified.
    by: Mutex<Arc<ProxyTls>>,
}

impl HeldCertificate {
    /// Returns the certificate of a client, if it has presented one.
    ///
    /// # Errors
    /// Why it names no user.
    pub fn of(stream: &ClientStream) -> Option<Result<Self, &'static str>> {
        let ClientStream::Tls(stream) = stream else {
            return None;
        };
        let chain = stream.certificates()?;
        let read = CertificateHolder::read(chain.first()?).ok_or("its certificate is malformed");
        Some(read.and_then(|holder| {
            let (user, groups) = named(&holder)?;
            if !stream.by.is_of_domain(&groups) {
                return Err("its certificate is of another trust domain");
            }
            Ok(Self {
                ends: holder.ends,
                chain: chain.iter().map(|one| one.clone().into_owned()).collect(),
                user,
                groups,
                door: stream.door.clone(),
                by: Mutex::new(stream.by.clone()),
            })
        }))
    }

    /// Returns the names of its user and its groups.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let groups = self.groups.iter().map(|group| &**group);
        std::iter::once(self.user.as_str()).chain(groups)
    }
}

/// It is verified again once it expires, and whenever the proxy's settings change.
impl LiveEvidence for HeldCertificate {
    fn holds(&self) -> bool {
        let (door, mut by) = (self.door.load(), self.by.lock());
        if Arc::ptr_eq(&door, &by) && now() < self.ends {
            return true;
        }
        let holds = door.takes(&self.chain, &self.groups);
        if holds {
            by.clone_from(&door);
        }
        holds
    }
}

gateway_names::concealed!(HeldCertificate, user);

/// Returns the user and the groups of a certificate: its SPIFFE id, or its common name, spelled so
/// that it equals no other kind's user.
fn named(holder: &CertificateHolder<'_>) -> Result<(User, Vec<Arc<str>>), &'static str> {
    let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
    let unfit = "its certificate has a name that is none of a user";
    match (&holder.uris[..], &holder.common_names[..]) {
        ([uri], _) => {
            let id = text(uri);
            let domain = trust_domain(id).ok_or("the URI of its certificate is no SPIFFE id")?;
            let user = User::new(id).ok_or(unfit)?;
            Ok((user, vec![Arc::from(format!("spiffe://{domain}"))]))
        }
        ([], [name]) if !name.is_empty() => {
            let user = User::new(&format!("cn:{}", text(name))).ok_or(unfit)?;
            Ok((user, Vec::new()))
        }
        ([], _) => Err("its certificate has neither a SPIFFE id nor one common name"),
        _ => Err("its certificate has several URIs"),
    }
}

/// Returns the trust domain of a SPIFFE id of a workload (SPIFFE-ID §2).
fn trust_domain(id: &str) -> Option<&str> {
    let (domain, path) = id.strip_prefix("spiffe://")?.split_once('/')?;
    let is_other = |byte: u8| byte.is_ascii_digit() || b".-_".contains(&byte);
    let is_domain = |byte: u8| byte.is_ascii_lowercase() || is_other(byte);
    let is_segment = |segment: &str| {
        let is_letter = |byte: u8| byte.is_ascii_alphabetic() || is_other(byte);
        !matches!(segment, "" | "." | "..") && segment.bytes().all(is_letter)
    };
    let is_id = !domain.is_empty() && domain.bytes().all(is_domain);
    (is_id && path.split('/').all(is_segment)).then_some(domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_names_one_workload_or_one_common_name_and_nobody_in_doubt() {
        let named = |uris: &[&'static str], names: &[&'static str]| {
            let bytes = |all: &[&'static str]| all.iter().map(|one| one.as_bytes()).collect();
            let holder = CertificateHolder {
                uris: bytes(uris),
                common_names: bytes(names),
                ends: 0,
            };
            let (user, groups) = named(&holder).ok()?;
            Some((
                user.as_str().to_owned(),
                groups.first().map(ToString::to_string),
            ))
        };
        let of =
            |user: &str, group: Option<&str>| Some((user.to_owned(), group.map(str::to_owned)));
        let id = "spiffe://td-1.example_x/ns/a/sa/B.c";
        assert_eq!(
            named(&[id], &["x"]),
            of(id, Some("spiffe://td-1.example_x"))
        );
        assert_eq!(named(&[], &["agent-1"]), of("cn:agent-1", None));
        for (uris, names) in [
            (&[][..], &[][..]),
            (&[], &["a", "b"]),
            (&[], &[""]),
            (&[], &["uid:0 "]),
            (&[], &["a\"b"]),
            (&[], &["Zoë"]),
            (&[id, id], &["a"]),
            (&["https://td/a"], &["a"]),
            (&["spiffe://td"], &["a"]),
            (&["spiffe://td/"], &[]),
            (&["spiffe:///a"], &[]),
            (&["spiffe://TD/a"], &[]),
            (&["SPIFFE://td/a"], &[]),
            (&["spiffe://td:1/a"], &[]),
            (&["spiffe://u@td/a"], &[]),
            (&["spiffe://td/a?b"], &[]),
            (&["spiffe://td/a#b"], &[]),
            (&["spiffe://td/a//b"], &[]),
            (&["spiffe://td/a/./b"], &[]),
            (&["spiffe://td/a/../b"], &[]),
            (&["spiffe://td/a%2Fb"], &[]),
            (&["spiffe://td/a b"], &[]),
        ] {
            assert_eq!(named(uris, names), None, "{uris:?} {names:?}");
        }
    }
}
