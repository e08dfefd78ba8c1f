//! Tests of the grammar of caveats.

use proptest::prelude::*;

use super::*;

#[test]
fn each_caveat_has_one_spelling() {
    for text in [
        "host in api.github.com",
        "host in api.github.com *.example.com 10.0.0.1:8443 [2001:db8::1] localhost:80",
        "method in GET HEAD M-SEARCH",
        "path under /",
        "path under /repos/octo /user /a%20b/%7B",
        "credential in github aws/main",
        "credential in none",
        "credential none",
        "before 2026-12-01T00:00:00Z",
        "after 1970-01-01T00:00:00Z",
        "from 100.64.0.0/10 2001:db8::/32 10.0.0.1/32",
        "as spiffe://example.com/ns/x/sa/y",
        "policy in github/read guard.1",
        "budget requests 1000",
        "budget usd 5.00 per day",
        "once",
    ] {
        let caveat: Caveat = text.parse().unwrap();
        assert_eq!(caveat.to_string(), text);
    }
    assert_eq!(
        Caveat::Before(u64::MAX).to_string(),
        "before 9999-12-31T23:59:59Z"
    );
    let request = format!("request sha256:{}", "0a".repeat(32));
    assert_eq!(request.parse::<Caveat>().unwrap().to_string(), request);
}

#[test]
fn another_spelling_is_refused_and_the_one_is_told() {
    for (text, spelling) in [
        ("host in API.github.com", "host in api.github.com"),
        ("host in api.github.com.", "host in api.github.com"),
        ("host in api.github.com:443", "host in api.github.com"),
        ("host in bücher.example", "host in xn--bcher-kva.example"),
        ("host in 127.1", "host in 127.0.0.1"),
        ("host in 2001:DB8::1", "host in [2001:db8::1]"),
        ("path under /%61", "path under /a"),
        ("path under /a/../b", "path under /b"),
        ("path under /a%7b", "path under /a%7B"),
        (
            "before 2026-12-01T00:00:00.0Z",
            "before 2026-12-01T00:00:00Z",
        ),
        (
            "before 2026-12-01T01:00:00+01:00",
            "before 2026-12-01T00:00:00Z",
        ),
        ("before 2026-12-01t00:00:00z", "before 2026-12-01T00:00:00Z"),
        ("from 10.1.2.3/8", "from 10.0.0.0/8"),
        ("from 2001:DB8::/32", "from 2001:db8::/32"),
    ] {
        let refused = text.parse::<Caveat>().unwrap_err();
        assert_eq!(
            refused,
            CaveatMalformed::Spelling(spelling.to_owned()),
            "{text}"
        );
    }
}

#[test]
fn what_is_no_caveat_is_refused() {
    for text in [
        "",
        " ",
        "role = admin",
        "Host in a.test",
        "host",
        "host in",
        "host in ",
        "host  in a.test",
        " host in a.test",
        "host in  a.test",
        "host in a.test ",
        "host in a.test  b.test",
        "host in a.test\tb.test",
        "host in a.test\nmethod in GET",
        "host in a.test,b.test",
        "host in a.test\u{a0}b.test",
        "host in https://a.test",
        "host in a.test/b",
        "host in *",
        "host in *.com",
        "host in a.*.test",
        "host in a.test:0",
        "host in a.test:99999",
        "host = a.test",
        "host not in a.test",
        "method in get",
        "method in TRACE",
        "method in *",
        "method GET",
        "path under repos",
        "path under /a/",
        "path under //a",
        "path under /a//b",
        "path under /a?b",
        "path under /a;b",
        "path under /a%3Bb",
        "path under /a%2Fb",
        "path under /a/%2e%2e%2f",
        "path in /a",
        "credential",
        "credential in",
        "credential none github",
        "credential in a,b",
        "credential None",
        "before",
        "before 2026-12-01",
        "before tomorrow",
        "before 1969-12-31T23:59:59Z",
        "before 2026-13-01T00:00:00Z",
        "before > 2026-12-01T00:00:00Z",
        "before 2026-12-01T00:00:00Z 2027-12-01T00:00:00Z",
        "from",
        "from 10.0.0.1",
        "from 10.0.0.0/33",
        "from 10.0.0.0/8,11.0.0.0/8",
        "as",
        "as a b",
        "as a\u{7f}",
        "policy in",
        "policy in a b@c",
        "budget ",
        "budget  1",
        "budget requests 0",
        "budget requests 1.5",
        "budget requests 1 per year",
        "budget requests 1 per session",
        "budget apples 1",
        "budget usd 1e3",
        "request sha256:0a",
        "request 0a",
        "request sha256:zz",
        "once ",
        "Once",
        "ONCE",
    ] {
        assert!(text.parse::<Caveat>().is_err(), "{text:?}");
    }
    for text in [
        "host in a.test a.test",
        "method in GET GET",
        "from 10.0.0.0/8 10.0.0.0/8",
    ] {
        let refused = text.parse::<Caveat>().unwrap_err();
        assert!(matches!(refused, CaveatMalformed::Twice(_)), "{text}");
    }
    let many: Vec<String> = (0..65).map(|at| format!("M{at}")).collect();
    let most = format!("method in {}", many[1..].join(" "));
    assert!(most.parse::<Caveat>().is_ok());
    let many = format!("method in {}", many.join(" "));
    assert_eq!(many.parse::<Caveat>(), Err(CaveatMalformed::TooMany));
}

proptest! {
    #[test]
    fn what_parses_prints_alike(
        kind in "(host in|method in|path under|credential in|credential|before|after|from|as|policy in|budget|once)",
        rest in "( [a-zA-Z0-9*./:%\\[\\]-]{1,20}){0,3}",
    ) {
        let text = format!("{kind}{rest}");
        match text.parse::<Caveat>() {
            Ok(caveat) => prop_assert_eq!(caveat.to_string(), text),
            Err(CaveatMalformed::Spelling(spelling)) => {
                prop_assert_eq!(spelling.parse::<Caveat>().unwrap().to_string(), spelling);
            }
            Err(_) => {}
        }
    }
}
