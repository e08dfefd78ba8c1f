//! Records the folders that a command may write to, before it starts.

use std::path::{Path, PathBuf};

use crate::app::Failure;
use crate::files::{self, BadFile};
use crate::launch::{LAUNCHER_FAILED, MountPlan};

/// Records the folders that a command may write to and that outlive it: projects, and the `kept`
/// folders of its home. From then on nothing in them is run or obeyed unless a person allowed it.
///
/// # Errors
/// Returns a [`Failure`] if the record cannot be stored out of the command's reach. The command may
/// not start then.
pub(crate) fn note(plan: &MountPlan, kept: impl Iterator<Item = PathBuf>) -> Result<(), Failure> {
    let mut folders = plan.projects.clone();
    folders.extend(kept);
    files::note_writable(&folders).map_err(|unfit| {
        Failure::of(
            "what the command may write to cannot be written down",
            &unfit,
        )
        .next(match unfit {
            BadFile::Kept { .. } => unfit.remedy(Path::new("FILE")),
            _ => String::from(ELSEWHERE),
        })
        .coded(LAUNCHER_FAILED)
    })
}

const ELSEWHERE: &str = "let `XDG_STATE_HOME` or `HOME` name a folder of yours that you, and not the \
                         command, can write to";
