//! The lines of earlier summaries in a project, so that unchanged lines are printed once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::app::write::write;
use crate::config::state;
use crate::files;
use crate::names::hex;

/// The lines that were printed in a project, each by its hash.
#[derive(Default)]
pub(crate) struct PrintedLines {
    file: Option<PathBuf>,
    lines: BTreeSet<String>,
    is_changed: bool,
}

impl PrintedLines {
    /// Reads them. Without a project, or if they cannot be read, the set is empty.
    pub fn of(project: Option<&Path>) -> Self {
        let kept = project.and_then(|project| state::granted_for(project, None));
        let file = kept.map(|kept| kept.with_file_name("said.json"));
        let text = file.as_deref().and_then(|file| files::read(file, 1).ok());
        let lines: Option<BTreeSet<String>> =
            text.and_then(|text| serde_json::from_str(&text).ok());
        let lines = lines.filter(|lines| lines.len() <= MOST_LINES);
        Self {
            file,
            lines: lines.unwrap_or_default(),
            is_changed: false,
        }
    }

    /// Notes a printed line. Returns whether it is new.
    pub fn is_new(&mut self, name: &str, text: &str) -> bool {
        let digest = Sha256::digest(format!("{name}\0{text}"));
        let is_new = self.lines.insert(hex(&digest[..8]));
        self.is_changed |= is_new;
        is_new
    }

    /// Stores the lines. If this fails, they are printed again.
    pub fn keep(&self) {
        let Some(file) = self.file.as_deref().filter(|_| self.is_changed) else {
            return;
        };
        let folder = file.parent().map(files::private_folder);
        if folder.is_some_and(|made| made.is_ok())
            && let Ok(text) = serde_json::to_vec(&self.lines)
        {
            let _ = write(file, &text, 0o600);
        }
    }
}

/// With more lines, all are printed again.
const MOST_LINES: usize = 1024;
