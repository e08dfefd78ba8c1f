//! Exports that a reload adds, changes and removes while the gateway runs.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::exports::{Collector, ask, end, paths, until};
use crate::program::{Program, free, gateway};
use crate::sandbox;

fn to(port: SocketAddr) -> String {
    format!("[[export]]\nurl = \"http://{port}\"\n")
}

/// Replaces a part of the configuration, and reloads.
fn change(program: &Program, before: &str, after: &str) {
    program.edit(|text| {
        assert!(text.contains(before), "{text}");
        text.replace(before, after)
    });
    program.reload();
}

/// A request with a span of its own: it is refused, and recorded with its path.
fn mark(program: &Program, path: &str) {
    assert!(ask(program, &format!("http://evil.test{path}"), "").contains(" 403 "));
}

fn has(collector: &Collector, path: &str) -> bool {
    paths(collector).iter().any(|one| one == path)
}

fn said(program: &Program) -> String {
    fs::read_to_string(program.path("log")).unwrap()
}

/// The threads that export, once the first of them runs: a new thread has its name a moment later.
fn begun(program: &Program) -> BTreeSet<String> {
    until("it exports", || !threads(program).is_empty());
    threads(program)
}

/// The threads that send records.
fn threads(program: &Program) -> BTreeSet<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", program.child.id())).unwrap();
    let tasks = tasks.flatten().map(|task| task.path());
    let exports = tasks.filter(|task| {
        let name = fs::read_to_string(task.join("comm"));
        name.is_ok_and(|name| name.trim() == "export")
    });
    exports.map(|task| task.display().to_string()).collect()
}

fn metrics(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

#[test]
fn an_export_is_added_and_removed_and_goes_on_where_it_came_to_when_it_comes_back() {
    let (port, page) = (free(), free());
    let collector = Collector::start(port);
    let mut program = Program::start(&format!("[control]\nmetrics_address = \"{page}\"\n#none\n"));
    mark(&program, "/before");
    change(&program, "#none\n", &to(port));
    mark(&program, "/first");
    until("the first", || has(&collector, "/first"));
    let server = format!("server=\"{port}\"");
    assert!(metrics(page).contains(&server), "{}", metrics(page));
    mark(&program, "/second");
    change(&program, &to(port), "#none\n");
    assert!(!metrics(page).contains(&server), "{}", metrics(page));
    // What it had to send when it was removed is sent.
    until("the second", || has(&collector, "/second"));
    until("its end", || threads(&program).is_empty());
    mark(&program, "/meanwhile");
    std::thread::sleep(Duration::from_millis(1_500));
    assert!(!has(&collector, "/meanwhile"));
    change(&program, "#none\n", &to(port));
    until("what came meanwhile", || has(&collector, "/meanwhile"));
    change(&program, &to(port), "#none\n");
    until("its end", || threads(&program).is_empty());
    mark(&program, "/over-a-restart");
    end(&mut program);
    program.edit(|text| text.replace("#none\n", &to(port)));
    crate::exports::again(&mut program);
    until("the last", || has(&collector, "/over-a-restart"));
    let wanted = ["/first", "/second", "/meanwhile", "/over-a-restart"];
    assert_eq!(paths(&collector), wanted);
    assert!(!said(&program).contains("WARN"), "{}", said(&program));
}

#[test]
fn a_changed_place_gets_what_comes_from_then_on_and_nothing_is_missed_between() {
    let (old, new) = (free(), free());
    let (before, after) = (Collector::start(old), Collector::start(new));
    let program = Program::start(&to(old));
    for number in 0..10 {
        mark(&program, &format!("/{number}"));
    }
    program.edit(|text| text.replace(&to(old), &to(new)));
    let pid = rustix::process::Pid::from_child(&program.child);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    let told = format!("; exports begun: {new}; exports ended: {old}");
    until("the line of the reload", || said(&program).contains(&told));
    for number in 10..20 {
        mark(&program, &format!("/{number}"));
    }
    until("the last", || has(&after, "/19"));
    until("the end of the old one", || threads(&program).len() == 1);
    let late: Vec<String> = (10..20).map(|number| format!("/{number}")).collect();
    assert_eq!(paths(&after), late);
    assert!((0..10).all(|number| has(&before, &format!("/{number}"))));
    assert!(
        !said(&program).contains("not exported"),
        "{}",
        said(&program)
    );
}

/// Traffic goes on while the token, and with it the field, changes.
#[test]
fn a_changed_token_hands_over_and_each_record_arrives_once() {
    let port = free();
    let collector = Collector::start(port);
    let program = Program::start(&format!("{}#token\n", to(port)));
    let is_over = AtomicBool::new(false);
    let asked = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut number = 0;
            while !is_over.load(Ordering::SeqCst) {
                mark(&program, &format!("/{number}"));
                number += 1;
            }
            number
        });
        let token = |field: &str| format!("token = \"env:KEY\"\ntoken_field = \"{field}\"\n");
        let mut before = "#token\n".to_owned();
        for after in ["x-one", "x-two", "x-three"] {
            std::thread::sleep(Duration::from_millis(700));
            change(&program, &before, &token(after));
            before = token(after);
        }
        std::thread::sleep(Duration::from_millis(700));
        is_over.store(true, Ordering::SeqCst);
        asking.join().unwrap()
    });
    let wanted: Vec<String> = (0..asked).map(|number| format!("/{number}")).collect();
    until("all", || paths(&collector).len() >= wanted.len());
    assert_eq!(paths(&collector), wanted);
    let heads: String = collector
        .taken()
        .into_iter()
        .map(|(_, head, _)| head)
        .collect();
    assert!(
        ["x-one: ", "x-two: ", "x-three: "]
            .iter()
            .all(|field| heads.contains(field))
    );
    until("the ends of the old ones", || threads(&program).len() == 1);
    assert!(
        !said(&program).contains("not exported"),
        "{}",
        said(&program)
    );
    assert!(!said(&program).contains(crate::program::CANARY));
}

#[test]
fn a_refused_reload_leaves_the_old_exports_and_begins_no_new_one() {
    let (old, new) = (free(), free());
    let (before, after) = (Collector::start(old), Collector::start(new));
    let program = Program::start(&to(old));
    let known = begun(&program);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let listener =
        format!("[[listener]]\nkind = \"proxy\"\naddress = \"{address}\"\nsession = \"agent-2\"\n");
    // One is refused when it is read, the other when all but the listener is prepared.
    for mistake in ["[[export]]\nurl = \"ftp://nothing\"\n", &listener] {
        let good = program.edit(|text| text.replace(&to(old), &format!("{}{mistake}", to(new))));
        let (code, why) = program.gateway(&["reload"]);
        assert_ne!(code, 0, "{why}");
        program.edit(|_| good);
    }
    mark(&program, "/after");
    until("the old one", || has(&before, "/after"));
    assert_eq!(threads(&program), known);
    assert!(after.taken().is_empty());
}

#[test]
fn an_export_that_stays_is_not_touched_and_sends_nothing_twice() {
    let (stays, other) = (free(), free());
    let (collector, others) = (Collector::start(stays), Collector::start(other));
    let program = Program::start(&format!("{}#none\n", to(stays)));
    let known = begun(&program);
    mark(&program, "/0");
    change(&program, "#none\n", &to(other));
    mark(&program, "/1");
    let more = "rules = \"permit(principal, action, resource == Gateway::Host::\\\"a.test\\\");\"";
    change(&program, "files = [", &format!("{more}\nfiles = ["));
    mark(&program, "/2");
    assert!(threads(&program).is_superset(&known) && threads(&program).len() == 2);
    change(&program, &to(other), "#none\n");
    mark(&program, "/3");
    until("the last", || has(&collector, "/3"));
    until("the end of the other", || threads(&program) == known);
    assert_eq!(paths(&collector), ["/0", "/1", "/2", "/3"]);
    assert!(paths(&others).starts_with(&["/1".to_owned(), "/2".to_owned()]));
}

#[test]
fn a_collector_that_hangs_holds_up_neither_the_reload_nor_what_follows() {
    let port = free();
    let collector = Collector::start(port);
    collector.hangs.store(true, Ordering::SeqCst);
    let mut program = Program::start(&to(port));
    mark(&program, "/kept");
    std::thread::sleep(Duration::from_millis(1_000));
    let began = Instant::now();
    change(&program, &to(port), "#none\n");
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    until("it is given up", || threads(&program).is_empty());
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
    until("the word of what it did not take", || {
        said(&program).contains("not exported before the end")
    });
    collector.hangs.store(false, Ordering::SeqCst);
    change(&program, "#none\n", &to(port));
    until("what it did not take", || has(&collector, "/kept"));
    end(&mut program);
    assert_eq!(paths(&collector), ["/kept"]);
    let last = collector.logs().last().map(|log| log["eventName"].clone());
    assert_eq!(last, Some("gateway.stop".into()));
}

/// The records are those of acts: the command itself sends nothing.
#[test]
fn exec_adds_changes_and_removes_exports_while_its_command_runs() {
    let (old, new) = (free(), free());
    let (before, after) = (Collector::start(old), Collector::start(new));
    let folder = sandbox::folder(0);
    let config = folder.path().join("gateway.toml");
    fs::write(&config, "").unwrap();
    let mut command = sandbox::user_command(folder.path(), 0);
    let script = "while [ ! -e go ]; do sleep 0.05; done";
    command.args([
        "exec",
        "--config",
        "../../gateway.toml",
        "--",
        "sh",
        "-c",
        script,
    ]);
    let child = sandbox::exec(folder.path(), command);
    let reload = |text: &str| {
        fs::write(&config, text).unwrap();
        let (code, said) = gateway(folder.path(), &["reload"]);
        assert_eq!(code, 0, "{said}");
    };
    let act = |name: &str| assert_eq!(gateway(folder.path(), &["session", name, "exec"]).0, 0);
    let acts = |collector: &Collector| {
        let logs = collector.logs();
        let acts = logs.iter().filter(|log| log["eventName"] == "gateway.act");
        let said = acts.filter_map(|log| log["body"]["stringValue"].as_str());
        said.filter(|said| !said.contains("reload")).count()
    };
    sandbox::wait_for("the session", || {
        gateway(folder.path(), &["session", "pause", "exec"]).0 == 0
    });
    reload(&to(old));
    act("resume");
    until("an act at the first", || acts(&before) == 1);
    reload(&to(new));
    act("pause");
    until("an act at the second", || acts(&after) == 1);
    // The sandbox cannot hide a file any more, so no token comes from a new one.
    let token = folder.path().join("token");
    fs::write(&token, "a-token-of-the-test").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let with_file = format!("{}token = \"file:{}\"\n", to(new), token.display());
    fs::write(&config, with_file).unwrap();
    let (code, said) = gateway(folder.path(), &["reload"]);
    assert!(code != 0 && said.contains("was not told to hide"), "{said}");
    reload("");
    act("resume");
    reload(&to(new));
    until("the act in between", || acts(&after) == 2);
    fs::write(folder.path().join("home/project/go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let last = after.logs().last().map(|log| log["eventName"].clone());
    assert_eq!((last, acts(&before)), (Some("gateway.stop".into()), 1));
}
