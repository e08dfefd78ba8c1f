//! Ports of the sandbox that would lead to the gateway itself, or nowhere.

use std::iter::once;
use std::net::{IpAddr, SocketAddr};

use gateway_credential::StoreSettings;
use gateway_message::{Origin, OriginPattern};
use gateway_origin::OriginRule;
use ipnet::IpNet;

use super::Config;
use super::diagnostic::Hint;
use super::origin::is_local;

/// Returns the ports that would lead the workload to the gateway itself, or the gateway to the
/// workload, or nowhere.
pub(super) fn contradictions(config: &Config) -> Vec<(String, Hint)> {
    let (host, publish) = (&config.sandbox.host_port, &config.sandbox.publish);
    let published = |port| publish.iter().any(|one| one.address.port() == port);
    let own_port = |port| {
        let own = own_port(config, port);
        own.or_else(|| published(port).then_some("a published port"))
    };
    let own = host.iter().filter_map(|port| {
        let what = own_port(*port)?;
        let hint = hint!("the gateway has {what} there, which is not for the sandbox";
            "name the port of the service that the sandbox needs");
        Some((
            format!("the sandbox would reach port {port} of the host"),
            hint,
        ))
    });
    let answers = publish.iter().filter_map(|one| {
        let port = one.address.port();
        let what = self::own_port(config, port).or_else(|| lends_to(config, port))?;
        let hint = hint!("the gateway has {what} there, and the command would answer as it";
            "publish at another port of the host");
        Some((
            format!("the sandbox would serve port {port} of the host"),
            hint,
        ))
    });
    let twice = host.iter().enumerate();
    let twice = twice.filter(|(at, port)| host[..*at].contains(port));
    let twice = twice.map(|(_, port)| {
        let hint = hint!("it is named before"; "name it once");
        (format!("the port {port} of the host is named twice"), hint)
    });
    // One complaint for each port is enough.
    let is_host = |port| host.contains(&port) && own_port(port).is_none();
    let inside = publish.iter().filter(|one| is_host(one.inside));
    let inside = inside.map(|one| {
        let hint = hint!("port of the sandbox would be the host's service and the command's own server";
            "publish another port of the sandbox");
        (
            format!("port {} is published and a host port", one.inside),
            hint,
        )
    });
    own.chain(answers).chain(twice).chain(inside).collect()
}

/// Returns which part of the gateway itself has a port of the host: it listens there, or it trusts
/// who does.
fn own_port(config: &Config, port: u16) -> Option<&'static str> {
    let is_here = |server: &Origin| is_here(config, server, port);
    let at = |address: &SocketAddr| is_local(*address) && address.port() == port;
    let mut stores = config.stores.iter().flat_map(StoreSettings::all_servers);
    let mut exports = config.exports.iter().map(|export| &export.server);
    let logins = config.logins.iter().flat_map(|one| {
        let issuers = one.login.issuer.iter();
        let own = issuers.flat_map(|issuer| once(&issuer.endpoint).chain(&issuer.revocation));
        own.chain(&one.device)
    });
    let jwts = config.listeners.iter();
    let jwts = jwts.filter_map(|one| one.jwt.as_ref()?.url());
    let mut proxies = config.proxies().map(|proxy| &proxy.authority);
    Some(match () {
        () if stores.any(|one| is_here(&one)) => "a store of its secrets",
        () if exports.any(is_here) => "the collector of its records",
        () if config.webhooks().any(|one| is_here(&one.server)) => "its webhook",
        () if logins.chain(jwts).any(|one| is_here(&one.origin)) => "an issuer of tokens",
        () if proxies.any(|to| to.host.is_loopback() && to.port == port) => "its proxy",
        () if config.resolver.servers.iter().any(at) => "its name server",
        () if config.keeps_state_at(port) => "the server of its state",
        () => return listens(config, port),
    })
}

/// Returns what of the gateway listens at a port.
pub(super) fn listens(config: &Config, port: u16) -> Option<&'static str> {
    let at = |address: SocketAddr| address.port() == port;
    let mut listeners = config.listeners.iter();
    match () {
        () if config.control.metrics_address.is_some_and(at) => Some("its metrics"),
        () if config.control.address().is_some_and(at) => Some("its control port"),
        () if listeners.any(|one| one.address.tcp().is_some_and(at)) => Some("a listener"),
        () => None,
    }
}

/// Whether the rule for an origin lifts the floor for the control port, so that a session could
/// reach it.
pub(super) fn opens_control(config: &Config, rule: &OriginRule) -> bool {
    let Some(control) = config.control.address() else {
        return false;
    };
    let own = control.ip().to_canonical();
    // Which addresses a wildcard stands for is not known here.
    let is_it = |address: IpAddr| own.is_unspecified() || address.to_canonical() == own;
    let mut networks = rule.addresses.iter();
    match rule.connect {
        Some(to) => to.port() == control.port() && is_it(to.ip()),
        None => {
            let within = |network: &IpNet| own.is_unspecified() || network.contains(&own);
            rule.matches.port == control.port() && networks.any(within)
        }
    }
}

/// Returns what the gateway reaches for a workload at a port of this machine's loopback, and may
/// lend a credential to.
fn lends_to(config: &Config, port: u16) -> Option<&'static str> {
    let mut fixed = config.origins.iter().filter_map(|one| one.rule.connect);
    let credentials = config.credentials.iter().flat_map(|one| one.own_origins());
    let tokens = config.logins.iter().flat_map(|one| &one.login.tokens);
    let mut lent = credentials.chain(tokens.flat_map(|one| one.origins.clone()));
    let is_lent = lent.any(|one: OriginPattern| one.is_loopback() && one.port == port);
    let is_fixed = fixed.any(|address| is_local(address) && address.port() == port);
    (is_lent || is_fixed).then_some("an origin")
}

/// Whether a server is reached at a port of this machine's loopback.
fn is_here(config: &Config, server: &Origin, port: u16) -> bool {
    let rules = config.origins.iter().map(|one| &one.rule);
    let mut fixed = rules.filter_map(|rule| rule.connect.filter(|_| rule.matches.matches(server)));
    let Origin { authority, .. } = server;
    authority.host.is_loopback() && authority.port == port
        || fixed.any(|address| is_local(address) && address.port() == port)
}

#[cfg(test)]
mod tests {
    use super::super::port::published;
    use super::*;

    #[test]
    fn the_gateways_own_ports_are_no_ports_for_the_sandbox() {
        let mut config = Config::default();
        config.sandbox.host_port = vec![9100, 3000, 5432, 5432, 80];
        config.sandbox.publish = ["3000", "8080:80"]
            .map(|text| published(text).unwrap())
            .into();
        config.control.metrics_address = Some("127.0.0.1:9100".parse().unwrap());
        let found = contradictions(&config).into_iter().map(|(what, _)| what);
        let found: Vec<String> = found.collect();
        assert!(found[0].contains("9100"), "{found:?}");
        assert!(found[1].contains("3000"), "{found:?}");
        assert!(
            found[2].contains("5432 of the host is named twice"),
            "{found:?}"
        );
        assert!(
            found[3].contains("port 80 is published and a host port"),
            "{found:?}"
        );
        assert_eq!(found.len(), 4);
    }

    /// What is complained of where the sandbox has ports, as `host_port` and as `publish`.
    fn refused(file: &str, port: u16) -> [usize; 2] {
        let mut config = Config::from_str(file, "gateway.toml".as_ref()).unwrap();
        let mut found = |host: &[u16], publish: &[String]| {
            config.sandbox.host_port = host.into();
            let publish = publish.iter().map(|text| published(text).unwrap());
            config.sandbox.publish = publish.collect();
            contradictions(&config).len()
        };
        [
            found(&[port], &[]),
            found(&[], &[format!("0.0.0.0:{port}:3000")]),
        ]
    }

    #[test]
    fn a_port_at_which_the_gateway_trusts_who_answers_is_no_port_of_the_sandbox() {
        let webhook = |url: &str| format!("[[notify]]\nurl = \"{url}\"\nkey = \"env:PATH\"\n");
        let connect = |origin: &str| {
            format!("[[origin]]\nmatch = \"{origin}\"\nconnect = \"127.0.0.1:4000\"\n")
        };
        let led = webhook("https://ask.test/") + &connect("https://ask.test");
        for own in [
            &*webhook("http://127.0.0.1:4000/ask"),
            &webhook("http://localhost:4000"),
            &webhook("http://[::1]:4000/"),
            &led,
            "[[origin]]\nmatch = \"*\"\nvia = \"http://127.0.0.1:4000\"\n",
            "[resolver]\nservers = [\"127.0.0.1:4000\"]\n",
            "[[export]]\nurl = \"http://127.0.0.1:4000\"\n",
        ] {
            assert_eq!(refused(own, 4000), [1, 1], "{own}");
            assert_eq!(refused(own, 4001), [0, 0], "{own}");
        }
        // An operator may open an origin of this machine to the sandbox, which is lent nothing
        // there, but not let it answer as the origin.
        assert_eq!(refused(&connect("https://a.test"), 4000), [0, 1]);
        let away = webhook("https://ask.test:4000/");
        assert_eq!(refused(&away, 4000), [0, 0]);
    }
}
