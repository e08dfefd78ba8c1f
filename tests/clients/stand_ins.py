"""Stand-ins of services, on this machine, that take only the real credentials; and a fresh user to meet them."""

import json, os, shutil, ssl, subprocess, tempfile, threading
import http.server
from pathlib import Path

USER = 40964
SAYS = "the stand-in answers"
SECRETS = {
    "ANTHROPIC_API_KEY": "sk-ant-api03-" + "Zx8" * 31 + "AA",
    "OPENAI_API_KEY": "sk-abcdefghij0123456789T3BlbkFJabcdefghij0123456789",
    "GEMINI_API_KEY": "AIzaQbcdefghijklmnopqrstuvwxyz012345678",
}
AGENT_HOSTS = ["api.anthropic.com", "platform.claude.com", "claude.ai", "downloads.claude.ai", "api.openai.com", "chatgpt.com", "auth.openai.com",
         "generativelanguage.googleapis.com", "cloudcode-pa.googleapis.com", "oauth2.googleapis.com"]


def events(pairs):
    return "".join((f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n" for name, data in pairs).encode()


def anthropic(model, streamed):
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "stop_reason": None,
               "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    if not streamed:
        return json.dumps({**message, "content": [{"type": "text", "text": SAYS}], "stop_reason": "end_turn"}).encode()
    return events([
        ("message_start", {"type": "message_start", "message": message}),
        ("content_block_start", {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        ("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": SAYS}}),
        ("content_block_stop", {"type": "content_block_stop", "index": 0}),
        ("message_delta", {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 4}}),
        ("message_stop", {"type": "message_stop"})])


def openai():
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": SAYS, "annotations": []}]}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return events([
        ("response.created", {"type": "response.created", "response": {"id": "resp_1"}}),
        ("response.output_item.done", {"type": "response.output_item.done", "output_index": 0, "item": item}),
        ("response.completed", {"type": "response.completed", "response": {"id": "resp_1", "output": [item], "usage": usage}})])


def gemini(streamed):
    answer = {"candidates": [{"content": {"role": "model", "parts": [{"text": SAYS}]}, "finishReason": "STOP", "index": 0}],
              "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}}
    return events([("", answer)]) if streamed else json.dumps(answer).encode()


class Services(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        content = self.rfile.read(int(self.headers.get("content-length") or 0))
        fields = (self.headers.get(name, "") for name in ("x-api-key", "x-goog-api-key", "authorization"))
        real = any(field.removeprefix("Bearer ") in SECRETS.values() for field in fields)
        path, asks = self.path.split("?")[0], self.command == "POST"
        if asks and path == "/v1/messages":
            asked = json.loads(content)
            answer = anthropic(asked["model"], asked.get("stream"))
        elif asks and path.endswith("/responses"):
            answer = openai()
        elif asks and path.endswith(("generateContent", "streamGenerateContent")):
            answer = gemini("stream" in path)
        else:
            answer, real = b"{}", True
        self.send_response(200 if real else 401)
        self.send_header("content-type", "text/event-stream" if answer[:1] in b"ed" else "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    do_POST = do_PUT = do_HEAD = do_DELETE = do_GET

    def log_message(self, *_):
        pass


def serve(folder, hosts, handler):
    """Serves these hosts on one port, with a certificate of a CA of its own. Returns the port."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    quiet = {"cwd": folder, "check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(["openssl", "req", "-x509", *key, "-days", "2", "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.pem"], **quiet)
    subprocess.run(["openssl", "req", *key, "-subj", "/CN=services", "-keyout", "key.pem", "-out", "csr"], **quiet)
    (folder / "names").write_text("subjectAltName=" + ",".join(f"DNS:{host}" for host in hosts))
    subprocess.run(["openssl", "x509", "-req", "-in", "csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2", "-extfile", "names",
                    "-out", "leaf.pem"], **quiet)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "leaf.pem", folder / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def linked(program, place):
    """A name for a program where every user may run it."""
    try:
        os.link(program, place)
    except OSError:
        shutil.copy(program, place)
    return place


class Desk:
    """A user whom no system has, with a fresh home and a project. Their only configuration says where the stand-ins are."""

    def __init__(self, gateway, hosts, handler, user=USER):
        self.folder, self.user = Path(tempfile.mkdtemp(dir="/srv")), user
        self.folder.chmod(0o755)
        self.home = self.folder / "home"
        self.project = self.home / "project"
        self.gateway = linked(gateway, self.folder / "gateway")
        for folder in (self.home, self.project):
            folder.mkdir()
        port = serve(self.folder, hosts, handler)
        origin = '[[origin]]\nmatch = "https://{}"\nroots = ["{}/ca.pem"]\nreplace_system_roots = true\nconnect = "127.0.0.1:{}"\n'
        self.config = self.write("home/stand-ins.toml", "".join(origin.format(host, self.folder, port) for host in hosts))
        (self.folder / "ca.pem").chmod(0o644)
        self.own()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def own(self):
        for folder, _, files in os.walk(self.home):
            for name in [folder, *(os.path.join(folder, file) for file in files)]:
                os.chown(name, self.user, self.user, follow_symlinks=False)

    def own_folders(self, folder):
        while folder != self.home:
            os.chown(folder, self.user, self.user)
            folder = folder.parent

    def command(self, command, variables=None):
        """A command as this user, in the project, with nothing of this process's environment."""
        path = f"{self.folder}:/usr/local/bin:/usr/bin:/bin"
        variables = {"HOME": self.home, "PATH": path, "TERM": "xterm-256color", **(variables or {})}
        return ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups", "env", "-i", "-C", str(self.project),
                *(f"{name}={value}" for name, value in variables.items()), *command]

    def run(self, command, variables=None, limit=180):
        """Standard output and error as one text, and the exit code."""
        done = subprocess.run(self.command(command, variables), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=limit)
        return done.stdout, done.returncode
