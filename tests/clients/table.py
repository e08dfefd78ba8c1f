"""docs/clients.md: what ran, by which way, with what result."""

import subprocess

import ways

WHAT = {
    "curl-h1": "JSON, 8 MB upload with `Expect` and with unknown length, 30 MB download",
    "wget": "JSON, 10 MB download", "git": "clone and push of 100 MB, Basic", "requests": "kept connection, chunked upload",
    "httpx-h1": "JSON, event stream", "aiohttp": "50 requests at once, 20 MB download", "urllib": "JSON",
    "websockets": "text, 3 MB binary, ping, clean close", "openai-python": "chat completion, streamed and not",
    "anthropic-python": "message, streamed and not", "grpcio": "unary, both one-way streams, lock-step conversation, trailers",
    "node-fetch": "JSON, event stream, upload from a stream", "undici-h1": "40 requests, pipelined", "ws": "text, 1 MB binary, clean close",
    "npm": "install of a scoped package (`%2f`), Bearer", "pip": "install from a simple index, Basic",
    "cargo": "fetch from a sparse registry, bare token", "java-h1": "`java.net.http`: JSON, upload, event stream",
    "go": "`net/http`: HTTP/2, upload of unknown length, event stream",
}
SAME = {"curl-h2": "curl-h1", "httpx-h2": "httpx-h1", "undici-h2": "undici-h1", "openai-node": "openai-python",
        "anthropic-node": "anthropic-python", "java-h2": "java-h1"}

HEAD = """# Clients

Real programs run through the gateway. Each has only a phantom; the origin knows only the real
secret and accepts nothing else. A run fails if the client prints anything but `ok`, or if the real
secret is in the client's environment or output. It also fails if the audit log does not verify,
contains a secret, or shows a different entry point or protocol, or no credential injected.
`tests/clients/matrix --gateway target/debug/gateway --write docs/clients.md` writes this page; the
test `tests/clients.rs` runs the same matrix.

"""

NOTES = """
Clients named `-h1` or `-h2` fail unless every request used that version of HTTP; the others choose
for themselves.

- In `exec` nothing is configured by hand. There is no proxy variable; the launcher provides trust
  (system bundle, Java trust store, variables) and phantoms. A client that is installed neither in
  the system nor in one of the home directory's usual places (`~/.cargo/bin`, `~/.nvm`, `~/.pyenv`
  and the like) needs `--see` of its folder, as these tests do.
- For `serve`, `eval "$(gateway env)"` sets proxy, trust, phantoms and git's credential helper;
  **needs** names further settings.
- SOCKS5 carries names, never addresses that the client resolved (`socks5h`).
- *proxychains*: the client has no SOCKS support, and ran under `proxychains4`.
- Node 20 reads no proxy variable. From Node 24 on, `NODE_USE_ENV_PROXY=1`, which `gateway env`
  sets, is enough.
- The agents Claude Code 2.1.197, Codex 0.169.0 and Gemini CLI 0.61.0 run by `gateway exec`, each
  logged in by a variable of the shell, in a fresh home, before stand-ins of their services: once
  with `-p`, and twice in a terminal ([first-hour.md](first-hour.md)). The second run asks for no
  theme, key or trust. Codex reads `OPENAI_API_KEY` only after a login; the profile gives it the
  phantom as `CODEX_API_KEY` too, which `codex exec` reads.
- npm, pip, cargo, go, apt, git (https and SSH remotes), gh and podman run with the flags that the
  README names, and no configuration (`tests/clients/everyday.py`). Without the flags, each ends
  within a second of what it takes to say its version, and is told what would help: by its own
  output, or, for pip, which shows no reason of a refusal, by the summary. docker is told that its
  daemon is outside.
- Not covered: clients with built-in certificates (webpki-roots, pinned ones), which trust no other
  CA.
"""


def versions(home):
    """The version of each client, as it tells it."""
    def first(*command):
        done = subprocess.run(command, capture_output=True, text=True)
        lines = (done.stdout or done.stderr).splitlines()
        return lines[0] if done.returncode == 0 and lines else "unknown"

    python = str(home / "venv/bin/python")
    packages = ("requests", "httpx", "aiohttp", "websockets", "openai", "anthropic", "grpcio", "pip")
    listed = first(python, "-c", f"from importlib.metadata import version as v; print(*(v(p) for p in {packages!r}))").split()
    found = dict(zip(packages, listed))
    node = lambda name: first("node", "-p", f"require('{home}/node/node_modules/{name}/package.json').version")
    number = lambda text, at: text.split()[at]
    java = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr.split('"')[1]
    known = {
        "curl": number(first("curl", "--version"), 1), "wget": number(first("wget", "--version"), 2), "git": number(first("git", "--version"), 2),
        "requests": found["requests"], "httpx": found["httpx"], "aiohttp": found["aiohttp"], "websockets": found["websockets"],
        "urllib": first(python, "--version"), "openai-python": found["openai"], "anthropic-python": found["anthropic"], "grpcio": found["grpcio"],
        "node-fetch": "Node " + first("node", "--version").lstrip("v"), "undici": node("undici"), "openai-node": node("openai"),
        "anthropic-node": node("@anthropic-ai/sdk"), "ws": node("ws"), "npm": first("npm", "--version"), "pip": found["pip"],
        "cargo": number(first(str(home / "bin/cargo"), "--version"), 1), "java": java, "go": number(first("go", "version"), 2).removeprefix("go"),
    }
    return lambda client: known.get(client) or known[client.removesuffix("-h1").removesuffix("-h2")]


def written(results, version):
    ran = [way for way in ways.WAYS if any(result["way"] == way for result in results)]
    clients = list(dict.fromkeys(result["client"] for result in results if result["client"] not in ("audit", "environment")))
    cells = {(result["client"], result["way"]): cell(result) for result in results}
    lines = ["| Client | Version | What it does | " + " | ".join(ways.WAYS[way] for way in ran) + " |", "|---|---|---|" + "---|" * len(ran)]
    for client in clients:
        what = WHAT.get(client) or "the same by HTTP/2" * (client.endswith("-h2")) or WHAT[SAME[client]]
        row = [client, version(client), what, *(cells.get((client, way), "not run") for way in ran)]
        lines.append("| " + " | ".join(row) + " |")
    return HEAD + "\n".join(lines) + "\n" + NOTES


def cell(result):
    client, way = result["client"], result["way"]
    if not result["ok"]:
        return "**fails**: " + result["line"].removeprefix(f"FAIL {client} ").replace("|", "/")[:120]
    if way == "socks" and client in ways.CHAINED:
        return "ok by *proxychains*"
    own = ways.OWN_WAY.get(way, {}).get(client)
    return f"ok; needs {own}" if own else "ok"
