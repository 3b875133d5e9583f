"""An app without a line of tracing: reads one whole reply of each API.

python plain.py URL
"""

from __future__ import annotations

import sys

from tests.hooks.apis import APIS

(url,) = sys.argv[1:]
for api in APIS:
    with api.client(url) as client:
        for _ in api.create(client):
            pass
