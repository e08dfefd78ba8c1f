"""The table of docs/launcher.md: what ran, by which way, with what result."""

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
MARKS = ["<!-- clients -->\n", "<!-- end -->"]


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


def written(page, results, version):
    """The page with the table of these results between its marks."""
    ran = [way for way in ways.WAYS if any(result["way"] == way for result in results)]
    clients = list(dict.fromkeys(result["client"] for result in results if result["client"] not in ("audit", "environment")))
    cells = {(result["client"], result["way"]): cell(result) for result in results}
    lines = ["| Client | Version | What it does | " + " | ".join(ways.WAYS[way] for way in ran) + " |", "|---|---|---|" + "---|" * len(ran)]
    for client in clients:
        what = WHAT.get(client) or "the same by HTTP/2" * (client.endswith("-h2")) or WHAT[SAME[client]]
        row = [client, version(client), what, *(cells.get((client, way), "not run") for way in ran)]
        lines.append("| " + " | ".join(row) + " |")
    before, rest = page.split(MARKS[0])
    return before + MARKS[0] + "\n".join(lines) + "\n" + MARKS[1] + rest.split(MARKS[1], 1)[1]


def cell(result):
    client, way = result["client"], result["way"]
    if not result["ok"]:
        return "**fails**: " + result["line"].removeprefix(f"FAIL {client} ").replace("|", "/")[:120]
    if way == "socks" and client in ways.CHAINED:
        return "ok by *proxychains*"
    own = ways.OWN_WAY.get(way, {}).get(client)
    return f"ok; needs {own}" if own else "ok"
