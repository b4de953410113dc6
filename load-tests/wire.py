"""HTTP/1.1 over plain sockets, as little of it as the load tests need: reading messages, and a client that keeps its connections.

A library would do more and cost more; the client shares two processor cores with what it measures.
"""

import asyncio
import json
import time
from dataclasses import dataclass

# A kept connection that was silent for longer is not used again: the server closes it after `server.header_read_timeout_ms` (30 s).
IDLE_LIMIT_S = 20


class NotSent(Exception):
    """No connection could be opened, so the server has seen nothing: another one may be asked."""


class Broken(Exception):
    """The connection ended after the request was sent and before the answer was complete."""


class Hung(Exception):
    """No complete answer in time."""


@dataclass(slots=True)
class Answer:
    """A complete answer, with the moments (monotonic seconds) at which its request began and it had arrived."""
    status: int
    headers: dict
    body: bytes
    began: float
    ended: float

    def json(self):
        """The body, or None if it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    def code(self):
        """The error code, or an empty text."""
        error = (self.json() or {}).get("error") if self.status >= 400 else None
        return str(error.get("code") or "") if isinstance(error, dict) else ""


async def read_message(reader):
    """-> (first line, headers with lower-case names, body), or None if the connection ended before a message began."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as cut:
        if cut.partial:
            raise
        return None
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    if "chunked" in headers.get("transfer-encoding", ""):
        return first, headers, await read_chunks(reader)
    return first, headers, await reader.readexactly(int(headers.get("content-length", 0)))


async def read_chunks(reader):
    """A chunked body."""
    body = bytearray()
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return bytes(body)


class Client:
    """Connections to one port of loopback: as many as there are requests at once, and each is used again."""

    def __init__(self, port):
        self.port = port
        self.idle = []

    async def call(self, method, path, headers, body=b"", limit_s=30.0):
        """One request -> Answer. Raises NotSent, Broken or Hung; nothing is sent twice."""
        began = time.monotonic()
        reader, writer = await self._connection()
        lines = [f"{method} {path} HTTP/1.1", f"host: 127.0.0.1:{self.port}", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        # Ends the connection, not the task: before Python 3.13 a timeout that fires together with the answer cancels what comes next.
        timer = asyncio.get_running_loop().call_later(limit_s, writer.transport.abort)
        keep = False
        try:
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
            message = await read_message(reader)
            if message is None:
                raise Hung if time.monotonic() >= began + limit_s else Broken
            first, answered, body = message
            keep = answered.get("connection", "").lower() != "close"
            return Answer(int(first.split(" ")[1]), answered, body, began, time.monotonic())
        except (OSError, asyncio.IncompleteReadError) as error:
            raise (Hung if time.monotonic() >= began + limit_s else Broken) from error
        finally:
            timer.cancel()
            if keep:
                self.idle.append((time.monotonic(), reader, writer))
            else:
                writer.close()

    async def _connection(self):
        while self.idle:
            since, reader, writer = self.idle.pop()
            if time.monotonic() - since < IDLE_LIMIT_S and not reader.at_eof() and reader.exception() is None:
                return reader, writer
            writer.close()
        try:
            return await asyncio.open_connection("127.0.0.1", self.port)
        except OSError as error:
            raise NotSent from error

    def close(self):
        """Ends the connections that are not in use."""
        for _, _, writer in self.idle:
            writer.close()
        self.idle.clear()
