//! Probes of Unix sockets: agents, buses and daemons of the host.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram, UnixStream};

use super::files::walk;
use super::probe::{Probe, Verdict, all_refused};
use super::targets::Targets;

pub const PROBES: &[Probe] = &[
    Probe {
        name: "abstract-sockets",
        tries: "connects to an abstract Unix socket of the host",
        run: abstract_socket,
    },
    Probe {
        name: "path-sockets",
        tries: "connects to agents, buses and daemons by their socket files",
        run: path_sockets,
    },
];

fn abstract_socket(targets: &Targets) -> Verdict {
    let Some(name) = &targets.abstract_socket else {
        return Verdict::NotApplicable("none was planted".into());
    };
    let mut names = vec![name.clone()];
    names.extend(["/tmp/.X11-unix/X0", "/tmp/dbus-session", "/containerd-shim"].map(String::from));
    all_refused(names.into_iter().map(|name| {
        let connected = UnixAddr::from_abstract_name(&name)
            .and_then(|address| UnixStream::connect_addr(&address));
        (name, connected)
    }))
}

fn path_sockets(targets: &Targets) -> Verdict {
    let mut paths: Vec<String> = SOCKETS.iter().map(|path| (*path).to_owned()).collect();
    paths.extend(
        targets
            .sockets
            .iter()
            .map(|path| path.display().to_string()),
    );
    let uid = rustix::process::getuid().as_raw();
    for name in [
        "bus",
        "systemd/private",
        "gnupg/S.gpg-agent",
        "keyring/ssh",
        "keyring/control",
        "docker.sock",
        "podman/podman.sock",
    ] {
        paths.push(format!("/run/user/{uid}/{name}"));
    }
    for root in ["/run", "/tmp", "/var", "/home", "/srv", "/opt", "/mnt"] {
        walk(root.as_ref(), &mut |path, found| {
            if found.is_socket() {
                paths.push(path.display().to_string());
            }
        });
    }
    let streams = paths
        .iter()
        .map(|path| (path.clone(), UnixStream::connect(path).map(drop)));
    let datagrams = paths.iter().map(|path| {
        let sent = UnixDatagram::unbound().and_then(|socket| socket.connect(path));
        (path.clone(), sent)
    });
    all_refused(streams.chain(datagrams))
}

const SOCKETS: &[&str] = &[
    "/var/run/docker.sock",
    "/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/podman/podman.sock",
    "/run/crio/crio.sock",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
    "/run/systemd/resolve/io.systemd.Resolve",
    "/run/systemd/notify",
    "/run/nscd/socket",
    "/var/run/nscd/socket",
    "/run/avahi-daemon/socket",
    "/run/pcscd/pcscd.comm",
    "/run/snapd.socket",
    "/run/tailscale/tailscaled.sock",
    "/run/WSL",
    "/run/gnupg/S.gpg-agent",
    "/tmp/.X11-unix/X0",
    "/run/udev/control",
    "/run/libvirt/libvirt-sock",
    "/run/postgresql/.s.PGSQL.5432",
    "/var/run/mysqld/mysqld.sock",
    "/var/lib/lxd/unix.socket",
];
