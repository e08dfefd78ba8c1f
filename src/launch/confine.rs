//! Takes away capabilities, the ways to regain them, system calls, and signals to other processes.

use std::io;

use landlock::{CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreated, Scope};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

use super::failure::{AtStep, Failure, Step};
use super::{filter, syscall};

/// Gives up every capability of this process, and every way to regain one.
///
/// The bounding set and `no_new_privs` both matter: without them a program file with capabilities
/// would regain `CAP_NET_ADMIN` over the sandbox's network.
///
/// # Errors
/// Returns the call that the kernel refused.
pub fn drop_capabilities() -> Result<(), Failure> {
    for capability in 0..64 {
        match syscall::drop_bounding(capability) {
            Ok(()) => {}
            // Past the last one that this kernel knows.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            Err(error) => {
                return Err(error).at(Step::Capabilities, format!("bounding set, {capability}"));
            }
        }
    }
    // EINVAL: a kernel without ambient capabilities has none to clear.
    match rustix::thread::clear_ambient_capability_set() {
        Ok(()) | Err(rustix::io::Errno::INVAL) => {}
        Err(error) => return Err(error).at(Step::Capabilities, "ambient set"),
    }
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED;
    rustix::thread::set_capabilities_secure_bits(bits).at(Step::Capabilities, "secure bits")?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).at(Step::Capabilities, "capset")?;
    rustix::thread::set_no_new_privs(true).at(Step::Capabilities, "no_new_privs")
}

/// Installs the system call filter; see [`filter`].
///
/// # Errors
/// Returns the error of `seccomp`.
pub fn filter_system_calls(allow_userns: bool) -> Result<(), Failure> {
    syscall::install_filter(&mut filter::program(allow_userns)).at(Step::Filter, "install")
}

/// Keeps signals and abstract Unix sockets inside, if the kernel has Landlock scopes (Linux 6.12).
///
/// The PID and network namespaces do the same; this is a second barrier.
///
/// # Errors
/// Returns Landlock's error, if it has scopes.
pub fn scope_by_landlock() -> Result<(), Failure> {
    let domain = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .scope(Scope::AbstractUnixSocket | Scope::Signal)
        .and_then(Ruleset::create)
        .and_then(RulesetCreated::restrict_self);
    domain
        .map(drop)
        .map_err(io::Error::other)
        .at(Step::Landlock, "scopes")
}
