//! Reads the settings of a repository that the command made, and keeps those that run nothing.

use std::collections::BTreeSet;

/// Returns the settings that may stay. It uses an allow list of keys, each with plain values.
///
/// Reads a subset of git's syntax, one `key = value` per line. Anything else is dropped.
pub fn harmless(text: &str) -> String {
    let remotes = remotes(text);
    let mut kept = String::new();
    let mut section = None;
    let mut written = None;
    for line in text.lines().map(str::trim) {
        if let Some(header) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            section = Section::parse(header);
        } else if line.starts_with('[') {
            section = None; // It has a key on the same line, or a comment after it.
        } else if let (Some(section), Some((key, value))) = (&section, line.split_once('=')) {
            let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
            let leads_elsewhere = section.name == "branch" && key == "remote";
            let is_remote = value == "." || remotes.contains(value);
            if !section.keeps(&key, value) || leads_elsewhere && !is_remote {
                continue;
            }
            if written.as_ref() != Some(section) {
                kept.push_str(&section.header());
                written = Some(section.clone());
            }
            kept.push_str(&format!("\t{key} = {value}\n"));
        }
    }
    kept
}

/// Returns the names of remotes with a URL that stays. Any other name is a path to git.
fn remotes(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut section = None;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            let header = line
                .strip_prefix('[')
                .and_then(|rest| rest.strip_suffix(']'));
            section = header.and_then(Section::parse);
        } else if let (Some(section), Some((key, value))) = (&section, line.split_once('='))
            && let (Some(name), "remote") = (&section.of, section.name.as_str())
            && key.trim().eq_ignore_ascii_case("url")
            && section.keeps("url", value.trim())
        {
            found.insert(name.clone());
        }
    }
    found
}

#[derive(Clone, PartialEq, Eq)]
struct Section {
    name: String,
    of: Option<String>,
}

impl Section {
    fn parse(header: &str) -> Option<Self> {
        let (name, of) = match header.split_once(' ') {
            None => (header, None),
            Some((name, of)) => (name, Some(of.trim().strip_prefix('"')?.strip_suffix('"')?)),
        };
        let plain_of = of.is_none_or(|of| is_plain(of) && !of.contains(']'));
        plain_of.then(|| Self {
            name: name.to_ascii_lowercase(),
            of: of.map(str::to_owned),
        })
    }

    fn header(&self) -> String {
        match &self.of {
            None => format!("[{}]\n", self.name),
            Some(of) => format!("[{} \"{of}\"]\n", self.name),
        }
    }

    fn keeps(&self, key: &str, value: &str) -> bool {
        let keys: &[&str] = match (self.name.as_str(), &self.of) {
            ("core", None) => CORE,
            ("extensions", None) => &["objectformat", "refstorage"],
            ("remote", Some(_)) => &["url", "fetch", "tagopt"],
            ("branch", Some(_)) => &["remote", "merge", "rebase"],
            _ => &[],
        };
        let fits = match key {
            "url" => is_plain_url(value),
            "objectformat" => matches!(value, "sha1" | "sha256"),
            "refstorage" => matches!(value, "files" | "reftable"),
            _ => true,
        };
        keys.contains(&key) && is_plain(value) && fits
    }
}

/// Whether a value contains nothing that ends a line, a value or a quotation, or starts an option.
fn is_plain(text: &str) -> bool {
    let steers = |c: char| c.is_control() || matches!(c, '"' | '\\' | '#' | ';');
    !text.is_empty() && !text.starts_with('-') && !text.contains(steers)
}

/// Whether this is a URL of git's own transports: not a helper (`ext::…`), not a local path.
fn is_plain_url(url: &str) -> bool {
    let rest = ["https://", "http://", "ssh://", "git://"]
        .iter()
        .find_map(|scheme| url.strip_prefix(scheme));
    let scp = || {
        let (host, path) = url.split_once(':')?;
        let is_scheme = path.starts_with("//") || path.starts_with(':');
        (!host.contains('/') && !is_scheme).then_some(url)
    };
    rest.or_else(scp)
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
        && !url.contains("::")
}

/// How content is stored: what is needed to read a repository at all.
const CORE: &[&str] = &[
    "repositoryformatversion",
    "filemode",
    "bare",
    "logallrefupdates",
    "ignorecase",
    "precomposeunicode",
    "symlinks",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_clone_needs_stays() {
        let text = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\
            [remote \"origin\"]\n\turl = https://example.com/a.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\
            [branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n";
        assert_eq!(harmless(text), text);
        assert!(
            harmless("[remote \"o\"]\nurl = git@example.com:a/b.git\n")
                .contains("git@example.com:a/b.git")
        );
    }

    #[test]
    fn nothing_that_runs_or_leads_elsewhere_stays() {
        for text in [
            "[core]\n\tfsmonitor = ./x\n",
            "[core]\n\thooksPath = x\n\tworktree = /\n\tpager = x\n\tsshCommand = x\n\teditor = x\n",
            "[core] fsmonitor = x\n",
            "[include]\n\tpath = x\n",
            "[includeIf \"gitdir:/\"]\n\tpath = x\n",
            "[alias]\n\tstatus = !x\n",
            "[filter \"x\"]\n\tclean = x\n",
            "[remote \"o\"]\n\turl = ext::sh -c x\n\tuploadpack = x\n\tvcs = x\n",
            "[remote \"o\"]\n\turl = -x\n\turl = /tmp/x\n\turl = ssh://-oProxyCommand=x\n",
            "[remote \"o\\\"\"]\n\turl = https://a/\n",
            "[core]\n\tfilemode = true \\\n\tfsmonitor = x\n",
            "[core]\n\tfilemode = \"true\n",
            "[extensions]\n\tworktreeConfig = true\n\tpartialClone = o\n",
            "[url \"ext::x\"]\n\tinsteadOf = https://\n",
            "[credential]\n\thelper = !x\n",
            "[gpg]\n\tprogram = x\n",
            "[remote.o]\n\turl = https://a/\n",
            "[branch \"m\"]\n\tremote = ../x\n",
            "[branch \"m\"]\n\tremote = x\n[remote \"x\"]\n\turl = ../y\n",
            "[remote \"x\"]\n\turl = https://a/#x\n[branch \"m\"]\n\tremote = x\n",
            "[remote \"x]y\"]\n\turl = https://a/\n[branch \"m\"]\n\tremote = x]y\n",
            "[remote \"o\"]\n\turl = file:///x\n",
            "[extensions]\n\trefstorage = files:///x\n\tobjectformat = x\n",
        ] {
            let kept = harmless(text);
            assert!(
                !kept.contains('x') && !kept.contains("url"),
                "{text:?} left {kept:?}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn what_stays_is_kept_as_it_is(text in "(\\[(core|remote \"[a-z\\\\\"]{0,3}\")\\]|\\s|=|bare|url|fsmonitor|https://a|\\\\|\"|;|#|x){0,24}") {
            let once = harmless(&text);
            proptest::prop_assert_eq!(harmless(&once), once.clone());
            proptest::prop_assert!(!once.contains("fsmonitor ="));
        }
    }
}
