//! Distinguishes a literal secret from a reference, so that no message ever repeats a secret.

use gateway_names::prefixes;

/// Returns whether a text looks like a real credential rather than a name, a path or a reference.
///
/// When in doubt, it returns `true`. A false positive only means that a message omits the text.
pub fn looks_secret(text: &str) -> bool {
    let text = text.trim();
    known_prefix(text) || text.split(|c: char| !is_secret_char(c)).any(dense) || url_password(text)
}

/// Returns whether a text has a well-known credential prefix with enough after it to be one.
pub fn known_prefix(text: &str) -> bool {
    let text = text.trim();
    let unquoted = text
        .strip_prefix("Bearer ")
        .or_else(|| text.strip_prefix("token "))
        .or_else(|| text.strip_prefix("Basic "))
        .unwrap_or(text);
    unquoted.starts_with("-----BEGIN ") && unquoted.contains("PRIVATE KEY")
        || prefixes::matches(unquoted.as_bytes()).any(|found| {
            let beginning = found.rest.first_chunk::<12>();
            beginning.is_some_and(|rest| rest.iter().all(|byte| is_secret_char(char::from(*byte))))
        })
}

/// Formats a text in backticks, or only its length if it may be a secret or contains control
/// characters.
pub fn shown(text: &str) -> String {
    let printable = text.chars().all(|c| !c.is_control() && !is_bidi(c));
    if printable && text.chars().count() <= 80 && !looks_secret(text) {
        format!("`{text}`")
    } else {
        format!("a text of {} characters (not shown)", text.chars().count())
    }
}

fn url_password(text: &str) -> bool {
    let rest = text.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    user.contains(':')
}

/// Returns whether a long run mixes letters and digits with few repetitions, unlike any host, path
/// or name.
fn dense(run: &str) -> bool {
    if run.len() < 20 {
        return false;
    }
    let digits = run.bytes().filter(u8::is_ascii_digit).count();
    let upper = run.bytes().filter(u8::is_ascii_uppercase).count();
    let lower = run.bytes().filter(u8::is_ascii_lowercase).count();
    let hexadecimal = run.len() >= 32 && run.bytes().all(|byte| byte.is_ascii_hexdigit());
    hexadecimal || (digits >= 1 && upper >= 2 && lower >= 2)
}

fn is_secret_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '=')
}

fn is_bidi(c: char) -> bool {
    matches!(c, '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{61C}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_known_credentials_are_recognised() {
        for text in [
            "ghp_0123456789abcdefghijABCDEFGHIJ012345",
            "sk-ant-api03-AAAAAAAAAAAAAAAAAAAAAAAA-xyzAA",
            "Bearer ghp_0123456789abcdefghijABCDEFGHIJ012345",
            "AKIAIOSFODNN7EXAMPLE",
            "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
            "0123456789abcdef0123456789abcdef",
            "https://user:hunter2@api.example.com/",
            "-----BEGIN PRIVATE KEY-----\nMIIE",
        ] {
            assert!(looks_secret(text), "{text}");
            assert!(!shown(text).contains(text), "{text}");
        }
    }

    #[test]
    fn names_paths_hosts_and_references_are_not() {
        for text in [
            "env:GITHUB_TOKEN",
            "file:/run/secrets/github-token",
            "keyring:gateway/ANTHROPIC_API_KEY",
            "https://api.github.com:8443",
            "header:authorization:Bearer",
            "/home/user/projects/gateway/policies/very-long-name-of-a-policy-file.cedar",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "256MiB",
            "10.0.0.0/8",
            "ghp_[36 alnum]",
        ] {
            assert!(!looks_secret(text), "{text}");
            assert_eq!(shown(text), format!("`{text}`"));
        }
    }

    #[test]
    fn control_and_bidirectional_characters_are_never_shown() {
        for text in ["a\u{1b}[31m", "a\nb", "a\u{202e}b"] {
            assert!(!shown(text).contains(text));
        }
    }
}
