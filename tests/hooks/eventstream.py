"""AWS' event-stream framing, in which Bedrock sends what others send as server-sent events."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from typing import Any
from zlib import crc32

__all__ = ["CONTENT_TYPE", "chunk", "refusal"]

CONTENT_TYPE = "application/vnd.amazon.eventstream"
_TEXT = 7
"""The type of a header whose value is text."""


def chunk(event: Any) -> bytes:
    """One event of the model, as ``InvokeModelWithResponseStream`` frames it."""
    data = base64.b64encode(json.dumps(event).encode()).decode()
    return _frame({":message-type": "event", ":event-type": "chunk"}, {"bytes": data})


def refusal(kind: str, message: str) -> bytes:
    """An exception in the middle of the stream."""
    return _frame({":message-type": "exception", ":exception-type": kind}, {"message": message})


def _frame(headers: Mapping[str, str], payload: Any) -> bytes:
    named = {**headers, ":content-type": "application/json"}
    head = b"".join(
        struct.pack(f">B{len(name)}sBH{len(text)}s", len(name), name.encode(), _TEXT, len(text), text.encode())
        for name, text in named.items()
    )
    body = json.dumps(payload).encode()
    prelude = struct.pack(">II", 12 + len(head) + len(body) + 4, len(head))
    prelude += struct.pack(">I", crc32(prelude))
    message = prelude + head + body
    return message + struct.pack(">I", crc32(message))
