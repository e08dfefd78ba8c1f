"""A program with a login of its own, as it runs inside the sandbox (and outside, beside it): client.py COMMAND [ARGUMENTS]
Prints one line of JSON. Reads and writes the file as Claude Code does."""

import base64, hashlib, http.client, json, os, re, secrets, socket, ssl, sys, tempfile, time, urllib.error, urllib.parse, urllib.request
from pathlib import Path

HOME = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
FILE = HOME / ".credentials.json"
ENDPOINT, CLIENT = "https://platform.claude.com/v1/oauth/token", "9d1c250a-e61b-44d9-88ed-5944d1962f5e"
API = "https://api.anthropic.com/api/oauth/profile"


class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


OPENER = urllib.request.build_opener(Stay)


def ask(url, content=None, fields=None, form=False):
    """The status and the text of an answer, and its fields."""
    fields = dict(fields or {})
    if content is not None and not isinstance(content, bytes):
        fields.setdefault("content-type", "application/x-www-form-urlencoded" if form else "application/json")
        content = (urllib.parse.urlencode(content) if form else json.dumps(content)).encode()
    try:
        with OPENER.open(urllib.request.Request(url, content, fields), timeout=30) as answer:
            return answer.status, answer.read().decode(errors="replace"), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace"), error.headers
    except (OSError, http.client.HTTPException) as error:
        return 0, repr(error), {}


def held():
    return json.loads(FILE.read_text())["claudeAiOauth"]


def api(token, url=API):
    return ask(url, None, {"authorization": f"Bearer {token}"})


def renew(token, endpoint=ENDPOINT, client=CLIENT, form=False):
    return ask(endpoint, {"grant_type": "refresh_token", "refresh_token": token, "client_id": client}, form=form)


def keep(answer):
    """Writes the file anew, with what else is in it."""
    FILE.parent.mkdir(parents=True, exist_ok=True)
    all = json.loads(FILE.read_text()) if FILE.exists() else {}
    old = all.get("claudeAiOauth", {})
    all["claudeAiOauth"] = {**old, "accessToken": answer["access_token"], "refreshToken": answer.get("refresh_token", old.get("refreshToken")),
                            "expiresAt": int((time.time() + answer["expires_in"]) * 1000), "scopes": answer.get("scope", "").split()}
    handle, name = tempfile.mkstemp(dir=FILE.parent)
    with os.fdopen(handle, "w") as file:
        json.dump(all, file)
    os.replace(name, FILE)


def use(seconds, every="0.4", own="7"):
    """Calls the service for some time, and renews by itself now and then."""
    end, failed, calls, renewals, at = time.time() + float(seconds), [], 0, 0, time.time() + float(own) * secrets.randbelow(100) / 100
    while time.time() < end:
        status, text, _ = api(held()["accessToken"])
        calls += 1
        if status != 200:
            failed.append(f"api {status} {text[:300]}")
        if time.time() > at:
            status, text, _ = renew(held()["refreshToken"])
            at, renewals = time.time() + float(own), renewals + 1
            if status == 200:
                keep(json.loads(text))
            else:
                failed.append(f"renewal {status} {text[:300]}")
        time.sleep(float(every))
    return {"calls": calls, "renewals": renewals, "failed": failed[:5], "failures": len(failed)}


def locks():
    return [HOME / ".oauth_refresh.lock", HOME.with_name(HOME.name + ".lock")]


def outside(seconds, port, roots):
    """The program outside, which knows nothing of a gateway: renews under its own lock, at the servers' own addresses."""
    context, plain = ssl.create_default_context(cafile=roots), socket.create_connection
    socket.create_connection = lambda address, *more, **most: plain(("127.0.0.1", int(port)), *more, **most)
    globals()["OPENER"] = urllib.request.build_opener(Stay, urllib.request.HTTPSHandler(context=context))
    end, calls, renewals, failed, waited = time.time() + float(seconds), 0, 0, [], 0
    while time.time() < end:
        # The gateway renews one second ahead: now and then before it, now and then after.
        ahead = 0.6 + secrets.randbelow(9) / 10
        if held()["expiresAt"] / 1000 - time.time() < ahead:
            try:
                os.mkdir(locks()[0])
            except FileExistsError:
                waited += 1
                time.sleep(0.1)
                continue
            try:
                mine = held()
                if mine["expiresAt"] / 1000 - time.time() < ahead:
                    status, text, _ = renew(mine["refreshToken"])
                    renewals += 1
                    keep(json.loads(text)) if status == 200 else failed.append(f"renewal {status} {text[:200]}")
            finally:
                os.rmdir(locks()[0])
        status, text, _ = api(held()["accessToken"])
        calls += 1
        if status != 200 and held()["expiresAt"] / 1000 > time.time() + 0.5:
            failed.append(f"api {status} {text[:200]}")
        time.sleep(0.35)
    return {"calls": calls, "renewals": renewals, "failed": failed[:5], "failures": len(failed), "waited": waited}


def login(authorize, endpoint, url, client=CLIENT, form="", extra="", wrong="", write=""):
    """Authorization code with PKCE, as a person would do it in a browser."""
    verifier, redirect = secrets.token_urlsafe(40), "http://localhost:1455/callback"
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    query = {"response_type": "code", "client_id": client, "redirect_uri": redirect, "state": "s", "scope": "user:profile",
             "code_challenge": challenge, "code_challenge_method": "S256"}
    status, text, fields = ask(authorize + "?" + urllib.parse.urlencode(query))
    code = dict(urllib.parse.parse_qsl(urllib.parse.urlparse(fields.get("location", "")).query)).get("code")
    if not code:
        return {"authorize": status, "text": text}
    asked = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect, "client_id": client,
             "code_verifier": "wrong" if wrong else verifier, "state": "s", **dict(urllib.parse.parse_qsl(extra))}
    status, text, fields = ask(endpoint, asked, form=bool(form))
    if status != 200:
        return {"status": status, "text": text}
    answer = json.loads(text)
    if write:
        keep(answer)
    called = api(answer["access_token"], url)
    return {"status": status, "tokens": answer, "api": called[0], "text": called[1][:300]}


def device(start, endpoint, url, client):
    """Device flow (RFC 8628): the test grants it at once."""
    _, text, _ = ask(start, {"client_id": client, "scope": "repo"}, {"accept": "application/json"}, form=True)
    told, statuses = json.loads(text), []
    print(told["device_code"], file=sys.stderr, flush=True)
    for _ in range(20):
        asked = {"client_id": client, "device_code": told["device_code"], "grant_type": "urn:ietf:params:oauth:grant-type:device_code"}
        status, text, _ = ask(endpoint, asked, {"accept": "application/json"}, form=True)
        statuses.append(status)
        if status == 200:
            answer = json.loads(text)
            return {"statuses": statuses, "tokens": answer, "api": api(answer["access_token"], url)[0]}
        if "pending" not in text:
            break
        time.sleep(0.5)
    return {"statuses": statuses, "text": text}


def walk(url, **typed):
    """Submits the forms of oidc-provider as a person does. Returns the address that it ends at, or its text."""
    jar = urllib.request.HTTPCookieProcessor()
    browser = urllib.request.build_opener(jar, Stay)
    content = None
    for _ in range(12):
        try:
            answer = browser.open(urllib.request.Request(url, content, {"accept": "text/html"}), timeout=20)
        except urllib.error.HTTPError as error:
            answer = error
        text, content = answer.read().decode(errors="replace"), None
        if to := answer.headers.get("location"):
            url = urllib.parse.urljoin(url, to)
            if url.startswith("https://client.test"):
                return url
        elif form := re.search(r'(?s)<form[^>]*action="([^"]+)"[^>]*>(.*?)</form>', text):
            fields = {name: value for name, value in re.findall(r'<input[^>]*name="([^"]+)"(?:[^>]*value="([^"]*)")?', form[2])}
            url = urllib.parse.urljoin(url, form[1])
            content = urllib.parse.urlencode({**fields, **{name: value for name, value in typed.items() if name in fields or name in form[2]}}).encode()
        else:
            return text
    return text


def oidc(base, seconds):
    """Four grants of a real server, calls over some renewals by the gateway, and one of its own."""
    verifier = secrets.token_urlsafe(40)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    redirect, scope, seen = "https://client.test/callback", "openid offline_access", {}
    query = {"response_type": "code", "client_id": "app", "redirect_uri": redirect, "scope": scope, "prompt": "consent",
             "code_challenge": challenge, "code_challenge_method": "S256"}
    told = json.loads(ask(f"{base}/device/auth", {"client_id": "app", "scope": scope}, form=True)[1])
    page = walk(told["verification_uri"], user_code=told["user_code"], login="ann", password="x", confirm="yes")
    asked = {"client_id": "app", "device_code": told["device_code"], "grant_type": "urn:ietf:params:oauth:grant-type:device_code"}
    status, text, _ = ask(f"{base}/token", asked, form=True)
    own = json.loads(text).get("access_token", "")
    seen |= {"device": status, "device_api": api(own, f"{base}/me")[0], "device_text": text[:300] if status != 200 else page[:0]}
    ended = walk(f"{base}/auth?" + urllib.parse.urlencode(query), login="ann", password="x")
    code = dict(urllib.parse.parse_qsl(urllib.parse.urlparse(ended).query)).get("code", "")
    asked = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect, "client_id": "app", "code_verifier": verifier}
    status, text, _ = ask(f"{base}/token", asked, form=True)
    if status != 200:
        return {"code": status, "text": text[:500], "ended": ended[:500]}
    tokens, calls, end = json.loads(text), [], time.time() + float(seconds)
    while time.time() < end:
        calls.append(api(tokens["access_token"], f"{base}/me")[0])
        time.sleep(0.5)
    status, text, _ = renew(tokens["refresh_token"], f"{base}/token", "app", True)
    seen |= {"calls": calls, "tokens": tokens, "refresh": status, "renewed": json.loads(text)}
    status, text, _ = ask(f"{base}/token", {"grant_type": "client_credentials", "client_id": "machine", "client_secret": "a-secret-of-the-machine-of-40-characters-"}, form=True)
    seen |= {"machine": status, "machine_text": text[:300]}
    print("ready", flush=True)
    sys.stdin.readline()
    time.sleep(6)
    status, text, _ = api(tokens["access_token"], f"{base}/me")
    return {**seen, "after": status, "after_text": text[:400]}


def show(url=API):
    """What is inside: the file, and whether the service takes its token."""
    if not FILE.exists():
        return {"file": None}
    mine = held()
    status, text, _ = api(mine["accessToken"], url)
    return {"file": json.loads(FILE.read_text()), "mode": oct(FILE.stat().st_mode & 0o777), "api": status, "text": text[:600]}


def post(url, content, kind="form", fields="{}"):
    """One request, as it is."""
    status, text, _ = ask(url, dict(urllib.parse.parse_qsl(content)), json.loads(fields), form=kind == "form")
    return {"status": status, "text": text[:3000]}


def docker():
    """A registry's token, and what it is for: as docker pull does."""
    auth = next(iter(json.loads((Path.home() / ".docker/config.json").read_text())["auths"].values()))["auth"]
    status, text, _ = ask("https://auth.docker.io/token?service=registry.docker.io&scope=repository:library/lab:pull", None, {"authorization": f"Basic {auth}"})
    if status != 200:
        return {"token": status, "text": text[:500]}
    status, more, _ = api(json.loads(text)["token"], "https://registry-1.docker.io/v2/library/lab/manifests/latest")
    return {"status": status, "token": text, "text": more[:500]}


def present(url, token):
    status, text, _ = api(token, url)
    return {"status": status, "text": text[:1000]}


def refresh(endpoint=ENDPOINT, client=CLIENT, token="", form=""):
    status, text, _ = renew(token or held()["refreshToken"], endpoint, client, bool(form))
    return {"status": status, "text": text[:1000]}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])), flush=True)
