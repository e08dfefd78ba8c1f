//! Metrics and health: for Prometheus, and without anything that a workload makes up (threats O05).

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::{Program, free};

fn get(address: SocketAddr, path: &str, fields: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn with_port() -> (Program, SocketAddr) {
    let port = free();
    let further = format!("[control]\nmetrics_address = \"{port}\"\n");
    (Program::start(&further), port)
}

#[test]
fn promtool_is_content_with_the_metrics_and_they_count_what_happened() {
    let (program, port) = with_port();
    program.ask("http://stream.test/");
    program.ask("http://evil.test/");
    program.json(&["session", "pause", "agent-1"]);
    program.ask("http://stream.test/");
    let answer = get(port, "/metrics", "Host: 127.0.0.1\r\n");
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    for line in [
        "gateway_exchanges_total{listener=\"forward\",protocol=\"http/1.1\",decision=\"allow\"} 1\n",
        "gateway_exchanges_total{listener=\"forward\",protocol=\"http/1.1\",decision=\"refuse\"} 2\n",
        "gateway_refusals_total{reason=\"policy_default_deny\"} 1\n",
        "gateway_refusals_total{reason=\"session_paused\"} 1\n",
        "gateway_own_seconds_count 1\n",
        "gateway_origin_seconds_bucket{le=\"+Inf\"} 1\n",
        "gateway_sessions{status=\"paused\"} 1\n",
        "gateway_policy_generation 1\n",
        "gateway_secrets_total{credential=\"key\",result=\"failed\"} 0\n",
        "gateway_secret_last_success_timestamp_seconds{credential=\"key\"} 0\n",
        "gateway_build_info{version=",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool, of Debian's prometheus");
    let mut input = promtool.stdin.take().unwrap();
    input.write_all(page.as_bytes()).unwrap();
    drop(input);
    let checked = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success() && said.is_empty(), "{said}");
}

#[test]
fn a_prometheus_server_scrapes_it() {
    let (program, port) = with_port();
    program.ask("http://stream.test/");
    let server = free();
    let config = format!(
        "global: {{ scrape_interval: 1s }}\nscrape_configs:\n- job_name: gateway\n  static_configs: [{{ targets: [\"{port}\"] }}]\n"
    );
    std::fs::write(program.path("prometheus.yml"), config).unwrap();
    let mut prometheus = Command::new("prometheus")
        .arg("--config.file=prometheus.yml")
        .arg("--storage.tsdb.path=prometheus")
        .arg(format!("--web.listen-address={server}"))
        .current_dir(program.folder.path())
        .stderr(Stdio::null())
        .spawn()
        .expect("Debian's prometheus");
    let until = Instant::now() + Duration::from_secs(40);
    let query = "/api/v1/query?query=gateway_own_seconds_count";
    let scraped = loop {
        let answer = TcpStream::connect(server).is_ok().then(|| {
            get(
                server,
                query,
                &format!("Host: {server}\r\nConnection: close\r\n"),
            )
        });
        let found = answer.is_some_and(|answer| answer.contains(r#""job":"gateway""#));
        if found || Instant::now() > until {
            break found;
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    prometheus.kill().unwrap();
    prometheus.wait().unwrap();
    assert!(scraped);
}

#[test]
fn the_port_serves_metrics_and_health_alone_and_no_web_page() {
    let (_program, port) = with_port();
    let status = |path: &str, fields: &str| get(port, path, fields)[9..12].to_owned();
    for path in ["/metrics", "/healthz", "/ready", "/readyz"] {
        assert_eq!(status(path, "Host: localhost\r\n"), "200", "{path}");
        assert_eq!(status(path, &format!("Host: {port}\r\n")), "200", "{path}");
        assert_eq!(status(path, "Host: evil.test\r\n"), "403", "{path}");
        let page = "Host: localhost\r\nOrigin: http://evil.test\r\n";
        assert_eq!(status(path, page), "403", "{path}");
    }
    for path in [
        "/v1/status",
        "/v1/sessions",
        "/v1/events",
        "/v1/sessions/agent-1",
    ] {
        assert_eq!(status(path, "Host: localhost\r\n"), "404", "{path}");
    }
}

#[test]
fn what_a_workload_makes_up_adds_no_line_to_the_metrics() {
    let (program, port) = with_port();
    let page = || get(port, "/metrics", "Host: 127.0.0.1\r\n");
    program.ask("http://evil.test/");
    let before = page();
    for nth in 0..2_000 {
        program.ask(&format!("http://h{nth}.evil.test/p{nth}?q{nth}"));
    }
    let after = page();
    assert_eq!(before.lines().count(), after.lines().count());
    assert!(
        !after.contains("evil") && !after.contains("agent-1"),
        "{after}"
    );
    assert!(after.contains("gateway_refusals_total{reason=\"policy_default_deny\"} 2001\n"));
}
