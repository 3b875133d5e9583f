"""Stand in for a pager: take Alertmanager's notifications, print each alert as a person would want it, keep them.

``python pager.py PORT [ADDRESS]``; GET gives every notification so far, with the time it came, as a JSON list.
"""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Pager(BaseHTTPRequestHandler):
    """POST from Alertmanager, GET from whoever wants to know."""

    received: list[dict[str, Any]] = []  # noqa: RUF012 - one list for all requests is the point

    def do_POST(self) -> None:
        """Take one notification."""
        notification = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.received.append({"at": time.time(), **notification})
        for alert in notification["alerts"]:
            print(f"{alert['status'].upper()} {alert['labels']['alertname']}: {alert['annotations'].get('summary')}")
            for link in ("jaeger_url", "tempo_url", "runbook_url"):
                print(f"    {alert['annotations'].get(link)}")
        self.answer(b"{}")

    def do_GET(self) -> None:
        """Tell what came."""
        self.answer(json.dumps(self.received).encode())

    def answer(self, body: bytes) -> None:
        """Send ``body`` with status 200."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print notifications only."""


if __name__ == "__main__":
    ThreadingHTTPServer((sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1", int(sys.argv[1])), Pager).serve_forever()  # noqa: PLR2004
