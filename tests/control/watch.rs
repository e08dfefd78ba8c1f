//! `gateway watch` in a real terminal: its keys change real traffic, and the terminal is restored.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::program::{Program, command};
use crate::sandbox::wait_for;

/// The program in a terminal of 24 rows and 100 columns.
pub struct Terminal {
    child: Child,
    keys: std::process::ChildStdin,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    pub fn watch(program: &Program, variable: (&str, &str)) -> Self {
        Self::of(&command(program.folder.path()), variable)
    }

    /// The view, with the variables and the folder of a command.
    pub fn of(like: &Command, variable: (&str, &str)) -> Self {
        let line = format!(
            "stty rows {ROWS} cols {COLUMNS}; {} watch; echo; stty -a | grep -c ' icanon'; echo ended=$?",
            env!("CARGO_BIN_EXE_gateway")
        );

        let mut script = Command::new("script");
        script
            .current_dir(like.get_current_dir().unwrap())
            .env_clear();
        let variables = like.get_envs();
        script.envs(variables.filter_map(|(name, value)| Some((name, value?))));
        let mut child = script
            .env("TERM", "xterm")
            .env(variable.0, variable.1)
            .args(["-qec", &line, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let shown = Arc::<Mutex<Vec<u8>>>::default();
        let (mut output, read) = (child.stdout.take().unwrap(), shown.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                read.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        let keys = child.stdin.take().unwrap();
        Self { child, keys, shown }
    }

    fn all(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    /// The screen as a person sees it, row by row.
    fn screen(&self) -> String {
        let rows = rows(&self.all());
        let rows: Vec<String> = rows.into_iter().map(|(row, _)| row).collect();
        rows.join("\n")
    }

    pub fn shows(&self, text: &str) {
        let shows = || self.screen().contains(text);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !shows() {
            let late = std::time::Instant::now() >= until;
            assert!(!late, "no `{text}` in:\n{}", self.screen());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the terminal is as before, and returns all that was shown.
    pub fn restored(&mut self) -> String {
        wait_for("it goes on", || self.all().contains("ended=0"));
        self.child.wait().unwrap();
        let all = self.all();
        let (_, after) = all.rsplit_once("\u{1b}[?1049l").expect("another screen");
        // Not `-icanon`: lines are the kernel's again.
        assert!(after.contains("\r\n1\r\n"), "{after}");
        all
    }
}

/// The rows of a terminal that got these bytes, each with the first colour in it.
fn rows(bytes: &str) -> Vec<(String, String)> {
    let mut cells = vec![vec![(' ', String::new()); COLUMNS]; ROWS];
    let ((mut row, mut column), mut colour) = ((0, 0), String::new());
    let mut letters = bytes.chars();
    while let Some(letter) = letters.next() {
        if letter == '\u{1b}' {
            let rest = letters.as_str().strip_prefix('[').unwrap_or_default();
            let end = rest.find(|c: char| c.is_ascii_alphabetic() || c == '~');
            let (numbers, kind) = rest.split_at(end.unwrap_or(0));
            let mut parts = numbers.split(';').map(|part| part.parse().unwrap_or(1));
            match kind.chars().next() {
                Some('H') => {
                    let place = (parts.next(), parts.next());
                    (row, column) = (place.0.unwrap_or(1) - 1, place.1.unwrap_or(1) - 1);
                }
                Some('J') => cells = vec![vec![(' ', String::new()); COLUMNS]; ROWS],
                Some('m') => match numbers.strip_prefix("38;5;") {
                    Some(number) => colour = number.split(';').take(1).collect(),
                    None => colour.clear(),
                },
                _ => {}
            }
            letters = letters.as_str()[end.map_or(0, |end| end + 2)..].chars();
        } else if !letter.is_control() {
            if let Some(cell) = cells.get_mut(row).and_then(|row| row.get_mut(column)) {
                *cell = (letter, colour.clone());
            }
            column += 1;
        }
    }
    let row = |cells: Vec<(char, String)>| {
        let text: String = cells.iter().map(|(letter, _)| letter).collect();
        let colour = cells.into_iter().map(|(_, colour)| colour);
        let colour = colour.filter(|colour| !colour.is_empty()).take(1).collect();
        (text.trim_end().to_owned(), colour)
    };
    cells.into_iter().map(row).collect()
}

const ROWS: usize = 24;
const COLUMNS: usize = 100;

#[test]
fn keys_allow_pause_resume_and_end_and_the_traffic_obeys() {
    let program = Program::start("");
    let mut terminal = Terminal::watch(&program, ("NO_COLOR", "1"));
    terminal.shows("agent-1          active");
    terminal.press("a");
    terminal.shows("choose a refusal or a proposal first");
    assert_eq!(program.ask("http://later.test/").0, 403);
    terminal.shows("GET later.test:80/  policy_default_deny");
    // The first refusal is chosen by itself.
    terminal.shows("> ");
    terminal.press("a");
    terminal.shows("resource == Gateway::Host::\"later.test\"");
    // Anything but yes changes nothing.
    terminal.press("n");
    terminal.shows("nothing was changed");
    assert_eq!(program.ask("http://later.test/").0, 403);
    terminal.press("a");
    terminal.shows("[y/N]");
    terminal.press("y");
    terminal.shows("applied as generation 2");
    assert_eq!(program.ask("http://later.test/").0, 200);
    terminal.press("p");
    terminal.shows("session `agent-1` is paused");
    assert_eq!(program.ask("http://later.test/").0, 503);
    terminal.press("r");
    terminal.shows("session `agent-1` is active");
    assert_eq!(program.ask("http://later.test/").0, 200);
    terminal.press("e");
    terminal.shows("for good? [y/N]");
    terminal.press("y");
    terminal.shows("session `agent-1` is ended");
    assert_eq!(program.ask("http://later.test/").0, 403);
    terminal.press("q");
    let all = terminal.restored();
    assert!(
        !all.contains("\u{1b}[38;5;1"),
        "colour in spite of NO_COLOR"
    );
}

#[test]
fn a_line_has_details_a_filter_hides_others_and_a_page_tells_the_keys() {
    let program = Program::start("");
    program.ask("http://stream.test/");
    program.ask("http://older.test/old");
    program.ask("http://newest.test/new");
    // The past is shown, and its newest refusal is chosen.
    let mut terminal = Terminal::watch(&program, ("LANG", "C"));
    terminal.shows("newest.test:80/new  policy_default_deny");
    assert!(terminal.screen().contains("1 session, 0 proposals wait"));
    for (keys, shown, hidden) in [
        ("\r", "request  GET http://newest.test:80/new", "older.test"),
        ("", "No policy permits the request.", "older.test"),
        // The next line's.
        ("j", "GET http://older.test:80/old", "newest.test"),
        ("\r", "> ", "verdict  "),
        ("/NEWEST", "/NEWEST_", "older.test"),
        ("\r", "/NEWEST", "older.test"),
        ("\u{1b}", "older.test", "/NEWEST"),
        (
            "?",
            "the rule that would allow what was refused",
            "older.test",
        ),
        ("?", "older.test", "the rule that"),
        ("/stream.test\r", "stream.test", "older.test"),
        (
            "ja",
            "there is nothing to allow: this was not refused",
            "[y/N]",
        ),
    ] {
        terminal.press(keys);
        terminal.shows(shown);
        wait_for(hidden, || !terminal.screen().contains(hidden));
    }
    // Without job control nothing stops it.
    terminal.press("\u{1a}");
    wait_for("the screen is taken again", || {
        terminal.all().matches("\u{1b}[?1049h").count() == 2
    });
    terminal.shows("stream.test");
    terminal.press("q");
    terminal.restored();
}

#[test]
fn the_terminal_is_restored_when_the_gateway_ends_and_its_end_is_told() {
    let mut program = Program::start("");
    let mut terminal = Terminal::watch(&program, ("LANG", "C"));
    terminal.shows("agent-1");
    let hostile = "http://evil.test/%1b%5b2J%0agateway:%20granted";
    program.ask(hostile);
    terminal.shows("evil.test");
    assert!(!terminal.screen().contains("\ngateway: granted"));
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    let all = terminal.restored();
    assert!(all.contains("has ended"), "{all}");
}

#[test]
fn in_a_pipe_it_prints_plain_lines() {
    let mut program = Program::start("");
    program.ask("http://evil.test/");
    let mut watch = command(program.folder.path());
    let watch = watch.args(["watch", "agent-1"]).stdout(Stdio::piped());
    let mut child = watch.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    while !said.contains("evil.test") {
        assert_ne!(lines.read_line(&mut said).unwrap(), 0, "{said}");
    }
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    // It ends with the gateway.
    lines.read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(said.contains("refused   GET evil.test:80/"), "{said}");
    assert!(!said.contains('\u{1b}'), "{said}");
}

/// Writes `docs/watch.svg` with `GATEWAY_WRITE=1`, and compares it otherwise.
#[test]
fn the_picture_in_the_docs_is_what_the_program_shows() {
    let program = Program::start("");
    let mut terminal = Terminal::watch(&program, ("LANG", "C"));
    terminal.shows("agent-1");
    program.ask("http://later.test/v1/models");
    terminal.shows("later.test:80/v1/models");
    program.ask("http://forbidden.test/admin");
    terminal.shows("forbidden.test:80/admin");
    terminal.shows("> ");
    // The load of the moment is none.
    terminal.shows("0 connections, 0 requests");
    let picture = svg(&rows(&terminal.all()), program.child.id());
    terminal.press("q");
    terminal.restored();
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/watch.svg");
    if std::env::var_os("GATEWAY_WRITE").is_some() {
        std::fs::write(&path, &picture).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert_eq!(kept, picture, "write it anew with GATEWAY_WRITE=1");
}

/// The rows of a screen as a picture. What differs from run to run is fixed.
fn svg(rows: &[(String, String)], pid: u32) -> String {
    let mut text = String::new();
    for (n, (row, colour)) in rows.iter().enumerate() {
        let colour = match &**colour {
            "1" => "#e66",
            "2" => "#6c6",
            "3" => "#db5",
            "8" => "#888",
            _ => "#ddd",
        };
        let mut plain = row.replace(&format!("serve-{pid}"), "serve-4711");
        let time = plain
            .get(2..10)
            .filter(|time| time.bytes().filter(|byte| *byte == b':').count() == 2);
        if let Some(time) = time.map(str::to_owned) {
            plain = plain.replacen(&time, "12:00:00", 1);
        }
        let plain = plain
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        if !plain.trim().is_empty() {
            let y = 22 + n * 18;
            text += &format!(
                "<text x=\"12\" y=\"{y}\" fill=\"{colour}\" xml:space=\"preserve\">{}</text>\n",
                plain.trim_end()
            );
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 880 450\" font-family=\"monospace\" \
         font-size=\"14\">\n<rect width=\"880\" height=\"450\" fill=\"#181818\"/>\n{text}</svg>\n"
    )
}
