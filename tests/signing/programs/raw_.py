"""Signed chunks, trailers, wrong bytes and random requests: by bytes, signed by botocore."""

import hashlib, json, os, random, re

from common import BUCKET, S3, content, key, run, same
from wire import EMPTY, Request, chunked, crc32

OTHERS = json.loads(os.environ["SIGNING_OTHERS"])
COUNT = int(os.environ.get("SIGNING_COUNT", "300"))
UNRESERVED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"


def at(name):
    return f"/{BUCKET}/{key(name)}"


def get(name, wanted):
    status, found, _ = Request(S3, "GET", at(name)).sign("s3", EMPTY).send()
    same((status, found), (200, wanted))


def put(name, chunks, trailer=None, signed=True):
    request, pieces = chunked(S3, at(name), chunks, trailer, signed)
    status, found, _ = request.send(pieces)
    same((status, found.decode()), (200, ""))
    get(name, b"".join(chunks))


# A chunk but the last has at least 8 KiB.
SHAPES = [[b"hello"], [content(8192)], [content(65536), content(65536), content(1024)], [content(8192)] * 40 + [b"x"], []]


def signed_chunks():
    for shape in SHAPES:
        put("chunks", shape)


def signed_trailer():
    for shape in SHAPES:
        put("trailer", shape, [("x-amz-checksum-crc32", crc32(b"".join(shape)))])


def unsigned_trailer():
    for shape in SHAPES:
        put("unsigned", shape, [("x-amz-checksum-crc32", crc32(b"".join(shape)))], signed=False)


def expect():
    """The content is held back until the origin, behind whatever stands between, asks for it: as SDKs do, or not at all."""
    request = Request(S3, "PUT", at("expect"), [("Expect", "100-continue")], b"expected").sign("s3", hashlib.sha256(b"expected").hexdigest())
    same(request.send()[0], 200)
    get("expect", b"expected")


def changed(text):
    """One character is another."""
    where = len(text) // 2
    return text[:where] + ("b" if text[where] != "b" else "c") + text[where + 1:]


def flips():
    """Requests that are right but for one byte, each with what was changed."""
    fresh = lambda: Request(S3, "PUT", at("flipped") + "?x-id=PutObject", [("x-amz-meta-who", "judge")], b"content").sign("s3", hashlib.sha256(b"content").hexdigest())
    for name in ("x-amz-meta-who", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token", "authorization"):
        request = fresh()
        value = request.of(name)
        request.set(name, value[:-1] + ("0" if value[-1] != "0" else "1"))
        if name == "x-amz-date":
            request.set(name, value[:-2] + str((int(value[-2]) + 1) % 10) + "Z")
        yield name, request, None
    request = fresh()
    request.method = "POST"
    yield "method", request, None
    request = fresh()
    request.target = request.target.replace("flipped", "flopped")
    yield "path", request, None
    request = fresh()
    request.target = request.target.replace("PutObject", "PutObjecs")
    yield "query", request, None
    request = fresh()
    request.content = b"contens"
    yield "content", request, None
    request = fresh()
    request.fields.append(("x-amz-meta-more", "unsigned"))
    yield "unsigned x-amz- field", request, None
    url = Request(S3, "GET", at("flipped")).sign("s3", expires=300)
    url.target = url.target.replace("X-Amz-Expires=300", "X-Amz-Expires=301")
    yield "expiry of a URL", url, None
    late = Request(S3, "GET", at("flipped")).sign("s3", expires=0)
    yield "an expired URL", late, None
    for signed in (True, False):
        for what in ("data", "trailer"):
            request, pieces = chunked(S3, at("flipped"), [content(8192), content(100)], [("x-amz-checksum-crc32", crc32(content(8192) + content(100)))], signed)
            place = 1 if what == "data" else next(number for number, piece in enumerate(pieces) if piece.startswith(b"x-amz-checksum"))
            piece = bytearray(pieces[place])
            piece[-5 if what == "trailer" else -10] ^= 1
            yield f"{what} of {'signed' if signed else 'unsigned'} chunks", request, [*pieces[:place], bytes(piece), *pieces[place + 1:]]
    for place in (0, 1, 2):
        request, pieces = chunked(S3, at("flipped"), [content(8192), content(100)])
        head, _, rest = pieces[place].partition(b"\r\n")
        pieces[place] = head[:-1] + (b"0" if head[-1:] != b"0" else b"1") + b"\r\n" + rest
        yield f"signature of chunk {place}", request, pieces


def flipped():
    taken = []
    for what, request, pieces in flips():
        try:
            status = request.send(pieces)[0]
        except OSError:
            # Cut off in the middle of its content.
            status = 0
        if 200 <= status < 400:
            taken.append(what)
    same(taken, [])
    status, _, _ = Request(S3, "GET", at("flipped")).sign("s3", EMPTY).send()
    same(status, 404)


def random_text(source, letters, most):
    return "".join(source.choice(letters) for _ in range(source.randrange(1, most)))


def random_name(source, letters, most):
    """A name of a path. The gateway refuses one that, decoded once more, has a separator, an unreserved or a control character, or dots alone behind a separator."""
    while True:
        name = random_text(source, letters, most)
        if not re.search("%(?i:0[0-9a-f]|1[0-9a-f]|25|2[ef]|5c|7f|2d|3[0-9]|4[1-9a-f]|5[0-9af]|6[1-9a-f]|7[0-9ae]|[0-9a-f]?%)|[?;\\\\][ .]*[.][ .]*([?;\\\\]|$)", name):
            return name


def encoded(text, kept=UNRESERVED):
    return "".join(character if character in kept else "".join(f"%{byte:02X}" for byte in character.encode()) for character in text)


def random_request(source, base, service, asymmetric):
    letters = UNRESERVED + " +/=&?%;,:@!$'()*[]{}|\"<>^`\\ü日😀"
    if service == "s3":
        path = f"/{BUCKET}/" + "/".join(encoded(random_name(source, letters.replace("/", ""), 12)) if source.random() < 0.9 else "" for _ in range(source.randrange(1, 6)))
    else:
        # What a path means to these is its normal form, which the gateway sends; it takes no backslash there, and no dot segment behind a semicolon.
        path = "/" + "/".join(encoded("p" + random_name(source, letters.replace("/", "").replace("\\", "").replace(";", ""), 12)) for _ in range(source.randrange(1, 5)))
    pairs = [(encoded(random_text(source, letters, 8)), encoded(random_text(source, letters, 12)) if source.random() < 0.8 else "") for _ in range(source.randrange(0, 6))]
    if pairs and source.random() < 0.3:
        pairs.append((pairs[0][0], "again"))
    query = "&".join(f"{name}={value}" for name, value in pairs)
    # A POST that is no operation of S3 is STS to MinIO, at whatever path, and refused at stores that are not AWS's.
    method = source.choice(["GET", "PUT", "DELETE", "PATCH", *(["POST"] if service != "s3" else [])])
    body = source.randbytes(source.randrange(0, 3000)) if method in ("PUT", "POST", "PATCH") else b""
    fields = [(f"x-amz-meta-{number}", random_text(source, UNRESERVED + "   ,;=\"", 30).strip() or "v") for number in range(source.randrange(0, 4))]
    fields += [("X-Custom", "  two   spaces ".strip())] * (source.random() < 0.4) + [("Content-Type", source.choice(["application/json", "text/plain; charset=utf-8"]))] * bool(body)
    request = Request(base, method, path + ("?" + query if query else ""), fields, body)
    if source.random() < 0.2:
        # A URL is signed for what it says alone.
        request.fields = []
        if service != "s3":
            request.content, request.method = b"", "GET"
        return request.sign_asymmetric(service, expires=300) if asymmetric else request.sign(service, expires=300)
    said = source.choice([hashlib.sha256(body).hexdigest(), "UNSIGNED-PAYLOAD" if service == "s3" else None])
    return request.sign_asymmetric(service, said) if asymmetric else request.sign(service, said)


def differential(asymmetric=False):
    """What the origin computes with the real key is what came; and what came is what was sent."""
    seed = int(os.environ.get("SIGNING_SEED") or random.randrange(1 << 32))
    source = random.Random(seed)
    for number in range(COUNT):
        host = source.choice(list(OTHERS))
        request = random_request(source, OTHERS[host], "s3" if host == "objects.test" else "polly", asymmetric)
        status, answer, _ = request.send()
        if status != 200:
            short = request.target.partition("X-Amz-Algorithm")[0]
            raise AssertionError(f"seed {seed}, request {number} to {host}: {request.method} {short}: {status} {answer[:1500]} {request.fields}")
        seen = json.loads(answer)
        path = lambda target: target.partition("?")[0]
        same((number, seed, seen["method"], path(seen["target"]), seen["content"]), (number, seed, request.method, path(request.target), hashlib.sha256(request.content).hexdigest()))
        arrived = {name.lower(): value for name, value in seen["fields"]}
        for name, value in request.fields:
            if name.lower().startswith(("x-amz-meta-", "x-custom", "content-type")):
                same((number, seed, name, " ".join(arrived[name.lower()].split())), (number, seed, name, " ".join(value.split())))
    print(f"   {COUNT} random requests, seed {seed}")


def sigv4a():
    for host, service in (("objects.test", "s3"), ("any.test", "polly")):
        for method, path, content in (("GET", f"/{BUCKET}/b%20c?x=1&empty=&x=0", b""), ("PUT", f"/{BUCKET}/p%C3%BC?y", b"content")):
            for expires in (None, 300):
                if expires and content:
                    continue
                request = Request(OTHERS[host], method, path, [], content).sign_asymmetric(service, expires=expires)
                status, answer, _ = request.send()
                same((host, path, expires, status, answer.decode() * (status != 200)), (host, path, expires, 200, ""))
        request = Request(OTHERS[host], "GET", f"/{BUCKET}/a").sign_asymmetric(service)
        request.target = f"/{BUCKET}/b"
        same(request.send()[0] in (400, 403), True)


run({
    "signed chunks": signed_chunks, "signed trailer": signed_trailer, "unsigned trailer": unsigned_trailer, "expect": expect, "flipped": flipped, "differential": differential,
    "differential v4a": lambda: differential(asymmetric=True), "sigv4a": sigv4a,
})
