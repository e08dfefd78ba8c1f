"""Authorization servers and the services that take their tokens, on this machine: stand-ins of those that presets name, and
strangers. PKCE is checked, refresh tokens serve once, and a used one ends its family."""

import base64, hashlib, http.server, json, secrets, socket, sys, threading, time, urllib.parse
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "clients"))
import stand_ins

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
CANARY = "C4n4ry"
# For each token endpoint: the prefixes of its access and refresh tokens, and the format that it takes and answers.
ENDPOINTS = {
    "platform.claude.com/v1/oauth/token": ("sk-ant-oat01-", "sk-ant-ort01-", "json"),
    "auth.openai.com/oauth/token": ("jwt", "rt_", "any"),
    "oauth2.googleapis.com/token": ("ya29.a0", "1//0", "form"),
    "github.com/login/oauth/access_token": ("gho_", "ghr_", "form"),
    "auth.stranger.test/token": ("stranger-", "renews-", "form"),
    "auth.evil.test/token": ("evil-", "evil-renews-", "form"),
}
HOSTS = ["api.anthropic.com", "platform.claude.com", "claude.ai", "claude.com", "downloads.claude.ai", "api.openai.com", "chatgpt.com", "auth.openai.com",
         "cloudcode-pa.googleapis.com", "oauth2.googleapis.com", "www.googleapis.com", "accounts.google.com", "github.com", "api.github.com",
         "auth.stranger.test", "api.stranger.test", "auth.evil.test", "registry.npmjs.org", "upload.pypi.org", "auth.docker.io", "registry-1.docker.io"]
CLAUDE, CODEX = "9d1c250a-e61b-44d9-88ed-5944d1962f5e", "app_EMoamEEZ73f0CkXaXp7hrann"
SCOPES = ["user:inference", "user:profile"]


def b64(data):
    return base64.urlsafe_b64encode(data if isinstance(data, bytes) else json.dumps(data).encode()).rstrip(b"=").decode()


def drawn(prefix, length=90):
    """A token that a search finds: `Issuer.real` says whether it was issued, or is of the same shape by chance."""
    text = CANARY + "".join(secrets.choice(ALPHABET) for _ in range(length))
    if prefix != "jwt":
        return prefix + text
    who = {"email": "ann@lab.test", "sub": "ann", "exp": int(time.time()) + 3600,
           "https://api.openai.com/auth": {"chatgpt_account_id": "account-1", "chatgpt_plan_type": "pro", "chatgpt_user_id": "ann"}}
    return f"{b64({'alg': 'RS256', 'typ': 'JWT'})}.{b64(who)}.{text}"


class Issuer:
    """What all the authorization servers of a test know."""

    def __init__(self, life=5.0):
        self.life, self.lock = life, threading.Lock()
        self.access, self.refresh, self.dead = {}, {}, set()
        # The first of the former tokens that /echo shows.
        self.first_shown = 0
        self.codes, self.devices, self.issued = {}, {}, set()
        self.renewals, self.reused, self.revoked, self.seen, self.answered = [], [], [], [], {}
        self.before_answer = lambda: None

    def real(self, text):
        """The real tokens in a text or bytes, by the part that no phantom has."""
        text = text if isinstance(text, bytes) else text.encode()
        at, found = text.find(CANARY.encode()), set()
        while at >= 0:
            piece = text[at:at + len(CANARY) + 16]
            if piece in self.issued:
                found.add(piece.decode())
            at = text.find(CANARY.encode(), at + 1)
        return found

    def draw(self, prefix, length=90):
        text = drawn(prefix, length)
        at = text.index(CANARY)
        self.issued.add(text[at:at + len(CANARY) + 16].encode())
        return text

    def grant(self, endpoint, family=None, client=None, who="ann"):
        """New tokens, of a new family or the next of one."""
        family = family or secrets.token_hex(4)
        first, second, _ = ENDPOINTS[endpoint]
        pair = {"access_token": self.draw(first), "refresh_token": self.draw(second), "token_type": "Bearer", "expires_in": int(self.life),
                "scope": " ".join(SCOPES)}
        if first in ("jwt", "ya29.a0"):
            pair["id_token"] = self.draw("jwt")
        if first == "sk-ant-oat01-":
            pair |= {"account": {"uuid": "u-1", "email_address": f"{who}@lab.test"}, "organization": {"uuid": "o-1", "name": "Lab"}}
        with self.lock:
            self.access[pair["access_token"]] = (family, time.time() + self.life)
            self.refresh[pair["refresh_token"]] = (family, client, endpoint, False)
        return pair

    def good(self, token):
        family, ends = self.access.get(token, (None, 0))
        return family is not None and family not in self.dead and time.time() < ends + 0.25

    def is_current(self, refresh):
        family, _, _, used = self.refresh.get(refresh, (None, None, None, True))
        return not used and family not in self.dead

    def renew(self, endpoint, asked):
        token = asked.get("refresh_token", "")
        with self.lock:
            family, client, of, used = self.refresh.get(token, (None, None, None, True))
            if family is None or of != endpoint or family in self.dead or (client and asked.get("client_id") not in (None, client)):
                self.reused.append((time.time(), "unknown", token[:20], family, of, family in self.dead, client, asked.get("client_id")))
                return 400, {"error": "invalid_grant", "error_description": "Refresh token not found or invalid"}
            if used:
                self.dead.add(family)
                self.reused.append((time.time(), family, token[:12]))
                return 400, {"error": "invalid_grant", "error_description": "Refresh token was used: the family ends"}
            self.refresh[token] = (family, client, of, True)
            self.renewals.append((time.time(), family))
        return 200, self.grant(endpoint, family, client)

    def authorize(self, query):
        code = "code-" + secrets.token_hex(12)
        self.codes[code] = (query.get("code_challenge"), query.get("redirect_uri"), query.get("client_id"))
        return code

    def exchange(self, endpoint, asked):
        challenge, redirect, client = self.codes.pop(asked.get("code", "").partition("#")[0], (None, None, None))
        verifier = b64(hashlib.sha256(asked.get("code_verifier", "").encode()).digest())
        if challenge is None or verifier != challenge or asked.get("redirect_uri") != redirect or asked.get("client_id") != client:
            return 400, {"error": "invalid_grant", "error_description": "the code, its verifier or its client is another"}
        return 200, self.grant(endpoint, client=client)

    def device(self, asked):
        state = self.devices.get(asked.get("device_code"))
        if state is None:
            return 400, {"error": "expired_token"}
        return (200, None) if state == "granted" else (400, {"error": "authorization_pending"})

    def token(self, endpoint, asked):
        kind = asked.get("grant_type", "")
        if kind == "refresh_token":
            return self.renew(endpoint, asked)
        if kind == "authorization_code":
            return self.exchange(endpoint, asked)
        if kind.endswith("device_code"):
            status, wrong = self.device(asked)
            return (200, self.grant(endpoint)) if wrong is None else (status, wrong)
        if kind == "client_credentials":
            return 200, {**self.grant(endpoint), "refresh_token": None}
        return 400, {"error": "unsupported_grant_type"}


def proxy(port, others):
    """A proxy that leads CONNECT to one port, and that to some hosts elsewhere, as a company's own: the gateway's requests take it too.
    Returns its port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)

    def copy(one, other):
        try:
            while piece := one.recv(65536):
                other.sendall(piece)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            one.close(), other.close()

    def lead(client):
        head = b""
        while not head.endswith(b"\r\n\r\n") and (byte := client.recv(1)):
            head += byte
        host = head.decode().split(" ")[1:2][0].rpartition(":")[0] if head else ""
        service = socket.create_connection(("127.0.0.1", others.get(host, port)))
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        threading.Thread(target=copy, args=(client, service), daemon=True).start()
        copy(service, client)

    def accept():
        while True:
            threading.Thread(target=lead, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]


def handler(issuer, extra=None):
    """The handler of one test. `extra` answers what the test adds: (status, content, fields), or None."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version, wbufsize, disable_nagle_algorithm = "HTTP/1.1", -1, True

        def do_GET(self):
            content = self.rfile.read(int(self.headers.get("content-length") or 0))
            place, _, query = (self.headers["host"].partition(":")[0] + self.path).partition("?")
            self.issuer = issuer
            answer = (extra and extra(self, place, content)) or self.answered(place, dict(urllib.parse.parse_qsl(query)), content)
            status, body, fields = (*answer, {})[:3]
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            if "transfer-encoding" not in fields:
                fields = {**fields, "content-length": str(len(body))}
            else:
                body = b"".join(b"%x\r\n%s\r\n" % (len(body[at:at + 7]), body[at:at + 7]) for at in range(0, len(body), 7)) + b"0\r\n\r\n"
            for name, value in {"content-type": "application/json", **fields}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body + fields.get("x-second", "").encode())

        def answered(self, place, query, content):
            if place in ENDPOINTS and self.command == "POST":
                return self.tokens(place, content)
            if place.endswith("/revoke"):
                issuer.revoked.append(content.decode())
                return 200, {}
            if place.endswith(("/authorize", "/auth")):
                code = issuer.authorize(query)
                return 302, b"", {"location": f"{query['redirect_uri']}?code={code}&state={query.get('state', '')}"}
            if place.endswith("/deviceauth/usercode"):
                return 200, {"device_auth_id": "device-1", "user_code": "ABCD-1234", "interval": "1"}
            if place.endswith("/deviceauth/token"):
                verifier = secrets.token_urlsafe(40)
                asked = {"code_challenge": b64(hashlib.sha256(verifier.encode()).digest()), "client_id": CODEX,
                         "redirect_uri": "https://auth.openai.com/deviceauth/callback"}
                return 200, {"authorization_code": issuer.authorize(asked), "code_challenge": asked["code_challenge"], "code_verifier": verifier}
            if place.endswith("/device/code"):
                device = secrets.token_hex(20)
                issuer.devices[device] = "pending"
                return 200, {"device_code": device, "user_code": "ABCD-1234", "verification_uri": f"https://{place.partition('/')[0]}/device",
                             "interval": 1, "expires_in": 600}
            return self.service(place, content)

        def tokens(self, endpoint, content):
            is_json = "json" in self.headers.get("content-type", "")
            asked = json.loads(content) if is_json else dict(urllib.parse.parse_qsl(content.decode()))
            status, answer = issuer.token(endpoint, asked)
            if asked.get("grant_type") == "refresh_token" and status == 200:
                issuer.before_answer()
                issuer.answered[answer["refresh_token"]] = time.time()
            if ENDPOINTS[endpoint][0] == "gho_" and "application/json" not in self.headers.get("accept", ""):
                # Its apps for people have neither refresh tokens nor an end.
                form = {name: value for name, value in answer.items() if name not in ("refresh_token", "expires_in")}
                return 200, urllib.parse.urlencode(form).encode(), {"content-type": "application/x-www-form-urlencoded"}
            return status, {name: value for name, value in answer.items() if value is not None}

        def service(self, place, content):
            authorization = self.headers.get("authorization", "")
            token = authorization.partition(" ")[2]
            good = issuer.good(token)
            issuer.seen.append((time.time(), place, authorization, good))
            if not good:
                return 401, {"type": "error", "error": {"type": "authentication_error", "message": "OAuth token is invalid"}}
            if place.endswith("/echo"):
                return 200, {"seen": authorization, "former": list(issuer.access)[issuer.first_shown:-1]}
            if place.endswith("/v1/messages"):
                asked = json.loads(content)
                answer = stand_ins.anthropic(asked.get("model", "m"), asked.get("stream"))
            elif place.endswith("/responses"):
                answer = stand_ins.openai()
            elif place.endswith(("enerateContent")):
                inner = json.loads(stand_ins.gemini(False))
                answer = stand_ins.events([("", {"response": inner})])
            else:
                answer = self.profile(place)
            return 200, answer, {"content-type": "text/event-stream"} if answer[:1] in b"ed" else {}

        def profile(self, place):
            answers = {
                "profile": {"account": {"uuid": "u-1", "email": "ann@lab.test", "full_name": "Ann", "has_claude_max": True},
                            "organization": {"uuid": "o-1", "organization_type": "claude_max", "rate_limit_tier": "default"}},
                "loadCodeAssist": {"currentTier": {"id": "free-tier", "name": "free"}, "cloudaicompanionProject": "lab"},
                "tokeninfo": {"scope": " ".join(SCOPES), "expires_in": "3600", "email": "ann@lab.test"},
                "userinfo": {"email": "ann@lab.test", "id": "1"}, "graphql": {"data": {"viewer": {"login": "ann"}}}, "user": {"login": "ann"},
            }
            found = [answer for name, answer in answers.items() if place.endswith(name)]
            return json.dumps(found[0] if found else {}).encode()

        do_POST = do_PUT = do_HEAD = do_DELETE = do_GET

        def log_message(self, *_):
            pass

        def handle_one_request(self):
            try:
                super().handle_one_request()
            except OSError:
                self.close_connection = True

    return Handler
