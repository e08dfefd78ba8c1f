"""Stands in for the stores that no package has: Google's, Azure's, 1Password Connect, and for the faults of AWS's.

standin.py FOLDER: prints its two ports, TLS and clear text, and serves until it is ended. `POST /_set` sets its value and its
mode. vendors.py drives it by each vendor's own client first.
"""

import base64
import json
import socket
import ssl
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding

FOLDER = sys.argv[1]
STATE = {"value": "CANARY-value-0000", "mode": "good", "token": 0}
VAULT, ITEM = "v" * 26, "i" * 26
LOCK = threading.Lock()


def jwt_is_signed(assertion):
    """Whether Google's assertion is signed with the service account's key."""
    head, claims, signature = assertion.split(".")
    raw = lambda text: base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    with open(f"{FOLDER}/account.pub", "rb") as file:
        key = serialization.load_pem_public_key(file.read())
    key.verify(raw(signature), f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256())
    return json.loads(raw(claims))["exp"] > time.time()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, content, kind="application/json", fields=()):
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in [("content-type", kind), ("content-length", str(len(content))), *fields]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def refuse(self, status, code, words):
        """Each vendor's own form of an error, whose text holds the secret."""
        words = f"{words}: {STATE['value']}"
        path = self.path
        if "x-amz-target" in self.headers:
            return self.answer(400 if status < 500 else status, {"__type": code, "Message": words}, "application/x-amz-json-1.1")
        if path.startswith("/v1/projects"):
            return self.answer(status, {"error": {"code": status, "message": words, "status": code}})
        if path.startswith("/secrets"):
            return self.answer(status, {"error": {"code": code, "message": words}})
        self.answer(status, {"status": status, "message": f"{code}{words}"})

    def code(self, kind):
        """The code of an error: of AWS, Google, Azure, 1Password."""
        at = 0 if "x-amz-target" in self.headers else 1 if self.path.startswith("/v1/projects") else 2 if self.path.startswith("/secrets") else 3
        parameter = "AmazonSSM" in self.headers.get("x-amz-target", "")
        return {
            "denied": ("AccessDeniedException", "PERMISSION_DENIED", "Forbidden", "Authorization: "),
            "gone": ("ParameterNotFound" if parameter else "ResourceNotFoundException", "NOT_FOUND", "SecretNotFound", ""),
            "login": ("UnrecognizedClientException", "UNAUTHENTICATED", "Unauthorized", "Authentication: "),
            "expired": ("ExpiredTokenException", "UNAUTHENTICATED", "Unauthorized", "Token expired "),
            "busy": ("InternalServiceError", "INTERNAL", "InternalError", ""),
        }[kind][at]

    def is_faulty(self):
        mode = STATE["mode"]
        if mode == "slow":
            time.sleep(2)
        elif mode == "cut":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        elif mode == "short":
            self.send_response(200)
            self.send_header("content-length", "4000")
            self.end_headers()
            self.wfile.write(STATE["value"].encode())
            self.close_connection = True
        elif mode == "page":
            self.answer(200, f"<html>{STATE['value']}</html>".encode(), "text/html")
        elif mode == "other":
            self.answer(200, {"SecretString": 7, "Parameter": [1], "payload": STATE["value"], "value": {}, "fields": STATE["value"]})
        elif mode == "huge":
            self.answer(200, b'{"x":"' + b"y" * (5 << 20) + b'"}')
        elif mode in ("denied", "gone", "login", "expired", "busy"):
            status = {"denied": 403, "gone": 404, "login": 401, "expired": 401, "busy": 500}[mode]
            self.refuse(status, self.code(mode), mode)
        else:
            return False
        return mode != "slow"

    def bearer(self):
        return self.headers.get("authorization", "").removeprefix("Bearer ")

    def do_POST(self):
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/_set":
            STATE.update(json.loads(content))
            return self.answer(200, {})
        if self.path.endswith("/token"):
            form = dict(urllib.parse.parse_qsl(content.decode()))
            good = jwt_is_signed(form["assertion"]) if "assertion" in form else form.get("client_secret") == "CANARY-client-secret"
            if not good or STATE["mode"] == "stranger":
                return self.answer(401, {"error": "invalid_client"})
            with LOCK:
                STATE["token"] += 1
            return self.answer(200, {"access_token": f"CANARY-token-{STATE['token']}", "token_type": "Bearer", "expires_in": 3600})
        if self.is_faulty():
            return None
        if not self.headers.get("authorization", "").startswith("AWS4-HMAC-SHA256 "):
            return self.refuse(401, "MissingAuthenticationTokenException", "")
        asked, value = json.loads(content), STATE["value"]
        if self.headers["x-amz-target"] == "secretsmanager.GetSecretValue":
            text = json.dumps({"token": value, "user": "app"})
            return self.answer(200, {"ARN": "arn", "Name": asked["SecretId"], "SecretString": text, "CreatedDate": 1.5}, "application/x-amz-json-1.1")
        assert asked["WithDecryption"] is True
        self.answer(200, {"Parameter": {"Name": asked["Name"], "Type": "SecureString", "Value": value, "Version": 1}}, "application/x-amz-json-1.1")

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if url.path.startswith("/v1/vaults"):
            return self.connect(url.path, query)
        if not self.bearer().startswith("CANARY-token-"):
            challenge = 'Bearer authorization="https://login.microsoftonline.com/tenant", resource="https://vault.azure.net"'
            return self.answer(401, {"error": {"code": "Unauthorized"}}, fields=[("WWW-Authenticate", challenge)])
        if self.is_faulty():
            return None
        value = STATE["value"]
        if url.path.startswith("/v1/projects/"):
            data = base64.b64encode(value.encode()).decode()
            return self.answer(200, {"name": url.path.removesuffix(":access"), "payload": {"data": data}})
        assert "api-version" in query
        name = url.path.split("/")[2]
        self.answer(200, {"value": value, "id": f"https://team.vault.azure.net/secrets/{name}/1", "attributes": {"enabled": True, "created": 1}})

    def connect(self, path, query):
        if self.bearer() != "CANARY-connect-token":
            return self.answer(401, {"status": 401, "message": "Authentication: Invalid bearer token"})
        if self.is_faulty():
            return None
        if path == "/v1/vaults":
            return self.answer(200, [{"id": VAULT, "name": "Work"}] if query["filter"] == 'name eq "Work"' else [])
        if path == f"/v1/vaults/{VAULT}/items":
            return self.answer(200, [{"id": ITEM, "title": "GitHub", "vault": {"id": VAULT}}] if query["filter"] == 'title eq "GitHub"' else [])
        field = lambda name, value, **more: {"id": name.lower(), "label": name, "type": "CONCEALED", "value": value, **more}
        fields = [field("token", STATE["value"]), field("twice", "one", section={"id": "s1"}), {**field("twice", STATE["value"], section={"id": "s2"}), "id": "t2"}]
        sections = [{"id": "s1", "label": "first"}, {"id": "s2", "label": "second"}]
        self.answer(200, {"id": ITEM, "title": "GitHub", "vault": {"id": VAULT}, "category": "API_CREDENTIAL", "sections": sections, "fields": fields})


# A client that goes is nothing to tell of.
ThreadingHTTPServer.handle_error = lambda *_: None


def serve(certificate):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{FOLDER}/server.pem", f"{FOLDER}/server.key")
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


print(serve(True), serve(False), flush=True)
sys.stdin.read()
