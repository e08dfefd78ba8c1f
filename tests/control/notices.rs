//! `[[notify]]`: webhooks whose answer decides, and notes on the desktop.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::asks::{ASKS, SHOP, Shop, gateway, read, send, send_with, waiting};
use crate::program::{Program, command};
use crate::sandbox::{folder, user_command, wait_for};

const KEY: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const REFUND: &str = "POST /v1/refunds";

/// A question as it came: the head, and the content.
type Asked = (String, String);

/// A server that answers the questions of a gateway.
struct Approver {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// Writes the answer to a question with this number.
type Answer = dyn Fn(usize, &Value, &mut dyn Stream) -> std::io::Result<()> + Send + Sync;

impl Approver {
    fn start(answer: Arc<Answer>, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let keeps = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, keeps, tls) = (answer.clone(), keeps.clone(), tls.clone());
                std::thread::spawn(move || {
                    let _ = match tls {
                        None => serve(stream, &keeps, &*answer),
                        Some(tls) => {
                            let tls = ServerConnection::new(tls).unwrap();
                            serve(StreamOwned::new(tls, stream), &keeps, &*answer)
                        }
                    };
                });
            }
        });
        Self { address, asked }
    }

    /// A server that answers with what this makes of a question.
    fn saying(say: impl Fn(usize, &Value) -> String + Send + Sync + 'static) -> Self {
        let answer = move |nth, question: &Value, stream: &mut dyn Stream| {
            stream.write_all(say(nth, question).as_bytes())
        };
        Self::start(Arc::new(answer), None)
    }

    fn section(&self) -> String {
        format!(
            "[[notify]]\nurl = \"http://{}/ask\"\nkey = \"file:hook.key\"\n",
            self.address
        )
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    fn wait_for(&self, count: usize) {
        wait_for("the webhook is not asked", || self.asked().len() == count);
    }
}

fn serve(
    mut stream: impl Stream,
    keeps: &Mutex<Vec<Asked>>,
    answer: &Answer,
) -> std::io::Result<()> {
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut piece)?;
        if count == 0 {
            return Ok(());
        }
        all.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&all).into_owned();
        let Some((head, content)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length: usize = field(head, "content-length").parse().unwrap();
        if content.len() == length {
            let nth = {
                let mut all = keeps.lock().unwrap();
                all.push((head.to_owned(), content.to_owned()));
                all.len()
            };
            return answer(nth, &serde_json::from_str(content).unwrap(), &mut stream);
        }
    }
}

fn field(head: &str, name: &str) -> String {
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    let found = fields.find(|(known, _)| known.eq_ignore_ascii_case(name));
    found
        .unwrap_or_else(|| panic!("{name}: {head}"))
        .1
        .to_owned()
}

fn answer(status: &str, content: &str) -> String {
    let length = content.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{content}"
    )
}

fn decides(decision: &str) -> String {
    answer("200 OK", &json!({ "decision": decision }).to_string())
}

/// A gateway before a shop whose refunds a policy asks about, with a key for webhooks.
fn start(shop: &Shop, notify: &str) -> Program {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("whsec_{KEY}")).unwrap();
    let (_, path) = file.keep().unwrap();
    gateway(
        shop,
        &notify.replace("hook.key", &path.display().to_string()),
    )
}

fn refund(program: &Program, amount: u32) -> TcpStream {
    send(program.proxy, REFUND, &format!("{{\"amount\":{amount}}}"))
}

#[test]
fn a_webhook_allows_denies_or_leaves_it_to_a_person_and_each_question_is_signed() {
    let shop = Shop::open();
    let approver = Approver::saying(|_, question| {
        let content = question["ask"]["content"].as_str().unwrap();
        match content.trim_matches(|c: char| !c.is_ascii_digit()) {
            "1" => decides("allow"),
            "2" => answer("200 OK", r#"{"decision":"deny","reason":"too much"}"#),
            "3" => decides("pending"),
            "4" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
            _ => answer("202 Accepted", r#"{"decision":"allow"}"#),
        }
    });
    let program = start(&shop, &approver.section());
    let (status, text) = read(&refund(&program, 1));
    assert_eq!(status, 200, "{text}");
    let (status, text) = read(&refund(&program, 2));
    assert!(status == 403 && text.contains("ask_refused"), "{text}");
    // The same again is refused unasked.
    let (status, text) = read(&refund(&program, 2));
    assert!(status == 403 && text.contains("ask_refused"), "{text}");
    assert_eq!(approver.asked().len(), 2);
    for (nth, amount) in [3, 4, 5].into_iter().enumerate() {
        let waits = refund(&program, amount);
        approver.wait_for(3 + nth);
        std::thread::sleep(Duration::from_millis(300));
        let all = waiting(&program);
        let id = all.iter().find(|one| one["state"] == "waiting").unwrap()["id"].clone();
        let (code, said) = program.gateway(&["allow", id.as_str().unwrap(), "--yes"]);
        assert_eq!(code, 0, "{said}");
        assert_eq!(read(&waits).0, 200);
    }
    assert_eq!(shop.sent().len(), 4);
    let mut ids = Vec::new();
    for (head, content) in approver.asked() {
        assert!(head.starts_with("POST /ask HTTP/1.1\r\n"), "{head}");
        let (id, time) = (
            field(&head, "webhook-id"),
            field(&head, "webhook-timestamp"),
        );
        let mut mac = Hmac::<Sha256>::new_from_slice(&STANDARD.decode(KEY).unwrap()).unwrap();
        mac.update(format!("{id}.{time}.{content}").as_bytes());
        let signature = STANDARD.encode(mac.finalize().into_bytes());
        assert_eq!(field(&head, "webhook-signature"), format!("v1,{signature}"));
        let question: Value = serde_json::from_str(&content).unwrap();
        assert_eq!(question["id"], id);
        assert_eq!(question["wanted"], "POST pay.test:80/v1/refunds");
        assert_eq!(
            question["ask"]["content_sha256"].as_str().unwrap().len(),
            64
        );
        ids.push(id);
    }
    // The record says who answered.
    let by = format!("webhook:{}", approver.address);
    let acts = program.records("act");
    for (id, name) in [(&ids[0], "policy.allow"), (&ids[1], "proposal.refuse")] {
        let is_it = |one: &&Value| {
            one["subject"]
                .as_str()
                .is_some_and(|text| text.contains(id))
        };
        let act = acts.iter().find(is_it).unwrap();
        assert_eq!(
            (&act["name"], &act["operator"]),
            (&name.into(), &by.clone().into()),
            "{act}"
        );
    }
    let all = program.json(&["grants", "proposed", "--all"]);
    let mut all = all["proposals"].as_array().unwrap().iter();
    assert_eq!(
        all.find(|one| one["id"] == ids[1]).unwrap()["ask"]["by"],
        by
    );
}

#[test]
fn an_answer_that_is_in_doubt_decides_nothing() {
    let (shop, other) = (Shop::open(), Approver::saying(|_, _| decides("allow")));
    let elsewhere = other.address;
    let approver = Approver::start(
        Arc::new(move |nth, question, stream| {
            let id = question["id"].as_str().unwrap();
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 20000000\r\n\r\n";
            let text = match nth {
                1 => format!(
                    "HTTP/1.1 307 See\r\nLocation: http://{elsewhere}/\r\nContent-Length: 0\r\n\r\n"
                ),
                2 => answer("500 Fails", r#"{"decision":"allow"}"#),
                3 => answer(
                    "200 OK",
                    &json!({ "decision": "allow", "id": "0".repeat(20) }).to_string(),
                ),
                4 => answer(
                    "200 OK",
                    &json!({ "decision": "allow", "more": true }).to_string(),
                ),
                // The beginning of an answer, and the end of its server.
                5 => "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"decision\":\"allow\"}"
                    .to_owned(),
                6 => format!("{head}{{\"decision\":\"allow\"}}{}", " ".repeat(10 << 20)),
                7 => return Ok(()),
                _ => answer(
                    "200 OK",
                    &json!({ "decision": "allow", "id": id }).to_string(),
                ),
            };
            stream.write_all(text.as_bytes())
        }),
        None,
    );
    let program = start(&shop, &approver.section());
    let all: Vec<_> = (1..=7)
        .map(|nth: usize| {
            let waits = refund(&program, u32::try_from(nth).unwrap());
            approver.wait_for(nth);
            waits
        })
        .collect();
    std::thread::sleep(Duration::from_secs(1));
    let waiting = waiting(&program);
    assert!(
        waiting.len() == 7 && waiting.iter().all(|one| one["state"] == "waiting"),
        "{waiting:?}"
    );
    assert!(shop.sent().is_empty() && other.asked().is_empty());
    // Each is left to a person; one answer is for one request.
    let id = waiting[0]["id"].as_str().unwrap();
    assert_eq!(program.gateway(&["allow", id, "--yes"]).0, 0);
    assert_eq!(read(&all[6]).0, 200);
    let (status, text) = read(&refund(&program, 8));
    assert_eq!(status, 200, "{text}");
    assert_eq!(shop.sent().len(), 2);
    let log = std::fs::read_to_string(program.path("log")).unwrap();
    for part in [
        "307",
        "500",
        "another question",
        "no short object",
        "webhook:127.0.0.1:",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert!(!log.contains(KEY), "{log}");
}

#[test]
fn an_answer_holds_for_the_request_that_was_asked_about_and_for_no_other() {
    let shop = Shop::open();
    let first = Arc::<Mutex<Option<String>>>::default();
    // Allows what it is asked first, whatever it is asked later.
    let approver = Approver::saying(move |_, question| {
        let mut first = first.lock().unwrap();
        let id = first.get_or_insert_with(|| question["id"].as_str().unwrap().to_owned());
        answer(
            "200 OK",
            &json!({ "decision": "allow", "id": id }).to_string(),
        )
    });
    let program = start(&shop, &approver.section());
    assert_eq!(read(&refund(&program, 1)).0, 200);
    // The same request is another question, which is asked once, though two wait for its answer.
    let waits = [refund(&program, 1), refund(&program, 1)];
    approver.wait_for(2);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!((approver.asked().len(), shop.sent().len()), (2, 1));
    // What is in force when it answers decides: a policy that forbids it.
    let forbids = "forbid(principal, action == Gateway::Action::\"POST\", resource);";
    let rules = std::fs::read_to_string(program.path("rules.cedar")).unwrap();
    std::fs::write(program.path("rules.cedar"), format!("{rules}{forbids}")).unwrap();
    program.reload();
    let all = waiting(&program);
    let id = all.iter().find(|one| one["state"] == "waiting").unwrap()["id"].clone();
    program.gateway(&["allow", id.as_str().unwrap(), "--yes"]);
    for stream in &waits {
        assert_eq!(read(stream).0, 403);
    }
    assert_eq!(shop.sent().len(), 1);
}

#[test]
fn a_webhook_allows_nothing_of_which_it_was_shown_a_part() {
    let shop = Shop::open();
    let approver = Approver::saying(|_, _| decides("allow"));
    let program = start(&shop, &approver.section());
    let whole = "x".repeat(60_000);
    assert_eq!(read(&refund_of(&program, "", "", &whole)).0, 200);
    let fields: String = (0..25).map(|n| format!("X-{n}: 1\r\n")).collect();
    let long = "y".repeat(300);
    let parts = [
        ("", "", &*"x".repeat(70_000)),
        ("", &*fields, "1"),
        ("", &*format!("X-Long: {long}\r\n"), "2"),
        (&*format!("?{long}&to=other"), "", "3"),
    ];
    for (nth, (query, fields, content)) in parts.into_iter().enumerate() {
        let waits = refund_of(&program, query, fields, content);
        approver.wait_for(2 + nth);
        let asked: Value = serde_json::from_str(&approver.asked()[1 + nth].1).unwrap();
        assert_eq!(asked["ask"]["cut"], true, "{asked}");
        wait_for("it is not told", || {
            let log = std::fs::read_to_string(program.path("log")).unwrap();
            log.matches("it was shown a part").count() == 1 + nth
        });
        assert_eq!(shop.sent().len(), 1 + nth);
        let id = asked["id"].as_str().unwrap();
        assert_eq!(program.gateway(&["allow", id, "--yes"]).0, 0);
        assert_eq!(read(&waits).0, 200);
    }
}

fn refund_of(program: &Program, query: &str, fields: &str, content: &str) -> TcpStream {
    send_with(program.proxy, &format!("{REFUND}{query}"), fields, content)
}

#[test]
fn a_question_that_nobody_waits_for_is_given_up_and_told_again_when_it_is_asked_again() {
    let (shop, ended) = (Shop::open(), Arc::<Mutex<bool>>::default());
    let ends = ended.clone();
    let approver = Approver::start(
        Arc::new(move |nth, _, stream| {
            let text = match nth {
                2 => answer("500 Fails", ""),
                1 => {
                    let _ = stream.read(&mut [0]);
                    *ends.lock().unwrap() = true;
                    return Ok(());
                }
                _ => decides("allow"),
            };
            stream.write_all(text.as_bytes())
        }),
        None,
    );
    let program = start(&shop, &approver.section());
    // A person answers before the webhook.
    let waits = refund(&program, 1);
    approver.wait_for(1);
    let id = field(&approver.asked()[0].0, "webhook-id");
    assert_eq!(program.gateway(&["allow", &id, "--yes"]).0, 0);
    assert_eq!(read(&waits).0, 200);
    wait_for("it is not given up", || *ended.lock().unwrap());
    // The webhook fails, until the request is over.
    assert_eq!(read(&refund(&program, 2)).0, 403);
    assert_eq!(read(&refund(&program, 2)).0, 200);
    let asked = approver.asked();
    let ids: Vec<_> = asked
        .iter()
        .map(|(head, _)| field(head, "webhook-id"))
        .collect();
    assert!(ids.len() == 3 && ids[1] == ids[2], "{ids:?}");
    assert!(waiting(&program).is_empty());
}

#[test]
fn a_webhook_that_answers_too_late_or_is_gone_leaves_the_request_refused() {
    let shop = Shop::open();
    let approver = Approver::start(
        Arc::new(|_, _, stream| {
            std::thread::sleep(Duration::from_secs(47));
            stream.write_all(decides("allow").as_bytes())
        }),
        None,
    );
    let gone = crate::program::free();
    let gone = approver
        .section()
        .replace(&approver.address.to_string(), &gone.to_string());
    let program = start(&shop, &format!("{}{gone}", approver.section()));
    let began = Instant::now();
    let (status, text) = read(&refund(&program, 1));
    assert!(
        status == 403 && text.contains("none has answered"),
        "{text}"
    );
    assert!(
        began.elapsed() >= Duration::from_secs(44),
        "{:?}",
        began.elapsed()
    );
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(waiting(&program)[0]["state"], "waiting");
    assert!(shop.sent().is_empty());
}

#[test]
fn a_webhook_answers_over_tls_if_its_certificate_is_trusted() {
    let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)
        .unwrap();
    let roots = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(roots.path(), own.cert.pem()).unwrap();
    for trusts in [true, false] {
        let shop = Shop::open();
        let approver = Approver::start(
            Arc::new(|_, _, stream| stream.write_all(decides("allow").as_bytes())),
            Some(Arc::new(config.clone())),
        );
        let mut section = approver.section().replace("http:", "https:");
        if trusts {
            section += &format!("roots = [\"{}\"]\n", roots.path().display());
        }
        let program = start(&shop, &section);
        let waits = refund(&program, 1);
        if trusts {
            assert_eq!(read(&waits).0, 200);
        } else {
            wait_for("it is not told", || {
                let log = std::fs::read_to_string(program.path("log")).unwrap();
                log.contains("this was no help")
            });
            assert!(approver.asked().is_empty() && shop.sent().is_empty());
        }
    }
}

/// A bus, which ends with its daemons.
struct Bus(Child);

impl Drop for Bus {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.0);
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.0.wait();
    }
}

#[test]
fn a_note_on_the_desktop_is_plain_text_and_names_the_command_that_answers() {
    let folder = tempfile::tempdir().unwrap();
    let (log, at) = (folder.path().join("log"), folder.path().join("bus"));
    // A bus of its own, with the notification daemon of python-dbusmock.
    let script = "echo $DBUS_SESSION_BUS_ADDRESS > bus.new && mv bus.new bus; \
        exec /usr/bin/python3 -m dbusmock --session -l log -t notification_daemon";
    let bus = Command::new("dbus-run-session")
        .args(["--", "sh", "-c", script])
        .current_dir(&folder)
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("dbus-run-session is needed: install dbus and python3-dbusmock");
    let _bus = Bus(bus);
    wait_for("there is no bus", || at.exists() && log.exists());
    std::thread::sleep(Duration::from_millis(500));
    let address = std::fs::read_to_string(&at).unwrap();
    let shop = Shop::open();
    let mut program = gateway(&shop, "[[notify]]\ndesktop = true\n");
    let rules = std::fs::read_to_string(program.path("rules.cedar")).unwrap();
    let rules = rules.replace("the customer?", "the <customer>?");
    std::fs::write(program.path("rules.cedar"), rules).unwrap();
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    let mut again = command(program.folder.path());
    again
        .args(["serve", "--config", "gateway.toml"])
        .env("DBUS_SESSION_BUS_ADDRESS", address.trim());
    program.follow(again.spawn().unwrap());
    let waits = refund(&program, 1);
    wait_for("nobody is told", || {
        std::fs::read_to_string(&log)
            .unwrap_or_default()
            .contains("Notify")
    });
    let told = std::fs::read_to_string(&log).unwrap();
    let id = waiting(&program)[0]["id"].as_str().unwrap().to_owned();
    for part in [
        "\"A request waits for you\"",
        "Refund the &lt;customer&gt;? agent-1 wants POST pay.test:80/v1/refunds",
        &format!("gateway allow {id}"),
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(program.gateway(&["allow", &id, "--yes"]).0, 0);
    assert_eq!(read(&waits).0, 200);
}

#[test]
fn the_terminal_of_a_command_shows_one_line_that_names_what_answers_in_another() {
    let (folder, shop) = (folder(0), Shop::open());
    let config = folder.path().join("gateway.toml");
    let rules = format!("{SHOP}{ASKS}").replace('\'', "");
    std::fs::write(folder.path().join("rules.cedar"), rules).unwrap();
    let text = format!(
        "[policy]\nfiles = [\"rules.cedar\"]\n\
         [[origin]]\nmatch = \"http://pay.test\"\nconnect = \"{}\"\ncleartext = true\n",
        shop.address
    );
    std::fs::write(&config, text).unwrap();
    let run = |flags: &str| {
        let line = format!(
            "stty cols 200; {} exec {flags} --config {} -- curl -sS -d x http://pay.test/v1/refunds",
            env!("CARGO_BIN_EXE_gateway"),
            config.display()
        );
        let like = user_command(folder.path(), 0);
        let mut script = Command::new("script");
        script
            .current_dir(like.get_current_dir().unwrap())
            .env_clear();
        let variables = like.get_envs();
        script.envs(variables.filter_map(|(name, value)| Some((name, value?))));
        let shown = folder.path().join("shown");
        script.args(["-qefc", &line]).arg(&shown);
        script.stdin(Stdio::null()).stdout(Stdio::null());
        (script.spawn().unwrap(), shown)
    };
    let (mut child, shown) = run("");
    let shows = || std::fs::read_to_string(&shown).unwrap_or_default();
    wait_for("no line", || shows().contains("exec wants"));
    let said = shows();
    let line = said.lines().find(|line| line.contains("exec wants"));
    let line = line.unwrap();
    let id = line.split("gateway allow ").nth(1).unwrap()[..20].to_owned();
    assert_eq!(
        line.replace("\u{1b}[2m", "").replace("\u{1b}[0m", ""),
        format!(
            "gateway  asks     gateway allow {id}: Refund the customer? exec wants POST pay.test:80/v1/refunds"
        )
    );
    let allowed = user_command(folder.path(), 0)
        .args(["allow", &id, "--yes"])
        .output()
        .unwrap();
    assert!(allowed.status.success(), "{allowed:?}");
    assert!(child.wait().unwrap().success(), "{}", shows());
    assert_eq!(shop.sent().len(), 1);
    // Where nothing is shown, nobody is there to answer.
    let (mut child, _) = run("--quiet");
    child.wait().unwrap();
    let said = shows();
    assert!(
        said.contains("policy_asks") && !said.contains("exec wants"),
        "{said}"
    );
}
