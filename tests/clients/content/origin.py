"""Stripe, OpenAI and Anthropic as far as their SDKs need them; writes down the content that comes."""

import http.server, json, pathlib, ssl, sys

STAGE = pathlib.Path(sys.argv[1])
ANSWERS = {
    "/v1/refunds": {"id": "re_1", "object": "refund", "amount": 500, "status": "succeeded"},
    "/v1/chat/completions": {
        "id": "c", "object": "chat.completion", "created": 1, "model": "gpt-4o-mini",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "yes"}}],
    },
    "/v1/responses": {
        "id": "r", "object": "response", "created_at": 1, "model": "gpt-5-mini", "status": "completed", "parallel_tool_calls": True,
        "tool_choice": "auto", "tools": [], "output": [{
            "id": "m", "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "yes", "annotations": []}],
        }],
    },
    "/v1/messages": {
        "id": "m", "type": "message", "role": "assistant", "model": "claude-haiku-4-5", "stop_reason": "end_turn",
        "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}, "content": [{"type": "text", "text": "yes"}],
    },
}


class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_POST(self):
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        key = self.headers.get("authorization") or self.headers.get("x-api-key")
        with open(STAGE / "seen.log", "ab") as seen:
            seen.write(f"{self.path} {key} ".encode() + content + b"\n")
        answer = json.dumps(ANSWERS[self.path]).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(STAGE / "leaf.pem", STAGE / "leaf.key")
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print(server.server_port, flush=True)
server.serve_forever()
