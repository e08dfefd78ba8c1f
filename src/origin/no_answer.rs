//! Why a request that was sent has no response, and whether it may be sent again.

use std::error::Error as _;

use http::Method;

/// Whether a request without a response may be sent again, judged by its connection alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// The origin may have processed it.
    Never,
    /// The origin has not processed it: nothing was written, or the origin said so (RFC 9113 §8.7).
    OnAnotherConnection,
    /// The origin accepts it over HTTP/1.1 alone (RFC 9113 §7).
    OverHttp1,
    /// The connection ended before the first byte of a response. If the connection was reused, the
    /// origin has probably closed it without reading the request (RFC 9112 §9.3.1).
    OnlyIfReused,
}

impl Retry {
    fn said(self) -> &'static str {
        match self {
            Self::Never => "the origin gave up the request without an answer",
            Self::OnAnotherConnection | Self::OverHttp1 => {
                "the origin took the request on no connection"
            }
            Self::OnlyIfReused => "the origin ended the connection without an answer",
        }
    }
}

/// A request that was sent and has no response.
#[derive(Debug, thiserror::Error)]
#[error("{}", .repeat.said())]
pub struct NoAnswer {
    repeat: Retry,
    is_harmless: bool,
    is_reused: bool,
    source: hyper::Error,
}

impl NoAnswer {
    /// Whether a client may send the request again automatically.
    pub fn is_harmless(&self) -> bool {
        self.is_harmless
    }

    /// Whether the gateway itself sends the request again, if its content is still complete. What a
    /// person allowed once is sent again only if the origin has not processed it.
    pub(super) fn is_repeated(&self, once: bool) -> bool {
        match self.repeat {
            Retry::Never => false,
            Retry::OnAnotherConnection | Retry::OverHttp1 => true,
            Retry::OnlyIfReused => self.is_reused && self.is_harmless && !once,
        }
    }

    /// Whether the origin requires HTTP/1.1.
    pub(super) fn asks_http1(&self) -> bool {
        self.repeat == Retry::OverHttp1
    }
}

/// The failure of a connection on which a request was to be sent.
pub(super) struct SendFailure {
    pub(super) source: hyper::Error,
    /// Whether no byte of the request was written.
    pub(super) is_unwritten: bool,
    pub(super) is_reused: bool,
    pub(super) is_http2: bool,
}

impl SendFailure {
    /// Judges whether the request may be repeated, given that no byte of a response was read.
    pub(super) fn without_answer(self, method: &Method) -> NoAnswer {
        let repeat = self.repeat();
        NoAnswer {
            repeat,
            // RFC 9110 §9.2.2.
            is_harmless: method.is_idempotent()
                || matches!(repeat, Retry::OnAnotherConnection | Retry::OverHttp1),
            is_reused: self.is_reused,
            source: self.source,
        }
    }

    fn repeat(&self) -> Retry {
        if self.is_unwritten {
            return Retry::OnAnotherConnection;
        }
        if !self.is_http2 {
            return Retry::OnlyIfReused;
        }
        match self.source.source().and_then(|cause| cause.downcast_ref()) {
            Some(error) => of_stream(error),
            // The connection ended while the stream waited for its turn.
            None if self.source.is_user() => Retry::OnAnotherConnection,
            None => Retry::OnlyIfReused,
        }
    }
}

/// Judges the error of a stream. h2 gives a stream the error of a GOAWAY only if the stream is
/// above the origin's last one, or was not sent.
fn of_stream(error: &h2::Error) -> Retry {
    let is_refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
    if error.is_remote() && error.reason() == Some(h2::Reason::HTTP_1_1_REQUIRED) {
        return Retry::OverHttp1;
    }
    if error.is_remote() && (is_refused || error.is_go_away()) {
        Retry::OnAnotherConnection
    } else if error.is_io() {
        Retry::OnlyIfReused
    } else {
        Retry::Never
    }
}
