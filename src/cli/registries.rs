//! The package registries that the user's own files name: the command is told of them.

use super::failure::Failure;
use super::resolve::ResolvedConfig;
use crate::launch::{Launch, MountPlan};

/// Tells the command's package managers of the registries, without credentials.
pub(super) fn tell(resolved: &ResolvedConfig, launch: &mut Launch) {
    for (_, mapping) in &resolved.registries {
        launch.variables.extend(mapping.variables.clone());
        launch.files.extend(mapping.files.clone());
    }
}

/// Refuses files that the command may change: they name the hosts to which credentials are lent.
pub(super) fn refuse_of_the_workload(
    resolved: &ResolvedConfig,
    plan: &MountPlan,
) -> Result<(), Failure> {
    for (preset, mapping) in &resolved.registries {
        for path in &mapping.read {
            let real = path.canonicalize().unwrap_or_else(|_| path.clone());
            if plan.in_project(&real) || plan.in_project(path) {
                let what = format!(
                    "preset `{}` does not read `{}`",
                    preset.name,
                    path.display()
                );
                return Err(Failure::usage(what)
                    .because("it lies in a folder that the command may change, and names the hosts of the preset")
                    .next("keep the file outside of the project, or name hosts: `--allow HOST`"));
            }
        }
    }
    Ok(())
}

/// What the summary says of files that no package manager in the sandbox is told of.
pub(super) fn untold(resolved: &ResolvedConfig) -> Option<String> {
    let untold = resolved.registries.iter().filter_map(|(preset, mapping)| {
        let path = mapping.untold.as_ref()?.display();
        Some(format!(
            "{path} names registries of its own, and the command is not told of them: the public \
             ones of `--preset {}` are not allowed; `--see {path}` shows it the file, `--allow HOST` \
             allows a host",
            preset.name
        ))
    });
    let untold: Vec<String> = untold.collect();
    (!untold.is_empty()).then(|| untold.join("; "))
}
