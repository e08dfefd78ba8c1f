//! Certificates as other programs see them: `openssl` and `python3` are required.

use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::super::mint::serial;
use super::*;

fn session() -> SessionId {
    SessionId::new("s-0123456789abcdef").unwrap()
}

fn host(text: &str) -> Host {
    Host::parse(text.as_bytes()).unwrap()
}

fn ca(constraints: Option<&[&str]>) -> SessionCa {
    let constraints = constraints.map(|list| list.iter().map(|text| host(text)).collect());
    SessionCa::new(
        &session(),
        &CaSettings {
            constraints,
            ..CaSettings::default()
        },
        Arc::new(|_| true),
    )
    .unwrap()
}

fn pem(der: &CertificateDer<'_>) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .map(|line| std::str::from_utf8(line).unwrap())
        .collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

struct Files {
    _folder: tempfile::TempDir,
    root: String,
    leaf: String,
}

fn files(ca: &SessionCa, leaf: &CertificateDer<'_>) -> Files {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (root, at) = (path("ca.pem"), path("leaf.pem"));
    std::fs::write(&root, ca.certificate_pem()).unwrap();
    std::fs::write(&at, pem(leaf)).unwrap();
    Files {
        _folder: folder,
        root,
        leaf: at,
    }
}

fn openssl(arguments: &[&str]) -> Output {
    Command::new("openssl")
        .args(arguments)
        .output()
        .expect("openssl is required by this test")
}

fn verify(ca: &SessionCa, leaf: &CertificateDer<'_>, name: &str) -> Output {
    let files = files(ca, leaf);
    let check = if host(name).ip().is_some() {
        "-verify_ip"
    } else {
        "-verify_hostname"
    };
    let arguments = [
        "verify",
        "-x509_strict",
        "-purpose",
        "sslserver",
        check,
        name,
        "-CAfile",
        &files.root,
        &files.leaf,
    ];
    openssl(&arguments)
}

fn text(der: &CertificateDer<'_>, ca: &SessionCa) -> String {
    let files = files(ca, der);
    let output = openssl(&["x509", "-in", &files.leaf, "-noout", "-text"]);
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

fn root_of(ca: &SessionCa) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(ca.certificate_pem().as_bytes()).unwrap()
}

fn long_name() -> String {
    format!(
        "{}.test",
        [
            "a".repeat(63),
            "b".repeat(63),
            "c".repeat(63),
            "d".repeat(50)
        ]
        .join(".")
    )
}

const NAMES: [&str; 6] = [
    "api.github.com",
    "xn--bcher-kva.example",
    "my_bucket.s3.example",
    "192.0.2.7",
    "2001:db8::7",
    "localhost",
];

#[test]
fn openssl_in_strict_mode_accepts_each_leaf_for_its_host_alone() {
    let ca = ca(None);
    for name in NAMES
        .iter()
        .map(|name| (*name).to_owned())
        .chain([long_name()])
    {
        let leaf = ca.leaf(&host(&name)).unwrap();
        let good = verify(&ca, &leaf.cert[0], &name);
        assert!(good.status.success(), "{name}: {good:?}");
        let other = if host(&name).ip().is_some() {
            "192.0.2.8"
        } else {
            "other.example"
        };
        assert!(
            !verify(&ca, &leaf.cert[0], other).status.success(),
            "{name}"
        );
    }
}

#[test]
fn openssl_accepts_what_the_name_constraints_permit() {
    let ca = ca(Some(&[
        "api.github.com",
        "example.com",
        "192.0.2.7",
        "2001:db8::7",
    ]));
    for name in [
        "api.github.com",
        "www.example.com",
        "192.0.2.7",
        "2001:db8::7",
    ] {
        let leaf = ca.leaf(&host(name)).unwrap();
        let output = verify(&ca, &leaf.cert[0], name);
        assert!(output.status.success(), "{name}: {output:?}");
    }
}

#[test]
fn openssl_refuses_what_the_name_constraints_do_not_permit() {
    // Minted without the mint's own check, as if that check had a bug.
    for (list, refused) in [
        (
            &["api.github.com"][..],
            &[
                "github.com",
                "evilapi.github.com",
                "192.0.2.7",
                "2001:db8::7",
            ][..],
        ),
        (&["192.0.2.7"][..], &["api.github.com"][..]),
        (&[][..], &["api.github.com", "192.0.2.7", "::1"][..]),
    ] {
        let settings = CaSettings {
            constraints: Some(list.iter().map(|name| host(name)).collect()),
            ..CaSettings::default()
        };
        let mint = Mint::new(&session(), &settings, None, OffsetDateTime::now_utc()).unwrap();
        for name in refused {
            let (leaf, _) = mint.leaf(&host(name), OffsetDateTime::now_utc()).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
            std::fs::write(path("ca.pem"), mint.root_pem()).unwrap();
            std::fs::write(path("leaf.pem"), pem(&leaf.cert[0])).unwrap();
            let output = openssl(&[
                "verify",
                "-x509_strict",
                "-CAfile",
                &path("ca.pem"),
                &path("leaf.pem"),
            ]);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(
                said.contains("subtree violation"),
                "{list:?} {name}: {said}"
            );
            assert!(!mint.covers(&host(name)), "{list:?} {name}");
        }
    }
}

#[test]
fn the_closed_list_is_asked_before_a_leaf_is_minted() {
    let ca = ca(Some(&["api.github.com", "192.0.2.7"]));
    for name in [
        "github.com",
        "evilapi.github.com",
        "com",
        "192.0.2.8",
        "2001:db8::7",
    ] {
        assert_eq!(
            ca.leaf(&host(name)).unwrap_err(),
            MintRefused::OutsideConstraints,
            "{name}"
        );
    }
    assert_eq!(ca.leaves(), (0, 0));
}

#[test]
fn the_ca_signs_leaves_only_and_lives_as_long_as_the_session() {
    let ca = ca(Some(&["api.github.com"]));
    let text = text(&root_of(&ca), &ca);
    for line in [
        "Subject: CN = gateway session s-0123456789abcdef",
        "X509v3 Basic Constraints: critical\n                CA:TRUE, pathlen:0",
        "X509v3 Key Usage: critical\n                Certificate Sign, CRL Sign",
        "TLS Web Server Authentication",
        "X509v3 Subject Key Identifier",
        "X509v3 Name Constraints: critical",
        "DNS:api.github.com",
        "ASN1 OID: prime256v1",
    ] {
        assert!(text.contains(line), "{line} not in {text}");
    }
}

#[test]
fn a_leaf_has_one_name_an_empty_subject_and_its_issuers_key_identifier() {
    let ca = ca(None);
    let leaf = ca.leaf(&host("api.github.com")).unwrap();
    let leaf = text(&leaf.cert[0], &ca);
    let root = text(&root_of(&ca), &ca);
    let after = |text: &str, title: &str| {
        text.split_once(title)
            .unwrap_or_else(|| panic!("{title} not in {text}"))
            .1
            .lines()
            .nth(1)
            .unwrap()
            .trim()
            .to_owned()
    };
    assert_eq!(
        after(&leaf, "X509v3 Subject Alternative Name: critical"),
        "DNS:api.github.com"
    );
    assert_eq!(
        after(&leaf, "X509v3 Authority Key Identifier:"),
        after(&root, "X509v3 Subject Key Identifier:")
    );
    assert_eq!(
        after(&leaf, "X509v3 Key Usage: critical"),
        "Digital Signature"
    );
    assert_eq!(
        after(&leaf, "X509v3 Extended Key Usage:"),
        "TLS Web Server Authentication"
    );
    assert_eq!(
        after(&leaf, "X509v3 Basic Constraints: critical"),
        "CA:FALSE"
    );
    assert!(leaf.contains("X509v3 Subject Key Identifier"));
    assert!(leaf.contains("Subject: \n"), "{leaf}");
}

#[test]
fn serial_numbers_are_positive_minimal_and_differ() {
    let mut seen = std::collections::HashSet::new();
    for _ in 0..1_000 {
        let serial = serial().unwrap().to_bytes();
        assert_eq!(serial.len(), 16);
        assert!((0x40..0x80).contains(&serial[0]));
        assert!(seen.insert(serial));
    }
}

fn validity(der: &CertificateDer<'_>, ca: &SessionCa) -> (OffsetDateTime, OffsetDateTime) {
    let files = files(ca, der);
    let at = |which: &str| {
        let output = openssl(&[
            "x509",
            "-in",
            &files.leaf,
            "-noout",
            which,
            "-dateopt",
            "iso_8601",
        ]);
        let text = String::from_utf8(output.stdout).unwrap();
        let date = text.trim().split_once('=').unwrap().1.replacen(' ', "T", 1);
        OffsetDateTime::parse(&date, &time::format_description::well_known::Rfc3339).unwrap()
    };
    (at("-startdate"), at("-enddate"))
}

#[test]
fn a_leaf_lives_at_most_seven_days_and_never_longer_than_its_ca() {
    let day = 24 * 3600;
    for (lifetime, longest) in [(3600, 3600), (day, day), (30 * day, 6 * day)] {
        let settings = CaSettings {
            lifetime: Duration::from_secs(lifetime),
            ..CaSettings::default()
        };
        let ca = SessionCa::new(&session(), &settings, Arc::new(|_| true)).unwrap();
        let now = OffsetDateTime::now_utc();
        let (root_from, root_to) = validity(&root_of(&ca), &ca);
        let (from, to) = validity(&ca.leaf(&host("a.test")).unwrap().cert[0], &ca);
        assert!(from >= root_from && to <= root_to, "{lifetime}");
        assert!(to - from <= time::Duration::days(7), "{lifetime}");
        assert!(
            now - from >= time::Duration::hours(23),
            "a client whose clock is late still accepts it"
        );
        assert!(
            (to - now - time::Duration::seconds(longest.try_into().unwrap())).abs()
                < time::Duration::minutes(1)
        );
    }
}

#[test]
fn a_lifetime_out_of_range_is_refused() {
    for seconds in [0, 199 * 24 * 3600 + 1, u64::MAX / 4] {
        let settings = CaSettings {
            lifetime: Duration::from_secs(seconds),
            ..CaSettings::default()
        };
        let made = SessionCa::new(&session(), &settings, Arc::new(|_| true));
        assert!(matches!(made, Err(CaError::Lifetime)), "{seconds}");
    }
}

#[test]
fn an_expired_ca_mints_nothing_and_an_old_leaf_is_renewed() {
    let settings = CaSettings {
        lifetime: Duration::from_secs(30 * 24 * 3600),
        ..CaSettings::default()
    };
    let now = OffsetDateTime::now_utc();
    let mint = Mint::new(&session(), &settings, None, now).unwrap();
    let (_, renew_at) = mint.leaf(&host("a.test"), now).unwrap();
    assert!(renew_at > now + time::Duration::days(2) && renew_at < now + time::Duration::days(4));
    let ended = mint.leaf(&host("a.test"), now + time::Duration::days(3650));
    assert!(matches!(ended, Err(MintRefused::Ended)));
}

fn again(kept: &KeptCa) -> SessionCa {
    SessionCa::again(
        &session(),
        &CaSettings::default(),
        Some(kept),
        Arc::new(|_| true),
    )
    .unwrap()
}

#[test]
fn a_kept_ca_is_the_same_one_in_another_process() {
    let first = ca(None);
    let second = again(&first.keep().unwrap());
    assert_eq!(first.certificate_pem(), second.certificate_pem());
    let leaf = second.leaf(&host("a.test")).unwrap();
    let good = verify(&first, &leaf.cert[0], "a.test");
    assert!(good.status.success(), "{good:?}");
    assert_eq!(format!("{:?}", first.keep().unwrap()), "KeptCa { .. }");
    let broken = KeptCa {
        key: zeroize::Zeroizing::new(b"no key".to_vec()),
        ..first.keep().unwrap()
    };
    let settings = CaSettings::default();
    let made = SessionCa::again(&session(), &settings, Some(&broken), Arc::new(|_| true));
    assert!(matches!(made, Err(CaError::Kept)));
}

#[test]
fn a_certificate_half_way_to_its_end_is_replaced_and_clients_with_either_go_on() {
    let first = ca(None);
    let kept = first.keep().unwrap();
    let year = 365 * 24 * 3600;
    let old = KeptCa {
        from: kept.from - 6 * year,
        to: kept.to - 6 * year,
        ..kept
    };
    let second = again(&old);
    assert_ne!(first.certificate_pem(), second.certificate_pem());
    let leaf = second.leaf(&host("a.test")).unwrap();
    for trusted in [&first, &second] {
        let good = verify(trusted, &leaf.cert[0], "a.test");
        assert!(good.status.success(), "{good:?}");
    }
}

#[test]
fn for_a_year_every_handshake_gets_a_leaf_that_clients_accept_for_some_time() {
    let settings = CaSettings {
        lifetime: Duration::from_secs(60),
        ..CaSettings::default()
    };
    let begun = OffsetDateTime::now_utc();
    let mint = Mint::new(&session(), &settings, None, begun).unwrap();
    let leaves = Leaves::new(mint, &settings, Arc::new(|_| true));
    let (tick, mut minted) = (std::time::Instant::now(), 0);
    for hour in 0..365 * 24 {
        let now = begun + time::Duration::hours(hour);
        let at = tick + Duration::from_secs(hour.unsigned_abs() * 3600);
        let leaf = leaves.leaf_at(&host("a.test"), now, at).unwrap();
        let soon = leaves.leaf_at(&host("a.test"), now + time::Duration::seconds(20), at);
        assert!(
            Arc::ptr_eq(&leaf, &soon.unwrap()),
            "a leaf is kept for half of its life"
        );
        minted += 1;
    }
    assert_eq!(leaves.counted(), (1, minted));
    // The clock is set back by a year: no client may see a leaf that is not valid yet.
    let later = tick + Duration::from_secs(366 * 24 * 3600);
    leaves.leaf_at(&host("a.test"), begun, later).unwrap();
    assert_eq!(leaves.counted(), (1, minted + 1));
}

#[test]
fn a_host_that_policy_reaches_no_more_gets_a_leaf_of_the_other_budget() {
    let permitted = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&permitted);
    let ca = SessionCa::new(
        &session(),
        &CaSettings::default(),
        Arc::new(move |_| asked.load(Ordering::SeqCst)),
    )
    .unwrap();
    let first = ca.leaf(&host("a.test")).unwrap();
    let again = ca.leaf(&host("a.test")).unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    permitted.store(false, Ordering::SeqCst);
    let refusing = ca.leaf(&host("a.test")).unwrap();
    assert!(!Arc::ptr_eq(&first, &refusing));
    assert_eq!(ca.leaves(), (2, 2));
}

#[test]
fn a_flood_of_names_is_throttled_and_the_kept_ones_still_work() {
    let settings = CaSettings {
        leaves_kept: 8,
        mint_burst: 16,
        mint_per_second: 1,
        ..CaSettings::default()
    };
    let ca = SessionCa::new(&session(), &settings, Arc::new(|_| true)).unwrap();
    let minted = (0..1_000)
        .filter(|n| ca.leaf(&host(&format!("h{n}.test"))).is_ok())
        .count();
    assert!((16..20).contains(&minted), "{minted}");
    assert_eq!(ca.leaves().0, 8);
    assert_eq!(
        ca.leaf(&host("new.test")).unwrap_err(),
        MintRefused::Throttled
    );
    assert!(ca.leaf(&host("h15.test")).is_ok());
}

#[test]
fn two_sessions_share_no_ca_and_trust_no_leaf_of_the_other() {
    let (one, two) = (ca(None), ca(None));
    let leaf = one.leaf(&host("a.test")).unwrap();
    let output = verify(&two, &leaf.cert[0], "a.test");
    assert!(!output.status.success());
    assert_ne!(one.certificate_pem(), two.certificate_pem());
}

#[test]
fn debug_shows_no_key() {
    let ca = ca(None);
    assert_eq!(format!("{ca:?}"), "SessionCa { .. }");
    assert_eq!(
        format!("{:?}", ca.leaf(&host("a.test")).unwrap().key),
        "Key(P-256)"
    );
}
