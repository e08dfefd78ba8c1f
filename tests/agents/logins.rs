//! Logins of programs: the sandbox has their files with phantoms, and the user's own stay as they
//! are.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::desk::{Desk, LOGIN, REAL, said, until};

const FILE: &str = "home/.claude/.credentials.json";
const REFRESH: &str = "sk-ant-ort01-Ww4kQmLpTnWc5RjYb3HvGs7DfKe9AqUoX2";
const SHOW: &str = "cat ~/.claude/.credentials.json";

/// With a login of Claude Code, and one of a server that it talks to.
fn logged_in() -> Desk {
    let desk = Desk::bare();
    desk.write(FILE, &login().to_string());
    desk
}

fn login() -> Value {
    json!({
        "claudeAiOauth": {
            "accessToken": LOGIN, "refreshToken": REFRESH, "expiresAt": 4_000_000_000_000_u64,
            "scopes": ["user:inference"], "subscriptionType": "max", "other": "not shown",
        },
        "mcpOAuth": {"server": {"accessToken": "not-shown-either-0123456789"}},
    })
}

/// What the agent finds in its file.
fn found(desk: &Desk, project: &str, flags: &[&str], script: &str) -> Value {
    let output = desk
        .of(project, &[&["-q"], flags].concat(), script)
        .output();
    let output = output.unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn an_agent_finds_its_login_with_phantoms_and_what_it_needs_of_the_rest() {
    let desk = logged_in();
    let first = found(&desk, "one", &[], SHOW);
    let own = &first["claudeAiOauth"];
    for (member, real) in [("accessToken", LOGIN), ("refreshToken", REFRESH)] {
        let phantom = own[member].as_str().unwrap();
        assert!(phantom.starts_with(&real[..13]) && phantom.len() == real.len());
        assert_ne!(phantom, real);
    }
    let kept = json!({
        "accessToken": own["accessToken"], "refreshToken": own["refreshToken"],
        "expiresAt": 4_102_444_800_000_u64, "scopes": ["user:inference"], "subscriptionType": "max",
    });
    assert_eq!(first, json!({ "claudeAiOauth": kept }));
    // The next run has the same, another project others.
    assert_eq!(found(&desk, "one", &[], SHOW), first);
    assert_ne!(
        found(&desk, "two", &[], SHOW)["claudeAiOauth"]["accessToken"],
        own["accessToken"]
    );
    let told = desk.agent("one", &[], "stat -c %a ~/.claude/.credentials.json");
    assert!(
        told.contains("login claude (phantom) to api.anthropic.com"),
        "{told}"
    );
    assert!(told.starts_with("600\n"), "{told}");
    // It writes what it likes, and the user's own stays.
    let write = "umask 077; echo '{}' > new; mv new ~/.claude/.credentials.json";
    desk.agent("one", &["-q"], write);
    assert_eq!(
        fs::read_to_string(desk.at(FILE)).unwrap(),
        login().to_string()
    );
    assert!(!desk.kept(".claude/.credentials.json").exists());
    assert_eq!(found(&desk, "one", &[], SHOW), first);
}

#[test]
fn what_lies_in_the_place_of_a_login_is_not_followed() {
    let desk = Desk::bare();
    desk.write("home/victim", "untouched");
    let victim = desk.at("home/victim").display().to_string();
    let plant = format!("ln -s {victim} ~/.claude/.credentials.json");
    desk.agent("one", &["-q"], &plant);
    desk.write(FILE, &login().to_string());
    let link = desk.kept(".claude/.credentials.json");
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert!(found(&desk, "one", &[], SHOW)["claudeAiOauth"].is_object());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
    // A folder there gives way, however it is closed.
    let folder = "cd ~/.claude; rm .credentials.json; mkdir -p .credentials.json/a; chmod 0 .credentials.json";
    desk.agent("one", &["-q"], folder);
    assert!(found(&desk, "one", &[], SHOW)["claudeAiOauth"].is_object());
    // Nor is a link of the user's own shown with what it leads to.
    let other = desk.at("home/other.json");
    desk.write("home/other.json", r#"{"scopes": "CANARY"}"#);
    fs::remove_file(desk.at(FILE)).unwrap();
    symlink(other, desk.at(FILE)).unwrap();
    let told = desk.agent("two", &["-q"], "cat ~/.claude/.credentials.json || true");
    assert!(!told.contains("CANARY"), "{told}");
}

#[test]
fn a_file_that_is_kept_elsewhere_is_hidden_there() {
    let desk = Desk::bare();
    desk.write("conf/.credentials.json", &login().to_string());
    let conf = desk.at("conf").display().to_string();
    let script = format!("{SHOW}; cat {conf}/.credentials.json 2>&1 || true");
    let mut command = desk.of("one", &["-q", "--see", &conf], &script);
    command.env("CLAUDE_CONFIG_DIR", &conf);
    let told = said(command);
    assert!(told.contains("claudeAiOauth"), "{told}");
    assert!(
        !told.contains(LOGIN) && !told.contains("mcpOAuth"),
        "{told}"
    );
}

#[test]
fn any_command_has_the_login_that_a_flag_names() {
    let desk = logged_in();
    let show = ["--", "sh", "-c", "cat ~/.claude/.credentials.json"];
    let with = |flags: &[&str]| said(desk.command("one", &[flags, &show].concat()));
    assert!(with(&[]).contains("No such file"));
    let told = with(&["--login", "claude"]);
    assert!(
        told.contains("login claude (phantom) to api.anthropic.com"),
        "{told}"
    );
    assert!(
        told.contains("claudeAiOauth") && !told.contains(LOGIN),
        "{told}"
    );
    let told = with(&["--login", "claud"]);
    assert!(told.contains("there is no login `claud`"), "{told}");
    assert!(told.contains("did you mean `claude`?"), "{told}");
}

#[test]
fn a_token_in_the_place_of_a_user_is_not_shown() {
    let desk = Desk::bare();
    let of_github = format!("https://{REAL}:x-oauth-basic@github.com\n");
    let of_others = "https://CANARY:CANARY@b.example\nhttps://me:CANARY0123456789@c.example\n";
    desk.write("home/.git-credentials", &(of_github + of_others));
    let netrc = format!("machine d.example login {REAL} password CANARY\n");
    desk.write("home/.netrc", &netrc);
    let show = "cat ~/.git-credentials ~/.netrc || true";
    let told = desk.agent(
        "one",
        &["--login", "git-credentials", "--login", "netrc"],
        show,
    );
    assert!(told.contains("https://me:"), "{told}");
    assert!(!told.contains("CANARY"), "{told}");
}

#[test]
fn a_variable_that_the_user_set_is_used_unless_the_login_is_named() {
    let desk = logged_in();
    let with = |flags: &[&str]| {
        let script = "printenv ANTHROPIC_API_KEY; cat ~/.claude/.credentials.json";
        let tools = desk.at("tools").display().to_string();
        let last = ["--see", &tools, "--", "claude", script];
        let mut command = desk.command("one", &[flags, &last].concat());
        let key = format!("sk-ant-api03-{}AA", "a1B2".repeat(24).split_at(93).0);
        command.env("ANTHROPIC_API_KEY", key);
        said(command)
    };
    let told = with(&[]);
    assert!(
        told.contains("ANTHROPIC_API_KEY (phantom) to api.anthropic.com"),
        "{told}"
    );
    let instead =
        "not lent login claude, since anthropic is used: `--login claude` uses it instead";
    assert!(
        told.contains(instead) && !told.contains("claudeAiOauth"),
        "{told}"
    );
    let told = with(&["--login", "claude"]);
    assert!(
        told.contains("lends    login claude (phantom) to api.anthropic.com"),
        "{told}"
    );
    assert!(
        !told.contains("sk-ant-api03") && !told.contains("ANTHROPIC_API_KEY (phantom)"),
        "{told}"
    );
    let told = with(&["--login", "claude", "--secret", "ANTHROPIC_API_KEY"]);
    assert!(
        told.contains("are for the same host") && told.contains("leave one of them out"),
        "{told}"
    );
    assert!(!with(&["--no-lend"]).contains("login claude (phantom)"));
}

#[test]
fn a_login_that_is_not_there_yet_or_cannot_be_read_is_told() {
    let desk = Desk::bare();
    let told = desk.agent("one", &[], "ls -A ~/.claude");
    let bound = "login claude (phantom) to api.anthropic.com, once the command has logged in";
    assert!(
        told.contains(bound) && !told.contains("credentials"),
        "{told}"
    );
    let other = r#"{"claudeAiOauth": {"accessToken": 5}}"#;
    for (text, why) in [
        (&login().to_string()[..60], "no whole JSON document"),
        (
            other,
            "member `/claudeAiOauth/accessToken`: it is not a text",
        ),
    ] {
        desk.write(FILE, text);
        let told = desk.agent("one", &[], "true");
        for part in ["/.claude/.credentials.json`", why, "log in again"] {
            assert!(told.contains(part), "{part}\n{told}");
        }
        assert!(!told.contains("sk-ant"), "{told}");
    }
    let ended =
        json!({"claudeAiOauth": {"accessToken": LOGIN, "expiresAt": 1_700_000_000_000_u64}});
    desk.write(FILE, &ended.to_string());
    let told = desk.agent("one", &["-q"], "true");
    let over = "the login `claude` is over: its access token has ended, and nothing renews it; log in again with the program";
    assert!(told.contains(over), "{told}");
}

#[test]
fn serve_writes_the_file_beside_that_of_the_phantoms() {
    let desk = logged_in();
    let text = "[[listener]]\nkind = \"proxy\"\naddress = \"127.0.0.1:0\"\nsession = \"one\"\n[phantoms]\nenv_file = \"phantoms.env\"\n\
                [policy]\nlogins = [\"claude\"]\n[ca]\ncertificate = \"ca.pem\"\n";
    desk.write("home/gateway.toml", text);
    let mut command = serve(&desk);
    let mut running = command.spawn().unwrap();
    let copy = desk.at("home/phantoms.env.claude-.credentials.json");
    until(|| copy.exists());
    let written: Value = serde_json::from_slice(&fs::read(&copy).unwrap()).unwrap();
    let phantom = written["claudeAiOauth"]["accessToken"].as_str().unwrap();
    assert!(phantom.starts_with("sk-ant-oat01-") && phantom != LOGIN);
    desk.write(
        "home/gateway.toml",
        &text.replace("logins = [\"claude\"]\n", ""),
    );
    until(|| !copy.exists());
    running.kill().unwrap();
    running.wait().unwrap();
}

#[test]
fn a_caller_fetches_the_file_of_its_login_at_its_own_door() {
    let desk = logged_in();
    let socket = desk.at("home/agents.sock");
    let text = format!(
        "[[listener]]\nkind = \"proxy\"\naddress = \"unix:{}\"\nsession = \"{{caller}}\"\nwho = [\"unix\"]\nuids = [\"{}\"]\n\
         [policy]\nlogins = [\"claude\"]\n",
        socket.display(),
        crate::desk::USER
    );
    desk.write("home/gateway.toml", &text);
    let mut running = serve(&desk).spawn().unwrap();
    until(|| socket.exists());
    desk.write("inside/other", "");
    let fetch = "curl -sS --unix-socket agents.sock --request-target http://gateway.internal/home http://gateway.internal";
    let script = format!("{fetch} | HOME=$PWD/../inside sh; {fetch} | HOME=$PWD/../inside sh");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(desk.at("home"));
    std::os::unix::process::CommandExt::uid(&mut shell, crate::desk::USER);
    let output = shell.output().unwrap();
    running.kill().unwrap();
    running.wait().unwrap();
    let copy = fs::read(desk.at("inside/.claude/.credentials.json"));
    let copy: Value = serde_json::from_slice(&copy.expect("no file")).unwrap();
    let phantom = copy["claudeAiOauth"]["accessToken"].as_str().unwrap();
    assert!(phantom.starts_with("sk-ant-oat01-") && phantom != LOGIN);
    // The second time it is there, and stays.
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        told.contains(".credentials.json is there already"),
        "{told}"
    );
}

fn serve(desk: &Desk) -> Command {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
    let config = desk.at("home/gateway.toml");
    command.args(["serve", "--config"]).arg(config);
    command.current_dir(desk.at("home")).env_clear();
    command.env("HOME", desk.at("home"));
    command.uid(crate::desk::USER).gid(crate::desk::USER);
    command
}

/// What Claude Code 2.1 needs for its ready screen.
const SCREEN: &str = "cat ~/.claude/.claude.json 2>/dev/null || echo null";

#[test]
fn an_agent_that_is_logged_in_outside_is_ready_inside_in_every_project_from_the_first_run_on() {
    let desk = logged_in();
    let done = json!({"hasCompletedOnboarding": true});
    // Also where its settings outside say nothing, and in each project.
    assert_eq!(found(&desk, "one", &[], SCREEN), done);
    let own = json!({
        "hasCompletedOnboarding": true, "oauthAccount": {"emailAddress": "ann@example.com"}, "theme": "light",
        "mcpServers": {"one": {"env": {"KEY": REAL}}}, "projects": {"/": {}}, "userID": "0123",
    });
    desk.write("home/.claude.json", &own.to_string());
    let shown = json!({
        "hasCompletedOnboarding": true, "oauthAccount": {"emailAddress": "ann@example.com"}, "theme": "light",
    });
    assert_eq!(found(&desk, "two", &[], SCREEN), shown);
    // What the agent wrote there stays, but for these.
    let trusted = json!({"projects": {"/x": {"hasTrustDialogAccepted": true}}, "theme": "dark"});
    let leave = format!("echo '{trusted}' > ~/.claude/.claude.json");
    desk.agent("two", &["-q"], &leave);
    let both = json!({
        "hasCompletedOnboarding": true, "oauthAccount": {"emailAddress": "ann@example.com"}, "theme": "light",
        "projects": {"/x": {"hasTrustDialogAccepted": true}},
    });
    assert_eq!(found(&desk, "two", &[], SCREEN), both);
    // Nothing that is no file of JSON is followed or replaced.
    let victim = desk.at("home/victim");
    desk.write("home/victim", "{}");
    let plant = format!("ln -sf {} ~/.claude/.claude.json", victim.display());
    desk.agent("two", &["-q"], &plant);
    assert_eq!(found(&desk, "two", &[], SCREEN), json!(null));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "{}");
    // Without a login, or without its profile, nothing is claimed.
    let bare = Desk::bare();
    assert_eq!(found(&bare, "one", &[], SCREEN), json!(null));
    assert_eq!(
        found(&desk, "one", &["--profile", "none"], SCREEN),
        json!(null)
    );
}

/// A file of Codex' login with an account, and what each renewal changes.
fn codex(email: &str, nth: u64) -> Value {
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let token = |kind: &str| {
        let times = (1_763_000_000 + nth, 1_999_000_000 + nth);
        let claims = json!({
            "email": email, "iat": times.0, "nbf": times.0, "exp": times.1,
            "jti": format!("{kind}-{}", "Ab3-_x9Q".repeat(nth as usize)), "auth_time": nth.pow(9),
            "https://api.openai.com/auth": {"chatgpt_plan_type": "plus"},
        });
        let head = json!({"alg": "RS256", "kid": format!("key-{nth}")});
        format!(
            "{}.{}.{}",
            part(head),
            part(claims),
            URL_SAFE_NO_PAD.encode([nth as u8; 256])
        )
    };
    let refresh = [
        "rt_Zx81-kQmLpTnWc5RjYb3HvGs7Df",
        "rt_kQm_LpTnWc5RjYb3HvGs7DfZx-8_1A",
    ];
    json!({"auth_mode": "chatgpt", "tokens": {
        "access_token": token("a"), "id_token": token("i"), "account_id": "acc",
        "refresh_token": refresh[nth as usize % 2],
    }})
}

#[test]
fn a_phantom_shows_the_account_that_its_login_has_and_is_the_same_until_that_changes() {
    let desk = Desk::bare();
    let show = |script: &str| {
        let flags = ["--login", "codex", "--", "sh", "-c", script];
        said(desk.command("one", &flags))
    };
    let tokens = |email: &str, nth| {
        desk.write("home/.codex/auth.json", &codex(email, nth).to_string());
        let told = show("cat ~/.codex/auth.json");
        let found = &told[told.find('{').unwrap()..=told.rfind('}').unwrap()];
        serde_json::from_str::<Value>(found).unwrap_or_else(|_| panic!("{told}"))["tokens"].clone()
    };
    let claims = |token: &Value| -> Value {
        let payload = token.as_str().unwrap().split('.').nth(1).unwrap();
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
    };
    let first = tokens("old@example.com", 1);
    assert_eq!(claims(&first["id_token"])["email"], "old@example.com");
    // A renewal changes times, what is drawn, lengths and punctuation.
    assert_eq!(tokens("old@example.com", 2), first);
    let second = tokens("someone-else@example.com", 3);
    for kind in ["id_token", "access_token"] {
        assert_eq!(claims(&second[kind])["email"], "someone-else@example.com");
    }
    assert_eq!(second["refresh_token"], first["refresh_token"]);
    assert_eq!(tokens("someone-else@example.com", 4), second);
    // The start after another account refuses the former phantom by its name.
    desk.write(
        "home/.codex/auth.json",
        &codex("third@example.com", 5).to_string(),
    );
    let former = second["access_token"].as_str().unwrap();
    let told = show(&format!(
        "curl -sS -H 'Authorization: Bearer {former}' https://chatgpt.com/"
    ));
    assert!(told.contains("\"credential_removed\""), "{told}");
    // What cannot be read is said, and not shown as something else.
    let unreadable = codex("a@example.com", 6)
        .to_string()
        .replace("In0.", "In0.!");
    desk.write("home/.codex/auth.json", &unreadable);
    let told = show("cat ~/.codex/auth.json");
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        told.contains(
            "/tokens/access_token`: it looks like a JSON Web Token, and its claims cannot be read"
        ) && told.contains("log in again")
            && !told.contains("account_id"),
        "{told}"
    );
}
