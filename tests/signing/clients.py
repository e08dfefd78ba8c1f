"""The clients, what each does, and what the gateway is told of the origins."""

import json

# What a name of an object may be, and what clients do to it on the way.
KEYS = [
    "plain", "with space", "plus+sign", "per%cent", "per%20cent", "slash%2Fencoded", "ünïcode/日本語/😀", "a//b", "/leading", "trailing/", "dots/../up", "./here", "...",
    "semi;colon:at@eq=and&", "quote'\"star*()!~$,", "[]{}|^`<>#?\\",
]

OPERATIONS = [
    "put", "get", "range", "head", "list", "copy", "delete", "multipart", "keys", "checksums", "unsigned", "virtual host", "presigned get", "presigned put", "large",
    "dynamodb", "sts", "assumed role", "sqs", "bedrock", "bedrock stream", "service error", "refusal", "stream",
    "signed chunks", "signed trailer", "unsigned trailer", "expect", "flipped", "differential", "differential v4a", "sigv4a",
    "event stream",
]
OWN = OPERATIONS[-9:-1]
# Of services that are not AWS, by recipes.
RECIPES = {
    "azure": ["azure blob", "azure queue", "azure table", "azure sas"],
    "alibaba": ["alibaba acs3", "alibaba rpc", "alibaba oss4", "wrong signature"],
    "tencent": ["tencent tc3", "tencent cos", "wrong signature"],
    "exchanges": ["binance", "kraken", "coinbase", "bybit", "okx", "bitfinex", "wrong signature"],
}
OTHERS = list(dict.fromkeys(name for names in RECIPES.values() for name in names))
# The variables' first words for each way in which Azure's key signs.
SIGNED_FOR = {"AZURE_STORAGE": ("blob", "queue"), "AZURE_TABLES": ("table",), "AZURE_SAS": ("blob",)}
AZURE = tuple(SIGNED_FOR)
# What is tried with a wrong key: an operation of each kind.
TELLING = {"put", "list", "presigned put", "unsigned", "dynamodb", "sts", "sqs", "bedrock", "signed chunks", "signed trailer", "unsigned trailer", "differential", "differential v4a", "sigv4a", "event stream", *OTHERS} - {"wrong signature"}

# What an S3 client of its own does: no AWS SDK, no other service.
OBJECTS = ["put", "get", "range", "head", "list", "copy", "delete", "multipart", "keys"]

EXPECTED = {
    "boto3": [name for name in OPERATIONS if name not in ("stream", *OWN[:-1], "event stream")],
    "aws-cli": ["put", "get", "range", "head", "list", "copy", "delete", "multipart", "keys", "presigned get", "dynamodb", "sts", "sqs", "service error", "refusal"],
    # As the first version, but for what would only start it again: each start is a second of work.
    "aws-cli-2": ["put", "get", "list", "copy", "multipart", "keys", "presigned get", "dynamodb", "sts", "sqs", "refusal"],
    "js": [name for name in OPERATIONS if name not in ("unsigned", "large", "assumed role", *OWN, "event stream")],
    "go": [*OBJECTS, "checksums", "presigned get", "presigned put", "dynamodb", "sts", "sqs", "service error", "refusal"],
    "rust": [*OBJECTS, "checksums", "virtual host", "presigned get", "presigned put", "dynamodb", "sts", "service error", "refusal"],
    "java": ["sts", "assumed role", "refusal"],
    "rclone-debian": [name for name in OBJECTS if name != "head"],
    "rclone-newest": [name for name in OBJECTS if name != "head"],
    "s3cmd": [name for name in OBJECTS if name not in ("range", "head")],
    "minio": [*OBJECTS, "presigned get", "presigned put"],
    "minio-go": [*OBJECTS, "presigned get", "presigned put"],
    "obstore": OBJECTS,
    "pyarrow": OBJECTS,
    "bytes": OWN,
    "js-http2": ["event stream"],
    **RECIPES,
}

# What goes by some ways alone: Node's HTTP/2 by no proxy.
BY = {"js-http2": ("exec",)}


def commands(home):
    python, programs = str(home / "venv/bin/python"), home / "programs"
    program = lambda name: [python, str(programs / name)]
    script = lambda name, *rest: ["sh", str(programs / name), *rest]
    return {
        "boto3": program("boto3_.py"), "aws-cli": script("awscli.sh", str(home / "venv/bin/aws")),
        "aws-cli-2": script("awscli.sh", str(home / "awscli2/aws")), "rust": [str(home / "bin/aws-rust")], "minio-go": [str(home / "bin/miniogo")],
        "java": ["java", "-cp", f"{home / 'java/AthenaJDBC42.jar'}:{home / 'java'}", "AwsProgram"], "js": ["node", str(home / "node/aws.mjs")], "go": [str(home / "bin/awsgo")],
        "rclone-debian": script("rclone.sh", "/usr/bin/rclone"), "rclone-newest": script("rclone.sh", str(home / "venv/bin/rclone")), "s3cmd": script("s3cmd.sh"),
        "minio": program("minio_.py"), "obstore": program("obstore_.py"), "pyarrow": program("pyarrow_.py"), "bytes": program("raw_.py"), "azure": program("azure_.py"), **{name: [str(home / "services/bin/python"), str(programs / f"{name}_.py")] for name in ("alibaba", "tencent", "exchanges")}, "js-http2": ["node", str(home / "node/stream.mjs")],
    }


# What these clients need beside the harmless settings.
PASSED = ["SIGNING_*", "AWS_EC2_METADATA_DISABLED", "AWS_MAX_ATTEMPTS", *(f"AWS_ENDPOINT_URL_{name}" for name in ("S3", "DYNAMODB", "STS", "SQS", "BEDROCK_RUNTIME", "SECRETS_MANAGER", "TRANSCRIBE_STREAMING"))]


def configuration(report):
    parts = ['[audit]\npath = "log/audit.jsonl"\n\n[policy]\nfiles = ["policy.cedar"]\n']
    endpoints = []
    for name, port in report["hosts"].items():
        for match in [name, "*." + name] if name == "s3.test" else [name]:
            parts.append(f'[[origin]]\nmatch = "https://{match}:{port}"\nroots = ["origins-ca.pem"]\nreplace_system_roots = true\nconnect = "127.0.0.1:{port}"\n')
            endpoints.append(f'    {{ origin = "https://{match}:{port}", service = "{report["services"][name]}", region = "{report["region"]}" }},')
    reference = lambda name: f'"file:secrets/{name}"'
    keys = ", ".join(f"{part} = {reference(name)}" for name, part in (("AWS_ACCESS_KEY_ID", "access_key"), ("AWS_SECRET_ACCESS_KEY", "secret_key"), ("AWS_SESSION_TOKEN", "session_token")))
    parts.append(f'[[credential]]\nname = "aws"\nsign = "sigv4"\nparts = {{ {keys} }}\ncredential_actions = ["sts:AssumeRole"]\nendpoints = [\n' + "\n".join(endpoints) + "\n]\n")
    for name, port in report["azure"]["hosts"].items():
        parts.append(f'[[origin]]\nmatch = "https://{name}:{port}"\nroots = ["origins-ca.pem"]\nreplace_system_roots = true\nconnect = "127.0.0.1:{port}"\n')
    for kind, recipe in zip(AZURE, ("azure-shared-key", "azure-table-shared-key", "azure-blob-sas")):
        origins = [f"https://{name}:{port}" for name, port in report["azure"]["hosts"].items() if name.split(".")[1] in SIGNED_FOR[kind]]
        # The account's name is the client's own: it stands in the host.
        given = {"key": f"{kind}_KEY"}
        keys = ", ".join(f"{part} = {reference(name)}" for part, name in given.items())
        parts.append(f'[[credential]]\nname = "{kind}"\nsign = "{recipe}"\nenv = {json.dumps(list(given.values()))}\norigins = {json.dumps(origins)}\nparts = {{ {keys} }}\n')
    for name, scheme in report["recipes"]["schemes"].items():
        # oss2 writes the slashes of a key so.
        slash = "encoded_slash = true\n" if name == "OSS4" else ""
        parts += [f'[[origin]]\nmatch = "https://{host}"\nroots = ["origins-ca.pem"]\nreplace_system_roots = true\nconnect = "127.0.0.1:{report["recipes"]["port"]}"\n{slash}' for host in scheme["hosts"]]
        keys = ", ".join(f'{part} = {reference(f"{name}_{part.upper()}")}' for part in scheme["keys"])
        parts.append(f'[[credential]]\nname = "{name}"\nsign = "{scheme["recipe"]}"\nenv = {json.dumps([f"{name}_{part.upper()}" for part in scheme["keys"]])}\n'
                     f'origins = {json.dumps([f"https://{host}" for host in scheme["hosts"]])}\nparts = {{ {keys} }}\n')
    parts.append(f"[sandbox]\npass_env = {json.dumps(PASSED)}\n")
    return "\n".join(parts)


def policy(report):
    parts = [f'@id("signing/lend/azure/{kind}")\npermit(principal, action == Gateway::Action::"lend", resource == Gateway::Credential::"{kind}");\n' for kind in AZURE]
    for scheme, found in report["recipes"]["schemes"].items():
        parts.append(f'@id("signing/lend/{scheme}")\npermit(principal, action == Gateway::Action::"lend", resource == Gateway::Credential::"{scheme}");\n')
    others = {host: 443 for found in report["recipes"]["schemes"].values() for host in found["hosts"]}
    for name, port in [*report["hosts"].items(), *report["azure"]["hosts"].items(), *others.items()]:
        parts.append(f'@id("signing/{name}")\npermit(principal, action in [Gateway::Action::"read", Gateway::Action::"write"], resource in Gateway::Domain::"{name}") when {{ context.port == {port} }};\n'
                     f'@id("signing/lend/{name}")\npermit(principal, action == Gateway::Action::"lend", resource == Gateway::Credential::"aws") when {{ context.origin in Gateway::Domain::"{name}" }};\n')
    return "\n".join(parts)
