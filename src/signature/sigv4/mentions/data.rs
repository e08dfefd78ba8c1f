//! Which content is data: what a service stores or passes on, and does not read.

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
        let name = format!("{api}:{operation}");
        let at = LISTED.binary_search_by(|(known, _)| known.cmp(&&*name));
        match at.ok().and_then(|at| LISTED.get(at)) {
            None => Data::Nothing,
            Some((_, "")) => Data::Whole,
            Some((_, names)) => Data::Under(names),
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

/// Chosen by hand from all operations of botocore's models: those that carry data in, and the
/// members that contain it. Without members, all of the content is data. Sorted.
const LISTED: &[(&str, &str)] = &[
    ("bedrock-agent-runtime:InvokeAgent", ""),
    ("bedrock-agent-runtime:Retrieve", ""),
    ("bedrock-agent-runtime:RetrieveAndGenerate", ""),
    ("bedrock-runtime:ApplyGuardrail", ""),
    ("bedrock-runtime:Converse", ""),
    ("bedrock-runtime:ConverseStream", ""),
    ("bedrock-runtime:CountTokens", ""),
    ("bedrock-runtime:InvokeModel", ""),
    ("bedrock-runtime:InvokeModelWithBidirectionalStream", ""),
    ("bedrock-runtime:InvokeModelWithResponseStream", ""),
    ("cloudwatch:PutMetricData", "MetricData"),
    ("comprehend:DetectEntities", ""),
    ("comprehend:DetectKeyPhrases", ""),
    ("comprehend:DetectSentiment", ""),
    ("dynamodb:BatchExecuteStatement", "Parameters"),
    ("dynamodb:BatchGetItem", "Keys"),
    ("dynamodb:BatchWriteItem", "Item Key"),
    (
        "dynamodb:DeleteItem",
        "Key Expected ExpressionAttributeValues",
    ),
    ("dynamodb:ExecuteStatement", "Parameters"),
    ("dynamodb:ExecuteTransaction", "Parameters"),
    ("dynamodb:GetItem", "Key"),
    (
        "dynamodb:PutItem",
        "Item Expected ExpressionAttributeValues",
    ),
    (
        "dynamodb:Query",
        "KeyConditions QueryFilter ExclusiveStartKey ExpressionAttributeValues",
    ),
    (
        "dynamodb:Scan",
        "ScanFilter ExclusiveStartKey ExpressionAttributeValues",
    ),
    ("dynamodb:TransactGetItems", "Key"),
    (
        "dynamodb:TransactWriteItems",
        "Item Key ExpressionAttributeValues",
    ),
    (
        "dynamodb:UpdateItem",
        "Key Expected AttributeUpdates ExpressionAttributeValues",
    ),
    ("ebs:PutSnapshotBlock", ""),
    ("events:PutEvents", "Detail DetailType Time TraceHeader"),
    ("firehose:PutRecord", "Record"),
    ("firehose:PutRecordBatch", "Records"),
    ("iot-data:Publish", ""),
    (
        "kinesis:PutRecord",
        "Data PartitionKey ExplicitHashKey SequenceNumberForOrdering",
    ),
    ("kinesis:PutRecords", "Data PartitionKey ExplicitHashKey"),
    ("lambda:Invoke", ""),
    ("lambda:InvokeAsync", ""),
    ("lambda:InvokeWithResponseStream", ""),
    ("logs:PutLogEvents", "logEvents"),
    ("mediastore-data:PutObject", ""),
    ("polly:SynthesizeSpeech", ""),
    ("rds-data:BatchExecuteStatement", "parameterSets"),
    ("rds-data:ExecuteStatement", "parameters"),
    ("s3:CompleteMultipartUpload", ""),
    ("s3:DeleteObjects", ""),
    ("s3:PutObject", ""),
    ("s3:UploadPart", ""),
    ("s3:WriteGetObjectResponse", ""),
    ("sagemaker-runtime:InvokeEndpoint", ""),
    ("sagemaker-runtime:InvokeEndpointWithResponseStream", ""),
    ("secretsmanager:CreateSecret", "SecretString SecretBinary"),
    ("secretsmanager:PutSecretValue", "SecretString SecretBinary"),
    ("secretsmanager:UpdateSecret", "SecretString SecretBinary"),
    ("ses:SendEmail", "Message Destination"),
    ("ses:SendRawEmail", "RawMessage Destinations"),
    ("sesv2:SendEmail", "Content Destination"),
    (
        "sns:Publish",
        "Message Subject MessageAttributes MessageDeduplicationId MessageGroupId PhoneNumber",
    ),
    (
        "sns:PublishBatch",
        "Message Subject MessageAttributes MessageDeduplicationId MessageGroupId",
    ),
    (
        "sqs:SendMessage",
        "MessageBody MessageAttributes MessageAttribute MessageDeduplicationId MessageGroupId",
    ),
    (
        "sqs:SendMessageBatch",
        "MessageBody MessageAttributes MessageAttribute MessageDeduplicationId MessageGroupId",
    ),
    ("ssm:PutParameter", "Value"),
    ("stepfunctions:SendTaskFailure", "cause error"),
    ("stepfunctions:SendTaskSuccess", "output"),
    ("stepfunctions:StartExecution", "input"),
    ("stepfunctions:StartSyncExecution", "input"),
    ("timestream-write:WriteRecords", "Records CommonAttributes"),
    ("translate:TranslateText", ""),
    ("xray:PutTraceSegments", ""),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::super::action::names;
    use super::*;

    #[test]
    fn every_listed_operation_is_one_of_the_tables_and_found() {
        let known: HashSet<String> = names().collect();
        assert!(LISTED.is_sorted());
        for (name, members) in LISTED {
            assert!(known.contains(*name), "{name}");
            let (api, operation) = name.split_once(':').unwrap();
            let expected = if members.is_empty() {
                Data::Whole
            } else {
                Data::Under(members)
            };
            assert_eq!(Data::of(api, Some(operation)), expected);
        }
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
