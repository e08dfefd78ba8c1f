//! Operations whose answer is a credential (threat J03): denied unless configuration names them.
//!
//! Chosen by hand from all operations of botocore's models whose output has a member for a key, a token, a password, a private key or
//! a signed URL of the console's kind. What returns a customer's data, of whatever kind (`s3:GetObject`, `kms:Decrypt`), is not here:
//! pins say who may read what.

use std::collections::HashSet;
use std::sync::LazyLock;

/// Whether the answer of this operation holds a credential.
pub(super) fn returns_credentials(api: &str, operation: &str) -> bool {
    MINTING.contains(&(api, operation))
}

/// Whether the credentials of its answer stay in the gateway, and the client is given phantoms for them.
pub(super) fn is_virtualised(api: &str, operation: &str) -> bool {
    matches!(
        (api, operation),
        (
            "sts",
            "AssumeRole" | "AssumeRoot" | "GetSessionToken" | "GetFederationToken"
        ) | ("s3", "CreateSession")
            | ("s3control", "GetDataAccess")
    )
}

/// Whether an API has such an operation at all.
pub(super) fn is_minting(api: &str) -> bool {
    MINTING.iter().any(|(known, _)| *known == api)
}

static MINTING: LazyLock<HashSet<(&'static str, &'static str)>> =
    LazyLock::new(|| LISTED.iter().filter_map(|name| name.split_once(':')).collect());

const LISTED: [&str; 175] = [
    "acm:ExportCertificate",
    "amplifyuibuilder:ExchangeCodeForToken",
    "amplifyuibuilder:RefreshToken",
    "apigateway:CreateApiKey",
    "apigateway:GetApiKey",
    "apigateway:GetApiKeys",
    "apigateway:UpdateApiKey",
    "appstream:CreateAppBlockBuilderStreamingURL",
    "appstream:CreateImageBuilderStreamingURL",
    "appstream:CreateStreamingURL",
    "appsync:CreateApiKey",
    "appsync:ListApiKeys",
    "appsync:UpdateApiKey",
    "athena:CreatePresignedNotebookUrl",
    "athena:GetSessionEndpoint",
    "bedrock-agentcore:GetResourceApiKey",
    "bedrock-agentcore:GetResourceOauth2Token",
    "bedrock-agentcore:GetResourcePaymentToken",
    "bedrock-agentcore:GetWorkloadAccessToken",
    "bedrock-agentcore:GetWorkloadAccessTokenForJWT",
    "bedrock-agentcore:GetWorkloadAccessTokenForUserId",
    "chime:CreateBot",
    "chime:GetBot",
    "chime:ListBots",
    "chime:RegenerateSecurityToken",
    "chime:UpdateBot",
    "codeartifact:GetAuthorizationToken",
    "codebuild:StartSandboxConnection",
    "codepipeline:GetJobDetails",
    "codepipeline:GetThirdPartyJobDetails",
    "codepipeline:PollForJobs",
    "cognito-identity:GetCredentialsForIdentity",
    "cognito-identity:GetOpenIdToken",
    "cognito-identity:GetOpenIdTokenForDeveloperIdentity",
    "cognito-idp:AddUserPoolClientSecret",
    "cognito-idp:AdminInitiateAuth",
    "cognito-idp:AdminRespondToAuthChallenge",
    "cognito-idp:AssociateSoftwareToken",
    "cognito-idp:CreateUserPoolClient",
    "cognito-idp:DescribeUserPoolClient",
    "cognito-idp:GetTokensFromRefreshToken",
    "cognito-idp:InitiateAuth",
    "cognito-idp:ListUserPoolClientSecrets",
    "cognito-idp:RespondToAuthChallenge",
    "cognito-idp:UpdateUserPoolClient",
    "connect:CreateParticipant",
    "connect:GetFederationToken",
    "connectparticipant:CreateParticipantConnection",
    "datazone:CreateConnection",
    "datazone:GetConnection",
    "datazone:GetEnvironmentCredentials",
    "datazone:ListConnections",
    "datazone:UpdateConnection",
    "deadline:AssumeFleetRoleForRead",
    "deadline:AssumeFleetRoleForWorker",
    "deadline:AssumeQueueRoleForRead",
    "deadline:AssumeQueueRoleForUser",
    "deadline:AssumeQueueRoleForWorker",
    "devicefarm:CreateTestGridUrl",
    "ec2:CreateKeyPair",
    "ec2:CreateVpnConnection",
    "ec2:DescribeVpnConnections",
    "ec2:GetPasswordData",
    "ecr-public:GetAuthorizationToken",
    "ecr:GetAuthorizationToken",
    "eks-auth:AssumeRoleForPodIdentity",
    "emr-containers:GetManagedEndpointSessionCredentials",
    "emr-serverless:GetDashboardForJobRun",
    "emr-serverless:GetResourceDashboard",
    "emr-serverless:GetSessionEndpoint",
    "emr:GetClusterSessionCredentials",
    "emr:GetOnClusterAppUIPresignedURL",
    "emr:GetPersistentAppUIPresignedURL",
    "finspace-data:GetExternalDataViewAccessDetails",
    "finspace-data:GetProgrammaticAccessCredentials",
    "finspace-data:ResetUserPassword",
    "gamelift:CreateBuild",
    "gamelift:GetComputeAccess",
    "gamelift:GetComputeAuthToken",
    "gamelift:GetInstanceAccess",
    "gamelift:RequestUploadCredentials",
    "grafana:CreateWorkspaceApiKey",
    "grafana:CreateWorkspaceServiceAccountToken",
    "iam:CreateAccessKey",
    "iam:CreateLoginProfile",
    "iam:CreateServiceSpecificCredential",
    "iam:CreateVirtualMFADevice",
    "iam:ResetServiceSpecificCredential",
    "iam:UpdateLoginProfile",
    "iot-managed-integrations:CreateProvisioningProfile",
    "iot:CreateKeysAndCertificate",
    "iot:CreateProvisioningClaim",
    "iotsecuretunneling:OpenTunnel",
    "iotsecuretunneling:RotateTunnelAccessToken",
    "ivs-realtime:CreateParticipantToken",
    "ivs-realtime:CreateStage",
    "ivs:CreateStreamKey",
    "ivs:GetStreamKey",
    "ivschat:CreateChatToken",
    "kinesis-video-signaling:GetIceServerConfig",
    "lakeformation:AssumeDecoratedRoleWithSAML",
    "lakeformation:GetTemporaryDataLocationCredentials",
    "lakeformation:GetTemporaryGluePartitionCredentials",
    "lakeformation:GetTemporaryGlueTableCredentials",
    "lambda:GetFunction",
    "license-manager:CreateToken",
    "license-manager:GetAccessToken",
    "lightsail:CreateBucketAccessKey",
    "lightsail:CreateContainerServiceRegistryLogin",
    "lightsail:CreateKeyPair",
    "lightsail:DownloadDefaultKeyPair",
    "lightsail:GetBucketAccessKeys",
    "lightsail:GetInstanceAccessDetails",
    "lightsail:GetRelationalDatabaseMasterUserPassword",
    "location:CreateKey",
    "location:DescribeKey",
    "managedblockchain:CreateAccessor",
    "managedblockchain:GetAccessor",
    "mediapackage:CreateChannel",
    "mediapackage:DescribeChannel",
    "mediapackage:RotateChannelCredentials",
    "mediapackage:RotateIngestEndpointCredentials",
    "mwaa:CreateCliToken",
    "mwaa:CreateWebLoginToken",
    "panorama:ProvisionDevice",
    "payment-cryptography:ExportKey",
    "pca-connector-scep:CreateChallenge",
    "pca-connector-scep:GetChallengePassword",
    "pcs:RegisterComputeNodeGroupInstance",
    "quicksight:GenerateEmbedUrlForAnonymousUser",
    "quicksight:GenerateEmbedUrlForRegisteredUser",
    "quicksight:GenerateEmbedUrlForRegisteredUserWithIdentity",
    "quicksight:GetDashboardEmbedUrl",
    "quicksight:GetSessionEmbedUrl",
    "redshift-serverless:GetCredentials",
    "redshift-serverless:GetIdentityCenterAuthToken",
    "redshift:GetClusterCredentials",
    "redshift:GetClusterCredentialsWithIAM",
    "redshift:GetIdentityCenterAuthToken",
    "s3:CreateSession",
    "s3control:GetDataAccess",
    "sagemaker:CreatePresignedDomainUrl",
    "sagemaker:CreatePresignedMlflowTrackingServerUrl",
    "sagemaker:CreatePresignedNotebookInstanceUrl",
    "sagemaker:StartSession",
    "secretsmanager:BatchGetSecretValue",
    "secretsmanager:GetSecretValue",
    "snowball:GetJobManifest",
    "snowball:GetJobUnlockCode",
    "ssm:CreateActivation",
    "ssm:GetAccessToken",
    "ssm:GetParameter",
    "ssm:GetParameterHistory",
    "ssm:GetParameters",
    "ssm:GetParametersByPath",
    "ssm:ResumeSession",
    "ssm:StartSession",
    "sso-oidc:CreateToken",
    "sso-oidc:CreateTokenWithIAM",
    "sso-oidc:RegisterClient",
    "sso:GetRoleCredentials",
    "storagegateway:DescribeChapCredentials",
    "sts:AssumeRole",
    "sts:AssumeRoleWithSAML",
    "sts:AssumeRoleWithWebIdentity",
    "sts:AssumeRoot",
    "sts:GetDelegatedAccessToken",
    "sts:GetFederationToken",
    "sts:GetSessionToken",
    "sts:GetWebIdentityToken",
    "wafv2:CreateAPIKey",
    "wafv2:ListAPIKeys",
    "wickr:GetOidcInfo",
    "wickr:GetOpentdfConfig",
    "workmail:AssumeImpersonationRole",
];

#[cfg(test)]
mod tests {
    use super::super::names;
    use super::*;

    #[test]
    fn every_listed_operation_is_one_of_the_tables() {
        let known: HashSet<String> = names().collect();
        for name in LISTED {
            assert!(known.contains(name), "{name}");
        }
        assert_eq!(MINTING.len(), LISTED.len());
    }
}
