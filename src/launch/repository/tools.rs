//! Which files of a project act without being asked: a tool reads them as soon as a person enters,
//! opens or commits there, and runs or obeys what they say.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::LazyLock;

use crate::list;

/// Returns the tool that reads a path of a project, or a folder around it. Within a folder of built
/// or installed programs none does: whoever runs one of them runs what the command made anyway.
pub fn reader(below: &Path) -> Option<&'static str> {
    let mut names = below.iter();
    names.find_map(|name| match BUILT.iter().any(|built| name == *built) {
        true => Some(None),
        false => reads(name).map(Some),
    })?
}

/// Returns the tool that reads this name. Case is ignored.
fn reads(name: &OsStr) -> Option<&'static str> {
    let name = name.as_bytes();
    let fits = |(pattern, _): &&(&str, &str)| match pattern.strip_prefix('*') {
        None => name.eq_ignore_ascii_case(pattern.as_bytes()),
        Some(end) => {
            let at = name.len().saturating_sub(end.len());
            name[at..].eq_ignore_ascii_case(end.as_bytes())
        }
    };
    static TOOLS: LazyLock<Vec<(&str, &str)>> =
        LazyLock::new(|| list::pairs(include_str!("../data/readers.txt")).collect());
    TOOLS.iter().find(fits).map(|(_, tool)| *tool)
}

const BUILT: [&str; 5] = ["node_modules", "target", ".venv", "venv", "__pycache__"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_in_any_case_and_place() {
        for (path, tool) in [
            (".EnvRC", Some("direnv")),
            ("x/a.cedar", Some("gateway")),
            (".vscode/a/b", Some("VS Code")),
            ("node_modules/a/.envrc", None),
            ("envrc", None),
        ] {
            assert_eq!(reader(Path::new(path)), tool, "{path}");
        }
    }
}
