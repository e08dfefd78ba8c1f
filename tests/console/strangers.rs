//! Who has no part in the page: other users, other pages, sessions, and hostile texts.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use crate::browser::Browser;
use crate::program::CANARY;
use crate::rig::{Asked, Console, gateway, wait_for};

const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";

#[test]
fn the_link_opens_the_page_once_and_nobody_else_has_anything() {
    let program = gateway("");
    let console = Console::start(&program);
    let own = format!("Origin: http://{}\r\n{FORM}", console.host());
    // Without a cookie: a page that says nothing, its script and its style.
    let (status, page) = console.ask("GET /", "", "");
    assert_eq!(status, 200);
    assert!(
        page.contains("This page opens by the link") && !page.contains("serve-"),
        "{page}"
    );
    for field in [
        "default-src 'none'",
        "no-store",
        "frame-ancestors 'none'",
        "nosniff",
    ] {
        assert!(page.contains(field), "{field}: {page}");
    }
    for line in [
        "GET /events",
        "GET /why/00000000000000000000",
        "GET /v1/status",
    ] {
        assert_eq!(console.ask(line, "", "").0, 403, "{line}");
    }
    assert_eq!(
        console.ask("POST /v1/sessions/agent-1/end", &own, "").0,
        403
    );
    let guess = format!("gateway-console={}", "0".repeat(64));
    assert_eq!(
        console
            .ask("GET /events", &format!("Cookie: {guess}\r\n"), "")
            .0,
        403
    );
    // Another host, another page, another method, a target of its own, no form.
    let host = console.host().to_owned();
    for other in ["127.0.0.1", "localhost", "evil.test"] {
        let request = format!("GET / HTTP/1.1\r\nHost: {other}:{}\r\n\r\n", console.port());
        assert!(console.raw(&request).starts_with("HTTP/1.1 421"), "{other}");
    }
    let twice = format!("GET / HTTP/1.1\r\nHost: {host}\r\nHost: evil.test\r\n\r\n");
    assert!(!console.raw(&twice).starts_with("HTTP/1.1 200"));
    let token = format!("token={}", console.token());
    for fields in [
        FORM.to_owned(),
        format!("Origin: null\r\n{FORM}"),
        format!("Origin: http://localhost:{}\r\n{FORM}", console.port()),
    ] {
        assert_eq!(
            console.ask("POST /open", &fields, &token).0,
            403,
            "{fields}"
        );
    }
    let json = format!("Origin: http://{host}\r\nContent-Type: application/json\r\n");
    assert_eq!(console.ask("POST /open", &json, &token).0, 400);
    assert_eq!(console.ask("POST /open", &own, "token=0").0, 403);
    // The first use has the page; the second is told to both.
    let mut browser = Browser::start(1000, 900);
    console.browse(&mut browser);
    assert_eq!(
        browser.eval("document.cookie"),
        "",
        "no script reads the cookie"
    );
    let (status, told) = console.ask("POST /open", &own, &token);
    assert!(status == 410 && told.contains("used already"), "{told}");
    let mut other = Browser::start(600, 400);
    other.open(&console.link);
    other.shows("This link was used already");
    let said = || std::fs::read_to_string(program.path("console.err")).unwrap();
    wait_for("it is told", || said().contains("used already"));
    let asked = Asked::refund(&program, "{}");
    browser.shows("Refund the customer?");
    // A form without the page's own token does nothing.
    let posted = browser.eval(
        "fetch('/v1/sessions/agent-1/end', {method: 'POST', body: new URLSearchParams()})\
         .then((answer) => answer.status)",
    );
    assert_eq!(posted, 409);
    // Only what the page's forms do reaches the control socket.
    let posted = browser.eval(
        "fetch('/v1/sessions', {method: 'POST', body: new URLSearchParams({form_token: \
         document.querySelector('[name=form_token]').value})}).then((answer) => answer.status)",
    );
    assert_eq!(posted, 404);
    assert!(asked.waits() && program.ask("http://stream.test/").0 == 200);
    for log in ["audit/log.jsonl", "log", "console.err"] {
        let text = std::fs::read_to_string(program.path(log)).unwrap();
        assert!(
            !text.contains(console.token()) && !text.contains(console.host()),
            "{log}"
        );
    }
}

#[test]
fn another_page_can_neither_post_read_nor_frame_it() {
    let program = gateway("");
    let console = Console::start(&program);
    let mut browser = Browser::start(1000, 900);
    console.browse(&mut browser);
    let asked = Asked::refund(&program, "{}");
    browser.shows("Refund the customer?");
    let id = browser.eval("document.querySelector('#waiting [name=id]').value");
    let to = format!("http://{}", console.host());
    let page = format!(
        "<!doctype html><iframe src=\"{to}/\"></iframe><iframe name=\"sink\"></iframe>\
         <form id=f method=post target=sink action=\"{to}/v1/proposals/allow\">\
         <input name=id value={id}></form><script>f.submit(); window.read = 'no';\
         fetch('{to}/', {{credentials: 'include'}}).then(() => read = 'yes', () => read = 'refused');\
         fetch('{to}/v1/proposals/allow', {{method: 'POST', mode: 'no-cors', credentials: 'include', \
         body: new URLSearchParams({{id: {id}}})}}).catch(() => 0).then(() => window.sent = true);\
         </script>"
    );
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in other.incoming().flatten() {
            let page = page.clone();
            // Each by itself: a browser opens connections that it does not use yet.
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 8192]);
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{page}",
                    page.len()
                );
            });
        }
    });
    for name in ["127.0.0.1", "localhost", "other.localhost"] {
        browser.open(&format!("http://{name}:{}/", address.port()));
        browser.wait("window.read === 'refused' && window.sent === true");
        let framed = browser.eval(
            "(() => { try { return frames[0].document.body.innerText } \
                                   catch { return 'refused' } })()",
        );
        assert!(framed == "refused" || framed == "", "{name}: {framed}");
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(asked.waits(), "another page answered");
    console_again(&console, &mut browser);
    browser.click("#waiting article button[data-key=a]");
    assert_eq!(asked.answer().0, 200);
}

fn console_again(console: &Console, browser: &mut Browser) {
    browser.open(&format!("http://{}/", console.host()));
}

#[test]
fn no_text_of_a_workload_runs_or_hides_at_the_page() {
    let program = gateway("");
    let console = Console::start(&program);
    let mut browser = Browser::start(1000, 900);
    let script = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>";
    // The gateway's own answer is of no interest here: some of these are malformed.
    for path in [
        "/<script>window.hacked=1</script>",
        "/\"'><img/src=x/onerror=hacked=1>",
    ] {
        program.ask(&format!("http://later.test{path}"));
    }
    program.ask(&format!(
        "http://later.test/{}",
        "a/../".repeat(5) + &"%3Cb%3E".repeat(2_000)
    ));
    let words = format!(
        "{{\"host\":\"a.test\",\"method\":\"GET\",\"path\":\"/\",\"why\":\"{}\u{202e}txt.exe\"}}",
        "</bdi><b>yes</b>"
    );
    let proposed = Asked::post(&program, "http://gateway.internal/proposals", &words);
    let (status, text) = proposed.answer();
    assert_eq!(status, 202, "{text}");
    console.browse(&mut browser);
    browser.shows("</bdi><b>yes</b>\\u{202e}txt.exe");
    let content = format!("{script}\u{202e}\0{}", "é".repeat(29_000));
    let asked = Asked::post(&program, "http://pay.test/v1/refunds?a=%3Cb%3E", &content);
    browser.shows("Refund the customer?");
    browser.shows("onerror='window.hacked=1'><script>");
    browser.shows("an answer is for more than is shown");
    browser.click("#waiting article:last-child button[data-key=d]");
    let (status, text) = asked.answer();
    assert_eq!(status, 403, "{text}");
    let odd = "(() => { const text = document.body.innerText; \
               return !window.hacked && !document.querySelector('main img, main script, main b b') \
               && !/[\\u202a-\\u202e\\u2066-\\u2069\\u0000]/.test(text); })()";
    assert_eq!(browser.eval(odd), true);
    browser.eval("document.querySelector('#rows a').click()");
    browser.shows("Story of");
    assert_eq!(browser.eval(odd), true);
    assert!(!browser.text().contains(CANARY));
    assert_eq!(browser.told, Vec::<String>::new());
}

#[test]
fn no_session_reaches_the_page_whatever_policy_permits() {
    let program = gateway("");
    let rules = "permit(principal, action, resource);";
    std::fs::write(program.path("rules.cedar"), rules).unwrap();
    program.reload();
    let console = Console::start(&program);
    for host in [
        "127.0.0.1",
        "[::1]",
        "localhost",
        console.host().split(':').next().unwrap(),
    ] {
        let (status, text) = program.ask(&format!("http://{host}:{}/", console.port()));
        assert!(status >= 400, "{host}: {status} {text}");
    }
    let told = program.through_socks([127, 0, 0, 1], "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    assert!(!told.contains("This page opens"), "{told}");
}
