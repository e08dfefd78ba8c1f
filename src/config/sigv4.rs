//! The keys of a `[[credential]]` that only SigV4 uses.

use gateway_credential::signing::sigv4::{OwnEndpoint, SigV4, SigV4Settings};
use gateway_sigv4::{PinMistake, Pins, Scope};

use super::diagnostic::Hint;
use super::network;
use super::section::{Section, characters};

/// Reads the requests that a SigV4 credential may sign.
pub(super) fn read(section: &Section<'_, '_>) -> SigV4 {
    let endpoints = section.tables("endpoints", "credential.endpoints");
    let endpoints: Vec<_> = endpoints.iter().filter_map(endpoint).collect();
    let texts = |key| section.all(key, |text| Ok(text.to_owned()));
    let pins = Pins {
        partitions: texts("partitions"),
        regions: texts("regions"),
        services: texts("services"),
        own_services: endpoints.iter().map(|one| one.service.clone()).collect(),
        accounts: texts("accounts"),
        buckets: texts("buckets"),
        actions: texts("actions"),
        credential_actions: texts("credential_actions"),
    };
    SigV4::new(SigV4Settings {
        partitions: pins.partitions.clone(),
        scope: scope(section, pins),
        endpoints,
        unsigned: section.all("unsigned", network::origin),
    })
}

/// Returns a signer for these buckets only, each written `NAME` or `NAME/PREFIX`.
///
/// # Errors
/// Returns the mistakes of those that are not valid buckets.
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

fn scope(section: &Section<'_, '_>, pins: Pins) -> Scope {
    Scope::new(pins).unwrap_or_else(|mistakes| {
        for mistake in mistakes {
            let key = match mistake {
                PinMistake::Partition(_) => "partitions",
                PinMistake::Region(_) => "regions",
                PinMistake::Service(_) => "services",
                PinMistake::Account(_) => "accounts",
                PinMistake::Bucket(_) => "buckets",
                PinMistake::Action(_) => "actions",
                PinMistake::CredentialAction(_) => "credential_actions",
            };
            mistake!(section, key, "{mistake}"; "it would pin nothing that there is";
                "correct it, or remove it");
        }
        // Never used: a configuration with a mistake is refused as a whole.
        Scope::default()
    })
}

fn endpoint(section: &Section<'_, '_>) -> Option<OwnEndpoint> {
    for key in ["origin", "service", "region"] {
        require!(section, key; "it says for what is signed there";
            "write `{{ origin = \
            \"https://minio.example:9000\", service = \"s3\", region = \"us-east-1\" }}`");
    }
    let origin = section.get("origin", network::origin);
    let (service, region) = (section.get("service", label), section.get("region", label));
    let exact_paths = section.truth("exact_paths");
    let read = OwnEndpoint {
        origin: origin?,
        service: service?,
        region: region?,
        exact_paths: exact_paths.unwrap_or_default(),
    };
    if exact_paths.is_some() && read.is_object_store() {
        mistake!(section, "exact_paths", "`exact_paths` has no use for a service of S3's";
            "the paths of an object store are always taken as they stand"; "remove it");
    }
    Some(read)
}

/// Checks the name of a service or a region as used in a credential scope.
pub(super) fn label(text: &str) -> Result<String, Hint> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    characters(text, 64, fits).ok_or_else(|| {
        hint!("a service or region has the characters a-z, 0-9 and `-`";
            "write for example `s3` or `eu-central-1`")
    })
}

/// All SigV4 keys.
pub(super) const KEYS: [&str; 9] = gateway_names::word_list(
    "endpoints unsigned partitions regions services accounts buckets actions credential_actions",
);
