//! What a text names, as it stands: ARNs, numbers of twelve digits, grantees, buckets.

use percent_encoding::percent_decode_str;

/// The account of an ARN, unless it names none: that of AWS itself, of a bucket, or any (`*`),
/// which opens nothing where it stands in a resource and is a principal that AWS does not take.
pub(in super::super) fn arn_account(text: &str) -> Option<&str> {
    let mut parts = text.strip_prefix("arn:")?.splitn(5, ':');
    // Partition, service and region stand before the account.
    let account = parts.nth(3)?;
    (!matches!(account, "" | "aws" | "*") && !account.starts_with("${")).then_some(account)
}

/// Every ARN, from its beginning as far as its account may reach.
pub(super) fn arns(text: &str) -> impl Iterator<Item = &str> {
    let end = |c: char| matches!(c, '<' | '"' | '\'' | ' ' | '\n' | '\r' | '\t' | ',');
    text.match_indices("arn:").map(move |(at, _)| {
        // To look further each time would take the square of the text's length.
        let near = text.floor_char_boundary(at + ACCOUNT_WITHIN);
        let rest = &text[at..near];
        rest.split(end).next().unwrap_or(rest)
    })
}

/// Every number of twelve digits, as accounts have them. Digits inside of a UUID, a hash or an id
/// in hexadecimal are none: no service reads an account there, and one in some dozen such would be
/// refused.
pub(super) fn numbers(text: &str) -> impl Iterator<Item = &str> {
    runs(text, |byte| byte.is_ascii_digit())
        .filter(|(_, run)| run.len() == 12)
        .filter(|(at, _)| !is_inside_of_id(text.as_bytes(), *at))
        .map(|(_, run)| run)
}

/// Every canonical user id: 64 digits in hexadecimal.
pub(super) fn grantees(text: &str) -> impl Iterator<Item = &str> {
    runs(text, |byte| byte.is_ascii_alphanumeric())
        .map(|(_, run)| run)
        .filter(|run| run.len() == 64 && run.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Whether an object store would read a grantee's e-mail address out of it.
pub(super) fn holds_address(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("emailaddress") || text.contains("amazoncustomerbyemail")
}

/// Whether it names a group that holds all, or all of AWS's customers ("Access control list (ACL)
/// overview").
pub(super) fn is_group_of_all(text: &str) -> bool {
    text.to_ascii_lowercase()
        .contains("acs.amazonaws.com/groups/global")
}

/// Every bucket in an ARN or a URI; one with a pattern in it is named as it stands.
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

/// Whether a value under this name lets everybody in: `UserGroup.1=all` of snapshots and images,
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
        // Canned lists of S3; those that are not here let in the owner of the bucket, or a service
        // of AWS.
        "public-read" | "public-read-write" | "authenticated-read" | "aws-exec-read" => {
            name.ends_with("acl")
        }
        _ => false,
    }
}

/// The bucket that a value names under this name, to another service than S3: `S3BucketName` of
/// trails and exports.
pub(super) fn bucket_by_name<'v>(name: &str, value: &'v str) -> Option<&'v str> {
    let name = name.to_ascii_lowercase();
    let value = value.trim();
    let value = value.rsplit(":::").next().unwrap_or(value);
    let named = name.ends_with("bucket") || name.ends_with("bucketname");
    (named && !value.is_empty()).then(|| value.split('/').next().unwrap_or(value))
}

/// Every number of twelve digits in three groups with hyphens between, as people write accounts.
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

/// Whether a text that is no JSON may be a policy to a reader who is more lenient.
pub(super) fn speaks_of_principals(text: &str) -> bool {
    text.to_ascii_lowercase().contains("principal")
}

/// What stands behind percent escapes, JSON's escapes and XML's references; as far as it can be
/// read.
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
        // No further than a number goes, so that no two are looked for in the same text.
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric())?;
        let (number, after) = (&rest[..end], rest[end..].strip_prefix(';')?);
        let code = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16).ok()?,
            None => number.parse().ok()?,
        };
        Some((char::from_u32(code)?, after))
    })
}

/// Replaces each mark with the character that `read` finds behind it.
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

/// Each longest run of bytes of a kind, which are all ASCII, and where it begins.
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

/// Whether the digits from `at` on are a part of something longer in hexadecimal, or the end of a
/// UUID.
fn is_inside_of_id(bytes: &[u8], at: usize) -> bool {
    let word = |byte: &u8| byte.is_ascii_alphanumeric();
    // No further than an id is long: to look through a long word for each of its numbers would take
    // the square of its length.
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

/// Longer is nothing before the account of an ARN.
const ACCOUNT_WITHIN: usize = 160;
/// Ids in hexadecimal of services are as long, or longer.
const SHORTEST_ID: usize = 16;
/// The longest, a hash of 512 bits.
const LONGEST_ID: usize = 128;
/// What stands before the last group of a UUID.
const UUID_BEFORE: &[u8; 24] = b"xxxxxxxx-xxxx-xxxx-xxxx-";
