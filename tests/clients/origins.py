#!/usr/bin/env python3
"""The origins of the clients' matrix: real servers on loopback that know the real secrets and refuse all else.

Run it with the Python of `setup`: $GATEWAY_CLIENTS/venv/bin/python origins.py --dir DIRECTORY
Prints one JSON object when all are up (addresses, CA, secrets) and serves until its standard input ends or SIGTERM.

  api.test       nginx (HTTP/1.1 and HTTP/2) before aiohttp: JSON, uploads, SSE as OpenAI and Anthropic speak it, WebSocket
  git.test       nginx and git-http-backend, Basic
  packages.test  nginx before aiohttp: package indexes for pip (Basic), npm (Bearer) and cargo (bare token)
  grpc.test      grpcio, TLS, HTTP/2 only
"""

import argparse, asyncio, base64, hashlib, hmac, io, json, os, secrets, shutil, signal, socket, string, subprocess, sys, tarfile, zipfile
from pathlib import Path

from aiohttp import WSMsgType, web

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "rig"))
from addresses import free_port

HERE = Path(__file__).resolve().parent

# name: (environment variable of the client, prefix, length of the rest, host)
SECRETS = {
    "api": ("API_TOKEN", "sk-live-", 40, "api.test"),
    "openai": ("OPENAI_API_KEY", "sk-proj-", 48, "api.test"),
    "anthropic": ("ANTHROPIC_API_KEY", "sk-ant-api03-", 93, "api.test"),
    "git": ("GIT_TOKEN", "ghp_", 36, "git.test"),
    "npm": ("NPM_TOKEN", "npm_", 36, "packages.test"),
    "pip": ("PIP_TOKEN", "pypi-", 60, "packages.test"),
    "cargo": ("CARGO_TOKEN", "cio", 32, "packages.test"),
    "grpc": ("GRPC_TOKEN", "grpc_", 32, "grpc.test"),
}


def fresh(prefix, length):
    return prefix + "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(length))


def same(given, expected):
    return given is not None and hmac.compare_digest(given.encode(), expected.encode())


def denied(challenge=None):
    return web.json_response({"error": "unauthorized"}, status=401, headers={"WWW-Authenticate": challenge} if challenge else {})


def bearer(request):
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    return value if scheme.lower() == "bearer" else None


def basic_password(request):
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    try:
        return base64.b64decode(value).decode().partition(":")[2] if scheme.lower() == "basic" else None
    except ValueError:
        return None


class Api:
    """JSON, uploads, downloads, SSE and WebSocket."""

    def __init__(self, keys):
        self.keys = keys

    def routes(self):
        return [
            web.get("/v1/whoami", self.whoami),
            web.post("/v1/upload", self.upload),
            web.get("/v1/download/{size}", self.download),
            web.get("/v1/events", self.events),
            web.get("/v1/ws", self.websocket),
            web.post("/v1/chat/completions", self.chat),
            web.post("/v1/messages", self.messages),
        ]

    def allowed(self, request):
        return same(bearer(request), self.keys["api"])

    async def whoami(self, request):
        if not self.allowed(request):
            return denied("Bearer")
        return web.json_response({"user": "alice", "version": request.headers.get("X-Proto")})

    async def upload(self, request):
        if not self.allowed(request):
            return denied("Bearer")
        digest, size = hashlib.sha256(), 0
        async for part in request.content.iter_chunked(65536):
            digest.update(part)
            size += len(part)
        return web.json_response({"size": size, "sha256": digest.hexdigest()})

    async def download(self, request):
        if not self.allowed(request):
            return denied("Bearer")
        left = min(int(request.match_info["size"]), 1 << 30)
        response = web.StreamResponse(headers={"Content-Length": str(left)})
        await response.prepare(request)
        block = bytes(range(256)) * 256
        while left:
            await response.write(block[: min(left, len(block))])
            left -= min(left, len(block))
        return response

    async def stream(self, request, events):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(request)
        for event in events:
            await response.write(event.encode())
            # Slow on purpose: a client can tell a stream from an answer that was held back and sent at once.
            await asyncio.sleep(0.03)
        return response

    async def events(self, request):
        if not self.allowed(request):
            return denied("Bearer")
        return await self.stream(request, [f"data: {n}\n\n" for n in range(10)])

    async def websocket(self, request):
        if not self.allowed(request):
            return denied("Bearer")
        socket = web.WebSocketResponse(max_msg_size=16 << 20)
        await socket.prepare(request)
        async for message in socket:
            if message.type == WSMsgType.TEXT:
                await socket.send_str("echo " + message.data)
            elif message.type == WSMsgType.BINARY:
                await socket.send_bytes(message.data)
        return socket

    async def chat(self, request):
        if not same(bearer(request), self.keys["openai"]):
            return web.json_response({"error": {"message": "Incorrect API key", "type": "invalid_request_error", "code": "invalid_api_key"}}, status=401)
        asked = await request.json()
        words = asked["messages"][-1]["content"].split(" ")
        base = {"id": "chatcmpl-1", "created": 1, "model": asked["model"]}
        if not asked.get("stream"):
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": " ".join(words)}}
            usage = {"prompt_tokens": 1, "completion_tokens": len(words), "total_tokens": 1 + len(words)}
            return web.json_response({**base, "object": "chat.completion", "choices": [choice], "usage": usage})
        chunk = lambda delta, end=None: "data: " + json.dumps({**base, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}) + "\n\n"
        parts = [chunk({"role": "assistant", "content": ""})]
        parts += [chunk({"content": word if n == 0 else " " + word}) for n, word in enumerate(words)]
        return await self.stream(request, parts + [chunk({}, "stop"), "data: [DONE]\n\n"])

    async def messages(self, request):
        # The SDK sends x-api-key, or Bearer where it is given an auth token.
        if not same(request.headers.get("x-api-key") or bearer(request), self.keys["anthropic"]):
            return web.json_response({"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}, status=401)
        asked = await request.json()
        words = asked["messages"][-1]["content"].split(" ")
        usage = {"input_tokens": 1, "output_tokens": len(words)}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": asked["model"], "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        if not asked.get("stream"):
            content = [{"type": "text", "text": " ".join(words)}]
            return web.json_response({**message, "content": content, "stop_reason": "end_turn"})
        event = lambda kind, **fields: f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"
        parts = [event("message_start", message=message), event("content_block_start", index=0, content_block={"type": "text", "text": ""})]
        parts += [event("content_block_delta", index=0, delta={"type": "text_delta", "text": word if n == 0 else " " + word}) for n, word in enumerate(words)]
        parts += [event("content_block_stop", index=0), event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage=usage), event("message_stop")]
        return await self.stream(request, parts)


def wheel():
    data = io.BytesIO()
    files = {
        "labhello.py": "WORD = 'hello from the index'\n",
        "labhello-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: labhello\nVersion: 1.0\n",
        "labhello-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr("labhello-1.0.dist-info/RECORD", "".join(f"{name},,\n" for name in [*files, "labhello-1.0.dist-info/RECORD"]))
    return data.getvalue()


def tarball(files):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return data.getvalue()


class Packages:
    """A simple index, an npm registry and a sparse cargo registry, each with one package."""

    def __init__(self, keys):
        self.keys = keys
        self.wheel = wheel()
        manifest = {"name": "@lab/hello", "version": "1.0.0", "main": "index.js"}
        self.npm = tarball({"package/package.json": json.dumps(manifest), "package/index.js": "module.exports = 'hello from npm';\n"})
        toml = '[package]\nname = "labhello"\nversion = "1.0.0"\nedition = "2021"\n'
        self.crate = tarball({"labhello-1.0.0/Cargo.toml": toml, "labhello-1.0.0/src/lib.rs": "pub const WORD: &str = \"hello\";\n"})

    def routes(self):
        return [
            web.get("/simple/labhello/", self.simple),
            web.get("/files/labhello-1.0-py3-none-any.whl", self.simple_file),
            web.get("/npm/{name}", self.packument),
            web.get("/npm/-/files/hello-1.0.0.tgz", self.npm_file),
            web.get("/index/config.json", self.cargo_config),
            web.get("/index/la/bh/labhello", self.cargo_index),
            web.get("/crates/labhello/1.0.0/download", self.cargo_file),
        ]

    def base(self, request):
        return "https://" + request.headers["Host"]

    async def simple(self, request):
        if not same(basic_password(request), self.keys["pip"]):
            return denied('Basic realm="simple"')
        digest = hashlib.sha256(self.wheel).hexdigest()
        name = "labhello-1.0-py3-none-any.whl"
        return web.Response(content_type="text/html", text=f'<!DOCTYPE html><a href="/files/{name}#sha256={digest}">{name}</a>')

    async def simple_file(self, request):
        if not same(basic_password(request), self.keys["pip"]):
            return denied('Basic realm="simple"')
        return web.Response(body=self.wheel)

    async def packument(self, request):
        # npm writes the scope's slash as %2f, and a proxy must leave it so.
        if not same(bearer(request), self.keys["npm"]):
            return denied("Bearer")
        if "%2f" not in request.raw_path.lower() or request.match_info["name"] != "@lab/hello":
            return web.json_response({"error": "Not found"}, status=404)
        dist = {
            "tarball": self.base(request) + "/npm/-/files/hello-1.0.0.tgz",
            "shasum": hashlib.sha1(self.npm).hexdigest(),
            "integrity": "sha512-" + base64.b64encode(hashlib.sha512(self.npm).digest()).decode(),
        }
        version = {"name": "@lab/hello", "version": "1.0.0", "main": "index.js", "dist": dist}
        return web.json_response({"name": "@lab/hello", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}})

    async def npm_file(self, request):
        return web.Response(body=self.npm) if same(bearer(request), self.keys["npm"]) else denied("Bearer")

    def cargo_allowed(self, request):
        # A registry token travels as it is, without a scheme.
        return same(request.headers.get("Authorization"), self.keys["cargo"])

    async def cargo_config(self, request):
        if not self.cargo_allowed(request):
            return denied("Cargo")
        return web.json_response({"dl": self.base(request) + "/crates", "api": self.base(request), "auth-required": True})

    async def cargo_index(self, request):
        if not self.cargo_allowed(request):
            return denied("Cargo")
        entry = {"name": "labhello", "vers": "1.0.0", "deps": [], "cksum": hashlib.sha256(self.crate).hexdigest(), "features": {}, "yanked": False}
        return web.Response(text=json.dumps(entry) + "\n")

    async def cargo_file(self, request):
        return web.Response(body=self.crate) if self.cargo_allowed(request) else denied("Cargo")


def grpc_server(key, certs, port):
    import grpc
    from concurrent.futures import ThreadPoolExecutor

    class Echo(grpc.GenericRpcHandler):
        """Unary, client, server and both streams, on bytes; a trailer tells how many messages came."""

        def service(self, details):
            given = dict(details.invocation_metadata).get("authorization", "")
            if not same(given, "Bearer " + key):
                refuse = lambda request, context: context.abort(grpc.StatusCode.UNAUTHENTICATED, "unauthenticated")
                makers = {"Unary": grpc.unary_unary_rpc_method_handler, "Collect": grpc.stream_unary_rpc_method_handler}
                streams = lambda request, context: (context.abort(grpc.StatusCode.UNAUTHENTICATED, "unauthenticated"), iter(()))[1]
                name = details.method.rsplit("/", 1)[1]
                if name in makers:
                    return makers[name](refuse)
                maker = grpc.unary_stream_rpc_method_handler if name == "Count" else grpc.stream_stream_rpc_method_handler
                return maker(streams)
            return {
                "/lab.Echo/Unary": grpc.unary_unary_rpc_method_handler(self.unary),
                "/lab.Echo/Collect": grpc.stream_unary_rpc_method_handler(self.collect),
                "/lab.Echo/Count": grpc.unary_stream_rpc_method_handler(self.count),
                "/lab.Echo/Chat": grpc.stream_stream_rpc_method_handler(self.chat),
            }.get(details.method)

        def unary(self, request, context):
            context.set_trailing_metadata((("lab-count", "1"),))
            return b"echo " + request

        def collect(self, requests, context):
            parts = list(requests)
            context.set_trailing_metadata((("lab-count", str(len(parts))),))
            return b",".join(parts)

        def count(self, request, context):
            for n in range(int(request)):
                yield str(n).encode()

        def chat(self, requests, context):
            for request in requests:
                yield b"echo " + request

    server = grpc.server(ThreadPoolExecutor(8), handlers=[Echo()])
    pair = ((certs / "leaf.key").read_bytes(), (certs / "leaf.pem").read_bytes())
    server.add_secure_port(f"127.0.0.1:{port}", grpc.ssl_server_credentials([pair]))
    server.start()
    return server


NGINX = """
daemon off;
pid {dir}/nginx.pid;
error_log {dir}/nginx-error.log warn;
worker_processes 1;
{user}
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {dir}/tmp-body; proxy_temp_path {dir}/tmp-proxy; fastcgi_temp_path {dir}/tmp-fcgi;
    uwsgi_temp_path {dir}/tmp-uwsgi; scgi_temp_path {dir}/tmp-scgi;
    ssl_certificate {certs}/leaf.pem;
    ssl_certificate_key {certs}/leaf.key;
    ssl_protocols TLSv1.2 TLSv1.3;
    client_max_body_size 0;
    map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
    server {{
        listen 127.0.0.1:{api} ssl http2;
        location / {{
            proxy_pass http://127.0.0.1:{api_app};
            proxy_http_version 1.1; proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 300s;
            proxy_set_header Host $http_host; proxy_set_header X-Proto $server_protocol;
            proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade;
        }}
    }}
    server {{
        listen 127.0.0.1:{packages} ssl http2;
        location / {{
            proxy_pass http://127.0.0.1:{packages_app}$request_uri;
            proxy_http_version 1.1; proxy_set_header Host $http_host; proxy_set_header Connection '';
        }}
    }}
    server {{
        listen 127.0.0.1:{git} ssl http2;
        auth_basic "git"; auth_basic_user_file {dir}/htpasswd;
        location / {{
            gzip off; fastcgi_request_buffering off; fastcgi_buffering off; fastcgi_read_timeout 300s;
            fastcgi_param SCRIPT_FILENAME {backend}; fastcgi_param PATH_INFO $uri; fastcgi_param GIT_PROJECT_ROOT {dir}/git;
            fastcgi_param GIT_HTTP_EXPORT_ALL ""; fastcgi_param REMOTE_USER $remote_user; fastcgi_param REMOTE_ADDR $remote_addr;
            fastcgi_param QUERY_STRING $query_string; fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_param CONTENT_TYPE $content_type; fastcgi_param CONTENT_LENGTH $content_length;
            fastcgi_param SERVER_PROTOCOL $server_protocol;
            fastcgi_pass unix:{dir}/fcgi.sock;
        }}
    }}
}}
"""


def start_web(directory, certs, ports, keys, children):
    backend = Path(subprocess.check_output(["git", "--exec-path"], text=True).strip()) / "git-http-backend"
    user = "user root;" if os.geteuid() == 0 else ""
    (directory / "htpasswd").write_text("x-access-token:{PLAIN}" + keys["git"] + "\n")
    (directory / "nginx.conf").write_text(NGINX.format(dir=directory, certs=certs, backend=backend, user=user, **ports))
    (directory / "fcgi.sock").unlink(missing_ok=True)
    children.append(subprocess.Popen(["fcgiwrap", "-c", "4", "-s", f"unix:{directory}/fcgi.sock"], start_new_session=True))
    children.append(subprocess.Popen(["nginx", "-p", str(directory), "-c", str(directory / "nginx.conf")], start_new_session=True))


def place_repository(directory, seed):
    target = directory / "git" / "lab.git"
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(exist_ok=True)
    if seed:
        subprocess.run(["git", "clone", "-q", "--bare", "--no-hardlinks", seed, target], check=True)
    else:
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", target], check=True)
    # The content is random: looking for deltas and compressing would only measure zlib.
    settings = {"http.receivepack": "true", "core.compression": "0", "pack.compression": "0", "pack.window": "0",
                "core.bigFileThreshold": "1m", "receive.unpackLimit": "1"}
    for name, value in settings.items():
        subprocess.run(["git", "-C", target, "config", name, value], check=True)


async def until_open(port):
    for _ in range(200):
        try:
            (await asyncio.open_connection("127.0.0.1", port))[1].close()
            return
        except OSError:
            await asyncio.sleep(0.05)
    raise SystemExit(f"nothing listens on port {port}")


async def serve(directory, seed):
    certs = directory / "certs"
    subprocess.run([HERE.parents[1] / "certs" / "make", certs], check=True)
    keys = {name: fresh(prefix, length) for name, (_, prefix, length, _) in SECRETS.items()}
    ports = {name: free_port() for name in ("api", "api_app", "git", "packages", "packages_app", "grpc")}
    place_repository(directory, seed)
    children, stop = [], asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        start_web(directory, certs, ports, keys, children)
        for name, service in (("api_app", Api(keys)), ("packages_app", Packages(keys))):
            application = web.Application(client_max_size=1 << 30)
            application.add_routes(service.routes())
            runner = web.AppRunner(application, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", ports[name]).start()
        grpc = grpc_server(keys["grpc"], certs, ports["grpc"])
        for name in ("api", "git", "packages", "grpc"):
            await until_open(ports[name])
        report = {
            "ca": str(certs / "ca.pem"),
            "directory": str(directory),
            "origins": {f"{name}.test": {"address": "127.0.0.1", "port": ports[name]} for name in ("api", "git", "packages", "grpc")},
            "secrets": {name: {"env": env, "value": keys[name], "host": host, "port": ports[host.partition(".")[0]]} for name, (env, _, _, host) in SECRETS.items()},
        }
        print(json.dumps(report), flush=True)
        ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        await asyncio.wait([ended, asyncio.ensure_future(stop.wait())], return_when=asyncio.FIRST_COMPLETED)
        grpc.stop(None)
    finally:
        # By group: fcgiwrap leaves its workers behind when it alone is told to end.
        for child in children:
            os.killpg(child.pid, signal.SIGTERM)
        for child in children:
            child.wait()
    # The thread that waits for standard input would hold the process.
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, required=True, help="where certificates, sockets and the repository go")
    parser.add_argument("--seed", help="a bare repository to serve as git.test/lab.git")
    arguments = parser.parse_args()
    os.umask(0o077)
    directory = arguments.dir.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    asyncio.run(serve(directory, arguments.seed))


if __name__ == "__main__":
    main()
