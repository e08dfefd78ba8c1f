#!/usr/bin/env python3
"""Services' own libraries sign with phantom private keys, through the gateway, before an origin that knows the real keys alone.

  python through.py --gateway target/debug/gateway      with what `setup` installs; node is in PATH

Each request is verified at the origin by a library that is not ours (verdict.py). Then the same request with one thing changed is
refused by the gateway and never arrives, and what arrived does not verify with one byte changed. Nothing leaves this machine.
"""
import base64
import contextlib
import datetime
import http.server
import ipaddress
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import jwt
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

import verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "rig"))
from addresses import free_port

HERE = Path(__file__).resolve().parent
PEM, DER = serialization.Encoding.PEM, serialization.Encoding.DER
PKCS8, TRADITIONAL = serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL


def pem(key, form=PKCS8):
    return key.private_bytes(PEM, form, serialization.NoEncryption()).decode()


def cdp_ed25519():
    key = ed25519.Ed25519PrivateKey.generate()
    return base64.b64encode(key.private_bytes_raw() + key.public_key().public_bytes_raw()).decode()


CDP = "organizations/2f1c9b0e-7a57-4c15-9d2e-aa3b1c5d7e9f/apiKeys/0b1d2c3e-4f5a-4b6c-8d7e-9f0a1b2c3d4e"
BINANCE = "vmPUZE6mv9SD5VNHk4HlWFsOr6aKE2zvsw0MuIgwCIPy6utIco14y7Ju91duEh8A"


class Case:
    """A credential, and how a client signs with its phantoms: `sign` gives requests as they would be sent."""

    def __init__(self, name, recipe, sign, secret, key=None, keeper="file"):
        self.name, self.recipe, self.sign, self.keeper = name, recipe, sign, keeper
        self.real = {"secret": secret} | ({"key": key} if key else {})
        self.host = f"{name}.keys.test"
        upper = name.upper().replace("-", "_")
        self.variables = {part: f"{upper}_{part.upper()}" for part in self.real}

    def reference(self, part):
        return {"file": f"file:secrets/{self.variables[part]}", "env": f"env:REAL_{self.variables[part]}"}[self.keeper if part == "secret" else "file"]


class Captured(BaseException):
    pass


@contextlib.contextmanager
def capturing(requests_seen):
    """What a library would send; no library catches it."""
    def refuse(self, request, **kwargs):
        requests_seen.append(request)
        raise Captured

    send, requests.Session.send = requests.Session.send, refuse
    try:
        yield
    except Captured:
        pass
    finally:
        requests.Session.send = send


def captured(call):
    seen = []
    with capturing(seen):
        call()
    return seen[0]


def binance(base, parts):
    from binance.spot import Spot
    spot = Spot(api_key=parts["key"], private_key=parts["secret"], base_url=base)
    yield captured(lambda: spot.account())
    yield captured(lambda: spot.new_order(symbol="LTCBTC", side="BUY", type="LIMIT", price=0.1))


def coinbase(base, parts):
    from coinbase.rest import RESTClient
    client = RESTClient(api_key=parts["key"], api_secret=parts["secret"], base_url=base.removeprefix("https://"))
    yield captured(lambda: client.get_accounts(limit=5))
    yield captured(lambda: client.create_order("id-1", "BTC-USD", "BUY", {"market_market_ioc": {"quote_size": "1"}}))


def cdp(base, parts):
    """As cdp-sdk 1.51 builds it: a list of addresses, and an audience that is nobody."""
    from coinbase.jwt_generator import _algorithm_for, _load_private_key
    key, now = _load_private_key(parts["secret"]), int(time.time())
    claims = {"sub": parts["key"], "iss": "cdp", "aud": None, "nbf": now, "exp": now + 120,
              "uris": [f"POST {base.removeprefix('https://')}/platform/v2/evm/accounts"]}
    token = jwt.encode(claims, key, algorithm=_algorithm_for(key), headers={"kid": parts["key"], "nonce": "0123456789012345"})
    yield requests.Request("POST", f"{base}/platform/v2/evm/accounts", json={"name": "a"}, headers={"Authorization": f"Bearer {token}"}).prepare()


def message_signature(algorithm):
    def sign(base, parts):
        from http_message_signatures import HTTPMessageSigner, HTTPSignatureKeyResolver, algorithms

        class Resolver(HTTPSignatureKeyResolver):
            def resolve_private_key(self, key_id):
                return parts["secret"].encode()

        request = requests.Request("POST", f"{base}/items/1?x=1&y=a+b", json={"a": 1}).prepare()
        signer = HTTPMessageSigner(signature_algorithm=getattr(algorithms, algorithm), key_resolver=Resolver())
        signer.sign(request, key_id=parts["key"], body=request.body,
                    covered_component_ids=("@method", "@target-uri", "content-type", "content-digest"))
        yield request

    return sign


def dpop(base, parts):
    """By the library `dpop`; with a token that the server bound to the key, and with a nonce of the server's."""
    for token, nonce in ((None, None), ("Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU", "srv-nonce")):
        asked = {"secret": parts["secret"], "url": f"{base}/protected", "method": "GET", "token": token, "nonce": nonce}
        done = subprocess.run(["node", Path(os.environ["RECIPES"]) / "proof.mjs"], input=json.dumps(asked), capture_output=True, text=True, check=True)
        headers = {"DPoP": done.stdout.strip()} | ({"Authorization": f"DPoP {token}"} if token else {})
        yield requests.Request("GET", f"{base}/protected?a=b", headers=headers).prepare()


def cases():
    rsa_key = rsa.generate_private_key(65537, 2048)
    p256, p384 = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP384R1())
    ed = ed25519.Ed25519PrivateKey.generate
    return [
        Case("binance-ed", "binance-ed25519", binance, pem(ed()), BINANCE),
        Case("binance-rsa", "binance-rsa", binance, pem(rsa_key), BINANCE[::-1], "env"),
        Case("cdp-ec", "coinbase-cdp-ecdsa", coinbase, pem(p256, TRADITIONAL), CDP, "env"),
        Case("cdp-ed", "coinbase-cdp-ed25519", coinbase, cdp_ed25519(), CDP.replace("0b1d", "1b1d")),
        Case("cdp-sdk", "coinbase-cdp-ed25519", cdp, cdp_ed25519(), CDP.replace("0b1d", "2b1d")),
        Case("sig-ed", "http-signature-ed25519", message_signature("ED25519"), pem(ed()), "partner-key-ed25519"),
        Case("sig-p256", "http-signature-ecdsa-p256", message_signature("ECDSA_P256_SHA256"), pem(p256), "partner-key-ecdsa256"),
        Case("sig-p384", "http-signature-ecdsa-p384", message_signature("ECDSA_P384_SHA384"), pem(p384, TRADITIONAL), "partner-key-ecdsa384"),
        Case("sig-pss", "http-signature-rsa-pss", message_signature("RSA_PSS_SHA512"), pem(rsa_key, TRADITIONAL), "partner-key-rsapss"),
        Case("sig-v15", "http-signature-rsa-v15", message_signature("RSA_V1_5_SHA256"), pem(rsa_key), "partner-key-rsav15"),
        Case("dpop", "dpop-es256", dpop, pem(p256)),
    ]


class Origin:
    """Answers 200 to whatever comes, and keeps it: who judges it has the real keys."""

    def __init__(self, folder, hosts):
        self.seen = seen = []
        certificate, chain = authority(folder, hosts)
        self.ca = certificate

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                seen.append({"method": self.command, "url": f"https://{self.headers['Host']}{self.path}", "headers": dict(self.headers.items()), "content": content.decode()})
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            do_GET = do_POST = do_PUT = answer

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def taken(self):
        seen, self.seen[:] = list(self.seen), []
        return seen


def authority(folder, hosts):
    """A certificate authority of this run, and a certificate for the hosts."""
    now, day = datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(days=1)
    name = lambda text: x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
    ca, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    made = lambda subject, key: (x509.CertificateBuilder().subject_name(name(subject)).issuer_name(name("keys CA")).public_key(key.public_key())
                                 .serial_number(x509.random_serial_number()).not_valid_before(now - day).not_valid_after(now + day))
    root = made("keys CA", ca).add_extension(x509.BasicConstraints(True, None), True).sign(ca, hashes.SHA256())
    names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
    leaf = made(hosts[0], own).add_extension(names, False).sign(ca, hashes.SHA256())
    (folder / "origin-ca.pem").write_bytes(root.public_bytes(PEM))
    (folder / "origin.pem").write_bytes(own.private_bytes(PEM, PKCS8, serialization.NoEncryption()) + leaf.public_bytes(PEM))
    return folder / "origin-ca.pem", folder / "origin.pem"


def configure(folder, all_cases, origin):
    port = free_port()
    parts = ['[audit]\npath = "audit.jsonl"\n[ca]\ncertificate = "ca.pem"\n[phantoms]\nenv_file = "phantoms.env"\n[policy]\nfiles = ["policy.cedar"]\n'
             f'[[listener]]\nkind = "proxy"\naddress = "127.0.0.1:{port}"\nsession = "keys"\n']
    (folder / "secrets").mkdir(mode=0o700)
    for case in all_cases:
        at = f"https://{case.host}:{origin.port}"
        given = ", ".join(f'{part} = "{case.reference(part)}"' for part in case.real)
        # In the order of the recipe: the key's id first.
        env = json.dumps([case.variables[part] for part in ("key", "secret") if part in case.variables])
        parts.append(f'[[credential]]\nname = "{case.name}"\nsign = "{case.recipe}"\norigins = ["{at}"]\nparts = {{ {given} }}\nenv = {env}\n'
                     f'[[origin]]\nmatch = "{at}"\nroots = ["origin-ca.pem"]\nreplace_system_roots = true\nconnect = "127.0.0.1:{origin.port}"\n')
        for part, value in case.real.items():
            file = folder / "secrets" / case.variables[part]
            file.touch(mode=0o600)
            file.write_text(value)
    judged = 'permit(principal, action in [Gateway::Action::"read", Gateway::Action::"write"], resource == Gateway::Host::"{0.host}");\n'
    lent = 'permit(principal, action == Gateway::Action::"lend", resource == Gateway::Credential::"{0.name}");\n'
    (folder / "policy.cedar").write_text("".join((judged + lent).format(case) for case in all_cases))
    (folder / "gateway.toml").write_text("\n".join(parts))
    return folder / "gateway.toml"


class Gateway:
    def __init__(self, program, config, all_cases):
        real = {f"REAL_{case.variables['secret']}": case.real["secret"] for case in all_cases if case.keeper == "env"}
        self.program, self.config = program, config
        started = time.monotonic()
        self.process = subprocess.Popen([program, "serve", "-q", "--config", config], env=os.environ | real)
        self.variables = None
        while self.variables is None and time.monotonic() < started + 120 and self.process.poll() is None:
            self.variables = self.shown()
            time.sleep(0.1)
        if self.variables is None:
            sys.exit("`gateway serve` did not start")
        print(f"started after {time.monotonic() - started:.1f} s, with three RSA phantoms and more")

    def shown(self):
        """The variables as a shell reads them."""
        done = subprocess.run(["sh", "-c", 'printed=$("$0" env --config "$1") && eval "$printed" && env -0', self.program, self.config],
                              capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
        return dict(pair.split("=", 1) for pair in done.stdout.split("\0") if "=" in pair) if done.returncode == 0 else None

    def stop(self):
        self.process.terminate()
        self.process.wait(20)


def form(text):
    """What a key is but for its value."""
    if not text.startswith("-----"):
        return len(base64.b64decode(text)), "=" in text
    key = serialization.load_pem_private_key(text.encode(), None)
    # A file's last line end is no part of what it keeps.
    return type(key), getattr(key, "key_size", 0), text.splitlines()[0], text.rstrip().count("\n")


def send(gateway, request):
    session = requests.Session()
    session.trust_env = False
    answer = session.send(request, proxies={"https": gateway.variables["HTTPS_PROXY"]}, verify=str(gateway.config.parent / "ca.pem"), timeout=30)
    return answer


def changed(request):
    """The same request with one thing changed, by what was changed."""
    def with_(what, change):
        copy = request.copy()
        change(copy)
        return what, copy

    def url(copy, old, new):
        copy.url = copy.url.replace(old, new, 1)

    def field(name):
        def change(copy):
            text = copy.headers[name]
            at = len(text) - 8
            copy.headers[name] = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1:]
        return change

    path = urlsplit(request.url).path
    # Binance's signature covers the parameters alone.
    if "signature=" in request.url:
        yield with_("the query", lambda copy: url(copy, "timestamp=", "recvWindow=9&timestamp="))
        yield with_("the signature", lambda copy: url(copy, "signature=", "signature=A" if "signature=A" not in copy.url else "signature=B"))
        return
    yield with_("another method", lambda copy: setattr(copy, "method", "PUT"))
    yield with_("another path", lambda copy: url(copy, path, path + "x"))
    for name in ("Signature", "DPoP") if "Signature" in request.headers or "DPoP" in request.headers else ("Authorization",):
        if name in request.headers:
            yield with_(f"the end of {name}", field(name))
    if "Signature" in request.headers:
        yield with_("a signed field", lambda copy: copy.headers.update({"Content-Type": "text/plain"}))
    if "DPoP" in request.headers and "Authorization" in request.headers:
        yield with_("a token without its proof", lambda copy: copy.headers.pop("DPoP"))
        yield with_("another token", lambda copy: copy.headers.update({"Authorization": "DPoP another"}))


def another(case, phantoms):
    """The same client with a key that is nobody's."""
    text, fresh = phantoms["secret"], None
    if not text.startswith("-----"):
        return phantoms | {"secret": cdp_ed25519()}
    key = serialization.load_pem_private_key(text.encode(), None)
    fresh = {ed25519.Ed25519PrivateKey: lambda: ed25519.Ed25519PrivateKey.generate(), ec.EllipticCurvePrivateKey: lambda: ec.generate_private_key(key.curve),
             rsa.RSAPrivateKey: lambda: rsa.generate_private_key(65537, 2048)}
    return phantoms | {"secret": next(pem(make()) for kind, make in fresh.items() if isinstance(key, kind))}


def refused(gateway, origin, case, what, request, reasons=(400, 403)):
    answer = send(gateway, request)
    assert answer.status_code in reasons and "Gateway-Exchange" in answer.headers, f"{case.name}: {what}: {answer.status_code} {answer.text}"
    assert origin.taken() == [], f"{case.name}: {what}: it arrived"
    assert case.real["secret"] not in answer.text


def broken(record):
    """What arrived, with one byte changed."""
    copy = json.loads(json.dumps(record))
    if "signature=" in copy["url"]:
        copy["url"] = copy["url"].replace("timestamp=1", "timestamp=2", 1)
        return copy
    name = next(name for name in ("Signature", "DPoP", "Authorization") for known in copy["headers"] if known.lower() == name.lower())
    name = next(known for known in copy["headers"] if known.lower() == name.lower())
    text = copy["headers"][name]
    copy["headers"][name] = text[:-8] + ("A" if text[-8] != "A" else "B") + text[-7:]
    return copy


def judged(record):
    try:
        verdict.VERIFIERS[record["recipe"]](record)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def try_case(gateway, origin, case):
    phantoms = {part: gateway.variables[variable] for part, variable in case.variables.items()}
    for part, real in case.real.items():
        assert phantoms[part] != real and len(phantoms[part]) - len(real) in range(-24, 25), f"{case.name}: {part}"
    assert form(phantoms["secret"]) == form(case.real["secret"]), f"{case.name}: {form(phantoms['secret'])}"
    base, count = f"https://{case.host}:{origin.port}", 0
    for request, strange in zip(case.sign(base, phantoms), case.sign(base, another(case, phantoms))):
        answer = send(gateway, request)
        [record] = origin.taken() or [None]
        assert answer.status_code == 200 and record, f"{case.name}: {answer.status_code} {answer.text}"
        record |= {"recipe": case.recipe, "parts": case.real}
        assert (why := judged(record)) is None, f"{case.name}: {why}: {record}"
        assert judged(broken(record)) is not None, f"{case.name}: the judge takes anything"
        assert not any(phantom in json.dumps(record["headers"]) for phantom in phantoms.values()), f"{case.name}: a phantom arrived"
        refused(gateway, origin, case, "another key", strange)
        for what, other in changed(request):
            refused(gateway, origin, case, what, other)
        count += 1
    print(f"ok {case.recipe} ({case.name}): {count} requests")


def stale(gateway, origin, case):
    """What was signed too long ago, or has ended, is refused: a phantom's signature is no lasting one either."""
    phantoms = {part: gateway.variables[variable] for part, variable in case.variables.items()}
    from coinbase.jwt_generator import _load_private_key
    base, now = f"https://{case.host}:{origin.port}", int(time.time())
    for what, nbf, exp in (("signed long ago", now - 1200, now + 60), ("signed ahead of time", now + 1200, now + 1260), ("over", now - 100, now - 1000)):
        claims = {"sub": phantoms["key"], "iss": "cdp", "nbf": nbf, "exp": exp, "uri": f"GET {case.host}:{origin.port}/x"}
        token = jwt.encode(claims, _load_private_key(phantoms["secret"]), algorithm="EdDSA", headers={"kid": phantoms["key"], "nonce": "0123456789012345"})
        refused(gateway, origin, case, what, requests.Request("GET", f"{base}/x", headers={"Authorization": f"Bearer {token}"}).prepare())
    print("ok what is over is refused")


def examined(gateway, all_cases):
    """`doctor` tells what is wrong with a key before a request needs it, and does not show it."""
    folder = gateway.config.parent
    real = {f"REAL_{case.variables['secret']}": case.real["secret"] for case in all_cases if case.keeper == "env"}
    doctor = lambda: subprocess.run([gateway.program, "doctor", "--json", "--config", gateway.config], capture_output=True, text=True, env=os.environ | real, timeout=180)
    done = doctor()
    assert done.returncode == 0, done.stdout + done.stderr
    swapped = next(case for case in all_cases if case.name == "sig-ed")
    file = folder / "secrets" / swapped.variables["secret"]
    wrong = pem(ec.generate_private_key(ec.SECP256R1()))
    file.write_text(wrong)
    locked = ec.generate_private_key(ec.SECP256R1()).private_bytes(PEM, PKCS8, serialization.BestAvailableEncryption(b"a passphrase")).decode()
    (folder / "secrets" / next(case for case in all_cases if case.name == "dpop").variables["secret"]).write_text(locked)
    done = doctor()
    assert done.stdout, done.stderr
    lacks = {found["credential"]: found["lacks"] for found in json.loads(done.stdout) if "lacks" in found}
    assert done.returncode == 1 and set(lacks) == {"sig-ed.secret", "dpop"}, lacks
    assert "P-256" in lacks["sig-ed.secret"] and "Ed25519" in lacks["sig-ed.secret"] and "encrypted" in lacks["dpop"], lacks
    assert not any(line in done.stdout + done.stderr for line in [*wrong.splitlines()[1:-1], *locked.splitlines()[1:-1]])
    print("ok doctor: a key of the wrong kind, and one with a passphrase")


def in_a_sandbox(gateway, all_cases):
    """The sandbox's environment holds keys of several lines as they are."""
    real = {f"REAL_{case.variables['secret']}": case.real["secret"] for case in all_cases if case.keeper == "env"}
    command = [gateway.program, "exec", "-q", "--config", gateway.config, "--audit", gateway.config.parent / "exec.jsonl", "--", "env", "-0"]
    # Not this repository: what a command in a sandbox could write to is remembered.
    with tempfile.TemporaryDirectory(prefix="gateway-project-", dir="/var/tmp") as project:
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=180,
                              env=os.environ | real | {"XDG_STATE_HOME": str(gateway.config.parent / "state")})
    found = dict(pair.split("=", 1) for pair in done.stdout.split("\0") if "=" in pair)
    for case in all_cases:
        held = found.get(case.variables["secret"], "")
        assert held and held != case.real["secret"] and form(held) == form(case.real["secret"]), f"exec: {case.name}: {done.stderr}"
        assert held != gateway.variables[case.variables["secret"]], "two sessions have one phantom"
        assert case.real["secret"] not in done.stdout
    print("ok exec: phantoms of keys in the sandbox")


def main():
    program = Path(sys.argv[sys.argv.index("--gateway") + 1]).resolve()
    all_cases = cases()
    with tempfile.TemporaryDirectory(prefix="gateway-keys-", dir="/var/tmp") as folder:
        folder = Path(folder)
        origin = Origin(folder, [case.host for case in all_cases])
        gateway = Gateway(program, configure(folder, all_cases, origin), all_cases)
        try:
            for case in all_cases:
                try_case(gateway, origin, case)
            stale(gateway, origin, next(case for case in all_cases if case.name == "cdp-sdk"))
            in_a_sandbox(gateway, all_cases)
            examined(gateway, all_cases)
        finally:
            gateway.stop()
        log = (folder / "audit.jsonl").read_text()
        assert all(case.real["secret"].split("\n")[1 if "\n" in case.real["secret"] else 0] not in log for case in all_cases), "a key is in the log"
        lent = {lent["place"] for line in log.splitlines() for lent in json.loads(line).get("lent", [])}
        assert lent == {f"sign:{case.recipe}" for case in all_cases}, lent


if __name__ == "__main__":
    main()
