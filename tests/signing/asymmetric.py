"""SigV4a at the origin: the public key of an access key, and whether a signature is its own.

ECDSA over P-256 by the textbook (FIPS 186-5 §6.4), slow and without secrets; the derivation is the one of AWS's SDKs
(NIST SP 800-108 in counter mode, https://github.com/awslabs/aws-c-auth).
"""

import hashlib, hmac

P = 2**256 - 2**224 + 2**192 + 2**96 - 1
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
G = (0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296, 0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5)


def add(one, other):
    if one is None or other is None:
        return one or other
    (x1, y1), (x2, y2) = one, other
    if x1 == x2 and (y1 + y2) % P == 0:
        return None
    slope = (3 * x1 * x1 - 3) * pow(2 * y1, -1, P) if one == other else (y2 - y1) * pow(x2 - x1, -1, P)
    x3 = (slope * slope - x1 - x2) % P
    return x3, (slope * (x1 - x3) - y1) % P


def times(number, point):
    found = None
    while number:
        if number & 1:
            found = add(found, point)
        point = add(point, point)
        number >>= 1
    return found


def public_key(access_key, secret_key):
    for counter in range(1, 255):
        text = b"\x00\x00\x00\x01AWS4-ECDSA-P256-SHA256\x00" + access_key.encode() + bytes([counter]) + b"\x00\x00\x01\x00"
        candidate = int.from_bytes(hmac.new(b"AWS4A" + secret_key.encode(), text, hashlib.sha256).digest(), "big")
        if candidate <= N - 2:
            return times(candidate + 1, G)
    raise ValueError("no key of this access key")


def integers(der):
    """The two integers of an ECDSA signature."""
    if der[0] != 0x30 or der[1] != len(der) - 2 or der[2] != 2 or der[4 + der[3]] != 2:
        raise ValueError("no signature in DER")
    first = der[4 : 4 + der[3]]
    second = der[6 + der[3] :]
    if len(second) != der[5 + der[3]]:
        raise ValueError("no signature in DER")
    return int.from_bytes(first, "big"), int.from_bytes(second, "big")


def holds(public, text, signature):
    """Whether the hexadecimal signature is one of `text`."""
    try:
        r, s = integers(bytes.fromhex(signature))
    except (ValueError, IndexError):
        return False
    if not (0 < r < N and 0 < s < N):
        return False
    digest, inverse = int.from_bytes(hashlib.sha256(text.encode()).digest(), "big"), pow(s, -1, N)
    point = add(times(digest * inverse % N, G), times(r * inverse % N, public))
    return point is not None and point[0] % N == r
