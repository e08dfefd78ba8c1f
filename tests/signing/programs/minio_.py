"""The MinIO client for Python, which has a signer of its own."""

import hashlib, io, os
from datetime import timedelta
from urllib.parse import urlsplit

import urllib3
from minio import Minio
from minio.commonconfig import CopySource
from minio.deleteobjects import DeleteObject

from common import ACCESS, BUCKET, KEYS, S3, SECRET, TOKEN, content, key, run, same

pool = dict(ca_certs=os.environ["SSL_CERT_FILE"], cert_reqs="CERT_REQUIRED", retries=False)
proxy = os.environ.get("HTTPS_PROXY")
http = urllib3.ProxyManager(proxy, **pool) if proxy else urllib3.PoolManager(**pool)
client = Minio(urlsplit(S3).netloc, access_key=ACCESS, secret_key=SECRET, session_token=TOKEN, region=os.environ["AWS_REGION"], http_client=http)


def put(name="put", data=b"hello", **more):
    client.put_object(BUCKET, key(name), io.BytesIO(data), len(data), **more)


def get(name="put", wanted=b"hello", **more):
    found = client.get_object(BUCKET, key(name), **more)
    same(found.read(), wanted)
    found.release_conn()


def head():
    same(client.stat_object(BUCKET, key("put")).size, 5)


def listing():
    same([item.object_name for item in client.list_objects(BUCKET, prefix=key("put"))], [key("put")])


def copy():
    client.copy_object(BUCKET, key("to"), CopySource(BUCKET, key("put")))
    get("to")


def delete():
    client.remove_object(BUCKET, key("to"))
    put("gone too")
    same(list(client.remove_objects(BUCKET, [DeleteObject(key("gone too"))])), [])


def multipart():
    whole = content(17_000_000)
    client.put_object(BUCKET, key("large"), io.BytesIO(whole), -1, part_size=6 << 20)
    same(hashlib.sha256(client.get_object(BUCKET, key("large")).read()).digest(), hashlib.sha256(whole).digest())


def keys():
    # This client itself refuses the names with dot segments, and it ends others at their first slash.
    for name in KEYS:
        if "./" not in name and not name.startswith("/"):
            put(name, name.encode())
            get(name, name.encode())


def presigned_get():
    same(http.request("GET", client.presigned_get_object(BUCKET, key("put"), expires=timedelta(minutes=5))).data, b"hello")


def presigned_put():
    answer = http.request("PUT", client.presigned_put_object(BUCKET, key("by url"), expires=timedelta(minutes=5)), body=b"put by url")
    same(answer.status, 200)
    get("by url", b"put by url")


run({
    "put": put, "get": get, "range": lambda: get(wanted=b"ell", offset=1, length=3), "head": head, "list": listing, "copy": copy, "delete": delete,
    "multipart": multipart, "keys": keys, "presigned get": presigned_get, "presigned put": presigned_put,
})
