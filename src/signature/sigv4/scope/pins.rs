//! The pins as written, and the mistakes in them.

use super::super::action::{Action, names};
use super::super::endpoint::{is_account, is_bucket};
use super::super::tables::Tables;

/// The pins as configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pins {
    /// `aws`, `aws-cn`, `aws-us-gov`, …
    pub partitions: Vec<String>,
    /// Regions; `*` allows the set of all regions, which only SigV4a can ask for.
    pub regions: Vec<String>,
    /// Services by their signing name (`bedrock`) or by the AWS CLI's name (`bedrock-runtime`).
    pub services: Vec<String>,
    /// Services of the operator's own endpoints. `services` may name them although they are in no
    /// table.
    pub own_services: Vec<String>,
    /// Accounts of twelve digits and canonical user ids. A request may name only their resources,
    /// and open resources only to them; `*` alone means all of them.
    pub accounts: Vec<String>,
    /// Buckets, `name` or `name/prefix`.
    pub buckets: Vec<String>,
    /// Actions, `s3:GetObject`; `*` matches any characters.
    pub actions: Vec<String>,
    /// Actions that return credentials and are allowed nevertheless, each by its full name.
    pub credential_actions: Vec<String>,
}

/// An invalid pin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PinMistake {
    /// No such partition.
    #[error("there is no partition `{0}`")]
    Partition(String),
    /// Not spelled like a region.
    #[error("`{0}` is no region")]
    Region(String),
    /// No service has this name or signing name.
    #[error("there is no service `{0}`")]
    Service(String),
    /// Neither twelve digits nor a canonical user id.
    #[error(
        "`{0}` is not an account: twelve digits, a canonical user id of 64 hexadecimal digits, or `*` alone"
    )]
    Account(String),
    /// Not the name of a bucket.
    #[error("`{0}` is not a bucket, nor a bucket with a prefix")]
    Bucket(String),
    /// No action matches.
    #[error(
        "no action is called `{0}`; actions are named as by the AWS CLI: `s3:GetObject`, `lambda:Invoke`"
    )]
    Action(String),
    /// An action that returns no credential, or not an action.
    #[error("`{0}` is no action that returns credentials")]
    CredentialAction(String),
}

/// Every mistake in pins.
pub(super) fn mistakes(pins: &Pins) -> Vec<PinMistake> {
    let tables = Tables::get();
    let partition = |id: &str| tables.partitions.iter().any(|partition| partition.id == id);
    // The operator chose the region of their own endpoint, so only its spelling is checked.
    let region = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        text == "*" || (!text.is_empty() && text.bytes().all(plain))
    };
    let service = |name: &str| {
        let own = pins.own_services.iter().any(|own| own == name);
        own || tables
            .apis()
            .any(|api| api.id == name || api.signing == name)
            || name.starts_with("s3")
    };
    let bucket = |text: &str| is_bucket(text.split('/').next().unwrap_or(text));
    let alone = pins.accounts.len() == 1;
    let account = |text: &str| is_account(text) || is_canonical_id(text) || alone && text == "*";
    let action = |pin: &str| names().any(|name| matches(pin, &name));
    let credential = |name: &str| Action::is_credential_name(name);
    let mut found = Vec::new();
    let mut check =
        |texts: &[String], fits: &dyn Fn(&str) -> bool, mistake: fn(String) -> PinMistake| {
            let wrong = texts.iter().filter(|text| !fits(text));
            found.extend(wrong.cloned().map(mistake));
        };
    check(&pins.partitions, &partition, PinMistake::Partition);
    check(&pins.regions, &region, PinMistake::Region);
    check(&pins.services, &service, PinMistake::Service);
    check(&pins.accounts, &account, PinMistake::Account);
    check(&pins.buckets, &bucket, PinMistake::Bucket);
    check(&pins.actions, &action, PinMistake::Action);
    check(
        &pins.credential_actions,
        &credential,
        PinMistake::CredentialAction,
    );
    found
}

/// The format of "Finding an AWS account canonical user ID".
fn is_canonical_id(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Matches a pattern in which `*` matches any characters.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut name) = name.strip_prefix(start) else {
        return false;
    };
    let mut pieces = rest.split('*').peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return name.ends_with(piece);
        }
        match name.find(piece) {
            Some(at) => name = &name[at + piece.len()..],
            None => return false,
        }
    }
    false
}
