//! The stores of a configuration: the shipped program against moto, with IAM checked, and against
//! stand-ins that each vendor's own client drives first.

#[path = "../rig/addresses.rs"]
mod addresses;
#[expect(dead_code, reason = "the tests of Vault use the rest of it")]
#[path = "../vault/gate.rs"]
mod gate;
mod server;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use gate::{GATEWAY, Gate, Origin, cleartext, credential, private};
use server::{Moto, StandIn};

/// Credentials, each for an origin of its own: no secret of another is read for it.
struct Stage(Vec<(&'static str, Origin)>);

impl Stage {
    /// Gives the sections of these credentials too, each with its reference.
    fn of(from: &[(&'static str, &str)]) -> (Self, String) {
        let made = from.iter().map(|(name, from)| {
            let origin = Origin::start();
            let section = credential(&origin, name, from, "header:x-secret")
                + "shape = \"[40 alnum]\"\n"
                + &cleartext(&origin);
            ((*name, origin), section)
        });
        let (origins, sections): (_, Vec<_>) = made.unzip();
        (Self(origins), sections.concat())
    }

    /// Asks with one credential; gives the status, and what its origin was sent.
    fn ask(&self, gate: &Gate, name: &str) -> (u16, Option<String>) {
        let (_, origin) = self.0.iter().find(|(known, _)| *known == name).unwrap();
        let phantom = gate.phantom(name);
        let (status, answer) = gate.ask(origin, &[("x-secret", &phantom)]);
        for hidden in ["CANARY", "aws", "azure", "gcp", "GitHub", "token\""] {
            assert!(
                !phantom.contains(hidden) && !answer.contains(hidden),
                "{hidden}: {answer}"
            );
        }
        (status, origin.last("x-secret").filter(|_| status == 200))
    }
}

#[track_caller]
fn eventually(within: u64, what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(within), "{what}");
        sleep(Duration::from_millis(100));
    }
}

/// Waits until the log has these words.
#[track_caller]
fn logged(gate: &Gate, words: &str) {
    eventually(5, words, || said(gate).contains(words));
}

/// What the log has, which never holds a secret.
fn said(gate: &Gate) -> String {
    let said = gate.said();
    assert!(!said.contains("CANARY"), "{said}");
    said
}

#[test]
fn a_store_of_aws_gives_what_iam_lets_its_user_read_until_that_is_rotated_or_deleted() {
    let moto = Moto::start();
    let store = |kind: &str, name: &str, region: &str| {
        let at = format!(
            "addresses = [\"{}\"]\nttl = \"1s\"\nmax_stale = \"2s\"\n",
            moto.address
        );
        format!("[[store]]\nkind = \"{kind}\"\nname = \"{name}\"\nregion = \"{region}\"\n{at}")
    };
    let (stage, sections) = Stage::of(&[
        ("TOKEN", "aws-secret:app#token"),
        ("PLAIN", "aws-secret:app-plain"),
        ("PARAM", "aws-parameter:/app/token"),
        ("US", "elsewhere:app#token"),
        ("BINARY", "aws-secret:app-binary"),
        ("FIELD", "aws-secret:app#nothing"),
        ("ABSENT", "aws-secret:app-absent"),
    ]);
    let sections = store("aws-secret", "aws-secret", "eu-west-1")
        + &store("aws-secret", "elsewhere", "us-east-1")
        + &store("aws-parameter", "aws-parameter", "eu-west-1")
        + &sections;
    let start = |user: &str| {
        let (id, key) = moto.keys(user);
        let keys = [
            ("AWS_ACCESS_KEY_ID", &*id),
            ("AWS_SECRET_ACCESS_KEY", &*key),
        ];
        Gate::try_start_by(Command::new(GATEWAY), &sections, &keys).unwrap()
    };
    let stranger = start("stranger");
    for name in ["TOKEN", "PARAM", "US"] {
        assert_eq!(stage.ask(&stranger, name).0, 503, "{name}");
    }
    let denied = || said(&stranger).matches("403: AccessDenied").count();
    eventually(5, "three are denied", || denied() >= 3);
    drop(stranger);
    let gate = start("gateway");
    let given = |name: &str| stage.ask(&gate, name);
    let value = |text: &str| (200, Some(text.to_owned()));
    assert_eq!(
        given("TOKEN"),
        value("CANARY-value-0001"),
        "{}",
        gate.said()
    );
    assert_eq!(given("PLAIN"), value("CANARY-plain-0001"));
    assert_eq!(
        given("PARAM"),
        value("CANARY-param-0001"),
        "{}",
        gate.said()
    );
    assert_eq!(given("US"), value("CANARY-value-us01"));
    for (name, words) in [
        ("BINARY", "is binary"),
        (
            "FIELD",
            "no text in the field `nothing`: it has token, user",
        ),
        (
            "ABSENT",
            "the store answered 404: ResourceNotFoundException",
        ),
    ] {
        assert_eq!(given(name).0, 503, "{name}");
        logged(&gate, words);
    }
    moto.step("rotate");
    eventually(10, "the new value", || {
        given("TOKEN").1.as_deref() == Some("CANARY-value-0002")
    });
    eventually(10, "the new value", || {
        given("PARAM").1.as_deref() == Some("CANARY-param-0002")
    });
    moto.step("delete");
    eventually(10, "it is deleted", || {
        given("TOKEN").0 == 503 && given("PARAM").0 == 503
    });
    assert_eq!(given("PLAIN"), value("CANARY-plain-0001"));
    let words = said(&gate);
    assert!(
        words.contains("404: marked for deletion")
            || words.contains("404: scheduled for deletion")
            || words.contains("404: ResourceNotFound"),
        "{words}"
    );
    assert!(words.contains("404: ParameterNotFound"), "{words}");
    moto.step("disable");
    eventually(10, "its key is gone", || given("PLAIN").0 == 503);
    let said = gate.end();
    assert!(
        said.contains("the login failed") && !said.contains("CANARY"),
        "{said}"
    );
    assert!(!said.contains(&moto.keys("gateway").1), "{said}");
}

/// A fault of a store; what is served while the known secret may be, and after `max_stale`; and the
/// store's words in the log, of AWS, AWS, Google, Azure, 1Password.
struct Fault {
    mode: &'static str,
    at_once: u16,
    later: u16,
    words: [&'static str; 5],
}

const STORES: [&str; 5] = ["SECRET", "PARAMETER", "GOOGLE", "AZURE", "CONNECT"];

const FAULTS: [Fault; 11] = [
    Fault {
        mode: "denied",
        at_once: 503,
        later: 503,
        words: [
            "403: AccessDenied",
            "403: AccessDenied",
            "403: PERMISSION_DENIED",
            "403: Forbidden",
            "403: Authorization: ",
        ],
    },
    Fault {
        mode: "gone",
        at_once: 503,
        later: 503,
        words: [
            "404: ResourceNotFoundException",
            "404: ParameterNotFound",
            "404: NOT_FOUND",
            "404: SecretNotFound",
            "answered 404",
        ],
    },
    Fault {
        mode: "login",
        at_once: 503,
        later: 503,
        words: [
            "the login failed: the store answered 400: UnrecognizedClientException",
            "the login failed: the store answered 400: UnrecognizedClientException",
            "the login failed: the store answered 401: UNAUTHENTICATED",
            "the login failed: the store answered 401: Unauthorized",
            "the login failed: the store answered 401: Authentication: ",
        ],
    },
    Fault {
        mode: "expired",
        at_once: 200,
        later: 503,
        words: [
            "have expired, and must be renewed: ExpiredToken",
            "have expired, and must be renewed: ExpiredToken",
            "",
            "",
            "have expired, and must be renewed: Token expired",
        ],
    },
    Fault {
        mode: "busy",
        at_once: 200,
        later: 503,
        words: [
            "answered 500: InternalService",
            "answered 500: InternalService",
            "answered 500",
            "answered 500",
            "answered 500",
        ],
    },
    Fault {
        mode: "cut",
        at_once: 200,
        later: 503,
        words: ["broke off"; 5],
    },
    Fault {
        mode: "short",
        at_once: 200,
        later: 503,
        words: ["broke off"; 5],
    },
    Fault {
        mode: "huge",
        at_once: 200,
        later: 503,
        words: ["broke off"; 5],
    },
    Fault {
        mode: "page",
        at_once: 200,
        later: 503,
        words: ["cannot be read"; 5],
    },
    Fault {
        mode: "other",
        at_once: 200,
        later: 503,
        words: ["cannot be read"; 5],
    },
    Fault {
        mode: "slow",
        at_once: 200,
        later: 200,
        words: [""; 5],
    },
];

#[test]
fn a_store_that_fails_serves_what_is_known_for_a_while_and_its_words_are_the_operators_alone() {
    let stand_in = StandIn::start();
    stand_in.driven_by_vendors("CANARY-value-0000");
    let from: Vec<_> = STORES.into_iter().zip(REFERENCES).collect();
    let (stage, sections) = Stage::of(&from);
    let sections = stand_in.stores("ca.pem", "ttl = \"1s\"\nmax_stale = \"2s\"\n") + &sections;
    // The stores are away when it starts.
    stand_in.set("busy", "CANARY-value-0001");
    let gate = Gate::try_start_by(Command::new(GATEWAY), &sections, &KEYS).unwrap();
    for name in STORES {
        assert_eq!(stage.ask(&gate, name).0, 503, "{name}");
    }
    for (number, fault) in FAULTS.iter().enumerate() {
        let value = format!("CANARY-value-{number:04}");
        stand_in.set("good", &value);
        for name in STORES {
            eventually(12, &format!("{name} serves before {}", fault.mode), || {
                stage.ask(&gate, name).1.as_ref() == Some(&value)
            });
        }
        let before = said(&gate).len();
        let begin = Instant::now();
        stand_in.set(fault.mode, &value);
        sleep(Duration::from_millis(1100));
        // The first requests have each store asked again.
        for name in STORES {
            stage.ask(&gate, name);
        }
        if fault.at_once == 503 {
            for name in STORES {
                eventually(
                    8,
                    &format!("{name} is closed when it is {}", fault.mode),
                    || stage.ask(&gate, name).0 == 503,
                );
            }
        } else {
            for (name, words) in STORES.iter().zip(fault.words) {
                let status = stage.ask(&gate, name).0;
                let is_known =
                    status == fault.at_once || fault.mode == "expired" && words.is_empty();
                let is_late = begin.elapsed() > Duration::from_secs(2);
                assert!(is_known || is_late, "{name} {}: {status}", fault.mode);
            }
        }
        sleep(Duration::from_millis(3600).saturating_sub(begin.elapsed()));
        for (name, words) in STORES.iter().zip(fault.words) {
            // Google and Azure have no word for a token that is over: it is a login that fails.
            let later = if words.is_empty() && fault.mode == "expired" {
                503
            } else {
                fault.later
            };
            assert_eq!(stage.ask(&gate, name).0, later, "{name} {}", fault.mode);
            let what = format!("{name} {}: {words}", fault.mode);
            eventually(5, &what, || said(&gate)[before..].contains(words));
        }
        println!(
            "{:8} at once {}, after max_stale {}",
            fault.mode, fault.at_once, fault.later
        );
    }
    let said = gate.end();
    assert!(!said.contains("CANARY"), "{said}");
}

const REFERENCES: [&str; 5] = [
    "aws-secret:app#token",
    "aws-parameter:/app/token",
    "gcp-secret:app/token",
    "azure-secret:team/token",
    "op:Work/GitHub/token",
];
/// Keys that the stand-in does not check.
const KEYS: [(&str, &str); 2] = [
    ("AWS_ACCESS_KEY_ID", "AKIAEXAMPLEEXAMPLE00"),
    (
        "AWS_SECRET_ACCESS_KEY",
        "0000000000CANARYkey000000000000000000000",
    ),
];

#[test]
fn a_store_with_a_certificate_of_another_ca_gets_no_login_and_no_question() {
    let stand_in = StandIn::start();
    let from: Vec<_> = STORES
        .into_iter()
        .zip(REFERENCES)
        .filter(|(name, _)| *name != "CONNECT")
        .collect();
    let (stage, sections) = Stage::of(&from);
    let sections = stand_in.stores("other.pem", "") + &sections;
    let gate = Gate::try_start_by(Command::new(GATEWAY), &sections, &KEYS).unwrap();
    for (name, _) in from {
        assert_eq!(stage.ask(&gate, name).0, 503, "{name}");
    }
    let said = gate.end();
    assert!(said.matches("certificate").count() >= 4, "{said}");
    assert!(!said.contains("CANARY"), "{said}");
}

#[test]
fn a_store_whose_issuer_knows_no_login_of_the_gateway_is_closed_and_says_so() {
    let stand_in = StandIn::start();
    let from = [
        ("GOOGLE", "gcp-secret:app/token"),
        ("AZURE", "azure-secret:team/token"),
    ];
    let (stage, sections) = Stage::of(&from);
    stand_in.set("stranger", "CANARY-value-0000");
    let sections = stand_in.stores("ca.pem", "") + &sections;
    let gate = Gate::try_start_by(Command::new(GATEWAY), &sections, &KEYS).unwrap();
    for (name, _) in from {
        assert_eq!(stage.ask(&gate, name).0, 503, "{name}");
    }
    let words = "its issuer answers `invalid_client`; correct the `[[store]]`";
    eventually(5, words, || said(&gate).matches(words).count() >= 2);
    stand_in.set("good", "CANARY-value-0000");
    for (name, _) in from {
        eventually(10, name, || stage.ask(&gate, name).0 == 200);
    }
}

#[test]
fn a_field_of_1password_is_named_by_its_section_where_several_have_its_label() {
    let stand_in = StandIn::start();
    let from = [
        ("SECOND", "op:Work/GitHub/second/twice"),
        ("TWICE", "op:Work/GitHub/twice"),
        ("NONE", "op:Work/GitHub/nothing"),
        ("VAULT", "op:Home/GitHub/token"),
    ];
    let (stage, sections) = Stage::of(&from);
    let gate = Gate::start(&(stand_in.stores("ca.pem", "") + &sections));
    assert_eq!(
        stage.ask(&gate, "SECOND"),
        (200, Some("CANARY-value-0000".to_owned())),
        "{}",
        gate.said()
    );
    for (name, words) in [
        ("TWICE", "several have that name"),
        (
            "NONE",
            "no text in the field `nothing`: it has token, twice, twice",
        ),
        ("VAULT", "there is no such secret"),
    ] {
        assert_eq!(stage.ask(&gate, name).0, 503, "{name}");
        logged(&gate, words);
    }
}

#[test]
fn a_reload_keeps_what_is_known_of_each_store_that_it_does_not_change() {
    let stand_in = StandIn::start();
    let from = [
        ("ONE", "op:Work/GitHub/token"),
        ("TWO", "second:Work/GitHub/token"),
    ];
    let (stage, sections) = Stage::of(&from);
    let text = |ttl: &str| {
        let second = stand_in.connect(&format!("name = \"second\"\nttl = \"{ttl}\"\n"));
        stand_in.connect("ttl = \"1h\"\n") + &second + &sections
    };
    let gate = Gate::start(&text("1h"));
    for (name, _) in from {
        assert_eq!(stage.ask(&gate, name).0, 200, "{name}: {}", gate.said());
    }
    stand_in.set("busy", "CANARY-value-0000");
    let file = gate.folder.path().join("gateway.toml");
    let before = fs::read_to_string(&file).unwrap();
    fs::write(&file, before.replace(&text("1h"), &text("2h"))).unwrap();
    eventually(10, "the second store is another", || {
        stage.ask(&gate, "TWO").0 == 503
    });
    assert_eq!(stage.ask(&gate, "ONE").0, 200, "{}", gate.said());
    stand_in.set("good", "CANARY-value-0000");
    eventually(10, "it is read", || stage.ask(&gate, "TWO").0 == 200);
}

/// A program in place of `op`, which no package has. It prints what it was called with.
const OP: &str = r#"#!/bin/sh
[ "$1 $2" = "read --no-newline" ] || exit 9
[ -z "$SECRET_OF_SOMEBODY" ] || exit 8
case "$3 $OP_SERVICE_ACCOUNT_TOKEN" in
    "op://Work/GitHub/token CANARY-ops-token") printf CANARY-from-op ;;
    "op://Work/Item/token "*) echo "[ERROR] could not read 'op://Work/Item/token': \"Item CANARY-said\" isn't an item in the \"Work\" vault" >&2; exit 1 ;;
    *) echo "CANARY-said: you are not currently signed in" >&2; exit 6 ;;
esac
"#;

#[test]
fn the_command_of_1password_gets_its_token_and_its_words_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("op");
    fs::write(&program, OP).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let store = format!(
        "[[store]]\nkind = \"op\"\ncommand = \"{}\"\n",
        program.display()
    );
    let from = [
        ("TOKEN", "op:Work/GitHub/token"),
        ("ITEM", "op:Work/Item/token"),
    ];
    let (stage, sections) = Stage::of(&from);
    let sections = store + &sections;
    let variables = [
        ("OP_SERVICE_ACCOUNT_TOKEN", "CANARY-ops-token"),
        ("SECRET_OF_SOMEBODY", "CANARY-x"),
    ];
    let gate = Gate::try_start_by(Command::new(GATEWAY), &sections, &variables).unwrap();
    assert_eq!(
        stage.ask(&gate, "TOKEN"),
        (200, Some("CANARY-from-op".to_owned())),
        "{}",
        gate.said()
    );
    assert_eq!(stage.ask(&gate, "ITEM").0, 503);
    logged(&gate, "404: isn't an item");
    drop(gate);
    let gate = Gate::start(&sections);
    assert_eq!(stage.ask(&gate, "TOKEN").0, 503);
    logged(&gate, "the login failed");
}

#[test]
fn a_command_gets_the_variables_that_are_named_and_nothing_else() {
    let (stage, sections) = Stage::of(&[("TOKEN", "env:X")]);
    let script = "printf '%s.%s.value' \\\"$ONE\\\" \\\"$OTHER\\\"";
    let from =
        format!("from = {{ command = [\"/bin/sh\", \"-c\", \"{script}\"], pass = [\"ONE\"] }}");
    let sections = sections.replace("from = \"env:X\"", &from);
    let variables = [("ONE", "CANARY-one"), ("OTHER", "CANARY-other")];
    let gate = Gate::try_start_by(Command::new(GATEWAY), &sections, &variables).unwrap();
    assert_eq!(
        stage.ask(&gate, "TOKEN"),
        (200, Some("CANARY-one..value".to_owned())),
        "{}",
        gate.said()
    );
}

#[test]
fn keys_of_the_kernel_and_credentials_of_systemd_are_read() {
    let folder = tempfile::tempdir().unwrap();
    private(&folder.path().join("from-systemd"), "CANARY-systemd-1\n");
    fs::set_permissions(
        folder.path().join("from-systemd"),
        fs::Permissions::from_mode(0o440),
    )
    .unwrap();
    let from = [
        ("KERNEL", "kernel:from-kernel"),
        ("SYSTEMD", "systemd:from-systemd"),
        ("NOKEY", "kernel:no-such-key"),
        ("NOFILE", "systemd:no-such-file"),
    ];
    let mut command = Command::new("/usr/bin/keyctl");
    let script = "printf CANARY-kernel-1 | keyctl padd user from-kernel @s >&2; exec \"$@\"";
    command.args(["session", "-", "/bin/sh", "-c", script, "sh", GATEWAY]);
    let folder = folder.path().display().to_string();
    let variables = [
        ("CREDENTIALS_DIRECTORY", &*folder),
        ("PATH", "/usr/bin:/bin"),
    ];
    let (stage, sections) = Stage::of(&from);
    let gate = Gate::try_start_by(command, &sections, &variables).unwrap();
    let value = |text: &str| (200, Some(text.to_owned()));
    assert_eq!(
        stage.ask(&gate, "KERNEL"),
        value("CANARY-kernel-1"),
        "{}",
        gate.said()
    );
    assert_eq!(
        stage.ask(&gate, "SYSTEMD"),
        value("CANARY-systemd-1"),
        "{}",
        gate.said()
    );
    for name in ["NOKEY", "NOFILE"] {
        assert_eq!(stage.ask(&gate, name).0, 503, "{name}");
    }
    logged(&gate, "the store has no such secret");
    drop(gate);
    let gate = Gate::start(&sections);
    assert_eq!(stage.ask(&gate, "SYSTEMD").0, 503);
    logged(&gate, "LoadCredential");
}

#[test]
fn what_a_store_cannot_have_is_told_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let aws = "[[store]]\nkind = \"aws-secret\"\nregion = \"eu-west-1\"\n";
    for (text, from, place, words) in [
        (
            "",
            "aws-secret:app",
            "\"aws-secret",
            "there is not: the configuration has no store",
        ),
        (
            aws,
            "aws-parameter:/app",
            "\"aws-p",
            "the stores of the configuration are aws-secret",
        ),
        (
            aws,
            "hunter2user:hunter2",
            "\"hunter",
            "add a section [[store]]",
        ),
        (
            aws,
            "aws-secret:arn:aws:secretsmanager:us-east-1:1:secret:app",
            "\"aws-secret:",
            "its ARN is not of `secretsmanager` in `eu-west-1`",
        ),
        (
            aws,
            "aws-secret-lease:app",
            "\"aws-secret-lease",
            "issues no secret to a session",
        ),
        (
            "[[store]]\nkind = \"op\"\ncommand = \"/bin/true\"\n",
            "op:Work/token",
            "\"op:",
            "a vault, an item and a field",
        ),
        (
            "[[store]]\nkind = \"op\"\ncommand = \"/bin/true\"\n",
            "op:Work/GitHub/token#x",
            "\"op:",
            "the last part of its path",
        ),
        (
            "[[store]]\nkind = \"aws-secret\"\n",
            "env:X",
            "[[store]]",
            "`kind = \"aws-secret\"` needs it",
        ),
        (
            "[[store]]\nkind = \"op\"\nname = \"env\"\n",
            "env:X",
            "\"env\"",
            "begins references",
        ),
        (
            "[[store]]\nkind = \"op\"\nregion = \"x\"\ncommand = \"/bin/true\"\n",
            "env:X",
            "\"x\"\ncommand",
            "does not belong to `kind = \"op\"`",
        ),
        (
            "[[store]]\nkind = \"op\"\ncommand = \"/bin/true\"\n[[store]]\nkind = \"op\"\ncommand = \"/bin/true\"\n",
            "env:X",
            "[[store]]",
            "a second store has this name",
        ),
        (
            "[vault]\nkind = \"op\"\n",
            "env:X",
            "\"op\"",
            "belongs to [[store]]",
        ),
        (
            "[[store]]\nkind = \"azure-secret\"\naddresses = [\"https://team.vault.azure.net\"]\ntoken_url = \"https://login.microsoftonline.com/t/oauth2/v2.0/token\"\nclient_id = \"x\"\nclient_secret = \"env:X\"\n",
            "azure-secret:other/token",
            "\"azure-secret:",
            "the vaults of the store are team",
        ),
        (
            "[[store]]\nkind = \"op\"\naddresses = [\"https://connect.test\"]\ntoken = \"op:a/b/c\"\n",
            "env:X",
            "\"op:a",
            "is kept in a store",
        ),
    ] {
        let credential = format!(
            "[[credential]]\nname = \"TOKEN\"\nfrom = \"{from}\"\norigins = [\"https://a.test\"]\n"
        );
        let text = text.to_owned() + &credential;
        let before = &text[..text.rfind(place).unwrap()];
        let line = before.matches('\n').count() + 1;
        let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1) + 1;
        let file = folder.path().join("gateway.toml");
        fs::write(&file, &text).unwrap();
        let checked = Command::new(GATEWAY)
            .args(["doctor", "--config"])
            .arg(&file)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&checked.stderr).into_owned();
        let at = format!("gateway.toml:{line}:{column}:");
        assert!(
            said.contains(words) && said.contains(&at),
            "{from} {at}\n{text}\n{said}"
        );
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn doctor_reads_each_store_and_shows_no_value() {
    let stand_in = StandIn::start();
    let folder = tempfile::tempdir().unwrap();
    let from: Vec<_> = STORES.into_iter().zip(REFERENCES).collect();
    let (_stage, sections) = Stage::of(&from);
    // A shape would say that the secret need not be looked at.
    let sections =
        stand_in.stores("ca.pem", "") + &sections.replace("shape = \"[40 alnum]\"\n", "");
    gate::configure(folder.path(), 1, &sections);
    let doctor = |folder: &Path| {
        let out = Command::new(GATEWAY)
            .args(["doctor", "--config", "gateway.toml"])
            .current_dir(folder)
            .envs(KEYS)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        assert!(!said.contains("CANARY"), "{said}");
        said
    };
    assert_eq!(
        doctor(folder.path()).matches("ok    ").count(),
        6,
        "{}",
        doctor(folder.path())
    );
    stand_in.set("denied", "CANARY-value-0000");
    let said = doctor(folder.path());
    assert_eq!(said.matches("fails ").count(), 5, "{said}");
}
