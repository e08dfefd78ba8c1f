//! Data: content that a service stores or passes on, and does not read.

use super::super::tables::listed;

/// The part of a content that is data, and is not searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// Nothing of it.
    Nothing,
    /// The members with these names, separated by spaces.
    Under(&'static str),
    /// All of it.
    Whole,
}

impl Data {
    /// The data in the content of an operation. In an operation in no table, nothing is data.
    pub fn of(api: &str, operation: Option<&str>) -> Data {
        let Some(operation) = operation else {
            return Data::Nothing;
        };
        match listed("data", &format!("{api}:{operation}")) {
            None => Data::Nothing,
            Some("") => Data::Whole,
            Some(names) => Data::Under(names),
        }
    }

    /// Whether the member with a name is data. A form member's name is prefixed with the names
    /// above it, separated by dots.
    pub(super) fn holds(self, name: &str) -> bool {
        match self {
            Data::Nothing => false,
            Data::Whole => true,
            Data::Under(names) => name
                .split('.')
                .any(|part| names.split(' ').any(|known| known == part)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listed_operation_carries_data_and_no_other() {
        assert_eq!(Data::of("s3", Some("PutObject")), Data::Whole);
        assert_eq!(Data::of("ssm", Some("PutParameter")), Data::Under("Value"));
        assert_eq!(Data::of("iam", Some("PutRolePolicy")), Data::Nothing);
        assert_eq!(Data::of("s3", None), Data::Nothing);
    }

    #[test]
    fn data_is_what_stands_under_its_name() {
        let data = Data::Under("MessageBody MessageAttribute");
        assert!(
            data.holds("MessageBody") && data.holds("SendMessageBatchRequestEntry.1.MessageBody")
        );
        assert!(data.holds("MessageAttribute.1.Value.StringValue"));
        assert!(!data.holds("QueueUrl") && !data.holds("messagebody") && !data.holds(""));
    }
}
