"""A provider by script as a process of its own, for loads: fast, on one core, told by the model's name what to do.

    load-chat              answers at once
    load-slow-MS           answers after so many milliseconds
    load-stream-N-MS       N chunks of a stream, so many milliseconds apart; each says when it was written
    load-fail-STATUS       an error of that status
    load-cut-N             a stream that breaks off after N chunks

IBEX passes the model's name on, so no header and no state of the provider decides what a request gets. It reads a body only as far as the
name and counts the rest. `GET /stats` tells what it saw. `upstream.py` is the other provider: it keeps every call, for tests that compare bytes.
"""

import argparse
import asyncio
import gc
import json
import re
import socket
import subprocess
import sys
import time

MODEL = re.compile(rb'"model"\s*:\s*"load-([a-z]+)((?:-\d+)*)"')
LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.I)
# How much of a body is looked at. The requests of these tests name their model first.
LOOK = 1024

ANSWER = json.dumps({
    "id": "chatcmpl-load", "object": "chat.completion", "created": 1, "model": "load",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "It is kept at the shelf that you asked for. " * 6}}],
    "usage": {"prompt_tokens": 200, "completion_tokens": 60, "total_tokens": 260}}).encode()
EVENT = (b'data: {"id":"chatcmpl-load","object":"chat.completion.chunk","created":1,"model":"load","choices":[{"index":0,"delta":'
         b'{"content":"@%019d@ "},"finish_reason":null}]}\n\n')
LAST = (b'data: {"id":"chatcmpl-load","object":"chat.completion.chunk","created":1,"model":"load","choices":[{"index":0,"delta":{},'
        b'"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')


def whole(status, body, more=b""):
    """An answer in one piece."""
    return b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\n%scontent-length: %d\r\n\r\n%s" % (status, more, len(body), body)


def chunk(data):
    """A piece of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
STREAM_END = chunk(LAST) + b"0\r\n\r\n"
WHOLE_ANSWER = whole(200, ANSWER)


class Counts:
    """What was seen so far, and what is open now."""

    def __init__(self):
        self.calls = self.bytes = self.open = self.most_open = self.left = 0
        self.connections = 0

    def begun(self):
        """An answer that takes time."""
        self.open += 1
        self.most_open = max(self.most_open, self.open)


class Call(asyncio.Protocol):
    """One connection; one call after the other."""

    def __init__(self, counts):
        self.counts = counts
        self.loop = asyncio.get_running_loop()
        self.buffer = b""
        self.left = 0
        self.look = None
        self.timer = None
        self.transport = None

    def connection_made(self, transport):
        """Small pieces leave at once."""
        self.transport = transport
        self.counts.connections += 1
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, _):
        """Whoever leaves while an answer is under way is counted."""
        self.counts.connections -= 1
        if self.timer:
            self.timer.cancel()
            self.timer = None
            self.counts.open -= 1
            self.counts.left += 1

    def data_received(self, data):
        """Reads heads, and counts bodies off."""
        if self.left:
            data = self._body(data)
        if not data:
            return
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head, rest = self.buffer[:end], self.buffer[end + 4:]
            length = LENGTH.search(head)
            self.buffer = b""
            if length is None or length[1] == b"0":
                self._without_body(head)
                self.buffer = rest
                continue
            self.left = int(length[1])
            self.look = b""
            self.buffer = self._body(rest)

    def _body(self, data):
        """Takes what belongs to the body -> what follows it."""
        if len(self.look) < LOOK:
            self.look += data[:LOOK]
        taken = min(self.left, len(data))
        self.left -= taken
        self.counts.bytes += taken
        if not self.left:
            self._answer()
        return data[taken:]

    def _without_body(self, head):
        if head.startswith(b"GET /stats"):
            self.transport.write(whole(200, json.dumps(vars(self.counts)).encode()))
        else:
            # Without a length the body would have to be read in chunks; nothing that is tested here sends one so.
            self.transport.write(whole(411, b"{}"))

    def _answer(self):
        self.counts.calls += 1
        name = MODEL.search(self.look)
        kind, numbers = (name[1], [int(n) for n in name[2].split(b"-")[1:]]) if name else (b"chat", [])
        if kind == b"slow":
            self._later(numbers[0] / 1000, self._slow)
        elif kind == b"stream":
            self.transport.write(STREAM_HEAD)
            self._stream(numbers[0], numbers[1] / 1000, self.loop.time(), cut=False)
        elif kind == b"cut":
            self.transport.write(STREAM_HEAD)
            self._stream(numbers[0], 0.005, self.loop.time(), cut=True)
        elif kind == b"fail":
            more = b"retry-after: 1\r\n" if numbers[0] == 429 else b""
            self.transport.write(whole(numbers[0], b'{"error":{"message":"by script","type":"server_error","code":"scripted"}}', more))
        else:
            self.transport.write(WHOLE_ANSWER)

    def _later(self, seconds, then, *arguments):
        """Once more within the answer that is under way."""
        if self.timer is None:
            self.counts.begun()
        self.timer = self.loop.call_later(seconds, then, *arguments)

    def _done(self):
        if self.timer:
            self.timer = None
            self.counts.open -= 1

    def _slow(self):
        self._done()
        self.transport.write(WHOLE_ANSWER)

    def _stream(self, left, every, due, cut):
        if left:
            self.transport.write(chunk(EVENT % time.monotonic_ns()))
            due += every
            self._later(max(due - self.loop.time(), 0), self._stream, left - 1, every, due, cut)
            return
        self._done()
        if cut:
            self.transport.abort()
        else:
            self.transport.write(STREAM_END)


class Process:
    """The provider, started by a test: on a core, on a port that stays the same over restarts."""

    def __init__(self, cores, port=0):
        self.cores, self.port = cores, port
        self.process = None

    def start(self):
        """It takes connections when this returns."""
        self._spawn()
        return self._started()

    async def start_again(self):
        """The same while the event loop goes on."""
        self._spawn()
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self.process.stdout, told.set)
        try:
            await told.wait()
        finally:
            loop.remove_reader(self.process.stdout)
        self._started()

    def _spawn(self):
        command = self.cores.command(self.cores.provider, ["setpriv", "--pdeathsig", "KILL", sys.executable, __file__, "--port", str(self.port)])
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

    def _started(self):
        told = self.process.stdout.readline()
        if not told:
            raise SystemExit("the provider does not start")
        self.port = int(told)
        return self

    @property
    def url(self):
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    def stop(self):
        """Ends it at once; what was under way breaks."""
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self.process = None


async def serve(port):
    """Until it is killed."""
    counts = Counts()
    server = await asyncio.get_running_loop().create_server(lambda: Call(counts), "127.0.0.1", port, backlog=8192)
    print(server.sockets[0].getsockname()[1], flush=True)
    # Nothing here forms cycles, and a collection would be a pause in everybody's latency.
    gc.freeze()
    gc.disable()
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0, metavar="N", help="[default: any free one]")
    asyncio.run(serve(parser.parse_args().port))
