"""pyarrow: the AWS SDK for C++."""

import os
from urllib.parse import urlsplit

from pyarrow import fs

from common import ACCESS, BUCKET, KEYS, S3, SECRET, TOKEN, content, key, run, same

more = {}
if proxy := os.environ.get("HTTPS_PROXY"):
    more["proxy_options"] = proxy
s3 = fs.S3FileSystem(access_key=ACCESS, secret_key=SECRET, session_token=TOKEN, region=os.environ["AWS_REGION"], endpoint_override=urlsplit(S3).netloc,
                     scheme="https", tls_ca_file_path=os.environ["SSL_CERT_FILE"], **more)


def write(name, data):
    with s3.open_output_stream(f"{BUCKET}/{key(name)}") as stream:
        stream.write(data)


def read(name):
    with s3.open_input_stream(f"{BUCKET}/{key(name)}") as stream:
        return stream.read()


def put():
    write("put", b"hello")


def get():
    same(read("put"), b"hello")


def part():
    with s3.open_input_file(f"{BUCKET}/{key('put')}") as file:
        same(file.read_at(3, 1), b"ell")


def head():
    same(s3.get_file_info(f"{BUCKET}/{key('put')}").size, 5)


def listing():
    folder = key("put").rpartition("/")[0]
    same(f"{BUCKET}/{key('put')}" in [item.path for item in s3.get_file_info(fs.FileSelector(f"{BUCKET}/{folder}"))], True)


def copy():
    s3.copy_file(f"{BUCKET}/{key('put')}", f"{BUCKET}/{key('to')}")
    same(read("to"), b"hello")


def delete():
    s3.delete_file(f"{BUCKET}/{key('to')}")


def multipart():
    whole = content(17_000_000)
    write("large", whole)
    same(read("large") == whole, True)


def keys():
    # Arrow has paths of its own, without empty segments, and its HTTP library resolves dot segments after they were signed.
    for name in KEYS:
        if not {"", ".", ".."} & set(name.split("/")):
            write(name, name.encode())
            same(read(name), name.encode())


run({"put": put, "get": get, "range": part, "head": head, "list": listing, "copy": copy, "delete": delete, "multipart": multipart, "keys": keys})
