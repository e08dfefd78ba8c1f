"""What the programs have in common: the operations, the names that must survive, and how a verdict is given."""

import json, os, sys, traceback

BUCKET = os.environ["SIGNING_BUCKET"]
CLIENT = os.environ["SIGNING_CLIENT"]
KEYS = json.loads(os.environ["SIGNING_KEYS"])
S3 = os.environ["AWS_ENDPOINT_URL_S3"]
ACCESS, SECRET, TOKEN = (os.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"))
CHOSEN = os.environ.get("SIGNING_OPERATIONS", "").split(",")


def run(operations):
    """Each operation in turn; one that fails does not keep the others from being tried."""
    failed = False
    for name, operation in operations.items():
        if CHOSEN != [""] and name not in CHOSEN:
            continue
        try:
            operation()
            print(f"ok {name}", flush=True)
        except Exception as error:
            failed = True
            if "SIGNING_VERBOSE" in os.environ:
                traceback.print_exc()
            print(f"FAIL {name} {type(error).__name__}: {' '.join(str(error).split())}"[:4000], flush=True)
    sys.exit(failed)


def same(found, wanted):
    if found != wanted:
        raise AssertionError(f"{found!r:.200} instead of {wanted!r:.200}")


def content(size):
    block = bytes(range(256)) * 4096
    return (block * (size // len(block) + 1))[:size]


def key(name):
    """Below a folder of the client's own: all of them share the bucket."""
    return f"{CLIENT}/{name}"


def refused(*operations):
    """With a secret that is wrong in one character, each must fail: by the gateway, which says so, or by the origin where there is no gateway."""
    for operation in operations:
        try:
            operation(spoil=True)
        except Exception as error:
            print("   ", operation.__name__, type(error).__name__, " ".join(str(error).split())[:300])
            continue
        raise AssertionError(f"{operation.__name__}: a wrong signature was taken")
