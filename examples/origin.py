"""The origin of the rehearsals: TLS on loopback, writes down what comes, and answers like the services that it stands for."""

import base64, http.server, pathlib, ssl, sys

STAGE = pathlib.Path(sys.argv[1])


class Origin(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, *args):
        super().__init__(*args, directory=str(STAGE / "www"))

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.note()
        if self.headers["host"].startswith("github.com"):
            return super().do_GET() if self.basic() == (STAGE / "password").read_text().strip() else self.challenge()
        self.echo()

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.note()
        if self.path == "/v1/messages":
            return self.stream()
        self.echo()

    def note(self):
        fields = "".join(f" [{name.lower()}: {value}]" for name, value in self.headers.items())
        with open(STAGE / "seen.log", "a") as seen:
            seen.write(f"{self.command} {self.path}{fields}\n")

    def credential(self):
        return self.headers.get("authorization") or self.headers.get("x-api-key") or "nothing"

    def basic(self):
        scheme, _, value = self.headers.get("authorization", "").partition(" ")
        return base64.b64decode(value).decode().partition(":")[2] if scheme.lower() == "basic" else None

    def echo(self):
        self.answer(200, f'{{"you_sent": "{self.credential()}"}}\n'.encode())

    def answer(self, status, content, *fields):
        self.send_response(status)
        for name, value in fields:
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def challenge(self):
        self.answer(401, b"", ("www-authenticate", 'Basic realm="git"'))

    def stream(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in ("hello", f"echo {self.credential()}", "bye"):
            data = f"data: {event}\n\n".encode()
            # Cut in the middle, so that an echo goes over the border of two chunks.
            for piece in (data[: len(data) // 2], data[len(data) // 2 :]):
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


# A second argument is another address than loopback: for a gateway in a container.
address = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1"
server = http.server.ThreadingHTTPServer((address, 0), Origin)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(STAGE / "leaf.pem", STAGE / "leaf.key")
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print(server.server_port, flush=True)
server.serve_forever()
