//! A run in its gateway process, the only process that reads secrets; and the report at its end.

use std::sync::Arc;

use crate::app::process::{drain as draining, serving};
use crate::app::{App, Code, Context as _, Failure, Terminal, sandbox};
use crate::cli::credential::logins;
use crate::cli::exec::launching::END_WITHIN;
use crate::cli::exec::summary;
use crate::cli::{last_run, proposals};
use crate::launch;
use crate::launch::enroll::GatewayEnd;
use crate::launch::repository::RepositoryCheck;

/// Runs the data path of one sandbox until the launcher exits. Then, if there is a terminal, prints
/// the refusals.
///
/// # Errors
/// Returns a [`Failure`] if there is no runtime, or if this process cannot leave the terminal. Any
/// other failure is sent to the launcher, which prints it.
pub fn serve_on(
    runtime: &tokio::runtime::Runtime,
    gateway: GatewayEnd,
    app: Result<impl Into<Arc<App>>, Failure>,
    terminal: Option<&Terminal>,
) -> Result<Code, Failure> {
    serving::harden()?;
    // Starts a new session: the terminal's signals are for the command, not for the gateway
    // process.
    rustix::process::setsid().context("cannot leave the terminal")?;
    let mut check = None;
    let served = app.map(Into::into).and_then(|app| {
        match runtime.block_on(sandbox::start(&gateway, &app, &mut check, terminal)) {
            Ok(started) => Ok((app, started)),
            Err(failure) => {
                runtime.block_on(serving::close(&app.shared));
                app.exports.end();
                Err(failure)
            }
        }
    });
    let sweep = |check: Option<RepositoryCheck>| {
        let ended = check.map(RepositoryCheck::end);
        ended.unwrap_or_default()
    };
    match served {
        Ok((app, (first, worker, control))) => {
            if app.config.audit.path.is_none() {
                crate::cli::log::archive::prune_aside();
            }
            runtime.spawn(app.clone().watch(sandbox::tell));
            let lived = runtime.block_on(sandbox::live(gateway, &app, terminal));
            // The logins are read before the session ends, which forgets them.
            let made = logins::made(&app);
            runtime.block_on(async {
                let settled = draining::settle(&app.shared, &worker);
                tokio::join!(serving::close(&app.shared), settled);
                serving::give_back(&app.shared).await;
            });
            // Not earlier: until then, a revocation has connections to cut.
            drop(control);
            app.close();
            lived?;
            launch::await_end(&first, END_WITHIN);
            // This comes first: until then, git on the host may obey the command's changes.
            let left = sweep(check);
            terminal.iter().for_each(|terminal| terminal.reset());
            if let Some(kept) = &app.kept_home {
                kept.end(&sandbox::phantoms(&app), terminal);
            }
            if let Some(terminal) = terminal {
                summary::print_ended(terminal, &app);
                summary::print_refused(terminal, &app);
                summary::print_unsigned(terminal, &app);
                proposals::print_waiting(terminal, &app);
                logins::offer(runtime, &app, &made, terminal);
                summary::print_left(terminal, &left, last_run::list().as_deref());
            }
            Ok(Code::Ok)
        }
        Err(failure) => {
            // If the launcher has exited meanwhile, no process receives this. It reads this only
            // when it expects an answer, so the socket stays open until then.
            if gateway.refuse(&failure.sent()).is_ok() {
                runtime.block_on(sandbox::gone(gateway));
            }
            sweep(check.or_else(|| RepositoryCheck::adopt(std::io::stdout())));
            Ok(Code::Failed)
        }
    }
}
