"""The ways through the gateway: what each needs, and what each client is expected to do by it."""

import json, os, shutil, subprocess, sys, time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "rig"))
from addresses import free_port

# An unprivileged user that no system has: what works for it needs no account.
USER = 40961

WAYS = {
    "exec": "`gateway exec`, as an unprivileged user",
    "exec-root": "`gateway exec` started by root, the client as nobody",
    "proxy": "`gateway serve`, HTTP proxy",
    "socks": "`gateway serve`, SOCKS5",
}

# How the audit log calls the way that a client's requests came.
ENTRIES = {"exec": "transparent", "exec-root": "transparent", "proxy": "connect", "socks": "socks"}

# Credentials whose places are not the common ones.
PLACES = {"CARGO_TOKEN": ["header:authorization"]}

# Behind an explicit proxy: what a client needs beyond the variables that `gateway env` prints. `None`: it cannot be done.
WGET = "`ca_certificate` in wgetrc"
UNDICI = "undici's `ProxyAgent` in the program"
JAVA = "a trust store, `-Dhttps.proxyHost`"
# In the sandbox: what is not installed in the system or the home's usual places has to be shown.
SHOWN = dict.fromkeys(
    ("requests", "httpx-h1", "httpx-h2", "aiohttp", "urllib", "websockets", "openai-python", "anthropic-python", "grpcio", "pip",
     "undici-h1", "undici-h2", "openai-node", "anthropic-node", "ws", "cargo"), "`--see` of its folder")
OWN_WAY = {
    "exec": SHOWN, "exec-root": SHOWN,
    "proxy": {
        "wget": WGET, "aiohttp": "`trust_env=True`", "node-fetch": UNDICI, "openai-node": UNDICI, "anthropic-node": UNDICI,
        "undici-h1": "`ProxyAgent` in the program", "undici-h2": "`ProxyAgent` in the program", "ws": "`https-proxy-agent` in the program",
        "java-h1": JAVA, "java-h2": JAVA,
    },
    "socks": {
        "requests": "`requests[socks]`", "httpx-h1": "`httpx[socks]`", "httpx-h2": "`httpx[socks]`", "openai-python": "`httpx[socks]`",
        "anthropic-python": "`httpx[socks]`", "websockets": "`python-socks`, `wss_proxy`", "pip": "PySocks beside pip", "aiohttp": "`aiohttp-socks` in the program",
        "node-fetch": "undici's `Socks5ProxyAgent` in the program", "openai-node": "undici's `Socks5ProxyAgent` in the program",
        "anthropic-node": "undici's `Socks5ProxyAgent` in the program", "undici-h1": "`Socks5ProxyAgent` in the program",
        "undici-h2": "`Socks5ProxyAgent` in the program", "ws": "`socks-proxy-agent` in the program",
        "npm": "`npm_config_https_proxy`", "cargo": "`CARGO_HTTP_PROXY`", "go": "`HTTPS_PROXY=socks5://`",
    },
}
# Clients without SOCKS of their own go by proxychains, which captures libc's `connect`; where that does not hold, by nothing.
CHAINED = {"wget", "urllib", "grpcio", "java-h1", "java-h2"}


class Folder:
    """What a run of the gateway reads and writes, owned by whoever runs it. `told` makes its configuration and policy of a report."""

    def __init__(self, path, report, uid, told=None):
        self.path, self.report, self.uid = path, report, uid
        self.configuration, judged = told or (configuration, policy)
        for name in ("", "secrets", "log", "home", "project"):
            (path / name).mkdir(mode=0o700, exist_ok=True)
        shutil.copy(report["ca"], path / "origins-ca.pem")
        for secret in report["secrets"].values():
            file = path / "secrets" / secret["env"]
            file.touch(mode=0o600)
            file.write_text(secret["value"])
        (path / "policy.cedar").write_text(judged(report))

    def configure(self, more=""):
        (self.path / "gateway.toml").write_text(self.configuration(self.report) + more)
        for folder, _, files in os.walk(self.path):
            for name in [folder, *(os.path.join(folder, file) for file in files)]:
                os.chown(name, self.uid, self.uid)
        return self.path / "gateway.toml"


def configuration(report):
    parts = ['[audit]\npath = "log/audit.jsonl"\n\n[policy]\nfiles = ["policy.cedar"]\n\n[sandbox]\npass_env = ["BASE_*", "CLIENTS_PYTHON"]\n']
    for name, origin in report["origins"].items():
        parts.append(f'[[origin]]\nmatch = "https://{name}:{origin["port"]}"\nroots = ["origins-ca.pem"]\nreplace_system_roots = true\n'
                     f'connect = "{origin["address"]}:{origin["port"]}"\n')
    for secret in report["secrets"].values():
        places = f"places = {json.dumps(PLACES[secret['env']])}\n" if secret["env"] in PLACES else ""
        preset = 'preset = "npm"\n' if secret["env"] == "NPM_TOKEN" else ""
        parts.append(f'[[credential]]\nname = "{secret["env"]}"\n{preset}from = "file:secrets/{secret["env"]}"\n'
                     f'origins = ["https://{secret["host"]}:{secret["port"]}"]\n{places}')
    return "\n".join(parts)


def policy(report):
    parts = []
    for name, origin in report["origins"].items():
        parts.append(f'@id("clients/{name}")\npermit(principal, action in [Gateway::Action::"read", Gateway::Action::"write"], '
                     f'resource == Gateway::Host::"{name}") when {{ context.port == {origin["port"]} }};\n')
    for secret in report["secrets"].values():
        parts.append(f'@id("clients/{secret["env"]}")\npermit(principal, action == Gateway::Action::"lend", '
                     f'resource == Gateway::Credential::"{secret["env"]}") when {{ context.origin == Gateway::Host::"{secret["host"]}" }};\n')
    return "\n".join(parts)


class Way:
    """How one client is run by one way: a command before its own, and its environment."""

    def __init__(self, name, gateway, folder, home):
        self.name, self.gateway, self.folder, self.home = name, str(gateway), folder, home
        self.server = None
        self.records = 0

    def __enter__(self):
        if self.name.startswith("exec"):
            self.config = self.folder.configure()
            return self
        listener = free_listener()
        self.address = listener
        self.config = self.folder.configure(
            f'\n[ca]\ncertificate = "ca.pem"\n[phantoms]\nenv_file = "phantoms.env"\n[[listener]]\nkind = "proxy"\naddress = "{listener}"\nsession = "clients"\n')
        self.server = subprocess.Popen([self.gateway, "serve", "-q", "--config", self.config])
        self.variables = self.printed_by_env()
        return self

    def printed_by_env(self):
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and self.server.poll() is None:
            done = subprocess.run([self.gateway, "env", "--json", "--config", self.config], capture_output=True, text=True)
            if done.returncode == 0:
                return json.loads(done.stdout)
            time.sleep(0.1)
        sys.exit(f"`gateway serve` did not start: {done.stderr if self.server.poll() is None else self.server.returncode}")

    def __exit__(self, *_):
        if self.server:
            self.server.terminate()
            self.server.wait(20)

    def prefix(self, client):
        if self.name == "exec":
            user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"] if os.geteuid() == 0 else []
            return [*user, self.gateway, *self.sandboxed()]
        if self.name == "exec-root":
            return [self.gateway, *self.sandboxed()]
        if self.name == "socks" and client in CHAINED:
            chain = self.folder.path / "proxychains.conf"
            host, _, port = self.address.partition(":")
            chain.write_text(f"strict_chain\nquiet_mode\nproxy_dns\nremote_dns_subnet 224\n[ProxyList]\nsocks5 {host} {port}\n")
            return ["proxychains4", "-f", str(chain)]
        return []

    def sandboxed(self):
        """The clients' own folder is none of the system's: it has to be shown."""
        return ["exec", "-q", "--config", str(self.config), "--see", os.environ["GATEWAY_CLIENTS"], "--"]

    def environment(self, client):
        """Nothing of the tests' own proxies, CA files and credentials; then what the way gives."""
        names = ("LANG", "LC_ALL", "TERM", "TZ", "RUST_LOG")
        base = {name: os.environ[name] for name in names if name in os.environ}
        base["PATH"] = f"{self.home / 'bin'}:/usr/local/bin:/usr/bin:/bin"
        base["CLIENTS_PYTHON"] = str(self.home / "venv/bin/python")
        base["HOME"] = str(self.folder.path / "home")
        if self.name.startswith("exec"):
            return base
        base |= self.variables | self.trusted_by_file()
        connect, socks = base["HTTPS_PROXY"], base.pop("ALL_PROXY")
        if self.name == "proxy":
            if client.startswith("java"):
                host, _, port = self.address.partition(":")
                base["JAVA_TOOL_OPTIONS"] += f" -Dhttps.proxyHost={host} -Dhttps.proxyPort={port}"
            return base
        for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NODE_USE_ENV_PROXY"):
            base.pop(name, None)
        if client in CHAINED:
            # gRPC's own resolver asks name servers itself.
            return base | {"GRPC_DNS_RESOLVER": "native"}
        base["ALL_PROXY"] = socks
        # The schemes and variables that only these know.
        own = {"websockets": {"wss_proxy": socks}, "go": {"HTTPS_PROXY": socks.replace("socks5h:", "socks5:")}, "cargo": {"CARGO_HTTP_PROXY": socks}, "npm": {"npm_config_https_proxy": socks}}
        return base | own.get(client, {})

    def trusted_by_file(self):
        """For the clients that no variable tells of a CA file: wget and Java."""
        ca, wgetrc, store = (self.folder.path / name for name in ("ca.pem", "wgetrc", "trust.p12"))
        wgetrc.write_text(f"ca_certificate = {ca}\n")
        if not store.exists():
            subprocess.run(["keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", ca, "-keystore", store, "-storetype", "PKCS12",
                            "-storepass", "changeit"], check=True, capture_output=True)
        return {"WGETRC": str(wgetrc), "JAVA_TOOL_OPTIONS": f"-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStorePassword=changeit"}

    def recorded(self, client):
        """What the gateway itself says of the client that just ran: `None`, or what is wrong.

        A client that reached the origin by another way, by another protocol or without the credential is no proof.
        """
        # The last record of a connection may follow its client's end.
        time.sleep(0.05)
        # Up to the last whole line: another record may be on its way.
        lines = (self.folder.path / "log" / "audit.jsonl").read_text().rpartition("\n")[0].splitlines()
        new, self.records = [json.loads(line) for line in lines[self.records:]], len(lines)
        exchanges = [record for record in new if record["kind"] == "exchange" and record.get("phase") == "answer"]
        if not exchanges:
            return "the gateway recorded no exchange"
        if others := {record["entry"] for record in exchanges} - {ENTRIES[self.name]}:
            return f"requests came by {', '.join(others)}"
        protocols = {record["protocol"] for record in exchanges}
        if (client.endswith("-h1") and protocols != {"http/1.1"}) or (client.endswith("-h2") and protocols != {"h2"}):
            return f"requests came by {', '.join(protocols)}"
        if not any(record.get("lent") for record in exchanges):
            return "nothing was lent"
        return None

    def audit(self):
        """Whether the audit log holds, and no real secret is in it: `None`, or what is wrong."""
        log = self.folder.path / "log" / "audit.jsonl"
        done = subprocess.run([self.gateway, "log", "verify", log], capture_output=True, text=True)
        if done.returncode not in (0, 3):  # 3: its gateway still runs
            return f"the audit log does not hold: {done.stdout}{done.stderr}"
        content = log.read_text()
        if any(secret["value"] in content for secret in self.folder.report["secrets"].values()):
            return "a real secret is in the audit log"
        return None


def free_listener():
    return "127.0.0.1:%d" % free_port()
