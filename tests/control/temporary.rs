//! Temporary credentials that AWS STS issues to a session: they outlive the process as it does.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::program::{Program, command};

const ID: &str = "ASIAR3ALR3ALR3ALR3AL";
const KEY: &str = "R3alTemp0raryK3yR3alTemp0raryK3yR3alTe40";
const TOKEN: &str = "FwoGZXIvYXdzR3alTemp0raryT0kenFwoGZXIvYXdzR3alTemp0raryT0kenFwoGZXIvYXdz";
/// The variables that hold the phantoms of what asks for them.
const HELD: [&str; 2] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];

/// An issuer of temporary credentials, and the heads of other requests that came.
fn issuer() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = heads.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let seen = seen.clone();
            std::thread::spawn(move || answer(stream, &seen));
        }
    });
    (address, heads)
}

fn answer(stream: TcpStream, seen: &Mutex<Vec<String>>) -> Option<()> {
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
                seen.lock().unwrap().push(head);
                "<GetCallerIdentityResponse/>".to_owned()
            }
        };
        let length = answer.len();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/xml\r\ncontent-length: {length}");
        write!(reader.get_mut(), "{head}\r\n\r\n{answer}").ok()?;
    }
}

/// Asks the issuer, signed with a key that the client holds. Returns the status and the content.
fn ask(
    program: &Program,
    [id, key, token]: [&str; 3],
    (to, content): (SocketAddr, &str),
) -> (String, String) {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "20", "-w", "\n%{http_code}", "-x"])
        .arg(format!("http://{}", program.proxy))
        .args(["--aws-sigv4", "aws:amz:us-east-1:sts", "--user"])
        .arg(format!("{id}:{key}"))
        .args(["-d", content, &format!("http://{to}/")]);
    if !token.is_empty() {
        curl.args(["-H", &format!("x-amz-security-token: {token}")]);
    }
    let output = curl.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let (content, status) = said.rsplit_once('\n').unwrap();
    (status.to_owned(), content.to_owned())
}

fn phantoms(program: &Program) -> [String; 2] {
    let text = fs::read_to_string(program.path("phantoms.env")).unwrap();
    HELD.map(|name| {
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.split_once(name)).unwrap();
        line.1.trim_matches(['=', '\'', '"']).to_owned()
    })
}

fn element(text: &str, name: &str) -> String {
    let (_, rest) = text.split_once(&format!("<{name}>")).unwrap();
    rest.split('<').next().unwrap().to_owned()
}

fn holds(folder: &std::path::Path, text: &str) -> bool {
    fs::read_dir(folder).unwrap().flatten().any(|entry| {
        let path = entry.path();
        let is_in = |bytes: Vec<u8>| memchr::memmem::find(&bytes, text.as_bytes()).is_some();
        match path.is_dir() {
            true => holds(&path, text),
            false => fs::read(&path).is_ok_and(is_in),
        }
    })
}

const ASSUME: &str = "Action=AssumeRole&Version=2011-06-15&RoleSessionName=s&RoleArn=arn:aws:iam::123456789012:role/a";
const WHO: &str = "Action=GetCallerIdentity&Version=2011-06-15";

#[test]
fn temporary_credentials_outlive_a_restart_as_the_session_does_and_fall_with_their_key() {
    let (address, heads) = issuer();
    let mut program = Program::start(&format!(
        "places = [\"header:authorization:Bearer\"]\n\
         [[origin]]\nmatch = \"http://{address}\"\naddresses = [\"127.0.0.0/8\"]\ncleartext = true\n"
    ));
    let private = |name: &str, text: &str| {
        fs::write(program.path(name), text).unwrap();
        fs::set_permissions(program.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    };
    private("id", "AKIAR3ALR3ALR3ALR3AL");
    private("secret", "LastingK3yLastingK3yLastingK3yLastingK40");
    private("other", "AKIAOTHEROTHEROTHER2");
    fs::write(
        program.path("rules.cedar"),
        "permit(principal, action, resource);",
    )
    .unwrap();
    program.edit(|config| {
        format!(
            "{config}\n[[credential]]\nname = \"aws\"\nsign = \"sigv4\"\n\
             credential_actions = [\"sts:AssumeRole\"]\nenv = [\"AWS_ACCESS_KEY_ID\", \"AWS_SECRET_ACCESS_KEY\"]\n\
             parts = {{ access_key = \"file:id\", secret_key = \"file:secret\" }}\n\
             endpoints = [{{ origin = \"http://{address}\", service = \"sts\", region = \"us-east-1\" }}]\n"
        )
    });
    program.restart_after_a_crash();
    let [id, key] = phantoms(&program);
    let (status, content) = ask(&program, [&id, &key, ""], (address, ASSUME));
    assert_eq!(status, "200", "{content}");
    let names = ["AccessKeyId", "SecretAccessKey", "SessionToken"];
    let ours = names.map(|name| element(&content, name));
    let ours = [&*ours[0], &*ours[1], &*ours[2]];
    let signed = |program: &Program| {
        heads.lock().unwrap().clear();
        let (status, content) = ask(program, ours, (address, WHO));
        let seen = heads.lock().unwrap().concat();
        let is_real = seen.contains(ID) && seen.contains(TOKEN);
        assert_eq!(is_real, status == "200", "{content} {seen}");
        (status, content)
    };
    assert_eq!(signed(&program).0, "200");
    for _ in 0..2 {
        program.restart_after_a_crash();
        let (status, content) = signed(&program);
        assert_eq!(status, "200", "{content}");
    }
    for real in [ID, KEY, TOKEN] {
        assert!(!holds(&program.path(""), real), "{real}");
    }
    // They fall with the key that asked for them, before a restart and after it.
    let (code, said) = program.gateway(&["revoke", "aws"]);
    assert_eq!(code, 0, "{said}");
    for _ in 0..2 {
        let (status, content) = signed(&program);
        assert!(
            status == "403" && content.contains("credential_revoked"),
            "{content}"
        );
        program.restart_after_a_crash();
    }
    let (code, said) = program.gateway(&["restore", "aws"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(signed(&program).0, "200");
    // Another key is none that asked for them, and a session that begins anew has none.
    let before = program.edit(|config| config.replace("file:id", "file:other"));
    program.restart_after_a_crash();
    let (status, content) = signed(&program);
    assert!(status == "403", "{content}");
    program.edit(|_| before.clone());
    program.restart_after_a_crash();
    assert_eq!(signed(&program).0, "200");
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    let mut anew = command(&program.path(""));
    anew.args(["serve", "--config", "gateway.toml", "--fresh"]);
    program.follow(anew.stderr(Stdio::null()).spawn().unwrap());
    let (status, content) = signed(&program);
    assert!(status == "403", "{content}");
}
