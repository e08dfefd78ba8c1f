//! What an X.509 certificate says of its holder (RFC 5280 §4.1).

use der::asn1::{AnyRef, GeneralizedTime, UtcTime};
use der::{Decode as _, Reader as _, SliceReader, Tag};

/// What a certificate says of its holder.
pub(super) struct CertificateHolder<'a> {
    /// The URIs among its alternative names.
    pub(super) uris: Vec<&'a [u8]>,
    /// The common names of its subject.
    pub(super) common_names: Vec<&'a [u8]>,
    /// The last second of Unix time at which it is valid.
    pub(super) ends: u64,
}

impl<'a> CertificateHolder<'a> {
    /// Reads a certificate; `None` if it is malformed.
    pub(super) fn read(certificate: &'a [u8]) -> Option<Self> {
        let signed = inside(&parts(certificate)?, 0)?;
        let mut fields = inside(&signed, 0)?;
        if matches!(fields.first()?.header().tag(), Tag::ContextSpecific { .. }) {
            // The version.
            fields.remove(0);
        }
        // Serial number, algorithm and issuer come before, the key behind.
        let (validity, subject) = (inside(&fields, 3)?, inside(&fields, 4)?);
        let extensions = fields.get(6..)?.iter();
        let extensions = extensions.filter(|field| is_numbered(field, 3));
        Some(Self {
            uris: uris(extensions)?,
            common_names: common_names(&subject)?,
            ends: seconds(*validity.get(1)?)?,
        })
    }
}

fn uris<'a, 'b>(extensions: impl Iterator<Item = &'b AnyRef<'a>>) -> Option<Vec<&'a [u8]>>
where
    'a: 'b,
{
    let mut uris = Vec::new();
    for list in extensions {
        for extension in inside(&parts(list.value())?, 0)? {
            let extension = parts(extension.value())?;
            if extension.first()?.value() == SUBJECT_ALT_NAME {
                let names = inside(&parts(extension.last()?.value())?, 0)?;
                let of_uris = names.iter().filter(|name| is_numbered(name, 6));
                uris.extend(of_uris.map(|name| name.value()));
            }
        }
    }
    Some(uris)
}

fn common_names<'a>(subject: &[AnyRef<'a>]) -> Option<Vec<&'a [u8]>> {
    let mut names = Vec::new();
    for set in subject {
        for attribute in parts(set.value())? {
            if let [kind, value] = parts(attribute.value())?[..]
                && kind.value() == COMMON_NAME
            {
                names.push(value.value());
            }
        }
    }
    Some(names)
}

fn seconds(time: AnyRef<'_>) -> Option<u64> {
    let since = match time.header().tag() {
        Tag::UtcTime => time.decode_as::<UtcTime>().ok()?.to_unix_duration(),
        _ => time.decode_as::<GeneralizedTime>().ok()?.to_unix_duration(),
    };
    Some(since.as_secs())
}

fn is_numbered(value: &AnyRef<'_>, wanted: u32) -> bool {
    matches!(value.header().tag(), Tag::ContextSpecific { number, .. } if number.value() == wanted)
}

/// The values that are inside one of several.
fn inside<'a>(all: &[AnyRef<'a>], at: usize) -> Option<Vec<AnyRef<'a>>> {
    parts(all.get(at)?.value())
}

/// The values that follow each other.
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
