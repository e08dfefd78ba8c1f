"""Real Claude Code, logged in by its file outside: its own ready screen in a terminal, in each project, from the first run on."""

import json, os, pathlib, shutil, sys, tempfile

from typist import Typist

GATEWAY = sys.argv[1]
AGENTS = pathlib.Path(os.environ["GATEWAY_CLIENTS"]) / "agents/node_modules"
USER = 40963
REAL = ["sk-ant-oat01-C4n4ryC4n4ryC4n4ryC4n4ryC4n4ryC4n4ry", "sk-ant-ort01-C4n4ryC4n4ryC4n4ryC4n4ryC4n4ryC4n4ry"]
LOGIN = {"claudeAiOauth": {"accessToken": REAL[0], "refreshToken": REAL[1], "expiresAt": 4_000_000_000_000,
                           "scopes": ["user:inference", "user:profile"], "subscriptionType": "max"}}
# What one who is logged out is shown, as far as there is a network.
LOGGED_OUT = ["Welcome to Claude Code", "text style", "Select login method"]


def agent(desk, home, project):
    """The agent at a terminal."""
    variables = {"HOME": str(desk / home), "TERM": "xterm-256color", "PATH": f"{AGENTS}/.bin:/usr/bin:/bin"}
    variables = [f"{name}={value}" for name, value in variables.items()]
    user = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups"]
    command = [GATEWAY, "exec", "-q", "--see", str(AGENTS), "--", "claude"]
    return Typist(["env", "-i", "-C", str(desk / project), *variables, *user, *command])


def ready(typist):
    """From its start to its ready screen. The folder is the person's to trust, as it is outside."""
    typist.answer_screen("trust this folder", "\r", "? for shortcuts")
    typist.see("? for shortcuts")
    shown, text = typist.shown(), typist.raw.decode(errors="replace")
    assert "Claude Max" in shown, shown
    for words in LOGGED_OUT + REAL:
        assert words not in shown and words not in text, (words, shown)
    print(shown)


def end(typist):
    os.kill(typist.child, 15)
    typist.end()


def main():
    desk = pathlib.Path(tempfile.mkdtemp(dir="/srv"))
    try:
        desk.chmod(0o755)
        for folder in ("home/.claude", "bare", "one", "two"):
            (desk / folder).mkdir(parents=True)
        file = desk / "home/.claude/.credentials.json"
        file.write_text(json.dumps(LOGIN))
        file.chmod(0o600)
        for path in [*desk.rglob("*")]:
            os.chown(path, USER, USER)
        for project in ("one", "two"):
            typist = agent(desk, "home", project)
            ready(typist)
            end(typist)
        # Without the file it begins with its setup: the ready screen is due to the login.
        typist = agent(desk, "bare", "one")
        typist.see(LOGGED_OUT[0])
        end(typist)
    finally:
        shutil.rmtree(desk, ignore_errors=True)


main()
