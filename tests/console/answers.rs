//! What a person sees and answers at the page.

use std::time::Instant;

use crate::browser::Browser;
use crate::rig::{Asked, Console, gateway, wait_for};

const BUDGETS: &str = r#"
[[budget]]
name = "calls"
most = 40
unit = "requests"
per = "day"
"#;
const REFUND: &str = r#"{"charge":"ch_1","amount":42000}"#;

#[test]
fn what_waits_is_allowed_by_a_button_denied_by_a_key_and_goes_where_it_stands() {
    let program = gateway(BUDGETS);
    let console = Console::start(&program);
    let mut browser = Browser::start(1180, 640);
    for at in 0..12 {
        program.ask("http://stream.test/");
        program.ask(&format!("http://later.test/models/{at}"));
    }
    console.browse(&mut browser);
    browser.shows("Nothing waits.");
    let first = Asked::refund(&program, REFUND);
    browser.shows("Refund the customer?");
    browser.shows(r#""{\"charge\":\"ch_1\",\"amount\":42000}""#);
    browser.shows("SHA-256");
    browser.is_accessible();
    browser.picture("console.png");
    browser.click("#waiting article button[data-key=a]");
    browser.shows("The request is allowed, once.");
    assert_eq!(first.answer().0, 200);
    browser.wait("!document.querySelector('#waiting article:not(.over)')");
    // The only one that waits need not be chosen.
    let second = Asked::refund(&program, "two");
    browser.wait("document.querySelectorAll('#waiting article:not(.over)').length === 1");
    browser.press("d");
    browser.shows("Deny: y or Enter confirms");
    assert!(second.waits());
    browser.press("y");
    let (status, text) = second.answer();
    assert_eq!(status, 403, "{text}");
    browser.shows("It is denied.");
    // Ten at once, each with its own buttons; what was answered elsewhere stays where it stood.
    let all: Vec<Asked> = (0..8)
        .map(|at| Asked::refund(&program, &format!("r{at}")))
        .collect();
    browser.wait("document.querySelectorAll('#waiting article:not(.over)').length === 8");
    let third = browser.eval("document.querySelectorAll('#waiting article:not(.over)')[2].id");
    let id = third.as_str().unwrap().trim_start_matches('w').to_owned();
    browser.eval(
        "window.top3 = document.querySelectorAll('#waiting article:not(.over)')[3].offsetTop",
    );
    let (code, said) = program.gateway(&["allow", &id, "--yes"]);
    assert_eq!(code, 0, "{said}");
    browser.wait(&format!(
        "document.getElementById('w{id}').classList.contains('over')"
    ));
    assert!(browser.eval(&format!("!document.querySelector('#w{id} button')")) == true);
    for _ in 0..7 {
        browser.press("k");
    }
    let mut refused = 0;
    while refused < 7 {
        browser.eval("document.querySelector('#waiting article:not(.over)')?.focus()");
        browser.press("d");
        browser.press("Enter");
        refused += 1;
        let left = 7 - refused;
        browser.wait(&format!(
            "document.querySelectorAll('#waiting article:not(.over)').length === {left}"
        ));
    }
    let statuses: Vec<u16> = all.iter().map(|one| one.answer().0).collect();
    assert_eq!(
        statuses.iter().filter(|status| **status == 200).count(),
        1,
        "{statuses:?}"
    );
    assert_eq!(browser.told, Vec::<String>::new());
}

#[test]
fn a_refusal_and_a_proposal_get_the_rule_that_was_shown() {
    let program = gateway("");
    let console = Console::start(&program);
    let mut browser = Browser::start(1000, 900);
    console.browse(&mut browser);
    assert_eq!(program.ask("http://later.test/").0, 403);
    browser.shows("GET later.test:80/");
    browser.press("j");
    browser.eval("document.querySelector('#rows a').focus()");
    browser.press("Enter");
    browser.shows("No policy permits the request.");
    browser.shows("resource == Gateway::Host::\"later.test\"");
    browser.shows("judged");
    browser.is_accessible();
    browser.picture("console-story.png");
    browser.press("a");
    browser.press("y");
    browser.shows("The rule is in force.");
    assert_eq!(program.ask("http://later.test/").0, 200);
    let proposed = Asked::post(
        &program,
        "http://gateway.internal/proposals",
        r#"{"host":"http://later.test","method":"POST","path":"/v1","why":"<b>please</b>"}"#,
    );
    let (status, text) = proposed.answer();
    assert_eq!(status, 202, "{text}");
    browser.open(&format!("http://{}/", console.host()));
    browser.shows("\"<b>please</b>\"");
    browser.press("a");
    browser.press("y");
    browser.shows("The narrowest rule that allows it");
    browser.click("#rule button");
    browser.shows("The rule is in force.");
}

#[test]
fn sessions_secrets_and_requests_obey_the_page() {
    let program = gateway("");
    let console = Console::start(&program);
    let mut browser = Browser::start(390, 800);
    browser.darken();
    console.browse(&mut browser);
    program.ask("http://stream.test/");
    program.ask("http://later.test/");
    browser.shows("later.test:80/");
    let wide = browser.eval("document.documentElement.scrollWidth <= innerWidth");
    assert_eq!(wide, true, "a phone shows it without scrolling sideways");
    browser.eval(
        "(() => { const one = document.querySelector('#filter [name=host]'); one.value = 'stream'; \
         one.dispatchEvent(new Event('input', {bubbles: true})); })()",
    );
    browser.wait("!document.querySelector('#rows').innerText.includes('later.test')");
    browser.wait("document.querySelector('#rows').innerText.includes('stream.test')");
    assert_eq!(browser.eval("location.search"), "?host=stream");
    browser.click("#sessions form[action$=pause] button");
    browser.shows("The session is paused.");
    assert_eq!(program.ask("http://stream.test/").0, 503);
    browser.click("#sessions form[action$=resume] button");
    browser.shows("The session goes on.");
    assert_eq!(program.ask("http://stream.test/").0, 200);
    browser.is_accessible();
    browser.click("#secrets summary");
    browser.click("#secrets form[action$=revoke] button");
    browser.shows("The secret is revoked.");
    wait_for("it is revoked", || {
        program.json(&["status"])["gateways"][0]["revoked"] == serde_json::json!(["key"])
    });
    browser.click("#sessions summary");
    browser.click("#sessions form[action$=end] button");
    browser.shows("The session is ended, for good.");
    assert_eq!(program.ask("http://stream.test/").0, 403);
    assert_eq!(browser.told, Vec::<String>::new());
}

#[test]
fn a_page_left_open_over_a_restart_shows_the_gateway_anew_and_an_older_form_does_nothing() {
    let mut program = gateway("");
    let console = Console::start(&program);
    let mut browser = Browser::start(1000, 900);
    console.browse(&mut browser);
    let older = browser.eval("document.querySelector('[name=form_token]').value");
    program.restart_after_a_crash();
    let name = format!("serve-{}", program.child.id());
    browser.shows(&name);
    browser.wait(&format!(
        "!document.body.classList.contains('stale') && \
         document.querySelector('[name=form_token]').value !== {older}"
    ));
    let told = browser.eval(&format!(
        "fetch('/v1/sessions/agent-1/end', {{method: 'POST', body: new URLSearchParams({{form_token: \
         {older}}})}}).then((answer) => answer.status)"
    ));
    assert_eq!(told, 409);
    let asked = Asked::refund(&program, REFUND);
    browser.click("#waiting article button[data-key=a]");
    assert_eq!(asked.answer().0, 200);
    // And without its console, the page says so, also beside an answer that comes later.
    drop(console);
    browser.shows("nothing here is up to date");
    browser.press("d");
    browser.shows("Esc does not. The page is served no longer");
}

#[test]
fn ten_thousand_requests_are_a_bounded_page_that_answers_at_once() {
    let program = gateway("");
    flood(&program, 2_500);
    let console = Console::start(&program);
    let mut browser = Browser::start(1000, 900);
    console.browse(&mut browser);
    let count = browser.eval("document.querySelectorAll('#rows li').length");
    assert_eq!(count, 500);
    browser.shows("Older");
    // While more come, a key moves the focus at once, and the page stays as large.
    let proxy = program.proxy;
    let flooding = std::thread::spawn(move || flood_at(proxy, 1_000));
    let mut slowest = 0;
    while !flooding.is_finished() {
        let began = Instant::now();
        browser.press("j");
        browser.eval("document.activeElement.offsetTop");
        slowest = slowest.max(began.elapsed().as_millis());
    }
    assert!(slowest < 1_000, "{slowest} ms");
    let count = browser.eval("document.querySelectorAll('#rows li').length");
    assert_eq!(count, 500);
    browser.eval("document.querySelector('#requests > p a').click()");
    browser.wait("location.search.startsWith('?before=')");
    browser.shows("The latest");
}

fn flood(program: &crate::program::Program, count: usize) {
    flood_at(program.proxy, count);
}

/// Sends requests on one connection, one after the other.
fn flood_at(proxy: std::net::SocketAddr, count: usize) {
    use std::io::{Read as _, Write as _};
    let stream = std::net::TcpStream::connect(proxy).unwrap();
    let (mut reader, mut writer) = (stream.try_clone().unwrap(), stream);
    let request = "GET http://stream.test/ HTTP/1.1\r\nHost: stream.test\r\n\r\n";
    for _ in 0..count {
        writer.write_all(request.as_bytes()).unwrap();
        let (mut all, mut piece) = (Vec::new(), [0; 4096]);
        while !all.ends_with(b"ok") {
            let read = reader.read(&mut piece).unwrap();
            assert!(read > 0, "{}", String::from_utf8_lossy(&all));
            all.extend_from_slice(&piece[..read]);
        }
    }
}

#[test]
fn the_archive_of_a_log_opens_in_the_tools_of_the_browser() {
    let program = gateway("");
    program.ask("http://stream.test/");
    program.ask("http://later.test/models?name=value&b");
    let archive = program.json(&["log", "--har"]);
    let mut browser = Browser::start(800, 600);
    browser.open("devtools://devtools/bundled/devtools_app.html");
    browser.wait("location.protocol === 'devtools:'");
    // What the network panel reads a file by.
    let read = browser.eval(&format!(
        "import('devtools://devtools/bundled/models/har/har.js').then(({{Importer, HARFormat}}) => \
         Importer.Importer.requestsFromHARLog(new HARFormat.HARRoot({archive}).log).map((one) => \
         [one.requestMethod, one.url(), one.statusCode, one.duration > 0]))"
    ));
    let wanted = serde_json::json!([
        ["GET", "http://stream.test/", 200, true],
        ["GET", "http://later.test/models?name=&b=", 403, true],
    ]);
    assert_eq!(read, wanted);
}
