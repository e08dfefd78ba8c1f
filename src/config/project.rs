//! The project's own file, `./gateway.toml`, and the keys that it may hold.
//!
//! A person allows the file after reading its text, and nothing else. So it may name nothing that
//! its text does not show: no file that others write, no program, no path of the host, no other
//! address or root for an origin. Those belong in a file that a person names: `--config FILE`.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::DeValue;

use super::document::Document;
use super::{Config, ConfigError, keys, state};

impl Config {
    /// Reads and checks the text of a project's file.
    ///
    /// # Errors
    /// Returns a [`ConfigError`] with every mistake of the text, and every key that such a file may
    /// not hold.
    pub fn of_project(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let mut config = Self::checked(text, path, |document, (section, value)| {
            refuse(document, section.get_ref(), value);
        })?;
        config.file = None;
        config.project = Some(path.to_owned());
        Ok(config)
    }
}

/// Refuses the keys of a section that a project's file may not hold.
fn refuse(document: &Document<'_>, section: &str, value: &Spanned<DeValue<'_>>) {
    let items = value.get_ref().as_array().into_iter().flatten();
    items.for_each(|item| refuse(document, section, item));
    for (key, value) in value.get_ref().as_table().into_iter().flatten() {
        let word = key.get_ref().as_ref();
        let known = keys::of(section).find(|known| known.name == word);
        match (known, word) {
            (Some(known), _) if !known.project => refused(document, &key.span(), section, word),
            (Some(_), "from") => reference(document, value),
            (Some(_), "parts") => {
                let parts = value.get_ref().as_table().into_iter().flatten();
                parts.for_each(|(_, part)| reference(document, part));
            }
            (Some(_), "sign") => file(document, value),
            (Some(_), "presets") => {
                let presets = value.get_ref().as_array().into_iter().flatten();
                presets.for_each(|preset| file(document, preset));
            }
            _ => {}
        }
    }
}

fn refused(document: &Document<'_>, span: &Range<usize>, section: &str, key: &str) {
    let remedy = match (section, key) {
        ("policy", "files") => "write the policies into the file: `rules` of [policy]",
        ("sandbox", _) => "give the flag when you start, or name the file: `--config FILE`",
        _ => "remove it, or name the file: `--config FILE`",
    };
    let section = keys::heading(section);
    mistake!(document, span, "`{key}` of {section} may not stand in a project's file";
        "you allow such a file by its text, which does not show all that this key does";
        "{remedy}");
}

/// Refuses a reference to anything but a variable or the key ring.
fn reference(document: &Document<'_>, value: &Spanned<DeValue<'_>>) {
    let text = value.get_ref().as_str().unwrap_or_default();
    if !text.starts_with("env:") && !text.starts_with("keyring:") {
        mistake!(document, &value.span(), "such a reference may not stand in a project's file";
            "a program that it runs, or a file that it reads, is not shown by its text";
            "write `env:NAME` or `keyring:SERVICE/NAME`, or name the file: `--config FILE`");
    } else if text.strip_prefix("keyring:gateway/") == Some(state::KEY_IN_RING) {
        mistake!(document, &value.span(), "no such secret may be lent";
            "it is the key that seals the state of the gateway"; "name a secret of your own");
    }
}

/// Refuses a signing recipe or a preset that is another file.
fn file(document: &Document<'_>, value: &Spanned<DeValue<'_>>) {
    let text = value.get_ref().as_str().unwrap_or_default();
    if text.contains(['/', '.', '~']) {
        mistake!(document, &value.span(), "no further file may be named in a project's file";
            "you allow a project's file by its text, and not the files that it names";
            "use what is built in, or name the file: `--config FILE`");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, Vec<String>> {
        Config::of_project(text, Path::new("/srv/app/gateway.toml")).map_err(|refused| {
            let all = refused.mistakes.iter();
            all.map(|one| format!("{}: {}", one.position, one.what))
                .collect()
        })
    }

    #[test]
    fn what_its_text_shows_may_stand_in_a_projects_file() {
        let config = read(
            "[policy]\nallow = [\"a.test\"]\npresets = [\"npm\"]\nlogins = [\"gh\"]\nrules = '''\npermit(principal, action, resource);\n'''\n\
             [[credential]]\nname = \"T\"\nfrom = \"env:T\"\norigins = [\"https://a.test\"]\n\
             [sandbox]\nhide = [\"secrets\"]\ndns = \"strict\"\n",
        )
        .unwrap();
        assert!(config.policy.decide() && config.file.is_none());
        assert_eq!((config.allow.len(), config.presets.len()), (1, 1));
        assert_eq!(config.named_logins, ["gh"]);
        assert_eq!(config.sandbox.hide, [Path::new("/srv/app/secrets")]);
        assert_eq!(
            config.project.as_deref(),
            Some(Path::new("/srv/app/gateway.toml"))
        );
    }

    #[test]
    fn what_its_text_does_not_show_is_refused_with_its_place() {
        let credential = "[[credential]]\nname = \"T\"\norigins = [\"https://a.test\"]\n";
        for (text, place) in [
            ("[audit]\npath = \"x.jsonl\"\n".to_owned(), "2:1"),
            ("[control]\npath = \"x\"\n".to_owned(), "2:1"),
            ("[state]\npath = \"x\"\n".to_owned(), "2:1"),
            ("[resolver]\nservers = [\"9.9.9.9\"]\n".to_owned(), "2:1"),
            ("[sandbox]\nwrite = [\"/srv/other\"]\n".to_owned(), "2:1"),
            ("[sandbox]\nsee = [\"/srv/other\"]\n".to_owned(), "2:1"),
            ("[sandbox]\npass_env = [\"PROD_KEY\"]\n".to_owned(), "2:1"),
            ("[sandbox]\nallow_userns = true\n".to_owned(), "2:1"),
            (
                "[[origin]]\nmatch = \"https://a.test\"\nconnect = \"127.0.0.1:1\"\n".to_owned(),
                "3:1",
            ),
            (
                "[[origin]]\nmatch = \"https://a.test\"\naddresses = [\"10.0.0.0/8\"]\n".to_owned(),
                "3:1",
            ),
            (
                "[[origin]]\nmatch = \"http://a.test\"\ncleartext = true\n".to_owned(),
                "3:1",
            ),
            (
                format!("{credential}from = {{ command = [\"/bin/cat\"] }}\n"),
                "4:8",
            ),
            (format!("{credential}from = \"file:/srv/key\"\n"), "4:8"),
            (
                format!("{credential}from = \"keyring:gateway/gateway-state\"\n"),
                "4:8",
            ),
            (format!("{credential}allow_short = true\n"), "4:1"),
        ] {
            let refused = read(&text).expect_err(&text);
            let at = format!("/srv/app/gateway.toml:{place}:");
            assert!(
                refused.iter().any(|one| one.starts_with(&at)),
                "{refused:?}"
            );
        }
    }
}
