//! `[[export]]`: where the audit log's records are exported to.

use http::HeaderName;
use toml::Spanned;

use super::certificates::certificates;
use super::diagnostic::Hint;
use super::network;
use super::section::Section;
use super::vault;
use crate::export::{ExportFormat, ExportSettings};
use crate::message::{Authority, HostPattern, Origin, OriginPattern, Scheme};

pub(super) fn export(section: &Section<'_, '_>) -> Option<ExportSettings> {
    if !section.has("url") {
        let remedy = "add `url = \"https://collector.example:4318\"`";
        section.missing("url", "it says where records are sent", remedy);
    }
    let url = section.parsed("url", url).map(Spanned::into_inner);
    let token = vault::local(section, "token");
    let field = section
        .parsed("token_field", field)
        .map(Spanned::into_inner);
    let roots = section.each("roots", |text| certificates(section.document.path(text)?));
    let format = format(section);
    let (server, path) = url?;
    if token.is_none() && field.is_some() {
        let hint = Hint::new(
            "without a token it has no effect",
            "add `token`, or remove it",
        );
        section.error("token_field", "`token_field` has no `token`", hint);
    }
    if token.is_some() && is_open(&server) {
        let why = "the token would travel in clear text; `http` is for loopback addresses then";
        let hint = Hint::new(why, "write `https://`");
        section.error("token", "the token would be readable on the way", hint);
    }
    let roots = roots.into_iter().map(Spanned::into_inner);
    let (files, roots): (Vec<_>, Vec<_>) = roots.unzip();
    Some(ExportSettings {
        server,
        path,
        format: format?,
        token,
        token_field: field,
        roots: roots.concat(),
        files,
    })
}

fn format(section: &Section<'_, '_>) -> Option<ExportFormat> {
    let signals = section.each("signals", |text| match text {
        "logs" | "traces" => Ok(text.to_owned()),
        _ => Err(Hint::new(
            "the signals are `logs` and `traces`",
            "write `signals = [\"logs\"]`",
        )),
    });
    let names = |word: &str| signals.iter().any(|one| one.get_ref() == word);
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
        let hint = Hint::new("events of OCSF are one kind of data", "remove `signals`");
        section.error("signals", "`signals` does not belong to `ocsf`", hint);
    }
    Some(chosen)
}

/// Reads a URL: an origin, and maybe a path.
fn url(text: &str) -> Result<(Origin, String), Hint> {
    let Some(after) = text.find("://").map(|at| at + 3) else {
        return Err(Hint::new(
            "it has no scheme, which says whether records can be read on the way",
            "write for example `https://collector.example:4318`",
        ));
    };
    let at = text[after..].find('/').map_or(text.len(), |at| after + at);
    let (origin, path) = text.split_at(at);
    let pattern = network::origin(origin)?;
    let HostPattern::Exact(host) = pattern.hosts else {
        return Err(Hint::new(
            "records are sent to one server",
            "write for example `https://collector.example:4318`",
        ));
    };
    let path = path.trim_end_matches('/');
    if !path
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !b"?#%\\".contains(&byte))
    {
        return Err(Hint::new(
            "its path may have no query and no escapes",
            "write for example `https://collector.example/otlp`",
        ));
    }
    let server = Origin {
        scheme: pattern.scheme,
        authority: Authority {
            host,
            port: pattern.port,
        },
    };
    Ok((server, path.to_owned()))
}

/// Whether what is sent can be read on the way.
fn is_open(server: &Origin) -> bool {
    let pattern = OriginPattern {
        scheme: server.scheme,
        hosts: HostPattern::Exact(server.authority.host.clone()),
        port: server.authority.port,
    };
    server.scheme == Scheme::Http && !pattern.is_loopback()
}

fn field(text: &str) -> Result<HeaderName, Hint> {
    text.parse().map_err(|_| {
        Hint::new(
            "it is no name of a field",
            "write for example `x-honeycomb-team`",
        )
    })
}
