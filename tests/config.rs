//! `gateway.toml` from outside: what is refused and with which words, what is documented, and that
//! no secret is repeated.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use gateway::audit::Durability;
use gateway::body::Limit;
use gateway::config::{Config, ListenerKind, Severity, keys};
use gateway::origin::OriginProtocol;
use gateway::session::When;

const CANARY: &str = "ghp_CANARY456789abcdefghijABCDEFGHIJ012345";

/// Reads a text as `gateway.toml` of an empty folder.
fn read(text: &str) -> Result<Config, Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    read_in(folder.path(), text)
}

/// Gives each mistake as `line:column: what | why | fix`.
fn read_in(folder: &Path, text: &str) -> Result<Config, Vec<String>> {
    Config::from_str(text, &folder.join("gateway.toml")).map_err(|refused| {
        let errors = refused
            .mistakes
            .into_iter()
            .filter(|mistake| mistake.severity != Severity::Warning);
        errors
            .map(|mistake| {
                let position = mistake.position;
                format!(
                    "{}:{}: {} | {} | {}",
                    position.line, position.column, mistake.what, mistake.why, mistake.remedy
                )
            })
            .collect()
    })
}

#[track_caller]
fn refused(text: &str, expected: &[&str]) {
    let mistakes = read(text).expect_err(text);
    assert_eq!(mistakes.len(), expected.len(), "{text}\n{mistakes:#?}");
    for (mistake, expected) in mistakes.iter().zip(expected) {
        assert!(
            mistake.starts_with(expected),
            "{text}\nexpected {expected}\nfound    {mistake}"
        );
    }
}

#[test]
fn an_empty_file_opens_nothing() {
    let config = read("").unwrap();
    assert!(
        config.listeners.is_empty()
            && config.credentials.is_empty()
            && config.policy.files.is_empty()
    );
    assert!(config.allow.is_empty() && !config.sandbox.allow_userns);
}

#[test]
fn a_whole_file_is_read_as_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("policies")).unwrap();
    fs::write(at("policies/a.cedar"), "").unwrap();
    fs::write(at("policies/b.cedar"), "").unwrap();
    let certificate = rcgen::generate_simple_self_signed(vec!["corp.test".into()]).unwrap();
    fs::write(at("corp.pem"), certificate.cert.pem()).unwrap();
    fs::write(at("key.pem"), "x").unwrap();
    fs::set_permissions(at("key.pem"), fs::Permissions::from_mode(0o600)).unwrap();
    let config = read_in(
        folder.path(),
        r#"
        ca = { certificate = "ca-{session}.pem", lifetime = "12h" }
        audit = { path = "/var/log/gateway/audit.jsonl", sync = "always", rotate = "1GiB" }
        policy = { files = ["policies/*.cedar"] }
        runtime = { threads = 2 }
        resolver = { servers = ["127.0.0.1", "[::1]:5353"], hosts_file = false, stale = "2h" }
        sandbox = { see = ["/srv/tools"], see_home = ["claude", "~/.vimrc"], hide = ["~/x"], pass_env = ["EDITOR"], write = ["/var/cache/pip"] }
        phantoms = { env_file = "run/{session}.env" }
        [limits]
        head_timeout = "5s"
        [[listener]]
        kind = "proxy"
        address = "0.0.0.0:8080"
        session = "agent-1"
        groups = ["agents"]
        who = ["password"]
        passwords = { agent = "env:PROXY_PASSWORD" }
        [[listener]]
        kind = "tls"
        address = "127.0.0.1:8443"
        session = "agent-2"
        port = 8443
        [[credential]]
        name = "GITHUB_TOKEN"
        from = { command = ["/usr/bin/pass", "show", "github"], ttl = "5m" }
        origins = ["https://api.github.com", "https://*.example.com:8443"]
        places = ["header:authorization:Bearer", "basic:password", "cookie:sid", "query:key"]
        env = ["GITHUB_TOKEN", "GH_TOKEN"]
        shape = "ghp_[36 alnum]"
        methods = ["GET"]
        path = "/repos/o/r"
        [[credential]]
        name = "corp/api"
        from = "keyring:gateway/corp"
        origins = ["https://*.corp.test"]
        places = ["header:x-api-key"]
        env = ["CORP_KEY"]
        inject = "always"
        foreign_credential = "strip"
        [[origin]]
        match = "https://*.corp.test"
        roots = ["corp.pem"]
        replace_system_roots = true
        client_certificate = "corp.pem"
        client_key = "file:key.pem"
        addresses = ["10.1.0.0/16"]
        http = "2"
        encoded_slash = true
        [[origin]]
        match = "https://one.corp.test"
        connect = "127.0.0.1:9443"
        "#,
    )
    .unwrap();
    assert_eq!(config.ca.certificate, Some(at("ca-{session}.pem")));
    assert_eq!(
        (config.audit.sync, config.audit.rotate_bytes),
        (Durability::Always, 1 << 30)
    );
    assert_eq!(config.policy.sources().unwrap().len(), 2);
    assert_eq!(config.runtime.threads.get(), 2);
    assert_eq!(config.resolver.servers[0].to_string(), "127.0.0.1:53");
    assert_eq!(config.resolver.stale, Duration::from_secs(7200));
    assert_eq!(
        config
            .phantoms
            .file_of(config.listeners[0].session.one().unwrap()),
        Some(at("run/agent-1.env"))
    );
    assert_eq!(config.listeners[0].proxy_user(), Some("agent"));
    assert!(matches!(
        config.listeners[1].kind,
        ListenerKind::Tls { port: 8443 }
    ));
    assert_eq!(config.credentials[0].from.ttl().unwrap().as_secs(), 300);
    assert_eq!(config.credentials[0].places.len(), 4);
    assert_eq!(config.credentials[1].when, When::Always);
    assert_eq!(config.origins[0].rule.protocol, OriginProtocol::Http2);
    assert!(
        config.own_files().contains(&at("policies/a.cedar"))
            && config.secret_files().contains(&at("key.pem"))
    );
    assert_eq!(config.sandbox.see, [std::path::PathBuf::from("/srv/tools")]);
    assert_eq!(config.sandbox.see_home, ["claude", "~/.vimrc"]);
}

#[test]
fn what_leads_out_of_the_home_is_nothing_of_the_home() {
    let folder = tempfile::tempdir().unwrap();
    let mistakes = read_in(
        folder.path(),
        "[sandbox]\nsee_home = [\"\", \"../x\", \"~/../x\", \"rust\"]\n",
    )
    .unwrap_err();
    assert_eq!(mistakes.len(), 3, "{mistakes:#?}");
}

#[test]
fn all_mistakes_of_a_file_are_reported_at_once_and_in_its_order() {
    refused(
        "[ca]\ncertifcate = \"x\"\nlifetime = \"24\"\n[adit]\n[audit]\nsync = \"never\"\nrotate = 5\n[[listener]]\nkind = \"http\"\nadress = \"x\"\n[limits]\ncached_certificates = 0\n",
        &[
            "2:1: unknown key `certifcate` in [ca] | a key that nothing reads would be a setting that does not hold | did you mean `certificate`?",
            "3:12: `lifetime` of [ca] is `24` | a duration needs its unit | write for example `10s`, `5m` or `24h`",
            "4:2: unknown section or key `adit` | a section that nothing reads would be settings that do not hold | did you mean [audit]?",
            "6:8: `sync` of [audit] is `never` | it is not one of the known words | write `batch` or `always`",
            "7:10: `rotate` of [audit] is of type integer | it takes a text in quotes | write a size, such as \"64KiB\" or \"256MiB\"",
            "8:1: [[listener]] has no `address` | there is nowhere to listen |",
            "9:8: `kind` of [[listener]] is `http` | it is not one of the known words",
            "10:1: unknown key `adress` in [[listener]] | a key that nothing reads would be a setting that does not hold | did you mean `address`?",
            "12:23: `cached_certificates` of [limits] is `0` | it is outside 1 to 100000 | write a number within that range",
        ],
    );
}

#[test]
fn syntax_errors_stand_beside_the_other_mistakes() {
    let mistakes = read("[ca]\nlifetime = \n[audit]\nsync = \"sometimes\"\n").unwrap_err();
    assert!(
        mistakes
            .iter()
            .any(|mistake| mistake.starts_with("2:") && mistake.contains("no valid TOML")),
        "{mistakes:?}"
    );
    assert!(
        mistakes
            .iter()
            .any(|mistake| mistake.starts_with("4:8: `sync`")),
        "{mistakes:?}"
    );
}

#[test]
fn a_key_in_the_wrong_section_is_told_its_place() {
    refused(
        "address = \"x\"\n[ca]\nthreads = 2\n[credential]\nname = \"x\"\n",
        &[
            "1:1: unknown section or key `address` | a section that nothing reads would be settings that do not hold | `address` belongs to [[listener]]",
            "3:1: unknown key `threads` in [ca] | a key that nothing reads would be a setting that does not hold | `threads` belongs to [runtime]",
            "4:2: `credential` is not written as [[credential]] | it may occur many times | write [[credential]]",
        ],
    );
}

#[test]
fn open_listeners_are_refused() {
    refused(
        "[[listener]]\nkind = \"proxy\"\naddress = \"0.0.0.0:1\"\n[[listener]]\nkind = \"tls\"\naddress = \"[::]:2\"\n[[listener]]\nkind = \"proxy\"\naddress = \"192.168.1.2:3\"\n",
        &[
            "3:11: a proxy that asks nobody who it is listens beyond loopback | whoever reaches that address would be this session",
            "6:11: a `tls` listener listens on every address",
            "9:11: a proxy that asks nobody who it is listens beyond loopback",
        ],
    );
    let warned = read("[[listener]]\nkind = \"tls\"\naddress = \"192.168.1.2:3\"\n").unwrap();
    assert!(
        warned
            .warnings
            .iter()
            .any(|warning| warning.what == "a `tls` listener listens beyond loopback")
    );
}

#[test]
fn a_credential_of_every_request_needs_to_know_whose_requests_they_are() {
    let file = |listener: &str, inject: &str| {
        format!(
            "[[listener]]\nkind = \"proxy\"\naddress = \"127.0.0.1:1\"\n{listener}\n[[credential]]\nname = \"A\"\norigins = [\"https://a.test\"]\nplaces = [\"header:x-key\"]\ninject = \"{inject}\"\n"
        )
    };
    refused(
        &file("", "always"),
        &[
            "5:1: every user of this machine could use the credential `A` | it goes with every request, and the proxy at 127.0.0.1:1 asks nobody who it is | add `who = [\"password\"]`",
        ],
    );
    let login = "who = [\"password\"]\npasswords = { a = \"env:P\" }";
    for (listener, inject) in [
        (login, "always"),
        ("any_user = true", "always"),
        ("", "phantom"),
    ] {
        read(&file(listener, inject)).unwrap();
    }
}

#[test]
fn settings_of_a_listener_that_contradict_each_other_are_refused() {
    refused(
        "[[listener]]\nkind = \"proxy\"\naddress = \"127.0.0.1:1\"\nport = 443\n[[listener]]\nkind = \"tls\"\naddress = \"127.0.0.1:1\"\npasswords = { \"a:b\" = \"env:P\" }\nauthentication = {}\ngroups = [\"x\"]\n",
        &[
            "4:8: `port` contradicts `kind = \"proxy\"`",
            "5:1: a second listener listens on 127.0.0.1:1",
            "5:1: the listeners of session `default` differ in `groups`",
            "8:13: `passwords` and `\"password\"` in `who` go together",
            "8:15: unknown name `a:b` in `passwords` | a user is visible ASCII without `:`",
            "9:1: unknown key `authentication` in [[listener]] | a key that nothing reads would be a setting that does not hold | write `who = [\"password\"]` and `passwords = { USER = \"REFERENCE\" }`",
        ],
    );
}

#[test]
fn doors_of_capture_listen_anywhere_and_answers_lead_to_one_of_them() {
    let file = |session: &str, more: &str| {
        format!(
            "[[listener]]\nkind = \"transparent\"\naddress = \"[::]:1\"\nsession = \"{session}\"\n\
             [[listener]]\nkind = \"dns\"\naddress = \"0.0.0.0:2\"\nsession = \"a\"\n{more}"
        )
    };
    read(&file("a", "")).unwrap();
    refused(
        &file(
            "b",
            "port = 53\nwho = [\"password\"]\npasswords = { a = \"env:P\" }\n",
        ),
        &[
            "5:1: no listener takes what the answers for `a` lead to | a name gets an address of the session's own, which only capture brings back | add a [[listener]] with `kind = \"transparent\"` and `session = \"a\"`",
            "9:8: `port` contradicts `kind = \"dns\"`",
            "10:7: a `dns` listener has no place for what a client presents",
        ],
    );
}

#[test]
fn interfaces_are_evidence_where_all_is_captured_and_the_kernel_tells_them() {
    let file = |kind: &str, address: &str, session: &str| {
        format!(
            "[[listener]]\nkind = \"{kind}\"\naddress = \"{address}\"\nwho = [\"mark\"]\nsession = \"{session}\"\n"
        )
    };
    let dns = file("dns", "[::]:2", "{caller}");
    read(&(file("transparent", "[::]:1", "{caller}") + &dns)).unwrap();
    refused(
        &(file("transparent", "0.0.0.0:1", "{caller}") + &file("tls", "[::1]:3", "a") + &dns),
        &[
            "3:11: the kernel tells no interface at an address of IPv4",
            "9:7: clients choose to connect to a `tls` listener",
        ],
    );
    refused(
        &(file("transparent", "[::]:1", "{caller}")
            + &file("transparent", "[::]:2", "interface:tap0")),
        &["6:1: the session `interface:tap0` may be a caller's"],
    );
}

/// A guest without IP comes by a Unix socket, and a sandbox that forwards to a URL not at all.
#[test]
fn there_is_no_door_by_vsock_nor_one_to_which_a_sandbox_forwards() {
    let door = |kind: &str, address: &str, more: &str| {
        format!("[[listener]]\nkind = \"{kind}\"\naddress = \"{address}\"\n{more}")
    };
    read(&door(
        "proxy",
        "unix:/run/vm/v.sock_3128",
        "session = \"vm\"\n",
    ))
    .unwrap();
    refused(
        &door("proxy", "vsock:3:3128", ""),
        &[
            "3:11: `address` of [[listener]] is `vsock:3:3128` | there is no door by vsock, nor by a URL that a sandbox forwards to | listen on a Unix socket",
        ],
    );
    let aliases = "aliases = { openai = \"https://api.openai.com\" }\n";
    let tls = format!("{aliases}tls = {{ certificate = \"door.pem\", key = \"door.key\" }}\n");
    let mistakes = read(&door("base", "127.0.0.1:1", &tls))
        .unwrap_err()
        .concat();
    assert!(
        mistakes.contains("`tls` contradicts `kind = \"base\"`"),
        "{mistakes}"
    );
    refused(
        &door("base", "0.0.0.0:1", aliases),
        &["3:11: a `base` listener listens beyond loopback"],
    );
}

#[test]
fn a_base_listener_has_an_origin_for_each_alias_and_stays_on_this_machine() {
    let file = |address: &str, more: &str| {
        format!("[[listener]]\nkind = \"base\"\naddress = \"{address}\"\n{more}")
    };
    let aliases = "aliases = { openai = \"https://api.openai.com\" }\n";
    read(&file("127.0.0.1:1", aliases)).unwrap();
    read(&file("unix:/run/base.sock", aliases)).unwrap();
    refused(
        &file("127.0.0.1:1", ""),
        &["1:1: `aliases` and `kind = \"base\"` do not fit"],
    );
    refused(
        "[[listener]]\nkind = \"proxy\"\naddress = \"127.0.0.1:1\"\naliases = { a = \"https://a.test\" }\n",
        &["4:11: `aliases` and `kind = \"proxy\"` do not fit"],
    );
    let several = "aliases = { all = \"https://*.a.test\", \"a/b\" = \"https://a.test\", c = \"c.test/v1\" }\n";
    refused(
        &file("0.0.0.0:1", several),
        &[
            "3:11: a `base` listener listens beyond loopback",
            "4:19: `aliases` of [[listener]] is `https://*.a.test` | an alias is of one server",
            "4:39: unknown name `a/b` in `aliases`",
            "4:69: `aliases` of [[listener]] is `c.test/v1`",
        ],
    );
    refused(
        &file(
            "127.0.0.1:1",
            &format!("{aliases}who = [\"token\"]\nport = 1\n"),
        ),
        &["6:8: `port` contradicts `kind = \"base\"`"],
    );
}

#[test]
fn weak_credentials_are_refused() {
    refused(
        concat!(
            "[[credential]]\nname = \"A\"\norigins = [\"http://api.test\", \"https://*.com\", \"https://*.co.uk\", \"ftp://api.test\"]\n",
            "[[credential]]\nname = \"A\"\norigins = [\"http://127.0.0.1:80\"]\nplaces = [\"header:host\", \"header:x-key\"]\ninject = \"always\"\nenv = [\"LD_PRELOAD\", \"https_proxy\", \"B\"]\n",
            "[[credential]]\nname = \"no-variable\"\norigins = []\n",
            "[[credential]]\nname = \"C\"\nfrom = \"env:C\"\npath = \"/a/../b\"\nmethods = [\"TRACE\", \"get\"]\n",
        ),
        &[
            "1:1: the credential `A` is refused | credential `A` would travel in clear text; `http` is for loopback addresses alone",
            "3:31: `origins` of [[credential]] is `https://*.com` | `*.com` covers domains that anyone can register",
            "3:48: `origins` of [[credential]] is `https://*.co.uk`",
            "3:67: `origins` of [[credential]] is `ftp://api.test` | the scheme of an origin is https or http",
            "4:1: the credential `A` would travel to http://127.0.0.1 in clear text | even on loopback",
            "4:1: the credential `A` is refused | credential `A` is bound twice",
            "7:11: `places` of [[credential]] is `header:host`",
            "9:8: `env` of [[credential]] is `LD_PRELOAD`",
            "9:22: `env` of [[credential]] is `https_proxy`",
            "10:1: [[credential]] has no `from`",
            "12:11: `origins` is empty",
            "13:1: [[credential]] has no `origins`",
            "16:8: `path` of [[credential]] is `/a/../b`",
            "17:12: `methods` of [[credential]] is `TRACE`",
            "17:21: `methods` of [[credential]] is `get`",
        ],
    );
}

#[test]
fn a_credential_that_is_put_in_always_shares_no_place() {
    let credential = |name: &str, when: &str| {
        format!(
            "[[credential]]\nname = \"{name}\"\norigins = [\"https://*.a.test\"]\nplaces = [\"header:x-key\"]\ninject = \"{when}\"\n"
        )
    };
    let both = credential("A", "always") + &credential("B", "phantom");
    refused(
        &both,
        &[
            "6:1: the credential `B` is refused | credentials `A` and `B` share `x-key`, and one is always put there",
        ],
    );
    assert!(read(&(credential("A", "phantom") + &credential("B", "phantom"))).is_ok());
    refused(
        "[[credential]]\nname = \"A\"\norigins = [\"https://a.test\"]\ninject = \"always\"\n",
        &["4:10: `inject = \"always\"` needs exactly one place"],
    );
}

#[test]
fn places_that_a_service_takes_are_read_strictly() {
    let credential = "[[credential]]\nname = \"A\"\norigins = [\"https://a.test\"]\n";
    let good = "takes = [\"query:token\", \"form:token@/hooks/*\", \"path:/in/*/*\", \"header:deploy-token\", \"cookie:d\"]\ncookies = [\"lang\", \"*\"]\n";
    let read = read(&format!("{credential}{good}")).unwrap();
    assert_eq!(read.credentials[0].takes.as_ref().unwrap().len(), 5);
    assert_eq!(read.credentials[0].cookies, ["lang", "*"]);
    refused(
        &format!(
            "{credential}takes = [\"body:x\", \"query:\", \"path:in\"]\ncookies = [\"a=b\"]\n"
        ),
        &[
            "4:10: `takes` of [[credential]] is `body:x`",
            "4:20: `takes` of [[credential]] is `query:`",
            "4:30: `takes` of [[credential]] is `path:in`",
            "5:12: `cookies` of [[credential]] is `a=b`",
        ],
    );
}

#[test]
fn a_proxy_that_cannot_be_used_and_what_is_not_for_all_origins_is_refused() {
    let all = "[[origin]]\nmatch = \"*\"\n";
    let one = "[[origin]]\nmatch = \"https://a.test\"\n";
    for (text, expected) in [
        (
            format!("{all}via = \"proxy.test:3128\"\n"),
            "3:7: `via` of [[origin]] is `proxy.test:3128` | it is reached by plain HTTP; TLS to an origin runs inside its tunnel | write for example",
        ),
        (
            format!("{all}via = \"https://proxy.test:3128\"\n"),
            "3:7: `via` of [[origin]] is `https://proxy.test:3128` | it is reached by plain HTTP",
        ),
        (
            format!("{all}via = \"http://proxy.test\"\n"),
            "3:7: `via` of [[origin]] is `http://proxy.test` | a proxy is one host, with its port",
        ),
        (
            format!("{all}via = \"http://*.proxy.test:1\"\n"),
            "3:7: `via` of [[origin]] is `http://*.proxy.test:1` | a proxy is one host",
        ),
        (
            format!("{all}via = \"http://169.254.169.254:80\"\n"),
            "3:7: `via` of [[origin]] is `http://169.254.169.254:80` | 169.254.169.254 is a cloud's metadata service",
        ),
        (
            format!("{all}via = \"http://ann:{CANARY}@proxy.test:1\"\n"),
            "3:7: `via` contains a login | a login in a URL is copied and shown with it | write the proxy alone",
        ),
        (
            format!("{all}via = \"direct\"\n"),
            "3:7: `direct` has no effect for all origins",
        ),
        (
            format!("{all}via = 3128\n"),
            "3:7: `via` of [[origin]] is of type integer",
        ),
        (
            format!("{all}via_auth = \"env:P\"\n"),
            "3:12: `via_auth` has no proxy | it is the login to the proxy that `via` names | add `via",
        ),
        (
            format!("{one}via = \"direct\"\nvia_auth = \"env:P\"\n"),
            "4:12: `via_auth` has no proxy",
        ),
        (
            format!("{one}via = \"http://p.test:1\"\nvia_auth = \"vault:a/b#c\"\n"),
            "4:12: `via_auth` is kept in a store",
        ),
        (
            format!("{one}via = \"http://p.test:1\"\nvia_auth = \"hunter2\"\n"),
            "4:12: `via_auth` refers to no usable secret",
        ),
        (
            format!("{one}via = \"http://p.test:1\"\nconnect = \"127.0.0.1:1\"\n"),
            "3:7: `via` contradicts `connect`",
        ),
        (
            format!("{all}addresses = [\"10.0.0.0/8\"]\n"),
            "3:13: `addresses` is not for all origins | for all origins there are `roots`, `via` and `via_auth`",
        ),
        (
            format!("{all}via = \"http://p.test:1\"\n{all}via = \"http://q.test:1\"\n"),
            "5:9: a second [[origin]] is for all origins",
        ),
        (
            format!(
                "{all}via = \"http://p.test:1\"\nvia_auth = \"env:P\"\n[sandbox]\npass_env = [\"P\"]\n"
            ),
            "5:1: `P` is passed to the workload | the gateway logs in to a proxy with it",
        ),
    ] {
        refused(&text, &[expected]);
        assert!(!format!("{:?}", read(&text)).contains("CANARY"), "{text}");
    }
    let config = read(&format!(
        "{all}via = \"http://p.test:3128/\"\nvia_auth = \"env:P\"\n"
    ))
    .unwrap();
    assert_eq!(
        config.defaults.settings.via.unwrap().to_string(),
        "http://p.test:3128"
    );
}

#[test]
fn weak_and_contradictory_origins_are_refused() {
    refused(
        concat!(
            "[[origin]]\nmatch = \"https://*.test\"\n",
            "[[origin]]\nmatch = \"https://a.test\"\naddresses = [\"0.0.0.0/0\", \"169.254.169.254\", \"169.254.0.0/16\", \"fd00:ec2::254\", \"10.0.0.1/8\", \"10.1.0.0/16\"]\nconnect = \"127.0.0.1:1\"\ncleartext = true\nreplace_system_roots = true\n",
            "[[origin]]\nmatch = \"https://a.test\"\nclient_certificate = \"/nonexistent.pem\"\n",
            "[[origin]]\nmatch = \"http://*.b.test\"\ncleartext = true\nhttp = \"2\"\nroots = []\nconnect = \"169.254.169.254:80\"\n",
        ),
        &[
            "2:9: `match` of [[origin]] is `https://*.test` | `*.test` covers domains that anyone can register",
            "5:13: `addresses` contradicts `connect`",
            "5:14: `addresses` of [[origin]] is `0.0.0.0/0` | an exception that wide",
            "5:27: `addresses` of [[origin]] is `169.254.169.254` | it reaches 169.254.169.254, a cloud's metadata service",
            "5:46: `addresses` of [[origin]] is `169.254.0.0/16` | it reaches",
            "5:64: `addresses` of [[origin]] is `fd00:ec2::254` | it reaches",
            "5:81: `addresses` of [[origin]] is `10.0.0.1/8` | bits are set behind the prefix",
            "7:13: `cleartext` contradicts `match`",
            "8:24: `replace_system_roots` needs `roots`",
            "9:1: a second [[origin]] is for https://a.test",
            "11:22: `client_certificate` of [[origin]] is `/nonexistent.pem` | the file cannot be read",
            "11:22: `client_certificate` needs `client_key`",
            "14:13: `cleartext` is for a whole domain beyond loopback",
            "15:8: `http = \"2\"` contradicts `match`",
            "16:9: `roots` contradicts `match`",
            "17:11: `connect` of [[origin]] is `169.254.169.254:80`",
        ],
    );
}

#[test]
fn a_loopback_name_in_clear_text_leads_to_loopback() {
    let origin = |connect: &str| {
        format!("[[origin]]\nmatch = \"http://localhost:9000\"\ncleartext = true\n{connect}")
    };
    assert!(read(&origin("")).is_ok());
    assert!(read(&origin("connect = \"127.0.0.1:9001\"")).is_ok());
    refused(
        &origin("connect = \"203.0.113.5:80\""),
        &["3:13: `cleartext` contradicts `connect`"],
    );
}

#[test]
fn endpoints_are_declared_with_a_protocol_that_is_known() {
    let good =
        "[[read]]\nas = \"graphql\"\norigins = [\"https://a.test\"]\npath = \"/api/*/graphql\"\n";
    assert!(read(&good.repeat(2)).is_ok());
    assert!(read(&good.replace("path = \"/api/*/graphql\"\n", "")).is_ok());
    for (text, expected) in [
        (good.replace("\"graphql\"", "\"grpc\""), "2:6: `as`"),
        (
            good.replace("as = \"graphql\"\n", ""),
            "1:1: [[read]] has no `as`",
        ),
        (
            good.replace("\"https://a.test\"", ""),
            "3:11: `origins` names no origin",
        ),
        (
            good.replace("/api/*/graphql", "/api//graphql"),
            "4:8: `path`",
        ),
    ] {
        let mistakes = read(&text).expect_err(&text);
        let (place, what) = expected.split_once(": ").unwrap();
        let told = |one: &String| one.contains(place) && one.contains(what);
        assert!(mistakes.iter().any(told), "{expected}\n{mistakes:#?}");
    }
}

#[test]
fn facts_of_content_are_declared_strictly() {
    let fact = |more: &str| format!("[[fact]]\norigins = [\"https://a.test\"]\n{more}");
    let good = fact("name = \"amount\"\ntype = \"Long\"\nform = \"a[b]\"\n");
    assert!(read(&good).is_ok());
    let elsewhere = good
        .replace("a.test", "b.test")
        .replace("form = \"a[b]\"", "json = \"/a\"");
    assert!(read(&format!("{good}{elsewhere}")).is_ok());
    let tool = fact("name = \"a\"\ntype = \"Long\"\njson = \"/a\"\ntool = \"t\"\n");
    assert!(
        read(&format!(
            "{tool}[[read]]\nas = \"mcp\"\norigins = [\"a.test\"]\n"
        ))
        .is_ok()
    );
    assert!(read(&tool.replace("a.test", "mcp.linear.app")).is_ok());
    for (text, expected) in [
        (
            fact("name = \"a b\"\ntype = \"Long\"\nform = \"a\""),
            "3:8: `name`",
        ),
        (
            fact("name = \"has\"\ntype = \"Long\"\nform = \"a\""),
            "3:8: `name`",
        ),
        (
            fact("name = \"a\"\ntype = \"Decimal\"\nform = \"a\""),
            "4:8: `type`",
        ),
        (
            fact("name = \"a\"\ntype = \"Long\"\nform = \"a[\""),
            "5:8: `form`",
        ),
        (
            fact("name = \"a\"\ntype = \"Long\"\njson = \"a\""),
            "5:8: `json`",
        ),
        (
            fact("name = \"a\"\ntype = \"Long\"\njson = \"/a~2\""),
            "5:8: `json`",
        ),
        (
            fact("name = \"a\"\ntype = \"Long\"\njson = \"/a\"\nform = \"a\""),
            "6:8: `form` and `json` exclude each other",
        ),
        (
            fact("name = \"a\"\ntype = \"Long\""),
            "1:1: [[fact]] has no `json`",
        ),
        (
            fact("type = \"Long\"\njson = \"/a\""),
            "1:1: [[fact]] has no `name`",
        ),
        (
            fact("name = \"a\"\ntype = \"Set<String>\"\nform = \"a\""),
            "4:8: a form has no sets",
        ),
        (
            fact("name = \"a\"\ntype = \"Set<String>\"\ntext = true"),
            "4:8: a form has no sets, nor has text",
        ),
        (
            fact("name = \"a\"\ntype = \"Long\"\nmultipart = \"a[\""),
            "5:13: `multipart`",
        ),
        (
            fact("name = \"a\"\ntype = \"Long\"\nmultipart = \"a\"\ntext = true"),
            "6:8: `text` and `multipart` exclude each other",
        ),
        (
            fact("name = \"a\"\ntype = \"Long\"\nform = \"a\"\ntool = \"t\""),
            "6:8: `tool` needs `json`",
        ),
        (
            fact("name = \"a\"\ntype = \"Long\"\njson = \"/a\"\ntool = \"t\""),
            "6:8: `tool` is of MCP, which is not read from https://a.test",
        ),
        (
            good.replace("\"https://a.test\"", ""),
            "2:11: `origins` names no origin",
        ),
        (
            format!("{good}{good}"),
            "8:8: `amount` is declared twice for https://a.test",
        ),
        (
            format!("{good}{}", elsewhere.replace("Long", "Bool")),
            "8:8: `amount` is declared as",
        ),
    ] {
        let mistakes = read(&text).expect_err(&text);
        assert_eq!(mistakes.len(), 1, "{text}\n{mistakes:#?}");
        let (place, what) = expected.split_once(": ").unwrap();
        assert!(
            mistakes[0].contains(what),
            "{text}\n{expected}\n{mistakes:#?}"
        );
        assert!(
            mistakes[0].starts_with(&place[..2]),
            "{text}\n{expected}\n{mistakes:#?}"
        );
    }
}

#[test]
fn the_bounds_of_the_sandbox_are_read_and_within_reason() {
    let config =
        read("[sandbox]\nmemory_files = \"2GiB\"\nprocesses = 512\npass_env = [\"MY_*\"]\n")
            .unwrap();
    assert_eq!(config.sandbox.memory_files, Some(Limit::mib(2048)));
    assert_eq!(config.sandbox.processes, Some(512));
    assert_eq!(config.sandbox.pass_env, ["MY_*"]);
    refused(
        "[sandbox]\nmemory_files = \"1MiB\"\nprocesses = 2\n",
        &[
            "2:16: `memory_files` is 1MiB",
            "3:13: `processes` of [sandbox] is `2`",
        ],
    );
    refused("[sandbox]\npass_env = [\"*\"]\n", &["2:13: "]);
}

#[test]
fn a_limit_of_the_whole_is_no_less_than_that_of_a_part() {
    refused(
        "[limits]\nmax_buffered_total = \"1MiB\"\n",
        &["1:1: `max_buffered_total` is less than `max_buffered_request`"],
    );
    refused(
        "[limits]\nconnections = 10\n",
        &["1:1: `connections` is less than `connections_per_session`"],
    );
}

#[test]
fn whoever_is_told_is_told_in_one_way_and_a_webhook_is_signed_and_not_in_clear_text() {
    let webhook = |more: &str| format!("[[notify]]\nurl = \"https://a.test/ask\"\n{more}");
    refused("[[notify]]\n", &["1:1: [[notify]] has no `command`"]);
    refused(
        "[[notify]]\ndesktop = false\n",
        &["1:1: [[notify]] has no `command`"],
    );
    refused(&webhook(""), &["1:1: [[notify]] has no `key`"]);
    for other in ["command = [\"/bin/true\"]\n", "desktop = true\n"] {
        let both = webhook(&format!("key = \"env:PATH\"\n{other}"));
        assert!(read(&both).unwrap_err()[0].contains("are in one section"));
    }
    refused(
        "[[notify]]\ncommand = [\"/bin/true\"]\nkey = \"env:PATH\"\n",
        &["3:7: `key` has no `url`"],
    );
    refused(
        &webhook("key = \"vault:secret/app#b\"\n"),
        &["3:7: `key` is kept in a store"],
    );
    refused(
        &webhook("key = \"env:PATH\"\nmethod = \"PUT\"\n"),
        &["4:1: unknown key `method`"],
    );
    let literal = webhook(&format!("key = \"{CANARY}\"\n"));
    refused(&literal, &["3:7: the file contains a literal secret"]);
    assert!(!format!("{:?}", read(&literal).unwrap_err()).contains(CANARY));
    refused(
        "[[notify]]\nurl = \"http://a.test/ask\"\nkey = \"env:PATH\"\n",
        &["2:7: the answer could be changed on the way"],
    );
    for url in ["a.test/ask", "https://*.test/", "https://a.test/?x"] {
        let text = format!("[[notify]]\nurl = \"{url}\"\nkey = \"env:PATH\"\n");
        refused(&text, &["2:7: "]);
    }
    for url in [
        "https://a.test",
        "http://127.0.0.1:8080/ask/",
        "http://localhost/",
    ] {
        read(&format!(
            "[[notify]]\nurl = \"{url}\"\nkey = \"env:PATH\"\n"
        ))
        .unwrap();
    }
    // Clear text stays on this machine, and nobody asks himself.
    let local = "[[notify]]\nurl = \"http://localhost:8080/\"\nkey = \"env:PATH\"\n";
    let origin = "[[origin]]\nmatch = \"http://localhost:8080\"\ncleartext = true\n";
    for way in [
        "connect = \"93.184.215.14:80\"",
        "via = \"http://127.0.0.1:3128\"",
    ] {
        let text = format!("{local}{}{way}\n", origin.replace("cleartext = true\n", ""));
        refused(&text, &["2:7: the answer could be changed on the way"]);
    }
    read(&format!("{local}{origin}connect = \"127.0.0.1:81\"\n")).unwrap();
    refused(
        &format!("{local}[control]\nmetrics_address = \"127.0.0.1:8080\"\n"),
        &["2:7: the gateway itself would be asked | it has its metrics at this port"],
    );
    for (control, told) in [
        (
            "address = \"127.0.0.1:9\"",
            "1:1: [control] has no `tls` | operators are known",
        ),
        (
            "address = \"127.0.0.1:0\"\ntls = {}",
            "2:11: `address` of [control] is `127.0.0.1:0` | it is no address and port",
        ),
        (
            "tls = {}",
            "2:7: `tls` is of the control port | nothing listens for operators",
        ),
        (
            "address = \"[::]:9\"\ntls = { certificate = \"a\", key = \"b\" }",
            "3:7: `tls` of [control] has no `client_roots` | no client certificate could be verified",
        ),
    ] {
        let mistakes = read(&format!("[control]\n{control}\n")).unwrap_err();
        let is_told = mistakes.iter().any(|one| one.starts_with(told));
        assert!(is_told, "{told}: {mistakes:#?}");
    }
    for ports in ["host_port = [\"8080\"]", "publish = [\"8080:3000\"]"] {
        let mistakes = read(&format!("{local}[sandbox]\n{ports}\n")).unwrap_err();
        assert!(mistakes[0].starts_with("4:1: the sandbox would "));
        assert!(mistakes[0].contains("the gateway has its webhook there"));
    }
    // What others could have written holds no key: a gateway is not started with it.
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    fs::write(&key, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o666)).unwrap();
    let config = read(&webhook(&format!("key = \"file:{}\"\n", key.display()))).unwrap();
    let unusable = config
        .unusable()
        .iter()
        .map(|one| (one.position.line, &*one.what));
    let told = (3, "`key` refers to no usable secret");
    assert_eq!(unusable.collect::<Vec<_>>(), [told]);
}

#[test]
fn an_exports_address_has_a_scheme() {
    refused("[[export]]\nurl = \"collector:4318\"\n", &["2:7: "]);
}

#[test]
fn two_exports_of_the_same_to_one_place_are_refused() {
    let export = |more: &str| format!("[[export]]\nurl = \"https://c.test/\"\n{more}");
    let tenant = "token = \"env:T\"\n";
    refused(
        &[export(""), export(tenant)].concat(),
        &["4:7: another `[[export]]` sends the same there"],
    );
    let (logs, traces) = ("signals = [\"logs\"]\n", "signals = [\"traces\"]\n");
    let both = read(&[export(logs), export(traces)].concat()).unwrap();
    assert_eq!(both.exports.len(), 2);
}

#[test]
fn a_budget_says_what_how_much_and_whose() {
    let budget = |more: &str| format!("[[budget]]\nname = \"models\"\n{more}");
    let text = budget("unit = \"usd\"\nmost = \"5.00\"\nper = \"month\"\n");
    let known = read(&text).unwrap().budgets.remove(0);
    assert_eq!((known.most, known.by.as_str()), (5_000_000_000, "all"));
    let text = budget("unit = \"usd\"\nmost = 5\nper = \"session\"\n");
    let known = read(&text).unwrap().budgets.remove(0);
    assert_eq!((known.most, known.by.as_str()), (5_000_000_000, "session"));
    let usual = "unit = \"requests\"\nmost = 10\nper = \"day\"\n";
    refused(
        &[budget(usual), budget(usual)].concat(),
        &["6:1: a second [[budget]] is named `models`"],
    );
    for (more, expected) in [
        ("unit = \"requests\"\nmost = 0\nper = \"day\"\n", "4:8: "),
        ("unit = \"requests\"\nmost = -1\nper = \"day\"\n", "4:8: "),
        (
            "unit = \"requests\"\nmost = \"5.5\"\nper = \"day\"\n",
            "4:8: ",
        ),
        (
            "unit = \"usd\"\nmost = 9223372037\nper = \"month\"\n",
            "4:8: ",
        ),
        ("unit = \"euro\"\nmost = 1\nper = \"month\"\n", "3:8: "),
        (
            "unit = [\"usd\", \"tokens\"]\nmost = 1\nper = \"month\"\n",
            "3:8: ",
        ),
        ("unit = \"usd\"\nmost = 1\nper = \"year\"\n", "5:7: "),
        ("unit = \"usd\"\nmost = 1\n", "1:1: [[budget]] has no `per`"),
        (
            "unit = \"usd\"\nmost = 1\nper = \"session\"\nby = \"all\"\n",
            "6:6: a budget per session is each session's own",
        ),
        (
            "unit = \"usd\"\nmost = 1\nper = \"day\"\nby = \"user\"\n",
            "1:1: budget `models` is by user, and no caller has one",
        ),
    ] {
        refused(&budget(more), &[expected]);
    }
    let listener = "[[listener]]\nkind = \"proxy\"\naddress = \"127.0.0.1:1\"\n";
    let by = |by: &str| budget(&format!("{usual}by = \"{by}\"\n"));
    refused(
        &[listener, &by("group")].concat(),
        &["4:1: budget `models` is by group"],
    );
    let grouped = format!("{listener}groups = [\"ci\"]\n");
    read(&[grouped, by("group")].concat()).unwrap();
    let token = format!("{listener}who = [\"token\"]\n");
    read(&[token, by("user")].concat()).unwrap();
}

#[test]
fn the_sandbox_never_gets_what_a_credential_or_the_gateway_holds() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("p.cedar"), "").unwrap();
    let text = format!(
        "[policy]\nfiles = [\"p.cedar\"]\n[[export]]\nurl = \"https://c.test/\"\ntoken = \"env:T\"\n[sandbox]\npass_env = [\"A\", \"B\", \"B*\", \"T\", \"EDITOR\"]\nwrite = [\"/\", \"{0}\", \"/var/x\"]\nhide = [\"/var/x/y\"]\n[[credential]]\nname = \"A\"\nfrom = \"env:B\"\norigins = [\"https://a.test\"]\n",
        folder.path().display()
    );
    let mistakes = read_in(folder.path(), &text).unwrap_err();
    for what in [
        "`A` is passed to the workload",
        "`B` is passed to the workload",
        "`B*` is passed to the workload",
        "`T` is passed to the workload",
        "`/var/x/y` is hidden and writable",
        "all of `/` is writable",
        "gateway.toml` | the gateway's own rules",
    ] {
        assert!(
            mistakes.iter().any(|mistake| mistake.contains(what)),
            "{what}\n{mistakes:#?}"
        );
    }
    assert!(!mistakes.iter().any(|mistake| mistake.contains("EDITOR")));
}

#[test]
fn files_that_others_can_read_or_change_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (name, mode) in [("token", 0o644), ("key.pem", 0o644), ("open.cedar", 0o666)] {
        fs::write(at(name), "x").unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let text = "[policy]\nfiles = [\"open.cedar\", \"*.none\"]\n[[credential]]\nname = \"A\"\nfrom = \"file:token\"\norigins = [\"https://a.test\"]\n[[origin]]\nmatch = \"https://a.test\"\nclient_certificate = \"key.pem\"\nclient_key = \"file:key.pem\"\n";
    let mistakes = read_in(folder.path(), text).unwrap_err();
    let expected = [
        "2:10: `files`",
        "2:24: `files`",
        "5:8: `from`",
        "9:22: `client_certificate`",
        "10:14: `client_key`",
    ];
    assert_eq!(mistakes.len(), expected.len(), "{mistakes:#?}");
    for (mistake, expected) in mistakes.iter().zip(expected) {
        assert!(mistake.starts_with(expected), "{mistake}");
    }
    fs::write(at("gateway.toml"), "").unwrap();
    fs::set_permissions(at("gateway.toml"), fs::Permissions::from_mode(0o666)).unwrap();
    assert!(
        Config::load(&at("gateway.toml"))
            .unwrap_err()
            .to_string()
            .contains("chmod o-w")
    );
}

#[test]
fn a_recipe_that_everyone_can_change_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let recipe = folder.path().join("mine.toml");
    fs::write(&recipe, "").unwrap();
    let text =
        "[[credential]]\nname = \"A\"\nsign = \"./mine.toml\"\norigins = [\"https://a.test\"]\n";
    let everyone = "everyone on this machine can change the file";
    for (mode, expected) in [(0o644, "the recipe is refused"), (0o666, everyone)] {
        fs::set_permissions(&recipe, fs::Permissions::from_mode(mode)).unwrap();
        let mistakes = read_in(folder.path(), text).unwrap_err();
        assert!(mistakes[0].contains(expected), "{mode:o} {mistakes:#?}");
    }
}

#[test]
fn a_recipe_of_ones_own_is_no_file_of_the_workload_and_steers_no_shell() {
    let folder = tempfile::tempdir().unwrap();
    let recipe = folder.path().join("mine.toml");
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/signers/kraken.toml");
    let shipped = fs::read_to_string(shipped).unwrap();
    let text =
        "[[credential]]\nname = \"A\"\nsign = \"./mine.toml\"\norigins = [\"https://a.test\"]\n";
    fs::write(&recipe, &shipped).unwrap();
    let config = read_in(folder.path(), text).unwrap();
    assert!(config.own_files().contains(&recipe));
    let steering = shipped.replacen("variables = [\"", "variables = [\"LD_PRELOAD\", \"", 1);
    fs::write(&recipe, steering).unwrap();
    let mistakes = read_in(folder.path(), text).unwrap_err();
    let refused = "the recipe's variable `LD_PRELOAD` is refused";
    assert!(mistakes[0].contains(refused), "{mistakes:#?}");
}

#[test]
fn files_that_others_can_replace_are_refused() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("folder");
    let at = |name: &str| folder.join(name);
    fs::create_dir(&folder).unwrap();
    let certificate = rcgen::generate_simple_self_signed(["corp.test".to_owned()]).unwrap();
    let pem = certificate.cert.pem();
    let text = "[policy]\nfiles = [\"p.cedar\"]\n[[credential]]\nname = \"A\"\nfrom = \"file:token\"\norigins = [\"https://a.test\"]\n[[origin]]\nmatch = \"https://a.test\"\nroots = [\"ca.pem\"]\n";
    for (name, content) in [
        ("p.cedar", ""),
        ("ca.pem", &pem),
        ("token", CANARY),
        ("gateway.toml", text),
    ] {
        fs::write(at(name), content).unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    let link = outer.path().join("link.toml");
    std::os::unix::fs::symlink(at("gateway.toml"), &link).unwrap();
    for (mode, is_refused) in [(0o777, true), (0o1777, false), (0o775, false)] {
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
        let mistakes = read_in(&folder, text).err().unwrap_or_default();
        let remedy = format!("chmod o-w {}", folder.display());
        let expected = if is_refused { 3 } else { 0 };
        assert_eq!(mistakes.len(), expected, "{mode:o} {mistakes:#?}");
        assert!(
            mistakes.iter().all(|mistake| mistake.contains(&remedy)),
            "{mistakes:#?}"
        );
        for path in [&at("gateway.toml"), &link] {
            let refused = Config::load(path).err().map(|refused| refused.to_string());
            assert_eq!(
                refused.is_some_and(|why| why.contains(&remedy)),
                is_refused,
                "{mode:o}"
            );
        }
    }
}

#[test]
fn a_link_that_others_can_replace_is_refused() {
    let outer = tempfile::tempdir().unwrap();
    let at = |name: &str| outer.path().join(name);
    fs::create_dir(at("open")).unwrap();
    fs::write(at("gateway.toml"), "").unwrap();
    fs::write(at("open/own.toml"), "").unwrap();
    std::os::unix::fs::symlink("../gateway.toml", at("open/link.toml")).unwrap();
    let load = |name: &str| {
        Config::load(&at(name))
            .map(drop)
            .map_err(|refused| refused.to_string())
    };
    assert_eq!(load("open/link.toml"), Ok(()));
    fs::set_permissions(at("open"), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(load("open/link.toml").unwrap_err().contains("chmod o-w"));
    fs::set_permissions(at("open"), fs::Permissions::from_mode(0o1777)).unwrap();
    assert_eq!(load("open/link.toml"), Ok(()));
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::lchown(at("open/link.toml"), Some(12_345), None).unwrap();
        let refused = load("open/link.toml").unwrap_err();
        // The kernel may refuse to follow it before (`fs.protected_symlinks`).
        let by_kernel = refused.contains("Permission denied");
        assert!(
            by_kernel || refused.contains("user 12345 can replace it"),
            "{refused}"
        );
        assert_eq!(load("open/own.toml"), Ok(()));
    }
}

#[test]
fn certificates_that_everyone_can_change_are_not_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let open = folder.path().join("open.pem");
    let certificate = rcgen::generate_simple_self_signed(["corp.test".to_owned()]).unwrap();
    fs::write(&open, certificate.cert.pem()).unwrap();
    let origin = "[[origin]]\nmatch = \"https://a.test\"\nroots = [\"open.pem\"]\n";
    let vault = "[vault]\naddresses = [\"https://a.test\"]\nlogin = \"approle\"\nrole_id = \"x\"\nroots = [\"open.pem\"]\n";
    for (mode, is_refused) in [(0o644, false), (0o666, true)] {
        fs::set_permissions(&open, fs::Permissions::from_mode(mode)).unwrap();
        for text in [origin, vault] {
            let mistakes = read_in(folder.path(), text).err().unwrap_or_default();
            let everyone = "everyone on this machine can change the file";
            let refused = mistakes.iter().any(|mistake| mistake.contains(everyone));
            assert_eq!(refused, is_refused, "{mode:o} {mistakes:#?}");
            assert!(is_refused || mistakes.is_empty(), "{mistakes:#?}");
        }
    }
}

#[test]
fn several_sessions_have_a_phantoms_file_and_a_certificate_each() {
    let listeners = "[[listener]]\nkind = \"proxy\"\naddress = \"127.0.0.1:1\"\n[[listener]]\nkind = \"proxy\"\naddress = \"127.0.0.1:2\"\nsession = \"b\"\n";
    refused(
        &format!("{listeners}[phantoms]\nenv_file = \"p.env\"\n"),
        &["8:1: one phantoms file stands for several sessions"],
    );
    assert!(
        read(&format!(
            "{listeners}[phantoms]\nenv_file = \"{{session}}.env\"\n"
        ))
        .is_ok()
    );
    refused(
        &format!("{listeners}[ca]\ncertificate = \"ca.pem\"\n"),
        &["8:1: one CA certificate file stands for several sessions"],
    );
    let config = read(&format!(
        "{listeners}[ca]\ncertificate = \"{{session}}.pem\"\n"
    ))
    .unwrap();
    let of = |listener: usize| {
        config
            .ca
            .certificate_of(config.listeners[listener].session.one().unwrap())
            .unwrap()
    };
    assert!(of(1).ends_with("b.pem") && of(0) != of(1));
}

#[test]
fn what_can_never_happen_is_warned_of() {
    let text = "[[listener]]\nkind = \"tls\"\naddress = \"127.0.0.1:1\"\n[[credential]]\nname = \"A\"\norigins = [\"https://a.test:8443\"]\n";
    let warnings: Vec<_> = read(text)
        .unwrap()
        .warnings
        .into_iter()
        .map(|warning| warning.what)
        .collect();
    assert_eq!(
        warnings,
        [
            "nothing hands out the phantom of `A`",
            "no listener carries https://a.test:8443 of `A`"
        ]
    );
}

#[test]
fn a_proxy_that_makes_a_captured_workload_another_session_is_warned_of() {
    let warned = |proxy: &str| {
        let text = format!(
            "[[listener]]\nkind = \"transparent\"\naddress = \"[::]:1\"\nsession = \"a\"\n\
             [[listener]]\nkind = \"proxy\"\naddress = \"127.0.0.1:2\"\n{proxy}\n\
             [[credential]]\nname = \"A\"\norigins = [\"https://a.test\"]\n"
        );
        let warnings = read(&text).unwrap().warnings.into_iter();
        warnings.map(|one| one.what).collect::<Vec<_>>()
    };
    let open = "a captured workload could use the proxy at 127.0.0.1:2";
    let unheld = "nothing hands out the phantom of `A`";
    for (proxy, expected) in [
        ("session = \"b\"", &[open, unheld][..]),
        ("session = \"b\"\nany_user = true", &[unheld]),
        ("session = \"a\"", &[unheld]),
        ("session = \"b\"\nwho = [\"token\"]", &[]),
    ] {
        assert_eq!(warned(proxy), expected, "{proxy}");
    }
}

#[test]
fn an_allowed_url_with_a_path_is_warned_of_where_it_stands() {
    let text = "[policy]\nallow = [\"a.test\", \"https://x.test/\", \"https://x.test/path\"]\n";
    let warnings = read(text).unwrap().warnings;
    let told: Vec<_> = warnings
        .iter()
        .map(|warning| {
            (
                warning.position.line,
                warning.position.column,
                &*warning.what,
            )
        })
        .collect();
    assert_eq!(told, [(2, 39, "every path of `x.test` is allowed")]);
}

#[test]
fn a_private_key_is_taken_as_a_part_and_what_nobody_could_sign_with_is_warned_of() {
    let text = |env: &str| {
        format!(
            "[[credential]]\nname = \"partner\"\nsign = \"http-signature-ed25519\"\norigins = [\"https://a.test\"]\n\
             parts = {{ key = \"env:ID\", secret = \"keyring:gateway/key\" }}\n{env}"
        )
    };
    let warnings = |text: &str| -> Vec<String> {
        let warnings = read(text).unwrap().warnings.into_iter();
        warnings.map(|warning| warning.what).collect()
    };
    assert_eq!(
        warnings(&text("")),
        ["no variable holds the phantom of key, secret"]
    );
    assert_eq!(warnings(&text("env = [\"ID\", \"KEY\"]\n")), [""; 0]);
    let pasted = "-----BEGIN PRIVATE KEY-----\\nCANARYCANARYCANARYCANARYCANARYCANARY\\n-----END PRIVATE KEY-----";
    let text = text("").replace("keyring:gateway/key", pasted);
    let told = read(&text).unwrap_err().join("\n");
    assert!(
        told.contains("literal secret") && !told.contains("CANARY"),
        "{told}"
    );
}

#[test]
fn a_preset_fills_in_what_is_left_out_and_only_what_it_knows() {
    let config =
        read("[[credential]]\nname = \"hub\"\nfrom = \"env:X\"\npreset = \"github\"\n").unwrap();
    let credential = &config.credentials[0];
    assert!(credential.env.contains(&"GITHUB_TOKEN".to_owned()) && credential.origins.is_empty());
    assert_eq!(
        credential.places_or_common(),
        credential.known().unwrap().places
    );
    let own = read("[[credential]]\nname = \"GH_TOKEN\"\npreset = \"github\"\n").unwrap();
    assert_eq!(own.credentials[0].env, ["GH_TOKEN"]);
    refused(
        concat!(
            "[[credential]]\nname = \"A\"\npreset = \"githb\"\n",
            "[[credential]]\nname = \"B\"\npreset = \"databricks\"\n",
            "[[credential]]\nname = \"C\"\npreset = \"datadog\"\n",
            "[[credential]]\nname = \"D\"\norigins = [\"https://a.test\"]\nshape = \"[6 nonsense]\"\n",
        ),
        &[
            "3:10: `preset` of [[credential]] is `githb` | no preset has that name | did you mean `github`?",
            "4:1: [[credential]] has no `origins` | the preset leaves them to you: the service's host is your own",
            "9:10: the preset does not say which credential is meant",
            "13:9: `shape` of [[credential]] is `[6 nonsense]`",
        ],
    );
}

#[test]
fn an_own_endpoint_says_what_its_service_and_paths_are() {
    let own = |more: &str| {
        format!(
            "[[credential]]\nname = \"A\"\nsign = \"sigv4\"\nservices = [\"store\", \"ghost\"]\n\
             endpoints = [{{ origin = \"https://a.test\", region = \"here\", {more} }}]\n"
        )
    };
    refused(
        &own("service = \"store\", exact_paths = true"),
        &["4:12: there is no service `ghost`"],
    );
    refused(
        &own("service = \"s3\", exact_paths = false"),
        &[
            "4:12: there is no service `store`",
            "4:12: there is no service `ghost`",
            "5:90: `exact_paths` has no use for a service of S3's | the paths of an object store are always taken as they stand",
        ],
    );
}

#[test]
fn an_account_is_a_number_or_a_canonical_id_and_a_star_stands_alone() {
    let credential = |accounts: &str| {
        format!(
            "[[credential]]\nname = \"A\"\nsign = \"sigv4\"\naccounts = [{accounts}]\nunsigned = [\"https://data.s3.amazonaws.com\"]\n"
        )
    };
    let id = "79a59df900b949e55d96a1e698fbacedfd6e09d98eacf8f8d5218e7cd47ef2be";
    for good in [
        "\"111122223333\"",
        "\"*\"",
        &format!("\"111122223333\", \"{id}\""),
    ] {
        assert!(read(&credential(good)).is_ok(), "{good}");
    }
    for bad in [
        "\"1111\"",
        "\"*\", \"111122223333\"",
        &format!("\"{}\"", id.to_uppercase()),
    ] {
        assert!(read(&credential(bad)).is_err(), "{bad}");
    }
    refused(
        "[[credential]]\nname = \"A\"\norigins = [\"https://a.test\"]\nunsigned = [\"https://a.test\"]\n",
        &["4:12: `unsigned` needs `sign`"],
    );
}

/// Where a table of the section can be opened with nothing in it but the key.
fn one_key(key: &keys::ConfigKey, value: &str) -> String {
    let assignment = format!("{} = {value}", key.name);
    match key.section {
        "listener.jwt" => format!("[[listener]]\njwt = {{ {assignment} }}\n"),
        "listener.tls" => format!("[[listener]]\ntls = {{ {assignment} }}\n"),
        "control.tls" => format!("[control]\ntls = {{ {assignment} }}\n"),
        "credential.from" => format!("[[credential]]\nfrom = {{ {assignment} }}\n"),
        "credential.endpoints" => {
            format!("[[credential]]\nsign = \"sigv4\"\nendpoints = [{{ {assignment} }}]\n")
        }
        "credential" if SIGNING.contains(&key.name) => {
            format!("[[credential]]\nsign = \"sigv4\"\n{assignment}\n")
        }
        section => format!("{}\n{assignment}\n", keys::heading(section)),
    }
}

/// The keys that are read where `sign` is written.
const SIGNING: [&str; 10] = [
    "parts",
    "endpoints",
    "unsigned",
    "partitions",
    "regions",
    "services",
    "accounts",
    "buckets",
    "actions",
    "credential_actions",
];

#[test]
fn every_key_is_read_and_a_value_of_another_type_is_refused() {
    for key in keys::KEYS {
        let mistakes = read(&one_key(key, "1979-05-27")).expect_err(key.name);
        assert!(
            mistakes
                .iter()
                .any(|mistake| mistake.contains("is of type datetime")),
            "{key:?}\n{mistakes:#?}"
        );
        assert!(
            !mistakes.iter().any(|mistake| mistake.contains("unknown")),
            "{key:?}\n{mistakes:#?}"
        );
    }
}

#[test]
fn the_documentation_has_exactly_the_keys_of_the_code() {
    let mut documented = BTreeSet::new();
    let mut section = String::new();
    for line in include_str!("../docs/config.md").lines() {
        if let Some(title) = line.strip_prefix("##") {
            section = title.trim_start_matches('#').trim().to_owned();
        } else if let Some(row) = line.strip_prefix("| `").filter(|_| section.contains('[')) {
            documented.insert(format!("{section} | `{row}"));
        }
    }
    let mut known = BTreeSet::new();
    for key in keys::KEYS {
        let title = match key.section {
            "listener.jwt" => "`jwt` of `[[listener]]`".to_owned(),
            "listener.tls" => "`tls` of `[[listener]]`".to_owned(),
            "control.tls" => "`tls` of `[control]`".to_owned(),
            "credential.from" => "`from` of `[[credential]]` as a table".to_owned(),
            "credential.endpoints" => "`endpoints` of `[[credential]]`".to_owned(),
            section => format!("`{}`", keys::heading(section)),
        };
        let reloads = if key.reloads { "yes" } else { "no" };
        known.insert(format!(
            "{title} | `{}` | {} | {} | {reloads} |",
            key.name, key.takes, key.default
        ));
    }
    let mut differences = String::new();
    for row in documented.symmetric_difference(&known) {
        writeln!(
            differences,
            "{} {row}",
            if known.contains(row) {
                "missing in docs:"
            } else {
                "not in the code:"
            }
        )
        .unwrap();
    }
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn a_literal_secret_anywhere_is_refused_and_never_repeated() {
    let places = [
        format!(
            "[[credential]]\nname = \"A\"\nfrom = \"{CANARY}\"\norigins = [\"https://a.test\"]\n"
        ),
        format!("[[credential]]\nname = \"A\"\nfrom = \"env:{CANARY}\"\n"),
        format!("[[credential]]\nname = \"{CANARY}\"\n"),
        format!(
            "[[credential]]\nname = \"A\"\nfrom = {{ command = [\"/bin/echo\", \"{CANARY}\"] }}\n"
        ),
        format!("[[credential]]\nname = \"A\"\norigins = [\"https://u:{CANARY}@a.test\"]\n"),
        format!(
            "[[credential]]\nname = \"A\"\nenv = [\"{CANARY}\"]\nplaces = [\"{CANARY}\"]\nshape = \"{CANARY}\"\npath = \"{CANARY}\"\n"
        ),
        format!(
            "[[listener]]\nkind = \"proxy\"\naddress = \"127.0.0.1:1\"\nwho = [\"password\"]\npasswords = {{ a = \"{CANARY}\" }}\n"
        ),
        format!("[ca]\n{CANARY} = \"{CANARY}\"\n"),
        format!("{CANARY} = 1\n"),
        format!("[{CANARY}]\n"),
        format!("[ca]\nlifetime = \"{CANARY}\n"),
        format!("[ca]\nlifetime = {CANARY}\n"),
        format!("secret = {CANARY}\n"),
        format!("[[credential]]\nname = \"A\"\nsecret = \"{CANARY}\"\n"),
        format!("[sandbox]\npass_env = [\"{CANARY}\"]\n"),
    ];
    for text in places {
        let refused =
            Config::from_str(&text, Path::new("/nonexistent/gateway.toml")).expect_err(&text);
        let told = format!("{refused}\n{refused:?}\n{refused:#?}");
        if text.contains("from = \"ghp_CANARY") {
            let why = "the configuration holds references to secrets, never secrets";
            assert_eq!(refused.to_string().matches(why).count(), 1, "{refused}");
        }
        assert!(!told.contains("CANARY"), "{text}\n{told}");
    }
}

fn gateway(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gateway"))
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .env("HOME", folder)
        .output()
        .unwrap()
}

#[track_caller]
fn ends_with(arguments: &[&str], folder: &Path, code: i32, said: &str) {
    let output = gateway(arguments, folder);
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{text}");
    assert!(text.contains(said), "{arguments:?}\n{text}");
    assert!(!text.contains('\u{1b}'), "a pipe gets no colours: {text}");
    assert!(!text.contains("CANARY"), "{arguments:?}\n{text}");
}

#[test]
fn exit_codes_are_those_that_the_help_promises() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    ends_with(&["--help"], at, 0, "Exit codes: 0 it worked");
    ends_with(&["--version"], at, 0, "gateway 0.");
    ends_with(&[], at, 2, "Usage: gateway");
    ends_with(&["frobnicate"], at, 2, "frobnicate");
    ends_with(&["why"], at, 2, "<ID>");
    ends_with(&["why", "xyz"], at, 2, "20 hexadecimal digits");
    ends_with(&["why", "00112233445566778899"], at, 1, "no audit log");
    ends_with(&["log", "verify"], at, 1, "no audit log");
    ends_with(&["log", "verify", "none.jsonl"], at, 1, "none.jsonl");
    ends_with(
        &["log", "verify", "--head", "1:x", "none.jsonl"],
        at,
        2,
        "--head",
    );
    ends_with(&["session", "ca"], at, 2, "--config FILE");
    ends_with(&["env", "--config", "none.toml"], at, 2, "none.toml");
    fs::write(
        at.join("bad.toml"),
        format!("[ca]\ncertifcate = \"{CANARY}\"\n"),
    )
    .unwrap();
    ends_with(
        &["session", "ca", "--config", "bad.toml"],
        at,
        2,
        "bad.toml:2:1: error: unknown key `certifcate`",
    );
    ends_with(
        &["--json", "session", "ca", "--config", "bad.toml"],
        at,
        2,
        "\"line\":2,\"column\":1",
    );
}

#[test]
fn a_short_secret_for_the_key_ring_is_refused_without_advice_that_the_ring_does_not_take() {
    let mut set = Command::new(env!("CARGO_BIN_EXE_gateway"));
    let mut set = set
        .args(["secret", "set", "X"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    set.stdin.take().unwrap().write_all(b"short\n").unwrap();
    let output = set.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(
        said.contains("why: the secret has fewer than 8 characters\n"),
        "{said}"
    );
    assert!(
        said.contains("and a file does: `allow_short = true`"),
        "{said}"
    );
}

#[test]
fn a_secret_on_the_command_line_is_refused_and_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let simple = "CANARY-hunter2";
    ends_with(
        &["secret", "set", "NAME", simple],
        at,
        2,
        "never an argument",
    );
    ends_with(&["secret", "set", CANARY], at, 2, "");
    ends_with(
        &["why", "00112233445566778899", simple],
        at,
        2,
        "(not shown)",
    );
    ends_with(
        &["why", "00112233445566778899", CANARY],
        at,
        2,
        "(not shown)",
    );
    ends_with(&["--color", CANARY, "session", "ca"], at, 2, "(not shown)");
    ends_with(&["--color", simple, "session", "ca"], at, 2, "(not shown)");
    ends_with(&[CANARY], at, 2, "");
}

#[test]
fn the_certificate_and_the_variables_of_a_running_gateway_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let certificate = rcgen::generate_simple_self_signed(vec!["ca.test".into()]).unwrap();
    let pem = certificate.cert.pem();
    fs::write(at.join("gateway.toml"), "[ca]\ncertificate = \"ca.pem\"\n[phantoms]\nenv_file = \"p.env\"\n[[listener]]\nkind = \"proxy\"\naddress = \"127.0.0.1:8080\"\n[[credential]]\nname = \"TOKEN\"\norigins = [\"https://a.test\"]\n").unwrap();
    ends_with(
        &["session", "ca", "--config", "gateway.toml"],
        at,
        1,
        "is it running?",
    );
    fs::write(at.join("ca.pem"), "no certificate").unwrap();
    ends_with(
        &["session", "ca", "--config", "gateway.toml"],
        at,
        1,
        "no certificate",
    );
    fs::write(at.join("ca.pem"), &pem).unwrap();
    ends_with(
        &["session", "ca", "--config", "gateway.toml"],
        at,
        0,
        pem.trim(),
    );
    ends_with(
        &["session", "ca", "--config", "gateway.toml", "--path"],
        at,
        0,
        "ca.pem",
    );
    ends_with(
        &["session", "ca", "--config", "gateway.toml", "--json"],
        at,
        0,
        "\"sha256\":",
    );
    ends_with(
        &["env", "--config", "gateway.toml"],
        at,
        1,
        "is it running?",
    );
    fs::write(at.join("p.env"), "TOKEN=phantom'x\n").unwrap();
    ends_with(
        &["env", "--config", "gateway.toml"],
        at,
        0,
        "export HTTPS_PROXY='http://127.0.0.1:8080'",
    );
    ends_with(
        &["env", "--config", "gateway.toml"],
        at,
        0,
        r"export TOKEN='phantom'\''x'",
    );
    ends_with(
        &["env", "--config", "gateway.toml", "--json"],
        at,
        0,
        "\"SSL_CERT_FILE\":",
    );
    ends_with(
        &["env", "--config", "gateway.toml", "--session", "other"],
        at,
        2,
        "--session",
    );
}

#[test]
fn the_examples_are_taken_without_a_warning() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut seen = 0;
    for entry in fs::read_dir(&examples).unwrap() {
        let path = entry.unwrap().path().join("gateway.toml");
        // These read what others put there; their rehearsals play that.
        let reads =
            ["systemd", "network-gateway", "fleet"].map(|name| format!("{name}/gateway.toml"));
        if !path.exists() || reads.iter().any(|end| path.ends_with(end)) {
            continue;
        }
        let config = Config::load(&path).unwrap_or_else(|refused| panic!("{refused}"));
        assert!(config.warnings.is_empty(), "{:?}", config.warnings);
        let path = path.to_str().unwrap();
        ends_with(
            &["policy", "check", "--config", path],
            &examples,
            0,
            " 0 warnings",
        );
        seen += 1;
    }
    assert!(seen > 0);
}

#[test]
fn there_is_no_list_of_hosts_that_pass_by_the_policy() {
    for key in ["no_proxy", "bypass", "passthrough", "insecure", "allow_all"] {
        for section in keys::SECTIONS {
            let text = format!("{}\n{key} = [\"localhost\"]\n", keys::heading(section.name));
            let mistakes = read(&text).expect_err(&text);
            assert!(
                mistakes
                    .iter()
                    .any(|mistake| mistake.contains(&format!("unknown key `{key}`"))),
                "{mistakes:?}"
            );
        }
    }
}

#[test]
fn a_vault_is_refused_with_all_of_its_mistakes() {
    let mistakes = read(
        "[vault]\naddresses = [\"http://vault.test:8200\", \"https://*.vault.test\"]\nlogin = \"approle\"\nrole = \"x\"\n\
         secret_id = \"vault:secret/x#y\"\nttl = \"2d\"\nnamespace = \"../a\"\n",
    )
    .unwrap_err();
    for part in [
        "secrets would travel in clear text",
        "an address is that of one server",
        "[vault] has no `role_id`",
        "`role` does not belong to `login = \"approle\"`",
        "`secret_id` is kept in a store",
        "it is outside 1s to 1d",
        "`namespace` of [vault]",
    ] {
        assert!(
            mistakes.iter().any(|mistake| mistake.contains(part)),
            "{part}\n{mistakes:#?}"
        );
    }
    let none = read(
        "[[credential]]\nname = \"A\"\nfrom = \"vault:secret/app#token\"\norigins = [\"https://a.test\"]\n",
    );
    let none = none.unwrap_err();
    assert!(
        none.iter()
            .any(|mistake| mistake.contains("add a section [[store]]")),
        "{none:#?}"
    );
}

#[test]
fn a_login_is_refused_with_all_of_its_mistakes() {
    for (lines, parts) in [
        (
            "token_url = \"http://as.test/token\"\nname = \"A\"",
            &[
                "tokens would travel in clear text",
                "[[login]] has no `client_id`",
            ][..],
        ),
        (
            "token_url = \"https://as.test/token?x=1\"\ndevice_url = \"as.test\"",
            &["without a query", "it has no scheme", "has no `name`"],
        ),
        (
            "name = \"A\"\ngrant = \"client_credentials\"\nclient_secret = \"vault:secret/x#y\"\nkey_id = \"x\"",
            &[
                "[[login]] has no `token_url`",
                "`client_secret` is kept in a store",
                "`key_id` does not belong to `grant = \"client_credentials\"`",
            ],
        ),
        (
            "name = \"A\"\ngrant = \"github_app\"\nclient_id = \"1\"\nkey = \"env:K\"\ninstallation = \"../1\"",
            &["an installation has a number"],
        ),
        (
            "name = \"A\"\ntoken_url = \"https://169.254.169.254/token\"\nclient_id = \"1\"",
            &["`token_url` of [[login]]"],
        ),
        (
            "name = \"A\"\ntoken_url = \"https://as.test/t\"\nclient_id = \"1\"\n[[login]]\nname = \"A\"\ntoken_url = \"https://as.test/t\"\nclient_id = \"2\"",
            &["a second [[login]] is named `A`"],
        ),
    ] {
        let mistakes = read(&format!("[[login]]\n{lines}\n")).expect_err(lines);
        for part in parts {
            let is_told = mistakes.iter().any(|mistake| mistake.contains(part));
            assert!(is_told, "{part}\n{mistakes:#?}");
        }
    }
}

#[test]
fn a_key_file_of_a_service_account_says_whom_it_is_for_and_what_is_wrong_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("account.json");
    let read = |content: &str, mode: u32| {
        fs::write(&file, content).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let text =
            "[[login]]\nname = \"gcp\"\ngrant = \"service_account\"\nfile = \"account.json\"\n";
        read_in(folder.path(), text)
    };
    let whole =
        r#"{"client_email":"a@b.test","private_key":"x","token_uri":"https://as.test/token"}"#;
    let config = read(whole, 0o600).unwrap();
    let issuer = config.logins[0].login.issuer.as_ref().unwrap();
    assert_eq!(issuer.endpoint.to_string(), "https://as.test/token");
    for (content, mode, part) in [
        (&whole[..40], 0o600, "or cut off, at line 1"),
        (
            r#"{"token_uri":"https://a.test/"}"#,
            0o600,
            "`client_email`",
        ),
        (&whole.replace("https:", "http:"), 0o600, "`token_uri`"),
        (whole, 0o666, "chmod"),
    ] {
        let mistakes = read(content, mode).unwrap_err();
        let told = |one: &&String| one.contains(part) && one.contains("account.json");
        assert!(
            mistakes.iter().any(|one| told(&one)),
            "{part}\n{mistakes:#?}"
        );
    }
}

#[test]
fn a_price_is_refused_with_its_line_if_it_is_none_or_past() {
    let with = |rest: &str| format!("[[price]]\nmodel = \"m*\"\ninput = 1\noutput = 2.5\n{rest}");
    let config = read(&with("host = \"api.test\"\nuntil = \"2100-01-01\"\n")).unwrap();
    assert_eq!(config.prices.len(), 1);
    refused(
        "[[price]]\n",
        &[
            "1:1: [[price]] has no `model`",
            "1:1: [[price]] has no `input`",
            "1:1: [[price]] has no `output`",
        ],
    );
    for (rest, expected) in [
        (
            "until = \"2026-01-01\"\n",
            "5:9: `until` of [[price]] is `2026-01-01` | the price holds no more",
        ),
        (
            "until = \"tomorrow\"\n",
            "5:9: `until` of [[price]] is `tomorrow` | it is no day",
        ),
        (
            "until = 2100-01-01\n",
            "5:9: `until` of [[price]] is of type datetime",
        ),
        (
            "cache_read = \"1\"\n",
            "5:14: `cache_read` of [[price]] is of type string",
        ),
        (
            "cache_read = -1\n",
            "5:14: `cache_read` of [[price]] is `-1` | it is no price",
        ),
        (
            "cache_read = 1e3\n",
            "5:14: `cache_read` of [[price]] is `1e3` | it is no price",
        ),
        (
            "cache_read = inf\n",
            "5:14: `cache_read` of [[price]] is `inf` | it is no price",
        ),
        (
            "cache_written = 0.0000001\n",
            "5:17: `cache_written` of [[price]] is `0.0000001` | it is no price",
        ),
        (
            "context = 0\n",
            "5:11: `context` of [[price]] is `0` | it is outside 1 to",
        ),
        (
            "host = \"https://api.test\"\n",
            "5:8: `host` of [[price]] is `https://api.test`",
        ),
        ("tokens = 1\n", "5:1: unknown key `tokens` in [[price]]"),
    ] {
        refused(&with(rest), &[expected]);
    }
    let star = with("").replace("m*", "*m");
    refused(
        &star,
        &["2:9: `model` of [[price]] is `*m` | it is no name of a model"],
    );
}
