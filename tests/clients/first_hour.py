#!/usr/bin/env python3
"""Plays the first hour of a user with coding agents: first_hour.py GATEWAY AGENTS PAGE [--write]

The real agents, once with `-p` and twice in a terminal, each logged in by a variable, in a fresh home, before stand-ins of their
services that take only the real credentials. Then a host that is refused, and the command that allows it. What was typed and shown
becomes PAGE (docs/first-hour.md), without the agents' own screens; without --write, PAGE must be the same.
"""

import difflib, os, pwd, re, sys, threading, traceback
from pathlib import Path

from stand_ins import AGENT_HOSTS, SAYS, SECRETS, Desk, Services, linked
from typist import Typist

DOWN, UP, ENTER = "\x1b[B", "\x1b[A", "\r"

# For each agent: the variable that logs it in, how it answers once, what a person types in the first run in a terminal when the screen
# shows a text, the text of a screen that is ready, and how it is left.
AGENTS = {
    "claude": {
        "title": "Claude Code", "variable": "ANTHROPIC_API_KEY", "once": ["claude", "-p", "hello"], "talk": ["claude"],
        "first": [("Dark mode", ENTER), ("Do you want to use this API key", UP + ENTER), ("Security notes", ENTER), ("trust this folder", ENTER)],
        "ready": "? for shortcuts", "leave": "/exit",
    },
    "codex": {
        "title": "Codex", "variable": "OPENAI_API_KEY", "once": ["codex", "exec", "--skip-git-repo-check", "hello"], "talk": ["codex", "--no-daemon"],
        "first": [("Choose how you want to use", DOWN), ("> 2. Sign in", DOWN), ("> 3. Sign in", ENTER), ("Use an OpenAI API key", ENTER),
                  ("Detected OPENAI_API_KEY environment variable", ENTER)],
        "ready": "Ask Codex to do anything", "leave": "/quit",
        "note": "npm brings no program\nfor Codex's background server: without `--no-daemon`, a second start says so and ends.",
    },
    "gemini": {
        "title": "Gemini CLI", "variable": "GEMINI_API_KEY", "once": ["gemini", "--skip-trust", "-p", "hello"], "talk": ["gemini", "-m", "gemini-2.5-flash"],
        "first": [("Do you trust the files in this folder", ENTER), ("Existing API key detected", ENTER), ("Enter Gemini API Key", ENTER)],
        "ready": "Type your message", "leave": "/quit",
        "note": "The model is named\nbecause the stand-in does not choose one.",
    },
}
# Further hosts that the user's commands ask for.
OTHERS = ["pypi.org", "example.com"]


class Hour:
    """What was typed and shown, in the words of the page."""

    def __init__(self, desk):
        self.desk, self.page = desk, []

    def say(self, text):
        self.page.append(text)

    def typed(self, command, shown):
        self.fence("console", f"$ {command}\n{shown}".rstrip())

    def fence(self, kind, text):
        self.page.append(f"```{kind}\n{self.plain(text)}\n```")

    def plain(self, text):
        """Without what differs from run to run: places, ids, phantoms."""
        if any(secret in text for secret in SECRETS.values()):
            raise AssertionError("a secret was shown")
        text = text.replace(str(self.desk.home), "/home/ann").replace(self.desk.agents, "/opt/agents").replace(str(self.desk.folder), "/opt")
        text = re.sub(r"\bgateway (why|allow) [0-9a-f]{20}\b", r"gateway \1 ID", text)
        text = re.sub(r'"request_id":"[0-9a-f]{20}"', '"request_id":"ID"', text)
        return re.sub(r"[0-9a-f]{20}\b", "ID", text)

    def command(self, agent, flags=()):
        return [f"{self.desk.home}/.local/bin/gateway", "exec", *flags, "--config", str(self.desk.config), "--", *agent]

    def variables(self, names=()):
        path = f"{self.desk.home}/.local/bin:{self.desk.agents}/node_modules/.bin:/usr/bin:/bin"
        return {"PATH": path, "COLUMNS": "100", **{name: SECRETS[name] for name in names}}

    def run(self, command, names=()):
        return self.desk.run(command, self.variables(names))

    def sit_down(self, command, names=()):
        return Typist(self.desk.command(command, self.variables(names)))


def install(hour):
    hour.say("## Installed\n")
    program = f"{hour.desk.home}/.local/bin/gateway"
    shown, code = hour.run(["install", "-D", "-m", "755", f"{hour.desk.folder}/gateway", program])
    assert code == 0, shown
    hour.typed("install -D -m 755 gateway ~/.local/bin/gateway", shown)
    shown, code = hour.run([program, "exec", "--", "id", "-un"])
    assert code in (0, 1) and "network  nothing" in shown, shown
    shown, code = hour.run([program, "exec", "--", "sh", "-c", "touch ~/x /tmp/x x && ls -A ~ | wc -l"])
    assert code == 0, shown
    hour.typed("gateway exec -- sh -c 'touch ~/x /tmp/x x && ls -A ~ | wc -l'", shown)


def agent(hour, name):
    """One agent's part of the page. In a home of its own, so that all of them can run at the same time."""
    about = AGENTS[name]
    variable = about["variable"]
    hour.say(f"## {about['title']}\n")
    shown, code = hour.run(hour.command(about["once"]), [variable])
    assert SAYS in shown and code == 0, shown
    gateway = [line for line in shown.splitlines() if re.match(r"gateway  |  {10}", line) and "refused" not in line]
    hour.typed(f"export {variable}=…\n$ gateway exec -- " + " ".join(about["once"]), "\n".join([*gateway, "…" * (name == "codex"), SAYS]).replace("\n\n", "\n"))
    hour.say(f"In a terminal, in a fresh home: `gateway exec -- {' '.join(about['talk'])}`. {about.get('note', '')}".rstrip())
    typist = hour.sit_down(hour.command(about["talk"]), [variable])
    following = [text for text, _ in about["first"][1:]] + [about["ready"]]
    for at, (text, keys) in enumerate(about["first"]):
        if typist.reaches(text, following[at:]):
            typist.answer_screen(text, keys, following[at])
    talk(hour, typist, about)
    typist = hour.sit_down(hour.command(about["talk"]), [variable])
    asked = typist.see(about["ready"])
    for text, _ in about["first"]:
        assert text not in asked, f"{name} asked again: {asked}"
    talk(hour, typist, about)


def talk(hour, typist, about):
    typist.see(about["ready"])
    typist.type("hello")
    typist.see("hello")
    typist.type(ENTER)
    typist.see(SAYS)
    typist.see(about["ready"])
    typist.type(about["leave"] + ENTER)
    assert typist.end() is not None
    assert not any(secret.encode() in typist.raw for secret in SECRETS.values()), "a secret was shown"


def refused(hour):
    """A host that nothing allows: told inside and outside, and allowed while the command runs."""
    hour.say("## A host that is refused\n")
    inside = hour.sit_down(hour.command(["sh"]))
    inside.see("$")
    inside.type("curl -sS -w '\\n' https://pypi.org/simple/ | head -c 330\r")
    shown = inside.see("Do not retry before.")
    told = re.search(r"`(gateway allow [a-z.]+)`", re.sub(r"\n", "", shown))
    assert told and told[1] == "gateway allow pypi.org", shown
    hour.say("Inside a running `gateway exec -- sh`:\n")
    hour.typed("curl -sS https://pypi.org/simple/", re.search(r"\{\"error\".*?before\.", re.sub(r"\n", "", shown))[0] + "…")
    hour.say("In another terminal, that command:\n")
    outside = hour.sit_down(told[1].split())
    outside.see("[y/N]")
    outside.type("y\r")
    code = outside.end()
    assert code == 0, outside.shown()
    hour.typed(told[1], re.sub(r"(?<=in )\S*\n?\S*?(?=\?|$)", "FILE", re.sub(r"kept in\n?.*", "kept in FILE", outside.shown(), flags=re.S)))
    inside.type("clear; curl -sS https://pypi.org/simple/; echo\r")
    inside.see(SAYS)
    hour.say("And inside again, in the session that went on:\n")
    hour.typed("curl -sS https://pypi.org/simple/", SAYS)
    inside.type("clear; curl -sS -o /dev/null https://example.com/; exit\r")
    inside.end()
    told = re.sub(r"\x1b\[[0-9;?>=]*[A-Za-z]", "", inside.raw.decode(errors="replace"))
    told = re.sub(r"\r?\n {18}", " ", told)
    lines = re.findall(r"gateway  refused  .*?gateway why [0-9a-f]{20}", told)
    hour.say("At the end of the session, what was refused, with the flag that allows it:\n")
    assert any("example.com" in line and "`gateway allow example.com` permits it" in line for line in lines), told
    hour.fence("console", "\n".join(lines))
    shown, code = hour.run(["gateway", "why", "--last"])
    assert code == 0 and "`gateway allow example.com` in its folder keeps a rule" in shown, shown


class World(Services):
    def do_GET(self):
        if self.headers["host"] not in OTHERS:
            return super().do_GET()
        self.send_response(200)
        self.send_header("content-length", str(len(SAYS)))
        self.end_headers()
        self.wfile.write(SAYS.encode())


HEAD = """# The first hour

What a new user types and sees: played by `tests/clients/first_hour.py` with the real agents, in a
terminal, as an ordinary user with an empty home. The services are stand-ins on this machine, which
take only the real keys; the one thing that is not shown is the `--config` that says where they are.
`GATEWAY_WRITE=1 cargo test --test first_hour` writes this page; without it, the test compares it.
The agents' own screens are left out; their questions come in the first run in a terminal alone.
"""


def played(gateway, agents, part):
    with Desk(gateway, AGENT_HOSTS + OTHERS, World, pwd.getpwnam("games").pw_uid) as desk:
        desk.agents = agents
        desk.config.write_text(f'[sandbox]\nsee = ["{agents}"]\n\n' + desk.config.read_text())
        hour = Hour(desk)
        part(hour)
        return hour.page


def main():
    gateway, agents, page = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), Path(sys.argv[3])
    parts = {"installed": install, **{name: lambda hour, name=name: (installed(hour), agent(hour, name)) for name in AGENTS},
             "refused": lambda hour: (installed(hour), refused(hour))}
    only = [name.removeprefix("--only=") for name in sys.argv if name.startswith("--only=")]
    parts = {name: part for name, part in parts.items() if not only or name in only}
    pages, failed = {}, []

    def play(name, part):
        try:
            pages[name] = played(gateway, agents, part)
            print(f"ok   {name}", flush=True)
        except BaseException:
            failed.append(name)
            print(f"FAIL {name}\n{traceback.format_exc()}", flush=True)

    threads = [threading.Thread(target=play, args=one) for one in parts.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        sys.exit(1)
    text = HEAD + "\n" + "\n\n".join(line for name in parts for line in pages[name])
    text = re.sub(r"\n{3,}", "\n\n", text) + "\n"
    if "--write" in sys.argv:
        page.write_text(text)
    elif (written := page.read_text()) != text:
        changes = difflib.unified_diff(written.splitlines(), text.splitlines(), "page", "played", lineterm="")
        sys.exit("\n".join(["the page is not true any more:", *changes]))


def installed(hour):
    program = hour.desk.home / ".local/bin/gateway"
    program.parent.mkdir(parents=True)
    linked(hour.desk.gateway, program)
    hour.desk.own_folders(program.parent)


main()
