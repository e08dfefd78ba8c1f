//! How git in a sandbox, or behind a proxy, uses a lent token: over https, where the gateway sees
//! its requests.
//!
//! Git is configured by its own variables, so no file of the user or of the project changes. The
//! helper names the variable that holds the phantom, and contains nothing of it.

use std::collections::BTreeMap;

use gateway_message::HostPattern;
use gateway_session::Binding;

/// Returns git's settings as variables. They turn SSH remotes of forges into https ones: SSH never
/// passes, and over https a refusal says what to do. If a forge has a password credential, a helper
/// gives git its phantom. Then come further `settings`.
pub fn variables<'a>(
    bindings: impl Iterator<Item = &'a Binding> + Clone,
    mut settings: Vec<(String, String)>,
) -> BTreeMap<String, String> {
    for host in FORGES {
        for ssh in [format!("git@{host}:"), format!("ssh://git@{host}/")] {
            settings.push((format!("url.https://{host}/.insteadOf"), ssh));
        }
        if let Some((user, variable)) = bindings.clone().find_map(|one| password(one, host)) {
            let get = format!("printf 'username={user}\\npassword=%s\\n' \"${variable}\"");
            let helper = format!("!f() {{ test \"$1\" = get && {get}; }}; f");
            settings.push((format!("credential.https://{host}.helper"), helper));
        }
    }
    numbered(&settings)
}

/// Writes settings as git reads them from the environment (git-config(1), `GIT_CONFIG_COUNT`).
fn numbered(settings: &[(String, String)]) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    if !settings.is_empty() {
        variables.insert("GIT_CONFIG_COUNT".to_owned(), settings.len().to_string());
    }
    for (at, (key, value)) in settings.iter().enumerate() {
        variables.insert(format!("GIT_CONFIG_KEY_{at}"), key.clone());
        variables.insert(format!("GIT_CONFIG_VALUE_{at}"), value.clone());
    }
    variables
}

/// Returns the user name and the variable of a password credential for a host.
fn password<'a>(binding: &'a Binding, host: &str) -> Option<(&'a str, &'a str)> {
    let is_bound = binding.origins.iter().any(|origin| is(&origin.hosts, host));
    let user = binding.basic_user.as_deref().filter(|_| is_bound)?;
    Some((user, binding.variables.first()?))
}

fn is(pattern: &HostPattern, host: &str) -> bool {
    matches!(pattern, HostPattern::Exact(exact) if exact.as_str() == host)
}

/// The forges whose SSH remotes have an https form of the same path.
const FORGES: [&str; 3] = ["bitbucket.org", "github.com", "gitlab.com"];
