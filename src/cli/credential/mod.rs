//! Commands about secrets and logins.

pub(crate) mod login;
pub(crate) mod logins;
pub(crate) mod presets;
pub(crate) mod secret;

use clap::Subcommand;

use crate::app::process::serving;
use crate::app::{Code, ConfigFile, Failure, Terminal};
use login::AddLogin;
use logins::{ForgetLogin, LoginName};

/// The commands about logins.
#[derive(Subcommand)]
pub(crate) enum LoginCommand {
    Add(AddLogin),
    /// List the logins that the gateway holds or finds in programs' files
    List(ConfigFile),
    /// Keep what was logged in to in a sandbox: later runs can have it, also in other projects
    Keep {
        #[command(flatten)]
        login: LoginName,
        /// The one that is meant, if several of the name wait, as `gateway login list` shows it
        #[arg(long, value_name = "ID")]
        grant: Option<String>,
    },
    /// Forget what is kept, and end it at its issuer, if that takes it
    Forget(ForgetLogin),
}

impl LoginCommand {
    pub(crate) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        serving::harden()?;
        let runtime = serving::runtime()?;
        runtime.block_on(async {
            match self {
                Self::Add(command) => command.run(terminal).await,
                Self::List(named) => logins::list(&logins::config(&named)?, terminal).await,
                Self::Keep { login, grant } => login.keep(grant, terminal).await,
                Self::Forget(named) => named.run(terminal).await,
            }
        })?;
        Ok(Code::Ok)
    }
}
