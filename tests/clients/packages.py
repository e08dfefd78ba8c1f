"""What registries, a forge and a container registry answer to real clients: one package each, made here."""

import base64, gzip, hashlib, io, json, os, subprocess, tarfile, urllib.parse, zipfile
import http.server

TOKEN = "ghp_C4n4ryC4n4ryC4n4ryC4n4ryC4n4ry0kPLHd"
WORD = "hello from the stand-in"


def tarball(files):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return content.getvalue()


def zipped(files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return content.getvalue()


def sha(content, kind="sha256"):
    return hashlib.new(kind, content)


def npm(host="registry.npmjs.org", name="@lab/hello"):
    package = {"name": name, "version": "1.0.0", "main": "index.js"}
    tgz = tarball({"package/package.json": json.dumps(package), "package/index.js": f"module.exports = {WORD!r}\n"})
    integrity = "sha512-" + base64.b64encode(sha(tgz, "sha512").digest()).decode()
    place = f"{host}/{name}/-/1.0.0.tgz"
    about = {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {**package, "dist": {"tarball": f"https://{place}", "integrity": integrity}}}}
    return {f"{host}/{name}": json.dumps(about).encode(), place: tgz}


def pip():
    info = "labhello-1.0.dist-info"
    wheel = zipped({"labhello.py": f"WORD = {WORD!r}\n", f"{info}/METADATA": "Metadata-Version: 2.1\nName: labhello\nVersion: 1.0\n",
                    f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n", f"{info}/RECORD": ""})
    name = "labhello-1.0-py3-none-any.whl"
    page = f'<html><body><a href="https://files.pythonhosted.org/{name}#sha256={sha(wheel).hexdigest()}">{name}</a></body></html>'
    return {"pypi.org/simple/labhello/": page.encode(), f"files.pythonhosted.org/{name}": wheel}


def cargo():
    manifest = '[package]\nname = "labhello"\nversion = "1.0.0"\nedition = "2021"\n'
    crate = tarball({"labhello-1.0.0/Cargo.toml": manifest, "labhello-1.0.0/src/lib.rs": ""})
    entry = {"name": "labhello", "vers": "1.0.0", "deps": [], "cksum": sha(crate).hexdigest(), "features": {}, "yanked": False}
    return {"index.crates.io/config.json": json.dumps({"dl": "https://static.crates.io/crates", "api": "https://crates.io"}).encode(),
            "index.crates.io/la/bh/labhello": json.dumps(entry).encode() + b"\n", "static.crates.io/crates/labhello/1.0.0/download": crate}


def go():
    at, root = "proxy.golang.org/lab.test/hello/@v/", "lab.test/hello@v1.0.0/"
    module = "module lab.test/hello\n\ngo 1.19\n"
    archive = zipped({root + "go.mod": module, root + "hello.go": "package hello\n"})
    return {at + "v1.0.0.info": b'{"Version":"v1.0.0"}', at + "v1.0.0.mod": module.encode(), at + "v1.0.0.zip": archive, at + "list": b"v1.0.0\n"}


def apt(folder):
    tree = folder / "deb"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text("Package: labhello\nVersion: 1.0\nArchitecture: all\nMaintainer: lab <lab@lab.test>\nDescription: hello\n")
    subprocess.run(["dpkg-deb", "--build", "-Znone", tree, folder / "labhello.deb"], check=True, stdout=subprocess.DEVNULL)
    deb = (folder / "labhello.deb").read_bytes()
    control = (tree / "DEBIAN/control").read_text()
    packages = f"{control}Filename: ./labhello.deb\nSize: {len(deb)}\nSHA256: {sha(deb).hexdigest()}\n\n".encode()
    return {"deb.debian.org/lab/Packages": packages, "deb.debian.org/lab/labhello.deb": deb}


def image():
    layer = tarball({"hello": WORD})
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {},
                         "rootfs": {"type": "layers", "diff_ids": ["sha256:" + sha(gzip.decompress(layer)).hexdigest()]}}).encode()
    kind = "application/vnd.docker.distribution.manifest.v2+json"
    part = lambda kind, content: {"mediaType": kind, "size": len(content), "digest": "sha256:" + sha(content).hexdigest()}
    manifest = json.dumps({"schemaVersion": 2, "mediaType": kind, "config": part("application/vnd.docker.container.image.v1+json", config),
                           "layers": [part("application/vnd.docker.image.rootfs.diff.tar.gzip", layer)]}).encode()
    at = "registry-1.docker.io/v2/"
    blobs = {f"{at}library/lab/blobs/sha256:{sha(one).hexdigest()}": one for one in (layer, config)}
    manifests = {f"{at}library/lab/manifests/{name}": manifest for name in ("latest", "sha256:" + sha(manifest).hexdigest())}
    return {at: b"{}", **blobs, **manifests}


def elsewhere(pages, hosts):
    """The same pages at other hosts."""
    moved = {}
    for path, content in pages.items():
        for host, other in hosts.items():
            path, content = path.replace(host, other), content.replace(host.encode(), other.encode())
        moved[path] = content
    return moved


class Registries(http.server.BaseHTTPRequestHandler):
    """The pages of all of them, GitHub's interface, and its repositories. Only the real token is taken."""

    protocol_version = "HTTP/1.1"
    pages, repositories, seen = {}, None, []

    def do_GET(self):
        content = self.content()
        host, path = self.headers["host"], urllib.parse.unquote(self.path.partition("?")[0])
        self.seen.append(host + path)
        token = base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
        real = self.headers.get("authorization", "") in (f"token {TOKEN}", f"Bearer {TOKEN}", f"Basic {token}")
        if host == "api.github.com":
            return self.answer(200 if real else 401, json.dumps({"login": WORD}).encode(), "application/json")
        if host == "github.com":
            return self.git(path, content) if real else self.answer(401, b"", "text/plain", ("www-authenticate", "Basic"))
        page = self.pages.get(host + path)
        kind = "application/vnd.docker.distribution.manifest.v2+json" if "/manifests/" in path else \
            "text/html" if "/simple/" in path else "application/json" if "npm" in host else "application/octet-stream"
        return self.answer(404 if page is None else 200, page or b"", kind)

    do_POST = do_HEAD = do_GET

    def content(self):
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        content = b""
        while size := int(self.rfile.readline(), 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return content

    def git(self, path, content):
        variables = {"GIT_PROJECT_ROOT": self.repositories, "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path, "REQUEST_METHOD": self.command,
                     "QUERY_STRING": self.path.partition("?")[2], "CONTENT_TYPE": self.headers.get("content-type", ""), "REMOTE_USER": "octo",
                     "CONTENT_LENGTH": str(len(content)), "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""), "PATH": os.environ["PATH"],
                     "GIT_PROTOCOL": self.headers.get("git-protocol", "")}
        done = subprocess.run(["git", "-c", "safe.directory=*", "-c", "http.receivepack=true", "http-backend"], input=content, env=variables, capture_output=True)
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.answer(int(fields.get("Status", "200").split()[0]), body, fields.get("Content-Type", "text/plain"))

    def answer(self, status, content, kind, *more):
        self.send_response(status)
        for name, value in (("content-type", kind), ("content-length", str(len(content))), *more):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_):
        pass
