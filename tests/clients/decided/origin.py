"""Stripe, OpenAI and Anthropic as far as their SDKs need them, streaming too; writes down what comes."""

import http.server, json, pathlib, ssl, sys

STAGE = pathlib.Path(sys.argv[1])
CHAT = {"id": "c", "created": 1, "model": "gpt-4o-mini"}
USED = {"prompt_tokens": 20, "completion_tokens": 100, "total_tokens": 120}
MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "claude-haiku-4-5", "stop_reason": None, "stop_sequence": None}


def chat(asked):
    said = {"role": "assistant", "content": "yes"}
    if not asked.get("stream"):
        choice = {"index": 0, "finish_reason": "stop", "message": said}
        return CHAT | {"object": "chat.completion", "choices": [choice], "usage": USED}
    pieces = [{"choices": [{"index": 0, "delta": said, "finish_reason": None}]}, {"choices": [], "usage": USED}]
    return [json.dumps(CHAT | {"object": "chat.completion.chunk"} | piece) for piece in pieces] + ["[DONE]"]


def message(asked):
    content = {"type": "text", "text": "yes"}
    if not asked.get("stream"):
        return MESSAGE | {"stop_reason": "end_turn", "usage": {"input_tokens": 20, "output_tokens": 100}, "content": [content]}
    return [json.dumps(piece) for piece in (
        {"type": "message_start", "message": MESSAGE | {"content": [], "usage": {"input_tokens": 20, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "yes"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 100}},
        {"type": "message_stop"},
    )]


class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def note(self, content):
        with open(STAGE / "seen.log", "ab") as seen:
            seen.write(f"{self.command} {self.path} ".encode() + content + b"\n")

    def do_GET(self):
        self.note(b"")
        self.answer(json.dumps({"object": "list", "data": []}), "application/json")

    def do_POST(self):
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.note(content)
        if self.path == "/v1/refunds":
            return self.answer(json.dumps({"id": "re_1", "object": "refund", "amount": 500, "status": "succeeded"}), "application/json")
        said = (chat if self.path == "/v1/chat/completions" else message)(json.loads(content))
        if isinstance(said, dict):
            return self.answer(json.dumps(said), "application/json")
        kinds = (f"event: {json.loads(piece)['type']}\n" if self.path == "/v1/messages" else "" for piece in said)
        self.answer("".join(f"{kind}data: {piece}\n\n" for kind, piece in zip(kinds, said)), "text/event-stream")

    def answer(self, text, kind):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(STAGE / "leaf.pem", STAGE / "leaf.key")
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print(server.server_port, flush=True)
server.serve_forever()
