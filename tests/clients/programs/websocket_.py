"""websockets: text, a large binary message, a ping, and a clean close."""

import asyncio, os

import websockets

from verdict import API, verdict


async def check():
    headers = {"Authorization": "Bearer " + os.environ["API_TOKEN"]}
    url = API.replace("https:", "wss:") + "/v1/ws"
    async with websockets.connect(url, additional_headers=headers, max_size=16 << 20) as socket:
        await socket.send("hello")
        assert await socket.recv() == "echo hello"
        large = os.urandom(3_000_000)
        await socket.send(large)
        assert await socket.recv() == large
        await (await socket.ping())
        await socket.close(1000)
        assert socket.close_code == 1000, socket.close_code


verdict("websockets", lambda: asyncio.run(asyncio.wait_for(check(), 60)))
