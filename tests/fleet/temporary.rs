//! Temporary credentials that a session was issued through one replica, used through another.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::replica::{Fleet, Replica};

const ID: &str = "ASIAR3ALR3ALR3ALR3AL";
const KEY: &str = "R3alTemp0raryK3yR3alTemp0raryK3yR3alTe40";
const TOKEN: &str = "FwoGZXIvYXdzR3alTemp0raryT0kenFwoGZXIvYXdzR3alTemp0raryT0kenFwoGZXIvYXdz";
const ASSUME: &str = "Action=AssumeRole&Version=2011-06-15&RoleSessionName=s\
                      &RoleArn=arn:aws:iam::123456789012:role/a";
const WHO: &str = "Action=GetCallerIdentity&Version=2011-06-15";

/// An issuer, and the heads of what came beside requests for credentials.
fn issuer() -> (SocketAddr, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, heads) = (
        listener.local_addr().unwrap(),
        Arc::<Mutex<String>>::default(),
    );
    let seen = heads.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let seen = seen.clone();
            std::thread::spawn(move || answer(stream, &seen));
        }
    });
    (address, heads)
}

fn answer(stream: TcpStream, seen: &Mutex<String>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        while reader.read_line(&mut head).ok()? > 2 {
            let last = head.lines().last()?.to_lowercase();
            if let Some(told) = last.strip_prefix("content-length: ") {
                length = told.parse().ok()?;
            }
        }
        let mut content = vec![0; length];
        reader.read_exact(&mut content).ok()?;
        let answer = match String::from_utf8_lossy(&content).contains("AssumeRole") {
            true => format!(
                "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>{ID}</AccessKeyId>\
                 <SecretAccessKey>{KEY}</SecretAccessKey><SessionToken>{TOKEN}</SessionToken>\
                 <Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"
            ),
            false => {
                seen.lock().unwrap().push_str(&head);
                "<GetCallerIdentityResponse/>".to_owned()
            }
        };
        let length = answer.len();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/xml\r\ncontent-length: {length}");
        write!(reader.get_mut(), "{head}\r\n\r\n{answer}").ok()?;
    }
}

/// Asks the issuer through a replica, signed with a key that the client holds.
fn ask(
    by: (&Replica, &str),
    [id, key, token]: [&str; 3],
    (to, content): (SocketAddr, &str),
) -> String {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "20", "-x"])
        .arg(format!("http://gateway:{}@{}", by.1, by.0.door))
        .args(["--aws-sigv4", "aws:amz:us-east-1:sts", "--user"])
        .arg(format!("{id}:{key}"))
        .args(["-d", content, &format!("http://{to}/")]);
    if !token.is_empty() {
        curl.args(["-H", &format!("x-amz-security-token: {token}")]);
    }
    let output = curl.stdin(Stdio::null()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn element(text: &str, name: &str) -> String {
    let (_, rest) = text
        .split_once(&format!("<{name}>"))
        .unwrap_or_else(|| panic!("{text}"));
    rest.split('<').next().unwrap().to_owned()
}

#[test]
fn credentials_that_one_replica_was_issued_sign_through_another_at_once() {
    let (address, heads) = issuer();
    let keys = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("id", "AKIAR3ALR3ALR3ALR3AL"),
        ("secret", "LastingK3yLastingK3yLastingK3yLastingK40"),
    ] {
        fs::write(keys.path().join(name), text).unwrap();
        let own = fs::Permissions::from_mode(0o600);
        fs::set_permissions(keys.path().join(name), own).unwrap();
    }
    let at = keys.path().display();
    let mut fleet = Fleet::new();
    fleet.further = format!(
        "[[origin]]\nmatch = \"http://{address}\"\naddresses = [\"127.0.0.0/8\"]\ncleartext = true\n\
         [[credential]]\nname = \"aws\"\nsign = \"sigv4\"\n\
         credential_actions = [\"sts:AssumeRole\"]\nenv = [\"AWS_ACCESS_KEY_ID\", \"AWS_SECRET_ACCESS_KEY\"]\n\
         parts = {{ access_key = \"file:{at}/id\", secret_key = \"file:{at}/secret\" }}\n\
         endpoints = [{{ origin = \"http://{address}\", service = \"sts\", region = \"us-east-1\" }}]\n"
    );
    let [a, b] = fleet.start(["a", "b"]);
    let made = a.json(&["session", "create", "agent", "--ends", "8h"]);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    let held = |name: &str| made["variables"][name].as_str().unwrap().to_owned();
    let token = text("token");
    let (id, key) = (held("AWS_ACCESS_KEY_ID"), held("AWS_SECRET_ACCESS_KEY"));
    // B has the session before it learns what A is issued.
    ask((&b, &token), [&id, &key, ""], (address, WHO));
    for _ in 0..5 {
        let issued = ask((&a, &token), [&id, &key, ""], (address, ASSUME));
        let all = ["AccessKeyId", "SecretAccessKey", "SessionToken"];
        let [id, key, session] = all.map(|name| element(&issued, name));
        assert!(!issued.contains(KEY) && !issued.contains(TOKEN), "{issued}");
        heads.lock().unwrap().clear();
        let said = ask((&b, &token), [&id, &key, &session], (address, WHO));
        assert!(said.contains("GetCallerIdentityResponse"), "{said}");
        let heads = heads.lock().unwrap();
        assert!(heads.contains(ID) && heads.contains(TOKEN), "{heads}");
    }
}
