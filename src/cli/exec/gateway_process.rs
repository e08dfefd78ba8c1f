//! A run in its gateway process, the only process that reads secrets; and the report at its end.

use std::fs::File;
use std::sync::Arc;

use tokio::runtime::Runtime;

use crate::app::process::{drain as draining, serving};
use crate::app::{App, Code, Context as _, Failure, Terminal, audit_heads, sandbox};
use crate::cli::credential::logins;
use crate::cli::exec::summary;
use crate::cli::log::archive;
use crate::cli::{last_run, proposals};
use crate::launch::enroll::GatewayEnd;
use crate::launch::repository::RepositoryCheck;

/// Runs the data path of one sandbox until its end; `begun` once the command may run. Then, if
/// there is a terminal, prints the refusals.
///
/// # Errors
/// Returns a [`Failure`] if there is no runtime, or if this process cannot leave the terminal. Any
/// other failure is sent to the launcher, which prints it.
pub fn serve_on(
    runtime: &Runtime,
    gateway: GatewayEnd,
    app: Result<impl Into<Arc<App>>, Failure>,
    begun: impl FnOnce(&App),
    terminal: Option<&Terminal>,
) -> Result<Code, Failure> {
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
            let before = app.shared.log.head();
            begun(&app);
            runtime.spawn(app.clone().watch(sandbox::tell));
            let lived = runtime.block_on(sandbox::live(first, &app, terminal));
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
            // A log without a record but of its end could lose nothing else.
            let more = app.shared.log.head().zip(before);
            if more.is_some_and(|(now, before)| now.seq() > before.seq() + 1) {
                audit_heads::keep_last(&app.shared.log);
            }
            lived?;
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
            // The rest is nobody's concern, and who reads the error output waits for its end.
            let _ = File::open("/dev/null").map(rustix::stdio::dup2_stderr);
            let _ = gateway.done();
            if app.config.audit.path.is_none() {
                archive::prune_kept();
            }
            Ok(Code::Ok)
        }
        Err(failure) => {
            // If the launcher has exited meanwhile, no process receives this. It reads this only
            // when it expects an answer, so the socket stays open until then.
            if gateway.refuse(&failure.sent()).is_ok() {
                gateway.ended();
            }
            sweep(check.or_else(|| RepositoryCheck::adopt(std::io::stdout())));
            Ok(Code::Failed)
        }
    }
}
