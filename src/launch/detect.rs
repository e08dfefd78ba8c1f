//! Recognises values that look like credentials, whatever their variable is called.
//!
//! This is a second check on variables that pass by name. It finds what people commonly write into
//! settings, but can miss things. The list of names ([`super::passed`]) is what keeps secrets out.

use gateway_names::prefixes;
use memchr::memmem;

use super::list;

/// Returns whether a value seems to contain a credential.
pub fn holds_credential(value: &[u8]) -> bool {
    let lower = value.to_ascii_lowercase();
    prefixes::matches(value).next().is_some()
        || PEM.iter().any(|start| value.starts_with(start.as_bytes()))
        || ANYWHERE
            .iter()
            .any(|part| memmem::find(value, part.as_bytes()).is_some())
        || SCHEMES
            .iter()
            .any(|scheme| lower.starts_with(scheme.as_bytes()))
        || has_token(value)
        || holds_userinfo(value)
        || assigns_secret(&lower)
}

/// Returns whether a variable is named like one that holds a secret: `DB_PASSWORD`.
pub fn is_secret_name(name: &[u8]) -> bool {
    let upper = name.to_ascii_uppercase();
    let mut ends = ["SECRET", "TOKEN", "PASSWORD", "KEY"].iter();
    ends.any(|end| upper.ends_with(end.as_bytes())) && !upper.ends_with(b"PUBLIC_KEY")
}

/// Returns whether a file's content contains a credential that a service issued: a known prefix and
/// a rest that no person types, or a private key.
pub fn holds_issued_credential(content: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let mut words = content.split(|byte| !is_part(byte));
    memmem::find(content, b"PRIVATE KEY-----").is_some()
        || words.any(|word| {
            word.len() >= ISSUED_REST && prefixes::matches(word).any(|found| is_issued(&found))
        })
}

/// Whether the text after the prefix is random: long, with digits, in mixed case or in one piece.
fn is_issued(found: &prefixes::Match<'_>) -> bool {
    let rest = found.rest;
    let has = |is: fn(&u8) -> bool| rest.iter().any(is);
    let one_piece = rest.iter().all(u8::is_ascii_alphanumeric);
    let mixed = has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
    // A text with a JSON Web Token's prefix is one only if it has three parts.
    let is_whole = found.prefix != "eyJ" || rest.split(|byte| *byte == b'.').count() == 3;
    let long = match found.tail {
        prefixes::Tail::Base32 => 16,
        _ => ISSUED_REST,
    };
    rest.len() >= long && has(u8::is_ascii_digit) && (mixed || one_piece) && is_whole
}

/// Whether a word in the value is a token: a known prefix, and a long rest with a digit.
fn has_token(value: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    value.split(|byte| !is_part(byte)).any(|word| {
        prefixes::matches(word)
            .any(|found| found.rest.len() >= LONG_REST && found.rest.iter().any(u8::is_ascii_digit))
    })
}

/// Whether the value contains a URL with a user, with or without a password: services accept keys
/// in either position.
pub fn holds_userinfo(value: &[u8]) -> bool {
    let mut rests = memmem::find_iter(value, b"://").map(|at| &value[at + 3..]);
    rests.any(|rest| {
        let end = rest
            .iter()
            .position(|byte| matches!(byte, b'/' | b'?' | b'#' | b',' | b' ' | b'\t' | b'\n'))
            .unwrap_or(rest.len());
        rest[..end].contains(&b'@')
    })
}

/// Whether the value, in lower case, assigns something to the name of a secret: `AccountKey=…`,
/// `"private_key": …`.
fn assigns_secret(lower: &[u8]) -> bool {
    list::lines(include_str!("data/secret_names.txt")).any(|name| {
        let starts = memmem::find_iter(lower, name);
        starts.map(|at| &lower[at + name.len()..]).any(|rest| {
            let quoted = rest.trim_ascii_start();
            let quoted = quoted
                .strip_prefix(b"\"")
                .or(quoted.strip_prefix(b"'"))
                .unwrap_or(quoted);
            matches!(quoted.trim_ascii_start(), [b'=' | b':', _, ..])
        })
    })
}

/// How many characters must follow a token's prefix within a longer value.
const LONG_REST: usize = 16;

/// How many characters at least follow a prefix in a credential that a service issued.
const ISSUED_REST: usize = 20;

/// How a PEM file begins, plain and in base64.
const PEM: &[&str] = &["-----BEGIN", "LS0tLS1CRUdJTi"];
const ANYWHERE: &[&str] = &[
    "PRIVATE KEY",
    "AGE-SECRET-KEY-1",
    "://hooks.slack.com/services/",
];
const SCHEMES: &[&str] = &["bearer ", "basic ", "token ", "digest ", "negotiate "];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_credential_is_found_in_a_setting() {
        for value in [
            "ghp_0123456789",
            "postgres://app:hunter2@db/app",
            "https://0123456789abcdef@o1.ingest.sentry.io/42",
            "http://mirror.test/,https://token@mirror.test/",
            "jdbc:postgresql://db/app?user=app&password=hunter2",
            "Server=db;User Id=app;Pwd=hunter2;",
            "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=Zm9v;EndpointSuffix=core.windows.net",
            "Endpoint=sb://a.servicebus.windows.net/;SharedAccessKeyName=x;SharedAccessKey=Zm9v",
            "InstrumentationKey=00000000-0000-0000-0000-000000000000",
            "{\"type\": \"service_account\", \"private_key\": \"x\"}",
            "-Djavax.net.ssl.keyStorePassword=changeit",
            "--title=x --token sk-ant-api03-0123456789abcdefghij",
            "-----BEGIN RSA PRIVATE KEY-----",
            "LS0tLS1CRUdJTiBPUEVOU1NIIFBSSVZBVEUgS0VZLS0tLS0=",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.x",
            "Bearer abc",
            "https://hooks.slack.com/services/T0/B0/x",
            "https://a.blob.core.windows.net/c?sv=2022&sig=abc",
            "ASIAQWERTYUIOPASDFGH",
        ] {
            assert!(holds_credential(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn ordinary_settings_are_left_alone() {
        for value in [
            "/usr/local/bin:/usr/bin:/bin:/home/ann/src/sk-learn-extras/bin",
            "de_DE.UTF-8",
            "rs=0:di=01;34:ln=01;36:*.tar=01;31:*.key=00;90",
            "--max-old-space-size=4096 --enable-source-maps",
            "-C target-cpu=native --cfg tokio_unstable",
            "https://pypi.example.test/simple",
            "http://127.0.0.1:9000",
            "https://proxy.golang.org,direct",
            "info,gateway=debug,hyper::client=trace",
            "0.0.0.0:11434",
            "/home/ann/.nvm/versions/node/v22.1.0/bin",
            "claude-opus-4-20250514",
            "1",
            "",
        ] {
            assert!(!holds_credential(value.as_bytes()), "{value}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_value_makes_the_search_panic(value: Vec<u8>) {
            let _ = holds_credential(&value);
        }
    }
}
