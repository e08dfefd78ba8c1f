"""The real programs, each logged in by its file alone and by its own login inside, in a terminal."""

import fcntl, json, os, re, struct, time, urllib.parse

import server
from typist import Typist

GITHUB = "github.com/login/oauth/access_token"
GEMINI_SETTINGS = '{"security":{"auth":{"selectedType":"oauth-personal"}}}'


def claude_file(pair):
    return json.dumps({"claudeAiOauth": {"accessToken": pair["access_token"], "refreshToken": pair["refresh_token"],
                                         "expiresAt": int((time.time() + pair["expires_in"]) * 1000), "scopes": server.SCOPES, "subscriptionType": "max"}})


def codex_file(pair):
    tokens = {name: pair[name] for name in ("id_token", "access_token", "refresh_token")}
    return json.dumps({"auth_mode": "chatgpt", "OPENAI_API_KEY": None, "tokens": {**tokens, "account_id": "account-1"},
                       "last_refresh": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})


def gemini_file(pair):
    return json.dumps({**{name: pair[name] for name in ("access_token", "refresh_token", "id_token", "scope", "token_type")},
                       "expiry_date": int((time.time() + pair["expires_in"]) * 1000)})


def gh_file(pair):
    return f"github.com:\n    oauth_token: {pair['access_token']}\n    user: ann\n    git_protocol: https\n"


# For each: its endpoint and file; how it is used once and what it then says; how it logs in, the screens before it waits, where its
# page begins (none: device flow), and what is typed for a code.
PROGRAMS = {
    "claude": (server.CLAUDE, "platform.claude.com/v1/oauth/token", ".claude/.credentials.json", claude_file, ["claude", "-p", "hello"], "the stand-in answers",
               ["claude", "auth", "login"], [], "claude.com/cai/oauth/authorize", "Paste code here", "{code}#{state}\r"),
    "codex": (server.CODEX, "auth.openai.com/oauth/token", ".codex/auth.json", codex_file, ["codex", "login", "status"], "Logged in using ChatGPT",
              ["codex", "login", "--device-auth"], [], None, None, None),
    "gemini": (None, "oauth2.googleapis.com/token", ".gemini/oauth_creds.json", gemini_file,
               ["gemini", "--skip-trust", "-m", "gemini-2.5-flash", "-p", "hello"], "the stand-in answers",
               ["gemini", "--skip-trust", "-m", "gemini-2.5-flash"], [], "accounts.google.com/o/oauth2", "Enter the authorization code", "{code}\r"),
    "gh": (None, GITHUB, ".config/gh/hosts.yml", gh_file, ["gh", "api", "user"], '"login"',
           ["gh", "auth", "login", "-h", "github.com", "-p", "https", "-w"], [("Authenticate Git", "n\r"), ("Press Enter", "\r")], None, None, None),
}
LOGGED_IN = {"claude": "Login successful", "codex": "Successfully logged in", "gemini": "Signed in with Google", "gh": "Logged in as"}


def prepare(lab, clients):
    config = lab.home / ".config/gateway/config.toml"
    config.write_text(f'[sandbox]\nsee = ["{clients}"]\n\n' + config.read_text())
    lab.write("home/.gemini/settings.json", GEMINI_SETTINGS)
    lab.variables = {"PATH": f"{clients}/agents/node_modules/.bin:/usr/bin:/bin", "COLUMNS": "100", "NO_BROWSER": "true", "TERM": "xterm-256color"}
    lab.own()


def command(lab, words, name, fresh=False):
    flags = ["--profile", name, "--pass-env", "NO_BROWSER", *(["--see-home", ".gemini/settings.json"] if name == "gemini" else []), *(["--fresh-home"] * fresh)]
    return lab.command([lab.gateway, "exec", "-v", *flags, "--", *words], lab.variables)


def used(lab, name, once, says, what):
    before = lab.served()
    said, code = lab.run_(command(lab, once, name))
    lab.nothing_real(f"what {name} says", said)
    # `codex login status` asks nobody.
    lab.judge(f"{name}: {what}", "" if code == 0 and says in said and (name == "codex" or lab.served() > before) else said)


def by_file(lab, name):
    client, endpoint, path, write, once, says, *_ = PROGRAMS[name]
    lab.put(path, write(lab.issuer.grant(endpoint, client=client)))
    for run in ("first", "second"):
        used(lab, name, once, says, f"by its file alone, {run} run")
    if name == "codex":
        before = lab.served()
        said, _ = lab.run_(command(lab, ["timeout", "6", "codex", "exec", "--skip-git-repo-check", "hello"], name))
        lab.judge("codex: chatgpt.com sees the real token, and codex none", "" if lab.served() > before and not lab.issuer.real(said) else said)
    (lab.home / path).unlink()


def by_login(lab, name):
    _, _, _, _, once, says, login, screens, page, asks, typed = PROGRAMS[name]
    before = lab.served()
    then = [*login] if name == "gemini" else ["sh", "-c", " ".join(login) + " && " + " ".join(once)]
    typist = Typist(command(lab, then, name, fresh=True))
    # Their own terminal, as a login gives it to them (TIOCGPTN).
    number, = struct.unpack("I", fcntl.ioctl(typist.terminal, 0x80045430, bytes(4)))
    os.chown(f"/dev/pts/{number}", lab.user, -1)
    for text, keys in screens:
        typist.see(text)
        typist.type(keys)
    if page:
        typist.see(asks)
        found = max(re.findall(rb"https://" + page.encode() + rb"[^\s\x1b\x07\"]+", typist.raw), key=len).decode()
        query = dict(urllib.parse.parse_qsl(found.partition("?")[2]))
        typist.type(typed.format(code=lab.issuer.authorize(query), state=query["state"]))
    try:
        typist.see(LOGGED_IN[name], 40)
        if name == "gemini":
            typist.see("Type your message")
            typist.type("/quit\r")
        wrong = ""
    except AssertionError as error:
        wrong = str(error)
    ended = time.monotonic() + 45
    while not typist.ended and time.monotonic() < ended:
        typist.read(0.4)
        # Whether to keep the login is asked outside, when the command has ended.
        if typist.shows("[y/N]"):
            typist.type("y\r")
    typist.end(1)
    screen = typist.raw.decode(errors="replace")
    lab.nothing_real(f"the terminal of {name}", screen)
    wrong = wrong or ("" if lab.served() > before or name == "codex" else "no service saw the real token")
    lab.judge(f"{name}: its own login inside", wrong and f"{wrong}\n{typist.shown()}")
    if not wrong:
        used(lab, name, once, says, "after its login was kept, the next run is logged in")


def play(lab, clients, names=PROGRAMS):
    prepare(lab, clients)
    for name in names:
        by_file(lab, name)
    for name in names:
        by_login(lab, name)
