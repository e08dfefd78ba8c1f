//! Finds the names in a literal text: ARNs, numbers of twelve digits, grantees, buckets.

use percent_encoding::percent_decode_str;

/// The account of an ARN. `None` for an ARN of AWS itself, of a bucket, or of any account (`*`).
/// The last opens nothing in a resource, and AWS does not accept it as a principal.
pub(crate) fn arn_account(text: &str) -> Option<&str> {
    let mut parts = text.strip_prefix("arn:")?.splitn(5, ':');
    // Partition, service and region precede the account.
    let account = parts.nth(3)?;
    (!matches!(account, "" | "aws" | "*") && !account.starts_with("${")).then_some(account)
}

/// Every ARN, from its start as far as its account may reach.
pub(super) fn arns(text: &str) -> impl Iterator<Item = &str> {
    let end = |c: char| matches!(c, '<' | '"' | '\'' | ' ' | '\n' | '\r' | '\t' | ',');
    text.match_indices("arn:").map(move |(at, _)| {
        // Searching further each time would take quadratic time.
        let near = text.floor_char_boundary(at + ACCOUNT_WITHIN);
        let rest = &text[at..near];
        rest.split(end).next().unwrap_or(rest)
    })
}

/// Every number of twelve digits, like those of accounts. Digits inside a UUID, a hash or a
/// hexadecimal id do not count: no service reads an account there, and one in some dozen of them
/// would be refused.
pub(super) fn numbers(text: &str) -> impl Iterator<Item = &str> {
    runs(text, |byte| byte.is_ascii_digit())
        .filter(|(_, run)| run.len() == 12)
        .filter(|(at, _)| !is_inside_of_id(text.as_bytes(), *at))
        .map(|(_, run)| run)
}

/// Every canonical user id: 64 hexadecimal digits.
pub(super) fn grantees(text: &str) -> impl Iterator<Item = &str> {
    runs(text, |byte| byte.is_ascii_alphanumeric())
        .map(|(_, run)| run)
        .filter(|run| run.len() == 64 && run.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Whether an object store would read a grantee's e-mail address in it.
pub(super) fn holds_address(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("emailaddress") || text.contains("amazoncustomerbyemail")
}

/// Whether it names a group of everybody, or of all AWS customers ("Access control list (ACL)
/// overview").
pub(super) fn is_group_of_all(text: &str) -> bool {
    text.to_ascii_lowercase()
        .contains("acs.amazonaws.com/groups/global")
}

/// Every bucket in an ARN or a URI; a pattern is returned as it is.
pub(super) fn buckets(text: &str) -> impl Iterator<Item = &str> {
    let in_arns = text
        .match_indices(":s3:::")
        .map(|(at, mark)| &text[at + mark.len()..]);
    let in_uris = ["s3://", "s3a://", "s3n://"]
        .into_iter()
        .flat_map(move |mark| {
            text.match_indices(mark)
                .map(move |(at, _)| &text[at + mark.len()..])
        });
    let part =
        |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '*' | '?' | '$'));
    in_arns
        .chain(in_uris)
        .map(move |rest| rest.split(part).next().unwrap_or(rest))
}

/// Whether a value with this name lets everybody in: `UserGroup.1=all` of snapshots and images,
/// `ValuesToAdd` of databases, `AWSAccountId.1=*` of queues and topics, `FunctionUrlAuthType`.
pub(super) fn lets_everybody_in(name: &str, value: &str) -> bool {
    let value = value.trim().to_ascii_lowercase();
    let name = name.to_ascii_lowercase();
    let holds = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    let group = || name.rsplit('.').next() == Some("group") || name.starts_with("usergroup");
    match &*value {
        "all" => group() || holds(&["valuestoadd", "account", "userid", "principal"]),
        "*" => holds(&["account", "principal"]) && !name.contains(':'),
        "none" => matches!(&*name, "authtype" | "functionurlauthtype"),
        // Canned lists of S3. Those not listed here let in the owner of the bucket, or a service of
        // AWS.
        "public-read" | "public-read-write" | "authenticated-read" | "aws-exec-read" => {
            name.ends_with("acl")
        }
        _ => false,
    }
}

/// The bucket that a value with this name refers to, for a service other than S3: `S3BucketName` of
/// trails and exports.
pub(super) fn bucket_by_name<'v>(name: &str, value: &'v str) -> Option<&'v str> {
    let name = name.to_ascii_lowercase();
    let value = value.trim();
    let value = value.rsplit(":::").next().unwrap_or(value);
    let named = name.ends_with("bucket") || name.ends_with("bucketname");
    (named && !value.is_empty()).then(|| value.split('/').next().unwrap_or(value))
}

/// Every number of twelve digits in three groups separated by hyphens, as people write accounts.
pub(super) fn hyphenated(text: &str) -> impl Iterator<Item = String> {
    runs(text, |byte| byte.is_ascii_alphanumeric() || byte == b'-')
        .map(|(_, run)| run)
        .filter(|run| {
            run.len() == 14
                && run.bytes().enumerate().all(|(at, byte)| match at {
                    4 | 9 => byte == b'-',
                    _ => byte.is_ascii_digit(),
                })
        })
        .map(|run| run.replace('-', ""))
}

/// Whether a more lenient parser may read a text that is not JSON as a policy.
pub(super) fn speaks_of_principals(text: &str) -> bool {
    text.to_ascii_lowercase().contains("principal")
}

/// Decodes percent escapes, JSON's escapes and XML's references, as far as possible.
pub(super) fn unescaped(text: &str) -> String {
    let plain = percent_decode_str(text).decode_utf8_lossy();
    let plain = pieces(&plain, "\\u", |rest| {
        let digits = rest.get(..4)?;
        Some((
            char::from_u32(u32::from_str_radix(digits, 16).ok()?)?,
            &rest[4..],
        ))
    });
    pieces(&plain, "&#", |rest| {
        // No further than a number can reach, so that no text is searched twice.
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric())?;
        let (number, after) = (&rest[..end], rest[end..].strip_prefix(';')?);
        let code = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16).ok()?,
            None => number.parse().ok()?,
        };
        Some((char::from_u32(code)?, after))
    })
}

/// Replaces each mark with the character that `read` finds after it.
fn pieces(text: &str, mark: &str, read: impl Fn(&str) -> Option<(char, &str)>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(mark) {
        out.push_str(&rest[..at]);
        let after = &rest[at + mark.len()..];
        match read(after) {
            Some((character, after)) => {
                out.push(character);
                rest = after;
            }
            None => {
                out.push_str(mark);
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

/// Each longest run of bytes of a kind, all of them ASCII, and where it starts.
fn runs(text: &str, kind: impl Fn(u8) -> bool) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let bytes = text.as_bytes();
        while at < bytes.len() && !kind(bytes[at]) {
            at += 1;
        }
        let from = at;
        while at < bytes.len() && kind(bytes[at]) {
            at += 1;
        }
        (from < at).then(|| (from, &text[from..at]))
    })
}

/// Whether the digits from `at` on are part of something longer in hexadecimal, or the end of a
/// UUID.
fn is_inside_of_id(bytes: &[u8], at: usize) -> bool {
    let word = |byte: &u8| byte.is_ascii_alphanumeric();
    // No further than an id is long: searching a long word for each of its numbers would take
    // quadratic time.
    let before = bytes[..at]
        .iter()
        .rev()
        .take(LONGEST_ID)
        .take_while(|byte| word(byte))
        .count();
    let after = bytes[at..]
        .iter()
        .take(LONGEST_ID)
        .take_while(|byte| word(byte))
        .count();
    let word = &bytes[at - before..at + after];
    let hexadecimal = word.iter().all(u8::is_ascii_hexdigit);
    let ends_uuid = || {
        let start = (at - before).checked_sub(UUID_BEFORE.len());
        let shape = start.map(|start| bytes[start..at - before].iter());
        before == 0
            && after == 12
            && shape.is_some_and(|shape| {
                shape.zip(UUID_BEFORE).all(|(byte, kind)| match kind {
                    b'-' => *byte == b'-',
                    _ => byte.is_ascii_hexdigit(),
                })
            })
    };
    hexadecimal && (word.len() >= SHORTEST_ID || ends_uuid())
}

/// The text of an ARN before its account is never longer.
const ACCOUNT_WITHIN: usize = 160;
/// Hexadecimal ids of services have at least this length.
const SHORTEST_ID: usize = 16;
/// The longest: a hash of 512 bits.
const LONGEST_ID: usize = 128;
/// The part of a UUID before its last group.
const UUID_BEFORE: &[u8; 24] = b"xxxxxxxx-xxxx-xxxx-xxxx-";
