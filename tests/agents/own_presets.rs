//! Presets of one's own, by the shipped program, before an origin that takes their credential.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use crate::addresses::free;
use crate::desk::{Desk, until};

const SECRET: &str = "acme-zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0m";
const ACME: &str = r#"
name = "acme"
title = "Acme's shop"
mints = ["/v1/keys"]
[[read]]
as = "graphql"
hosts = ["api.acme.test"]
paths = ["/graphql"]
[[permission]]
name = "read"
leaves = ["POST /v1/search$"]
[[credential]]
name = "acme"
variables = ["ACME_TOKEN"]
hosts = ["api.acme.test"]
places = ["header:x-acme-token"]
"#;

/// Writes down what it is asked, with the credential.
const ORIGIN: &str = "
import http.server, ssl, sys
class Origin(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.rfile.read(int(self.headers.get('content-length', 0)))
        with open('asked', 'a') as asked:
            print(self.command, self.path, self.headers['x-acme-token'], file=asked, flush=True)
        self.send_response(200)
        self.send_header('content-length', '5')
        self.end_headers()
        self.wfile.write(b'hello')
    do_POST = do_GET
server = http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Origin)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('leaf.pem', 'key.pem')
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
";

struct Origin {
    address: SocketAddr,
    server: Child,
}

impl Origin {
    fn start(desk: &Desk) -> Self {
        desk.certify("api.acme.test");
        let address = free();
        let server = Command::new("python3")
            .args(["-c", ORIGIN, &address.port().to_string()])
            .current_dir(desk.folder.path())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until(|| TcpStream::connect(address).is_ok());
        Self { address, server }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Runs a script with these flags and the secret; returns what was said.
fn run(desk: &Desk, flags: &[&str], script: &str) -> String {
    let mut command = desk.command("one", &[flags, &["--", "sh", "-c", script]].concat());
    let output = command.env("ACME_TOKEN", SECRET).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(!said.contains(SECRET), "{said}");
    said
}

#[test]
fn a_preset_of_ones_own_lends_forbids_and_narrows_as_those_of_the_program() {
    let desk = Desk::bare();
    let origin = Origin::start(&desk);
    let asked = || fs::read_to_string(desk.at("asked")).unwrap_or_default();
    desk.write("home/acme.toml", ACME);
    let config = |presets: &str| {
        format!(
            "[policy]\npresets = [{presets}]\n\
             [[origin]]\nmatch = \"https://api.acme.test\"\nconnect = \"{}\"\nroots = [\"../origin.pem\"]\n",
            origin.address
        )
    };
    desk.write("home/some.toml", &config("\"./acme.toml:read\""));
    desk.write("home/none.toml", &config(""));
    let at = |name: &str| desk.at(name).display().to_string();
    let asks = "curl -sS -H \"X-Acme-Token: $ACME_TOKEN\" https://api.acme.test";
    let script = format!(
        "{asks}/v1/things; {asks}/v1/search -d q; {asks}/v1/things -d x; {asks}/graphql -d x; cat {} 2>&1",
        at("home/acme.toml")
    );
    let said = run(&desk, &["--config", &at("home/some.toml")], &script);
    let seen = asked();
    assert_eq!(said.matches("hello").count(), 2, "{said}\n{seen}");
    let rule = "policy `permissions/acme/read/api.acme.test`";
    for told in ["forbids this", "reads `graphql.operations`"] {
        assert!(said.contains(&format!("{rule} {told}")), "{said}");
    }
    assert_eq!(seen.matches(SECRET).count(), 2, "{seen}");
    assert!(!said.contains("Acme's shop"), "its file was shown: {said}");
    // By the flag, with a permission and without; `mints` is forbidden all the same.
    let none = at("home/none.toml");
    let script = format!("{asks}/v1/things -d x; {asks}/v1/keys -d x");
    let file = at("home/acme.toml");
    let said = run(&desk, &["--config", &none, "--preset", &file], &script);
    assert_eq!(said.matches("hello").count(), 1, "{said}");
    assert!(said.contains("mints/acme/api.acme.test"), "{said}");
    let said = run(
        &desk,
        &["--config", &none, "--preset", &format!("{file}:read")],
        &script,
    );
    assert_eq!(said.matches("hello").count(), 0, "{said}");
    assert!(!asked().contains("/v1/keys"));
}

/// Each key that docs/presets.md tells.
const WHOLE: &str = r#"
name = "whole"
title = "All"
allow = ["cdn.whole.test"]
mints = ["/keys", "GET /token$"]
mint_mutations = ["createKey"]
encoded_slash = ["api.whole.test"]
[[read]]
as = "graphql"
hosts = ["api.whole.test"]
paths = ["/graphql"]
[[block]]
kind = "upload"
hosts = ["drop.whole.test"]
media_types = ["application/x-drop"]
[[permission]]
name = "read"
leaves = ["POST /search$"]
mutations = ["touch"]
but = ["GET /logout"]
[[credential]]
name = "whole"
variables = ["WHOLE_TOKEN"]
hosts = ["api.whole.test"]
places = ["basic:password"]
shapes = ["whole_[20 alnum]"]
takes = ["query:token"]
cookies = ["lang"]
batches = ["/batch"]
basic_user = "x"
"#;

#[test]
fn a_preset_of_ones_own_has_each_key_of_its_page_and_a_change_is_in_force_by_itself() {
    let page = include_str!("../../docs/presets.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let keys = rows.flat_map(|row| row.split(" | ").next().unwrap().split('`'));
    let is_key = |key: &&str| key.starts_with(|first: char| first == '[' || first.is_lowercase());
    let keys: Vec<&str> = keys.filter(is_key).collect();
    assert!(keys.len() > 15, "{keys:?}");
    for key in keys {
        assert!(WHOLE.contains(key), "{key}");
    }
    let desk = Desk::bare();
    let origin = Origin::start(&desk);
    desk.write("home/whole.toml", WHOLE);
    desk.write("home/acme.toml", ACME);
    let config = format!(
        "[policy]\npresets = [\"./acme.toml:read\", \"./whole.toml\"]\n\
         [[origin]]\nmatch = \"https://api.acme.test\"\nconnect = \"{}\"\nroots = [\"../origin.pem\"]\n",
        origin.address
    );
    desk.write("home/some.toml", &config);
    let file = desk.at("home/some.toml").display().to_string();
    let asks = "curl -sS -o /dev/null -w '%{http_code}\\n' https://api.acme.test/v1/search -d q";
    let script = format!("{asks}; echo > up; until {asks} | grep 403; do sleep 0.1; done");
    let script = [
        "--config", &file, "--", "timeout", "30", "sh", "-c", &script,
    ];
    let mut command = desk.command("one", &script);
    command.env("ACME_TOKEN", SECRET).env("WHOLE_TOKEN", SECRET);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    until(|| desk.at("one/up").exists());
    let changed = ACME.replace("POST /v1/search$", "POST /v1/other$");
    desk.write("home/acme.toml", &changed);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.starts_with("200\n"),
        "{said}{told}"
    );
}

#[test]
fn a_preset_of_ones_own_is_checked_and_widens_none_of_the_programs() {
    let desk = Desk::bare();
    let refused = |text: &str, file: &str| {
        desk.write(&format!("home/{file}"), text);
        let path = desk.at("home").join(file).display().to_string();
        let said = run(&desk, &["--preset", &path], "echo ran");
        assert!(!said.contains("\nran"), "{said}");
        said
    };
    let with = |from: &str, to: &str| ACME.replace(from, to);
    let rows = [
        (
            "acme.toml",
            with("title =", "titel ="),
            "line 3: unknown field `titel`",
        ),
        (
            "acme.toml",
            with("places = [\"header", "places = [\"haeder"),
            "line 16: haeder:x-acme-token: a place is one of",
        ),
        (
            "other.toml",
            ACME.to_owned(),
            "its file is called `other.toml`",
        ),
        (
            "github.toml",
            with("\"acme\"\ntitle", "\"github\"\ntitle"),
            "has a preset `github`, which no file widens",
        ),
        (
            "acme.toml",
            with("ACME_TOKEN", "GITHUB_TOKEN"),
            "is a variable of the preset `github`",
        ),
        (
            "acme.toml",
            with(
                "[[credential]]\nname = \"acme\"",
                "[[credential]]\nname = \"npm\"",
            ),
            "have a credential `npm`",
        ),
        (
            "acme.toml",
            with(
                "hosts = [\"api.acme.test\"]\nplaces",
                "hosts = [\"*.acme.test\"]\nplaces",
            ),
            "goes to hosts by their names",
        ),
        (
            "acme.toml",
            with("hosts = [\"api.acme.test\"]\nplaces", "hosts = []\nplaces"),
            "needs `origins`",
        ),
        (
            "acme.toml",
            with("ACME_TOKEN", "LD_PRELOAD"),
            "steers a loader",
        ),
        (
            "acme.toml",
            with("mints =", "home = [\"git\"]\nmints ="),
            "`home` is for presets of the program",
        ),
        (
            "acme.toml",
            with("POST /v1/search$", "POST nothing"),
            "it has no path",
        ),
        (
            "acme.toml",
            with("\"/v1/keys\"", "\"/v1/keys/\""),
            "its path is ",
        ),
        (
            "acme.toml",
            with("\"/v1/keys\"", "\"/v2//keys\""),
            "its path is ",
        ),
        (
            "acme.toml",
            with("\"/v1/keys\"", "\"/%76/keys\""),
            "its path is ",
        ),
        (
            "acme.toml",
            with("\"/v1/keys\"", "\"get /v6/keys\""),
            "its method is one of",
        ),
        (
            "acme.toml",
            with("\"/v1/keys\"", "\"POST /v6/keys\""),
            "such a request is `GET`",
        ),
        (
            "acme.toml",
            with("\"/v1/keys\"", "\"/v8/keys?x\""),
            "its path is ",
        ),
        (
            "acme.toml",
            with("\"/v1/keys\"", "\"/v9/k*\""),
            "its path is ",
        ),
        (
            "acme.toml",
            with("\"/v1/keys\"", "\"/*\""),
            "names no segment",
        ),
        (
            "acme.toml",
            with("as = \"graphql\"", "as = \"mcp\"").replace("mints", "mint_mutations"),
            "no `[[read]]` is `graphql`",
        ),
        (
            "acme.toml",
            with("name = \"read\"", "name = \"a/b\""),
            "or its name is none",
        ),
        (
            "acme.toml",
            ACME.to_owned() + "[[permission]]\nname = \"read\"\n",
            "is there twice",
        ),
        (
            "acme.toml",
            with(
                "[[credential]]\nname = \"acme\"",
                "[[credential]]\nname = \"claude\"",
            ),
            "have a credential `claude`",
        ),
        (
            "Acme.toml",
            with("\"acme\"\ntitle", "\"Acme\"\ntitle"),
            "both are of lower case",
        ),
        (
            "acme.toml",
            with("mints =", &format!("allow = \"{SECRET}\"\nmints =")),
            "line 4: invalid type: string , expected a sequence",
        ),
    ];
    for (file, text, told) in rows {
        let said = refused(&text, file);
        assert!(said.contains(told), "{told}: {said}");
    }
    let said = run(&desk, &["--preset", "./nowhere.toml"], "echo ran");
    assert!(said.contains("nowhere.toml"), "{said}");
    desk.write("home/acme.toml", ACME);
    desk.write("two/acme.toml", &ACME.replace("shop", "other shop"));
    let both = ["home", "two"].map(|at| desk.at(at).join("acme.toml").display().to_string());
    let said = run(
        &desk,
        &["--preset", &both[0], "--preset", &both[1]],
        "echo ran",
    );
    assert!(said.contains("of your own both have `acme`"), "{said}");
    let again = desk.at("home/../home/acme.toml").display().to_string();
    let said = run(
        &desk,
        &["--preset", &both[0], "--preset", &again],
        "echo ran",
    );
    assert!(said.starts_with("ran\n"), "{said}");
    let beta = ACME.replace("name = \"acme\"\ntitle", "name = \"beta\"\ntitle");
    desk.write("home/beta.toml", &beta.replace("ACME_TOKEN", "BETA_TOKEN"));
    let beta = desk.at("home/beta.toml").display().to_string();
    let said = run(
        &desk,
        &["--preset", &both[0], "--preset", &beta],
        "echo ran",
    );
    assert!(said.contains("both have `acme`"), "{said}");
    // A project's file names none, and no name is known but by its file.
    desk.write(
        "one/gateway.toml",
        "[policy]\npresets = [\"./acme.toml\"]\n",
    );
    let mut allow = desk.gateway("one", &["project", "allow", "--yes"]);
    let output = allow.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("no further file may be named in a project's file"),
        "{said}"
    );
    let said = run(&desk, &["--no-project", "--preset", "acme"], "echo ran");
    assert!(said.contains("no preset has that name"), "{said}");
}
