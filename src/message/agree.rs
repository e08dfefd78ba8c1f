//! Checks that every claim about a request's destination names the same one.

use http::header::HOST;
use http::{HeaderMap, Uri, Version};

use super::authority::{Authority, AuthorityMalformed};
use super::host::Host;
use super::{Origin, Scheme};

/// The claims that a connection made before its first request.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionClaims<'a> {
    /// The scheme: [`Scheme::Https`] exactly if the gateway terminated TLS on this connection.
    pub scheme: Scheme,
    /// The name in the ClientHello.
    pub sni: Option<&'a Host>,
    /// The target of CONNECT or SOCKS.
    pub tunnel: Option<&'a Authority>,
    /// The original destination port, if the connection was captured instead of made to a proxy
    /// port.
    pub port: Option<u16>,
}

gateway_names::faults! {
    /// Why the claims about a request's destination do not agree.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
    pub enum Disagreement {
        /// This listener does not allow a target of this form.
        TargetForm = TargetForm "the request target has a form that does not fit",
        /// The target's scheme is not that of the connection, or one that the gateway does not
        /// support.
        Scheme = Scheme "the scheme is not the connection's",
        /// No host, an empty one, or two.
        HostCount = HostCount "there is not exactly one host",
        /// A malformed host or port.
        Malformed(#[from] AuthorityMalformed) = inner transparent,
        /// An absolute-form target and `Host` differ.
        HostMismatch = HostMismatch "the request target and host differ",
        /// HTTP/2's `:authority` and `host` differ.
        AuthorityHostConflict = AuthorityHostConflict "the authority and host differ",
        /// TLS without SNI, for a host that is a name.
        NoSni = NoSni "the connection names no server",
        /// The tunnel and the ClientHello name different hosts.
        SniTunnelMismatch = SniConnectMismatch "the tunnel and the server name differ",
        /// The path begins with no alias of a `base` listener.
        Alias = Alias "the path begins with no alias of this listener",
        /// A web page sends a request through a `base` listener.
        Browser = Browser "a browser asks, or for another name than the listener's",
        /// The request is for another host or port than the connection.
        Misdirected = AuthorityMismatch "the request is for another authority than the connection",
    }
}

/// Returns the one origin that the connection and the request agree on.
///
/// Compares claims in canonical form. A missing port means the scheme's default port, so it
/// conflicts with a connection to another port. A destination *address* is not a claim: the gateway
/// never dials it, but resolves the agreed name itself.
///
/// # Errors
/// [`Disagreement`] by cause.
pub fn agree(
    connection: &ConnectionClaims<'_>,
    version: Version,
    uri: &Uri,
    fields: &HeaderMap,
) -> Result<Origin, Disagreement> {
    check_form(connection, uri)?;
    agree_tls(connection.sni, connection.tunnel)?;
    let authority = claimed(connection, version, uri, fields)?;
    check_connection(connection, &authority)?;
    Ok(Origin {
        scheme: connection.scheme,
        authority,
    })
}

/// Checks that the tunnel and the ClientHello agree, before TLS is answered.
///
/// # Errors
/// [`Disagreement::SniTunnelMismatch`] if both name a host, and the hosts differ. In a tunnel to an
/// *address* (from SOCKS4 clients and clients that resolve names themselves) the server name
/// decides, as in a captured connection.
pub fn agree_tls(sni: Option<&Host>, tunnel: Option<&Authority>) -> Result<(), Disagreement> {
    match (sni, tunnel) {
        (Some(sni), Some(tunnel)) if tunnel.host.ip().is_none() && tunnel.host != *sni => {
            Err(Disagreement::SniTunnelMismatch)
        }
        _ => Ok(()),
    }
}

/// Checks the form of the target (RFC 9112 §3.2).
fn check_form(connection: &ConnectionClaims<'_>, uri: &Uri) -> Result<(), Disagreement> {
    // Authority-form has an authority and no scheme. Asterisk-form is the path `*`, which names no
    // resource.
    let form_fits =
        uri.scheme().is_some() == uri.authority().is_some() && uri.path().starts_with('/');
    // On a proxy port outside a tunnel, only absolute-form names a destination.
    let placed = connection.sni.is_some()
        || connection.tunnel.is_some()
        || connection.port.is_some()
        || uri.authority().is_some();
    if !form_fits || !placed {
        return Err(Disagreement::TargetForm);
    }
    match uri.scheme_str() {
        Some(scheme) if scheme != connection.scheme.as_str() => Err(Disagreement::Scheme),
        _ => Ok(()),
    }
}

/// The destination that the request itself claims: its target's authority and its `Host`, which
/// must agree.
fn claimed(
    connection: &ConnectionClaims<'_>,
    version: Version,
    uri: &Uri,
    fields: &HeaderMap,
) -> Result<Authority, Disagreement> {
    let mut hosts = fields.get_all(HOST).iter().map(|value| value.as_bytes());
    let host = hosts.next();
    if hosts.next().is_some() || host.is_some_and(<[u8]>::is_empty) {
        return Err(Disagreement::HostCount);
    }
    let target = uri
        .authority()
        .map(|authority| authority.as_str().as_bytes());
    let is_http2 = version >= Version::HTTP_2;
    match (target, host) {
        (None, Some(host)) => read(connection, host),
        // RFC 9112 §3.2: a request without Host is refused, absolute-form or not.
        (_, None) if !is_http2 => Err(Disagreement::HostCount),
        (Some(target), None) => read(connection, target),
        (Some(target), Some(host)) => {
            let target = read(connection, target)?;
            let mismatch = if is_http2 {
                Disagreement::AuthorityHostConflict
            } else {
                Disagreement::HostMismatch
            };
            if target == read(connection, host)? {
                Ok(target)
            } else {
                Err(mismatch)
            }
        }
        (None, None) => Err(Disagreement::HostCount),
    }
}

/// Parses a host. Most requests spell it exactly as the ClientHello did. The parsed host is then
/// shared.
fn read(connection: &ConnectionClaims<'_>, bytes: &[u8]) -> Result<Authority, Disagreement> {
    let port = connection.scheme.default_port();
    match connection.sni {
        Some(sni) if sni.ip().is_none() && sni.as_str().as_bytes() == bytes => Ok(Authority {
            host: sni.clone(),
            port,
        }),
        _ => Ok(Authority::parse(bytes, Some(port))?),
    }
}

fn check_connection(
    connection: &ConnectionClaims<'_>,
    authority: &Authority,
) -> Result<(), Disagreement> {
    let sni_fits = match (connection.scheme, connection.sni) {
        (_, Some(sni)) => *sni == authority.host,
        // The ClientHello never holds an address (RFC 6066 §3), so a missing SNI claims nothing for
        // an address.
        (Scheme::Https, None) if authority.host.ip().is_none() => return Err(Disagreement::NoSni),
        (_, None) => true,
    };
    let tunnel_fits = connection.tunnel.is_none_or(|tunnel| {
        let host_fits = tunnel.host == authority.host
            || (tunnel.host.ip().is_some() && authority.host.ip().is_none());
        host_fits && tunnel.port == authority.port
    });
    let port_fits = connection.port.is_none_or(|port| port == authority.port);
    if sni_fits && tunnel_fits && port_fits {
        Ok(())
    } else {
        Err(Disagreement::Misdirected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Case {
        scheme: Scheme,
        sni: &'static str,
        tunnel: &'static str,
        port: u16,
        version: Version,
        uri: &'static str,
        hosts: &'static [&'static str],
    }

    /// A transparent TLS connection to `good`. Each test changes the part it tests.
    const TLS: Case = Case {
        scheme: Scheme::Https,
        sni: "good",
        tunnel: "",
        port: 443,
        version: Version::HTTP_11,
        uri: "/",
        hosts: &["good"],
    };
    const CONNECT: Case = Case {
        tunnel: "good:443",
        port: 0,
        ..TLS
    };
    const CLEAR: Case = Case {
        scheme: Scheme::Http,
        sni: "",
        port: 80,
        ..TLS
    };
    const PROXY: Case = Case {
        port: 0,
        uri: "http://good/",
        ..CLEAR
    };
    const H2: Case = Case {
        version: Version::HTTP_2,
        uri: "https://good/",
        hosts: &[],
        ..TLS
    };

    impl Case {
        fn outcome(&self) -> String {
            let host =
                |text: &str| (!text.is_empty()).then(|| Host::parse(text.as_bytes()).unwrap());
            let (sni, tunnel) = (
                host(self.sni),
                Authority::parse(self.tunnel.as_bytes(), None).ok(),
            );
            let connection = ConnectionClaims {
                scheme: self.scheme,
                sni: sni.as_ref(),
                tunnel: tunnel.as_ref(),
                port: (self.port != 0).then_some(self.port),
            };
            let fields = self
                .hosts
                .iter()
                .map(|host| (HOST, host.parse().unwrap()))
                .collect();
            match agree(
                &connection,
                self.version,
                &self.uri.parse().unwrap(),
                &fields,
            ) {
                Ok(origin) => origin.to_string(),
                Err(e) => format!("{} {}", e.reason().status().as_u16(), e.reason().as_str()),
            }
        }
    }

    #[test]
    fn claims_that_agree_give_the_origin() {
        for (case, origin) in [
            (TLS, "https://good:443"),
            (
                Case {
                    hosts: &["GOOD.:443"],
                    ..TLS
                },
                "https://good:443",
            ),
            (CONNECT, "https://good:443"),
            (
                Case {
                    uri: "https://good:443/",
                    ..CONNECT
                },
                "https://good:443",
            ),
            (
                Case {
                    tunnel: "good:8443",
                    hosts: &["good:8443"],
                    ..CONNECT
                },
                "https://good:8443",
            ),
            (
                Case {
                    port: 8443,
                    hosts: &["good:8443"],
                    ..TLS
                },
                "https://good:8443",
            ),
            (CLEAR, "http://good:80"),
            (PROXY, "http://good:80"),
            (
                Case {
                    uri: "http://good:8080/",
                    hosts: &["good:8080"],
                    ..PROXY
                },
                "http://good:8080",
            ),
            (H2, "https://good:443"),
            (
                Case {
                    hosts: &["good"],
                    ..H2
                },
                "https://good:443",
            ),
            (
                Case {
                    uri: "/",
                    hosts: &["good"],
                    ..H2
                },
                "https://good:443",
            ),
            (
                Case {
                    uri: "//evil/x",
                    ..TLS
                },
                "https://good:443",
            ),
            (
                Case {
                    tunnel: "192.0.2.7:443",
                    ..CONNECT
                },
                "https://good:443",
            ),
            (
                Case {
                    sni: "",
                    hosts: &["192.0.2.7"],
                    ..TLS
                },
                "https://192.0.2.7:443",
            ),
        ] {
            assert_eq!(case.outcome(), origin);
        }
    }

    #[test]
    fn a_request_for_another_authority_is_misdirected() {
        for case in [
            Case {
                hosts: &["evil"],
                ..TLS
            },
            Case {
                uri: "https://evil/",
                ..H2
            },
            Case {
                hosts: &["good:8443"],
                ..CONNECT
            },
            Case {
                tunnel: "good:8443",
                ..CONNECT
            },
            Case { port: 8443, ..TLS },
            Case {
                port: 8080,
                ..CLEAR
            },
            Case {
                scheme: Scheme::Http,
                sni: "",
                tunnel: "good:80",
                hosts: &["evil"],
                ..CONNECT
            },
            Case {
                uri: "https://evil/",
                hosts: &["evil"],
                ..CONNECT
            },
            Case {
                hosts: &["192.0.2.7"],
                ..TLS
            },
            Case {
                sni: "",
                tunnel: "192.0.2.7:443",
                hosts: &["192.0.2.8"],
                ..CONNECT
            },
        ] {
            assert_eq!(case.outcome(), "421 authority_mismatch");
        }
        assert_eq!(
            Case {
                sni: "evil",
                ..CONNECT
            }
            .outcome(),
            "421 sni_connect_mismatch"
        );
        assert_eq!(
            Case {
                sni: "evil",
                hosts: &["evil"],
                ..CONNECT
            }
            .outcome(),
            "421 sni_connect_mismatch"
        );
        assert_eq!(Case { sni: "", ..TLS }.outcome(), "421 no_sni");
        assert_eq!(Case { sni: "", ..CONNECT }.outcome(), "421 no_sni");
    }

    #[test]
    fn a_request_that_contradicts_itself_is_malformed() {
        for (case, outcome) in [
            (
                Case {
                    hosts: &["evil"],
                    ..H2
                },
                "400 authority_host_conflict",
            ),
            (
                Case {
                    hosts: &["good", "good"],
                    ..H2
                },
                "400 host_count",
            ),
            (Case { uri: "/", ..H2 }, "400 host_count"),
            (
                Case {
                    uri: "https://evil/",
                    ..TLS
                },
                "400 host_mismatch",
            ),
            (
                Case {
                    uri: "http://evil/",
                    ..PROXY
                },
                "400 host_mismatch",
            ),
            (
                Case {
                    uri: "http://evil/",
                    ..CLEAR
                },
                "400 host_mismatch",
            ),
            (
                Case {
                    hosts: &["evil"],
                    ..PROXY
                },
                "400 host_mismatch",
            ),
            (
                Case {
                    uri: "https://good/",
                    ..PROXY
                },
                "400 scheme",
            ),
            (
                Case {
                    uri: "http://good/",
                    ..TLS
                },
                "400 scheme",
            ),
            (
                Case {
                    uri: "http://good/",
                    ..H2
                },
                "400 scheme",
            ),
            (
                Case {
                    uri: "ftp://good/",
                    ..PROXY
                },
                "400 scheme",
            ),
            (Case { uri: "/", ..PROXY }, "400 target_form"),
            (
                Case {
                    uri: "evil:443",
                    ..TLS
                },
                "400 target_form",
            ),
            (Case { uri: "*", ..TLS }, "400 target_form"),
            (
                Case {
                    uri: "evil:443",
                    ..CONNECT
                },
                "400 target_form",
            ),
            (Case { hosts: &[], ..TLS }, "400 host_count"),
            (
                Case {
                    hosts: &[],
                    ..PROXY
                },
                "400 host_count",
            ),
            (
                Case {
                    hosts: &[""],
                    ..TLS
                },
                "400 host_count",
            ),
            (
                Case {
                    hosts: &["good", "good"],
                    ..TLS
                },
                "400 host_count",
            ),
            (
                Case {
                    hosts: &["good", "evil"],
                    ..TLS
                },
                "400 host_count",
            ),
            (
                Case {
                    hosts: &["a@good"],
                    ..TLS
                },
                "400 host_charset",
            ),
            (
                Case {
                    uri: "https://a@good/",
                    ..TLS
                },
                "400 host_charset",
            ),
            (
                Case {
                    hosts: &["good:0443"],
                    ..TLS
                },
                "400 port",
            ),
            (
                Case {
                    uri: "https://good:99999/",
                    ..TLS
                },
                "400 port",
            ),
        ] {
            assert_eq!(case.outcome(), outcome, "{} {:?}", case.uri, case.hosts);
        }
    }
}
