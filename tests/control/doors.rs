//! Every door of `serve` refuses alike, shows a workload its own page, and is told to its clients.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use crate::exports::until;
use crate::program::{Program, command, free};

/// A gateway with a proxy and a `tls` listener for one session.
fn doors() -> (Program, SocketAddr) {
    let tls = free();
    let further = format!(
        "[ca]\ncertificate = \"ca.pem\"\n[[listener]]\nkind = \"tls\"\naddress = \"{tls}\"\nsession = \"agent-1\"\n"
    );
    (Program::start(&further), tls)
}

/// What curl prints. It trusts the session's CA.
fn curl(program: &Program, arguments: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "20", "--cacert", "ca.pem"])
        .args(arguments)
        .current_dir(program.folder.path())
        .env_clear()
        .output()
        .unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn an_unlisted_host_is_refused_inside_and_named_in_the_record_at_each_door() {
    let (program, tls) = doors();
    let proxy = program.proxy.to_string();
    let redirected = format!("unlisted.test:443:{tls}");
    let (secure, clear) = ("https://unlisted.test/x", "http://unlisted.test:8080/x");
    for (door, entry, arguments) in [
        ("CONNECT", "connect", ["-x", &proxy, secure]),
        ("SOCKS5", "socks", ["--socks5-hostname", &proxy, secure]),
        ("tls", "tls", ["--connect-to", &redirected, secure]),
        ("plain in CONNECT", "connect", ["-px", &proxy, clear]),
        (
            "plain in SOCKS5",
            "socks",
            ["--socks5-hostname", &proxy, clear],
        ),
    ] {
        let said = curl(&program, &arguments);
        assert!(said.contains("policy_default_deny"), "{door}: {said}");
        assert!(said.contains("unlisted.test"), "{door}: {said}");
        let record = program.records("exchange").pop().unwrap();
        let told = ["entry", "host", "session"].map(|key| record[key].as_str().unwrap());
        assert_eq!(
            told,
            [entry, "unlisted.test", "agent-1"],
            "{door}: {record}"
        );
        let id = record["id"].as_str().unwrap();
        assert!(said.contains(id), "{door}: {said}");
        let (_, why) = program.gateway(&["why", "--last"]);
        assert!(why.contains("://unlisted.test"), "{door}: {why}");
        if arguments.contains(&secure) {
            assert!(
                said.contains("`gateway allow unlisted.test`"),
                "{door}: {said}"
            );
            let (_, rule) = program.gateway(&["allow", "--last"]);
            assert!(
                rule.contains("Gateway::Host::\"unlisted.test\""),
                "{door}: {rule}"
            );
        }
    }
    // A client that does not trust the CA learns nothing; the record has the name.
    let roots = "/usr/share/ca-certificates/mozilla/ISRG_Root_X1.crt";
    curl(
        &program,
        &["--cacert", roots, "--connect-to", &redirected, secure],
    );
    until("the record of the refused handshake", || {
        let record = program.records("exchange").pop().unwrap();
        record["reason"] == "host_not_permitted" && record["host"] == "unlisted.test"
    });
    let (_, rule) = program.gateway(&["allow", "--last"]);
    assert!(rule.contains("Gateway::Host::\"unlisted.test\""), "{rule}");
}

#[test]
fn the_gateways_own_page_answers_at_each_door_for_its_session() {
    let (program, tls) = doors();
    let proxy = program.proxy.to_string();
    curl(&program, &["-x", &proxy, "https://unlisted.test/"]);
    let redirected = format!("gateway.internal:443:{tls}");
    let (clear, secure) = ("http://gateway.internal/", "https://gateway.internal/");
    for arguments in [
        ["-x", &proxy, clear],
        ["-px", &proxy, clear],
        ["-x", &proxy, secure],
        ["--socks5-hostname", &proxy, clear],
        ["--connect-to", &redirected, secure],
    ] {
        let page = curl(&program, &arguments);
        assert!(
            page.contains("You are in session `agent-1`"),
            "{arguments:?}: {page}"
        );
        assert!(
            page.contains("unlisted.test policy_default_deny"),
            "{arguments:?}: {page}"
        );
    }
}

#[test]
fn a_client_gets_its_variables_of_the_running_gateway_without_a_flag() {
    let other = free();
    let further = format!(
        "[[credential]]\nname = \"github\"\npreset = \"github\"\nfrom = \"env:KEY\"\n\
         [ca]\ncertificate = \"ca.pem\"\n[[listener]]\nkind = \"tls\"\naddress = \"{other}\"\nsession = \"agent-1\"\n"
    );
    let program = Program::start(&further);
    let variables = program.json(&["env"]);
    assert_eq!(
        variables,
        program.json(&["env", "--config", "gateway.toml"])
    );
    assert_eq!(variables["NO_PROXY"], "localhost,127.0.0.1,::1");
    assert_eq!(
        variables["HTTPS_PROXY"],
        format!("http://{}", program.proxy)
    );
    let folder = fs::canonicalize(program.folder.path()).unwrap();
    let certificate = folder.join("ca.pem").display().to_string();
    assert_eq!(variables["CURL_CA_BUNDLE"], certificate);
    // Git asks its helper for the phantom.
    let mut git = Command::new("git");
    git.args(["credential", "fill"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin");
    git.env("GIT_TERMINAL_PROMPT", "0")
        .env("HOME", program.folder.path());
    for (name, value) in variables.as_object().unwrap() {
        git.env(name, value.as_str().unwrap());
    }
    let asked = program.path("asked");
    fs::write(&asked, "protocol=https\nhost=github.com\n\n").unwrap();
    let filled = git.stdin(fs::File::open(asked).unwrap()).output().unwrap();
    let filled = String::from_utf8_lossy(&filled.stdout).into_owned();
    let phantom = variables["GITHUB_TOKEN"].as_str().unwrap();
    assert!(
        filled.contains(&format!("password={phantom}\n")),
        "{filled}"
    );
    let (code, said) = program.gateway(&["env", "--session", "nobody"]);
    assert_eq!(code, 2, "{said}");
    // A second gateway of the user: a session or a gateway is named.
    let at = program.path("second");
    fs::create_dir(&at).unwrap();
    let listen = free().to_string();
    let mut second = command(program.folder.path())
        .args(["serve", "-q", "--listen", &listen, "--allow", "a.test"])
        .current_dir(&at)
        .spawn()
        .unwrap();
    let name = format!("serve-{}", second.id());
    let ready = program.path(&format!("run/gateway/{name}.sock"));
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !ready.exists() && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let (code, said) = program.gateway(&["env"]);
    let of_second = program.json(&["env", "--gateway", &name]);
    let by_session = program.json(&["env", "--session", "agent-1"]);
    second.kill().unwrap();
    second.wait().unwrap();
    assert_eq!(code, 2, "{said}");
    assert!(said.contains(&format!("default of {name}")), "{said}");
    assert_eq!(of_second["HTTPS_PROXY"], format!("http://{listen}"));
    assert_eq!(by_session, variables);
}

#[test]
fn a_host_at_a_prohibited_address_is_told_with_the_lines_that_lift_it() {
    let (program, _) = doors();
    let file = program.path("gateway.toml").display().to_string();
    let lines = "`[[origin]]`, `match = \"https://localhost:8443\"`, `addresses = [\"127.0.0.1\"]`";
    // Before anything is applied.
    let (_, said) = program.gateway(&["allow", "localhost:8443"]);
    assert!(said.contains(lines) && said.contains(&file), "{said}");
    assert!(!said.contains("applied"), "{said}");
    let (code, said) = program.gateway(&["allow", "localhost:8443", "--yes"]);
    assert_eq!(code, 0, "{said}");
    let url = "https://localhost:8443/";
    let refused = curl(&program, &["-x", &program.proxy.to_string(), url]).replace("\\\"", "\"");
    assert!(refused.contains("ssrf_resolved_ip"), "{refused}");
    assert!(
        refused.contains("address is 127.0.0.1") && refused.contains(lines),
        "{refused}"
    );
    let (_, why) = program.gateway(&["why", "--last"]);
    assert!(why.contains(lines), "{why}");
    let rule = "[[origin]]\nmatch = \"https://localhost:8443\"\naddresses = [\"127.0.0.1\"]\n";
    program.edit(|before| format!("{before}\n{rule}"));
    program.reload();
    let refused = curl(&program, &["-x", &program.proxy.to_string(), url]);
    assert!(refused.contains("\"unreachable\""), "{refused}");
}

#[test]
fn an_address_of_ipv6_is_allowed_in_both_forms_and_as_its_refusal_says() {
    let (program, _) = doors();
    let proxy = program.proxy.to_string();
    let url = "https://[2606:4700::1111]/";
    let refused = curl(&program, &["-x", &proxy, url]);
    assert!(
        refused.contains("`gateway allow 2606:4700::1111`"),
        "{refused}"
    );
    for form in [
        "2606:4700::1111",
        "[2606:4700::1111]",
        "[2606:4700::1111]:8443",
    ] {
        let (code, said) = program.gateway(&["allow", form, "--yes"]);
        assert_eq!(code, 0, "{form}: {said}");
        assert!(
            said.contains("Gateway::Host::\"2606:4700::1111\""),
            "{form}: {said}"
        );
    }
    let answered = curl(&program, &["-x", &proxy, url]);
    assert!(!answered.contains("policy_default_deny"), "{answered}");
}

#[test]
fn serve_runs_by_flags_alone_and_warns_of_nothing_that_is_not_so() {
    let (program, _) = doors();
    let at = program.folder.path();
    let listen = free().to_string();
    for (arguments, warned) in [
        (&["--secret", "KEY@api.test=env:KEY"][..], false),
        (&["--allow", "a.test"][..], false),
        (&["--preset", "npm"][..], false),
        (&[][..], true),
    ] {
        let log = fs::File::create(at.join("said")).unwrap();
        let mut serve = command(at)
            .args(["serve", "--listen", &listen])
            .args(arguments)
            .stderr(log)
            .spawn()
            .unwrap();
        let said = || fs::read_to_string(at.join("said")).unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !said().contains("gateway: next: ") && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        serve.kill().unwrap();
        serve.wait().unwrap();
        let said = said();
        assert!(
            said.contains(&format!("session `default` on {listen}")),
            "{said}"
        );
        let next = "gateway: next: `eval \"$(gateway env)\"` in the shell of a client";
        assert!(said.contains(next), "{said}");
        let is_warned = said.contains("there are listeners, and nothing is permitted");
        assert_eq!(is_warned, warned, "{arguments:?}: {said}");
    }
    let (code, said) = program.gateway(&["serve", "--listen", "0.0.0.0:1", "--allow", "a.test"]);
    assert_eq!(code, 2, "{said}");
}
