"""Verifies SigV4 by botocore's own signer: what a request was signed with is computed again from what arrived.

Nothing here is of the gateway. `python verifier.py VECTORS` checks the verifier itself against the published vectors.
"""

import hashlib, hmac, json, sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import parse_qsl, quote

from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.compat import HTTPHeaders
from botocore.credentials import Credentials
from botocore.utils import normalize_url_path

import asymmetric

V4, V4A = "AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256"
SKEW = timedelta(minutes=15)
EMPTY = hashlib.sha256(b"").hexdigest()


class Refused(Exception):
    """Why an origin does not take a request: the service's error code, and a text."""

    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")
        self.code, self.text = code, text


def exact(base):
    """botocore's signer over exactly the fields that the request says are signed, in the order in which they came."""

    class Signer(base):
        def headers_to_sign(self, request):
            return request.context["signed"]

    return Signer


def parameters(authorization):
    """Of an Authorization field: its algorithm, its Credential, its SignedHeaders and its Signature."""
    algorithm, _, rest = authorization.partition(" ")
    found = dict(part.strip().partition("=")[::2] for part in rest.split(","))
    if algorithm not in (V4, V4A) or set(found) != {"Credential", "SignedHeaders", "Signature"}:
        raise Refused("IncompleteSignature", f"not a signature of version 4: {algorithm}")
    return algorithm, found["Credential"], found["SignedHeaders"], found["Signature"]


def claimed(method, target, fields):
    """What the request says of its signature: (algorithm, credential, signed names, signature, date, query without the signature, token, expires, region set)."""
    path, _, query = target.partition("?")
    of = lambda name: [value for key, value in fields if key.lower() == name]
    authorization, in_query = of("authorization"), dict(parse_qsl(query, keep_blank_values=True))
    if len(authorization) > 1 or (authorization and "X-Amz-Signature" in in_query):
        raise Refused("InvalidSignatureException", "signed twice")
    if authorization:
        first = lambda name: (of(name) or [""])[0]
        return *parameters(authorization[0]), first("x-amz-date"), query, first("x-amz-security-token"), None, first("x-amz-region-set")
    if "X-Amz-Signature" in in_query:
        if in_query.get("X-Amz-Algorithm") not in (V4, V4A):
            raise Refused("IncompleteSignature", "unknown algorithm")
        left = "&".join(pair for pair in query.split("&") if not pair.startswith("X-Amz-Signature="))
        names = ("X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-SignedHeaders", "X-Amz-Signature", "X-Amz-Date")
        return *(in_query.get(name, "") for name in names), left, in_query.get("X-Amz-Security-Token", ""), int(in_query["X-Amz-Expires"]), in_query.get("X-Amz-Region-Set", "")
    raise Refused("MissingAuthenticationToken", "not signed")


def recomputed(method, target, query, fields, signed, content_hash, date, secret, region, service, normalize=True):
    """The canonical request, the string to sign and the signature, as botocore makes them."""
    base = S3SigV4Auth if service == "s3" or not normalize else SigV4Auth
    signer = exact(base)(Credentials("unused", secret), service, region)
    path = target.partition("?")[0]
    request = AWSRequest(method=method, url="https://origin" + path + ("?" + query if query else ""))
    chosen = HTTPHeaders()
    for name, value in fields:
        if name.lower() in signed:
            chosen.add_header(name.lower(), value)
    request.context["signed"], request.context["timestamp"] = chosen, date
    request.headers["X-Amz-Content-SHA256"] = content_hash
    canonical = signer.canonical_request(request)
    text = signer.string_to_sign(request, canonical)
    return canonical, text, signer.signature(text, request)


def verify(method, target, fields, content, keys, now=None):
    """Refuses a request that is not signed by `keys` = {access_key, secret_key, session_token}; returns what was signed.

    `content` is bytes, or None where the caller judges the content by the payload kind that it finds.
    """
    algorithm, credential, names, signature, date, query, token, expires, regions = claimed(method, target, fields)
    parts = credential.split("/")
    if algorithm == V4A:
        # Its scope has no region: a field of its own has a set of them.
        parts.insert(2, regions)
    access_key, day, region, service, end = ([*parts, "", "", "", ""])[:5]
    if access_key != keys["access_key"] or end != "aws4_request":
        raise Refused("UnrecognizedClientException", f"The security token included in the request is invalid: {access_key}")
    if token != keys["session_token"]:
        raise Refused("InvalidClientTokenId", "the session token is not that of the key")
    try:
        at = datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        raise Refused("IncompleteSignature", f"no date: {date}") from None
    now = now or datetime.now(timezone.utc)
    late = timedelta(seconds=expires) if expires is not None else SKEW
    if day != date[:8] or at - now > SKEW or now - at > late:
        raise Refused("SignatureDoesNotMatch", f"the date is wrong: {date} in {day}")
    signed = names.split(";")
    present = {name.lower() for name, _ in fields}
    # By HTTP/2 the SDK for JavaScript signs the pseudo-header instead.
    if not {"host", ":authority"} & set(signed) or [name for name in present if name.startswith("x-amz-") and name not in signed] or set(signed) - present:
        raise Refused("SignatureDoesNotMatch", f"signed fields are not those of the request: {names}")
    announced = dict((name.lower(), value) for name, value in fields).get("x-amz-content-sha256")
    implied = announced is None
    if implied:
        announced = "UNSIGNED-PAYLOAD" if expires is not None and service == "s3" else hashlib.sha256(content or b"").hexdigest()
    canonical, text, expected = recomputed(method, target, query, fields, signed, announced, date, keys["secret_key"], region, service)
    if algorithm == V4A:
        text = "\n".join([V4A, date, f"{day}/{service}/{end}", hashlib.sha256(canonical.encode()).hexdigest()])
        right = asymmetric.holds(asymmetric.public_key(access_key, keys["secret_key"]), text, signature)
    else:
        right = hmac.compare_digest(expected, signature)
    if not right:
        raise Refused("SignatureDoesNotMatch", f"computed from\n{text}\n\n{canonical}")
    if content is not None and len(announced) == 64 and announced != hashlib.sha256(content).hexdigest():
        raise Refused("XAmzContentSHA256Mismatch", "the content is not what was signed")
    return {"algorithm": algorithm, "service": service, "region": region, "signed": signed, "payload": announced if len(announced) != 64 else "hash",
            "implied": implied, "how": "header" if expires is None else "presigned", "seed": signature, "date": date}


def raw_request(text):
    """A request of the vectors: method, target, fields, content."""
    head, _, content = text.partition("\n\n")
    first, *lines = head.split("\n")
    method, target = first.split(" ", 1)[0], first.split(" ", 1)[1].rsplit(" ", 1)[0]
    fields = []
    for line in lines:
        if line[:1] in (" ", "\t"):
            fields[-1] = (fields[-1][0], fields[-1][1] + " " + line.strip())
        elif line:
            name, _, value = line.partition(":")
            fields.append((name, value))
    return method, target, fields, content.encode()


def vector(folder):
    """Whether this verifier finds the vector's signatures, in the header and in the query, and sees a wrong one as wrong."""
    context = json.loads((folder / "context.json").read_text())
    keys = context["credentials"]
    secret, at = keys["secret_access_key"], context["timestamp"].replace("-", "").replace(":", "")
    for form in ("header", "query"):
        read = lambda name: (folder / f"{form}-{name}.txt").read_text()
        method, target, fields, content = raw_request(read("signed-request"))
        _, credential, names, signature, date, query, *_ = claimed(method, encoded(target), fields)
        _, _, region, service, _ = credential.split("/")
        if context.get("omit_session_token"):
            query = "&".join(pair for pair in query.split("&") if not pair.startswith("X-Amz-Security-Token="))
        announced = dict((name.lower(), value) for name, value in fields).get("x-amz-content-sha256") or hashlib.sha256(content).hexdigest()
        path = context_path(target.partition("?")[0], context["normalize"])
        found = recomputed(method, path, query, fields, names.split(";"), announced, date, secret, region, service, normalize=False)
        expected = (read("canonical-request"), read("string-to-sign"), read("signature"))
        if date != at or found != expected or signature != expected[2]:
            return f"{folder.name}: {form}: computed {found}, published {expected}"
        _, _, other = recomputed(method, path, query, fields, names.split(";"), announced, date, secret[:-1] + "x", region, service, normalize=False)
        if other == signature:
            return f"{folder.name}: {form}: another key gives the same signature"
    return None


def encoded(target):
    """The vectors stand in plain text, a request in percent-encoding."""
    return quote(target, safe="/?&=%-_.~+:*;,@!$'()")


def context_path(path, normalize):
    """botocore's own rule of a path: normal form or not, encoded once."""
    return quote(normalize_url_path(path) if normalize else path, safe="/~")


def vectors(root):
    folders = sorted(path.parent for path in Path(root).rglob("context.json"))
    wrong = [text for folder in folders if (text := vector(folder))]
    for text in wrong:
        print(f"FAIL {text}")
    print(f"{len(folders) - len(wrong)} of {len(folders)} published vectors verified, in the header and in the query")
    return bool(folders) and not wrong


if __name__ == "__main__":
    sys.exit(0 if vectors(sys.argv[1]) else 1)
