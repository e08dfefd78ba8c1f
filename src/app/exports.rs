//! The exports of the configuration: started with the gateway, and changed by a reload.

use parking_lot::Mutex;

use crate::{Advise as _, Context as _, Failure};
use gateway_config::Config;
use gateway_export::Exporter;
use gateway_server::SharedState;

/// The exports of a gateway.
#[derive(Default)]
pub struct Exports(Mutex<RunningExports>);

#[derive(Default)]
struct RunningExports {
    /// The exports of the configuration in force.
    live: Vec<Exporter>,
    /// The exports that it no longer has. One without a successor is kept, even when it has ended:
    /// if its destination comes back, the next one continues where it stopped.
    former: Vec<Exporter>,
    /// Whether an export continues from where an earlier process stopped. A run of `exec` usually
    /// has its own log, which no other run continues.
    resumes: bool,
    /// Whether the gateway has ended.
    is_over: bool,
}

/// The exports that a configuration adds or changes, ready to begin. If dropped, they never begin.
#[derive(Default)]
pub struct ExportChange(Vec<Exporter>);

impl Exports {
    /// Starts to export new records of the audit log and, if it `resumes`, those that an earlier
    /// process could not send.
    ///
    /// # Errors
    /// Returns a [`Failure`] if an export cannot be set up. An unreachable server is no failure.
    pub fn start(
        &self,
        shared: &SharedState,
        config: &Config,
        resumes: bool,
    ) -> Result<(), Failure> {
        self.0.lock().resumes = resumes;
        let change = self.prepare(shared, config)?;
        self.change(shared, config, change);
        Ok(())
    }

    /// Prepares the exports of a configuration that are not running. Running exports are not
    /// touched.
    ///
    /// # Errors
    /// As [`Exports::start`].
    pub fn prepare(&self, shared: &SharedState, config: &Config) -> Result<ExportChange, Failure> {
        let running = self.0.lock();
        let is_new = |settings: &&_| {
            let mut live = running.live.iter();
            !live.any(|one| one.does(settings, &config.export_way(settings)))
        };
        let mut prepared = Vec::new();
        for settings in config.exports.iter().filter(is_new) {
            let log = (&shared.log, running.resumes);
            let way = config.export_way(settings);
            let exporter = Exporter::prepare(settings.clone(), log, way);
            prepared.extend(
                exporter
                    .context("the records of the audit log cannot be exported")
                    .advise("see docs/config.md, `[[export]]`")?,
            );
        }
        Ok(ExportChange(prepared))
    }

    /// Puts the exports of a configuration in force, without waiting for others to end. Returns the
    /// servers of those that begin, and of those that end.
    pub fn change(
        &self,
        shared: &SharedState,
        config: &Config,
        change: ExportChange,
    ) -> (Vec<String>, Vec<String>) {
        let mut running = self.0.lock();
        if running.is_over {
            return Default::default();
        }
        let begun = servers(&change.0);
        let ended = running.change(config, change);
        let counts = running.live.iter().map(Exporter::counts);
        *shared.exports.lock() = counts.collect();
        (begun, ended)
    }

    /// Ends the exports. All together have a few seconds for what is still to be sent.
    pub fn end(&self) {
        let over = RunningExports {
            is_over: true,
            ..RunningExports::default()
        };
        let mut ended = std::mem::replace(&mut *self.0.lock(), over);
        ended.live.iter_mut().for_each(Exporter::stop);
    }
}

impl RunningExports {
    /// Returns the servers of the exports that end.
    fn change(&mut self, config: &Config, ExportChange(mut added): ExportChange) -> Vec<String> {
        let stays = |one: &Exporter| {
            let mut wanted = config.exports.iter();
            wanted.any(|settings| one.does(settings, &config.export_way(settings)))
        };
        let live = std::mem::take(&mut self.live);
        let (live, gone): (Vec<_>, Vec<_>) = live.into_iter().partition(stays);
        let ended = servers(&gone);
        self.former.extend(gone);
        for one in &mut added {
            let mut former = self.former.iter_mut();
            let before = former.find(|before| before.is_as(one) && !before.is_followed());
            one.begin(before);
        }
        // An export that hands its unsent records over is stopped already.
        self.former.iter_mut().for_each(Exporter::stop);
        self.former.iter_mut().for_each(Exporter::settle);
        self.former
            .retain(|one| !(one.is_followed() && one.is_over()));
        self.live = live;
        self.live.append(&mut added);
        ended
    }
}

/// Returns the servers of exports, as `/metrics` names them.
fn servers(exporters: &[Exporter]) -> Vec<String> {
    let servers = exporters.iter().map(|one| one.counts().server.clone());
    servers.collect()
}
