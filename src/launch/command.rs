//! Finds the program that the command names, and executes it.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;

use super::paths::c_string;
use super::{environment, syscall};

/// Executes the command; returns only if that fails.
///
/// Looks up a name without a slash in the `PATH` of `variables`, as `execvp` does. Skips files that
/// may not be run, and reports that if it finds nothing else. Passes a file of unknown format to
/// the shell.
pub fn execute(arguments: &[OsString], variables: &[(OsString, OsString)]) -> io::Error {
    let (arguments, environment) = match prepared(arguments, variables) {
        Ok(prepared) => prepared,
        Err(error) => return error,
    };
    let Some(name) = arguments.first().filter(|name| !name.is_empty()) else {
        return io::Error::from_raw_os_error(libc::ENOENT);
    };
    if name.to_bytes().contains(&b'/') {
        return one(name, &arguments, &environment);
    }
    let path = environment::value(variables, "PATH").unwrap_or(OsStr::new(DEFAULT_PATH));
    let mut denied = None;
    for directory in std::env::split_paths(path) {
        let Ok(file) = c_string(
            directory
                .join(OsStr::from_bytes(name.to_bytes()))
                .as_os_str(),
        ) else {
            continue;
        };
        let error = one(&file, &arguments, &environment);
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => {}
            // A directory that this user may not enter contains nothing for them.
            Some(libc::EACCES) if !exists(&file) => {}
            Some(libc::EACCES) => denied = Some(error),
            _ => return error,
        }
    }
    denied.unwrap_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
}

/// Converts arguments and variables to the form that the kernel expects.
///
/// # Errors
/// Returns `EINVAL` if one contains a zero byte.
pub fn prepared(
    arguments: &[OsString],
    variables: &[(OsString, OsString)],
) -> io::Result<(Vec<CString>, Vec<CString>)> {
    let line = |(name, value): &(OsString, OsString)| {
        c_string(&[name.as_os_str(), value.as_os_str()].join(OsStr::new("=")))
    };
    let arguments: io::Result<_> = arguments.iter().map(|one| c_string(one)).collect();
    let variables: io::Result<_> = variables.iter().map(line).collect();
    Ok((arguments?, variables?))
}

fn one(file: &CString, arguments: &[CString], environment: &[CString]) -> io::Error {
    let error = syscall::execute(file, arguments, environment);
    if error.raw_os_error() != Some(libc::ENOEXEC) {
        return error;
    }
    let mut script = vec![c"sh".to_owned(), file.clone()];
    script.extend(arguments.iter().skip(1).cloned());
    syscall::execute(c"/bin/sh", &script, environment)
}

fn exists(file: &CString) -> bool {
    std::fs::symlink_metadata(OsStr::from_bytes(file.to_bytes())).is_ok()
}

const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
