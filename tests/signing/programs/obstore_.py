"""obstore: the Rust crate object_store, which has a signer of its own."""

import os
from pathlib import Path

import obstore
from obstore.store import S3Store

from common import ACCESS, BUCKET, KEYS, S3, SECRET, TOKEN, content, key, run, same

options = {}
if proxy := os.environ.get("HTTPS_PROXY"):
    options["proxy_url"] = proxy
store = S3Store(BUCKET, endpoint=S3, access_key_id=ACCESS, secret_access_key=SECRET, session_token=TOKEN, region=os.environ["AWS_REGION"],
                virtual_hosted_style_request=False, client_options=options, retry_config={"max_retries": 0})


def read(name):
    return bytes(obstore.get(store, name).bytes())


def put():
    obstore.put(store, key("put"), b"hello", use_multipart=False)


def get():
    same(read(key("put")), b"hello")


def part():
    same(bytes(obstore.get_range(store, key("put"), start=1, end=4)), b"ell")


def head():
    same(obstore.head(store, key("put"))["size"], 5)


def listing():
    same([item["path"] for page in obstore.list(store, prefix=key("put").rpartition("/")[0]) for item in page if item["path"].endswith("/put")], [key("put")])


def copy():
    obstore.copy(store, key("put"), key("to"))
    same(read(key("to")), b"hello")


def delete():
    obstore.delete(store, key("to"))


def multipart():
    whole = content(17_000_000)
    obstore.put(store, key("large"), whole, use_multipart=True, chunk_size=6 << 20)
    same(read(key("large")) == whole, True)


def keys():
    # object_store has paths of its own: no empty segment, none of dots alone.
    for name in KEYS:
        if not {"", ".", "..", "..."} & set(name.split("/")):
            obstore.put(store, key(name), name.encode(), use_multipart=False)
            same(read(key(name)), name.encode())


run({"put": put, "get": get, "range": part, "head": head, "list": listing, "copy": copy, "delete": delete, "multipart": multipart, "keys": keys})
