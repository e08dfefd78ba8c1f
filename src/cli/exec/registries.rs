//! The package registries that the user's own files name, passed on to the command.

use crate::app::Failure;
use crate::app::settings::resolve::ResolvedConfig;
use crate::files;
use crate::launch::Launch;

/// Configures the command's package managers for the registries, without credentials.
pub(crate) fn tell(resolved: &ResolvedConfig, launch: &mut Launch) {
    for (_, mapping) in &resolved.registries {
        launch.variables.extend(mapping.variables.clone());
        launch.files.extend(mapping.files.clone());
    }
}

/// Refuses files that a command could have written, since they name the hosts that credentials are
/// lent to.
pub(crate) fn refuse_of_a_command(resolved: &ResolvedConfig) -> Result<(), Failure> {
    for (preset, mapping) in &resolved.registries {
        for path in &mapping.read {
            files::check_written(path).map_err(|why| {
                let place = path.display();
                Failure::usage(format!("preset `{}` does not read `{place}`", preset.name))
                    .because(why.to_string())
                    .next("keep the file outside of the project, or name hosts: `--allow HOST`")
            })?;
        }
    }
    Ok(())
}

/// Returns the summary's lines about files that cannot be passed on to the sandbox.
pub(crate) fn untold(resolved: &ResolvedConfig) -> Option<String> {
    let untold = resolved.registries.iter().filter_map(|(preset, mapping)| {
        let path = mapping.untold.as_ref()?.display();
        Some(format!(
            "{path} names registries of its own, and the command is not told of them: the public \
             ones of `--preset {}` are not allowed; `--see {path}` shows it the file, `--allow HOST` \
             allows a host",
            preset.name
        ))
    });
    untold.reduce(|all, one| all + "; " + &one)
}
