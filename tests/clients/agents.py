#!/usr/bin/env python3
"""The agents themselves in `gateway exec`: tests/clients/agents.py GATEWAY AGENTS

Each runs with `-p` or alike, then twice in a terminal, as an unprivileged user with a fresh home, logged in by a variable. Their
services are stand-ins that take only the real credentials. The second run in the terminal must ask nothing that the first was asked.
"""

import fcntl, json, os, pty, re, select, shutil, signal, struct, subprocess, sys, tempfile, termios, threading, time
import http.server, ssl
from pathlib import Path

USER = 40964
SAYS = "the stand-in answers"
SECRETS = {
    "ANTHROPIC_API_KEY": "sk-ant-api03-" + "Zx8" * 31 + "AA",
    "OPENAI_API_KEY": "sk-abcdefghij0123456789T3BlbkFJabcdefghij0123456789",
    "GEMINI_API_KEY": "AIzaQbcdefghijklmnopqrstuvwxyz012345678",
}
HOSTS = ["api.anthropic.com", "platform.claude.com", "claude.ai", "downloads.claude.ai", "api.openai.com", "chatgpt.com", "auth.openai.com",
         "generativelanguage.googleapis.com", "cloudcode-pa.googleapis.com", "oauth2.googleapis.com"]

# What each agent is run with, and what a person types in its first run: a text on the screen, and the keys.
AGENTS = {
    "claude": {
        "once": ["claude", "-p", "hello"],
        "talk": ["claude"],
        "first": [("Darkmode", "\r"), ("DoyouwanttousethisAPIkey", "\x1b[A"), ("", "\r"), ("Securitynotes", "\r"), ("trustthisfolder", "\r")],
        "ready": r"\?forshortcuts",
    },
    "codex": {"once": ["codex", "exec", "--skip-git-repo-check", "hello"]},
    "gemini": {"once": ["gemini", "--skip-trust", "-p", "hello"]},
}


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


def serve(folder):
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    quiet = {"cwd": folder, "check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(["openssl", "req", "-x509", *key, "-days", "2", "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.pem"], **quiet)
    subprocess.run(["openssl", "req", *key, "-subj", "/CN=services", "-keyout", "key.pem", "-out", "csr"], **quiet)
    (folder / "names").write_text("subjectAltName=" + ",".join(f"DNS:{host}" for host in HOSTS))
    subprocess.run(["openssl", "x509", "-req", "-in", "csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2", "-extfile", "names",
                    "-out", "leaf.pem"], **quiet)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Services)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "leaf.pem", folder / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


class Desk:
    def __init__(self, folder, gateway, agents):
        self.folder, self.gateway, self.agents = folder, gateway, agents
        port = serve(folder)
        for name in ("home", "project"):
            (folder / name).mkdir()
            os.chown(folder / name, USER, USER)
        origin = '[[origin]]\nmatch = "https://{}"\nroots = ["{}/ca.pem"]\nreplace_system_roots = true\nconnect = "127.0.0.1:{}"\n'
        config = folder / "home/gateway.toml"
        config.write_text("".join(origin.format(host, folder, port) for host in HOSTS))
        os.chown(config, USER, USER)
        for name in (folder, folder / "ca.pem"):
            name.chmod(0o755)

    def command(self, agent):
        variables = {"HOME": f"{self.folder}/home", "PATH": f"{self.agents}/node_modules/.bin:/usr/bin:/bin", "TERM": "xterm-256color", **SECRETS}
        return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "env", "-i", "-C", f"{self.folder}/project",
                *(f"{name}={value}" for name, value in variables.items()),
                self.gateway, "exec", "--config", f"{self.folder}/home/gateway.toml", "--see", self.agents, "--", *agent]

    def once(self, agent):
        done = subprocess.run(self.command(agent), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180)
        return done.stdout + done.stderr

    def talk(self, agent, steps, limit=120):
        """Types what the steps say when the screen shows their texts. Returns how many were reached, and everything shown."""
        pid, terminal = pty.fork()
        if pid == 0:
            command = self.command(agent)
            os.execvp(command[0], command)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        shown, reached, mark, end = b"", 0, 0, time.monotonic() + limit
        while time.monotonic() < end and reached < len(steps):
            if select.select([terminal], [], [], 0.5)[0]:
                try:
                    shown += os.read(terminal, 65536)
                except OSError:
                    break
            text, keys = steps[reached]
            if re.search(text, flat(shown[mark:])):
                time.sleep(1)
                os.write(terminal, keys.encode())
                mark, reached = len(shown), reached + 1
        end = time.monotonic() + 20
        while time.monotonic() < end and os.waitpid(pid, os.WNOHANG)[0] == 0:
            if select.select([terminal], [], [], 0.2)[0]:
                try:
                    shown += os.read(terminal, 65536)
                except OSError:
                    break
        else:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        os.close(terminal)
        return reached, flat(shown)


def flat(shown):
    text = re.sub(rb"\x1b\[[0-9;?>=]*[A-Za-z]|\x1b\][^\x07]*\x07|\x1b[()][A-Z0-9]|\x1b[=>78]", b"", shown)
    return re.sub(rb"\s+", b"", text).decode(errors="replace")


def check(what, holds, shown):
    print(f"{'ok  ' if holds else 'FAIL'} {what}", flush=True)
    if not holds:
        sys.exit(shown[-3000:])
    if any(secret in shown for secret in SECRETS.values()):
        sys.exit(f"{what}: a secret was shown")


def main():
    gateway, agents = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    folder = Path(tempfile.mkdtemp(dir="/srv"))
    try:
        desk = Desk(folder, gateway, agents)
        for name, agent in AGENTS.items():
            shown = desk.once(agent["once"])
            check(f"{name} answers once, logged in by a variable", SAYS in shown, shown)
            if "talk" not in agent:
                continue
            again = [(agent["ready"], "hello\r"), (SAYS.replace(" ", ""), "/exit\r")]
            reached, shown = desk.talk(agent["talk"], agent["first"] + again)
            check(f"{name} talks in a terminal, in a fresh home", reached == len(agent["first"]) + 2, shown)
            reached, shown = desk.talk(agent["talk"], again)
            asked = [text for text, _ in agent["first"] if text and re.search(text, shown)]
            check(f"{name} remembers what it asked", reached == 2 and not asked, shown)
    finally:
        shutil.rmtree(folder)


main()
