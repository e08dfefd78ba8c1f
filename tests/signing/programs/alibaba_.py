"""Alibaba Cloud's SDKs: the API of version 3 (ACS3), the older one (RPC), and the object store by both of its SDKs (OSS4)."""

import os

import alibabacloud_oss_v2 as oss
import oss2
from aliyunsdkcore.auth.credentials import StsTokenCredential
from aliyunsdkcore.client import AcsClient
from aliyunsdkcore.request import CommonRequest
from alibabacloud_tea_openapi import models
from alibabacloud_tea_openapi.client import Client
from alibabacloud_tea_util.models import RuntimeOptions

from common import content, key, refused, run, same

# These two take their CA from the program alone.
CA = os.environ["SSL_CERT_FILE"]
BUCKET, STORE = "phantoms", "https://oss-cn-hangzhou.aliyun.test"
NAMES = ["plain", "with space", "plus+sign", "per%cent", "ünïcode/日本語", "a=b&c;d@e"]


def parts(scheme, spoil=False):
    id, secret, token = (os.environ[f"{scheme}_{part}"] for part in ("KEY", "SECRET", "TOKEN"))
    return id, (secret[:-1] + ("a" if secret[-1] != "a" else "b")) if spoil else secret, token


def acs3(spoil=False):
    id, secret, token = parts("ACS3", spoil)
    client = Client(models.Config(access_key_id=id, access_key_secret=secret, security_token=token, type="sts", endpoint="ecs.aliyun.test"))

    def call(method, pathname, style, **asked):
        params = models.Params(action="RunInstances", version="2014-05-26", protocol="HTTPS", method=method, auth_type="AK", style=style, pathname=pathname, req_body_type="json", body_type="json")
        return client.call_api(params, models.OpenApiRequest(**asked), RuntimeOptions(ca=CA, autoretry=False))["body"]["Seen"]

    seen = call("POST", "/", "RPC", query={"ImageId": "win 2019_a+b*~/ü", "RegionId": "cn-shanghai"}, body={"a": "ü <&>"})
    same(seen["content"], '{"a":"ü <&>"}')
    same(call("GET", "/clusters/with-dash/nodes", "ROA", query={"limit": "2"})["method"], "GET")


def rpc(spoil=False):
    id, secret, token = parts("RPC", spoil)
    client = AcsClient(region_id="cn-hangzhou", credential=StsTokenCredential(id, secret, token), verify=CA, auto_retry=False, max_retry_time=0)
    for method in ("GET", "POST"):
        request = CommonRequest()
        request.set_domain("rpc.aliyun.test")
        request.set_version("2014-05-26")
        request.set_action_name("DescribeRegions")
        request.set_protocol_type("https")
        request.set_method(method)
        request.add_query_param("X", "a b+*~/中")
        if method == "POST":
            request.add_body_params("InstanceName", "a b+*~/中")
        # The id that the origin saw and tells is, for this program, the one that it has.
        same(id in client.do_action_with_exception(request).decode(), True)


def oss4(spoil=False):
    id, secret, token = parts("OSS4", spoil)
    bucket = oss2.Bucket(oss2.StsAuth(id, secret, token, auth_version=oss2.AUTH_VERSION_4), STORE, BUCKET, region="cn-hangzhou")
    for name in NAMES:
        bucket.put_object(key(name), name.encode(), headers={"x-oss-meta-who": "judge", "Content-Type": "text/plain"})
        same(bucket.get_object(key(name)).read(), name.encode())
    same(sorted(item.key for item in bucket.list_objects(prefix=key("")).object_list), sorted(key(name) for name in NAMES))
    bucket.delete_object(key("plain"))
    same(bucket.object_exists(key("plain")), False)
    config = oss.config.load_default()
    config.credentials_provider, config.region, config.endpoint = oss.credentials.StaticCredentialsProvider(id, secret, token), "cn-hangzhou", STORE
    config.retry_max_attempts, config.additional_headers = 1, ["host"]
    client, whole = oss.Client(config), content(9_000_000)
    for name in NAMES:
        client.put_object(oss.PutObjectRequest(bucket=BUCKET, key=key(name), body=name.encode(), metadata={"who": "judge"}))
        same(client.get_object(oss.GetObjectRequest(bucket=BUCKET, key=key(name))).body.content, name.encode())
    client.put_object(oss.PutObjectRequest(bucket=BUCKET, key=key("large"), body=whole))
    same(client.get_object(oss.GetObjectRequest(bucket=BUCKET, key=key("large"))).body.content == whole, True)
    client.delete_object(oss.DeleteObjectRequest(bucket=BUCKET, key=key("large")))


run({"alibaba acs3": acs3, "alibaba rpc": rpc, "alibaba oss4": oss4, "wrong signature": lambda: refused(acs3, rpc, oss4)})
