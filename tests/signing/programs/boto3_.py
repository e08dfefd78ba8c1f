"""boto3: S3 as programs use it, and the other services."""

import hashlib, io, json, os, tempfile, urllib.request

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

from common import BUCKET, KEYS, content, key, run, same

session = boto3.session.Session()
s3 = session.client("s3")


def put():
    s3.put_object(Bucket=BUCKET, Key=key("put"), Body=b"hello", Metadata={"who": "judge"}, ContentType="text/plain")


def get():
    found = s3.get_object(Bucket=BUCKET, Key=key("put"))
    same(found["Body"].read(), b"hello")
    same((found["ContentType"], found["Metadata"]), ("text/plain", {"who": "judge"}))


def part():
    s3.put_object(Bucket=BUCKET, Key=key("range"), Body=content(100_000))
    same(s3.get_object(Bucket=BUCKET, Key=key("range"), Range="bytes=1000-1999")["Body"].read(), content(2000)[1000:])


def head():
    same(s3.head_object(Bucket=BUCKET, Key=key("put"))["ContentLength"], 5)
    try:
        s3.head_object(Bucket=BUCKET, Key=key("absent"))
    except ClientError as error:
        return same(error.response["Error"]["Code"], "404")
    raise AssertionError("what is absent was found")


def listing():
    for name in ("a", "b/1", "b/2"):
        s3.put_object(Bucket=BUCKET, Key=key("list/" + name), Body=b"")
    pages = list(s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=key("list/"), PaginationConfig={"PageSize": 2}))
    same([item["Key"] for page in pages for item in page["Contents"]], [key("list/" + name) for name in ("a", "b/1", "b/2")])
    same(s3.list_objects_v2(Bucket=BUCKET, Prefix=key("list/"), Delimiter="/")["CommonPrefixes"], [{"Prefix": key("list/b/")}])


def copy():
    s3.put_object(Bucket=BUCKET, Key=key("from ü+%"), Body=b"copied")
    s3.copy_object(Bucket=BUCKET, Key=key("to"), CopySource={"Bucket": BUCKET, "Key": key("from ü+%")})
    same(s3.get_object(Bucket=BUCKET, Key=key("to"))["Body"].read(), b"copied")


def delete():
    for name in ("gone", "gone too"):
        s3.put_object(Bucket=BUCKET, Key=key(name), Body=b"")
    s3.delete_object(Bucket=BUCKET, Key=key("gone"))
    s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key("gone too")}]})
    same("Contents" in s3.list_objects_v2(Bucket=BUCKET, Prefix=key("gone")), False)


def multipart():
    whole = content(20_000_000)
    s3.upload_fileobj(io.BytesIO(whole), BUCKET, key("multipart"), Config=TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=6 << 20))
    sink = io.BytesIO()
    s3.download_fileobj(BUCKET, key("multipart"), sink, Config=TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=6 << 20))
    same(hashlib.sha256(sink.getvalue()).digest(), hashlib.sha256(whole).digest())


def keys():
    for name in KEYS:
        s3.put_object(Bucket=BUCKET, Key=key(name), Body=name.encode())
        same(s3.get_object(Bucket=BUCKET, Key=key(name))["Body"].read(), name.encode())
        same([item["Key"] for item in s3.list_objects_v2(Bucket=BUCKET, Prefix=key(name))["Contents"]][:1], [key(name)])


def checksums():
    for name in ("CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"):
        s3.put_object(Bucket=BUCKET, Key=key("sum"), Body=content(300_000), ChecksumAlgorithm=name)
        found = s3.get_object(Bucket=BUCKET, Key=key("sum"), ChecksumMode="ENABLED")
        same(found["Body"].read(), content(300_000))
        same(bool(found["Checksum" + name]), True)
    s3.put_object(Bucket=BUCKET, Key=key("sum"), Body=b"hello", ContentMD5="XUFAKrxLKna5cZ2REBfFkg==")


def unsigned():
    """No checksum and no hash of the content: UNSIGNED-PAYLOAD; then the hash of the content."""
    for config in (Config(request_checksum_calculation="when_required"), Config(request_checksum_calculation="when_required", s3={"payload_signing_enabled": True})):
        session.client("s3", config=config).put_object(Bucket=BUCKET, Key=key("unsigned"), Body=content(70_000))
        same(s3.get_object(Bucket=BUCKET, Key=key("unsigned"))["Body"].read(), content(70_000))


def virtual():
    """The bucket in the host's name."""
    client = session.client("s3", config=Config(s3={"addressing_style": "virtual"}))
    client.put_object(Bucket=BUCKET, Key=key("virtual host"), Body=b"host")
    same(s3.get_object(Bucket=BUCKET, Key=key("virtual host"))["Body"].read(), b"host")


def presigned_get():
    s3.put_object(Bucket=BUCKET, Key=key("presigned ü"), Body=b"by url")
    client = session.client("s3", config=Config(signature_version="s3v4"))
    url = client.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": key("presigned ü")}, ExpiresIn=300)
    same(fetched(urllib.request.Request(url)), b"by url")


def presigned_put():
    client = session.client("s3", config=Config(signature_version="s3v4"))
    url = client.generate_presigned_url("put_object", Params={"Bucket": BUCKET, "Key": key("presigned put"), "ContentType": "text/plain"}, ExpiresIn=300)
    fetched(urllib.request.Request(url, data=b"put by url", method="PUT", headers={"Content-Type": "text/plain"}))
    same(s3.get_object(Bucket=BUCKET, Key=key("presigned put"))["Body"].read(), b"put by url")


def fetched(request):
    return urllib.request.urlopen(request, timeout=30).read()


def large():
    """One upload, one download: 256 MiB as one stream each, unless SIGNING_LARGE says otherwise."""
    size, piece = int(os.environ.get("SIGNING_LARGE", "256")) << 20, content(1 << 20)
    with tempfile.TemporaryFile() as file:
        for _ in range(size >> 20):
            file.write(piece)
        file.seek(0)
        s3.put_object(Bucket=BUCKET, Key=key("large"), Body=file)
    body = s3.get_object(Bucket=BUCKET, Key=key("large"))["Body"]
    found = hashlib.sha256()
    for part in body.iter_chunks(1 << 20):
        found.update(part)
    wanted = hashlib.sha256()
    for _ in range(size >> 20):
        wanted.update(piece)
    same(found.digest(), wanted.digest())
    s3.delete_object(Bucket=BUCKET, Key=key("large"))


def dynamodb():
    client = session.client("dynamodb")
    item = {"id": {"S": "boto3 ü"}, "n": {"N": "7"}}
    client.put_item(TableName="judges", Item=item)
    same(client.get_item(TableName="judges", Key={"id": item["id"]})["Item"], item)


def sts():
    same(session.client("sts").get_caller_identity()["Account"], "123456789012")


def assumed():
    """The keys of a role sign as those of the environment do; what this program holds of them is told, for whoever compares."""
    found = session.client("sts").assume_role(RoleArn="arn:aws:iam::123456789012:role/judge", RoleSessionName="alice")["Credentials"]
    print("   holds", found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"])
    role = boto3.session.Session(aws_access_key_id=found["AccessKeyId"], aws_secret_access_key=found["SecretAccessKey"], aws_session_token=found["SessionToken"])
    item = {"id": {"S": "by the role"}}
    role.client("dynamodb").put_item(TableName="judges", Item=item)
    same(role.client("dynamodb").get_item(TableName="judges", Key=item)["Item"], item)
    same(role.client("sts").get_caller_identity()["Account"], "123456789012")


def sqs():
    client = session.client("sqs")
    queue = client.meta.endpoint_url + "/123456789012/judges"
    client.send_message(QueueUrl=queue, MessageBody="from boto3 <&>")
    same(client.receive_message(QueueUrl=queue)["Messages"][0]["Body"], "from boto3 <&>")


def bedrock():
    client = session.client("bedrock-runtime")
    answer = client.invoke_model(modelId="anthropic.claude-3-sonnet-20240229-v1:0", body=json.dumps({"prompt": "hi"}))
    same(json.loads(answer["body"].read()), {"completion": "echo hi"})


def streaming():
    client = session.client("bedrock-runtime")
    answer = client.invoke_model_with_response_stream(modelId="arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.x-v1:0", body=json.dumps({"prompt": "hi"}))
    same([json.loads(event["chunk"]["bytes"])["n"] for event in answer["body"]], list(range(8)))
    answer = client.converse_stream(modelId="x-v1:0", messages=[{"role": "user", "content": [{"text": "one two three"}]}])
    same([event["contentBlockDelta"]["delta"]["text"] for event in answer["stream"] if "contentBlockDelta" in event], ["one", "two", "three"])


def sigv4a():
    """By AWS's own implementation in C. The S3 origin has none of it; the other one has, and answers what it saw."""
    config = Config(signature_version="s3v4a", s3={"addressing_style": "path"})
    client = session.client("s3", endpoint_url=json.loads(os.environ["SIGNING_OTHERS"])["objects.test"], config=config)
    for name in ("asymmetric ü+%", "a//b/../c"):
        same(json.loads(client.get_object(Bucket=BUCKET, Key=key(name))["Body"].read())["method"], "GET")


def failure(call, **arguments):
    try:
        call(**arguments)
    except ClientError as error:
        return error.response["Error"]
    raise AssertionError("no error")


def error():
    same(failure(session.client("dynamodb").delete_table, TableName="judges")["Code"], "ResourceNotFoundException")


def refusal():
    """What the gateway refuses by itself, as this SDK tells it; straight at the origin it is allowed."""
    if "SIGNING_DIRECT" in os.environ:
        return session.client("secretsmanager").get_secret_value(SecretId="judge")
    told = failure(session.client("secretsmanager").get_secret_value, SecretId="judge")
    same((told["Code"], "gateway why " in told["Message"]), ("AccessDeniedException", True))
    told = failure(session.client("s3", region_name="eu-west-1").get_object, Bucket=BUCKET, Key=key("put"))
    same((told["Code"], "gateway why " in told["Message"]), ("AccessDenied", True))



run({
    "put": put, "get": get, "range": part, "head": head, "list": listing, "copy": copy, "delete": delete, "multipart": multipart, "keys": keys,
    "checksums": checksums, "unsigned": unsigned, "virtual host": virtual, "presigned get": presigned_get, "presigned put": presigned_put, "large": large,
    "dynamodb": dynamodb, "sts": sts, "assumed role": assumed, "sqs": sqs, "bedrock": bedrock, "bedrock stream": streaming, "service error": error, "refusal": refusal, "sigv4a": sigv4a,
})
