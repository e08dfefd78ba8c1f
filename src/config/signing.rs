//! What of a `[[credential]]` is about signing: the way, the parts, and what may be signed.

use crate::session::{OwnEndpoint, SIGV4_PARTS};
use crate::signature::sigv4::{PinMistake, Pins, Scope};

use super::credential::sandbox_variable;
use super::mistake::Doubt;
use super::page::Section;
use super::pattern;
use super::reference::Reference;

/// A credential that signs requests instead of being put into them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signing {
    /// The way of signing.
    pub way: Way,
    /// The parts in their order, the first of which is that by which requests are known.
    pub parts: Vec<Part>,
    /// Endpoints that are not those of the service itself.
    pub endpoints: Vec<OwnEndpoint>,
    /// For what it may be used.
    pub scope: Scope,
    /// The partitions that are pinned.
    pub partitions: Vec<String>,
}

/// A way of signing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// AWS Signature Version 4 and its kin.
    SigV4,
}

/// One part of a signing credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What it is to the way of signing.
    pub name: &'static str,
    /// Where it is kept.
    pub from: Reference,
    /// The variable of the workload that holds its phantom.
    pub variable: Option<String>,
}

impl Signing {
    /// The SigV4 credential of the usual variables; with a session token where one is said to be there.
    #[must_use]
    pub fn sigv4(token: bool) -> Self {
        let parts = SIGV4_PARTS.iter().zip(SIGV4_VARIABLES);
        let parts = parts.filter(|(name, _)| token || **name != SIGV4_PARTS[2]);
        Self {
            way: Way::SigV4,
            parts: parts
                .map(|(name, variable)| Part {
                    name,
                    from: Reference::Env(variable.to_owned()),
                    variable: Some(variable.to_owned()),
                })
                .collect(),
            endpoints: Vec::new(),
            scope: Scope::default(),
            partitions: Vec::new(),
        }
    }
}

/// Reads the keys about signing, if the credential signs.
pub(super) fn signing(section: &Section<'_, '_>) -> Option<Signing> {
    let Some(way) = section.choice("sign", &[("sigv4", Way::SigV4)]) else {
        for key in [&["parts", "endpoints"][..], &PINS].concat() {
            if section.has(key) && !section.has("sign") {
                section.error(
                    key,
                    format!("`{key}` stands without `sign`"),
                    Doubt::new("it is about signing", "add `sign = \"sigv4\"`, or remove it"),
                );
            }
        }
        return None;
    };
    for key in ["places", "when", "shape", "foreign"] {
        if section.has(key) {
            section.error(
                key,
                format!("`{key}` contradicts `sign`"),
                Doubt::new("what signs a request stands in no place of it", "remove it"),
            );
        }
    }
    let parts = parts(section)?;
    let pins = pins(section);
    Some(Signing {
        way,
        parts,
        endpoints: endpoints(section),
        partitions: pins.partitions.clone(),
        scope: scope(section, pins),
    })
}

fn parts(section: &Section<'_, '_>) -> Option<Vec<Part>> {
    let named = section.inner("parts", "credential.parts");
    let variables: Vec<String> = section
        .each("env", sandbox_variable)
        .into_iter()
        .map(toml::Spanned::into_inner)
        .collect();
    let mut parts = Vec::new();
    for (at, (name, usual)) in SIGV4_PARTS.into_iter().zip(SIGV4_VARIABLES).enumerate() {
        let given = named.as_ref().filter(|named| named.has(name));
        let from = match given {
            Some(named) => Reference::read(named, name, "")?,
            None if section.has("from") => Reference::read(section, "from", "credential.from")?,
            // Long-lived keys have no token, so nothing is assumed of one.
            None if name == SIGV4_PARTS[2] => continue,
            None => Reference::Env(usual.to_owned()),
        };
        let variable = match section.has("env") {
            true => variables.get(at).cloned(),
            false => Some(usual.to_owned()),
        };
        parts.push(Part { name, from, variable });
    }
    if section.has("env") && variables.len() != parts.len() {
        let doubt = Doubt::new(
            "each part stands in a variable of its own",
            format!(
                "name {} variables, in the order {}",
                parts.len(),
                SIGV4_PARTS.join(", ")
            ),
        );
        section.error("env", "`env` does not name a variable for each part", doubt);
    }
    Some(parts)
}

fn pins(section: &Section<'_, '_>) -> Pins {
    let texts = |key: &'static str| {
        let list = section.each(key, |text| Ok(text.to_owned()));
        list.into_iter().map(toml::Spanned::into_inner).collect()
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
            let doubt = Doubt::new("it would pin nothing that there is", "correct it, or remove it");
            section.error(key, mistake.to_string(), doubt);
        }
        // Not taken: a configuration with a mistake is refused as a whole.
        Scope::default()
    })
}

fn endpoints(section: &Section<'_, '_>) -> Vec<OwnEndpoint> {
    let read = |section: &Section<'_, '_>| {
        let origin = section.parsed("origin", pattern::origin);
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
        Some(OwnEndpoint {
            origin: origin?.into_inner(),
            service: service?.into_inner(),
            region: region?.into_inner(),
        })
    };
    section
        .tables("endpoints", "credential.endpoints")
        .iter()
        .filter_map(read)
        .collect()
}

/// The name of a service or a region, as it stands in a credential scope.
fn label(text: &str) -> Result<String, Doubt> {
    let fits = (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    match fits {
        true => Ok(text.to_owned()),
        false => Err(Doubt::new(
            "a service or region has the characters a-z, 0-9 and `-`",
            "write for example `s3` or `eu-central-1`",
        )),
    }
}

/// The keys of the pins.
const PINS: [&str; 7] = [
    "partitions",
    "regions",
    "services",
    "accounts",
    "buckets",
    "actions",
    "credential_actions",
];
/// The variables that AWS's own clients read, in the order of the parts.
pub const SIGV4_VARIABLES: [&str; 3] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];
