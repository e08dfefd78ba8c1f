//! `[[export]]`: the server that receives the audit log's records.

use gateway_export::{ExportFormat, ExportSettings};
use http::HeaderName;

use super::diagnostic::Hint;
use super::network;
use super::reference;
use super::section::Section;

pub(super) fn export(section: &Section<'_, '_>) -> Option<ExportSettings> {
    require!(section, "url"; "it says where records are sent";
        "add `url = \"https://collector.example:4318\"`");
    let url = section.get("url", |text| {
        let (server, path) = network::url(text, "https://collector.example:4318")?;
        Ok((server, path.trim_end_matches('/').to_owned()))
    });
    let token = reference::local(section, "token");
    let token_field = section.get("token_field", field);
    let (files, roots) = section.roots("roots");
    let format = format(section);
    let (server, path) = url?;
    if token.is_none() && token_field.is_some() {
        mistake!(section, "token_field", "`token_field` has no `token`";
            "without a token it has no effect"; "add `token`, or remove it");
    }
    if token.is_some() && network::is_open(&server) {
        mistake!(section, "token", "the token would be readable on the way";
            "the token would travel in clear text; `http` is for loopback addresses then";
            "write `https://`");
    }
    Some(ExportSettings {
        server,
        path,
        format: format?,
        token,
        token_field,
        roots,
        files,
    })
}

fn format(section: &Section<'_, '_>) -> Option<ExportFormat> {
    let signals = section.all("signals", |text| match text {
        "logs" | "traces" => Ok(text.to_owned()),
        _ => refused!("the signals are `logs` and `traces`"; "write `signals = [\"logs\"]`"),
    });
    let names = |word: &str| signals.iter().any(|one| one == word);
    let all = !section.has("signals");
    let otlp = ExportFormat::Otlp {
        logs: all || names("logs"),
        traces: all || names("traces"),
    };
    if !section.has("format") {
        return Some(otlp);
    }
    let chosen = section.choice("format", &[("otlp", otlp), ("ocsf", ExportFormat::Ocsf)])?;
    if chosen == ExportFormat::Ocsf && !all {
        mistake!(section, "signals", "`signals` does not belong to `ocsf`";
            "events of OCSF are one kind of data"; "remove `signals`");
    }
    Some(chosen)
}

fn field(text: &str) -> Result<HeaderName, Hint> {
    text.parse()
        .map_err(|_| hint!("it is no name of a field"; "write for example `x-honeycomb-team`"))
}
