"""Ends in the way that it is told to, with a sync and an async stream of each API that it has not read to the end.

python exits.py URL WAY
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import otel_toolcalls
from tests.hooks.apis import APIS
from tests.hooks.apps.telemetry import provider

url, way = sys.argv[1:]
otel_toolcalls.instrument(tracer_provider=provider(batch=True), ledger="none")
kept = []


async def read() -> None:
    for api in APIS:
        client = api.async_client(url)
        stream = await api.create(client)
        for _ in range(api.until_open()):
            await stream.__anext__()
        kept.append((client, stream))


loop = asyncio.new_event_loop()
loop.run_until_complete(read())
for api in APIS:
    stream = api.create(api.client(url))
    for _ in range(api.until_open()):
        next(stream)
    kept.append((None, stream))

if way == "sigterm":

    def stop(signum: int, frame: object) -> None:
        otel_toolcalls.shutdown()
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
elif way == "exception":
    raise KeyError("the app's own")
sys.exit(3)
