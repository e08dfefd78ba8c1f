//! Chooses the user that runs the command, and turns the sandbox's first process into that user.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::process::{Gid, Uid};
use rustix::thread::CapabilitiesSecureBits;
use serde::{Deserialize, Serialize};

use super::failure::{AtStep, Failure, Step};

/// A user and a group, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// The user that runs the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandUser {
    /// The caller, an ordinary user.
    Own(User),
    /// A user other than the caller, who is root.
    Other(User),
}

impl CommandUser {
    /// Chooses the user. An ordinary user stays the same; root becomes `wanted`, or the user who
    /// called `sudo`, or `nobody`.
    ///
    /// # Errors
    /// A [`Step::Prepare`] failure if an ordinary user asks for another, or if the command would be
    /// root: root inside would own the host's files.
    pub fn choose(wanted: Option<User>, sudo: Option<User>) -> Result<Self, Failure> {
        let (uid, gid) = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        Self::choose_as(User { uid, gid }, wanted, sudo)
    }

    fn choose_as(caller: User, wanted: Option<User>, sudo: Option<User>) -> Result<Self, Failure> {
        if caller.uid != 0 {
            return match wanted {
                Some(user) if user != caller => Err(Failure::new(
                    Step::Prepare,
                    "only root can run the command as another user",
                )),
                _ => Ok(Self::Own(caller)),
            };
        }
        let sudo = sudo.filter(|user| user.uid != 0 && user.gid != 0);
        let user = wanted.or(sudo).unwrap_or(NOBODY);
        if user.uid == 0 || user.gid == 0 {
            return Err(Failure::new(
                Step::Prepare,
                "the command may not run as root; choose a user by `--user`",
            ));
        }
        Ok(Self::Other(user))
    }

    /// Returns the user that runs the command.
    pub fn user(self) -> User {
        match self {
            Self::Own(user) | Self::Other(user) => user,
        }
    }

    /// Whether the launcher, being root, must write the sandbox's user map from outside.
    pub fn is_other(self) -> bool {
        matches!(self, Self::Other(_))
    }

    /// Writes the identity map of process `pid` (`self` for the caller's own).
    ///
    /// # Errors
    /// A [`Step::UserMap`] failure.
    pub fn write_maps(self, pid: &str) -> Result<(), Failure> {
        let User { uid, gid } = self.user();
        for (file, line) in [
            ("setgroups", "deny".into()),
            ("uid_map", format!("{uid} {uid} 1")),
            ("gid_map", format!("{gid} {gid} 1")),
        ] {
            let path = format!("/proc/{pid}/{file}");
            std::fs::write(&path, line).at(Step::UserMap, path)?;
        }
        Ok(())
    }

    /// Turns the calling process, which has all capabilities in its user namespace, into this user,
    /// and keeps the capabilities.
    ///
    /// # Errors
    /// A [`Step::User`] failure.
    pub fn become_user(self) -> Result<(), Failure> {
        let Self::Other(User { uid, gid }) = self else {
            return Ok(());
        };
        rustix::thread::set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP)
            .at(Step::User, "keep capabilities")?;
        let (user, group) = (Uid::from_raw(uid), Gid::from_raw(gid));
        rustix::thread::set_thread_res_gid(group, group, group)
            .at(Step::User, format!("group {gid}"))?;
        rustix::thread::set_thread_res_uid(user, user, user)
            .at(Step::User, format!("user {uid}"))?;
        // The change made root the owner of /proc/self, which the coming mounts need to read.
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)
            .at(Step::User, "stay readable to oneself")
    }
}

impl User {
    /// Returns the user who called `sudo`, by its variables.
    pub fn who_called_sudo() -> Option<Self> {
        let number = |name| std::env::var(name).ok()?.parse().ok();
        Some(Self {
            uid: number("SUDO_UID")?,
            gid: number("SUDO_GID")?,
        })
    }

    /// Returns the user's home directory, from `/etc/passwd`.
    pub fn home(self) -> Option<PathBuf> {
        home_in(&std::fs::read("/etc/passwd").ok()?, self.uid)
    }
}

/// Why a text names no user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is neither a name in /etc/passwd nor `UID:GID`")]
pub struct UserUnknown(());

/// A name of /etc/passwd, or `UID:GID`.
impl std::str::FromStr for User {
    type Err = UserUnknown;

    fn from_str(text: &str) -> Result<Self, UserUnknown> {
        let number = |text: &str| text.parse::<u32>().ok();
        if let Some((uid, gid)) = text.split_once(':') {
            return number(uid)
                .zip(number(gid))
                .map(|(uid, gid)| Self { uid, gid })
                .ok_or(UserUnknown(()));
        }
        let passwd = std::fs::read("/etc/passwd").map_err(|_| UserUnknown(()))?;
        passwd
            .split(|byte| *byte == b'\n')
            .find_map(|line| {
                let fields: Vec<&str> = std::str::from_utf8(line).ok()?.split(':').collect();
                let named = fields.len() >= 4 && fields[0] == text;
                named.then(|| {
                    Some(Self {
                        uid: number(fields[2])?,
                        gid: number(fields[3])?,
                    })
                })?
            })
            .ok_or(UserUnknown(()))
    }
}

/// Returns the home directory of a user by name, from `/etc/passwd`.
pub fn home_of(name: &str) -> Option<PathBuf> {
    home_where(&std::fs::read("/etc/passwd").ok()?, (0, name))
}

fn home_in(passwd: &[u8], uid: u32) -> Option<PathBuf> {
    home_where(passwd, (2, &uid.to_string()))
}

/// Returns the home directory in the first line whose `nth` field is this.
fn home_where(passwd: &[u8], (nth, is): (usize, &str)) -> Option<PathBuf> {
    passwd.split(|b| *b == b'\n').find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|b| *b == b':').collect();
        (fields.len() >= 6 && fields[nth] == is.as_bytes())
            .then(|| PathBuf::from(OsStr::from_bytes(fields[5])))
    })
}

const NOBODY: User = User {
    uid: 65534,
    gid: 65534,
};

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: User = User { uid: 0, gid: 0 };
    const ANN: User = User {
        uid: 1000,
        gid: 1000,
    };
    const BOB: User = User {
        uid: 1001,
        gid: 1001,
    };

    #[test]
    fn an_ordinary_user_stays_themselves() {
        assert_eq!(
            CommandUser::choose_as(ANN, None, Some(BOB)).unwrap(),
            CommandUser::Own(ANN)
        );
        assert!(CommandUser::choose_as(ANN, Some(BOB), None).is_err());
    }

    #[test]
    fn root_becomes_the_wanted_user_or_who_called_sudo_or_nobody() {
        assert_eq!(
            CommandUser::choose_as(ROOT, Some(BOB), Some(ANN)).unwrap(),
            CommandUser::Other(BOB)
        );
        assert_eq!(
            CommandUser::choose_as(ROOT, None, Some(ANN)).unwrap(),
            CommandUser::Other(ANN)
        );
        assert_eq!(
            CommandUser::choose_as(ROOT, None, Some(ROOT)).unwrap(),
            CommandUser::Other(NOBODY)
        );
        assert_eq!(
            CommandUser::choose_as(ROOT, None, None).unwrap(),
            CommandUser::Other(NOBODY)
        );
    }

    #[test]
    fn the_command_is_never_root() {
        assert!(CommandUser::choose_as(ROOT, Some(ROOT), None).is_err());
        assert!(CommandUser::choose_as(ROOT, Some(User { uid: 1000, gid: 0 }), None).is_err());
    }

    #[test]
    fn a_home_is_found_by_user_number() {
        let passwd = b"root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(home_in(passwd, 1000), Some("/home/ann".into()));
        assert_eq!(home_in(passwd, 1), None);
        assert_eq!(home_where(passwd, (0, "ann")), Some("/home/ann".into()));
    }
}
