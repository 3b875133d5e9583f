"""Forks while it reads a stream of each API; the child reads new ones, the parent goes on with its own.

python forks.py URL
"""

from __future__ import annotations

import gc
import os
import sys

import otel_toolcalls
from tests.hooks.apis import APIS
from tests.hooks.apps.telemetry import provider

(url,) = sys.argv[1:]
otel_toolcalls.instrument(tracer_provider=provider(batch=True), ledger="none")

streams = [api.create(api.client(url)) for api in APIS]
for api, stream in zip(APIS, streams, strict=True):
    for _ in range(api.until_open()):
        next(stream)

child = os.fork()
if child == 0:
    del stream
    streams.clear()
    gc.collect()
    for api in APIS:
        for _ in api.create(api.client(url)):
            pass
    sys.exit(0)
_, status = os.waitpid(child, 0)
for stream in streams:
    for _ in stream:
        pass
sys.stdout.write(f"{child}\n")
sys.exit(os.waitstatus_to_exitcode(status))
