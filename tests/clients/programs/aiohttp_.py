"""aiohttp: 50 requests at once, and a large download."""

import asyncio, os

import aiohttp
from aiohttp_socks import ProxyConnector

from verdict import API, verdict


async def check():
    headers = {"Authorization": "Bearer " + os.environ["API_TOKEN"]}
    # SOCKS is the connector's business; `rdns` leaves the name to the proxy.
    socks = os.environ.get("ALL_PROXY", "").replace("socks5h:", "socks5:")
    connector = ProxyConnector.from_url(socks, rdns=True) if socks else None
    async with aiohttp.ClientSession(headers=headers, raise_for_status=True, connector=connector, trust_env=not socks) as session:
        async def whoami():
            async with session.get(API + "/v1/whoami") as answer:
                return (await answer.json())["user"]
        assert await asyncio.gather(*(whoami() for _ in range(50))) == ["alice"] * 50
        async with session.get(API + "/v1/download/20000000") as answer:
            size = 0
            async for part in answer.content.iter_chunked(65536):
                size += len(part)
            assert size == 20_000_000, size


verdict("aiohttp", lambda: asyncio.run(asyncio.wait_for(check(), 60)))
