#!/usr/bin/env python3
"""Has independent libraries verify what the gateway signed: reads records as judge.py prints them, prints a count by recipe.

Only recipes for which a library has a verifier, or can be told time and nonce, are here; any other record is an error.
"""
import base64
import collections
import json
import sys
from urllib.parse import unquote, urlsplit

import jwt
import requests
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def field(record, name):
    found = [value for known, value in record["headers"].items() if known.lower() == name]
    assert len(found) == 1, f"{name} stands {len(found)} times"
    return found[0]


def public(pem):
    if not pem.startswith("-----"):
        return Ed25519PrivateKey.from_private_bytes(base64.b64decode(pem)[:32]).public_key()
    return serialization.load_pem_private_key(pem.encode(), None).public_key()


def twilio(record):
    from urllib.parse import parse_qsl
    from twilio.request_validator import RequestValidator
    validator = RequestValidator(record["parts"]["secret"])
    assert validator.validate(record["url"], dict(parse_qsl(record["content"])), field(record, "x-twilio-signature"))


def slack(record):
    from slack_sdk.signature import SignatureVerifier
    stamp = field(record, "x-slack-request-timestamp")
    verifier = SignatureVerifier(record["parts"]["secret"])
    verifier.clock.now = lambda: int(stamp)
    assert verifier.is_valid(record["content"], stamp, field(record, "x-slack-signature"))


def stripe(record):
    from stripe import WebhookSignature
    assert WebhookSignature.verify_header(record["content"], field(record, "stripe-signature"), record["parts"]["secret"])


def oauth1(record):
    from oauthlib.common import Request
    from oauthlib.oauth1.rfc5849 import signature
    request = Request(record["url"], record["method"], record["content"], record["headers"])
    parameters = signature.collect_parameters(uri_query=urlsplit(record["url"]).query, body=record["content"],
                                              headers={"Authorization": field(record, "authorization")},
                                              exclude_oauth_signature=False)
    found = dict(parameters)
    request.params = [pair for pair in parameters if pair[0] != "oauth_signature"]
    request.signature = found["oauth_signature"]
    assert found["oauth_consumer_key"] == record["parts"]["key"]
    assert signature.verify_hmac_sha1(request, record["parts"]["secret"], record["parts"].get("token-secret", ""))


def edgegrid(record):
    from akamai.edgegrid.edgegrid import EdgeGridAuthHeaders
    standing = field(record, "authorization")
    values = dict(pair.split("=", 1) for pair in standing.removeprefix("EG1-HMAC-SHA256 ").split(";"))
    parts = record["parts"]
    headers = EdgeGridAuthHeaders(parts["client-token"], parts["secret"], parts["access-token"])
    request = requests.Request(record["method"], record["url"], data=record["content"] or None).prepare()
    assert headers.make_auth_header(request, values["timestamp"], values["nonce"]) == standing


def coinbase(record):
    token = field(record, "authorization").removeprefix("Bearer ")
    header = jwt.get_unverified_header(token)
    assert header["kid"] == record["parts"]["key"] and len(header["nonce"]) >= 16
    claims = jwt.decode(token, public(record["parts"]["secret"]), algorithms=["ES256", "EdDSA"], issuer="cdp",
                        options={"require": ["exp", "nbf", "iss", "sub"]})
    parts = urlsplit(record["url"])
    asked = f"{record['method']} {parts.netloc}{parts.path}"
    assert claims["sub"] == record["parts"]["key"] and claims["exp"] - claims["nbf"] <= 120
    # coinbase-advanced-py has the one, cdp-sdk the other.
    assert (claims.get("uri"), claims.get("uris")) in ((asked, None), (None, [asked])), claims


def dpop(record):
    import hashlib
    proof = field(record, "dpop")
    header = jwt.get_unverified_header(proof)
    assert header["typ"] == "dpop+jwt" and "d" not in header["jwk"]
    key = jwt.PyJWK(header["jwk"], "ES256").key
    assert key.public_numbers() == public(record["parts"]["secret"]).public_numbers()
    claims = jwt.decode(proof, key, algorithms=["ES256"], options={"require": ["iat", "jti"]})
    assert claims["htm"] == record["method"] and claims["htu"] == record["url"].split("?")[0]
    token = record["headers"].get("authorization", "").removeprefix("DPoP ")
    hashed = base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).decode().rstrip("=")
    assert claims.get("ath") == (hashed if token else None)


def binance(record):
    query, _, signature = urlsplit(record["url"]).query.rpartition("&signature=")
    key, signed = public(record["parts"]["secret"]), (query + record["content"]).encode()
    signature = base64.b64decode(unquote(signature), validate=True)
    assert field(record, "x-mbx-apikey") == record["parts"]["key"]
    if isinstance(key, rsa.RSAPublicKey):
        key.verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())
    else:
        key.verify(signature, signed)


def message_signature(record):
    from http_message_signatures import HTTPMessageVerifier, HTTPSignatureKeyResolver, algorithms
    name = record["recipe"].removeprefix("http-signature-")
    secret = record["parts"]["secret"]

    class Resolver(HTTPSignatureKeyResolver):
        def resolve_public_key(self, key_id):
            assert key_id == record["parts"]["key"]
            return base64.b64decode(secret) if name == "hmac" else public(secret)

    algorithm = {"ed25519": algorithms.ED25519, "ecdsa-p256": algorithms.ECDSA_P256_SHA256, "hmac": algorithms.HMAC_SHA256,
                 "ecdsa-p384": algorithms.ECDSA_P384_SHA384, "rsa-pss": algorithms.RSA_PSS_SHA512,
                 "rsa-v15": algorithms.RSA_V1_5_SHA256}[name]
    request = requests.Request(record["method"], record["url"], data=record["content"]).prepare()
    request.url = record["url"]
    request.headers = requests.structures.CaseInsensitiveDict(record["headers"])
    verified = HTTPMessageVerifier(signature_algorithm=algorithm, key_resolver=Resolver()).verify(request)
    covered = verified[0].covered_components
    assert '"@method"' in covered and '"@target-uri"' in covered, covered


VERIFIERS = {"twilio-webhook": twilio, "slack-webhook": slack, "stripe-webhook": stripe, "oauth1": oauth1,
             "akamai-edgegrid": edgegrid, "coinbase-cdp-ecdsa": coinbase, "coinbase-cdp-ed25519": coinbase, "dpop-es256": dpop,
             "binance-ed25519": binance, "binance-rsa": binance,
             **{f"http-signature-{name}": message_signature
                for name in ("ed25519", "ecdsa-p256", "ecdsa-p384", "rsa-pss", "rsa-v15", "hmac")}}


def main():
    verified = collections.Counter()
    for record in json.load(sys.stdin):
        try:
            VERIFIERS[record["recipe"]](record)
        except BaseException as error:
            sys.exit(f"{record['recipe']}: {type(error).__name__}: {error}: {json.dumps(record)}")
        verified[record["recipe"]] += 1
    print(json.dumps(verified))


if __name__ == "__main__":
    main()
