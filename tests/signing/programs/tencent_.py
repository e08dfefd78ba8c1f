"""Tencent Cloud's SDKs: the API (TC3) and the object store (COS)."""

import os

from qcloud_cos import CosConfig, CosS3Client
from tencentcloud.common import credential
from tencentcloud.common.common_client import CommonClient
from tencentcloud.common.profile.client_profile import ClientProfile
from tencentcloud.common.profile.http_profile import HttpProfile

from common import content, key, refused, run, same

BUCKET = "phantoms-1250000000"
NAMES = ["plain", "with space", "plus+sign", "per%cent", "ünïcode/日本語", "a=b&c;d@e"]


def parts(scheme, spoil):
    id, secret, token = (os.environ[f"{scheme}_{part}"] for part in ("KEY", "SECRET", "TOKEN"))
    return id, (secret[:-1] + ("a" if secret[-1] != "a" else "b")) if spoil else secret, token


def tc3(spoil=False):
    for method in ("POST", "GET"):
        profile = ClientProfile(httpProfile=HttpProfile(endpoint="cvm.tencent.test", reqMethod=method, certification=os.environ["SSL_CERT_FILE"]))
        client = CommonClient("cvm", "2017-03-12", credential.Credential(*parts("TC3", spoil)), "ap-guangzhou", profile)
        answer = client.call_json("DescribeInstances", {"Limit": 1, "Name": "未命名 a+b*~/"})
        same(answer["Response"]["Seen"]["method"], method)


def cos(spoil=False):
    id, secret, token = parts("COS", spoil)
    client = CosS3Client(CosConfig(Region="ap-beijing", SecretId=id, SecretKey=secret, Token=token, Endpoint="cos.tencent.test"), retry=0)
    for name in NAMES:
        client.put_object(Bucket=BUCKET, Body=name.encode(), Key=key(name), ContentType="text/plain", Metadata={"x-cos-meta-who": "judge ü"})
        same(client.get_object(Bucket=BUCKET, Key=key(name))["Body"].get_raw_stream().read(), name.encode())
    listed = client.list_objects(Bucket=BUCKET, Prefix=key(""), MaxKeys=100)
    same(sorted(item["Key"] for item in listed["Contents"]), sorted(key(name) for name in NAMES))
    whole = content(9_000_000)
    client.put_object(Bucket=BUCKET, Body=whole, Key=key("large"))
    same(client.get_object(Bucket=BUCKET, Key=key("large"))["Body"].get_raw_stream().read() == whole, True)
    client.delete_object(Bucket=BUCKET, Key=key("large"))
    same(client.object_exists(Bucket=BUCKET, Key=key("large")), False)


run({"tencent tc3": tc3, "tencent cos": cos, "wrong signature": lambda: refused(tc3, cos)})
