"""The clients, what each does, and what the gateway is told of the origins."""

# What a name of an object may be, and what clients do to it on the way.
KEYS = [
    "plain", "with space", "plus+sign", "per%cent", "per%20cent", "slash%2Fencoded", "ünïcode/日本語/😀", "a//b", "/leading", "trailing/", "dots/../up", "./here", "...",
    "semi;colon:at@eq=and&", "quote'\"star*()!~$,", "[]{}|^`<>#?\\",
]

OPERATIONS = [
    "put", "get", "range", "head", "list", "copy", "delete", "multipart", "keys", "checksums", "unsigned", "virtual host", "presigned get", "presigned put", "large",
    "dynamodb", "sts", "sqs", "bedrock", "bedrock stream", "service error",
]
# What says nothing of a signature of ours.
UNSIGNED = set()

EXPECTED = {
    "boto3": OPERATIONS,
}


def commands(home):
    python, programs = str(home / "venv/bin/python"), home / "programs"
    return {
        "boto3": [python, str(programs / "boto3_.py")],
    }


def configuration(report):
    parts = ['[audit]\npath = "log/audit.jsonl"\n\n[policy]\nfiles = ["policy.cedar"]\n']
    return "\n".join(parts)


def policy(report):
    return ""
