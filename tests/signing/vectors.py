#!/usr/bin/env python3
"""AWS's published signing vectors through the whole gateway: vectors.py GATEWAY SUITE...

To be run, and with it the gateway, at the vectors' time (libfaketime). The gateway holds the vectors' key. A client sends each vector's
request, signed with phantoms over the published canonical request; the origin, example.amazonaws.com, compares what arrives with what is
published: for `v4` byte by byte, for `v4a` by the published public key and Python's `cryptography`. A SUITE is a folder of either.

Presigned requests leave the gateway with a life of 60 seconds and not the vectors' 3600, so their published signature is that of another
request: the code that signs here finds it first, and then the one for 60.
"""

import hashlib, hmac, json, os, re, select, socket, ssl, subprocess, sys, tempfile, threading, time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import quote, unquote

from botocore.utils import normalize_url_path
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import asymmetric

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "rig"))
from addresses import free_port

HOST = "example.amazonaws.com"
TIME = "20150830T123600Z"
LIFE = 60
# What stands so in the published request is in no message of HTTP/1.1 (RFC 9112 §3.2 and §5.2), and is refused. The same request in a spelling
# that is allowed gets through: the line unfolded, the target escaped.
REFUSED = {
    "get-header-value-multiline": (400, "syntax"),
    "get-space-normalized": (400, "syntax"),
    "get-space-unnormalized": (400, "syntax"),
    "get-utf8": (200, None),
    "get-vanilla-utf8-query": (200, None),
}
# Signed with their paths escaped once, as they stand: an endpoint of this kind says `exact_paths`.
EXACT = {"get-space-normalized", "get-utf8"}


class Vector:
    def __init__(self, folder):
        self.name, self.folder = folder.name, folder
        self.context = json.loads((folder / "context.json").read_text())
        keys = self.context["credentials"]
        self.key = (keys["access_key_id"], keys["secret_access_key"], keys.get("token", ""))
        self.asymmetric = folder.parent.name == "v4a"
        self.exact = not self.context["normalize"] or self.name in EXACT

    def text(self, form, what):
        return (self.folder / f"{form}-{what}.txt").read_text().replace("\r\n", "\n").rstrip("\n")

    def sign(self, key, text):
        if self.asymmetric:
            return asymmetric.sign(key[0], key[1], text)
        found = b"AWS4" + key[1].encode()
        for part in (TIME[:8], self.context["region"], self.context["service"], "aws4_request", text):
            found = hmac.new(found, part.encode(), hashlib.sha256).digest()
        return found.hex()

    def to_sign(self, form, canonical):
        published = self.text(form, "string-to-sign").rpartition("\n")
        return published[0] + "\n" + hashlib.sha256(canonical.encode()).hexdigest()

    def in_the_name_of(self, key, text):
        """A published text with another access key and session token."""
        text = text.replace(self.key[0], key[0])
        if self.key[2]:
            text = text.replace(self.key[2], key[2]).replace(quote(self.key[2], safe=""), quote(key[2], safe=""))
        return text

    def request(self, form, phantom):
        """The published request, signed with a phantom over what is published to be signed: as it is published, and as a message may be."""
        canonical = self.in_the_name_of(phantom, self.text(form, "canonical-request"))
        signature = self.sign(phantom, self.to_sign(form, canonical))
        published = self.in_the_name_of(phantom, (self.folder / f"{form}-signed-request.txt").read_text().replace("\r\n", "\n"))
        head, _, content = re.sub(r"Signature=[0-9a-f]+", "Signature=" + signature, published).partition("\n\n")
        bytes_of = lambda head: (head.rstrip("\n").replace("\n", "\r\n") + "\r\n\r\n" + content.rstrip("\n")).encode()
        line, _, fields = head.partition("\n")
        method, _, target = line.removesuffix(" HTTP/1.1").partition(" ")
        line = f"{method} {quote(target, safe='%/?&=-._~+')} HTTP/1.1"
        return bytes_of(head), bytes_of(line + "\n" + re.sub(r"\n +", " ", fields))

    def judge(self, form, seen):
        """What is wrong with what arrived, or nothing."""
        line, fields, content = seen
        canonical, real = self.text(form, "canonical-request"), self.key
        method, target, _ = line.split(" ")
        path, _, query = target.partition("?")
        path = unquote(path) if self.exact else normalize_url_path(path)
        lines = canonical.split("\n")
        if [method, quote(path, safe="/~"), hashlib.sha256(content).hexdigest()] != [lines[0], lines[1], lines[-1]]:
            return f"not the request that is signed: {seen}"
        signature = self.text(form, "signature")
        text = self.to_sign(form, canonical)
        public = None
        if self.asymmetric:
            numbers = json.loads((self.folder / "public-key.json").read_text())
            public = asymmetric.point(*(int(numbers[axis], 16) for axis in "XY"))
            right = asymmetric.holds(public, text, signature)
        else:
            right = self.sign(real, text) == signature
        if text != self.text(form, "string-to-sign") or not right:
            return "the test does not find what is published"
        if form == "header":
            given = fields.get("authorization", [])
            published = re.search("\nAuthorization:(.*)", self.text(form, "signed-request"))[1]
            token = [real[2]] if real[2] else []
            if fields.get("x-amz-date") != [TIME] or fields.get("x-amz-security-token", []) != token:
                return f"another time or token: {fields}"
        else:
            canonical = canonical.replace("X-Amz-Expires=3600", f"X-Amz-Expires={LIFE}")
            text = self.to_sign(form, canonical)
            token = f"&X-Amz-Security-Token={quote(real[2], safe='')}" if self.context.get("omit_session_token") else ""
            published = f"{canonical.split(chr(10))[2]}&X-Amz-Signature={'' if self.asymmetric else self.sign(real, text)}{token}"
            given = [query]
            if set(fields) & {"authorization", "x-amz-date", "x-amz-security-token"}:
                return f"signed in the fields, too: {fields}"
        if not self.asymmetric:
            return given != [published] and f"arrived {given}, published {published}"
        shape = re.compile("(.*Signature=)([0-9a-f]*)(.*)", re.S)
        parts = [shape.fullmatch(text) for text in [*given, published]]
        if len(parts) != 2 or not all(parts) or parts[0][1] != parts[1][1] or parts[0][3] != parts[1][3]:
            return f"arrived {given}, published {published}"
        return not asymmetric.holds(public, text, parts[0][2]) and f"the signature does not verify: {given}"


def certificates(folder):
    """An authority, and the origin's certificate, valid about the vectors' time."""
    day = timedelta(days=1)
    now = datetime.now(timezone.utc)
    issuer, leaf = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    named = lambda text: x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    def made(name, key, *more):
        built = x509.CertificateBuilder().subject_name(named(name)).issuer_name(named("vectors")).public_key(key.public_key()).serial_number(x509.random_serial_number())
        built = built.not_valid_before(now - day).not_valid_after(now + 30 * day)
        for extension, critical in more:
            built = built.add_extension(extension, critical)
        return built.sign(issuer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    (folder / "origin-ca.pem").write_bytes(made("vectors", issuer, (x509.BasicConstraints(True, 0), True)))
    names, use = x509.SubjectAlternativeName([x509.DNSName(HOST)]), x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH])
    key = leaf.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "origin.pem").write_bytes(made("origin", leaf, (names, False), (use, False)) + key)


class Origin:
    """Takes every request, and keeps it."""

    def __init__(self, folder):
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.load_cert_chain(folder / "origin.pem")
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.seen = self.listener.getsockname()[1], []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            threading.Thread(target=self.serve, args=(self.listener.accept()[0],), daemon=True).start()

    def serve(self, raw):
        with self.context.wrap_socket(raw, server_side=True) as stream, stream.makefile("rb") as reader:
            while found := read(reader):
                self.seen.append(found)
                stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def read(reader):
    """The first line, the fields by name, and the content of a message."""
    line = reader.readline().decode().rstrip("\r\n")
    fields = {}
    while field := reader.readline().decode("utf-8", "surrogateescape").rstrip("\r\n"):
        name, _, value = field.partition(":")
        fields.setdefault(name.lower(), []).append(value.strip())
    return line and (line, fields, reader.read(int(fields.get("content-length", ["0"])[0])))


def pause():
    """`time.sleep` would wait for a moment of the clock, which stands still."""
    select.select([], [], [], 0.05)


class Gateway:
    """`gateway serve` with the vectors' keys, each a credential."""

    def __init__(self, program, folder, origin, keys, exact):
        self.folder = folder / ("exact" if exact else "resolved")
        self.folder.mkdir(mode=0o700)
        self.port = free_port()
        parts = [
            '[audit]\npath = "audit.jsonl"\n[policy]\nfiles = ["policy.cedar"]\n[ca]\ncertificate = "ca.pem"\n[phantoms]\nenv_file = "phantoms.env"\n'
            f'[[listener]]\nkind = "proxy"\naddress = "127.0.0.1:{self.port}"\nsession = "vectors"\n'
            f'[[origin]]\nmatch = "https://{HOST}"\nconnect = "127.0.0.1:{origin.port}"\nroots = ["{folder}/origin-ca.pem"]\nreplace_system_roots = true\n'
        ]
        policies = [f'@id("ask")\npermit(principal, action in Gateway::Action::"any", resource == Gateway::Host::"{HOST}");\n']
        self.variables = {}
        for number, key in enumerate(keys):
            named = dict(zip(("access_key", "secret_key", "session_token"), filter(None, key)))
            self.variables[key] = [f"KEY{number}_{part.upper()}" for part in named]
            for part, value in named.items():
                (self.folder / f"{part}-{number}").write_text(value)
                (self.folder / f"{part}-{number}").chmod(0o600)
            references = ", ".join(f'{part} = "file:{part}-{number}"' for part in named)
            parts.append(
                f'[[credential]]\nname = "key{number}"\nsign = "sigv4"\nparts = {{ {references} }}\nenv = {json.dumps(self.variables[key])}\nservices = ["service"]\n'
                f'endpoints = [{{ origin = "https://{HOST}", service = "service", region = "us-east-1"{", exact_paths = true" * exact} }}]\n'
            )
            policies.append(f'@id("lend/{number}")\npermit(principal, action == Gateway::Action::"lend", resource == Gateway::Credential::"key{number}");\n')
        (self.folder / "gateway.toml").write_text("".join(parts))
        (self.folder / "policy.cedar").write_text("".join(policies))
        self.log = (self.folder / "log").open("w+")
        self.process = subprocess.Popen([program, "serve", "--config", "gateway.toml"], cwd=self.folder, stderr=self.log)

    def __enter__(self):
        until = time.monotonic() + 60
        while True:
            said = (self.folder / "log").read_text()
            if "gateway: session `" in said:
                break
            if self.process.poll() is not None or time.monotonic() > until:
                sys.exit("`gateway serve` did not start: " + said)
            pause()
        held = dict(line.split("=", 1) for line in (self.folder / "phantoms.env").read_text().splitlines() if "=" in line)
        self.phantoms = {key: ([held[name] for name in names] + [""])[:3] for key, names in self.variables.items()}
        self.trust = ssl.create_default_context(cafile=self.folder / "ca.pem")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        until = time.monotonic() + 20
        while self.process.poll() is None:
            if time.monotonic() > until:
                self.process.kill()
            pause()

    def ask(self, request):
        """The status of the answer, and the reason where it is a refusal."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as raw:
            raw.sendall(f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\n\r\n".encode())
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += raw.recv(1)
            assert head.startswith(b"HTTP/1.1 200 "), head
            with self.trust.wrap_socket(raw, server_hostname=HOST) as stream, stream.makefile("rb") as reader:
                stream.sendall(request)
                line, _, content = read(reader)
        status = int(line.split(" ")[1])
        reason = re.search(rb'"reason": ?"([a-z0-9_]+)"|gateway: ([a-z0-9_]+)', content)
        return status, reason and (reason[1] or reason[2]).decode()


def through(gateway, origin, vector, form):
    """What is wrong with a vector, or nothing."""
    phantom = gateway.phantoms[vector.key]
    if set(phantom) & set(filter(None, vector.key)):
        return "a phantom is the real key"
    published, allowed = vector.request(form, phantom)
    if (vector.name in REFUSED) != (published != allowed):
        return f"the published request is not what this test knows: {published}"
    if vector.name in REFUSED and (found := gateway.ask(published)) != REFUSED[vector.name]:
        return f"as published it must be refused, and the answer was {found}"
    origin.seen.clear()
    answer = gateway.ask(allowed)
    if answer != (200, None) or len(origin.seen) != 1:
        return f"the answer was {answer}, the origin saw {origin.seen}: {allowed}"
    if wrong := vector.judge(form, origin.seen[0]):
        return wrong
    # With the signature of another vector's request, or none of this key, it is a stranger's.
    wrong = re.sub(rb"(Signature=[0-9a-f]*)([0-9a-f])", lambda found: found[1] + (b"0" if found[2] != b"0" else b"1"), allowed)
    answer = gateway.ask(wrong)
    if answer != (403, "sigv4_mismatch") or len(origin.seen) != 1:
        return f"with a wrong signature the answer was {answer}"
    return None


def main():
    program, suites = os.path.abspath(sys.argv[1]), [Path(suite) for suite in sys.argv[2:]]
    if time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) != TIME:
        sys.exit(f"this is not {TIME}: run it by libfaketime")
    vectors = [Vector(path.parent) for suite in suites for path in sorted(suite.glob("*/context.json"))]
    failed = counted = 0
    with tempfile.TemporaryDirectory(prefix="gateway-vectors-") as name:
        folder = Path(name)
        certificates(folder)
        origin = Origin(folder)
        keys = sorted({vector.key for vector in vectors})
        for exact in (False, True):
            with Gateway(program, folder, origin, keys, exact) as gateway:
                for vector in (vector for vector in vectors if vector.exact == exact):
                    for form in ("header", "query"):
                        counted += 1
                        if wrong := through(gateway, origin, vector, form):
                            failed += 1
                            print(f"FAIL {vector.folder.parent.name}/{vector.name} {form}: {wrong}")
            whole = "".join(file.read_text() for file in (gateway.folder / "audit.jsonl", gateway.folder / "log"))
            if any(part in whole for key in keys for part in key[1:] if part):
                failed += 1
                print("FAIL a log holds a part of the key")
    print(f"{counted - failed} of {counted} forms of {len(vectors)} published vectors went through the gateway as they are published")
    sys.exit(failed > 0 or len(vectors) < 38 * len(suites))


if __name__ == "__main__":
    main()
