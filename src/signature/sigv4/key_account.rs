//! Decodes the account of an access key from the key's id.

/// The AWS account to which an access key belongs, if the id encodes it.
///
/// After the four letters of its kind, an id is base32: one bit for its generation, then forty for
/// the account. Ids of the older generation (before 2019) and those of other stores do not encode
/// it. ("A bitwise analysis of AWS access key identifiers", WithSecure; `sts:GetAccessKeyInfo`
/// returns the same.)
pub fn account_of(access_key: &str) -> Option<String> {
    let (kind, id) = access_key.split_at_checked(4)?;
    if !matches!(kind, "AKIA" | "ASIA")
        || id.len() != 16
        || !id.bytes().all(|byte| digit(byte).is_some())
    {
        return None;
    }
    let bits = id.bytes().take(9).filter_map(digit);
    let number = bits.fold(0_u64, |number, digit| number << 5 | u64::from(digit));
    let (generation, account) = (number >> 44, number >> 4 & 0xff_ffff_ffff);
    (generation == 1 && account < 1_000_000_000_000).then(|| format!("{account:012}"))
}

/// The value of a base32 digit (RFC 4648 §6).
fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'2'..=b'7' => Some(byte - b'2' + 26),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_the_newer_generation_tells_its_account() {
        assert_eq!(
            account_of("ASIAY34FZKBOKMUTVV7A").as_deref(),
            Some("609629065308")
        );
        assert_eq!(
            account_of("ASIAQNZGKIQY56JQ7WML").as_deref(),
            Some("029608264753")
        );
    }

    #[test]
    fn what_tells_no_account_is_not_guessed() {
        for id in [
            "AKIAIOSFODNN7EXAMPLE",
            "AKIAJ44QH8DHBEXAMPLE",
            "",
            "AKIA",
            "minioadmin",
            "AKIAy34FZKBOKMUTVV7A",
            "AKIAY34FZKBOKMUTVV7",
            "AROAY34FZKBOKMUTVV7A",
            "AKIA7777777777777777",
            "AKIA\u{e9}34FZKBOKMUTVV7",
        ] {
            assert_eq!(account_of(id), None, "{id}");
        }
    }
}
