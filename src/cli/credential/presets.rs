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
    let joined = |list: Vec<String>| {
        if list.is_empty() {
            String::from("-")
        } else {
            list.join(" ")
        }
    };
    if !preset.allow.is_empty() {
        terminal.line(format!("  also allows {}", joined(texts(&preset.allow))));
    }
    if !preset.home.is_empty() {
        let sets = preset.home.join(" ");
        terminal.line(format!("  shows of the home the sets {sets}"));
    }
    if let Some(registry) = &preset.registry {
        let all = registry.public.iter().chain(&registry.downloads);
        let all = joined(all.map(ToString::to_string).collect());
        terminal.line(format!("  asks {all}, or what your own files name instead"));
    }
    if !preset.mints.is_empty() {
        let mutations = preset.mint_mutations.iter().map(String::as_str);
        let mints = preset.mints.iter().map(|one| one.path.as_str());
        let mints = crate::names::join(mints.chain(mutations), " ");
        terminal.line(format!("  makes no credentials by {mints}"));
    }
    for block in &preset.blocks {
        let all = block.hosts.iter().map(ToString::to_string);
        let all = joined(all.chain(block.media_types.clone()).collect());
        terminal.line(format!("  forbids {} at {all}", block.kind));
    }
    for credential in &preset.credentials {
        terminal.line(format!("  credential {}", credential.name));
        let variables = joined(credential.variables.clone());
        terminal.line(format!("    variables {variables}"));
        let origins = joined(texts(&credential.origins));
        terminal.line(format!("    origins   {origins}"));
        if let Some(example) = &credential.your_host {
            terminal.line(format!("              your own, such as {example}"));
        }
        let places = joined(texts(&credential.places));
        terminal.line(format!("    places    {places}"));
        let takes = joined(texts(&credential.takes));
        terminal.line(format!("    takes     {takes}"));
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
            "takes": texts(&credential.takes),
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
        "home": preset.home, "registry": registry.collect::<Vec<_>>(), "credentials": credentials.collect::<Vec<_>>(),
    })
}
