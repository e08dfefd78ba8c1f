//! Pushes by git over smart HTTP: which refs the command list of `git-receive-pack` changes, and
//! how (gitprotocol-pack, "Reference Update Request"). The objects behind it are not read.

use std::collections::BTreeSet;

use http::Method;
use http::header::CONTENT_TYPE;

use super::asked::{Asked, Found, Unread, names};

/// The facts that it gives.
pub(super) const FACTS: [&str; 3] = ["git.refs", "git.folders", "git.options"];

pub(super) fn read(asked: &Asked<'_>) -> Result<Found, Unread> {
    let mut kinds = asked.fields.get_all(CONTENT_TYPE).iter();
    let is_push = kinds.next().is_some_and(|kind| kind == PUSH) && kinds.next().is_none();
    if *asked.method != Method::POST || !asked.path.ends_with("/git-receive-pack") || !is_push {
        return Err("it is no push");
    }
    let coded = &asked.content.coded;
    if !coded.is_empty() && !coded.starts_with(b"\x1f\x8b") {
        return Err("git undoes no coding but gzip");
    }
    let mut said = Said::default();
    let mut rest = &asked.content.bytes[..];
    while let Some(line) = line(&mut rest)? {
        said.command(line)?;
    }
    if said.has_options {
        while let Some(option) = line(&mut rest)? {
            said.options.insert(text(option)?.to_owned());
        }
    }
    if !rest.is_empty() && !rest.starts_with(b"PACK") {
        return Err(MALFORMED);
    }
    let [refs, folders, options] = FACTS;
    Ok(vec![
        (refs, names(said.refs)),
        (folders, names(said.folders)),
        (options, names(said.options)),
    ])
}

#[derive(Default)]
struct Said {
    refs: BTreeSet<String>,
    folders: BTreeSet<String>,
    options: BTreeSet<String>,
    has_options: bool,
    /// Whether a command has come. The first one has the client's capabilities behind it.
    has_begun: bool,
}

impl Said {
    fn command(&mut self, line: &[u8]) -> Result<(), Unread> {
        if let (Some(id), false) = (line.strip_prefix(b"shallow "), self.has_begun) {
            return is_id(text(id)?).then_some(()).ok_or(MALFORMED);
        }
        let mut parts = line.splitn(2, |byte| *byte == 0);
        let command = text(parts.next().unwrap_or_default())?;
        if let Some(capabilities) = parts.next() {
            let capabilities = text(capabilities)?;
            let mut all = capabilities.split(' ');
            // git takes those of any line.
            if self.has_begun {
                return Err(MALFORMED);
            }
            self.has_options = all.any(|one| one == "push-options");
        }
        self.has_begun = true;
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
            (false, true) => "delete",
            (true, true) => return Err(MALFORMED),
        };
        let folder = name.rsplit_once('/').map(|(folder, _)| folder);
        let folder = folder.filter(|_| name.starts_with("refs/"));
        if !is_id(old) || !is_id(new) || old.len() != new.len() {
            return Err(MALFORMED);
        }
        self.folders.insert(folder.ok_or(MALFORMED)?.to_owned());
        self.refs.insert(kind.to_owned());
        self.refs.insert(format!("{kind} {name}"));
        Ok(())
    }
}

/// Takes one line. `None` if it is the flush packet that ends a list.
fn line<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Unread> {
    let (digits, behind) = rest.split_first_chunk::<4>().ok_or(MALFORMED)?;
    // Another sign than a digit, such as `+`, is none in git.
    let digits = std::str::from_utf8(digits).map_err(|_| MALFORMED)?;
    let is_digit = |byte: u8| byte.is_ascii_hexdigit();
    let length = usize::from_str_radix(digits, 16).ok();
    let length = length.filter(|_| digits.bytes().all(is_digit));
    match length.ok_or(MALFORMED)? {
        0 => {
            *rest = behind;
            Ok(None)
        }
        length @ 5..=LONGEST if length <= rest.len() => {
            let (line, behind) = rest.split_at(length);
            *rest = behind;
            let line = &line[4..];
            Ok(Some(line.strip_suffix(b"\n").unwrap_or(line)))
        }
        _ => Err(MALFORMED),
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
/// git's `LARGE_PACKET_MAX`.
const LONGEST: usize = 65_520;
const MALFORMED: Unread = "its list of commands is not valid, or signed as a whole";

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::super::{Protocol, tests::asked};
    use super::*;
    use crate::fact::Plain;

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
        // git asks with nothing whether it is logged in.
        assert_eq!(push("0000").as_deref(), Ok("; ; "));
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
            command('0', '0', "refs/heads/main") + "0000",
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
            let content = Plain {
                bytes: "0000".into(),
                coded: coded.into(),
            };
            let fields = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(PUSH))]);
            let asked = Asked {
                method: &Method::POST,
                path: PATH,
                query: "",
                fields: &fields,
                upgrades: false,
                content: &content,
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
