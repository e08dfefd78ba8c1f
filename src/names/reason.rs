//! The reason codes of refusals: one table with everything that depends on a code.
//!
//! A code appears in the response, in the audit log and in `gateway why`. A new code needs a row
//! here and the code that returns it.

use std::fmt;

use http::StatusCode;

/// The side at fault when an exchange is refused or cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blame {
    /// The workload sent something unacceptable.
    Client,
    /// A policy refused.
    Policy,
    /// A credential was unavailable or unusable.
    Credential,
    /// The server failed or sent something invalid.
    Origin,
    /// The gateway itself failed.
    Gateway,
}

impl Blame {
    /// Returns the side as written in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Policy => "policy",
            Self::Credential => "credential",
            Self::Origin => "origin",
            Self::Gateway => "gateway",
        }
    }
}

/// Generates the enum and its lookups from the table.
macro_rules! reasons {
    ($($name:ident $code:literal $status:ident $blame:ident $kind:literal $next:literal)*) => {
        /// Why an exchange was refused or cut.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[expect(missing_docs, reason = "the code beside each name says it")]
        pub enum ReasonCode {
            $($name,)*
        }

        impl ReasonCode {
            /// Every code, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the code as written in responses and records.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)*
                }
            }

            /// Returns the status of the refusal.
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self {
                    $(Self::$name => StatusCode::$status,)*
                }
            }

            /// Returns the side at fault.
            #[must_use]
            pub const fn blame(self) -> Blame {
                match self {
                    $(Self::$name => Blame::$blame,)*
                }
            }

            /// Returns the error type for `Proxy-Status` (RFC 9209 §2.3).
            #[must_use]
            pub const fn proxy_error(self) -> &'static str {
                match self {
                    $(Self::$name => $kind,)*
                }
            }

            /// Returns a sentence on what to do about it; empty if the cause already says it.
            #[must_use]
            pub const fn next_step(self) -> &'static str {
                match self {
                    $(Self::$name => $next,)*
                }
            }
        }
    };
}

reasons! {
// The request as it was sent.
AuthorityHostConflict "authority_host_conflict" BAD_REQUEST Client "http_request_error" ""
AuthorityMismatch "authority_mismatch" MISDIRECTED_REQUEST Client "http_request_error" ""
ConnectNested "connect_nested" METHOD_NOT_ALLOWED Client "http_request_error" ""
Expectation "expectation" EXPECTATION_FAILED Client "http_request_error" ""
FieldAlias "field_alias" BAD_REQUEST Client "http_request_error" ""
FieldDuplicate "field_duplicate" BAD_REQUEST Client "http_request_error" ""
FieldName "field_name" BAD_REQUEST Client "http_request_error"
    "The operator can allow `_` and `.` for an origin with `underscores` in `[[origin]]`."
FieldOverride "field_override" BAD_REQUEST Client "http_request_error" ""
FieldValue "field_value" BAD_REQUEST Client "http_request_error" ""
FieldsTooLarge "fields_too_large" REQUEST_HEADER_FIELDS_TOO_LARGE Client "http_request_error" ""
Framing "framing" BAD_REQUEST Client "http_request_error" ""
HostCharset "host_charset" BAD_REQUEST Client "http_request_error" ""
HostCount "host_count" BAD_REQUEST Client "http_request_error" ""
HostIdna "host_idna" BAD_REQUEST Client "http_request_error" ""
HostMismatch "host_mismatch" BAD_REQUEST Client "http_request_error" ""
HostSyntax "host_syntax" BAD_REQUEST Client "http_request_error" ""
HostZone "host_zone" BAD_REQUEST Client "http_request_error" ""
Method "method" BAD_REQUEST Client "http_request_error" ""
MethodOverride "method_override" BAD_REQUEST Client "http_request_error" ""
MethodProhibited "method_prohibited" METHOD_NOT_ALLOWED Client "http_request_error" ""
NoSni "no_sni" MISDIRECTED_REQUEST Client "http_request_error" ""
Path "path" BAD_REQUEST Client "http_request_error" ""
Port "port" BAD_REQUEST Client "http_request_error" ""
Scheme "scheme" BAD_REQUEST Client "http_request_error" ""
SniConnectMismatch "sni_connect_mismatch" MISDIRECTED_REQUEST Client "http_request_error" ""
Syntax "syntax" BAD_REQUEST Client "http_request_error" ""
TargetForm "target_form" BAD_REQUEST Client "http_request_error" ""
TargetLength "target_length" URI_TOO_LONG Client "http_request_error" ""
Trailer "trailer" BAD_REQUEST Client "http_request_error" ""
Upgrade "upgrade" NOT_IMPLEMENTED Client "http_request_error" ""
Version "version" HTTP_VERSION_NOT_SUPPORTED Client "http_request_error" ""

// The connection before there is a request.
Alpn "alpn" BAD_REQUEST Client "http_request_error" ""
ClientIo "client_io" BAD_REQUEST Client "http_request_error" ""
ClientLeft "client_left" BAD_REQUEST Client "http_request_error" ""
ClientTimeout "client_timeout" REQUEST_TIMEOUT Client "http_request_error" ""
ClientSilent "client_silent" REQUEST_TIMEOUT Client "http_request_error"
    "The client sent nothing. The gateway carries HTTP and TLS alone, not what a server begins, such as SMTP, FTP or MySQL."
ConnectionLimit "connection_limit" SERVICE_UNAVAILABLE Client "connection_limit_reached"
    "Open fewer connections at a time; the limits are in `[limits]`."
DnsName "dns_name" FORBIDDEN Policy "http_request_denied"
    "No policy reaches the name: allow it with `--allow HOST` or a Cedar policy."
GatewayStopping "gateway_stopping" SERVICE_UNAVAILABLE Gateway "connection_terminated"
    "The gateway was told to stop, and `drain_timeout` in `[limits]` was over: send the request again."
HelloTooLong "hello_too_long" BAD_REQUEST Client "http_request_error" ""
HostNotPermitted "host_not_permitted" FORBIDDEN Client "http_request_denied" ""
Http2Flood "http2_flood" BAD_REQUEST Client "http_request_error"
    "The client sent too many frames that ask for nothing."
ListenerRemoved "listener_removed" SERVICE_UNAVAILABLE Gateway "connection_terminated"
    "The configuration has the listener no more, and `drain_timeout` in `[limits]` was over: connect to another."
MintFailed "mint_failed" SERVICE_UNAVAILABLE Gateway "proxy_internal_error" ""
MintThrottled "mint_throttled" SERVICE_UNAVAILABLE Client "connection_limit_reached" ""
ProtocolPostgres "protocol_postgres" BAD_REQUEST Client "http_request_error"
    "The gateway carries HTTP and TLS alone, not PostgreSQL."
ProtocolRedis "protocol_redis" BAD_REQUEST Client "http_request_error"
    "The gateway carries HTTP and TLS alone, not Redis."
ProtocolSsh "protocol_ssh" BAD_REQUEST Client "http_request_error"
    "The gateway carries HTTP and TLS alone, not SSH: use an https URL, also for git."
ProxyAuthentication "proxy_authentication" PROXY_AUTHENTICATION_REQUIRED Client "http_request_denied"
    "Send the listener's user and password: see `authentication` of `[[listener]]`."
SessionEnded "session_ended" FORBIDDEN Client "http_request_denied"
    "Its time is over or the operator ended it: a session begins anew with `--fresh`."
SessionLimit "session_limit" SERVICE_UNAVAILABLE Client "connection_limit_reached"
    "Wait until other exchanges of the session end; the limit is in `[limits]`."
SessionPaused "session_paused" SERVICE_UNAVAILABLE Policy "http_request_denied"
    "An operator paused the session: `gateway resume SESSION` lets it go on."
SessionUnknown "session_unknown" FORBIDDEN Client "http_request_denied" ""
SocksCommand "socks_command" BAD_REQUEST Client "http_request_error" ""
SocksMalformed "socks_malformed" BAD_REQUEST Client "http_request_error" ""
TlsHandshake "tls_handshake" BAD_REQUEST Client "http_request_error" ""
UnknownProtocol "unknown_protocol" BAD_REQUEST Client "http_request_error"
    "The gateway carries HTTP and TLS alone."

// Policy.
PolicyDefaultDeny "policy_default_deny" FORBIDDEN Policy "http_request_denied"
    "`gateway policy why ID` prints the policy that would allow it."
PolicyError "policy_error" FORBIDDEN Policy "http_request_denied"
    "A policy could not be evaluated for the request: see `gateway policy why ID`."
PolicyForbids "policy_forbids" FORBIDDEN Policy "http_request_denied"
    "A forbid overrides every permit: narrow it, or remove it."
PolicyUnjudged "policy_unjudged" FORBIDDEN Policy "http_request_denied"
    "A policy could not be evaluated for the request: see `gateway policy why ID`."
Revoked "revoked" FORBIDDEN Policy "http_request_denied"
    "The policies now in force do not allow it: `gateway policy why ID` tells why."

// What the client presents as a credential.
Batch "batch" FORBIDDEN Credential "http_request_denied"
    "Send the requests one by one, or leave `methods` and `path` out of the credential."
CleartextInjection "cleartext_injection" FORBIDDEN Credential "http_request_denied"
    "A secret goes over TLS only: use https."
ContentUnreadable "content_unreadable" FORBIDDEN Credential "http_request_denied"
    "The host takes credentials in such content: send it as UTF-8, and without a content coding."
ForeignCredential "foreign_credential" FORBIDDEN Credential "http_request_denied"
    "Leave it out: this host takes the credentials of the gateway alone (`takes` and `foreign_credential` in `[[credential]]`)."
PhantomCount "phantom_count" FORBIDDEN Credential "http_request_denied"
    "Send the credential once, where its configuration says (`places`)."
PhantomDisguised "phantom_disguised" FORBIDDEN Credential "http_request_denied"
    "Send the credential as it is, in the places that its configuration names (`places`)."
PhantomForeignSession "phantom_foreign_session" FORBIDDEN Credential "http_request_denied"
    "The phantom belongs to another session: start the client with the variables of its own."
PhantomOutOfScope "phantom_out_of_scope" FORBIDDEN Credential "http_request_denied"
    "Send the credential only to the hosts, methods and paths that its configuration names (`origins`)."
PhantomPosition "phantom_position" FORBIDDEN Credential "http_request_denied"
    "Send the credential only in the places that its configuration names (`places`)."

// Signatures.
SignatureAmbiguous "signature_ambiguous" BAD_REQUEST Credential "http_request_denied"
    "Sign with the credential that the environment holds, for the host that the request goes to."
SignatureContent "signature_content" FORBIDDEN Credential "http_request_denied"
    "Send the content that was signed."
SignatureExpired "signature_expired" FORBIDDEN Client "http_request_denied"
    "Sign the request again, with new credentials if they were temporary."
SignatureIncomplete "signature_incomplete" BAD_REQUEST Credential "http_request_denied"
    "Sign with the credential that the environment holds, for the host that the request goes to."
SignatureMalformed "signature_malformed" BAD_REQUEST Credential "http_request_denied"
    "Sign with the credential that the environment holds, for the host that the request goes to."
SignatureMismatch "signature_mismatch" FORBIDDEN Credential "http_request_denied"
    "Sign with the credential that the environment holds, and change nothing afterwards."
SignatureScope "signature_scope" FORBIDDEN Credential "http_request_denied"
    "Sign with the credential that the environment holds, for the host that the request goes to."
SignatureSkew "signature_skew" FORBIDDEN Client "http_request_denied"
    "Set the client's clock."
SigningKey "signing_key" SERVICE_UNAVAILABLE Credential "proxy_internal_error"
    "Ask the operator to look at the gateway's log; the request was not sent."
SigningUnfit "signing_unfit" SERVICE_UNAVAILABLE Credential "proxy_internal_error"
    "Ask the operator to look at the gateway's log; the request was not sent."
SigV4Absent "sigv4_absent" FORBIDDEN Credential "http_request_denied"
    "Sign the request with the session's key, or name its origin in `unsigned`."
SigV4Action "sigv4_action" FORBIDDEN Credential "http_request_denied"
    "The credential is not for this action: see `actions`; what returns credentials needs `credential_actions`."
SigV4Algorithm "sigv4_algorithm" FORBIDDEN Credential "http_request_denied"
    "Sign with the credential that the environment holds, for the host that the request goes to."
SigV4Ambiguous "sigv4_ambiguous" BAD_REQUEST Credential "http_request_denied"
    "Sign with the credential that the environment holds, for the host that the request goes to."
SigV4Content "sigv4_content" FORBIDDEN Credential "http_request_denied"
    "Send the content that was signed."
SigV4Date "sigv4_date" FORBIDDEN Credential "http_request_denied"
    "Sign with the credential that the environment holds, for the host that the request goes to."
SigV4Expiry "sigv4_expiry" BAD_REQUEST Credential "http_request_denied"
    "Sign with the credential that the environment holds, for the host that the request goes to."
SigV4Key "sigv4_key" SERVICE_UNAVAILABLE Credential "proxy_internal_error"
    "Ask the operator to look at the gateway's log; the request was not sent."
SigV4Malformed "sigv4_malformed" BAD_REQUEST Credential "http_request_denied"
    "Sign with the credential that the environment holds, for the host that the request goes to."
SigV4Mismatch "sigv4_mismatch" FORBIDDEN Credential "http_request_denied"
    "Sign with the access key and the secret key that the environment holds, and change nothing afterwards."
SigV4Nested "sigv4_nested" FORBIDDEN Credential "http_request_denied"
    "Sign with the credential that the environment holds, for the host that the request goes to."
SigV4Payload "sigv4_payload" BAD_REQUEST Credential "http_request_denied"
    "Sign with the credential that the environment holds, for the host that the request goes to."
SigV4PostForm "sigv4_post_form" FORBIDDEN Credential "http_request_denied"
    "Sign with the credential that the environment holds, for the host that the request goes to."
SigV4Resource "sigv4_resource" FORBIDDEN Credential "http_request_denied"
    "The credential is not for this bucket or account, or something would be open to everybody: see `buckets` and `accounts`."
SigV4Scope "sigv4_scope" FORBIDDEN Credential "http_request_denied"
    "Sign for the service, region and partition of the host, which must be the credential's: see `regions`, `services` and `endpoints`."
SigV4Streaming "sigv4_streaming" FORBIDDEN Credential "http_request_denied"
    "Send the content that was signed."
SigV4TooLong "sigv4_too_long" FORBIDDEN Credential "http_request_denied"
    "Sign with the credential that the environment holds, for the host that the request goes to."
SigV4Unsigned "sigv4_unsigned" FORBIDDEN Credential "http_request_denied"
    "Sign with the credential that the environment holds, for the host that the request goes to."

// Secrets.
CredentialRemoved "credential_removed" FORBIDDEN Credential "http_request_denied"
    "The operator removed the credential, or changed what its phantom looks like: start the client with the variables that hold now."
CredentialRevoked "credential_revoked" FORBIDDEN Credential "http_request_denied"
    "The operator revoked the credential. It can be used again once its configuration names another secret, or after a restart."
CredentialUnknown "credential_unknown" SERVICE_UNAVAILABLE Credential "proxy_internal_error"
    "Ask the operator to look at the gateway's log; the request was not sent."
MintedUnread "minted_unread" BAD_GATEWAY Origin "http_protocol_error"
    "The service answered with credentials, which are not given on; ask the operator to look at the gateway's log."
MintedUnsafe "minted_unsafe" BAD_GATEWAY Origin "http_protocol_error"
    "The service answered with credentials, which are not given on; ask the operator to look at the gateway's log."
NoRandomness "no_randomness" SERVICE_UNAVAILABLE Gateway "proxy_internal_error"
    "Ask the operator to look at the gateway's log."
SecretGuessed "secret_guessed" FORBIDDEN Client "http_request_denied"
    "Begin another session: of `gateway serve` with a restart. The gateway's log says what happened in this one."
SecretUnavailable "secret_unavailable" SERVICE_UNAVAILABLE Credential "proxy_internal_error"
    "Ask the operator to look at the gateway's log; the request was not sent."
SecretUnsafe "secret_unsafe" SERVICE_UNAVAILABLE Credential "proxy_internal_error"
    "Ask the operator to look at the gateway's log; the request was not sent."

// Content.
ContentBrokeOff "content_broke_off" BAD_REQUEST Client "http_request_error" ""
ContentBudget "content_budget" SERVICE_UNAVAILABLE Gateway "connection_limit_reached"
    "Send less content at a time, or ask the operator to raise `max_buffered_total` in `[limits]`."
ContentTooLong "content_too_long" PAYLOAD_TOO_LARGE Client "http_request_error"
    "Send less content at a time (where a signature covers it: its hash in `x-amz-content-sha256`), or ask the operator to raise `max_buffered_request` in `[limits]`."
DecodingBudget "decoding_budget" SERVICE_UNAVAILABLE Gateway "proxy_internal_error"
    "The session has too many answers in compressed form under way: see `[limits]`."
Encoding "encoding" BAD_GATEWAY Origin "http_response_content_coding_error" ""

// The origin.
Bad101 "bad_101" BAD_GATEWAY Origin "http_upgrade_failed" ""
BadResponse "bad_response" BAD_GATEWAY Origin "http_response_incomplete" ""
ClearText "clear_text" FORBIDDEN Policy "http_request_denied"
    "Use https, or allow clear text by name: `--allow http://HOST`, or `cleartext = true` in `[[origin]]`. No credential goes there."
ConnectTimeout "connect_timeout" GATEWAY_TIMEOUT Origin "connection_timeout"
    "The origin did not answer in time: see `[limits]`."
HandshakeTimeout "handshake_timeout" GATEWAY_TIMEOUT Origin "connection_timeout"
    "The origin did not answer in time: see `[limits]`."
Metadata "metadata" FORBIDDEN Policy "destination_ip_prohibited"
    "Private, loopback and metadata addresses are refused unless the operator excepts them in `[[origin]]`."
NoRoots "no_roots" BAD_GATEWAY Gateway "proxy_configuration_error"
    "The gateway's own settings for the origin do not hold: see `[[origin]]`."
OriginProtocol "origin_protocol" BAD_GATEWAY Origin "http_protocol_error" ""
OriginTls "origin_tls" BAD_GATEWAY Origin "tls_certificate_error"
    "The origin's certificate must be valid for its name; private roots go into `[[origin]] roots`."
OriginTlsSettings "origin_tls_settings" BAD_GATEWAY Gateway "proxy_configuration_error"
    "The gateway's own settings for the origin do not hold: see `[[origin]]`."
OwnAddress "self" FORBIDDEN Policy "destination_ip_prohibited"
    "Private, loopback and metadata addresses are refused unless the operator excepts them in `[[origin]]`."
SsrfResolvedIp "ssrf_resolved_ip" FORBIDDEN Policy "destination_ip_prohibited"
    "Private, loopback and metadata addresses are refused unless the operator excepts them in `[[origin]]`."
Timeout "timeout" GATEWAY_TIMEOUT Origin "http_response_timeout"
    "Nothing moved for longer than `progress_timeout` in `[limits]` allows."
Unreachable "unreachable" BAD_GATEWAY Origin "destination_unavailable" ""
Unresolved "unresolved" BAD_GATEWAY Origin "dns_error" ""
WrongChannel "wrong_channel" INTERNAL_SERVER_ERROR Gateway "proxy_internal_error" ""

// The audit log.
AuditBudget "audit_budget" TOO_MANY_REQUESTS Client "http_request_denied"
    "Send requests more slowly. This one has no record of its own; the log counts it."
AuditUnavailable "audit_unavailable" SERVICE_UNAVAILABLE Gateway "proxy_internal_error"
    "The audit log takes no record: see its disk."
}

impl ReasonCode {
    /// Returns the code with this name.
    #[must_use]
    pub fn named(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_one_word_and_means_one_thing() {
        for code in ReasonCode::ALL {
            let text = code.as_str();
            let is_word =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            assert!(text.bytes().all(is_word), "{text}");
            assert_eq!(ReasonCode::named(text), Some(*code));
            assert!(code.status().is_client_error() || code.status().is_server_error());
            let next = code.next_step();
            assert!(next.is_empty() || next.ends_with('.'), "{text}: {next}");
        }
    }

    #[test]
    fn the_page_of_refusals_is_the_table() {
        let mut page = String::from(include_str!("../../docs/refusals.md"));
        let begin = page.find("| code").unwrap();
        let shown = page.split_off(begin);
        assert_eq!(shown, table());
    }

    fn table() -> String {
        let mut text =
            "| code | status | side at fault | what to do |\n|---|---|---|---|\n".to_owned();
        for code in ReasonCode::ALL {
            let side = code.blame().as_str();
            let (name, status) = (code.as_str(), code.status().as_u16());
            text += &format!("| `{name}` | {status} | {side} | {} |\n", code.next_step());
        }
        text
    }
}
