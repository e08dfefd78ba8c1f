//! `gateway secret presets`: the services that the gateway knows by name.

use clap::Args;
use serde_json::json;

use crate::credential::preset::{self, Preset};

use crate::app::{Code, Failure, Paint, Terminal};

/// Lists the presets, or tells all about one.
#[derive(Args)]
pub(crate) struct Presets {
    /// A preset's name
    name: Option<String>,
}

impl Presets {
    pub(crate) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let Some(name) = &self.name else {
            list(terminal);
            return Ok(Code::Ok);
        };
        let preset = preset::named(name).ok_or_else(|| {
            let near = crate::config::keys::nearest(name, preset::names());
            let next = near.map_or_else(
                || {
                    String::from(
                        "`gateway secret presets` lists them; without one, use `--secret NAME@HOST`",
                    )
                },
                |near| format!("did you mean `{near}`?"),
            );
            Failure::usage("no preset has that name").next(next)
        })?;
        if terminal.json() {
            terminal.document(&document(preset));
        } else {
            print(terminal, preset);
        }
        Ok(Code::Ok)
    }
}

fn list(terminal: &Terminal) {
    if terminal.json() {
        return terminal.document(&preset::all().map(document).collect::<Vec<_>>());
    }
    let width = preset::names().map(str::len).max().unwrap_or(0);
    for preset in preset::all() {
        let variables = preset.credentials.iter().flat_map(|one| &one.variables);
        let variables = crate::names::join(variables, " ");
        let name = terminal.paint(Paint::Bold, &format!("{:width$}", preset.name));
        terminal.line(format!("{name}  {variables}"));
    }
}

fn print(terminal: &Terminal, preset: &Preset) {
    let name = terminal.paint(Paint::Bold, &preset.name);
    let title = &preset.title;
    terminal.line(format!("{name}: {title}"));
    // Nothing is said of what there is none of.
    let tell = |words: &str, all: Vec<String>, more: &str| {
        if !all.is_empty() {
            terminal.line(format!("  {words} {}{more}", all.join(" ")));
        }
    };
    tell("also allows", texts(&preset.allow), "");
    tell("shows of the home the sets", preset.home.clone(), "");
    if let Some(registry) = &preset.registry {
        let all = registry.public.iter().chain(&registry.downloads);
        let all = all.map(ToString::to_string).collect();
        tell("asks", all, ", or what your own files name instead");
    }
    let mints = preset.mints.iter().map(|one| one.path.clone());
    let mints = mints.chain(preset.mint_mutations.clone()).collect();
    tell("makes no credentials by", mints, "");
    tell("keeps %2F in paths of", texts(&preset.encoded_slash), "");
    for read in &preset.endpoints {
        let at = texts(&read.origins).into_iter().chain(texts(&read.paths));
        tell(&format!("reads {} at", read.protocol), at.collect(), "");
    }
    for login in &preset.logins {
        tell(
            &format!("login {} for", login.name),
            texts(&login.origins),
            "",
        );
    }
    for block in &preset.blocks {
        let all = texts(&block.hosts)
            .into_iter()
            .chain(block.media_types.clone());
        tell(&format!("forbids {} at", block.kind), all.collect(), "");
    }
    for one in &preset.permissions {
        let words = format!("as {}:{} leaves, besides reading,", preset.name, one.name);
        let mut leaves = texts(&one.leaves);
        leaves.extend(one.mutations.clone());
        tell(&words, leaves, "");
        tell("  but not", texts(&one.but), "");
    }
    for credential in &preset.credentials {
        terminal.line(format!("  credential {}", credential.name));
        let verify = credential.verify.iter();
        let verify = verify.map(|verify| format!("GET {}{}", verify.host, verify.path));
        tell("  variables", credential.variables.clone(), "");
        tell("  origins  ", texts(&credential.origins), "");
        let own = credential.your_host.iter().cloned().collect();
        tell("            your own, such as", own, "");
        tell("  places   ", texts(&credential.places), "");
        tell("  takes    ", texts(&credential.takes), "");
        tell("  cookies  ", credential.cookies.clone(), "");
        tell(
            "  user     ",
            credential.basic_user.iter().cloned().collect(),
            "",
        );
        tell("  check    ", verify.collect(), "");
    }
}

fn texts(all: &[impl ToString]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

fn document(preset: &Preset) -> serde_json::Value {
    let credentials = preset.credentials.iter().map(|credential| {
        json!({
            "name": credential.name.as_str(), "variables": credential.variables, "origins": texts(&credential.origins),
            "your_host": credential.your_host, "places": texts(&credential.places),
            "takes": texts(&credential.takes), "cookies": credential.cookies,
            "basic_user": credential.basic_user,
            "verify": credential.verify.as_ref().map(|verify| json!({
                "method": "GET", "origin": verify.host.to_string(), "path": verify.path,
                "fields": verify.fields, "revoked": verify.revoked,
            })),
        })
    });
    let registry = preset.registry.iter();
    let registry = registry.flat_map(|one| one.public.iter().chain(&one.downloads));
    let registry = registry.map(ToString::to_string);
    json!({
        "name": preset.name, "title": preset.title,
        "allow": texts(&preset.allow),
        "mints": preset.mints.iter().map(|one| &one.path).collect::<Vec<_>>(),
        "mint_mutations": preset.mint_mutations,
        "blocks": preset.blocks.iter().map(|one| json!({
            "kind": one.kind, "hosts": texts(&one.hosts), "media_types": one.media_types,
        })).collect::<Vec<_>>(),
        "permissions": preset.permissions.iter().map(|one| json!({
            "name": one.name, "leaves": texts(&one.leaves), "mutations": one.mutations,
            "but": texts(&one.but),
        })).collect::<Vec<_>>(),
        "encoded_slash": texts(&preset.encoded_slash),
        "read": preset.endpoints.iter().map(|read| json!({
            "as": read.protocol.to_string(), "origins": texts(&read.origins),
            "paths": texts(&read.paths),
        })).collect::<Vec<_>>(),
        "logins": preset.logins.iter().map(|login| json!({
            "name": login.name.as_str(), "origins": texts(&login.origins),
        })).collect::<Vec<_>>(),
        "home": preset.home, "registry": registry.collect::<Vec<_>>(), "credentials": credentials.collect::<Vec<_>>(),
    })
}
