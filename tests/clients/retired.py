#!/usr/bin/env python3
"""An origin that retires connections, 60 ms away: retired.py GATEWAY

nginx ends an HTTP/2 connection after twenty requests, or an idle one of HTTP/1.1 after a second. No request of a client fails for that,
and no POST arrives twice.
"""

import asyncio, collections, os, subprocess, sys, tempfile, time
from pathlib import Path

import httpx

from ways import free_listener

DELAY = 0.03
NGINX = """daemon off; pid {at}/nginx.pid; error_log {at}/errors; events {{}}
http {{
  log_format asked '$server_protocol $request_method $http_x_number'; access_log {at}/asked asked;
  ssl_certificate {at}/leaf.pem; ssl_certificate_key {at}/leaf.key;
  client_body_temp_path {at}/body; proxy_temp_path {at}/proxy; fastcgi_temp_path {at}/fastcgi; uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;
  server {{ listen {new} ssl http2; keepalive_requests 20; location / {{ return 200 "new"; }} }}
  server {{ listen {old} ssl; keepalive_timeout 1s; location / {{ return 200 "old"; }} }}
}}
"""
CONFIG = """[audit]
path = "log"
[ca]
certificate = "ca.pem"
[policy]
allow = ["new.test", "old.test"]
[[listener]]
kind = "proxy"
address = "{proxy}"
[[origin]]
match = "https://new.test"
connect = "{new}"
roots = ["{at}/root.pem"]
http = "2"
[[origin]]
match = "https://old.test"
connect = "{old}"
roots = ["{at}/root.pem"]
"""


def certificates(at):
    (at / "names").write_text("subjectAltName = DNS:new.test, DNS:old.test\n")
    openssl = lambda words: subprocess.run(["openssl", *words.split()], cwd=at, check=True, capture_output=True)
    key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    openssl(f"req -x509 {key} -keyout root.key -out root.pem -subj /CN=root -days 2")
    openssl(f"req {key} -keyout leaf.key -out leaf.csr -subj /CN=leaf")
    openssl("x509 -req -in leaf.csr -CA root.pem -CAkey root.key -extfile names -out leaf.pem -days 2")


async def delayed(reader, writer):
    """Copies what is read, each piece as late as the way is long."""
    pieces = asyncio.Queue()

    async def write():
        while True:
            when, piece = await pieces.get()
            await asyncio.sleep(when - time.monotonic())
            if not piece:
                return writer.close()
            writer.write(piece)

    writing = asyncio.create_task(write())
    try:
        while piece := await reader.read(65536):
            pieces.put_nowait((time.monotonic() + DELAY, piece))
    except OSError:
        pass
    pieces.put_nowait((time.monotonic() + DELAY, b""))
    await writing


async def relay(to):
    """Returns the address of a relay to an address, which is far away."""
    host, port = to.split(":")

    async def lead(reader, writer):
        back, forth = await asyncio.open_connection(host, port)
        await asyncio.gather(delayed(reader, forth), delayed(back, writer), return_exceptions=True)

    server = await asyncio.start_server(lead, "127.0.0.1", 0)
    return server, "127.0.0.1:%d" % server.sockets[0].getsockname()[1]


async def listening(address):
    until = time.monotonic() + 30
    while True:
        try:
            (await asyncio.open_connection(*address.split(":")))[1].close()
            return
        except OSError:
            assert time.monotonic() < until, address
            await asyncio.sleep(0.05)


async def ask(client, method, url, number):
    """Sends one request; returns what came instead of the answer."""
    try:
        answer = await client.request(method, url, headers={"x-number": str(number)}, content=b"x" if method == "POST" else None)
        return None if answer.status_code == 200 else answer.text[:200]
    except httpx.HTTPError as error:
        return repr(error)


async def at_once(client, method, count):
    slots = asyncio.Semaphore(16)

    async def one(number):
        async with slots:
            return await ask(client, method, "https://new.test/", number)

    return [wrong for wrong in await asyncio.gather(*map(one, range(count))) if wrong]


async def each_second(at, proxy, seconds):
    async def one(number):
        async with httpx.AsyncClient(proxy=proxy, verify=str(at / "ca.pem"), timeout=60) as client:
            await asyncio.sleep(number / 8)
            found = []
            for second in range(seconds):
                found.append(await ask(client, "GET", "https://old.test/", f"{number}-{second}"))
                await asyncio.sleep(1)
            return found

    return [wrong for found in await asyncio.gather(*map(one, range(8))) for wrong in found if wrong]


async def main(gateway, at):
    certificates(at)
    new, old, proxy = (free_listener() for _ in range(3))
    (at / "nginx.conf").write_text(NGINX.format(at=at, new=new, old=old))
    servers, failed = [subprocess.Popen(["nginx", "-c", at / "nginx.conf", "-e", "stderr"])], []
    try:
        await asyncio.gather(listening(new), listening(old))
        (relay_new, far_new), (relay_old, far_old) = [await relay(to) for to in (new, old)]
        (at / "gateway.toml").write_text(CONFIG.format(at=at, proxy=proxy, new=far_new, old=far_old))
        own = {"PATH": os.environ["PATH"], "HOME": str(at), "XDG_RUNTIME_DIR": str(at)}
        with (at / "said").open("w") as said:
            servers.append(subprocess.Popen([gateway, "serve", "--config", at / "gateway.toml"], env=own, cwd=at, stderr=said))
        until = time.monotonic() + 30
        while " on 127" not in (at / "said").read_text():
            assert time.monotonic() < until, (at / "said").read_text()
            await asyncio.sleep(0.05)

        def judge(name, count, wrong):
            print(f"{'FAIL' if wrong else 'ok  '} {name}: {len(wrong)} of {count} failed {wrong[:3] or ''}", flush=True)
            failed.extend(wrong)

        tunnel = httpx.Limits(max_connections=1)
        async with httpx.AsyncClient(http2=True, proxy=f"http://{proxy}", verify=str(at / "ca.pem"), limits=tunnel, timeout=60) as client:
            judge("GET by HTTP/2, sixteen at once", 960, await at_once(client, "GET", 960))
            judge("POST by HTTP/2, sixteen at once", 240, await at_once(client, "POST", 240))
        judge("GET by HTTP/1.1, one a second of eight clients", 192, await each_second(at, f"http://{proxy}", 24))
        asked = collections.Counter((at / "asked").read_text().splitlines())
        posts = [line for line in asked if " POST " in line]
        twice = [line for line in posts if asked[line] > 1]
        judge("POST arrived twice", len(posts), twice if len(posts) == 240 else [f"{len(posts)} arrived"])
        assert "HTTP/2.0 GET 0" in asked and "HTTP/1.1 GET 0-0" in asked, "another protocol was spoken"
        relay_new.close(), relay_old.close()
    finally:
        for server in servers:
            server.terminate()
            server.wait()
    return failed


with tempfile.TemporaryDirectory() as folder:
    sys.exit(1 if asyncio.run(main(Path(sys.argv[1]).resolve(), Path(folder).resolve())) else 0)
