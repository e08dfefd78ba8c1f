//! The keys of a `[[credential]]` that only SigV4 uses.

use toml::Spanned;

use crate::credential::signing::sigv4::{OwnEndpoint, SigV4, SigV4Settings};
use crate::sigv4::{PinMistake, Pins, Scope};

use super::diagnostic::Hint;
use super::network;
use super::section::Section;

/// Reads what a SigV4 credential may sign.
pub(super) fn read(section: &Section<'_, '_>) -> SigV4 {
    let endpoints = endpoints(section);
    let unsigned = section.each("unsigned", network::origin);
    let own_services = endpoints.iter().map(|endpoint| endpoint.service.clone());
    let pins = pins(section, own_services.collect());
    SigV4::new(SigV4Settings {
        partitions: pins.partitions.clone(),
        scope: scope(section, pins),
        endpoints,
        unsigned: unsigned.into_iter().map(Spanned::into_inner).collect(),
    })
}

/// Returns a signer for these buckets only, each written `NAME` or `NAME/PREFIX`.
///
/// # Errors
/// Returns those that are not valid buckets.
pub(super) fn for_buckets(buckets: Vec<String>) -> Result<SigV4, Vec<PinMistake>> {
    let pins = Pins {
        buckets,
        ..Pins::default()
    };
    Ok(SigV4::new(SigV4Settings {
        scope: Scope::new(pins)?,
        ..SigV4Settings::default()
    }))
}

fn pins(section: &Section<'_, '_>, own_services: Vec<String>) -> Pins {
    let texts = |key: &'static str| {
        let list = section.each(key, |text| Ok(text.to_owned()));
        list.into_iter().map(Spanned::into_inner).collect()
    };
    let [
        partitions,
        regions,
        services,
        accounts,
        buckets,
        actions,
        credential_actions,
    ] = PINS.map(texts);
    Pins {
        partitions,
        regions,
        services,
        own_services,
        accounts,
        buckets,
        actions,
        credential_actions,
    }
}

fn scope(section: &Section<'_, '_>, pins: Pins) -> Scope {
    Scope::new(pins).unwrap_or_else(|mistakes| {
        for mistake in mistakes {
            let key = match mistake {
                PinMistake::Partition(_) => PINS[0],
                PinMistake::Region(_) => PINS[1],
                PinMistake::Service(_) => PINS[2],
                PinMistake::Account(_) => PINS[3],
                PinMistake::Bucket(_) => PINS[4],
                PinMistake::Action(_) => PINS[5],
                PinMistake::CredentialAction(_) => PINS[6],
            };
            let hint = Hint::new(
                "it would pin nothing that there is",
                "correct it, or remove it",
            );
            section.error(key, mistake.to_string(), hint);
        }
        // Never used: a configuration with a mistake is refused as a whole.
        Scope::default()
    })
}

fn endpoints(section: &Section<'_, '_>) -> Vec<OwnEndpoint> {
    let read = |section: &Section<'_, '_>| {
        let origin = section.parsed("origin", network::origin);
        let service = section.parsed("service", label);
        let region = section.parsed("region", label);
        for key in ["origin", "service", "region"] {
            if !section.has(key) {
                section.missing(
                    key,
                    "it says for what is signed there",
                    "write `{ origin = \"https://minio.example:9000\", service = \"s3\", region = \"us-east-1\" }`",
                );
            }
        }
        let exact_paths = section.truth("exact_paths");
        let read = OwnEndpoint {
            origin: origin?.into_inner(),
            service: service?.into_inner(),
            region: region?.into_inner(),
            exact_paths: exact_paths.unwrap_or_default(),
        };
        if exact_paths.is_some() && read.is_object_store() {
            let hint = Hint::new(
                "the paths of an object store are always taken as they stand",
                "remove it",
            );
            section.error(
                "exact_paths",
                "`exact_paths` has no use for a service of S3's",
                hint,
            );
        }
        Some(read)
    };
    section
        .tables("endpoints", "credential.endpoints")
        .iter()
        .filter_map(read)
        .collect()
}

/// Checks the name of a service or a region as used in a credential scope.
fn label(text: &str) -> Result<String, Hint> {
    let fits = (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    match fits {
        true => Ok(text.to_owned()),
        false => Err(Hint::new(
            "a service or region has the characters a-z, 0-9 and `-`",
            "write for example `s3` or `eu-central-1`",
        )),
    }
}

/// The keys that restrict what is signed.
const PINS: [&str; 7] = [
    "partitions",
    "regions",
    "services",
    "accounts",
    "buckets",
    "actions",
    "credential_actions",
];
/// All SigV4 keys.
pub(super) const KEYS: [&str; 9] = [
    "endpoints",
    "unsigned",
    PINS[0],
    PINS[1],
    PINS[2],
    PINS[3],
    PINS[4],
    PINS[5],
    PINS[6],
];
