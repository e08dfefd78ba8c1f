//! Labels that requests give their session: by the shipped program.

use std::io::Read as _;
use std::time::{Duration, Instant};

use crate::asks::{Shop, read, send};
use crate::program::{Program, RULES};

/// Reading the mail is a label, and with it nothing goes out and nothing streams.
const MAIL: &str = r#"
@id("mail") @label("read_mail")
permit(principal, action == Gateway::Action::"GET", resource == Gateway::Host::"pay.test")
when { context.path == "/mail" };
@id("out")
permit(principal, action == Gateway::Action::"POST", resource == Gateway::Host::"pay.test");
@id("sealed")
forbid(principal, action, resource)
when { context.labels.contains("read_mail") && context.path != "/mail" };
"#;

fn gateway(shop: &Shop, more: &str, policies: &str) -> Program {
    let program = Program::start(&format!(
        "[[origin]]\nmatch = \"http://pay.test\"\nconnect = \"{}\"\ncleartext = true\n{more}",
        shop.address
    ));
    std::fs::write(program.path("rules.cedar"), format!("{RULES}{policies}")).unwrap();
    program.reload();
    program
}

/// Must show 4.
#[test]
fn a_label_refuses_what_follows_and_cuts_a_stream_that_it_forbids() {
    let shop = Shop::open();
    let mut program = gateway(&shop, "", MAIL);
    let (status, mut stream) = program.begin("http://stream.test/long");
    assert_eq!(status, 200);
    stream.read_exact(&mut [0; 64]).unwrap();
    assert_eq!(read(&send(program.proxy, "POST /out", "a")).0, 200);
    assert_eq!(read(&send(program.proxy, "GET /mail", "")).0, 200);
    let labelled = Instant::now();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    let cut = labelled.elapsed();
    println!("a stream was cut {} ms after the label", cut.as_millis());
    assert!(cut < Duration::from_millis(900), "{cut:?}");
    let (status, text) = read(&send(program.proxy, "POST /out", "b"));
    assert!(status == 403 && text.contains("sealed"), "{text}");
    assert_eq!(read(&send(program.proxy, "GET /mail", "")).0, 200);
    // It outlives the process.
    program.restart_after_a_crash();
    let (status, text) = read(&send(program.proxy, "POST /out", "c"));
    assert!(status == 403 && text.contains("sealed"), "{text}");
    let sent = shop.sent();
    assert_eq!(sent, ["POST /out a", "GET /mail ", "GET /mail "]);
}

#[test]
fn of_two_requests_whose_labels_forbid_each_other_never_both_go_out() {
    let shop = Shop::open();
    let rounds = 0..20;
    let rule = |nth: usize| {
        ["a", "b"].map(|one| {
            let other = if one == "a" { "b" } else { "a" };
            format!(
                "@id(\"{one}{nth}\") @label(\"{one}{nth}\")
                permit(principal, action, resource == Gateway::Host::\"pay.test\")
                when {{ context.path == \"/{one}{nth}\" }};
                @id(\"not_{one}{nth}\")
                forbid(principal, action, resource == Gateway::Host::\"pay.test\")
                when {{ context.path == \"/{one}{nth}\" && context.labels.contains(\"{other}{nth}\") }};\n"
            )
        })
    };
    let policies: String = rounds.clone().flat_map(rule).collect();
    let program = gateway(&shop, "", &policies);
    for nth in rounds {
        let both = ["a", "b"].map(|one| send(program.proxy, &format!("GET /{one}{nth}"), ""));
        let answers = both.map(|one| read(&one).0);
        assert_ne!(answers, [200, 200], "round {nth}");
        let went = |one: &str| shop.sent().contains(&format!("GET /{one}{nth} "));
        assert!(!(went("a") && went("b")), "round {nth}: {answers:?}");
    }
}

#[test]
fn a_decision_file_says_the_labels_that_a_session_has_and_gets() {
    let shop = Shop::open();
    let program = gateway(&shop, "", MAIL);
    let test = |decision: &str| {
        let text = format!("[[decision]]\nname = \"it\"\n{decision}");
        std::fs::write(program.path("test.toml"), text).unwrap();
        program.gateway(&["policy", "test", "--policy", "rules.cedar", "test.toml"])
    };
    let reads = "url = \"GET http://pay.test/mail\"\nexpect = \"allow\"\n";
    assert_eq!(test(&format!("{reads}gives = [\"read_mail\"]")).0, 0);
    let (code, said) = test(&format!("{reads}gives = []"));
    assert!(
        code == 1 && said.contains("gives [\"read_mail\"]"),
        "{said}"
    );
    let out = "url = \"POST http://pay.test/out\"\n";
    assert_eq!(test(&format!("{out}expect = \"allow\"")).0, 0);
    let has = "labels = [\"read_mail\"]";
    assert_eq!(test(&format!("{out}{has}\nexpect = \"deny\"")).0, 0);
}
