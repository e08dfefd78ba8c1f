//! Logins that are kept in the gateway's state, and that no preset knows.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use crate::desk::{Desk, USER, said};

const TOKENS: &str = r#"{"access_token": "access-CANARY-0123456789", "refresh_token": "refresh-CANARY-0123456789", "token_type": "Bearer", "expires_in": 3600}"#;
const DEVICE: &str = r#"{"device_code": "dc", "user_code": "WDJB", "interval": 1, "expires_in": 60, "verification_uri": "https://as.test/device"}"#;

/// An issuer that logs in by device. Returns its address.
fn issuer() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let (mut head, mut length) = (String::new(), 0);
            while reader.read_line(&mut head).unwrap() > 2 {
                let last = head.lines().last().unwrap().to_lowercase();
                if let Some(told) = last.strip_prefix("content-length: ") {
                    length = told.parse().unwrap();
                }
            }
            let mut content = vec![0; length];
            reader.read_exact(&mut content).unwrap();
            let answer = match head.starts_with("POST /device") {
                true => DEVICE,
                false => TOKENS,
            };
            let length = answer.len();
            let _ = write!(
                reader.get_mut(),
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{answer}"
            );
        }
    });
    address
}

fn log_in(desk: &Desk) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
    command
        .args(["login", "add", "mcp.test", "--config"])
        .arg(desk.at("home/mcp.toml"));
    command
        .env_clear()
        .env("HOME", desk.at("home"))
        .stdin(Stdio::null());
    command.uid(USER).gid(USER).current_dir(desk.at("home"));
    let told = said(command);
    assert!(told.contains("logged in: mcp.test"), "{told}");
}

#[test]
fn a_kept_login_that_no_preset_knows_opens_its_host_where_it_is_named_and_a_variable_holds_it() {
    let (desk, address) = (Desk::bare(), issuer());
    let text = format!(
        "[[login]]\nname = \"mcp.test\"\ntoken_url = \"{address}/token\"\ndevice_url = \"{address}/device\"\n\
         client_id = \"own\"\norigins = [\"https://mcp.test\"]\n"
    );
    desk.write("home/mcp.toml", &text);
    let lent = "MCP_TEST_TOKEN (phantom) to mcp.test";
    let script = "echo held=$MCP_TEST_TOKEN; curl -sS https://mcp.test/ 2>&1; echo";
    let agent = |project: &str, flags: &[&str]| desk.agent(project, flags, script);
    let named = ["--login", "mcp.test"];
    let told = agent("two", &named);
    assert!(told.contains("there is no login `mcp.test`"), "{told}");
    log_in(&desk);
    for project in ["one", "two"] {
        for flags in [&[][..], &["--no-lend"], &["--login", "gh"]] {
            let told = agent(project, flags);
            let is_open = told.contains(lent) || !told.contains("policy_default_deny");
            assert!(!is_open && told.contains("held=\n"), "{flags:?}: {told}");
        }
        let told = agent(project, &named);
        let holds = told.lines().find_map(|line| line.strip_prefix("held="));
        let held = holds.unwrap_or_default();
        assert!(told.contains(lent) && !held.is_empty(), "{told}");
        assert!(!told.contains("access-CANARY"), "{told}");
        // Its host is allowed: only nothing is there.
        assert!(!told.contains("policy_default_deny"), "{told}");
    }
    let told = said(desk.command("two", &["--login", "mcp.test", "--", "sh", "-c", script]));
    assert!(told.contains(lent) && !told.contains("held=\n"), "{told}");
}
