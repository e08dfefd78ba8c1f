//! The files of a project that act by themselves: a tool reads them as soon as a person enters,
//! opens or commits there, and runs or obeys their content.

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::LazyLock;

use crate::list;

/// The meaning of a folder of a project for tools.
#[derive(Clone, Copy)]
pub enum FolderRole {
    /// A tool reads a name in it, if it knows the name.
    Project,
    /// This tool reads every name in it.
    Tool(&'static str),
    /// It holds built or installed programs: a person who runs one of these runs the command's work
    /// anyway.
    Built,
}

impl FolderRole {
    /// Returns the tool that reads a name in this folder.
    pub fn reader(self, name: &CStr) -> Option<&'static str> {
        match self {
            Self::Project => reads(name.to_bytes()),
            Self::Tool(tool) => Some(tool),
            Self::Built => None,
        }
    }

    /// Returns the meaning of a folder of this name in it.
    pub fn inner(self, name: &CStr) -> Self {
        match self {
            Self::Project if BUILT.contains(&name) => Self::Built,
            Self::Project => reads(name.to_bytes()).map_or(Self::Project, Self::Tool),
            within => within,
        }
    }
}

/// Returns the tool that reads this name. Case is ignored.
fn reads(name: &[u8]) -> Option<&'static str> {
    static TOOLS: LazyLock<HashMap<Vec<u8>, &str>> = LazyLock::new(|| {
        let tools = list::pairs(include_str!("../data/readers.txt"));
        let lower = |name: &str| name.to_ascii_lowercase().into_bytes();
        tools.map(|(name, tool)| (lower(name), tool)).collect()
    });
    let name = name.to_ascii_lowercase();
    let ending = || {
        let dot = name.iter().rposition(|byte| *byte == b'.')?;
        TOOLS.get(&[b"*", &name[dot..]].concat()).copied()
    };
    TOOLS.get(&name).copied().or_else(ending)
}

const BUILT: [&CStr; 5] = [
    c"node_modules",
    c"target",
    c".venv",
    c"venv",
    c"__pycache__",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_in_any_case_and_place() {
        for (folder, name, tool) in [
            (c"", c".EnvRC", Some("direnv")),
            (c"x", c"a.cedar", Some("gateway")),
            (c".vscode", c"a", Some("VS Code")),
            (c"node_modules", c".envrc", None),
            (c"", c"envrc", None),
        ] {
            let within = FolderRole::Project.inner(folder);
            assert_eq!(within.reader(name), tool, "{name:?}");
        }
    }
}
