"""pymacaroons with the tokens of tests/tokens: one case on standard input, what came of it on standard output."""
import hashlib, hmac, json, sys

from pymacaroons import MACAROON_V2, Macaroon, Verifier

case = json.load(sys.stdin)
session_key = hmac.new(bytes.fromhex(case["key"]), b"macaroon" + case["session"].encode() + b"\1", hashlib.sha256).digest()
theirs = Macaroon.deserialize(case["token"])


def verified(satisfied, key):
    verifier = Verifier()
    for caveat in satisfied:
        verifier.satisfy_exact(caveat)
    try:
        return verifier.verify(theirs, key)
    except Exception:
        return False


own = Macaroon(location="", identifier=bytes.fromhex(case["identifier"]), key=session_key, version=MACAROON_V2)
for caveat in case["caveats"]:
    own.add_first_party_caveat(caveat)
by_key = verified(case["caveats"], session_key)
narrowed = theirs.copy()
narrowed.add_first_party_caveat(case["added"])
json.dump({
    "version": __import__("importlib.metadata").metadata.version("pymacaroons"),
    "verified": by_key,
    "by_another_key": verified(case["caveats"], b"\7" * 32),
    "without_a_caveat": verified(case["caveats"][1:], session_key),
    "minted": own.serialize(),
    "narrowed": narrowed.serialize(),
}, sys.stdout)
