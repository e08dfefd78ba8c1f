//! The reason code: an enum and its lookups, generated from the table in `reason.rs`.

crate::words! {
    /// The side at fault when an exchange is refused or cut.
    pub enum Blame {
        /// The workload sent something unacceptable.
        Client = "client",
        /// A policy refused.
        Policy = "policy",
        /// A credential was unavailable or unusable.
        Credential = "credential",
        /// The server failed or sent something invalid.
        Origin = "origin",
        /// The gateway itself failed.
        Gateway = "gateway",
    }
}

/// Generates the enum and its lookups from the table.
macro_rules! reasons {
    ($($name:ident $code:literal $status:ident $blame:ident $kind:literal $means:literal $next:literal)*) => {
        $crate::words! {
            /// Why an exchange was refused or cut.
            #[expect(missing_docs, reason = "the code beside each name says it")]
            pub enum ReasonCode {
                $($name = $code,)*
            }
        }

        impl ReasonCode {
            /// Returns the status of the refusal.
            pub const fn status(self) -> StatusCode {
                match self {
                    $(Self::$name => StatusCode::$status,)*
                }
            }

            /// Returns the side at fault.
            pub const fn blame(self) -> Blame {
                match self {
                    $(Self::$name => Blame::$blame,)*
                }
            }

            /// Returns the error type for `Proxy-Status` (RFC 9209 §2.3).
            pub const fn proxy_error(self) -> &'static str {
                match self {
                    $(Self::$name => $kind,)*
                }
            }

            /// Returns a sentence that says what happened.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $means,)*
                }
            }

            /// Returns the next step, and who takes it. `HOST`, `ADDRESS`, `ID` and `SESSION` are
            /// placeholders for the values of a refusal.
            pub const fn next_step(self) -> &'static str {
                match self {
                    $(Self::$name => $next,)*
                }
            }
        }

        impl ReasonCode {
            /// Whether a client should not repeat the same request: it would be refused again, or
            /// may have been processed.
            pub fn is_final(self) -> bool {
                !matches!(self.status().as_u16(), 408 | 429 | 502..=504) || self.may_be_processed()
            }

            /// Whether the server may have processed the request.
            pub fn may_be_processed(self) -> bool {
                matches!(self, Self::NoAnswer | Self::Timeout)
            }

            /// Returns the next step for the user, who looks at a refusal outside the sandbox.
            pub fn step_for_operator(self, to: &str, id: &str) -> String {
                let step = self.next_step_for(to, id);
                let Some(asked) = step.strip_prefix("Ask your user to ") else {
                    return step;
                };
                let (first, rest) = asked.split_at(1);
                first.to_uppercase() + rest
            }

            /// Returns the next step for one refusal. `to` is the host, with its port if that is
            /// not the usual one. An empty `to` leaves `HOST` as it is.
            pub fn next_step_for(self, to: &str, id: &str) -> String {
                let step = self.next_step().replace(" ID`", &format!(" {id}`"));
                if to.is_empty() {
                    return step;
                }
                let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
                let is_bare = to.parse::<std::net::Ipv6Addr>().is_ok();
                let named = to.rsplit_once(':').filter(|(_, port)| is_port(port) && !is_bare);
                let host = named.map_or(to, |(host, _)| host);
                let address = host.trim_matches(['[', ']']);
                let step = match address.parse::<std::net::IpAddr>() {
                    Ok(_) => step.replace("ADDRESS", address),
                    Err(_) => step,
                };
                // The host serves https at a port of its own, so the port in `to` is left out.
                let step = step.replace("https://HOST/", &format!("https://{host}/"));
                step.replace("HOST", to)
            }
        }

    };
}

pub(crate) use reasons;
