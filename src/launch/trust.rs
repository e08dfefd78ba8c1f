//! Makes the command trust the session's CA: files, bind mounts over the system's own, and
//! variables.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

use super::bounds::MemoryBound;
use super::failure::{AtStep, Failure, Step};
use super::mount_plan::MountPlan;
use super::paths::lexical;
use super::tree::{bind, make_directories};
use super::{environment, list, program, syscall, tools, truststore};
use crate::enroll::Ready;
use gateway_names::{SYSTEM_BUNDLES, real_path};

/// The directory of the gateway's files inside the sandbox, read-only there.
pub const DIRECTORY: &str = "/run/gateway";
/// The system's CA certificates and the session's, PEM, inside the sandbox.
pub const BUNDLE: &str = "/run/gateway/ca-bundle.pem";
/// The session's CA certificate alone, PEM, inside the sandbox.
pub const CERTIFICATE: &str = "/run/gateway/ca.pem";
/// The same as [`BUNDLE`], as a Java key store with the password `changeit`, inside the sandbox.
pub const JAVA_STORE: &str = "/run/gateway/truststore.jks";

/// Returns the variables by which clients other than Java find their CA certificates, each with its
/// value inside.
pub fn variables() -> impl Iterator<Item = (&'static str, &'static str)> {
    list::pairs(include_str!("data/trust_variables.txt"))
}

/// Whether a Java virtual machine is visible: a command, an installed one, one in the home
/// directory, or a build that would fetch one.
pub fn sees_java(plan: &MountPlan, variables: &[(OsString, OsString)]) -> bool {
    let path = environment::value(variables, "PATH").unwrap_or_default();
    let start = plan.working_directory.as_path();
    let is_built = |folder: &Path| {
        list::lines(include_str!("data/java_builds.txt")).any(|name| folder.join(name).exists())
    };
    tools::names_of(&plan.seen_in_home).contains(&"java")
        || environment::value(variables, "JAVA_HOME").is_some()
        || program::find("java".as_ref(), path, start).is_some()
        || java_stores().iter().any(|store| store.exists())
        || is_built(start)
        || plan.project().is_some_and(is_built)
}

/// Writes the gateway's files, and binds them over the system's own lists. `java` adds the store
/// for Java, over those of the Java homes that these variables name.
///
/// # Errors
/// A [`Step::Trust`] failure that names the file.
pub fn install(
    ready: &Ready,
    java: bool,
    variables: &[(OsString, OsString)],
) -> Result<(), Failure> {
    make_directories(Path::new(DIRECTORY)).at(Step::Trust, DIRECTORY)?;
    MemoryBound::OWN_FILES
        .mount(Path::new(DIRECTORY), 0o755, MountFlags::NOEXEC)
        .at(Step::Trust, DIRECTORY)?;
    let store = java.then(|| truststore::from_pem(&ready.ca_bundle_pem));
    let hosts = hosts();
    let files: [(&str, &[u8]); 4] = [
        (BUNDLE, &ready.ca_bundle_pem),
        (CERTIFICATE, &ready.ca_pem),
        (RESOLVER, RESOLVER_CONTENT),
        (HOSTS, &hosts),
    ];
    let store = store.iter().map(|store| (JAVA_STORE, store.as_slice()));
    for (path, content) in files.into_iter().chain(store) {
        fs::write(path, content).at(Step::Trust, path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o444)).at(Step::Trust, path)?;
    }
    syscall::make_read_only(c"/run/gateway").at(Step::Trust, DIRECTORY)?;
    replace_all(SYSTEM_BUNDLES, BUNDLE)?;
    if java {
        let homes = java_homes(variables).into_iter();
        let own = homes.flat_map(|home| STORES_OF_HOME.map(|store| home.join(store)));
        replace_all(java_stores().into_iter().chain(own), JAVA_STORE)?;
    }
    replace_all(["/etc/hosts"], HOSTS)?;
    replace_resolver().at(Step::Trust, "/etc/resolv.conf")
}

/// Writes the certificate database that Chromium reads, unless the home shows one.
///
/// Without it only browsers lack the CA, so it is no reason not to start the command.
pub fn install_for_browsers(ready: &Ready, home: &Path) {
    let folder = home.join(NSS_FOLDER);
    if ready.ca_nss.is_empty() || folder.exists() {
        return;
    }
    let written = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .and_then(|()| fs::write(folder.join("cert9.db"), &ready.ca_nss));
    // If the home cannot be written, the command notices that itself.
    let _ = written;
}

/// Sets [`variables()`], and with `java` the options of its virtual machine, added to existing
/// ones. A machine whose own store is covered needs no options, and would print them each time.
pub fn set_variables(variables: &mut Vec<(OsString, OsString)>, java: bool) {
    for (name, value) in self::variables() {
        environment::set(variables, name, value);
    }
    let has_store = |home: &PathBuf| {
        let mut stores = STORES_OF_HOME.iter();
        stores.any(|store| home.join(store).exists())
    };
    let homes = java_homes(variables);
    if java && (homes.is_empty() || !homes.iter().all(has_store)) {
        let own = environment::value(variables, JAVA_VARIABLE).unwrap_or_default();
        let mut options = own.to_owned();
        if !options.is_empty() {
            options.push(" ");
        }
        options.push(java_options(JAVA_STORE));
        environment::set(variables, JAVA_VARIABLE, options);
    }
}

/// Returns the options that make a Java virtual machine use a store, such as [`JAVA_STORE`].
pub fn java_options(store: &str) -> String {
    format!(
        "-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStoreType=JKS -Djavax.net.ssl.trustStorePassword=changeit"
    )
}

/// Binds `file` over the real locations of these paths, each once, if they exist.
fn replace_all(
    paths: impl IntoIterator<Item = impl AsRef<Path>>,
    file: &str,
) -> Result<(), Failure> {
    let mut done = Vec::new();
    for path in paths {
        let Ok(real) = real_path(path) else {
            continue;
        };
        if !done.contains(&real) && real.is_file() {
            bind(Path::new(file), &real, false).map_err(|failure| Failure {
                step: Step::Trust,
                ..failure
            })?;
            done.push(real);
        }
    }
    Ok(())
}

fn replace_resolver() -> io::Result<()> {
    let path = Path::new("/etc/resolv.conf");
    let target = match fs::read_link(path) {
        // The usual link into `/run`, which has just been emptied: create a file at its target.
        Ok(link) => {
            let target = Path::new("/etc").join(link);
            // Resolved by name: the directories that it passes through may be gone by now.
            let target = lexical(&target);
            if let Some(parent) = target.parent() {
                let _ = make_directories(parent);
            }
            if !target.exists() && fs::write(&target, RESOLVER_CONTENT).is_ok() {
                return Ok(());
            }
            target
        }
        Err(_) => path.to_owned(),
    };
    // Without the file, resolvers query 127.0.0.1, which is the gateway, too.
    if target.is_file() {
        rustix::mount::mount_bind(RESOLVER, &target)?;
    }
    Ok(())
}

/// Returns the homes of the virtual machines that run by name: those of `JAVA_HOME` and `PATH`.
fn java_homes(variables: &[(OsString, OsString)]) -> Vec<PathBuf> {
    let named = environment::value(variables, "JAVA_HOME").map(PathBuf::from);
    let path = environment::value(variables, "PATH").unwrap_or_default();
    let found = program::find("java".as_ref(), path, Path::new("/"));
    let real = found.and_then(|java| fs::canonicalize(java).ok());
    let home = real.and_then(|java| Some(java.parent()?.parent()?.to_owned()));
    named.into_iter().chain(home).collect()
}

fn java_stores() -> Vec<PathBuf> {
    let folders = ["/usr/lib/jvm", "/usr/java", "/opt/java"].into_iter();
    let installed = folders.filter_map(|folder| fs::read_dir(folder).ok());
    let installed = installed.flatten().flatten().map(|entry| entry.path());
    let homes = installed.chain(["/opt/java/openjdk".into()]);
    let stores = SYSTEM_JAVA_STORES.iter().map(PathBuf::from);
    let in_homes = homes.flat_map(|home| STORES_OF_HOME.map(|store| home.join(store)));
    stores.chain(in_homes).collect()
}

fn hosts() -> Vec<u8> {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy();
    let own = Ipv4Addr::new(127, 0, 1, 1);
    format!("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n{own} {name}\n")
        .into_bytes()
}

/// Chromium's folder in the home directory.
const NSS_FOLDER: &str = ".pki/nssdb";
const RESOLVER: &str = "/run/gateway/resolv.conf";
const HOSTS: &str = "/run/gateway/hosts";
const RESOLVER_CONTENT: &[u8] = b"nameserver 127.0.0.1\noptions timeout:2 attempts:2\n";
/// The trust store of a Java home.
const STORES_OF_HOME: [&str; 2] = ["lib/security/cacerts", "jre/lib/security/cacerts"];
/// The variable that every Java virtual machine reads.
const JAVA_VARIABLE: &str = "JAVA_TOOL_OPTIONS";
const SYSTEM_JAVA_STORES: &[&str] = &[
    "/etc/ssl/certs/java/cacerts",
    "/etc/pki/java/cacerts",
    "/etc/pki/ca-trust/extracted/java/cacerts",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_options_are_added_to_the_users_own() {
        let mut variables = vec![("JAVA_TOOL_OPTIONS".into(), "-Xmx1g".into())];
        set_variables(&mut variables, true);
        let options = environment::value(&variables, "JAVA_TOOL_OPTIONS")
            .unwrap()
            .to_str()
            .unwrap();
        assert!(options.starts_with("-Xmx1g -Djavax.net.ssl.trustStore=/run/gateway/"));
    }

    #[test]
    fn every_variable_is_set_once() {
        let mut variables = vec![("SSL_CERT_FILE".into(), "/etc/other.pem".into())];
        set_variables(&mut variables, false);
        assert!(environment::value(&variables, "JAVA_TOOL_OPTIONS").is_none());
        set_variables(&mut variables, true);
        assert_eq!(variables.len(), self::variables().count() + 1);
        let mut values = self::variables().map(|(_, value)| value);
        assert!(values.all(|value| [BUNDLE, CERTIFICATE].contains(&value)));
        assert_eq!(
            environment::value(&variables, "SSL_CERT_FILE").unwrap(),
            BUNDLE
        );
    }

    #[test]
    fn parent_directories_are_resolved_by_name() {
        assert_eq!(
            lexical(Path::new("/etc/../run/systemd/./resolve")),
            Path::new("/run/systemd/resolve")
        );
    }
}
