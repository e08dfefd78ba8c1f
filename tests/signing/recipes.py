#!/usr/bin/env python3
"""The origins of services that are signed by recipes: Alibaba, Tencent and the exchanges. One server on loopback, that knows the real keys.

  recipes.py --dir DIRECTORY

Prints one JSON object when it is up and serves until its standard input ends. What must have signed each request is computed again: with the service's
own SDK where that lends its signer, else from the service's description. Of every request that it takes, it refuses one with a wrong byte, each time.
"""

import argparse, asyncio, base64, hashlib, hmac, json, secrets, ssl, string, subprocess, sys, time
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qsl, quote, unquote
from xml.sax.saxutils import escape

import oss2
from aiohttp import web
from alibabacloud_tea_openapi.utils import Utils
from aliyunsdkcore.auth.composer import rpc_signature_composer
from Tea.request import TeaRequest
from tencentcloud.common.sign import Sign

HERE = Path(__file__).resolve().parent
# A request that was signed longer ago, or will be, is refused.
SKEW = 300
BUCKET, COS_BUCKET = "phantoms", "phantoms-1250000000"


class Refused(Exception):
    pass


def demand(holds, why):
    if not holds:
        raise Refused(why)


class Request:
    def __init__(self, method, target, fields, content):
        self.method, self.target, self.fields, self.content = method, target, fields, content
        self.path, _, self.query = target.partition("?")

    def all(self, name):
        return [value for key, value in self.fields if key.lower() == name.lower()]

    def one(self, name):
        found = self.all(name)
        demand(len(found) == 1, f"{name} stands {len(found)} times")
        return found[0]

    def has(self, name, value):
        demand(hmac.compare_digest(self.one(name).encode(), value.encode()), f"{name} is wrong")

    def begins(self, name):
        return sorted({key.lower() for key, _ in self.fields if key.lower().startswith(name)})

    def form(self):
        return parse_qsl(self.content.decode(), keep_blank_values=True, strict_parsing=True) if self.content else []


def mac(kind, key, text):
    key, text = (part.encode() if isinstance(part, str) else part for part in (key, text))
    return hmac.new(key, text, kind)


def digest(kind, data):
    return hashlib.new(kind, data).hexdigest()


def fresh(seconds):
    demand(abs(time.time() - seconds) < SKEW, f"signed at {seconds}")


def stamp(text, form):
    return datetime.strptime(text, form).replace(tzinfo=timezone.utc).timestamp()


def pairs(text, separator):
    return dict(part.strip().partition("=")[::2] for part in text.split(separator))


def acs3(request, keys):
    """https://www.alibabacloud.com/help/en/sdk/product-overview/v3-request-structure-and-signature, by alibabacloud-tea-openapi."""
    scheme, _, rest = request.one("authorization").partition(" ")
    demand(scheme == "ACS3-HMAC-SHA256", "another scheme")
    signed = pairs(rest, ",")["SignedHeaders"].split(";")
    demand(not {"host", *request.begins("x-acs-")} - set(signed), "a field is not signed")
    request.has("x-acs-content-sha256", digest("sha256", request.content))
    request.has("x-acs-security-token", keys["token"])
    fresh(stamp(request.one("x-acs-date"), "%Y-%m-%dT%H:%M:%SZ"))
    asked = TeaRequest()
    asked.method, asked.pathname, asked.query = request.method, request.path, dict(parse_qsl(request.query, keep_blank_values=True))
    asked.headers = {name: request.one(name) for name in signed}
    request.has("authorization", Utils.get_authorization(asked, scheme, request.one("x-acs-content-sha256"), keys["key"], keys["secret"]))
    return request.one("x-acs-signature-nonce")


def rpc(request, keys):
    """https://www.alibabacloud.com/help/en/sdk/product-overview/rpc-mechanism, by aliyun-python-sdk-core."""
    query, form = parse_qsl(request.query, keep_blank_values=True), request.form()
    found = dict(query)
    demand(len(found | dict(form)) == len(query) + len(form), "a parameter stands twice")
    signature = found.pop("Signature")
    demand(found["AccessKeyId"] == keys["key"] and found["SecurityToken"] == keys["token"], "another key")
    demand(found["SignatureMethod"] == "HMAC-SHA1", "another method")
    fresh(stamp(found["Timestamp"], "%Y-%m-%dT%H:%M:%SZ"))
    text = getattr(rpc_signature_composer, "__compose_string_to_sign")(request.method, found | dict(form))
    demand(hmac.compare_digest(getattr(rpc_signature_composer, "__get_signature")(text, keys["secret"]), signature), "Signature is wrong")
    return found["SignatureNonce"]


def oss4(request, keys):
    """https://www.alibabacloud.com/help/en/oss/developer-reference/recommend-to-use-signature-version-4, by oss2."""
    scheme, _, rest = request.one("authorization").partition(" ")
    found = pairs(rest, ",")
    key, day, region, product, end = found["Credential"].split("/")
    date = request.one("x-oss-date")
    demand((scheme, key, day, region, product, end) == ("OSS4-HMAC-SHA256", keys["key"], date[:8], "cn-hangzhou", "oss", "aliyun_v4_request"), "another scope")
    request.has("x-oss-security-token", keys["token"])
    request.has("x-oss-content-sha256", "UNSIGNED-PAYLOAD")
    fresh(stamp(date, "%Y%m%dT%H%M%SZ"))
    host = request.one("host").partition(".")[0]
    asked = SimpleNamespace(method=request.method, params=dict(parse_qsl(request.query, keep_blank_values=True)), region=region, cloudbox_id=None, product=product,
                            headers={name.lower(): value for name, value in request.fields})
    additional = found["AdditionalHeaders"].split(";") if found.get("AdditionalHeaders") else None
    credentials = oss2.credentials.Credentials(keys["key"], keys["secret"], keys["token"])
    bucket = host if not host.startswith("oss-") else ""
    made = oss2.AuthV4(keys["key"], keys["secret"])._ProviderAuthV4__make_signature(asked, bucket, unquote(request.path[1:]), additional, credentials, date)
    demand(hmac.compare_digest(made, found["Signature"]), "Signature is wrong")


def tc3(request, keys):
    """https://www.tencentcloud.com/document/product/213/33224, the last step by tencentcloud-sdk-python-common."""
    scheme, _, rest = request.one("authorization").partition(" ")
    found = pairs(rest, ",")
    key, day, service, end = found["Credential"].split("/")
    at = int(request.one("x-tc-timestamp"))
    fresh(at)
    today = datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d")
    demand((scheme, key, day, service, end) == ("TC3-HMAC-SHA256", keys["key"], today, "cvm", "tc3_request"), "another scope")
    request.has("x-tc-token", keys["token"])
    signed = found["SignedHeaders"].split(";")
    demand(not {"content-type", "host"} - set(signed), "a field is not signed")
    lines = "".join(f"{name}:{request.one(name).strip().lower()}\n" for name in signed)
    canonical = "\n".join([request.method, request.path, request.query, lines, ";".join(signed), digest("sha256", request.content)])
    text = "\n".join([scheme, str(at), f"{day}/{service}/{end}", digest("sha256", canonical.encode())])
    demand(hmac.compare_digest(Sign.sign_tc3(keys["secret"], day, service, text), found["Signature"]), "Signature is wrong")


def cos(request, keys):
    """https://www.tencentcloud.com/document/product/436/7778"""
    found = pairs(request.one("authorization"), "&")
    demand(found["q-ak"] == keys["key"] and found["q-sign-algorithm"] == "sha1" and found["q-sign-time"] == found["q-key-time"], "another key")
    request.has("x-cos-security-token", keys["token"])
    start, end = map(int, found["q-sign-time"].split(";"))
    demand(start <= time.time() <= end, "not in its time")
    encoded = lambda name, value: f"{quote(name, safe='-_.~').lower()}={quote(value, safe='-_.~')}"
    asked = parse_qsl(request.query, keep_blank_values=True)
    demand(found["q-url-param-list"] == ";".join(sorted(quote(name, safe="-_.~").lower() for name, _ in asked)), "a parameter is not signed")
    listed = found["q-header-list"].split(";")
    demand(not {"host", *request.begins("x-cos-")} - set(listed), "a field is not signed")
    text = "\n".join([request.method.lower(), unquote(request.path), "&".join(sorted(encoded(*pair) for pair in asked)), "&".join(encoded(name, request.one(name)) for name in listed), ""])
    text = f"sha1\n{start};{end}\n{digest('sha1', text.encode())}\n"
    demand(hmac.compare_digest(mac("sha1", mac("sha1", keys["secret"], f"{start};{end}").hexdigest(), text).hexdigest(), found["q-signature"]), "q-signature is wrong")


def binance(request, keys):
    """https://developers.binance.com/docs/binance-spot-api-docs/rest-api/request-security"""
    request.has("x-mbx-apikey", keys["key"])
    left = lambda text: "&".join(part for part in text.split("&") if not part.startswith("signature="))
    asked = parse_qsl(request.query, keep_blank_values=True) + request.form()
    given = dict(asked)
    demand(len(given) == len(asked), "a parameter stands twice")
    fresh(int(given["timestamp"]) / 1000)
    demand(hmac.compare_digest(mac("sha256", keys["secret"], left(request.query) + left(request.content.decode())).hexdigest(), given["signature"]), "signature is wrong")


def kraken(request, keys):
    """https://docs.kraken.com/api/docs/guides/spot-rest-auth"""
    request.has("api-key", keys["key"])
    nonce = dict(request.form())["nonce"]
    inner = hashlib.sha256(nonce.encode() + request.content).digest()
    request.has("api-sign", base64.b64encode(mac("sha512", base64.b64decode(keys["secret"]), request.path.encode() + inner).digest()).decode())
    return int(nonce)


def coinbase(request, keys):
    """https://docs.cdp.coinbase.com/exchange/rest-api/authentication"""
    request.has("cb-access-key", keys["key"])
    request.has("cb-access-passphrase", keys["passphrase"])
    at = request.one("cb-access-timestamp")
    fresh(float(at))
    text = (at + request.method + request.target).encode() + request.content
    request.has("cb-access-sign", base64.b64encode(mac("sha256", base64.b64decode(keys["secret"]), text).digest()).decode())


def bybit(request, keys):
    """https://bybit-exchange.github.io/docs/v5/guide"""
    request.has("x-bapi-api-key", keys["key"])
    at = request.one("x-bapi-timestamp")
    fresh(int(at) / 1000)
    text = (at + keys["key"] + request.one("x-bapi-recv-window") + request.query).encode() + request.content
    request.has("x-bapi-sign", mac("sha256", keys["secret"], text).hexdigest())


def okx(request, keys):
    """https://www.okx.com/docs-v5/en/#overview-rest-authentication"""
    request.has("ok-access-key", keys["key"])
    request.has("ok-access-passphrase", keys["passphrase"])
    at = request.one("ok-access-timestamp")
    fresh(stamp(at, "%Y-%m-%dT%H:%M:%S.%fZ"))
    text = (at + request.method + request.target).encode() + request.content
    request.has("ok-access-sign", base64.b64encode(mac("sha256", keys["secret"], text).digest()).decode())


def bitfinex(request, keys):
    """https://docs.bitfinex.com/docs/rest-auth"""
    request.has("bfx-apikey", keys["key"])
    nonce = request.one("bfx-nonce")
    text = f"/api{request.path}{nonce}".encode() + request.content
    request.has("bfx-signature", mac("sha384", keys["secret"], text).hexdigest())
    return int(nonce)


class Scheme:
    """A service: its hosts, how it verifies, its keys' shapes, and which parts of a request its signature covers."""

    def __init__(self, recipe, hosts, verify, parts, covers, fields):
        self.recipe, self.hosts, self.verify, self.covers, self.fields = recipe, hosts, verify, covers.split(), fields.split()
        self.keys = {name: made(shape) for name, shape in parts.items()}


def made(shape):
    """A first word as it is, then so many characters, or so many bytes in base64."""
    kind, length, *first = shape.split()
    if kind == "base64":
        return base64.b64encode(secrets.token_bytes(int(length))).decode()
    return "".join(first) + "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(int(length)))


ALIBABA = {"key": "text 20 LTAI", "secret": "text 30", "token": "text 120 CAIS"}
TENCENT = {"key": "text 32 AKID", "secret": "text 32", "token": "text 100"}
SCHEMES = {
    "ACS3": Scheme("alibaba-acs3", ["ecs.aliyun.test"], acs3, ALIBABA, "method path query content", "authorization host x-acs-date x-acs-signature-nonce x-acs-action x-acs-security-token"),
    "RPC": Scheme("alibaba-rpc", ["rpc.aliyun.test"], rpc, ALIBABA, "method query content", ""),
    "OSS4": Scheme("alibaba-oss4", ["oss-cn-hangzhou.aliyun.test", f"{BUCKET}.oss-cn-hangzhou.aliyun.test"], oss4, ALIBABA, "method path query", "authorization x-oss-date x-oss-security-token x-oss-meta-who content-type"),
    "TC3": Scheme("tencent-tc3", ["cvm.tencent.test"], tc3, TENCENT, "method path query content", "authorization host x-tc-timestamp x-tc-token"),
    "COS": Scheme("tencent-cos", [f"{COS_BUCKET}.cos.tencent.test"], cos, TENCENT, "method path query", "authorization host x-cos-security-token x-cos-meta-who"),
    "BINANCE": Scheme("binance-hmac", ["binance.test"], binance, {"key": "text 64", "secret": "text 64"}, "query content", "x-mbx-apikey"),
    "KRAKEN": Scheme("kraken", ["kraken.test"], kraken, {"key": "text 56", "secret": "base64 64"}, "path content", "api-key api-sign"),
    "COINBASE": Scheme("coinbase-exchange", ["coinbase.test"], coinbase, {"key": "text 32", "passphrase": "text 16", "secret": "base64 64"}, "method path query content", "cb-access-key cb-access-passphrase cb-access-sign cb-access-timestamp"),
    "BYBIT": Scheme("bybit", ["bybit.test"], bybit, {"key": "text 18", "secret": "text 36"}, "query content", "x-bapi-api-key x-bapi-sign x-bapi-timestamp x-bapi-recv-window"),
    "OKX": Scheme("okx", ["okx.test"], okx, {"key": "text 36", "passphrase": "text 16", "secret": "text 32"}, "method path query content", "ok-access-key ok-access-passphrase ok-access-sign ok-access-timestamp"),
    "BITFINEX": Scheme("bitfinex", ["bitfinex.test"], bitfinex, {"key": "text 43", "secret": "text 43"}, "path content", "bfx-apikey bfx-nonce bfx-signature"),
}
HOSTS = {host: name for name, scheme in SCHEMES.items() for host in scheme.hosts}


def changed(request, part):
    """The same request with one byte changed in a part; None where there is none."""
    flip = lambda text, at=-1: text[:at] + ("A" if text[at] != "A" else "B") + (text[at + 1:] if at != -1 else "")
    copy = lambda method=request.method, target=request.target, fields=request.fields, content=request.content: Request(method, target, fields, content)
    if part == "method":
        return copy(method="PUT" if request.method != "PUT" else "GET")
    if part == "path":
        return copy(target=request.path + "x" + request.target[len(request.path):])
    if part == "query":
        return copy(target=request.path + "?" + flip(request.query, 0)) if request.query else None
    if part == "content":
        return copy(content=flip(request.content.decode(), len(request.content.decode()) // 2).encode()) if request.content else None
    fields = [(name, flip(value) if name.lower() == part else value) for name, value in request.fields]
    return copy(fields=fields) if fields != request.fields else None


class Origin:
    def __init__(self, log):
        self.log, self.seen, self.objects = log, {}, {}

    async def answer(self, asked):
        host = asked.headers.get("Host", "").partition(":")[0]
        fields = [(name.decode(), value.decode("utf-8", "surrogateescape")) for name, value in asked.raw_headers]
        request = Request(asked.method, asked.raw_path, fields, await asked.read())
        name = HOSTS.get(host)
        line = {"method": request.method, "host": host, "target": request.target, "agent": asked.headers.get("User-Agent")}
        try:
            demand(name, "no such service")
            nonce = SCHEMES[name].verify(request, SCHEMES[name].keys)
            self.once(name, nonce)
            self.no_other(SCHEMES[name], request)
            line |= {"signed": "recipe", "payload": SCHEMES[name].recipe}
            response = self.store(host, request) if name in ("OSS4", "COS") else self.told(name, request)
        except Exception as error:
            # Whatever it was: the client is told, and so is who reads the log.
            line["refused"] = repr(error)
            response = web.Response(status=403, text=f"<Error><Code>SignatureDoesNotMatch</Code><Message>{escape(repr(error))}</Message></Error>", content_type="application/xml")
        line["status"] = response.status
        self.log.write(json.dumps(line) + "\n")
        self.log.flush()
        return response

    def once(self, name, nonce):
        """A number must rise; another nonce may come once."""
        if isinstance(nonce, int):
            demand(nonce > self.seen.get(name, 0), "the nonce does not rise")
            self.seen[name] = nonce
        elif nonce is not None:
            demand(nonce not in self.seen.setdefault(name, set()), "the nonce came before")
            self.seen[name].add(nonce)

    def no_other(self, scheme, request):
        """This verifier is worth what it refuses: with one byte changed in any part that is signed, the request must not hold."""
        for part in [*scheme.covers, *scheme.fields]:
            other = changed(request, part)
            if other is None:
                continue
            try:
                scheme.verify(other, scheme.keys)
            except (Refused, ValueError, KeyError):
                continue
            raise AssertionError(f"{part} may be changed")

    def told(self, name, request):
        """What each client is content with; what was asked is in it."""
        seen = {"method": request.method, "target": request.target, "content": request.content.decode()}
        answer = {
            "TC3": {"Response": {"RequestId": "r", "Seen": seen}}, "KRAKEN": {"error": [], "result": seen}, "BYBIT": {"retCode": 0, "retMsg": "OK", "result": seen, "time": 0},
            "OKX": {"code": "0", "msg": "", "data": [seen]}, "COINBASE": [seen], "BITFINEX": [],
        }.get(name, {"RequestId": "r", "Seen": seen})
        return web.json_response(answer)

    def store(self, host, request):
        """Objects by name: put, get, list, delete."""
        key, asked = (host, unquote(request.path[1:])), dict(parse_qsl(request.query, keep_blank_values=True))
        if request.method == "PUT":
            self.objects[key] = request.content
            return web.Response(headers={"ETag": f'"{digest("md5", request.content)}"', "x-oss-request-id": "r"})
        if request.method == "DELETE":
            self.objects.pop(key, None)
            return web.Response(status=204)
        if key[1] == "":
            found = [(name, len(content)) for (at, name), content in sorted(self.objects.items()) if at == host and name.startswith(asked.get("prefix", ""))]
            encoding = asked.get("encoding-type", "")
            shown = quote if encoding == "url" else str
            text = "".join(f"<Contents><Key>{escape(shown(name))}</Key><Size>{size}</Size><LastModified>2026-11-21T00:00:00.000Z</LastModified><ETag>e</ETag><Type>Normal</Type><StorageClass>Standard</StorageClass></Contents>" for name, size in found)
            return web.Response(text=f"<ListBucketResult><Name>b</Name><EncodingType>{encoding}</EncodingType><IsTruncated>false</IsTruncated>{text}</ListBucketResult>", content_type="application/xml")
        if key not in self.objects:
            return web.Response(status=404, text="<Error><Code>NoSuchKey</Code><Message>absent</Message></Error>", content_type="application/xml")
        return web.Response(body=self.objects[key], headers={"ETag": '"e"'})


async def serve(directory):
    certs = directory / "certs"
    subprocess.run([HERE.parents[1] / "certs" / "make", certs, *HOSTS], check=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certs / "leaf.pem", certs / "leaf.key")
    log = (directory / "recipes.log").open("w")
    application = web.Application(client_max_size=64 << 20)
    application.router.add_route("*", "/{rest:.*}", Origin(log).answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    print(json.dumps({
        "ca": str(certs / "ca.pem"), "log": str(directory / "recipes.log"), "port": site._server.sockets[0].getsockname()[1],
        "schemes": {name: {"recipe": scheme.recipe, "hosts": scheme.hosts, "keys": scheme.keys} for name, scheme in SCHEMES.items()},
    }), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, required=True)
    directory = parser.parse_args().dir.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    asyncio.run(serve(directory))


if __name__ == "__main__":
    main()
