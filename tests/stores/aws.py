"""Sets up moto, by Amazon's own client: aws.py PORT begin, or aws.py PORT FOLDER STEP.

`begin` makes users whose keys IAM checks, and prints them: an administrator's, one that may read secrets
alone, and one that may not.
"""

import json
import sys

import boto3

port, folder, step = sys.argv[1:4]
base = {"endpoint_url": f"http://127.0.0.1:{port}"}


def client(service, keys, region="eu-west-1"):
    return boto3.client(service, region_name=region, aws_access_key_id=keys[0], aws_secret_access_key=keys[1], **base)


def user(iam, name, *statements):
    iam.create_user(UserName=name)
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **one} for one in statements]}
    iam.put_user_policy(UserName=name, PolicyName="own", PolicyDocument=json.dumps(policy))
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return key["AccessKeyId"], key["SecretAccessKey"]


if step == "begin":
    admin = user(client("iam", ("x", "y")), "admin", {"Action": "*", "Resource": "*"})
    read = ["secretsmanager:GetSecretValue", "ssm:GetParameter"]
    iam = client("iam", admin)
    own = user(iam, "gateway", {"Action": read, "Resource": "*"})
    stranger = user(iam, "stranger", {"Action": "s3:GetObject", "Resource": "*"})
    with open(f"{folder}/keys.json", "w") as file:
        json.dump({"admin": admin, "gateway": own, "stranger": stranger}, file)
    for region, value in [("eu-west-1", "CANARY-value-0001"), ("us-east-1", "CANARY-value-us01")]:
        secrets = client("secretsmanager", admin, region)
        secrets.create_secret(Name="app", SecretString=json.dumps({"token": value, "user": "someone"}))
    secrets = client("secretsmanager", admin)
    secrets.create_secret(Name="app-plain", SecretString="CANARY-plain-0001")
    secrets.create_secret(Name="app-binary", SecretBinary=b"\x00\xffCANARY-binary")
    client("ssm", admin).put_parameter(Name="/app/token", Value="CANARY-param-0001", Type="SecureString")
else:
    with open(f"{folder}/keys.json") as file:
        admin = json.load(file)["admin"]
    secrets, ssm = client("secretsmanager", admin), client("ssm", admin)
    if step == "rotate":
        secrets.put_secret_value(SecretId="app", SecretString=json.dumps({"token": "CANARY-value-0002", "user": "someone"}))
        ssm.put_parameter(Name="/app/token", Value="CANARY-param-0002", Type="SecureString", Overwrite=True)
    elif step == "delete":
        secrets.delete_secret(SecretId="app", RecoveryWindowInDays=7)
        ssm.delete_parameter(Name="/app/token")
    elif step == "disable":
        iam = client("iam", admin)
        for key in iam.list_access_keys(UserName="gateway")["AccessKeyMetadata"]:
            iam.delete_access_key(UserName="gateway", AccessKeyId=key["AccessKeyId"])
