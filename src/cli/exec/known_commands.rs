//! The limits of well-known commands in a sandbox, reported before they fail.

use std::ffi::OsStr;
use std::path::Path;

use crate::launch::Launch;

/// Returns a note for the user if the command is known to fail in a sandbox without saying why.
pub(crate) fn limits(launch: &Launch) -> Option<String> {
    let command = launch.arguments.first().map(Path::new)?;
    let name = command.file_name().and_then(OsStr::to_str)?;
    let why = match name {
        "docker" | "docker-compose" | "nerdctl" => {
            "its daemon runs outside and obeys anybody as root, so its socket is not shown; podman works without one: \
             `--allow-userns -- unshare -r podman --storage-driver vfs …`"
        }
        "podman" | "buildah" if launch.allow_userns => {
            "one user id is mapped here, so it works as its own root alone: `-- unshare -r podman --storage-driver vfs …`"
        }
        "podman" | "buildah" => {
            "it makes user namespaces: `--allow-userns -- unshare -r podman --storage-driver vfs …`"
        }
        "codex" if !launch.allow_userns => {
            "its own sandbox makes user namespaces, without which each of its commands fails: \
             `--allow-userns`, or `codex --sandbox danger-full-access` leaves it to this one"
        }
        "ssh" | "scp" | "sftp" | "rsync" | "mosh" => "SSH does not pass, only HTTP and TLS do",
        "ping" | "traceroute" | "dig" | "nslookup" => {
            "names have addresses of the sandbox alone, and ICMP does not pass: try `curl`"
        }
        "sudo" | "su" | "doas" => "no program becomes another user here",
        _ => return None,
    };
    Some(format!("{name}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_cannot_work_is_told_by_its_name() {
        let of = |command: &str, allow_userns| {
            limits(&Launch {
                arguments: vec![command.into()],
                allow_userns,
                ..Launch::default()
            })
        };
        assert!(
            of("/usr/bin/docker", false)
                .unwrap()
                .contains("its socket is not shown")
        );
        assert!(of("podman", false).unwrap().contains("--allow-userns"));
        assert!(!of("podman", true).unwrap().contains("--allow-userns"));
        assert_eq!(of("curl", false), None);
    }
}
