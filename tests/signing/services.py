#!/usr/bin/env python3
"""The origins of tests/signing: servers on loopback that know the real keys and verify every signature.

  services.py --dir DIRECTORY --s3-origin PROGRAM --azurite PROGRAM --recipes PYTHON

Prints one JSON object when all are up (addresses, CA, keys) and serves until its standard input ends.

  s3.test, *.s3.test   S3 by s3s (s3-origin)
  transcribe.test      signed event streams over HTTP/2 (eventstream.py)
  dynamodb.test …      enough of each service for a client to be content, each request verified by verifier.py
  *.blob.test …        Azure's blobs, queues and tables by Microsoft's emulator, azurite
  *.aliyun.test …      Alibaba, Tencent and the exchanges (recipes.py)
  objects.test         any request, by the rules of S3 (paths as they are); any.test: any request, by those of the others
"""

import argparse, asyncio, base64, binascii, hashlib, json, os, secrets, signal, ssl, string, subprocess, sys, threading, time, uuid
from pathlib import Path
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from aiohttp import web

import eventstream
import verifier
from eventstream import event

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "rig"))
from addresses import free_port

HERE = Path(__file__).resolve().parent
REGION = "us-east-1"
BUCKET = "phantoms"

# host: what stands in the scope
SERVICES = {
    "dynamodb.test": "dynamodb", "sts.test": "sts", "sqs.test": "sqs", "bedrock.test": "bedrock", "secrets.test": "secretsmanager",
    "objects.test": "s3", "any.test": "polly",
}


def fresh_keys():
    """Of the shapes that AWS gives: a temporary key's id, a secret of 40, a long token."""
    pick = lambda alphabet, length: "".join(secrets.choice(alphabet) for _ in range(length))
    base64 = string.ascii_letters + string.digits + "+/"
    return {
        "access_key": "ASIA" + pick(string.ascii_uppercase + "234567", 16),
        "secret_key": pick(base64, 40),
        "session_token": "IQoJb3JpZ2luX2Vj" + pick(base64, 460) + "==",
    }


class Services:
    def __init__(self, keys, log, minted):
        self.keys, self.log = keys, log
        # What was given out by STS: known here, to whoever compares, and to no client that the gateway stands before.
        self.others, self.minted = {}, minted
        self.items, self.queue = {}, []

    async def answer(self, request):
        host = request.headers.get("Host", "").partition(":")[0]
        content = await request.read()
        fields = [(name.decode(), value.decode("utf-8", "surrogateescape")) for name, value in request.raw_headers]
        line = {"method": request.method, "host": host, "target": request.raw_path, "version": f"HTTP/{request.version[0]}.{request.version[1]}",
                "agent": request.headers.get("User-Agent")}
        try:
            access_key = verifier.claimed(request.method, request.raw_path, fields)[1].partition("/")[0]
            found = verifier.verify(request.method, request.raw_path, fields, content, self.others.get(access_key, self.keys))
            if SERVICES.get(host) != found["service"] or found["region"] != REGION:
                raise verifier.Refused("InvalidSignatureException", f"Credential should be scoped to another service: {found['service']}/{found['region']}")
            line |= {"signed": "SigV4a" if found["algorithm"] == verifier.V4A else found["how"], "payload": "absent" if found["implied"] else found["payload"]}
            response = await getattr(self, found["service"], self.seen)(request, content, found, fields)
        except Exception as error:
            # Whatever it was: the client is told, and so is who reads the log.
            code = getattr(error, "code", "ValidationException")
            line["refused"] = str(error)
            response = self.refusal(host, code, getattr(error, "text", repr(error)))
        line["status"] = response.status
        self.log.write(json.dumps(line) + "\n")
        self.log.flush()
        return response

    def refusal(self, host, code, text):
        if host == "sts.test":
            content = f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{escape(text)}</Message></Error><RequestId>x</RequestId></ErrorResponse>"
            return web.Response(status=403, body=content.encode(), content_type="text/xml")
        return web.Response(status=403, body=json.dumps({"__type": code, "message": text}).encode(), headers={"Content-Type": "application/x-amz-json-1.0", "x-amzn-ErrorType": code})

    def reply(self, content, kind="application/x-amz-json-1.0", status=200, **more):
        body = json.dumps(content).encode()
        return web.Response(status=status, body=body, headers={"Content-Type": kind, "x-amz-crc32": str(binascii.crc32(body)), **more})

    async def dynamodb(self, request, content, found, fields):
        asked = json.loads(content)
        operation = request.headers["X-Amz-Target"].partition(".")[2]
        if operation == "PutItem":
            self.items[asked["TableName"], json.dumps(asked["Item"]["id"])] = asked["Item"]
            return self.reply({})
        if operation == "GetItem":
            item = self.items.get((asked["TableName"], json.dumps(asked["Key"]["id"])))
            return self.reply({"Item": item} if item else {})
        return self.reply({"__type": "com.amazonaws.dynamodb.v20120810#ResourceNotFoundException", "message": "no such operation here"}, status=400)

    async def sts(self, request, content, found, fields):
        asked = parse_qs((content.decode() if content else request.raw_path.partition("?")[2]))
        if asked.get("Action") == ["AssumeRole"]:
            return self.assumed()
        if asked.get("Action") != ["GetCallerIdentity"]:
            return self.refusal("sts.test", "InvalidAction", "no such action here")
        body = ('<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult><Arn>arn:aws:sts::123456789012:assumed-role/judge/alice</Arn>'
                "<UserId>AROAJUDGE:alice</UserId><Account>123456789012</Account></GetCallerIdentityResult><ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></GetCallerIdentityResponse>")
        return web.Response(body=body.encode(), content_type="text/xml")

    def assumed(self):
        keys = fresh_keys()
        self.others[keys["access_key"]] = keys
        for part in keys.values():
            self.minted.write(part + "\n")
        self.minted.flush()
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
        body = ('<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><AssumedRoleUser><AssumedRoleId>AROAJUDGE:alice</AssumedRoleId>'
                "<Arn>arn:aws:sts::123456789012:assumed-role/judge/alice</Arn></AssumedRoleUser>"
                f"<Credentials><AccessKeyId>{keys['access_key']}</AccessKeyId><SecretAccessKey>{keys['secret_key']}</SecretAccessKey>"
                f"<SessionToken>{keys['session_token']}</SessionToken><Expiration>{until}</Expiration></Credentials></AssumeRoleResult>"
                "<ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></AssumeRoleResponse>")
        return web.Response(body=body.encode(), content_type="text/xml")

    async def sqs(self, request, content, found, fields):
        if "X-Amz-Target" not in request.headers:
            return self.sqs_query(parse_qs(content.decode()))
        asked = json.loads(content)
        operation = request.headers["X-Amz-Target"].partition(".")[2]
        if operation == "SendMessage":
            return self.reply(self.sent(asked["MessageBody"]))
        if operation == "ReceiveMessage":
            return self.reply({"Messages": [self.queue.pop(0)]} if self.queue else {})
        raise verifier.Refused("InvalidAction", operation)

    def sent(self, text):
        digest, name = hashlib.md5(text.encode()).hexdigest(), str(uuid.uuid4())
        self.queue.append({"MessageId": name, "ReceiptHandle": name, "Body": text, "MD5OfBody": digest})
        return {"MessageId": name, "MD5OfMessageBody": digest}

    def sqs_query(self, asked):
        """The XML that clients before 2023 speak."""
        action = asked["Action"][0]
        if action == "SendMessage":
            parts = "".join(f"<{name}>{value}</{name}>" for name, value in self.sent(asked["MessageBody"][0]).items())
        else:
            message = self.queue.pop(0) if self.queue else None
            parts = "<Message>" + "".join(f"<{name}>{escape(value)}</{name}>" for name, value in message.items()) + "</Message>" if message else ""
        body = f"<{action}Response><{action}Result>{parts}</{action}Result><ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></{action}Response>"
        return web.Response(body=body.encode(), content_type="text/xml")

    async def bedrock(self, request, content, found, fields):
        path, asked = request.raw_path, json.loads(content)
        if path.endswith("/invoke"):
            return self.reply({"completion": "echo " + asked["prompt"]}, "application/json", **{"X-Amzn-Bedrock-Content-Type": "application/json"})
        if not path.endswith("-stream"):
            raise verifier.Refused("UnknownOperationException", path)
        response = web.StreamResponse(headers={"Content-Type": "application/vnd.amazon.eventstream", "X-Amzn-Bedrock-Content-Type": "application/json"})
        await response.prepare(request)
        for message in self.events(path, asked):
            await response.write(message)
            # Slow on purpose: a client can tell a stream from an answer that was held back and sent at once.
            await asyncio.sleep(0.03)
        await response.write_eof()
        return response

    def events(self, path, asked):
        if path.endswith("/invoke-with-response-stream"):
            parts = [{"bytes": binascii.b2a_base64(json.dumps({"n": n}).encode(), newline=False).decode()} for n in range(8)]
            return [event("chunk", part) for part in parts]
        text = asked["messages"][0]["content"][0]["text"]
        return [event("messageStart", {"role": "assistant"}),
                *(event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": word}}) for word in text.split(" ")),
                event("contentBlockStop", {"contentBlockIndex": 0}), event("messageStop", {"stopReason": "end_turn"})]

    async def secretsmanager(self, request, content, found, fields):
        return self.reply({"Name": "judge", "SecretString": "what no client may read through the gateway"}, "application/x-amz-json-1.1")

    async def seen(self, request, content, found, fields):
        """What arrived, for whoever compares."""
        seen = {"method": request.method, "target": request.raw_path, "fields": fields, "signed": found["signed"], "content": hashlib.sha256(content).hexdigest()}
        return self.reply(seen, "application/json")


def azure(certs, program):
    """Microsoft's emulator, which verifies account keys and signed URLs; and where its services are."""
    account = "judge" + "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(19))
    key = base64.b64encode(secrets.token_bytes(64)).decode()
    services = ("blob", "queue", "table")
    ports = {service: free_port() for service in services}
    subprocess.run([HERE.parents[1] / "certs" / "make", certs, *(f"{account}.{service}.test" for service in services)], check=True)
    command = ["node", program, "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--cert", certs / "leaf.pem", "--key", certs / "leaf.key"]
    for service in services:
        command += [f"--{service}Port", str(ports[service])]
    process = subprocess.Popen(command, env=os.environ | {"AZURITE_ACCOUNTS": f"{account}:{key}"}, stdout=subprocess.PIPE, text=True)
    listening = 0
    while listening < len(services):
        line = process.stdout.readline()
        if not line:
            sys.exit("the Azure origin did not start")
        listening += "successfully listening" in line
    # Whatever else it says, nobody waits for.
    threading.Thread(target=process.stdout.read, daemon=True).start()
    hosts = {f"{account}.{service}.test": port for service, port in ports.items()}
    return process, {"account": account, "key": key, "ca": str(certs / "ca.pem"), "hosts": hosts}


def recipes(directory, python):
    """The services that are signed by recipes, with SDKs of their own; and where they are."""
    process = subprocess.Popen([python, HERE / "recipes.py", "--dir", directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    if not line:
        sys.exit("the origin of the recipes did not start")
    return process, json.loads(line)


async def serve(directory, program, azurite, python):
    certs = directory / "certs"
    names = ["s3.test", "*.s3.test", "transcribe.test", *SERVICES]
    subprocess.run([HERE.parents[1] / "certs" / "make", certs, *names], check=True)
    keys, ports = fresh_keys(), {"s3": free_port(), "services": free_port(), "transcribe": free_port()}
    log = (directory / "services.log").open("w")
    minted = (directory / "minted").open("w")
    settings = directory / "s3-origin.json"
    settings.touch(mode=0o600)
    settings.write_text(json.dumps(keys | {
        "listen": f"127.0.0.1:{ports['s3']}", "domain": f"s3.test:{ports['s3']}", "region": REGION, "certificate": str(certs / "leaf.pem"), "key": str(certs / "leaf.key"),
        "directory": str(directory / "objects"), "log": str(directory / "s3.log"), "alpn": ["http/1.1"], "buckets": [BUCKET, "second"],
    }))
    s3 = subprocess.Popen([program, settings], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if s3.stdout.readline() != "ready\n":
        sys.exit("the S3 origin did not start")
    emulator, clouds = azure(directory / "azure", azurite)
    others, schemes = recipes(directory / "recipes", python)
    application = web.Application(client_max_size=64 << 20)
    application.router.add_route("*", "/{rest:.*}", Services(keys, log, minted).answer)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certs / "leaf.pem", certs / "leaf.key")
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", ports["services"], ssl_context=context).start()
    hosts = {"s3.test": ports["s3"], "transcribe.test": ports["transcribe"]} | {name: ports["services"] for name in SERVICES}
    streams = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    streams.load_cert_chain(certs / "leaf.pem", certs / "leaf.key")
    streams.set_alpn_protocols(["h2"])
    tell = lambda line: (log.write(json.dumps(line) + "\n"), log.flush())
    transcribe = await eventstream.serve(ports["transcribe"], streams, keys, "transcribe", tell)
    print(json.dumps({
        "ca": str(certs / "ca.pem"), "keys": keys, "region": REGION, "bucket": BUCKET, "hosts": hosts, "services": {"s3.test": "s3", "transcribe.test": "transcribe"} | SERVICES,
        "azure": clouds, "recipes": schemes, "minted": str(directory / "minted"), "logs": [str(directory / "s3.log"), str(directory / "services.log"), schemes["log"]],
    }), flush=True)
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.run_in_executor(None, lambda: (sys.stdin.read(), loop.call_soon_threadsafe(stop.set)))
    await stop.wait()
    emulator.terminate()
    emulator.wait(20)
    for process in (s3, others):
        process.stdin.close()
        process.wait(20)
    transcribe.close()
    await runner.cleanup()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--s3-origin", required=True)
    parser.add_argument("--azurite", required=True)
    parser.add_argument("--recipes", required=True)
    arguments = parser.parse_args()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    asyncio.run(serve(arguments.dir.resolve(), arguments.s3_origin, arguments.azurite, arguments.recipes))


if __name__ == "__main__":
    main()
