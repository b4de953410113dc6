"""A provider by script: OpenAI-shaped, on a free port of loopback, in the event loop of whoever starts it.

Everything that it is sent goes to a listener, byte for byte, together with the trace id. IBEX passes a client's `traceparent` on, so a load
test knows which of its requests a call belongs to without writing anything into the conversation.
"""

import asyncio
import json
import time
from dataclasses import dataclass

from wire import read_message

KEY = "sk-load-test-provider"


@dataclass(slots=True)
class Sent:
    """One call of the provider."""
    at: float
    trace: str
    authorization: str
    body: bytes


def reply_to(trace):
    """What the provider answers to the request with this trace id."""
    return f"Noted under {trace[:8]}."


def trace_of(headers):
    """The trace id of a `traceparent`, or an empty text."""
    parts = headers.get("traceparent", "").split("-")
    return parts[1] if len(parts) == 4 else ""


class Provider:
    """Answers every chat request after `delay_s`. `listener` is called with a `Sent` for each, before the answer."""

    def __init__(self, listener, delay_s=0.0):
        self.listener = listener
        self.delay_s = delay_s
        self.calls = 0
        # Calls with anything but the provider's own key; a client's credential must never arrive here.
        self.strange_keys = 0

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=4096)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *_):
        self.server.close()

    async def _serve(self, reader, writer):
        try:
            while message := await read_message(reader):
                await self._answer(message, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, message, writer):
        _, headers, body = message
        sent = Sent(time.monotonic(), trace_of(headers), headers.get("authorization", ""), body)
        self.calls += 1
        self.strange_keys += sent.authorization != f"Bearer {KEY}"
        self.listener(sent)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        request = json.loads(body)
        if request.get("stream"):
            self._stream(request, sent, writer)
        else:
            text = json.dumps(completion(request, sent)).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text))
        await writer.drain()

    def _stream(self, request, sent, writer):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for event in [*events(request, sent), b"data: [DONE]\n\n"]:
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))
        writer.write(b"0\r\n\r\n")


def completion(request, sent):
    """A whole answer."""
    tokens = len(sent.body) // 4
    return {
        "id": f"chatcmpl-{sent.trace[:12]}", "object": "chat.completion", "created": 1, "model": request["model"],
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": reply_to(sent.trace)}}],
        "usage": {"prompt_tokens": tokens, "completion_tokens": 6, "total_tokens": tokens + 6},
    }


def events(request, sent):
    """The same answer as server-sent events."""
    for delta, finish in (({"role": "assistant", "content": ""}, None), ({"content": reply_to(sent.trace)}, None), ({}, "stop")):
        chunk = {"id": f"chatcmpl-{sent.trace[:12]}", "object": "chat.completion.chunk", "created": 1, "model": request["model"],
                 "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        yield b"data: " + json.dumps(chunk).encode() + b"\n\n"
