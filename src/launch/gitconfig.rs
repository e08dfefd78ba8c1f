//! Reads the user's name and address for commits from git's settings, and nothing else.
//!
//! The rest of the file may contain credentials (`credential.helper`, `url.*.insteadOf`,
//! `http.extraHeader`) and programs that git runs.

use std::path::Path;

/// The settings that pass, in the section `[user]`.
const KEYS: [&str; 2] = ["name", "email"];

/// Reads the user's own settings below `home`; `None` if they contain no identity.
pub fn identity(home: &Path) -> Option<String> {
    // In git's order: the later file overrides the earlier.
    let files = [".config/git/config", ".gitconfig"];
    let texts = files.map(|file| std::fs::read_to_string(home.join(file)).unwrap_or_default());
    identity_in(&texts.concat())
}

/// Returns a settings file with only the identity. Values are copied as written, so that they keep
/// their meaning.
fn identity_in(settings: &str) -> Option<String> {
    let mut found = String::new();
    let mut in_user = false;
    for line in settings.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            in_user = section.trim_end().eq_ignore_ascii_case("user]");
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| in_user) else {
            continue;
        };
        let key = key.trim();
        let known = KEYS.iter().find(|known| key.eq_ignore_ascii_case(known));
        // A value that continues on the next line is left out.
        if let Some(known) = known.filter(|_| !value.ends_with('\\')) {
            found.push_str(&format!("\t{known} = {}\n", value.trim()));
        }
    }
    (!found.is_empty()).then(|| format!("[user]\n{found}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_passes_and_nothing_else() {
        let settings = "[user]\n  name = Ann \"O'Neil\"\n\tEmail=ann@example.test\n  signingkey = SECRET\n\
            [credential]\n  helper = store\n  name = SECRET\n[url \"https://x:SECRET@h/\"]\n  insteadOf = https://h/\n\
            [user \"x\"]\n name = SECRET\n[http]\nextraHeader = SECRET\n[core]\n  fsmonitor = SECRET\n";
        assert_eq!(
            identity_in(settings).unwrap(),
            "[user]\n\tname = Ann \"O'Neil\"\n\temail = ann@example.test\n"
        );
    }

    #[test]
    fn settings_without_an_identity_give_no_file() {
        for settings in [
            "",
            "[core]\nname = x\n",
            "name = x\n",
            "[user]\nname = goes on \\\n[core]\n",
        ] {
            assert_eq!(identity_in(settings), None, "{settings:?}");
        }
    }
}
