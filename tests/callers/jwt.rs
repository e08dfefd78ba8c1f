//! Proxies that take the JWTs of an issuer.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA512, RSA_PSS_SHA384, RsaEncoding,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::program::{Program, gateway};
use super::{
    CLOSE, TUNNELLED, asked, breaks_off, connected, listener, send, send_all, stream, text,
};
use super::{mint, tunnelled};

const ISSUER: &str = "https://issuer.test";

/// The private keys of an issuer, each with its `kid`.
struct Keys {
    rsa: RsaKeyPair,
    p256: EcdsaKeyPair,
    p384: EcdsaKeyPair,
    ed: Ed25519KeyPair,
}

impl Keys {
    fn new() -> Self {
        Self {
            rsa: RsaKeyPair::generate(KeySize::Rsa2048).unwrap(),
            p256: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(),
            p384: EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap(),
            ed: Ed25519KeyPair::generate().unwrap(),
        }
    }

    /// What it publishes, with a key of encryption and one of an unknown kind.
    fn published(&self) -> String {
        let public = self.rsa.public_key();
        let (n, e) = (public.modulus(), public.exponent());
        let point = |key: &EcdsaKeyPair| {
            let point = key.public_key().as_ref()[1..].to_vec();
            let (x, y) = point.split_at(point.len() / 2);
            (code(x), code(y))
        };
        let ((x1, y1), (x2, y2)) = (point(&self.p256), point(&self.p384));
        let (n, e) = (
            code(n.big_endian_without_leading_zero()),
            code(e.big_endian_without_leading_zero()),
        );
        let keys = json!({"keys": [
            {"kty": "RSA", "kid": "rsa", "use": "sig", "n": n, "e": e},
            {"kty": "RSA", "kid": "only", "use": "sig", "alg": "RS256", "n": n, "e": e},
            {"kty": "RSA", "kid": "enc", "use": "enc", "n": n, "e": e},
            {"kty": "EC", "kid": "p256", "crv": "P-256", "x": x1, "y": y1},
            {"kty": "EC", "kid": "p384", "crv": "P-384", "x": x2, "y": y2},
            {"kty": "OKP", "kid": "ed", "crv": "Ed25519", "x": code(self.ed.public_key().as_ref())},
            {"kty": "oct", "kid": "oct", "k": code(b"a secret that is none")},
            {"kty": "AKP", "kid": "new", "alg": "ML-DSA-44", "pub": "AAAA"},
        ]});
        keys.to_string()
    }

    /// A JWT of this `kid`, if it is one, and algorithm.
    fn signed(&self, (kid, algorithm): (&str, &str), claims: &Value) -> String {
        let mut head = json!({ "alg": algorithm, "typ": "JWT" });
        if !kid.is_empty() {
            head["kid"] = kid.into();
        }
        self.sealed(&head, claims)
    }

    fn sealed(&self, head: &Value, claims: &Value) -> String {
        let text = |value: &Value| code(value.to_string().as_bytes());
        let message = format!("{}.{}", text(head), text(claims));
        let signature = self.sign(head["alg"].as_str().unwrap(), message.as_bytes());
        format!("{message}.{}", code(&signature))
    }

    fn sign(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        let by_rsa = |how: &'static dyn RsaEncoding| {
            let mut signature = vec![0; self.rsa.public_modulus_len()];
            self.rsa
                .sign(how, &random, message, &mut signature)
                .unwrap();
            signature
        };
        let by_ec = |key: &EcdsaKeyPair| key.sign(&random, message).unwrap().as_ref().to_vec();
        match algorithm {
            "RS256" => by_rsa(&RSA_PKCS1_SHA256),
            "RS512" => by_rsa(&RSA_PKCS1_SHA512),
            "PS384" => by_rsa(&RSA_PSS_SHA384),
            "ES256" => by_ec(&self.p256),
            "ES384" => by_ec(&self.p384),
            "EdDSA" => self.ed.sign(message).as_ref().to_vec(),
            // By what anybody can read.
            "HS256" => {
                let public = self.rsa.public_key().as_ref();
                let key = hmac::Key::new(hmac::HMAC_SHA256, public);
                hmac::sign(&key, message).as_ref().to_vec()
            }
            _ => Vec::new(),
        }
    }
}

fn code(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap().as_secs()
}

fn claims(further: Value) -> Value {
    let mut claims = json!({
        "iss": ISSUER, "aud": ["other", "gateway"], "sub": "project:1", "exp": now() + 600,
        "groups": ["ci", "Release Team"], "namespace_path": "octo/one",
    });
    for (name, value) in further.as_object().unwrap() {
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

fn none() -> Value {
    claims(json!({}))
}

const TAKES: &str = "groups = [\"groups\", \"namespace_path\"]";

/// A program whose proxy takes the JWTs of the keys there.
fn program(keys: &str, who: &str) -> Program {
    let program = Program::start("");
    let further = format!(
        "{who}\njwt = {{ issuer = \"{ISSUER}\", audience = \"gateway\", keys = \"{keys}\", {TAKES} }}"
    );
    let more = listener("proxy", &program.path("agents.sock"), &further);
    program.edit(|text| text.replace("phantoms.env", "phantoms-{session}.env") + &more);
    program
}

fn with_file(keys: &Keys, who: &str) -> Program {
    let program = program("jwks.json", who);
    fs::write(program.path("jwks.json"), keys.published()).unwrap();
    program.reload();
    program
}

#[test]
fn a_jwt_is_its_user_and_groups_at_each_door_and_a_doubtful_one_is_nobodys() {
    let keys = Keys::new();
    let program = with_file(
        &keys,
        "session = \"{caller}\"\nwho = [\"jwt\"]\nmode = \"0666\"",
    );
    let socket = program.path("agents.sock");
    let rule = "permit(principal in Gateway::User::\"jwt:project:1\", action, resource) when { \
         principal in Gateway::Group::\"groups:ci\" && \
         principal in Gateway::Group::\"groups:Release Team\" && \
         principal in Gateway::Group::\"namespace_path:octo/one\" };";
    fs::write(program.path("rules.cedar"), rule).unwrap();
    program.reload();
    for by in [
        ("rsa", "RS256"),
        ("rsa", "RS512"),
        ("rsa", "PS384"),
        ("only", "RS256"),
        ("p256", "ES256"),
        ("p384", "ES384"),
        ("ed", "EdDSA"),
    ] {
        let jwt = keys.signed(by, &none());
        let mut ways = vec![asked(&jwt, "/", CLOSE), connected(&jwt)];
        // SOCKS5 has 510 bytes for it.
        ways.extend((jwt.len() <= 510).then(|| tunnelled(&jwt)));
        for bytes in ways {
            let answer = send(&socket, &bytes);
            assert!(answer.ends_with("\r\n\r\nok"), "{by:?}: {answer}");
        }
    }
    let taken = program.records("exchange");
    for record in &taken {
        assert_eq!(record["user"], "jwt:project:1", "{record}");
        let groups = json!([
            "groups:ci",
            "groups:Release Team",
            "namespace_path:octo/one"
        ]);
        assert_eq!(record["groups"], groups, "{record}");
        let session = record["session"].as_str().unwrap();
        assert!(session.starts_with("caller:"), "{record}");
    }
    let ed = ("ed", "EdDSA");
    let of = |further| keys.signed(ed, &claims(further));
    let critical = json!({ "alg": "EdDSA", "kid": "ed", "crit": ["exp"] });
    let broken = {
        let mut jwt = keys.signed(ed, &none());
        let last = jwt.len() - 10;
        let other = if &jwt[last..=last] == "A" { "B" } else { "A" };
        jwt.replace_range(last..=last, other);
        jwt
    };
    let other = Keys::new();
    let refused = [
        (of(json!({ "aud": "other" })), "another audience"),
        (of(json!({ "aud": null })), "lacks"),
        (
            of(json!({ "iss": "https://issuer.test/" })),
            "another issuer",
        ),
        (of(json!({ "iss": null })), "lacks"),
        (of(json!({ "iss": [ISSUER] })), "of another type"),
        (
            of(json!({ "iss": ["https://other.test", ISSUER] })),
            "of another type",
        ),
        (of(json!({ "nbf": "2020-01-01" })), "of another type"),
        (of(json!({ "exp": now() - 1 })), "time is over"),
        (of(json!({ "exp": null })), "lacks"),
        (of(json!({ "exp": "never" })), "lacks"),
        (of(json!({ "nbf": now() + 90 })), "not valid yet"),
        (of(json!({ "sub": null })), "claim for the user"),
        (of(json!({ "sub": 1 })), "claim for the user"),
        (of(json!({ "sub": "" })), "claim for the user"),
        (of(json!({ "sub": "a\"b" })), "claim for the user"),
        (of(json!({ "sub": "Zoë" })), "claim for the user"),
        (of(json!({ "groups": 7 })), "claim for groups"),
        (
            of(json!({ "groups": ["ci", { "a": 1 }] })),
            "claim for groups",
        ),
        (of(json!({ "groups": ["c\ni"] })), "claim for groups"),
        (of(json!({ "groups": vec!["g"; 300] })), "too many groups"),
        (of(json!({ "more": "x".repeat(9000) })), "longer than 8 KiB"),
        (keys.signed(("ed", "none"), &none()), "malformed"),
        (
            keys.signed(("rsa", "HS256"), &none()),
            "algorithm is not that of its key",
        ),
        (
            keys.signed(("oct", "HS256"), &none()),
            "no key of its issuer",
        ),
        (
            keys.signed(("only", "RS512"), &none()),
            "algorithm is not that of its key",
        ),
        (
            keys.signed(("p256", "ES384"), &none()),
            "algorithm is not that of its key",
        ),
        (
            keys.signed(("rsa", "EdDSA"), &none()),
            "algorithm is not that of its key",
        ),
        (
            keys.signed(("enc", "RS256"), &none()),
            "no key of its issuer",
        ),
        (
            keys.signed(("unknown", "EdDSA"), &none()),
            "no key of its issuer",
        ),
        (keys.signed(("", "EdDSA"), &none()), "no key of its issuer"),
        (
            keys.sealed(&critical, &none()),
            "needs what no gateway knows",
        ),
        (other.signed(ed, &none()), "signature"),
        (broken, "signature"),
        ("eyJhbGciOiJFZERTQSJ9".to_owned(), "malformed"),
        ("eyJ.e30.".to_owned(), "malformed"),
        ("garbage".to_owned(), "nothing that the listener takes"),
    ];
    let mut causes = std::collections::HashSet::new();
    for (jwt, cause) in &refused {
        let answer = send_all(&socket, &asked(jwt, "/", ""));
        let is_told =
            answer.starts_with("HTTP/1.1 407 ") && answer.contains("proxy_authentication");
        // Why is for the operator alone.
        assert!(is_told && !answer.contains(cause), "{cause}: {answer}");
        causes.insert(*cause);
        let records = program.records("exchange");
        let told = |record: &Value| {
            let why = record["cause"].as_str().unwrap_or_default();
            record["reason"] == "proxy_authentication" && why.contains(cause)
        };
        assert!(records.iter().any(told), "{cause}: {records:#?}");
    }
    let jwt = keys.signed(ed, &none());
    let twice = asked(&jwt, "/", &format!("Proxy-Authorization: Bearer {jwt}\r\n"));
    assert!(send_all(&socket, &twice).contains("proxy_authentication"));
    let socks = [&[5, 1, 2, 1, 3][..], b"eyJ", &[1], b"x", &TUNNELLED[3..]].concat();
    assert_eq!(send(&socket, &socks).as_bytes(), [5, 2, 1, 1]);
    let records = program.records("exchange").split_off(taken.len());
    assert!(
        records.iter().all(|record| record["user"].is_null()),
        "{records:#?}"
    );
    assert!(
        records.len() <= causes.len() + 2,
        "one for each cause: {records:#?}"
    );
    for written in ["audit/log.jsonl", "log"] {
        let written = fs::read_to_string(program.path(written)).unwrap();
        assert!(!written.contains("eyJ"), "{written}");
    }
}

#[test]
fn what_a_jwt_carries_ends_with_it_and_with_its_key_and_each_request_shows_the_same_user() {
    let keys = Keys::new();
    let who = "session = \"agent-1\"\nwho = [\"token\", \"jwt\", \"unix\"]";
    let program = with_file(&keys, who);
    let socket = program.path("agents.sock");
    let endless = |jwt: &str| stream(&socket, &asked(jwt, "/endless", ""));
    let short = keys.signed(("p256", "ES256"), &claims(json!({ "exp": now() + 3 })));
    let took = breaks_off(endless(&short));
    assert!(took < Duration::from_secs(6), "{took:?}");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(
        program.records("end").last().unwrap()["reason"],
        "caller_refused"
    );
    // A further request may have another JWT of the same user alone.
    let own = keys.signed(("ed", "EdDSA"), &none());
    let renewed = keys.signed(("p256", "ES256"), &none());
    let others = keys.signed(("ed", "EdDSA"), &claims(json!({ "sub": "other" })));
    let token = text(&mint(&program, &[]));
    let request = |shown: &str| asked(shown, "/", "");
    for (first, second, statuses) in [
        (&*own, &*own, ["200", "200"]),
        (&own, &renewed, ["200", "200"]),
        (&own, &others, ["200", "407"]),
        (&own, "", ["200", "407"]),
        (&own, &token, ["200", "407"]),
        (&token, &own, ["200", "407"]),
        ("", &own, ["200", "407"]),
    ] {
        let both = [request(first), asked(second, "/", CLOSE)].concat();
        let answer = send(&socket, &both);
        let found: Vec<&str> = answer
            .split("HTTP/1.1 ")
            .skip(1)
            .map(|one| &one[..3])
            .collect();
        assert_eq!(found, statuses, "{answer}");
    }
    // Other keys, which still have one of the two.
    let (by_ed, by_p256) = (endless(&own), endless(&renewed));
    let fewer = keys.published().replace("\"ed\"", "\"gone\"");
    fs::write(program.path("jwks.json"), fewer).unwrap();
    program.reload();
    let took = breaks_off(by_ed);
    assert!(took < Duration::from_secs(3), "{took:?}");
    let mut by_p256 = by_p256;
    by_p256.read_exact(&mut [0; 64]).unwrap();
    assert!(send_all(&socket, &asked(&own, "/", "")).contains("proxy_authentication"));
}

/// An issuer on loopback that publishes this now, and counts who asks; an error if it is empty.
fn issuer(published: Arc<Mutex<(String, usize)>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = [0; 4096];
            let read = stream.read(&mut head).unwrap_or_default();
            let mut published = published.lock().unwrap();
            published.1 += 1;
            let is_asked = head[..read].starts_with(b"GET /jwks HTTP/1.1\r\n");
            let status = if is_asked && !published.0.is_empty() {
                "200 OK"
            } else {
                "503 Away"
            };
            let length = published.0.len();
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
            let _ = stream.write_all(
                [head.as_bytes(), published.0.as_bytes()]
                    .concat()
                    .as_slice(),
            );
        }
    });
    format!("http://{address}/jwks")
}

#[test]
fn keys_are_fetched_where_an_issuer_publishes_them_and_nobody_is_served_without() {
    let keys = Keys::new();
    let published = Arc::new(Mutex::new((String::new(), 0)));
    let url = issuer(published.clone());
    let program = program(&url, "session = \"agent-1\"\nwho = [\"jwt\"]");
    program.reload();
    let socket = program.path("agents.sock");
    let jwt = keys.signed(("ed", "EdDSA"), &none());
    assert!(send_all(&socket, &asked(&jwt, "/", "")).contains("proxy_authentication"));
    let ready = || program.raw("GET /ready HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n");
    let answer = ready();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(
        answer.contains("the keys for the JWTs at unix:"),
        "{answer}"
    );
    assert!(
        answer.contains("see `keys` of the listener's `jwt`") && !answer.contains("tailnet"),
        "{answer}"
    );
    let until = Instant::now() + Duration::from_secs(10);
    while published.lock().unwrap().1 == 0 {
        assert!(Instant::now() < until, "nobody asks the issuer");
        std::thread::sleep(Duration::from_millis(50));
    }
    published.lock().unwrap().0 = keys.published();
    // Another listener asks at once; the first one half a minute later, and no sooner.
    program.edit(|text| text.replace("audience = \"gateway\"", "audience = \"other\""));
    program.reload();
    let until = Instant::now() + Duration::from_secs(10);
    while !send_all(&socket, &asked(&jwt, "/", CLOSE)).ends_with("\r\n\r\nok") {
        assert!(
            Instant::now() < until,
            "{}",
            fs::read_to_string(program.path("log")).unwrap()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(ready().starts_with("HTTP/1.1 200 "));
    // An unknown key does not have it asked again at once.
    let before = published.lock().unwrap().1;
    for _ in 0..20 {
        let unknown = keys.signed(("unknown", "EdDSA"), &none());
        assert!(send_all(&socket, &asked(&unknown, "/", "")).contains("proxy_authentication"));
    }
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(published.lock().unwrap().1, before);
}

#[test]
fn jwts_that_could_not_be_verified_are_refused_with_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("jwks.json", &Keys::new().published());
    write(
        "empty.json",
        "{\"keys\":[{\"kty\":\"oct\",\"k\":\"AAAA\"}]}",
    );
    write("none.json", "{}");
    let good = "issuer = \"https://i.test\", audience = \"gateway\", keys = \"jwks.json\"";
    let with = |name: &str| good.replace("jwks.json", name);
    let tcp = "address = \"127.0.0.1:1\"\nwho = [\"jwt\"]\n";
    for (lines, line, what) in [
        (
            format!("kind = \"proxy\"\n{tcp}"),
            1,
            "`jwt` and `\"jwt\"` in `who` go together",
        ),
        (
            format!("kind = \"proxy\"\naddress = \"127.0.0.1:1\"\njwt = {{ {good} }}"),
            4,
            "`jwt` and `\"jwt\"` in `who` go together",
        ),
        (
            format!("kind = \"tls\"\n{tcp}jwt = {{ {good} }}"),
            4,
            "no place for what a client presents",
        ),
        (
            format!("kind = \"dns\"\n{tcp}jwt = {{ {good} }}"),
            4,
            "no place for what a client presents",
        ),
        (
            format!("kind = \"proxy\"\n{tcp}jwt = {{}}"),
            5,
            "has no `issuer`",
        ),
        (
            format!("kind = \"proxy\"\n{tcp}jwt = {{}}"),
            5,
            "has no `audience`",
        ),
        (
            format!("kind = \"proxy\"\n{tcp}jwt = {{}}"),
            5,
            "has no `keys`",
        ),
        (
            format!("kind = \"proxy\"\n{tcp}jwt = {{ {} }}", with("empty.json")),
            5,
            "no public key",
        ),
        (
            format!("kind = \"proxy\"\n{tcp}jwt = {{ {} }}", with("none.json")),
            5,
            "no JWKS",
        ),
        (
            format!(
                "kind = \"proxy\"\n{tcp}jwt = {{ {} }}",
                with("http://i.test/jwks")
            ),
            5,
            "clear text",
        ),
        (
            format!(
                "kind = \"proxy\"\n{tcp}jwt = {{ {} }}",
                with("https://i.test/jwks?a=b")
            ),
            5,
            "without a query",
        ),
    ] {
        let said = check(folder.path(), &lines);
        let is_there = said.1.contains(&format!("gateway.toml:{line}")) && said.1.contains(what);
        assert!(said.0 != 0 && is_there, "{lines}: {}", said.1);
    }
    // Of two issuers, each could name the users of the other.
    let second = "kind = \"proxy\"\naddress = \"127.0.0.1:2\"\nwho = [\"jwt\"]";
    for (other, is_taken) in [(good.to_owned(), true), (good.replace("//i", "//j"), false)] {
        let lines = format!(
            "kind = \"proxy\"\n{tcp}jwt = {{ {good} }}\n[[listener]]\n{second}\njwt = {{ {other} }}"
        );
        let (code, said) = check(folder.path(), &lines);
        let is_there = said.contains("by another issuer or claim");
        assert_eq!((code == 0, is_there), (is_taken, !is_taken), "{said}");
    }
    for keys in [
        good.to_owned(),
        with("https://i.test/jwks"),
        with("http://127.0.0.1:1/jwks"),
    ] {
        let (code, said) = check(
            folder.path(),
            &format!("kind = \"proxy\"\n{tcp}jwt = {{ {keys} }}"),
        );
        assert_eq!(code, 0, "{keys}: {said}");
    }
}

fn check(folder: &Path, lines: &str) -> (i32, String) {
    fs::write(
        folder.join("gateway.toml"),
        format!("[[listener]]\n{lines}\n"),
    )
    .unwrap();
    gateway(folder, &["policy", "check", "--config", "gateway.toml"])
}
