//! Starts the exports of the configuration.

use super::app::App;
use super::failure::Failure;
use crate::export::Exporter;

/// Starts to export what the audit log gets from now on. It ends, with what is still to be sent,
/// when the exporters are dropped.
///
/// # Errors
/// Returns a [`Failure`] if an export cannot be set up. That its server is not there is no failure.
pub(super) fn start(app: &App) -> Result<Vec<Exporter>, Failure> {
    let mut exporters = Vec::new();
    for settings in &app.config.exports {
        let resolver = app.config.resolver.clone();
        let started = Exporter::start(settings.clone(), &app.shared.log, resolver);
        let started = started.map_err(|error| {
            Failure::of("the records of the audit log cannot be exported", &error)
                .next("see docs/config.md, `[[export]]`")
        })?;
        if let Some((exporter, counts)) = started {
            app.shared.exports.lock().push(counts);
            exporters.push(exporter);
        }
    }
    Ok(exporters)
}
