//! Tests of verifying tokens and judging by them.

use std::net::IpAddr;

use gateway_message::{EncodedSlash, Host, RequestTarget};
use http::Method;
use libmacaroon::{Macaroon, MacaroonKey};
use proptest::prelude::*;

use super::super::format::{Token, attenuate, inspect};
use super::*;

const KEY: [u8; 32] = [7; 32];
const NOW: u64 = 1_800_000_000;
const END: &str = "before 2027-02-01T00:00:00Z";

fn session() -> SessionId {
    SessionId::new("agent-1").unwrap()
}

fn key() -> TokenKey {
    TokenKey::derive(&KEY, 3, &session())
}

fn keys(number: u8, session: &SessionId) -> Option<TokenKey> {
    (number == 3).then(|| TokenKey::derive(&KEY, number, session))
}

fn caveats(texts: &[&str]) -> Vec<Caveat> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn minted(texts: &[&str]) -> Token {
    key().mint([9; 12], &caveats(texts)).unwrap()
}

fn narrowed(token: &Token, text: &str) -> Token {
    attenuate(token.as_str(), &caveats(&[text])).unwrap()
}

fn checked(token: &Token) -> VerifiedToken {
    verify(token.as_str(), keys).unwrap()
}

fn door<'a>(evidence: &'a [&'a str]) -> ConnectionEvidence<'a> {
    let peer: Option<IpAddr> = Some("::ffff:10.1.2.3".parse().unwrap());
    ConnectionEvidence {
        peer,
        evidence,
        now: NOW,
    }
}

/// A request in words: method, host and port, path, credentials, policies.
#[derive(Debug, Clone)]
struct Asked(
    &'static str,
    &'static str,
    u16,
    &'static str,
    Vec<CredentialName>,
    Vec<PolicyId>,
);

fn asked(
    (method, host, port, path): (&'static str, &'static str, u16, &'static str),
    credentials: &[&str],
    policies: &[&str],
) -> Asked {
    let credentials = credentials
        .iter()
        .map(|name| CredentialName::new(name).unwrap());
    let policies = policies.iter().map(|name| PolicyId::new(name).unwrap());
    Asked(
        method,
        host,
        port,
        path,
        credentials.collect(),
        policies.collect(),
    )
}

fn judged(token: &VerifiedToken, asked: &Asked) -> Result<(), CaveatDenied> {
    let Asked(method, host, port, path, credentials, policies) = asked;
    token.allows(&TokenUse {
        host: &Host::parse(host.as_bytes()).unwrap(),
        port: *port,
        method: &Method::from_bytes(method.as_bytes()).unwrap(),
        path,
        named: &[],
        is_batch: false,
        credentials: credentials.iter(),
        policies: policies.iter(),
        now: NOW,
    })
}

fn usual() -> Asked {
    let request = ("GET", "api.github.com", 443, "/repos/octo/one");
    asked(request, &["github"], &["github/read"])
}

#[test]
fn each_caveat_allows_what_it_names_and_nothing_else() {
    use CaveatDenied as No;
    for (caveat, denied) in [
        ("host in api.github.com", None),
        ("host in *.github.com:8443 *.github.com", None),
        ("host in github.com", Some(No::Host)),
        ("host in *.api.github.com", Some(No::Host)),
        ("host in i.github.com", Some(No::Host)),
        ("host in api.github.com:8443", Some(No::Host)),
        ("method in HEAD GET", None),
        ("method in HEAD POST", Some(No::Method)),
        ("path under /repos/octo /user", None),
        ("path under /repos/octo/one", None),
        ("path under /", None),
        ("path under /repos/oct", Some(No::Path)),
        ("path under /repos/octo/one/two", Some(No::Path)),
        ("path under /Repos", Some(No::Path)),
        ("credential in github other", None),
        ("credential in other", Some(No::Credential)),
        ("credential none", Some(No::Credential)),
        ("policy in github/read github/write", None),
        ("policy in github/write", Some(No::Policy)),
        ("after 2027-01-15T08:00:00Z", None),
        ("after 2027-01-15T08:00:01Z", Some(No::After)),
        ("before 2027-01-15T08:00:01Z", None),
        ("before 2027-01-15T08:00:00Z", Some(No::Before)),
        ("budget requests 1000", None),
        ("once", None),
        // What the connection shows was judged with it.
        ("from 192.0.2.0/24", None),
        ("as tag:ci", None),
    ] {
        let token = checked(&minted(&[END, caveat]));
        assert_eq!(judged(&token, &usual()).err(), denied, "{caveat}");
    }
}

#[test]
fn all_that_a_request_uses_must_be_among_what_is_named() {
    let at = ("GET", "a.test", 443, "/");
    for (caveat, credentials, policies, holds) in [
        ("credential in a b", &["a", "b"][..], &[][..], true),
        ("credential in a b", &["a", "c"], &[], false),
        ("credential in a b", &[], &[], true),
        ("credential none", &[], &[], true),
        ("policy in a b", &[], &["b", "a"], true),
        ("policy in a b", &[], &["a", "c"], false),
        ("policy in a b", &[], &[], false),
    ] {
        let token = checked(&minted(&[END, caveat]));
        let found = judged(&token, &asked(at, credentials, policies));
        assert_eq!(
            found.is_ok(),
            holds,
            "{caveat} {credentials:?} {policies:?}"
        );
    }
}

#[test]
fn a_path_that_some_server_reads_as_another_is_not_below() {
    let token = checked(&minted(&[END, "path under /repos/octo"]));
    for (path, holds) in [
        ("/repos/octo", true),
        ("/repos/octo/", true),
        ("/repos/octo/.github", true),
        ("/repos/octo/a..b", true),
        ("/repos/octopus", false),
        ("/repos//octo", false),
        ("//repos/octo", false),
        ("/repos%2Focto", false),
        ("/repos;a=b/octo", false),
        ("/repos/octo;a=b", false),
        ("/repos/octo/../other", false),
        ("/repos/octo/..;a/other", false),
        ("/repos/octo/.", false),
    ] {
        let found = judged(&token, &asked(("GET", "a.test", 443, path), &[], &[]));
        assert_eq!(found.is_ok(), holds, "{path}");
    }
}

#[test]
fn a_batch_is_for_no_token_of_some_methods_or_paths() {
    let Asked(_, host, port, ..) = usual();
    for (caveat, denied) in [
        ("method in POST", Some(CaveatDenied::Batch)),
        ("path under /", Some(CaveatDenied::Batch)),
        ("host in api.github.com", None),
        ("credential none", None),
    ] {
        let found = checked(&minted(&[END, caveat])).allows(&TokenUse {
            host: &Host::parse(host.as_bytes()).unwrap(),
            port,
            method: &Method::POST,
            path: "/_bulk",
            named: &[],
            is_batch: true,
            credentials: [].iter(),
            policies: [].iter(),
            now: NOW,
        });
        assert_eq!(found.err(), denied, "{caveat}");
    }
}

#[test]
fn each_path_that_a_request_names_is_below() {
    let token = checked(&minted(&[END, "path under /mine /shared"]));
    let target = |path: &str| RequestTarget::parse(path.as_bytes(), EncodedSlash::Refuse).ok();
    let Asked(_, host, port, ..) = usual();
    for (named, holds) in [
        (vec![], true),
        (vec![target("/mine/one")], true),
        (vec![target("/mine/one"), target("/shared")], true),
        (vec![target("/mine/one"), target("/others/secret")], false),
        (vec![target("/mines")], false),
        (vec![None], false),
    ] {
        let found = token.allows(&TokenUse {
            host: &Host::parse(host.as_bytes()).unwrap(),
            port,
            method: &Method::PUT,
            path: "/mine/x",
            named: &named,
            is_batch: false,
            credentials: [].iter(),
            policies: [].iter(),
            now: NOW,
        });
        assert_eq!(found.is_ok(), holds, "{named:?}");
    }
}

#[test]
fn a_connection_is_judged_by_when_from_where_and_what_stands_beside() {
    use CaveatDenied as No;
    for (caveats, denied) in [
        (&[END][..], None),
        (&[END, "from 10.0.0.0/8"], None),
        (&[END, "from 192.0.2.0/24 10.1.0.0/16"], None),
        (&[END, "from 192.0.2.0/24"], Some(No::From)),
        (&[END, "from ::/0"], Some(No::From)),
        (&[END, "as tag:ci"], None),
        (&[END, "as tag:ci", "as alice@example.com"], None),
        (&[END, "as tag:c"], Some(No::As)),
        (&[END, "once"], None),
        (&[END, "once", "once", "once", "once"], None),
        (
            &[END, "once", "once", "once", "once", "once"],
            Some(No::TooMany),
        ),
        (&[END, "budget usd 5.00 per day"], None),
        (&[END, "after 2027-01-15T08:00:01Z"], Some(No::After)),
        (&[END, "before 2027-01-15T08:00:00Z"], Some(No::Before)),
        (&[], Some(No::Endless)),
        (&["before 2029-01-01T00:00:00Z"], Some(No::Endless)),
        (&["before 2029-01-01T00:00:00Z", END], None),
    ] {
        let token = checked(&minted(caveats));
        let found = token.at_connection(&door(&["alice@example.com", "tag:ci"]));
        assert_eq!(found.err(), denied, "{caveats:?}");
    }
    let token = checked(&minted(&[END, "from 0.0.0.0/0"]));
    let nowhere = ConnectionEvidence {
        peer: None,
        evidence: &[],
        now: NOW,
    };
    assert_eq!(token.at_connection(&nowhere), Err(No::From));
}

#[test]
fn a_token_of_another_key_session_or_form_is_none_of_ours() {
    let token = minted(&[END]);
    let text = token.as_str();
    assert_eq!(checked(&token).session(), &session());
    let other = |number: u8, name: &str, key: [u8; 32]| {
        TokenKey::derive(&key, number, &SessionId::new(name).unwrap())
    };
    for key in [other(3, "agent-2", KEY), other(3, "agent-1", [8; 32])] {
        assert_eq!(
            verify(text, |_, _| Some(key)).unwrap_err(),
            TokenRefused::NotOurs
        );
    }
    assert_eq!(
        verify(text, |_, _| None).unwrap_err(),
        TokenRefused::NotOurs
    );
    // The key that stands for none makes no token.
    let nobodys = MacaroonKey::from([0; 32]);
    let identifier = super::super::format::identifier(3, &session(), [9; 12]);
    let forged = Macaroon::create(Some(""), &nobodys, identifier).unwrap();
    let forged = forged.serialize(libmacaroon::Format::V2).unwrap();
    let forged = format!("gwt1_{}", forged.trim_end_matches('='));
    assert_eq!(
        verify(&forged, |_, _| None).unwrap_err(),
        TokenRefused::NotOurs
    );
    // Who knows one session's token makes none for another.
    let stolen = other(3, "agent-2", KEY)
        .mint([9; 12], &caveats(&[END]))
        .unwrap();
    let one_key = |_: u8, _: &SessionId| Some(key());
    assert!(verify(stolen.as_str(), one_key).is_err());

    let root = MacaroonKey::from(*key().root());
    let identifier = super::super::format::identifier(3, &session(), [9; 12]);
    let plain = Macaroon::create(Some(""), &root, &identifier).unwrap();
    let text_of = |macaroon: &Macaroon, format| {
        format!(
            "gwt1_{}",
            macaroon.serialize(format).unwrap().trim_end_matches('=')
        )
    };
    let v2 = text_of(&plain, libmacaroon::Format::V2);
    assert!(verify(&v2, keys).is_ok());
    let located = Macaroon::create(Some("a.test"), &root, &identifier).unwrap();
    let nowhere = Macaroon::create(None, &root, &identifier).unwrap();
    let mut third = plain.clone();
    third.add_third_party_caveat("a.test", &root, "id").unwrap();
    let short = Macaroon::create(Some(""), &root, &identifier[..13]).unwrap();
    let version = Macaroon::create(Some(""), &root, [&[2], &identifier[1..]].concat()).unwrap();
    let body = &v2["gwt1_".len()..];
    let mut all = (0..=255).map(|random| key().mint([random; 12], &[]).unwrap());
    let both = all.find(|token| token.as_str()[5..].contains('_') && token.as_str().contains('-'));
    let both = both.unwrap();
    assert!(verify(both.as_str(), keys).is_ok());
    for text in [
        text_of(&plain, libmacaroon::Format::V1),
        text_of(&located, libmacaroon::Format::V2),
        text_of(&nowhere, libmacaroon::Format::V2),
        text_of(&third, libmacaroon::Format::V2),
        text_of(&short, libmacaroon::Format::V2),
        text_of(&version, libmacaroon::Format::V2),
        body.to_owned(),
        format!("GWT1_{body}"),
        format!("gwt1_ {body}"),
        format!("{v2}="),
        format!("{v2}\n"),
        format!("{v2}A"),
        format!(
            "gwt1_{}",
            both.as_str()[5..].replace('-', "+").replace('_', "/")
        ),
        "gwt1_{\"v\":2}".to_owned(),
        "gwt1_".to_owned(),
        String::new(),
        format!("gwt1_{}", "A".repeat(1 << 20)),
    ] {
        assert_eq!(verify(&text, keys).unwrap_err(), TokenRefused::NotOurs);
        assert!(inspect(&text).is_err());
        assert!(attenuate(&text, &[]).is_err());
    }
}

#[test]
fn a_caveat_that_is_none_is_refused_once_the_mac_is_right() {
    let root = MacaroonKey::from(*key().root());
    let identifier = super::super::format::identifier(3, &session(), [9; 12]);
    for predicate in [
        "role = admin",
        "host in A.test",
        "before 2026-12-01",
        "a\nb",
        "\u{1b}[31m",
    ] {
        let mut macaroon = Macaroon::create(Some(""), &root, &identifier).unwrap();
        macaroon.add_first_party_caveat(predicate).unwrap();
        let encoded = macaroon.serialize(libmacaroon::Format::V2).unwrap();
        let text = format!("gwt1_{}", encoded.trim_end_matches('='));
        let refused = verify(&text, keys).unwrap_err();
        let said = refused.to_string();
        assert!(matches!(refused, TokenRefused::Caveat(..)), "{predicate}");
        assert!(!said.contains(char::is_control), "{said}");
        let other = |_: u8, _: &SessionId| Some(TokenKey::derive(&[8; 32], 3, &session()));
        assert_eq!(verify(&text, other).unwrap_err(), TokenRefused::NotOurs);
        assert!(attenuate(&text, &[]).is_err(), "{predicate}");
    }
}

#[test]
fn a_token_has_bounds() {
    let once = caveats(&["once"]);
    let full = key().mint([9; 12], &vec![once[0].clone(); 64]).unwrap();
    assert!(verify(full.as_str(), keys).is_ok());
    let more = key().mint([9; 12], &vec![once[0].clone(); 65]).err();
    assert_eq!(more, Some(TokenMalformed::TooManyCaveats));
    assert_eq!(
        attenuate(full.as_str(), &once).err(),
        Some(TokenMalformed::TooManyCaveats)
    );
    let long = caveats(&[&format!("as {}", "a".repeat(255))]);
    assert!(key().mint([9; 12], &vec![long[0].clone(); 11]).is_ok());
    let longer = key().mint([9; 12], &vec![long[0].clone(); 12]).err();
    assert_eq!(longer, Some(TokenMalformed::TooLong));
}

#[test]
fn what_is_inside_is_read_without_a_key() {
    let token = minted(&[END, "method in GET"]);
    let inside = inspect(token.as_str()).unwrap();
    assert_eq!((inside.key, &inside.session), (3, &session()));
    assert_eq!(inside.caveats[..], caveats(&[END, "method in GET"]));
    assert_eq!(Some(&inside.id), checked(&token).prefixes.last());
    assert_eq!(PrefixId::named(&inside.id.to_string()), Some(inside.id));
    for text in [
        "",
        "0",
        &"g".repeat(32),
        &"A".repeat(32),
        &format!("+{}", "a".repeat(31)),
    ] {
        assert_eq!(PrefixId::named(text), None, "{text}");
    }
}

#[test]
fn what_was_derived_falls_with_what_it_was_derived_from() {
    let parent = minted(&[END]);
    let child = narrowed(&parent, "method in GET");
    let sibling = narrowed(&parent, "method in PUT");
    let grandchild = narrowed(&child, "path under /a");
    let stranger = key().mint([8; 12], &caveats(&[END])).unwrap();
    let tokens = [parent, child, grandchild, sibling, stranger].map(|token| checked(&token));
    let root = tokens[0].prefixes[0];
    let own = |at: usize| *tokens[at].prefixes.last().unwrap();
    for (revoked, fall) in [
        (root, [true, true, true, true, false]),
        (own(0), [true, true, true, true, false]),
        (own(1), [false, true, true, false, false]),
        (own(2), [false, false, true, false, false]),
        (own(3), [false, false, false, true, false]),
        (own(4), [false, false, false, false, true]),
    ] {
        let found: Vec<bool> = tokens
            .iter()
            .map(|token| token.is_revoked(&|id: &PrefixId| *id == revoked))
            .collect();
        assert_eq!(found, fall);
    }
}

#[test]
fn every_change_of_a_byte_is_refused() {
    let token = minted(&[END, "host in *.example.com", "method in GET"]);
    let text = token.as_str();
    for at in 0..text.len() {
        for byte in (0..0x80_u8).filter(|byte| *byte != text.as_bytes()[at]) {
            let mut changed = text.as_bytes().to_vec();
            changed[at] = byte;
            let changed = String::from_utf8(changed).unwrap();
            let refused = verify(&changed, keys).unwrap_err();
            assert_eq!(refused, TokenRefused::NotOurs, "{at} {byte}");
        }
        assert!(verify(&text[..at], keys).is_err());
    }
}

fn a_caveat() -> impl Strategy<Value = &'static str> {
    prop::sample::select(
        &[
            "host in api.github.com",
            "host in *.github.com a.test",
            "host in a.test:8443",
            "method in GET HEAD",
            "method in POST",
            "path under /repos /user",
            "path under /repos/octo",
            "credential in github",
            "credential none",
            "before 2027-01-16T00:00:00Z",
            "before 2020-01-01T00:00:00Z",
            "after 2026-01-01T00:00:00Z",
            "from 10.0.0.0/8",
            "as tag:ci",
            "policy in github/read",
            "once",
        ][..],
    )
}

fn a_request() -> impl Strategy<Value = Asked> {
    let from = prop::sample::select::<&'static str>;
    let parts = (
        from(&["GET", "POST"][..]),
        from(&["api.github.com", "a.test"][..]),
        prop::sample::select(&[443_u16, 8443][..]),
        from(&["/", "/repos", "/repos/octo/one", "/user"][..]),
    );
    let lent = prop::sample::select(vec![&[][..], &["github"], &["github", "other"]]);
    let policies = prop::sample::select(vec![&["github/read"][..], &["github/read", "other"]]);
    (parts, lent, policies).prop_map(|(parts, lent, policies)| asked(parts, lent, policies))
}

proptest! {
    #[test]
    fn a_caveat_never_allows_more_in_whatever_order(
        added in prop::collection::vec(a_caveat(), 0..6),
        request in a_request(),
        seed in any::<prop::sample::Index>(),
    ) {
        let allowed = |token: &Token| {
            let token = checked(token);
            token.at_connection(&door(&["tag:ci"])).is_ok() && judged(&token, &request).is_ok()
        };
        let mut token = minted(&[END]);
        let mut before = allowed(&token);
        for caveat in &added {
            token = narrowed(&token, caveat);
            let now = allowed(&token);
            prop_assert!(before || !now);
            before = now;
        }
        let mut turned = added.clone();
        if !turned.is_empty() {
            turned.rotate_left(seed.index(added.len()));
            turned.reverse();
        }
        let turned = turned.iter().fold(minted(&[END]), |token, caveat| narrowed(&token, caveat));
        prop_assert_eq!(allowed(&turned), before);
        // What all allow, each allows.
        let each = added.iter().all(|caveat| allowed(&minted(&[END, caveat])));
        prop_assert_eq!(each && allowed(&minted(&[END])), before);
    }

    #[test]
    fn a_token_that_is_written_is_read_and_written_again_alike(
        random: [u8; 12], added in prop::collection::vec(a_caveat(), 0..20),
    ) {
        let added = caveats(&added);
        let token = key().mint(random, &added).unwrap();
        let inside = inspect(token.as_str()).unwrap();
        prop_assert_eq!((inside.key, &inside.session), (3, &session()));
        prop_assert_eq!(&inside.caveats[..], &added[..]);
        let (first, behind) = added.split_at(added.len() / 2);
        let first = key().mint(random, first).unwrap();
        let narrowed = attenuate(first.as_str(), behind).unwrap();
        prop_assert_eq!(narrowed.as_str(), token.as_str());
    }

    #[test]
    fn no_text_makes_the_reader_fail(text in "(gwt1_)?[A-Za-z0-9_=+/{-]{0,200}") {
        prop_assert!(verify(&text, keys).is_err());
    }
}
