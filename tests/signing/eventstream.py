"""An origin of signed event streams over HTTP/2, as Amazon Transcribe is one: each message must be signed on from the one before.

Amazon Transcribe Developer Guide, "Setting up an HTTP/2 stream", and https://smithy.io/2.0/aws/amazon-eventstream.html
"""

import asyncio, binascii, hashlib, hmac, json, struct
from datetime import datetime, timezone

import h2.config, h2.connection, h2.events, hyperframe.frame

import verifier


def header(name, kind, value):
    return bytes([len(name)]) + name.encode() + bytes([kind]) + value


def message(headers, payload):
    """Headers are text."""
    fields = b"".join(header(name, 7, struct.pack(">H", len(value)) + value.encode()) for name, value in headers.items())
    prelude = struct.pack(">II", len(fields) + len(payload) + 16, len(fields))
    whole = prelude + struct.pack(">I", binascii.crc32(prelude)) + fields + payload
    return whole + struct.pack(">I", binascii.crc32(whole))


def event(kind, content):
    return message({":message-type": "event", ":event-type": kind, ":content-type": "application/json"}, json.dumps(content).encode())


def parsed(whole):
    """Headers as (kind, bytes), and the payload; the checksums must be right."""
    length, size = struct.unpack(">II", whole[:8])
    if binascii.crc32(whole[:8]) != struct.unpack(">I", whole[8:12])[0] or binascii.crc32(whole[:-4]) != struct.unpack(">I", whole[-4:])[0]:
        raise verifier.Refused("SerializationException", "a message's checksum is wrong")
    found, rest = {}, whole[12 : 12 + size]
    while rest:
        name, rest = rest[1 : 1 + rest[0]].decode(), rest[1 + rest[0] :]
        kind = rest[0]
        long = {8: 8}.get(kind)
        rest = rest[1:]
        if long is None:
            long, rest = struct.unpack(">H", rest[:2])[0], rest[2:]
        found[name], rest = (kind, rest[:long]), rest[long:]
    return found, whole[12 + size : length - 4]


class Stream:
    """One request: its signature is the first of the chain."""

    def __init__(self, fields, keys, service):
        pseudo = {name: value for name, value in fields if name.startswith(":")}
        plain = [(name, value) for name, value in fields if not name.startswith(":")] + [("host", pseudo[":authority"]), (":authority", pseudo[":authority"])]
        self.target = pseudo[":path"]
        self.found = verifier.verify(pseudo[":method"], self.target, plain, None, keys)
        if self.found["service"] != service or self.found["payload"] != "STREAMING-AWS4-HMAC-SHA256-EVENTS":
            raise verifier.Refused("InvalidSignatureException", f"{self.found['service']}, {self.found['payload']}")
        self.previous, self.held, self.ended, self.secret = self.found["seed"], b"", False, keys["secret_key"]
        self.bytes, self.messages = 0, 0

    def push(self, data):
        """Takes content in any cuts, and gives the answers to what became whole."""
        self.held += data
        answers = b""
        while len(self.held) >= 12 and len(self.held) >= (length := struct.unpack(">I", self.held[:4])[0]):
            whole, self.held = self.held[:length], self.held[length:]
            answers += self.one(*parsed(whole))
        return answers

    def one(self, headers, payload):
        if self.ended or set(headers) != {":date", ":chunk-signature"}:
            raise verifier.Refused("BadRequestException", f"no signed message: {sorted(headers)}")
        stamp = datetime.fromtimestamp(struct.unpack(">q", headers[":date"][1])[0] / 1000, timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{stamp[:8]}/{self.found['region']}/{self.found['service']}/aws4_request"
        signed = header(":date", 8, headers[":date"][1])
        text = "\n".join(["AWS4-HMAC-SHA256-PAYLOAD", stamp, scope, self.previous, hashlib.sha256(signed).hexdigest(), hashlib.sha256(payload).hexdigest()])
        key = ("AWS4" + self.secret).encode()
        for part in (*scope.split("/"), text):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        if not hmac.compare_digest(key, headers[":chunk-signature"][1]):
            raise verifier.Refused("InvalidSignatureException", f"message {self.messages} is not signed on from the one before")
        self.previous = key.hex()
        self.messages += 1
        if not payload:
            self.ended = True
            return b""
        inner, audio = parsed(payload)
        self.bytes += len(audio)
        heard = {"Transcript": {"Results": [{"ResultId": inner[":event-type"][1].decode(), "IsPartial": True, "Alternatives": [{"Transcript": str(self.bytes)}]}]}}
        return event("TranscriptEvent", heard)


async def serve(port, context, keys, service, tell):
    """`tell` is given a line for each request."""

    async def connection(reader, writer):
        state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        # `h2` takes a client's GOAWAY for the end of the streams that are open, too; Node sends it at once, and goes on (RFC 9113 §6.8).
        state._frame_dispatch_table[hyperframe.frame.GoAwayFrame] = lambda frame: ([], [])
        state.initiate_connection()
        streams = {}
        try:
            writer.write(state.data_to_send())
            while data := await reader.read(65536):
                for happened in state.receive_data(data):
                    act(state, streams, happened)
                writer.write(state.data_to_send())
                await writer.drain()
        except (OSError, h2.exceptions.ProtocolError):
            pass
        writer.close()

    def act(state, streams, happened):
        number = getattr(happened, "stream_id", None)
        try:
            if isinstance(happened, h2.events.RequestReceived):
                streams[number] = Stream(list(happened.headers), keys, service)
                state.send_headers(number, [(":status", "200"), ("content-type", "application/vnd.amazon.eventstream"), ("x-amzn-request-id", "r")])
            elif isinstance(happened, h2.events.DataReceived):
                state.acknowledge_received_data(happened.flow_controlled_length, number)
                if number in streams and (answer := streams[number].push(happened.data)):
                    state.send_data(number, answer)
            elif isinstance(happened, h2.events.StreamEnded) and number in streams:
                stream = streams.pop(number)
                if not stream.ended:
                    raise verifier.Refused("BadRequestException", "the stream ended without its last message")
                state.end_stream(number)
                tell({"method": "POST", "host": "transcribe.test", "target": stream.target, "version": "HTTP/2", "signed": "header", "payload": stream.found["payload"], "status": 200,
                      "messages": stream.messages})
        except verifier.Refused as error:
            refuse(state, number, number in streams and streams.pop(number), error)

    def refuse(state, number, begun, error):
        tell({"method": "POST", "host": "transcribe.test", "target": "", "version": "HTTP/2", "signed": "header", "payload": "", "status": 403, "refused": str(error)})
        body = json.dumps({"Message": error.text}).encode()
        if begun:
            state.send_data(number, message({":message-type": "exception", ":exception-type": "BadRequestException", ":content-type": "application/json"}, body), end_stream=True)
        else:
            state.send_headers(number, [(":status", "403"), ("x-amzn-errortype", error.code), ("content-type", "application/json")])
            state.send_data(number, body, end_stream=True)

    return await asyncio.start_server(connection, "127.0.0.1", port, ssl=context)
