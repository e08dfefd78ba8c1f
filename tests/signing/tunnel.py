"""A proxy that only connects: every name is this machine. It judges nothing, ends no TLS, and stands where the gateway will."""

import asyncio, threading


class Tunnel:
    """`ports`: where a name is that a client asks for at another port."""

    def __init__(self, ports):
        self.ports = ports

    def __enter__(self):
        ready, self.open = threading.Event(), set()
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.work, args=(ready,), daemon=True).start()
        ready.wait(10)
        return f"http://127.0.0.1:{self.port}"

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(self.loop)])
        self.loop.call_soon_threadsafe(self.loop.stop)

    def work(self, ready):
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self.connect, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        self.loop.run_forever()
        # What was cancelled ends here.
        self.loop.run_until_complete(asyncio.sleep(0))

    async def connect(self, reader, writer):
        # The loop itself keeps none of its tasks alive.
        self.open.add(asyncio.current_task())
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, target, _ = head.split(" ", 2)
            if method != "CONNECT":
                writer.close()
                return
            host, _, port = target.rpartition(":")
            there = await asyncio.open_connection("127.0.0.1", self.ports.get(host, int(port)))
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.close()


async def copy(reader, writer):
    try:
        while piece := await reader.read(1 << 18):
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
    except (OSError, RuntimeError):
        writer.close()
