//! `gateway sidecar rules`: the kernel's rules that redirect connections to a `transparent`
//! listener, and refuse everything else.

use std::io;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{ArgGroup, Args};
use serde_json::json;

use crate::app::{Code, Failure, Terminal};
use crate::launch::sidecar::{SidecarMode, SidecarRules};

/// Install, show or remove the rules that capture connections in this network namespace
#[derive(Args)]
#[command(group(ArgGroup::new("what").required(true)))]
pub(crate) struct RulesCommand {
    /// How connections are captured: of this namespace (redirect, tproxy), or of what comes in by
    /// interfaces (router)
    #[arg(long, value_parser = modes())]
    mode: SidecarMode,
    /// The port of the `transparent` listener
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// The port of the `dns` listener [default: DNS is refused]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    dns_port: Option<u16>,
    /// The user that the gateway runs as, who is not captured
    #[arg(long, value_name = "UID")]
    exempt_uid: Option<u32>,
    /// An interface that leads to a sandbox; may be given more than once
    #[arg(long = "interface", value_name = "DEVICE", value_parser = interface)]
    interfaces: Vec<String>,
    /// Install the rules, in place of those for this port
    #[arg(long, group = "what")]
    apply: bool,
    /// Remove the rules for this port
    #[arg(long, group = "what")]
    remove: bool,
    /// Say whether exactly these rules are installed
    #[arg(long, group = "what")]
    check: bool,
    /// Print the rules for `nft -f`
    #[arg(long, group = "what")]
    print: bool,
}

impl RulesCommand {
    pub(super) fn run(self, terminal: &Terminal) -> Result<Code, Failure> {
        let rules = self.rules()?;
        if self.print {
            let text = rules.text();
            terminal.answer(&json!({ "nft": text }), text.trim_end());
        } else if self.check {
            let are_there = rules
                .is_applied()
                .map_err(|error| refused("read", &error))?;
            let words = if are_there {
                "are installed"
            } else {
                "are missing, or are others"
            };
            terminal.answer(
                &json!({ "installed": are_there }),
                format!("the rules {words}"),
            );
            if !are_there {
                return Ok(Code::Failed);
            }
        } else if self.apply {
            rules
                .apply()
                .map_err(|error| refused("installed", &error))?;
            terminal.answer(&json!({ "installed": true }), "the rules are installed");
        } else {
            rules.remove().map_err(|error| refused("removed", &error))?;
            terminal.answer(
                &json!({ "installed": false }),
                "there are no rules for this port",
            );
        }
        Ok(Code::Ok)
    }

    fn rules(&self) -> Result<SidecarRules, Failure> {
        let is_router = self.mode == SidecarMode::Router;
        if is_router == self.interfaces.is_empty() {
            return Err(if is_router {
                Failure::usage("`--mode router` captures what comes in by an interface")
                    .next("name it: `--interface veth0`")
            } else {
                Failure::usage("`--interface` is for `--mode router`")
                    .because("the other modes capture what this network namespace sends")
                    .next("leave it out, or write `--mode router`")
            });
        }
        if is_router && self.exempt_uid.is_some() {
            return Err(Failure::usage("`--exempt-uid` contradicts `--mode router`")
                .because("whatever comes in by the interface is captured")
                .next("leave it out"));
        }
        if !is_router && !self.remove && self.exempt_uid.is_none() {
            return Err(Failure::usage("the gateway itself would be captured")
                .because("it sends from the same network namespace")
                .next("let it run as a user of its own, and name that: `--exempt-uid UID`"));
        }
        if self.dns_port == Some(self.port) {
            return Err(Failure::usage("`--port` and `--dns-port` are the same")
                .next("write the ports of the two listeners"));
        }
        Ok(SidecarRules {
            mode: self.mode,
            port: self.port,
            dns_port: self.dns_port,
            exempt_uid: self.exempt_uid.unwrap_or_default(),
            interfaces: self.interfaces.clone(),
        })
    }
}

/// Reads a `--mode`.
pub(super) fn modes() -> impl clap::builder::TypedValueParser<Value = SidecarMode> {
    let words = SidecarMode::WORDS.map(|(word, _)| word);
    PossibleValuesParser::new(words).try_map(|word| {
        let mut known = SidecarMode::WORDS.into_iter();
        let found = known.find(|(known, _)| *known == word);
        found.map(|(_, mode)| mode).ok_or("an unknown mode")
    })
}

/// Reads the name of an interface, which `nft` and `ip` use unchanged.
fn interface(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..16).contains(&text.len()) && text.bytes().all(fits) {
        Ok(text.to_owned())
    } else {
        Err("write the name of an interface as `ip link` shows it before `@`".to_owned())
    }
}

fn refused(what: &str, error: &io::Error) -> Failure {
    let failure = Failure::new(format!("the rules cannot be {what}")).because(error.to_string());
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::PERM) => failure.next(
            "give this process CAP_NET_ADMIN in the sandbox's network namespace: an init container with `capabilities: {add: [NET_ADMIN]}`, or root",
        ),
        Some(rustix::io::Errno::NETDOWN) => failure.next("`ip link set lo up`"),
        Some(rustix::io::Errno::NOENT) => failure.next(
            "the kernel lacks a part of nf_tables: for `tproxy` and `router` that is nft_tproxy, for `router` also nft_fib_inet and nft_limit, for `redirect` nft_redir and nft_ct",
        ),
        _ => failure.next("`gateway sidecar rules … --print` shows what the kernel was asked for"),
    }
}
