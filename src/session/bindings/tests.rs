//! Refused bindings, and the places where credentials may appear.

use gateway_message::{Authority, OriginPattern, Scheme};

use super::super::binding::{MAX_PLACES, When};
use super::*;

fn binding(name: &str, origin: &str, place: &str) -> Binding {
    Binding {
        origins: vec![origin.parse().unwrap()],
        places: vec![place.parse().unwrap()],
        variables: vec![format!("{}_VAR", name.to_uppercase())],
        ..Binding::of(CredentialName::new(name).unwrap())
    }
}

fn load(bindings: Vec<Binding>) -> Result<Bindings, BindingMalformed> {
    Bindings::new(bindings)
}

#[test]
fn a_wildcard_matches_whole_labels_below_it_and_nothing_else() {
    let pattern: OriginPattern = "https://*.good.example".parse().unwrap();
    for (host, fits) in [
        ("a.good.example", true),
        ("a.b.good.example", true),
        ("good.example", false),
        ("evilgood.example", false),
        ("good.example.evil", false),
        ("x-good.example", false),
    ] {
        let authority = Authority {
            host: Host::parse(host.as_bytes()).unwrap(),
            port: 443,
        };
        let origin = Origin {
            scheme: Scheme::Https,
            authority,
        };
        assert_eq!(pattern.matches(&origin), fits, "{host}");
    }
    assert_eq!(pattern.to_string(), "https://*.good.example");
}

#[test]
fn weak_and_ambiguous_bindings_are_refused_at_load() {
    let ok = binding("one", "https://a.example", "header:x-api-key");
    assert!(load(vec![ok.clone()]).is_ok());
    let name = ok.credential.clone();
    assert_eq!(
        load(vec![binding("one", "http://a.example", "header:x-api-key")]).err(),
        Some(BindingMalformed::Cleartext(name.clone()))
    );
    assert!(
        load(vec![binding(
            "one",
            "http://127.0.0.1:8080",
            "header:x-api-key"
        )])
        .is_ok()
    );
    let always = Binding {
        when: When::Always,
        ..binding("one", "https://a.example", "path:/bot{}/")
    };
    for place in [
        "path:/bot{}/",
        "form:token",
        "json:/token",
        "multipart:token",
        "websocket:/token",
    ] {
        let places = vec![place.parse().unwrap()];
        let always = Binding {
            places: places.clone(),
            ..always.clone()
        };
        let refused = load(vec![always]).err();
        assert!(
            matches!(refused, Some(BindingMalformed::Phantomless(..))),
            "{place}"
        );
        let method = if place.starts_with("websocket") {
            Method::POST
        } else {
            Method::GET
        };
        let read = Binding {
            methods: vec![method, Method::HEAD],
            places,
            ..ok.clone()
        };
        let refused = matches!(load(vec![read]).err(), Some(BindingMalformed::Unmet(..)));
        assert_eq!(refused, !place.starts_with("path"), "{place}");
    }
    let two = ["websocket:/a", "websocket:/b"].map(|place| place.parse().unwrap());
    let twice = Binding {
        places: two.into(),
        ..ok.clone()
    };
    assert_eq!(
        load(vec![twice]).err(),
        Some(BindingMalformed::Messages(name.clone()))
    );
    assert_eq!(
        load(vec![ok.clone(), ok.clone()]).err(),
        Some(BindingMalformed::Twice(name.clone()))
    );
    let bare = Binding {
        places: vec![],
        ..ok.clone()
    };
    assert_eq!(
        load(vec![bare]).err(),
        Some(BindingMalformed::Empty(name.clone()))
    );
    let many = Binding {
        places: vec![Place::BasicUser; MAX_PLACES + 1],
        ..ok.clone()
    };
    assert_eq!(
        load(vec![many]).err(),
        Some(BindingMalformed::Places(name.clone()))
    );
    let basic = Binding {
        when: When::Always,
        places: vec![Place::BasicPassword],
        ..ok.clone()
    };
    assert_eq!(
        load(vec![basic]).err(),
        Some(BindingMalformed::BasicUser(name.clone()))
    );
    let path = Binding {
        paths: vec!["v1".into()],
        ..ok.clone()
    };
    assert_eq!(load(vec![path]).err(), Some(BindingMalformed::Path(name)));
}

#[test]
fn two_that_are_always_put_into_one_place_clash_unless_nothing_takes_both() {
    let always = |name: &str, origin: &str| Binding {
        when: When::Always,
        ..binding(name, origin, "header:authorization:Bearer")
    };
    let one = always("one", "https://*.a.example");
    assert!(matches!(
        load(vec![one.clone(), always("two", "https://x.a.example")]),
        Err(BindingMalformed::Clash(..))
    ));
    assert!(load(vec![one.clone(), always("two", "https://b.example")]).is_ok());
    let reads = Binding {
        methods: vec![Method::GET],
        ..one
    };
    let writes = Binding {
        methods: vec![Method::POST],
        ..always("two", "https://x.a.example")
    };
    assert!(load(vec![reads, writes]).is_ok());
}

#[test]
fn a_path_that_is_not_resolved_lies_below_nothing() {
    let mut narrow = binding("store", "https://good.example", "header:x-api-key");
    narrow.paths = vec!["/mine".into()];
    let bound = Bound::new(narrow, 0);
    for (path, lends) in [
        ("/mine/a", true),
        ("/mine/..a/.b", true),
        ("/mine/../yours", false),
        ("/mine/./a", false),
        ("/mine/..", false),
    ] {
        assert_eq!(bound.lends(&Method::GET, path), lends, "{path}");
    }
}

#[test]
fn a_path_takes_in_what_lies_below_it_segment_by_segment() {
    for (path, above, fits) in [
        ("/v1", "/v1", true),
        ("/v1/x", "/v1", true),
        ("/v1x", "/v1", false),
        ("/v1/", "/v1/", true),
        ("/v1", "/v1/", false),
        ("/anything", "/", true),
    ] {
        assert_eq!(is_below(path, above), fits, "{path} below {above}");
    }
}
