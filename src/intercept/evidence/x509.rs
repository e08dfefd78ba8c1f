//! The fields of an X.509 certificate that identify its holder (RFC 5280 §4.1).

use der::asn1::{AnyRef, GeneralizedTime, UtcTime};
use der::{Decode as _, Reader as _, SliceReader, Tag};

/// The identity of a certificate's holder.
pub(crate) struct CertificateHolder<'a> {
    /// The URIs among its alternative names.
    pub(crate) uris: Vec<&'a [u8]>,
    /// The common names of its subject.
    pub(crate) common_names: Vec<&'a [u8]>,
    /// The last second of Unix time at which it is valid.
    pub(crate) ends: u64,
}

impl<'a> CertificateHolder<'a> {
    /// Reads a certificate; `None` if it is malformed.
    pub(crate) fn read(certificate: &'a [u8]) -> Option<Self> {
        let mut fields = parts(
            parts(parts(certificate)?.first()?.value())?
                .first()?
                .value(),
        )?;
        if number(fields.first()?).is_some() {
            // The version.
            fields.remove(0);
        }
        let [
            _serial,
            _algorithm,
            _issuer,
            validity,
            subject,
            _key,
            others @ ..,
        ] = &fields[..]
        else {
            return None;
        };
        let (mut common_names, mut uris) = (Vec::new(), Vec::new());
        for set in parts(subject.value())? {
            for attribute in parts(set.value())? {
                match parts(attribute.value())?[..] {
                    [kind, name] if kind.value() == COMMON_NAME => common_names.push(name.value()),
                    _ => {}
                }
            }
        }
        for list in others.iter().filter(|field| number(field) == Some(3)) {
            for extension in parts(parts(list.value())?.first()?.value())? {
                let extension = parts(extension.value())?;
                if extension.first()?.value() == SUBJECT_ALT_NAME {
                    let names = parts(parts(extension.last()?.value())?.first()?.value())?;
                    let names = names.into_iter().filter(|name| number(name) == Some(6));
                    uris.extend(names.map(AnyRef::value));
                }
            }
        }
        let ends = *parts(validity.value())?.last()?;
        let ends = match ends.header().tag() {
            Tag::UtcTime => ends.decode_as::<UtcTime>().ok()?.to_unix_duration(),
            _ => ends.decode_as::<GeneralizedTime>().ok()?.to_unix_duration(),
        };
        Some(Self {
            uris,
            common_names,
            ends: ends.as_secs(),
        })
    }
}

/// Returns the number of a context-specific tag.
fn number(value: &AnyRef<'_>) -> Option<u32> {
    match value.header().tag() {
        Tag::ContextSpecific { number, .. } => Some(number.value()),
        _ => None,
    }
}

/// Returns the values of a sequence.
fn parts(bytes: &[u8]) -> Option<Vec<AnyRef<'_>>> {
    let mut reader = SliceReader::new(bytes).ok()?;
    let mut all = Vec::new();
    while !reader.is_finished() {
        all.push(AnyRef::decode(&mut reader).ok()?);
    }
    Some(all)
}

/// 2.5.29.17.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
/// 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
