"""Runs a command in an E2B sandbox (`pip install e2b`, 2.57 or later) whose every TCP connection leads to the gateway: E2B's
host opens each by SOCKS5 in TLS, after the sandbox's own rules. Inside are a CA and phantoms; the token stays with the host.

python3 in_e2b.py gateway.example.com:8443 [CERTIFICATE]   # of the gateway, if no public CA signed it"""

import json, subprocess, sys

from e2b import Sandbox


def gateway(*words):
    return subprocess.run(["gateway", *words], check=True, stdout=subprocess.PIPE, text=True).stdout


create = ["session", "create", "--user", "e2b", "--group", "agents", "--lend", "GITHUB_TOKEN", "--ends", "1h", "--json"]
session = json.loads(gateway(*create))
token = session["token"]
tls = {"ca_cert": open(sys.argv[2]).read()} if sys.argv[2:] else True
# SOCKS5 has 255 bytes for each of user and password, so the token is both.
login = {"username": token[: len(token) // 2], "password": token[len(token) // 2 :]}
sandbox = Sandbox.create(network={"egress_proxy": {"address": sys.argv[1], "tls": tls, **login}}, envs=session["variables"])
try:
    sandbox.files.write("ca.pem", session["certificate"])
    command = 'curl -sS --cacert ca.pem https://api.github.com/user -H "Authorization: Bearer $GITHUB_TOKEN"'
    print(sandbox.commands.run(command).stdout)
finally:
    sandbox.kill()
    gateway("session", "end", session["session"])
