"""ClickHouse's real engine (chdb) behind ClickHouse's HTTP interface: as much of it as the Collector's exporter uses.

``python clickhouse_server.py PORT``: no server package of ClickHouse is to be had from the usual registries, the engine
is. Requests are run one at a time. Uncompressed bodies only (``?compress=none`` in the client's address).
"""

from __future__ import annotations

import struct
import sys
import tempfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from chdb.session import Session

PARAMETER = "param_"


def string(text: str) -> bytes:
    """A string in ClickHouse's Native format."""
    assert len(text) < 128
    return bytes([len(text)]) + text.encode()


def greeting(version: str) -> bytes:
    """The answer to the Go client's first query, in the newest Native revision, which the engine alone cannot write.

    It states revision 0, so that everything after it is read in the plain Native format, which it can.
    """
    columns = [
        ("displayName()", "String", string("chdb")),
        ("version()", "String", string(version)),
        ("revision()", "UInt32", struct.pack("<I", 0)),
        ("timezone()", "String", string("UTC")),
    ]
    block_info = bytes([1, 0, 2]) + struct.pack("<i", -1) + bytes([0])
    plain_serialization = bytes([0])
    body = b"".join(string(name) + string(kind) + plain_serialization + data for name, kind, data in columns)
    return block_info + bytes([len(columns), 1]) + body


class Handler(BaseHTTPRequestHandler):
    """Queries come as a body, or as ``query`` with the data to insert as the body."""

    session: Session
    folder: Path

    def do_GET(self) -> None:
        self.answer(200, b"Ok.\n")

    def do_POST(self) -> None:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        try:
            self.answer(200, self.run(asked, self.body()))
        except Exception as error:  # noqa: BLE001 - the client is told, as ClickHouse tells it
            self.answer(500, str(error).encode())

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def run(self, asked: dict[str, str], body: bytes) -> bytes:
        parameters = {
            name.removeprefix(PARAMETER): value for name, value in asked.items() if name.startswith(PARAMETER)
        }
        query = asked.get("query")
        if query is None:
            query = body.decode()
        elif body:
            data = self.folder / "insert.native"
            data.write_bytes(body)
            into = query.rpartition(" FORMAT ")[0].rpartition(" VALUES")[0] or query.rpartition(" FORMAT ")[0]
            query = f"{into} SELECT * FROM file('{data}', Native)"
        if "displayName()" in query:
            return greeting(str(self.session.query("SELECT version()", "TSV")).strip())
        return self.session.query(query, asked.get("default_format", "TSV"), params=parameters).bytes()

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Handler.folder = Path(folder)
        Handler.session = Session(f"{folder}/data")
        HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()


if __name__ == "__main__":
    main()
