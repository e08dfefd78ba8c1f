//! Pushes by git over smart HTTP: which refs the command list of `git-receive-pack` changes, and
//! how (gitprotocol-pack, "Reference Update Request"). The objects behind it are not read.

use std::collections::BTreeSet;

use bytes::Bytes;
use gateway_message::RequestHead;
use gateway_wire::Cursor;
use gateway_wire::pkt_line::{PktLine, PktMalformed};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method};

use super::parsed_request::{FactResults, MOST_NAMES, ParsedRequest, Unread, names};

/// The facts that it gives.
pub(super) const FACTS: [&str; 3] = ["git.refs", "git.folders", "git.options"];

/// Whether this is a push, in whose content the commands stand first.
pub(super) fn is_push(method: &Method, path: &str, fields: &HeaderMap) -> bool {
    let mut kinds = fields.get_all(CONTENT_TYPE).iter();
    let is_typed = kinds.next().is_some_and(|kind| kind == PUSH) && kinds.next().is_none();
    *method == Method::POST && path.ends_with("/git-receive-pack") && is_typed
}

pub(super) fn read(asked: &ParsedRequest<'_>) -> Result<FactResults, Unread> {
    if !is_push(asked.method, asked.path, asked.content.fields()) {
        return Err("it is no push");
    }
    let coded = &asked.content.content().coded;
    if !coded.is_empty() && !coded.starts_with(b"\x1f\x8b") {
        return Err("git undoes no coding but gzip");
    }
    let (mut refs, mut folders) = (BTreeSet::new(), BTreeSet::new());
    let mut options = BTreeSet::new();
    walk_all(&asked.content.content().bytes, |said| match said {
        Said::Command(kind, name, folder) => {
            folders.insert(folder.to_owned());
            refs.insert(kind.to_owned());
            refs.insert(format!("{kind} {name}"));
        }
        Said::Option(text) => drop(options.insert(text.to_owned())),
    })?;
    let found = [refs, folders, options].map(names);
    Ok(FACTS.into_iter().zip(found).collect())
}

/// A push whose client asks for a report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Push {
    /// The refs that it would change.
    pub refs: Vec<String>,
    /// Whether the report goes beside messages (`side-band-64k`).
    pub has_side_band: bool,
}

impl Push {
    /// Reads the beginning of a request. `None` if it is no push, is coded, or has no report to
    /// get.
    pub fn of(
        method: &Method,
        path: &str,
        fields: &HeaderMap,
        content: impl FnOnce() -> Bytes,
    ) -> Option<Self> {
        if !is_push(method, path, fields) {
            return None;
        }
        let (mut refs, mut is_short) = (Vec::new(), true);
        let lists = walk_all(&content(), |said| {
            if let Said::Command(_, name, _) = said {
                is_short &= refs.len() < MOST_NAMES && name.len() <= LONGEST_REPORTED;
                if is_short {
                    refs.push(name.to_owned());
                }
            }
        });
        let lists = lists.ok()?;
        let is_asked = lists.can("report-status") || lists.can("report-status-v2");
        (is_asked && is_short).then(|| Self {
            refs,
            has_side_band: lists.can("side-band-64k"),
        })
    }

    /// Returns the commands and options of a push, without the objects behind them, which their ids
    /// bind. `None` if it is no push, or has something else behind them.
    pub fn commands(head: &RequestHead, beginning: &Bytes) -> Option<Bytes> {
        if !is_push(&head.method, head.target.path(), &head.fields) {
            return None;
        }
        let (mut lists, mut cursor) = (Lists::default(), Cursor::new(beginning));
        let mut changes = false;
        let mut each = |line: Said<'_>| changes |= matches!(line, Said::Command(..));
        let is_over = lists.walk(&mut cursor, &mut each).ok()?;
        let rest = cursor.rest();
        let is_push = is_over && changes && rest.starts_with(OBJECTS);
        is_push.then(|| beginning.slice(..beginning.len() - rest.len()))
    }
}

/// Walks the lists of a push, of which all is here that is judged.
fn walk_all(content: &[u8], mut each: impl FnMut(Said<'_>)) -> Result<Lists, Unread> {
    let (mut lists, mut cursor) = (Lists::default(), Cursor::new(content));
    let is_over = lists.walk(&mut cursor, &mut each)?;
    let rest = cursor.rest();
    let is_whole = is_over && (rest.is_empty() || rest.starts_with(OBJECTS));
    is_whole.then_some(lists).ok_or(MALFORMED)
}

/// The beginning of a push that is judged: what comes before the objects. It is followed as it
/// comes.
#[derive(Default)]
pub(super) struct PushPrefix {
    lists: Lists,
    /// What came of a line that is not whole.
    pending: Vec<u8>,
}

impl PushPrefix {
    /// Takes more of the content. Whether nothing that follows is judged: it is the objects, or
    /// what came is not valid.
    pub(super) fn take(&mut self, piece: &[u8]) -> bool {
        self.pending.extend_from_slice(piece);
        let mut cursor = Cursor::new(&self.pending);
        let is_enough = match self.lists.walk(&mut cursor, &mut |_| {}) {
            Ok(is_over) => is_over && cursor.rest().len() >= OBJECTS.len(),
            Err(_) => true,
        };
        let walked = self.pending.len() - cursor.rest().len();
        self.pending.drain(..walked);
        is_enough
    }
}

/// What a line says.
enum Said<'a> {
    /// What is done to a ref, its name and its folder.
    Command(&'static str, &'a str, &'a str),
    /// A push option.
    Option(&'a str),
}

/// How far the lists were followed: that of the commands, and that of the push options if the
/// client says that it has one.
#[derive(Default)]
struct Lists {
    /// What the client can do. Its first command has it.
    capabilities: Option<String>,
    is_in_options: bool,
    is_over: bool,
}

impl Lists {
    /// Follows the lists as far as their lines are whole. Returns whether they are over.
    fn walk(
        &mut self,
        cursor: &mut Cursor<'_>,
        each: &mut impl FnMut(Said<'_>),
    ) -> Result<bool, Unread> {
        while !self.is_over {
            let line = cursor.whole(PktLine::read);
            match line.map_err(|PktMalformed| MALFORMED)? {
                None => return Ok(false),
                Some(PktLine::Flush) if self.can("push-options") && !self.is_in_options => {
                    self.is_in_options = true;
                }
                Some(PktLine::Flush) => self.is_over = true,
                Some(PktLine::Data(line)) => {
                    let line = line.strip_suffix(b"\n").unwrap_or(line);
                    self.line(line)?.into_iter().for_each(&mut *each);
                }
            }
        }
        Ok(true)
    }

    fn can(&self, what: &str) -> bool {
        let mut all = self.capabilities.iter().flat_map(|all| all.split(' '));
        all.any(|one| one == what)
    }

    fn line<'a>(&mut self, line: &'a [u8]) -> Result<Option<Said<'a>>, Unread> {
        if self.is_in_options {
            return text(line).map(|option| Some(Said::Option(option)));
        }
        if let (Some(id), None) = (line.strip_prefix(b"shallow "), &self.capabilities) {
            return is_id(text(id)?).then_some(None).ok_or(MALFORMED);
        }
        let mut parts = line.splitn(2, |byte| *byte == 0);
        let command = text(parts.next().unwrap_or_default())?;
        match (parts.next(), &self.capabilities) {
            // git takes those of any line.
            (Some(_), Some(_)) => return Err(MALFORMED),
            (said, None) => self.capabilities = Some(text(said.unwrap_or_default())?.to_owned()),
            (None, Some(_)) => {}
        }
        let mut words = command.split(' ');
        let (Some(old), Some(new), Some(name), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(MALFORMED);
        };
        let is_none = |id: &str| id.bytes().all(|digit| digit == b'0');
        let kind = match (is_none(old), is_none(new)) {
            (true, false) => "create",
            (false, false) => "update",
            // git deletes it also where the client knows no such ref.
            (_, true) => "delete",
        };
        let folder = name.rsplit_once('/').map(|(folder, _)| folder);
        let folder = folder.filter(|_| name.starts_with("refs/"));
        if !is_id(old) || !is_id(new) || old.len() != new.len() {
            return Err(MALFORMED);
        }
        let folder = folder.ok_or(MALFORMED)?;
        Ok(Some(Said::Command(kind, name, folder)))
    }
}

/// A text without control characters.
fn text(bytes: &[u8]) -> Result<&str, Unread> {
    let text = std::str::from_utf8(bytes).map_err(|_| MALFORMED)?;
    (!text.contains(char::is_control))
        .then_some(text)
        .ok_or(MALFORMED)
}

/// Whether it names an object, by SHA-1 or SHA-256.
fn is_id(text: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    [40, 64].contains(&text.len()) && text.bytes().all(is_digit)
}

const PUSH: &str = "application/x-git-receive-pack-request";
/// The longest name in a report.
const LONGEST_REPORTED: usize = 1_024;
/// What objects begin with.
const OBJECTS: &[u8] = b"PACK";
const MALFORMED: Unread = "its list of commands is not valid, or signed as a whole";

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::super::{Protocol, tests::asked};
    use super::*;
    use crate::fact::PlainContent;
    use crate::{Document, Questions};

    const PATH: &str = "/o/r.git/git-receive-pack";

    fn line(text: &str) -> String {
        format!("{:04x}{text}", text.len() + 4)
    }

    fn push(content: &str) -> Result<String, Unread> {
        asked(Protocol::Git, &Method::POST, PATH, PUSH, content)
    }

    /// A command with two digits in place of the objects, and what is behind it.
    fn command(old: char, new: char, behind: &str) -> String {
        let id = |digit: char| digit.to_string().repeat(40);
        line(&format!("{} {} {behind}", id(old), id(new)))
    }

    #[test]
    fn every_command_of_a_push_is_found() {
        let first = command(
            'a',
            'b',
            "refs/heads/main\0 report-status-v2 push-options agent=git/2.47",
        );
        let more = command('0', 'c', "refs/tags/v1\n") + &command('c', '0', "refs/heads/agent/x");
        let options = line("ci.skip") + "0000";
        assert_eq!(
            push(&format!("{first}{more}0000{options}PACK\0\0")).as_deref(),
            Ok(
                "create, create refs/tags/v1, delete, delete refs/heads/agent/x, update, update refs/heads/main; \
                refs/heads, refs/heads/agent, refs/tags; ci.skip"
            )
        );
        let plain = command('a', 'b', "refs/heads/main\0");
        let shallow = line(&format!("shallow {}", "d".repeat(40)));
        let expected = "update, update refs/heads/main; refs/heads; ";
        assert_eq!(
            push(&format!("{shallow}{plain}0000PACK")).as_deref(),
            Ok(expected)
        );
        // A ref that the client does not know of.
        let unknown = command('0', '0', "refs/heads/x\0") + "0000";
        let expected = "delete, delete refs/heads/x; refs/heads; ";
        assert_eq!(push(&unknown).as_deref(), Ok(expected));
        // git asks with nothing whether it is logged in.
        assert_eq!(push("0000").as_deref(), Ok("; ; "));
    }

    /// However it is cut: what is enough reads as the whole does, and holds none of the objects.
    #[test]
    fn the_beginning_of_a_push_says_what_the_whole_says() {
        let first = command('a', 'b', "refs/heads/main\0 push-options report-status");
        let plain = command('0', 'c', "refs/tags/v1\0 report-status");
        let shallow = line(&format!("shallow {}", "d".repeat(40)));
        let objects = format!("PACK{}", "x".repeat(300));
        let options = line("ci.skip") + "0000";
        for (content, is_cut) in [
            (format!("{first}0000{options}{objects}"), true),
            (format!("{shallow}{plain}0000{objects}"), true),
            (format!("{plain}0000x{objects}"), true),
            (format!("{first}0000{objects}"), true),
            (format!("{plain}{first}{objects}"), true),
            (format!("{plain}0000"), false),
            (format!("{plain}0000PAC"), false),
            (format!("{first}0000{options}"), false),
            (first.clone(), false),
            ("0000".to_owned(), false),
        ] {
            let whole = push(&content);
            for length in 1..content.len() {
                let (mut beginning, mut came) = (PushPrefix::default(), 0);
                let mut pieces = content.as_bytes().chunks(length);
                let is_enough = pieces.any(|piece| {
                    came += piece.len();
                    beginning.take(piece)
                });
                assert_eq!(is_enough, is_cut, "{content:?} by {length}");
                assert_eq!(push(&content[..came]), whole, "{content:?} by {length}");
                let is_short = came + objects.len() < content.len() + OBJECTS.len() + length;
                assert!(!is_cut || is_short, "{content:?} by {length}");
            }
        }
    }

    #[test]
    fn a_push_has_a_report_where_its_client_asks_for_one() {
        let fields = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(PUSH))]);
        let of =
            |content: String| Push::of(&Method::POST, PATH, &fields, || content.clone().into());
        let asked = command('a', 'b', "refs/heads/x\0 report-status-v2 side-band-64k");
        let more = command('0', 'c', "refs/tags/v1");
        let push = of(asked + &more + "0000PACK").unwrap();
        assert_eq!(push.refs, ["refs/heads/x", "refs/tags/v1"]);
        assert!(push.has_side_band);
        for none in [
            command('a', 'b', "refs/heads/x\0 side-band-64k") + "0000",
            command('a', 'b', "refs/heads/x\0 report-status"),
            command(
                'a',
                'b',
                &format!("refs/{}\0 report-status", "x".repeat(1_024)),
            ) + "0000",
        ] {
            assert_eq!(of(none), None);
        }
    }

    #[test]
    fn a_push_that_reads_in_two_ways_gives_nothing() {
        let good = command('a', 'b', "refs/heads/main\0 push-options");
        assert!(push(&format!("{good}00000000")).is_ok());
        for content in [
            String::new(),
            good.clone(),
            format!("{good}0000"),
            format!("{good}00000000x"),
            format!("{good}0001"),
            format!("{good}0004"),
            format!("+{}0000", &good[1..]),
            format!("fff0{}", &good[4..]),
            format!(
                "{good}{}00000000",
                command('a', 'b', "refs/heads/x\0 push-options")
            ),
            command('a', 'b', "refs/heads/main\0") + "0000" + &good,
            command('A', 'b', "refs/heads/main") + "0000",
            command('a', 'b', "refs/heads/a b") + "0000",
            command('a', 'b', "main") + "0000",
            command('a', 'b', "refs/heads/a\nx") + "0000",
            line("push-cert\0 push-options") + "00000000",
            line(&format!(
                "{} {} refs/heads/x",
                "a".repeat(40),
                "b".repeat(64)
            )) + "0000",
            good.clone() + &line(&format!("shallow {}", "d".repeat(40))) + "00000000",
        ] {
            assert!(push(&content).is_err(), "{content:?}");
        }
        let coded = |coded: &'static [u8]| {
            let content = PlainContent {
                bytes: "0000".into(),
                coded: coded.into(),
                ..PlainContent::default()
            };
            let fields = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(PUSH))]);
            let questions = Questions::default();
            let asked = ParsedRequest {
                host: "api.test",
                method: &Method::POST,
                path: PATH,
                upgrades: false,
                content: &Document::read(&fields, "", &content, &questions),
            };
            read(&asked).is_ok()
        };
        assert!(coded(b"\x1f\x8b\x08") && !coded(b"\x28\xb5\x2f\xfd"));
        let elsewhere = |path: &str, kind: &str| {
            asked(Protocol::Git, &Method::POST, path, kind, "0000").is_err()
        };
        assert!(elsewhere("/o/r.git/git-upload-pack", PUSH));
        assert!(elsewhere(PATH, "application/json"));
    }
}
