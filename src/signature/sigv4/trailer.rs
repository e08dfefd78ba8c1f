//! The trailer of aws-chunked content: its fields, which must be announced, and its signature.

use bytes::BytesMut;
use http::header::{HeaderMap, HeaderName};

use super::fault::Fault;
use gateway_message::fields::is_request_trailer;

/// The part of a trailer that was read.
#[derive(Default)]
pub(super) struct Trailer {
    /// The fields in the form that is signed.
    pub(super) canonical: Vec<u8>,
    /// The fields as they arrived.
    pub(super) raw: BytesMut,
    seen: Vec<HeaderName>,
    pub(super) signature: Option<Box<str>>,
}

impl Trailer {
    /// Whether an empty line may stand here, before the signature.
    pub(super) fn awaits_signature(&self) -> bool {
        self.signature.is_none() && self.raw.ends_with(b"\n") && !self.raw.ends_with(b"\r\n")
    }

    /// Adds a field, which must have been announced, to the signed text.
    pub(super) fn add(
        &mut self,
        name: &str,
        value: &str,
        announced: &[HeaderName],
    ) -> Result<(), Fault> {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| MALFORMED_TRAILER)?;
        if !announced.contains(&name) || self.seen.contains(&name) {
            return Err(Fault::Framing(
                "its trailer holds a field that was not announced",
            ));
        }
        self.canonical.extend_from_slice(name.as_str().as_bytes());
        self.canonical.push(b':');
        self.canonical.extend_from_slice(value.as_bytes());
        self.canonical.push(b'\n');
        self.seen.push(name);
        Ok(())
    }
}

/// The names that `x-amz-trailer` announces. As in HTTP's own trailers, only checksums may follow
/// the content: a server that treats a trailer as a field must not see one that no policy saw.
pub(super) fn announced(fields: &HeaderMap) -> Result<Vec<HeaderName>, Fault> {
    const MALFORMED: Fault = Fault::Malformed("x-amz-trailer");
    let values = fields.get_all("x-amz-trailer");
    let names = values
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let mut announced = Vec::new();
    for name in names.map(<[u8]>::trim_ascii) {
        if announced.len() == MOST_TRAILERS {
            return Err(MALFORMED);
        }
        let name = HeaderName::from_bytes(name).map_err(|_| MALFORMED)?;
        if !is_request_trailer(name.as_str()) || name == TRAILER_SIGNATURE {
            return Err(MALFORMED);
        }
        announced.push(name);
    }
    Ok(announced)
}

pub(super) const MALFORMED_TRAILER: Fault = Fault::Framing("its trailer is malformed");
pub(super) const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature";
const MOST_TRAILERS: usize = 16;
