#!/usr/bin/env python3
"""What clients print for a host that nothing allows: refused.py GATEWAY

Each runs by the sandbox of `exec`, and behind `serve` by CONNECT, by SOCKS5 and by a `tls` listener. What it prints must have the host
and the command that allows it, or else the gateway's own line has, which stands beside it.
"""

import os, subprocess, sys, tempfile, time
from pathlib import Path

from ways import free_listener

CLIENTS = Path(os.environ["GATEWAY_CLIENTS"])
HOST = "unlisted.test"
JAVA = """import java.net.*;
class Ask { public static void main(String[] a) throws Exception {
  var c = (HttpURLConnection) URI.create(a[0]).toURL().openConnection();
  c.getResponseCode(); System.out.write(c.getErrorStream().readAllBytes()); System.out.flush(); } }
"""
NODE = "fetch(process.argv[1]).then(r => r.text()).then(console.log, e => console.log(e.cause ?? e))"
# For each client: its command, for `$URL` and the folder `$AT`.
COMMANDS = {
    "curl": "curl -sS $URL/",
    "git": "git ls-remote $URL/octo/hello.git",
    "pip": f"{CLIENTS}/venv/bin/pip --no-cache-dir --disable-pip-version-check install --retries 0 --index-url $URL/simple x",
    "npm": "npm view x --registry $URL/ --fetch-retries 0",
    "go": "GOFLAGS=-mod=mod GONOSUMDB=* GONOSUMCHECK=1 GOPROXY=$URL GOPATH=$AT/go go mod download lab.test/hello@v1.0.0",
    "java": "java $JAVA_DOOR Ask.java $URL/",
    "node": f"cd {CLIENTS}/node && node $NODE_DOOR -e '{NODE}' $URL/",
}
DOORS = ("exec", "CONNECT", "SOCKS5", "tls")


class Door:
    """One way to a gateway. Where clients dial by name, the name leads to its listener."""

    def __init__(self, gateway, name, at):
        self.gateway, self.name, self.at = gateway, name, at
        self.port = "443"
        for folder in ("home", "work"):
            (at / folder).mkdir()
        (at / "work/Ask.java").write_text(JAVA)
        (at / "work/go.mod").write_text("module x\n")
        self.variables = {"PATH": f"{CLIENTS}/bin:/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin", "HOME": f"{at}/home", "AT": str(at),
                          "GIT_TERMINAL_PROMPT": "0", "JAVA_DOOR": "", "NODE_DOOR": ""}
        self.server = None

    def __enter__(self):
        if self.name == "exec":
            return self
        proxy, tls = free_listener(), free_listener()
        self.port = tls.rpartition(":")[2] if self.name == "tls" else "443"
        config = self.at / "gateway.toml"
        config.write_text("[audit]\npath = 'log'\n[ca]\ncertificate = 'ca.pem'\n[policy]\nallow = ['listed.test']\n"
                          f"[[listener]]\nkind = 'proxy'\naddress = '{proxy}'\n[[listener]]\nkind = 'tls'\naddress = '{tls}'\nport = {self.port}\n")
        own = {**self.variables, "XDG_RUNTIME_DIR": str(self.at)}
        self.server = subprocess.Popen([self.gateway, "serve", "--config", config], stderr=(self.at / "said").open("w"), env=own)
        deadline = time.monotonic() + 20
        while " on 127" not in (self.at / "said").read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        printed = subprocess.run([self.gateway, "env", "--form", "dotenv", "--config", config], capture_output=True, text=True, check=True).stdout
        told = dict(line.split("=", 1) for line in printed.splitlines())
        store = self.at / "trust.p12"
        subprocess.run(["keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", self.at / "ca.pem", "-keystore", store, "-storetype",
                        "PKCS12", "-storepass", "changeit"], check=True, capture_output=True)
        java = f"-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStorePassword=changeit"
        host, port = proxy.split(":")
        if self.name == "CONNECT":
            java += f" -Dhttps.proxyHost={host} -Dhttps.proxyPort={port}"
            told.pop("ALL_PROXY")
        elif self.name == "SOCKS5":
            java += f" -DsocksProxyHost={host} -DsocksProxyPort={port}"
            told = {name: value for name, value in told.items() if not name.lower().startswith("http")}
            told["npm_config_https_proxy"] = told["ALL_PROXY"]
        else:
            told = {name: value for name, value in told.items() if "proxy" not in name.lower()}
        if self.name != "tls":
            self.variables["NODE_DOOR"] = "--import ./proxy.mjs"
        self.variables |= told | {"JAVA_DOOR": java}
        return self

    def __exit__(self, *_):
        if self.server:
            self.server.terminate()
            self.server.wait(20)

    def run(self, client):
        """What the client prints, and what the gateway says of it."""
        port = "" if self.port == "443" else f":{self.port}"
        variables = self.variables | {"URL": f"https://{HOST}{port}"}
        command = ["sh", "-c", COMMANDS[client]]
        if self.name == "exec":
            passed = [f"--pass-env={name}" for name in ("URL", "AT", "GIT_TERMINAL_PROMPT", "JAVA_DOOR", "NODE_DOOR")]
            command = [self.gateway, "exec", "--see", str(CLIENTS), *passed, "--", *command]
        elif self.name == "tls":
            # A name server of the tests' own would be one more program.
            hosts = self.at / "hosts"
            hosts.write_text(f"127.0.0.1 localhost {HOST}\n")
            command = ["unshare", "-rm", "sh", "-c", f'mount --bind {hosts} /etc/hosts && exec "$@"', "sh", *command]
        elif self.name == "SOCKS5" and client == "go":
            variables["HTTPS_PROXY"] = variables["ALL_PROXY"].replace("socks5h:", "socks5:")
        done = subprocess.run(command, cwd=self.at / "work", env=variables, capture_output=True, text=True, timeout=90)
        # Equal refusals are one line.
        beside = (self.at / "said").read_text() if self.server else done.stderr
        return done.stdout + done.stderr, beside, f"{HOST}{port}"


def row(door, client):
    printed, beside, host = door.run(client)
    command = f"gateway allow {host}"
    if host not in printed:
        return f"FAIL: no host in: {printed[-600:]}"
    if command in printed:
        return "host and command"
    if host.split(":")[0] in beside and "gateway why" in beside:
        return "host; the gateway's line has the command"
    return f"FAIL: no command in: {printed[-600:]} {beside[-300:]}"


def main():
    gateway, only = os.path.abspath(sys.argv[1]), sys.argv[2:]
    print("| client | " + " | ".join(DOORS) + " |\n|---|" + "---|" * len(DOORS))
    cells = {}
    for name in DOORS:
        with tempfile.TemporaryDirectory() as folder, Door(gateway, name, Path(folder)) as door:
            cells |= {(client, name): row(door, client) for client in COMMANDS if not only or client in only}
    for client in (only or COMMANDS):
        print(f"| {client} | " + " | ".join(cells[client, name].replace("\n", " ") for name in DOORS) + " |")
    sys.exit(any(cell.startswith("FAIL") for cell in cells.values()))


main()
