//! Descriptions of faults in an origin's TLS.

use std::io;

use rustls::CertificateError;

/// Whether the origin showed a certificate that is not trusted: no repetition changes that.
pub(super) fn is_distrust(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref());
    matches!(error, Some(rustls::Error::InvalidCertificate(_)))
}

/// A fault of an origin's TLS, without any text from it.
pub(super) fn what_failed(error: &io::Error) -> &'static str {
    use CertificateError as Cause;
    let error = error.get_ref().and_then(|error| error.downcast_ref());
    let Some(rustls::Error::InvalidCertificate(cause)) = error else {
        return "the origin's TLS handshake failed";
    };
    match cause {
        Cause::Expired | Cause::ExpiredContext { .. } => "the origin's certificate has expired",
        Cause::NotValidYet | Cause::NotValidYetContext { .. } => {
            "the origin's certificate is not valid yet"
        }
        Cause::NotValidForName | Cause::NotValidForNameContext { .. } => {
            "the origin's certificate is for another name"
        }
        Cause::UnknownIssuer => "the origin's certificate is from a CA that is not trusted",
        Cause::InvalidPurpose | Cause::InvalidPurposeContext { .. } => {
            "the origin's certificate is not for servers"
        }
        // rustls has no variant for this fault. `openssl req -x509` makes such certificates.
        Cause::Other(cause) if cause.to_string() == "CaUsedAsEndEntity" => {
            "the origin's certificate is a CA's; a server's must be issued with `CA:FALSE`"
        }
        _ => "the origin's certificate is not valid",
    }
}
