//! Checks which variables of the workload may hold a phantom. None may steer a loader, a shell or
//! the network.

use super::diagnostic::Hint;
use super::reference::variable;

/// Checks the name of a variable for the workload. It must not steer the loader or the network.
///
/// # Errors
/// Returns a [`Hint`] if it is not a variable name, or one that the sandbox sets itself.
pub fn sandbox_variable(text: &str) -> Result<String, Hint> {
    let name = variable(text)?;
    let upper = name.to_ascii_uppercase();
    let steers = STEERING.split(' ').any(|name| upper == name)
        || STEERING_PREFIXES
            .split(' ')
            .any(|prefix| upper.starts_with(prefix))
        || STEERING_ENDS.split(' ').any(|end| upper.ends_with(end));
    if steers {
        return refused!("that variable steers a loader, a shell, an interpreter, a tool or the network";
            "name the variable that the client reads its key from");
    }
    Ok(name)
}

/// Variables that tell shells, loaders, interpreters and tools what to run, what to read first or
/// whom to trust. A phantom in one of them is of no use. `gateway env` also prints variables that
/// the user's own shell evaluates.
const STEERING: &str = "\
    PATH HOME USER LOGNAME SHELL TERM TERMINFO PWD OLDPWD TMPDIR IFS ENV CDPATH FPATH MANPATH \
    ZDOTDIR INPUTRC HISTFILE SHELLOPTS BASHOPTS PROMPT PROMPT_COMMAND PS0 PS1 PS2 PS3 PS4 \
    EDITOR VISUAL PAGER MANPAGER LESS LESSOPEN LESSCLOSE BROWSER DISPLAY GCONV_PATH \
    GLIBC_TUNABLES LOCPATH NLSPATH HOSTALIASES RESOLV_HOST_CONF CLASSPATH _JAVA_OPTIONS \
    JDK_JAVA_OPTIONS JAVA_TOOL_OPTIONS MAVEN_OPTS GRADLE_OPTS MAKEFLAGS GNUMAKEFLAGS CC CXX \
    RUSTFLAGS RUSTC_WRAPPER GOFLAGS GOPROXY SSL_CERT_DIR PIP_CERT DENO_CERT \
    CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE GRPC_DEFAULT_SSL_ROOTS_FILE_PATH \
    JULIA_SSL_CA_ROOTS_PATH HEX_CACERTS_PATH OPENSSL_CONF OPENSSL_MODULES SSLKEYLOGFILE";
const STEERING_PREFIXES: &str = "\
    LD_ DYLD_ GATEWAY_ BASH_ XDG_ PERL5 RUBYOPT RUBYLIB LUA_ PYTHONPATH PYTHONHOME \
    PYTHONSTARTUP PYTHONUSERBASE PYTHONINSPECT PYTHONBREAKPOINT PYTHONEXECUTABLE \
    PYTHONWARNINGS NODE_OPTIONS NODE_PATH NODE_EXTRA_ NODE_USE_ NODE_TLS_ BUN_OPTIONS DENO_DIR \
    DOTNET_STARTUP GIT_CONFIG GIT_EXEC_PATH GIT_TEMPLATE GIT_SSH GIT_EDITOR \
    GIT_SEQUENCE_EDITOR GIT_PAGER GIT_EXTERNAL GIT_DIR GIT_WORK_TREE MALLOC_ \
    NPM_CONFIG_SCRIPT_SHELL NPM_CONFIG_NODE_OPTIONS";
const STEERING_ENDS: &str = "\
    _PROXY _ASKPASS _PRELOAD _CA_BUNDLE _CA_CERTS _CA_FILE _CA_FILE_PATH _CAFILE _CAINFO \
    _CERT_FILE";
