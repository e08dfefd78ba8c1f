"""SigV4a by Python's `cryptography`: the key pair of an access key, and whether a signature is its own.

The derivation is the one of AWS's SDKs (NIST SP 800-108 in counter mode, https://github.com/awslabs/aws-c-auth).
"""

import hashlib, hmac

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
ALGORITHM = ec.ECDSA(hashes.SHA256())


def private_key(access_key, secret_key):
    for counter in range(1, 255):
        text = b"\x00\x00\x00\x01AWS4-ECDSA-P256-SHA256\x00" + access_key.encode() + bytes([counter]) + b"\x00\x00\x01\x00"
        candidate = int.from_bytes(hmac.new(b"AWS4A" + secret_key.encode(), text, hashlib.sha256).digest(), "big")
        if candidate <= N - 2:
            return ec.derive_private_key(candidate + 1, ec.SECP256R1())
    raise ValueError("no key of this access key")


def public_key(access_key, secret_key):
    return private_key(access_key, secret_key).public_key()


def point(x, y):
    """The public key of two numbers, as the published vectors have them."""
    return ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()


def sign(access_key, secret_key, text):
    return private_key(access_key, secret_key).sign(text.encode(), ALGORITHM).hex()


def holds(public, text, signature):
    """Whether the hexadecimal signature is one of `text`."""
    try:
        public.verify(bytes.fromhex(signature), text.encode(), ALGORITHM)
    except (ValueError, InvalidSignature):
        return False
    return True
