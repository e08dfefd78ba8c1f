//! `gateway presets`: the services that the gateway knows by name.

use clap::Args;
use serde_json::json;

use crate::credential::preset::{self, Preset, PresetCredential};

use super::failure::{Code, Failure};
use super::terminal::{Paint, Terminal};

/// Lists the presets, or tells all about one.
#[derive(Args)]
pub(super) struct Presets {
    /// A preset's name
    name: Option<String>,
}

impl Presets {
    pub(super) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let Some(name) = &self.name else {
            list(terminal);
            return Ok(Code::Ok);
        };
        let preset = preset::named(name).ok_or_else(|| {
            let near = crate::config::keys::nearest(name, preset::names());
            let next = near.map_or_else(
                || {
                    String::from(
                        "`gateway presets` lists them; without one, use `--secret NAME@HOST`",
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
        let variables: Vec<_> = preset
            .credentials
            .iter()
            .flat_map(|credential| &credential.variables)
            .collect();
        let variables: Vec<_> = variables.into_iter().map(String::as_str).collect();
        let name = terminal.paint(Paint::Bold, &format!("{:width$}", preset.name));
        terminal.line(format!("{name}  {}", variables.join(" ")));
    }
}

fn print(terminal: &Terminal, preset: &Preset) {
    terminal.line(format!(
        "{}: {}",
        terminal.paint(Paint::Bold, &preset.name),
        preset.title
    ));
    let texts = |list: Vec<String>| {
        if list.is_empty() {
            String::from("-")
        } else {
            list.join(" ")
        }
    };
    if !preset.allow.is_empty() {
        terminal.line(format!(
            "  also allows {}",
            texts(preset.allow.iter().map(ToString::to_string).collect())
        ));
    }
    if !preset.home.is_empty() {
        terminal.line(format!(
            "  shows of the home the sets {}",
            preset.home.join(" ")
        ));
    }
    if let Some(registry) = &preset.registry {
        let all = registry.public.iter().chain(&registry.downloads);
        let all = texts(all.map(ToString::to_string).collect());
        terminal.line(format!("  asks {all}, or what your own files name instead"));
    }
    for credential in &preset.credentials {
        terminal.line(format!("  credential {}", credential.name));
        terminal.line(format!(
            "    variables {}",
            texts(credential.variables.clone())
        ));
        terminal.line(format!("    origins   {}", texts(origins(credential))));
        if let Some(example) = &credential.your_host {
            terminal.line(format!("              your own, such as {example}"));
        }
        terminal.line(format!("    places    {}", texts(places(credential))));
        terminal.line(format!("    takes     {}", texts(takes(credential))));
    }
}

fn origins(credential: &PresetCredential) -> Vec<String> {
    credential.origins.iter().map(ToString::to_string).collect()
}

fn places(credential: &PresetCredential) -> Vec<String> {
    credential.places.iter().map(ToString::to_string).collect()
}

fn takes(credential: &PresetCredential) -> Vec<String> {
    credential.takes.iter().map(ToString::to_string).collect()
}

fn document(preset: &Preset) -> serde_json::Value {
    let credentials = preset.credentials.iter().map(|credential| {
        json!({
            "name": credential.name.as_str(), "variables": credential.variables, "origins": origins(credential),
            "your_host": credential.your_host, "places": places(credential),
            "takes": takes(credential),
        })
    });
    let registry = preset.registry.iter();
    let registry = registry.flat_map(|one| one.public.iter().chain(&one.downloads));
    let registry = registry.map(ToString::to_string);
    json!({
        "name": preset.name, "title": preset.title,
        "allow": preset.allow.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "home": preset.home, "registry": registry.collect::<Vec<_>>(), "credentials": credentials.collect::<Vec<_>>(),
    })
}
