//! Starts the exports of the configuration.

use super::app::App;
use super::failure::Failure;
use crate::export::Exporter;

/// The exports of a gateway. When they are dropped, what is still to be sent has a few seconds, in
/// all of them at once.
pub(super) struct Exports(Vec<Exporter>);

impl Drop for Exports {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(Exporter::stop);
    }
}

/// Starts to export what the audit log gets from now on, and if it `resumes`, what an earlier
/// process could not send. A run of `exec` mostly has a log of its own, which no other goes on
/// with.
///
/// # Errors
/// Returns a [`Failure`] if an export cannot be set up. That its server is not there is no failure.
pub(super) fn start(app: &App, resumes: bool) -> Result<Exports, Failure> {
    let mut exporters = Vec::new();
    for settings in &app.config.exports {
        let resolver = app.config.resolver.clone();
        let log = (&app.shared.log, resumes);
        let started = Exporter::prepare(settings.clone(), log, resolver);
        let started = started.map_err(|error| {
            Failure::of("the records of the audit log cannot be exported", &error)
                .next("see docs/config.md, `[[export]]`")
        })?;
        if let Some(mut exporter) = started {
            exporter.begin(None);
            app.shared.exports.lock().push(exporter.counts());
            exporters.push(exporter);
        }
    }
    Ok(Exports(exporters))
}
