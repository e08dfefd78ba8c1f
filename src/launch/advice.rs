//! Advice for when a step fails: checks for the known reasons why systems refuse a sandbox.

use super::failure::{Failure, Step};

/// Returns the advice for a failure; `None` if nothing better than the error itself is known.
pub fn for_failure(failure: &Failure) -> Option<String> {
    match failure.step {
        Step::Namespaces | Step::UserMap | Step::Loopback | Step::Routes => Some(namespaces(failure)),
        Step::Rules => Some(
            "the kernel needs nf_tables with TPROXY or REDIRECT (modules nf_tables, nft_tproxy, nft_redir); on the host, \
             `sudo modprobe nft_tproxy nft_redir nft_reject_inet` loads them"
                .into(),
        ),
        Step::Proc => Some(
            "a container runtime has masked parts of /proc, so that no fresh one may be mounted; run that container with \
             `--security-opt systempaths=unmasked` (Docker, Podman) or `procMount: Unmasked` (Kubernetes), or use the \
             sidecar mode"
                .into(),
        ),
        Step::Mounts if failure.errno == libc::EPERM => Some(CONTAINER.into()),
        Step::Mounts if failure.errno == libc::ENOSYS => Some("the sandbox needs Linux 5.12 or newer".into()),
        Step::User => Some(
            "the target user must be mapped in this user namespace; choose one with `--user UID:GID`, or run as an \
             ordinary user"
                .into(),
        ),
        _ => None,
    }
}

fn namespaces(failure: &Failure) -> String {
    if sysctl("kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
        let program = std::env::current_exe().unwrap_or_else(|_| "/usr/bin/gateway".into());
        return APPARMOR.replace("PATH-OF-THIS-PROGRAM", &program.display().to_string());
    }
    if sysctl("kernel/unprivileged_userns_clone") == Some(0) {
        return "unprivileged user namespaces are switched off; `sudo sysctl kernel.unprivileged_userns_clone=1` allows \
                them, or run `sudo gateway exec` (the command will run as you, not as root)"
            .into();
    }
    if failure.errno == libc::ENOSPC || sysctl("user/max_user_namespaces") == Some(0) {
        return "no further user namespace is allowed; raise `user.max_user_namespaces` (inside a sandbox of gateway \
                itself: start that one with `--allow-userns`)"
            .into();
    }
    if std::fs::exists("/.dockerenv").unwrap_or(false)
        || std::fs::exists("/run/.containerenv").unwrap_or(false)
    {
        return CONTAINER.into();
    }
    "the kernel refuses namespaces to this user; `sudo gateway exec` may work (the command will run as you, not as root)"
        .into()
}

fn sysctl(name: &str) -> Option<u64> {
    std::fs::read_to_string(format!("/proc/sys/{name}"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

const CONTAINER: &str = "this looks like a container whose runtime forbids namespaces or mounts; run it with \
    `--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unmasked`, or use the \
    sidecar mode";

const APPARMOR: &str =
    "AppArmor lets only named programs make user namespaces (Ubuntu 23.10 and later). Allow this one:

  sudo tee /etc/apparmor.d/gateway <<'END'
  abi <abi/4.0>,
  include <tunables/global>
  profile gateway PATH-OF-THIS-PROGRAM flags=(unconfined) {
    userns,
    include if exists <local/gateway>
  }
  END
  sudo apparmor_parser -r /etc/apparmor.d/gateway

or run `sudo gateway exec` (the command will run as you, not as root)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exhausted_namespace_limit_is_named() {
        let failure = Failure {
            step: Step::Namespaces,
            errno: libc::ENOSPC,
            detail: "clone3".into(),
        };
        assert!(
            for_failure(&failure)
                .unwrap()
                .contains("max_user_namespaces")
        );
    }
}
