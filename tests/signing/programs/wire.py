"""Requests as bytes, signed by botocore: what no SDK lets a program say, on a connection of our own."""

import base64, binascii, hashlib, hmac, http.client, os, ssl
from datetime import datetime, timezone
from urllib.parse import urlsplit

from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth, SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.crt import auth as crt

from common import ACCESS, SECRET, TOKEN

REGION = os.environ["AWS_REGION"]
EMPTY = hashlib.sha256(b"").hexdigest()


class Request:
    """A request before it is sent; `sign` may be followed by changes that make the signature wrong."""

    def __init__(self, base, method, target, fields=(), content=b""):
        self.base, self.method, self.target, self.fields, self.content = urlsplit(base), method, target, list(fields), content

    def of(self, name):
        return next(value for key, value in self.fields if key.lower() == name.lower())

    def set(self, name, value):
        self.fields = [(key, value if key.lower() == name.lower() else old) for key, old in self.fields]

    def sign(self, service, payload=None, expires=None):
        """`payload`: what stands in x-amz-content-sha256, None for no such field."""
        keys = Credentials(ACCESS, SECRET, TOKEN)
        request = AWSRequest(method=self.method, url=f"https://{self.base.netloc}{self.target}", data=self.content)
        for name, value in self.fields:
            request.headers.add_header(name, value)
        if expires is not None:
            return self.presigned(request, keys, service, expires)
        kind = S3SigV4Auth if service == "s3" else SigV4Auth
        if payload is not None:
            request.headers["X-Amz-Content-SHA256"] = payload
        signer = kind(keys, service, REGION)
        if service == "s3":
            # Its own signer puts its own hash there.
            signer._modify_request_before_signing = lambda request: SigV4Auth._modify_request_before_signing(signer, request)
        signer.add_auth(request)
        self.fields = [(name, value.decode() if isinstance(value, bytes) else value) for name, value in request.headers.items()]
        self.date = request.context["timestamp"]
        self.seed = self.of("authorization").rpartition("Signature=")[2]
        return self

    def sign_asymmetric(self, service, payload=None, expires=None):
        """By SigV4a, in AWS's own implementation in C, which for S3 takes `UNSIGNED-PAYLOAD` from its own settings alone."""
        request = AWSRequest(method=self.method, url=f"https://{self.base.netloc}{self.target}", data=self.content)
        for name, value in self.fields:
            request.headers.add_header(name, value)
        if payload is not None:
            request.headers["X-Amz-Content-SHA256"] = payload
        if expires is not None:
            # Its signer would put a form's content into the query.
            request.data = b""
        kinds = ((crt.CrtSigV4AsymAuth, crt.CrtSigV4AsymQueryAuth), (crt.CrtS3SigV4AsymAuth, crt.CrtS3SigV4AsymQueryAuth))
        kind = kinds[service == "s3"][expires is not None]
        kind(Credentials(ACCESS, SECRET, TOKEN), service, REGION, **({} if expires is None else {"expires": expires})).add_auth(request)
        self.fields = [(name, value) for name, value in request.headers.items()]
        parts = urlsplit(request.url)
        self.target = parts.path + ("?" + parts.query if parts.query else "")
        return self

    def presigned(self, request, keys, service, expires):
        # Its signer would put a form's content into the query.
        request.data = b""
        kind = S3SigV4QueryAuth if service == "s3" else SigV4QueryAuth
        kind(keys, service, REGION, expires=expires).add_auth(request)
        parts = urlsplit(request.url)
        self.target = parts.path + "?" + parts.query
        return self

    def send(self, pieces=None):
        """Status and content. `pieces` instead of the content: an iterable of bytes, sent as they come."""
        context = ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE"))
        proxy = os.environ.get("HTTPS_PROXY")
        if proxy:
            connection = http.client.HTTPSConnection(urlsplit(proxy).netloc, context=context, timeout=60)
            connection.set_tunnel(self.base.netloc)
        else:
            connection = http.client.HTTPSConnection(self.base.netloc, context=context, timeout=60)
        connection.putrequest(self.method, self.target, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", self.base.netloc)
        names = {name.lower() for name, _ in self.fields}
        for name, value in self.fields:
            if name.lower() != "host":
                connection.putheader(name, value.encode())
        body = self.content if pieces is None else b"".join(pieces)
        if "content-length" not in names and (body or self.method in ("PUT", "POST", "PATCH")):
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders()
        try:
            if pieces is None:
                connection.send(body)
            else:
                for piece in pieces:
                    connection.send(piece)
        except (BrokenPipeError, ConnectionResetError):
            # Refused before its end: the answer is there.
            pass
        response = connection.getresponse()
        found = response.status, response.read(), dict(response.getheaders())
        connection.close()
        return found


def signing_key(date):
    key = ("AWS4" + SECRET).encode()
    for part in (date[:8], REGION, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


class Chunks:
    """aws-chunked content, signed chunk by chunk: https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html"""

    def __init__(self, request, chunks, trailer=None, signed=True):
        self.request, self.chunks, self.trailer, self.signed = request, chunks, trailer, signed
        self.previous = request.seed
        self.key = signing_key(request.date)
        self.scope = f"{request.date[:8]}/{REGION}/s3/aws4_request"

    def chained(self, kind, *rest):
        text = "\n".join([kind, self.request.date, self.scope, self.previous, *rest])
        self.previous = hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()
        return self.previous

    def pieces(self):
        for chunk in [*self.chunks, b""]:
            extension = ";chunk-signature=" + self.chained("AWS4-HMAC-SHA256-PAYLOAD", EMPTY, hashlib.sha256(chunk).hexdigest()) if self.signed else ""
            head = f"{len(chunk):x}{extension}\r\n".encode()
            yield head + chunk + b"\r\n" if chunk else head
        if self.trailer:
            lines = "".join(f"{name}:{value}\n" for name, value in self.trailer)
            for name, value in self.trailer:
                yield f"{name}:{value}\r\n".encode()
            if self.signed:
                yield f"x-amz-trailer-signature:{self.chained('AWS4-HMAC-SHA256-TRAILER', hashlib.sha256(lines.encode()).hexdigest())}\r\n".encode()
        yield b"\r\n"


def chunked(base, target, chunks, trailer=None, signed=True):
    """A signed PUT of `chunks` and the pieces of its content."""
    kind = "STREAMING-" + ("AWS4-HMAC-SHA256-PAYLOAD" if signed else "UNSIGNED-PAYLOAD") + ("-TRAILER" if trailer else "")
    fields = [("Content-Encoding", "aws-chunked"), ("X-Amz-Decoded-Content-Length", str(sum(map(len, chunks))))]
    fields += [("X-Amz-Trailer", ",".join(name for name, _ in trailer))] if trailer else []
    request = Request(base, "PUT", target, fields).sign("s3", kind)
    return request, list(Chunks(request, chunks, trailer, signed).pieces())


def crc32(data):
    return base64.b64encode(binascii.crc32(data).to_bytes(4, "big")).decode()
