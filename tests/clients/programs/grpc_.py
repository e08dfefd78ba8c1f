"""grpcio: unary, both one-way streams, and a conversation; with trailers."""

import os

import grpc

from verdict import GRPC, verdict


def check():
    target = GRPC.removeprefix("https://")
    metadata = [("authorization", "Bearer " + os.environ["GRPC_TOKEN"])]
    plain = dict(request_serializer=None, response_deserializer=None)
    with grpc.secure_channel(target, grpc.ssl_channel_credentials()) as channel:
        call = dict(metadata=metadata, timeout=20)
        answer, done = channel.unary_unary("/lab.Echo/Unary", **plain).with_call(b"hi", **call)
        assert answer == b"echo hi" and ("lab-count", "1") in done.trailing_metadata(), done.trailing_metadata()
        answer, done = channel.stream_unary("/lab.Echo/Collect", **plain).with_call(iter([b"a", b"b", b"c"]), **call)
        assert answer == b"a,b,c" and ("lab-count", "3") in done.trailing_metadata()
        answers = list(channel.unary_stream("/lab.Echo/Count", **plain)(b"500", **call))
        assert answers == [str(n).encode() for n in range(500)]

        # Each message is sent only after the answer to the one before: a proxy that holds messages back never ends.
        import queue
        waiting = queue.Queue()
        waiting.put(b"0")
        seen = 0
        for answer in channel.stream_stream("/lab.Echo/Chat", **plain)(iter(waiting.get, None), **call):
            assert answer == b"echo %d" % seen, answer
            seen += 1
            waiting.put(b"%d" % seen if seen < 20 else None)
        assert seen == 20, seen

        try:
            channel.unary_unary("/lab.Echo/Nothing", **plain)(b"", **call)
            raise AssertionError("an unknown method was answered")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error.code()


verdict("grpcio", check)
