//! The configuration changes while the gateway runs: credentials, origins, policies and limits come
//! into force as one generation, or not at all.

use std::fs;
use std::time::{Duration, Instant};

use crate::policy::{hang_up, reload};
use crate::reload::{begin, stream};
use crate::rig::origin::ok;
use crate::rig::way::Way;
use crate::rig::{Doors, GOOD, OTHER, Rig, SECOND, policies};
use crate::rows;
use crate::verdicts::{allowed, refused};

rows![
    a_credential_is_gained_and_removed_while_streams_run,
    a_credential_in_another_place_cuts_what_it_was_lent_to,
    what_an_origin_reads_and_how_many_are_served_change_live,
    a_refused_change_leaves_all_of_the_old_configuration,
    a_changed_file_is_read_without_a_signal,
    what_is_lent_and_what_is_allowed_come_from_one_generation,
    a_secret_that_a_reload_took_away_is_still_found_in_answers,
    what_a_sandbox_can_have_changes_under_load_and_nothing_fails,
];

/// Changes a file of the rig.
fn edit(rig: &Rig, file: &str, change: impl FnOnce(&str) -> String) -> String {
    let path = rig.dir.path().join(file);
    let before = fs::read_to_string(&path).unwrap();
    fs::write(&path, change(&before)).unwrap();
    before
}

fn put_back(rig: &Rig, file: &str, before: &str) {
    fs::write(rig.dir.path().join(file), before).unwrap();
}

/// The variables that the workload of session `a` holds now.
fn variables(rig: &Rig) -> String {
    fs::read_to_string(rig.dir.path().join("phantoms-a.env")).unwrap()
}

fn phantom(variables: &str, name: &str) -> String {
    let mut lines = variables.lines();
    let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    found.unwrap().to_owned()
}

/// Another credential with the secret of `bearer`, bound to another host.
const GAINED: &str = "[[credential]]\nname = \"gained\"\nfrom = \"file:secrets/bearer\"\n\
     origins = [\"https://other.rig.test\"]\nplaces = [\"header:x-gained\"]\nenv = [\"GAINED_TOKEN\"]\n";
const LEND_GAINED: &str = "@id(\"gained\")\npermit(principal, action == Gateway::Action::\"lend\", \
     resource == Gateway::Credential::\"gained\");\n";

fn a_credential_is_gained_and_removed_while_streams_run(rig: &Rig) {
    const EVENTS: usize = 400;
    stream(rig, EVENTS);
    let mut lent = begin(rig, Way::Connect, "GET /events", "\r\n");
    assert!(lent.line(b"\r\n\r\n").is_some());
    rig.record(Way::Connect);
    let first = variables(rig);
    assert!(!first.contains("GAINED_TOKEN"));
    let before = edit(rig, "serve.toml", |text| format!("{text}{GAINED}"));
    assert!(reload(rig, &format!("{}{LEND_GAINED}", policies())));
    let second = variables(rig);
    let gained = phantom(&second, "GAINED_TOKEN");
    for line in first.lines() {
        assert!(second.contains(line), "a phantom changed: {line}");
    }
    let template = format!("GET {{T}}/x HTTP/1.1\r\nHost: {{H}}\r\nX-Gained: {gained}\r\n\r\n");
    allowed(rig, Way::Connect, OTHER, &template);
    let secret = rig.secret("bearer").to_owned();
    let seen = rig.seen();
    let at_origin = seen.iter().find(|seen| seen.host == OTHER).unwrap();
    let field = ("x-gained".to_owned(), secret);
    assert!(at_origin.fields.contains(&field), "{at_origin:?}");
    // A stream that it is lent to ends with it, and others go on.
    let mut with_it = rig.open(Way::Connect, OTHER);
    let events = template.replace("/x", "/events");
    with_it.send(&rig.fill(Way::Connect, OTHER, &events));
    assert!(with_it.line(b"\r\n\r\n").is_some());
    let told = rig.record(Way::Connect);
    assert_eq!(told["lent"].as_array().map(Vec::len), Some(1), "{told}");
    put_back(rig, "serve.toml", &before);
    assert!(reload(rig, &policies()));
    let removed = Instant::now();
    assert!(with_it.rest().1);
    assert!(removed.elapsed() < Duration::from_millis(500));
    rig.seen();
    refused(
        rig,
        Way::Connect,
        OTHER,
        &template,
        403,
        "credential_removed",
    );
    assert_eq!(variables(rig), first);
    // A credential that comes back has the phantom that it had.
    edit(rig, "serve.toml", |text| format!("{text}{GAINED}"));
    assert!(reload(rig, &format!("{}{LEND_GAINED}", policies())));
    assert_eq!(phantom(&variables(rig), "GAINED_TOKEN"), gained);
    allowed(rig, Way::Connect, OTHER, &template);
    put_back(rig, "serve.toml", &before);
    assert!(reload(rig, &policies()));
    assert!(lent.line(b"0\r\n\r\n").is_some(), "the stream was cut");
    rig.seen();
    let cut: Vec<_> = rig.every_end();
    let cut = cut.iter().filter(|end| end["outcome"] == "cut");
    let reasons: Vec<_> = cut.map(|end| end["reason"].clone()).collect();
    assert!(
        reasons == ["revoked"] || reasons == ["credential_removed"],
        "{reasons:?}"
    );
}

fn a_credential_in_another_place_cuts_what_it_was_lent_to(rig: &Rig) {
    stream(rig, 400);
    let mut lent = begin(rig, Way::Connect, "GET /events", "\r\n");
    assert!(lent.line(b"\r\n\r\n").is_some());
    let from = "places = [\"header:authorization:Bearer\"]";
    let to = "places = [\"header:x-moved\"]";
    let before = edit(rig, "serve.toml", |text| text.replacen(from, to, 1));
    assert!(hang_up(rig));
    let changed = Instant::now();
    assert!(lent.rest().1);
    assert!(changed.elapsed() < Duration::from_millis(500));
    let moved = "GET {T}/x HTTP/1.1\r\nHost: {H}\r\nX-Moved: {PH:bearer}\r\n\r\n";
    rig.seen();
    rig.records(Way::Connect, 1);
    allowed(rig, Way::Connect, GOOD, moved);
    rig.seen();
    let old = "GET {T}/x HTTP/1.1\r\nHost: {H}\r\nAuthorization: Bearer {PH:bearer}\r\n\r\n";
    refused(rig, Way::Connect, GOOD, old, 403, "phantom_position");
    put_back(rig, "serve.toml", &before);
    assert!(hang_up(rig));
    allowed(rig, Way::Connect, GOOD, old);
    rig.seen();
    let cut = |end: &serde_json::Value| end["reason"] == "credential_removed";
    assert!(rig.ends().iter().any(cut));
}

fn what_an_origin_reads_and_how_many_are_served_change_live(rig: &Rig) {
    let odd = "GET {T}/x HTTP/1.1\r\nHost: {H}\r\nX_Odd: 1\r\n\r\n";
    let refuses = |expected: u16| {
        let answer = rig.ask(Way::Connect, SECOND, odd);
        rig.record(Way::Connect);
        assert_eq!(answer.status, expected, "{answer:?}");
        rig.seen();
    };
    let status = rig.ask(Way::Connect, SECOND, odd).status;
    rig.record(Way::Connect);
    rig.seen();
    assert_ne!(status, 200, "names with `_` are refused");
    let rule = "[[origin]]\nmatch = \"https://*.rig.test\"\n";
    let before = edit(rig, "serve.toml", |text| {
        text.replacen(rule, &format!("{rule}underscores = true\n"), 1)
    });
    assert!(hang_up(rig));
    refuses(200);
    put_back(rig, "serve.toml", &before);
    assert!(hang_up(rig));
    refuses(status);
    // One exchange at a time, while one is under way.
    stream(rig, 100);
    let mut under_way = begin(rig, Way::Connect, "GET /events", "\r\n");
    assert!(under_way.line(b"\r\n\r\n").is_some());
    rig.record(Way::Connect);
    edit(rig, "serve.toml", |text| {
        text.replacen("[limits]\n", "[limits]\nexchanges_per_session = 1\n", 1)
    });
    assert!(hang_up(rig));
    let plain = "GET {T}/x HTTP/1.1\r\nHost: {H}\r\n\r\n";
    let answer = rig.ask(Way::Connect, OTHER, plain);
    assert_eq!(
        (answer.status, answer.reason().as_str()),
        (503, "session_limit")
    );
    put_back(rig, "serve.toml", &before);
    assert!(hang_up(rig));
    assert_eq!(rig.ask(Way::Connect, OTHER, plain).status, 200);
    assert!(
        under_way.line(b"0\r\n\r\n").is_some(),
        "the stream was not cut"
    );
    rig.seen();
    rig.records(Way::Connect, 2);
    rig.ends_now();
}

fn a_refused_change_leaves_all_of_the_old_configuration(rig: &Rig) {
    let plain = "GET {T}/x HTTP/1.1\r\nHost: {H}\r\nAuthorization: Bearer {PH:bearer}\r\n\r\n";
    let path = rig.dir.path().join("serve.toml");
    let good = fs::read_to_string(&path).unwrap();
    let held = variables(rig);
    let line = |text: &str| text.to_owned();
    let changes = [
        // The file is no configuration.
        (line("[["), "the configuration has"),
        (good.replace("[limits]", "[limits]\nno_such = 1"), "no_such"),
        (format!("{good}{GAINED}{GAINED}"), "the configuration has"),
        // A part of it cannot be had, beside a part that could.
        (
            format!("{good}{GAINED}").replace("file:secrets/bearer", "env:RIG_NO_SUCH"),
            "cannot have its phantoms",
        ),
        (
            good.replacen("roots = [\"origins.pem\"]", "roots = [\"none.pem\"]", 1),
            "the configuration has",
        ),
        // What only a new start can change.
        (
            good.replace("audit/serve.jsonl", "audit/other.jsonl"),
            "`[audit] path`",
        ),
        (
            format!("{good}[runtime]\nthreads = 2\n"),
            "`[runtime] threads`",
        ),
    ];
    for (text, why) in changes {
        fs::write(&path, &text).unwrap();
        let from = fs::metadata(&rig.served.log).unwrap().len() as usize;
        assert!(!hang_up(rig), "taken: {why}");
        let log = fs::read(&rig.served.log).unwrap();
        let log = String::from_utf8_lossy(&log[from..]).into_owned();
        assert!(log.contains(why), "no `{why}` in {log}");
        allowed(rig, Way::Connect, GOOD, plain);
        assert_eq!(rig.seen().len(), 1);
        assert_eq!(variables(rig), held);
    }
    fs::write(&path, &good).unwrap();
    assert!(hang_up(rig));
}

/// Waits until a gateway's judgement of a request changes, and says how long it took.
fn becomes(rig: &Rig, way: Way, status: u16) -> Duration {
    let began = Instant::now();
    loop {
        let answer = rig.ask(way, OTHER, "GET {T}/watched HTTP/1.1\r\nHost: {H}\r\n\r\n");
        rig.record(way);
        if answer.status == status {
            return began.elapsed();
        }
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{way:?} {answer:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn a_changed_file_is_read_without_a_signal(rig: &Rig) {
    let forbid = "@id(\"watched\")\nforbid(principal, action, resource) when { context.path == \"/watched\" };\n";
    for (way, file) in [
        (Way::ConnectClear, "rig.cedar"),
        (Way::TransparentClear, "sandbox.cedar"),
    ] {
        becomes(rig, way, 200);
        // An editor writes beside, and replaces.
        let at = rig.dir.path();
        fs::write(at.join("next"), format!("{}{forbid}", policies())).unwrap();
        fs::rename(at.join("next"), at.join(file)).unwrap();
        let took = becomes(rig, way, 403);
        // What cannot be read changes nothing, and is told once.
        let from = fs::metadata(&rig.gate(way).log).unwrap().len() as usize;
        fs::write(at.join(file), "permit(").unwrap();
        std::thread::sleep(Duration::from_millis(2500));
        assert!(becomes(rig, way, 403) < Duration::from_secs(1));
        let log = fs::read(&rig.gate(way).log).unwrap();
        let log = String::from_utf8_lossy(&log[from..]).into_owned();
        assert_eq!(log.matches("policies are refused").count(), 1, "{way:?}");
        fs::write(at.join(file), policies()).unwrap();
        becomes(rig, way, 200);
        assert!(took < Duration::from_secs(5), "{way:?} {took:?}");
    }
    rig.seen();
}

/// M04: places of a credential and the policy that lends it change together. Who lends by one
/// generation what another binds would show in the record.
fn what_is_lent_and_what_is_allowed_come_from_one_generation(rig: &Rig) {
    let turns: usize = std::env::var("GATEWAY_RELOADS").map_or(40, |text| text.parse().unwrap());
    let good = fs::read_to_string(rig.dir.path().join("serve.toml")).unwrap();
    let cedar = |place: &str| {
        let lend = format!(
            "@id(\"turn\")\npermit(principal, action == Gateway::Action::\"lend\", resource == Gateway::Credential::\"gained\") \
             when {{ context.place == \"header:{place}\" }};\n"
        );
        format!("{}{lend}", policies())
    };
    let config = |place: &str| {
        format!("{good}{GAINED}").replace("header:x-gained", &format!("header:{place}"))
    };
    let put = |place: &str| {
        fs::write(rig.dir.path().join("serve.toml"), config(place)).unwrap();
        assert!(reload(rig, &cedar(place)));
    };
    put("x-even");
    let held = phantom(&variables(rig), "GAINED_TOKEN");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let tried = std::thread::scope(|scope| {
        let ask = || {
            let mut count = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for place in ["X-Even", "X-Odd"] {
                    let text =
                        format!("GET /x HTTP/1.1\r\nHost: {OTHER}\r\n{place}: {held}\r\n\r\n");
                    let answer = rig.open(Way::Connect, OTHER).ask(text.as_bytes());
                    assert!([200, 403].contains(&answer.status), "{answer:?}");
                    count += 1;
                }
            }
            count
        };
        let clients: Vec<_> = (0..2).map(|_| scope.spawn(ask)).collect();
        for turn in 0..turns {
            put(if turn % 2 == 0 { "x-odd" } else { "x-even" });
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        clients
            .into_iter()
            .map(|one| one.join().unwrap())
            .sum::<usize>()
    });
    let records = rig.records(Way::Connect, tried);
    let first = records
        .iter()
        .filter_map(|one| one["generation"].as_u64())
        .min();
    let (mut lent, mut position) = (0, 0);
    for record in &records {
        let all = record.to_string();
        match record["reason"].as_str() {
            // What one generation binds, that generation lends: no policy ever refuses.
            None => lent += 1,
            Some("phantom_position") => position += 1,
            // Judged by one generation, and no longer allowed by the next.
            Some("credential_removed" | "revoked") => {}
            Some(other) => panic!("{other}: {all}"),
        }
    }
    println!(
        "{turns} reloads from generation {first:?}: {tried} requests, {lent} lent, {position} refused, 0 mixed"
    );
    assert!(lent > 0 && position > 0);
    fs::write(rig.dir.path().join("serve.toml"), &good).unwrap();
    assert!(reload(rig, &policies()));
    rig.seen();
    rig.ends_now();
}

/// I01 after a reload: an origin that was shown a secret may repeat it to every session, wherever
/// the credential is kept by now, and if it is none any more.
fn a_secret_that_a_reload_took_away_is_still_found_in_answers(rig: &Rig) {
    let secrets = ["slack", "gitlab"].map(|name| rig.secret(name).to_owned());
    let shown = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
    let told = shown.clone();
    rig.origins
        .on("/leak", move |_| ok("", told.lock().unwrap().as_bytes()));
    let good = fs::read_to_string(rig.dir.path().join("serve.toml")).unwrap();
    let bound = |from: &str| good.clone() + &GAINED.replace("secrets/bearer", from);
    let put = |text: String| {
        fs::write(rig.dir.path().join("serve.toml"), text).unwrap();
        assert!(reload(rig, &format!("{}{LEND_GAINED}", policies())));
    };
    let lend = || {
        let gained = phantom(&variables(rig), "GAINED_TOKEN");
        let asks = format!("GET {{T}}/x HTTP/1.1\r\nHost: {{H}}\r\nX-Gained: {gained}\r\n\r\n");
        allowed(rig, Way::Connect, OTHER, &asks);
    };
    // An origin repeats what it was shown. [`Rig::settle`] looks for each secret, too.
    let leaks = |count: usize| {
        *shown.lock().unwrap() = secrets[..count].join(" ");
        let plain = "GET {T}/leak HTTP/1.1\r\nHost: {H}\r\n\r\n";
        let own = allowed(rig, Way::Connect, OTHER, plain).text();
        let other = Doors {
            proxy: rig.ports.proxy_b,
            tls: rig.ports.tls_b,
            relay: &rig.relay,
        };
        let tunnel = rig.tunnel_by(&other, Way::Connect, OTHER, 443).unwrap();
        let mut wire = tunnel.secure(Some(OTHER), &["http/1.1"]).unwrap();
        let theirs = wire.ask(&rig.fill(Way::Connect, OTHER, plain));
        rig.record(Way::Connect);
        assert_eq!(theirs.status, 200);
        for text in [own, theirs.text()] {
            let found = secrets.iter().find(|secret| text.contains(*secret));
            assert!(text.len() > 10 && found.is_none(), "{count}: {text}");
        }
    };
    put(bound("secrets/slack"));
    lend();
    leaks(1);
    put(bound("secrets/gitlab"));
    lend();
    leaks(2);
    put(good.clone());
    leaks(2);
    assert!(reload(rig, &policies()));
    rig.seen();
}

/// Policies, credentials and origins of `exec`, by its watched files alone.
fn what_a_sandbox_can_have_changes_under_load_and_nothing_fails(rig: &Rig) {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    stream(rig, 400);
    let mut under_way = begin(rig, Way::TransparentClear, "GET /events", "\r\n");
    assert!(under_way.line(b"\r\n\r\n").is_some());
    let (stop, asked) = (AtomicBool::new(false), AtomicUsize::new(1));
    let ask = |way: Way, host: &str, line: &str| {
        asked.fetch_add(1, Ordering::Relaxed);
        let template = format!("GET {{T}}{line}\r\n\r\n");
        rig.ask(way, host, &template).status
    };
    let at = |name: &str| rig.dir.path().join(name);
    let good = fs::read_to_string(at("exec.toml")).unwrap();
    let forbid = "@id(\"under-load\")\nforbid(principal, action, resource) when { context.path == \"/watched\" };\n";
    let rule = "[[origin]]\nmatch = \"https://*.rig.test\"\n";
    let odd = good.replacen(rule, &format!("{rule}underscores = true\n"), 1);
    // A file that the sandbox was not told to hide would be refused.
    let own = good.lines().find(|line| line.starts_with("from = \"file:"));
    let gained = GAINED.replacen("from = \"file:secrets/bearer\"", own.unwrap(), 1);
    let gained = format!("{good}{gained}");
    let (watched, foreign) = (
        "/watched HTTP/1.1\r\nHost: {H}",
        "/x HTTP/1.1\r\nHost: {H}\r\nX-Gained: mine",
    );
    let named = "/x HTTP/1.1\r\nHost: {H}\r\nX_Odd: 1";
    let changes = [
        ("sandbox.cedar", policies() + forbid, OTHER, watched, 403),
        ("sandbox.cedar", policies(), OTHER, watched, 200),
        ("exec.toml", gained, OTHER, foreign, 403),
        ("exec.toml", odd, SECOND, named, 200),
        ("exec.toml", good.clone(), OTHER, foreign, 200),
    ];
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let line = "/load HTTP/1.1\r\nHost: {H}";
                    assert_eq!(ask(Way::TransparentClear, OTHER, line), 200);
                }
            });
        }
        for (file, text, host, line, status) in changes {
            fs::write(at("next"), text).unwrap();
            fs::rename(at("next"), at(file)).unwrap();
            let began = Instant::now();
            while ask(Way::Transparent, host, line) != status {
                if began.elapsed() > Duration::from_secs(20) {
                    // The other threads end only then.
                    stop.store(true, Ordering::Relaxed);
                    panic!("{file}: {line} is not answered with {status}");
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(under_way.line(b"0\r\n\r\n").is_some(), "the stream was cut");
    rig.records(Way::Transparent, asked.load(Ordering::Relaxed));
    rig.seen();
}
