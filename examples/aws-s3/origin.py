"""S3 as far as the rehearsal needs it: objects in memory, and every signature verified with the real key of its environment.

"Authenticating Requests (AWS Signature Version 4)" of the Amazon S3 API Reference; Python's own library alone.
"""

import hashlib, hmac, http.server, os, pathlib, ssl, sys
from urllib.parse import quote, unquote

STAGE = pathlib.Path(sys.argv[1])
KEY, SECRET = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]


def signature(method, target, fields, scope, signed):
    path, _, query = target.partition("?")
    pairs = sorted(tuple(quote(unquote(part), safe="-_.~") for part in (pair + "=").split("=")[:2]) for pair in query.split("&") if pair)
    lines = "".join(f"{name}:{' '.join((fields[name] or '').split())}\n" for name in signed.split(";"))
    canonical = "\n".join([method, quote(unquote(path), safe="/-_.~"), "&".join(map("=".join, pairs)), lines, signed, fields["x-amz-content-sha256"]])
    text = "\n".join(["AWS4-HMAC-SHA256", fields["x-amz-date"], scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + SECRET).encode()
    for part in [*scope.split("/"), text]:
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex()


class Store(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects = {}

    def log_message(self, *args):
        pass

    def answer(self, status, content=b"", kind="application/octet-stream"):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def content(self):
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        content = b""
        while size := int(self.rfile.readline(), 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return content

    def serve(self):
        content = self.content()
        try:
            parts = dict(part.strip().split("=", 1) for part in self.headers["authorization"].removeprefix("AWS4-HMAC-SHA256 ").split(","))
            key, _, scope = parts["Credential"].partition("/")
            found = signature(self.command, self.path, self.headers, scope, parts["SignedHeaders"])
        except (AttributeError, KeyError, TypeError, ValueError):
            return self.refuse("AccessDenied")
        if key != KEY or not hmac.compare_digest(found, parts["Signature"]):
            return self.refuse("SignatureDoesNotMatch")
        if self.headers["x-amz-content-sha256"] not in (hashlib.sha256(content).hexdigest(), "UNSIGNED-PAYLOAD"):
            return self.refuse("XAmzContentSHA256Mismatch")
        with open(STAGE / "seen.log", "a") as seen:
            seen.write(f"{self.command} {self.path} signed by {key}\n")
        if self.command == "PUT":
            self.objects[self.path] = content
            return self.answer(200)
        return self.answer(200, self.objects[self.path]) if self.path in self.objects else self.answer(404)

    def refuse(self, code):
        self.answer(403, f"<Error><Code>{code}</Code></Error>".encode(), "application/xml")

    do_GET = do_PUT = do_DELETE = serve


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(STAGE / "leaf.pem", STAGE / "leaf.key")
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print(server.server_port, flush=True)
server.serve_forever()
