//! The hosts that policies can reach.

use gateway_names::User;

use super::*;
use crate::Requester;

#[test]
fn the_reachable_hosts_are_a_closed_list_or_none() {
    let closed = r#"
        permit(principal, action, resource == Gateway::Host::"a.example.com");
        permit(principal, action == Gateway::Action::"GET", resource in Gateway::Domain::"b.example");
        permit(principal, action == Gateway::Action::"lend", resource);
        forbid(principal, action, resource);"#;
    let scopes = policies(closed).current().hosts().unwrap();
    assert_eq!(
        scopes,
        [
            HostScope::Host("a.example.com".into()),
            HostScope::Domain("b.example".into())
        ]
    );
    assert_eq!(
        policies("permit(principal, action, resource);")
            .current()
            .hosts(),
        None
    );
}

fn asker(session: &str, groups: &[&str]) -> Requester {
    Requester {
        session: SessionId::new(session).unwrap(),
        user: None,
        groups: groups.iter().map(|group| Arc::from(*group)).collect(),
    }
}

#[test]
fn an_unconditional_forbid_takes_a_name_back() {
    let text = r#"
        permit(principal in Gateway::Group::"ci", action, resource in Gateway::Domain::"b.example");
        forbid(principal, action, resource == Gateway::Host::"x.b.example");
        forbid(principal, action, resource) when { context.port == 22 };"#;
    let generation = policies(text).current();
    let may = |groups: &[&str], host: &str| {
        let asker = asker("s", groups);
        generation.may_resolve(asker.principal(), &host.parse().unwrap())
    };
    assert!(may(&["ci"], "a.b.example"));
    assert!(!may(&[], "a.b.example"));
    assert!(!may(&["ci"], "x.b.example"));
}

#[test]
fn a_change_of_groups_is_another_slice() {
    let generation = policies(
        r#"permit(principal in Gateway::Group::"ci", action, resource) when { context.secure };"#,
    )
    .current();
    let inside = OwnedFacts {
        groups: vec!["ci".into(), "ci".into()],
        ..owned()
    };
    for _ in 0..2 {
        assert!(generation.ask(&inside.facts()).allowed());
        assert!(!generation.ask(&owned().facts()).allowed());
    }
}

// ── Against Cedar with the whole set ──

#[test]
fn the_hosts_of_a_session_are_those_of_its_own_permits() {
    let text = "permit(principal == Gateway::Session::\"a\", action, resource in Gateway::Domain::\"corp.example\");
        permit(principal == Gateway::Session::\"b\", action, resource == Gateway::Host::\"secret.corp.example\");
        permit(principal == Gateway::Session::\"c\", action, resource);
        permit(principal in Gateway::Group::\"g\", action, resource == Gateway::Host::\"g.example\");
        permit(principal in Gateway::User::\"u\", action, resource == Gateway::Host::\"u.example\");";
    let generation = policies(text).current();
    let of =
        |session: &str, groups: &[&str]| generation.hosts_of(asker(session, groups).principal());
    let domain = HostScope::Domain("corp.example".into());
    let group = HostScope::Host("g.example".into());
    assert_eq!(of("a", &[]), Some(vec![domain.clone()]));
    assert_eq!(of("a", &["g"]), Some(vec![group, domain]));
    assert_eq!(of("c", &[]), None);
    let user = User::new("u");
    let of_user = Requester {
        user,
        ..asker("d", &[])
    };
    let own = HostScope::Host("u.example".into());
    assert_eq!(generation.hosts_of(of_user.principal()), Some(vec![own]));
    assert_eq!(of("d", &[]), Some(Vec::new()));
}
