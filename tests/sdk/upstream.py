"""A scripted OpenAI-shaped provider on loopback. The model's name picks the behaviour; every request is kept for the tests to read.

Tests read the record over HTTP (`GET /received`), so that those in Node see the same as those in Python.
"""

import base64
import json
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "sk-provider-7f3a91"

CHAT, TOOLS = "scripted-chat", "scripted-tools"
MISSING, LIMITED, KEY_REFUSED = "scripted-missing", "scripted-limited", "scripted-key-refused"
ERROR_EVENT, CUT = "scripted-error-event", "scripted-cut"
EMBEDDING = "scripted-embedding"
LISTED = [CHAT, TOOLS, EMBEDDING]

USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
VECTOR = [0.5, -0.25, 1.0]

REFUSALS = {
    MISSING: (404, {}, {"message": "The model does not exist", "type": "invalid_request_error", "param": "model", "code": "model_not_found"}),
    LIMITED: (429, {"Retry-After": "7"}, {"message": "Slow down", "type": "requests", "param": None, "code": "rate_limit_exceeded"}),
    KEY_REFUSED: (401, {}, {"message": f"Incorrect API key provided: {KEY}", "type": "invalid_request_error", "param": None, "code": "invalid_api_key"}),
}


def last_text(messages, role):
    """The text of the last message of `role`, parts joined."""
    for message in reversed(messages):
        if message["role"] == role:
            content = message["content"]
            return content if isinstance(content, str) else " ".join(part["text"] for part in content if part["type"] == "text")
    return ""


def reply_to(body):
    """The assistant message and the finish reason for a chat request."""
    messages = body["messages"]
    if body["model"] == TOOLS and messages[-1]["role"] != "tool":
        function = body["tools"][0]["function"]["name"]
        call = {"id": "call_bus_1", "type": "function", "function": {"name": function, "arguments": '{"stop": "Harlow Mill"}'}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
    if messages[-1]["role"] == "tool":
        return {"role": "assistant", "content": f"The tool says: {last_text(messages, 'tool')}"}, "stop"
    return {"role": "assistant", "content": f"You said: {last_text(messages, 'user')}"}, "stop"


def deltas_of(message):
    """A message cut up as a stream sends it: the role, then the text word by word or the tool call in two pieces."""
    yield {"role": "assistant", "content": "" if message["content"] is not None else None}
    for call in message.get("tool_calls", []):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        yield {"tool_calls": [{"index": 0, "id": call["id"], "type": "function", "function": {"name": name, "arguments": ""}}]}
        for piece in (arguments[:5], arguments[5:]):
            yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
    for word in (message["content"] or "").split(" "):
        if word:
            yield {"content": word + " "}


class Upstream:
    """The running provider; a context manager."""

    def __init__(self):
        self.received = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"upstream": self}))
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.base_url = self.url + "/v1"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


class Handler(BaseHTTPRequestHandler):
    """One connection; `upstream` is set by the subclass that `Upstream` makes."""

    protocol_version = "HTTP/1.1"
    upstream: Upstream

    def log_message(self, *_):
        """The record is the log."""

    def do_GET(self):
        if self.path == "/received":
            self.send_json(200, self.upstream.received)
        elif self.admitted(b""):
            if self.path == "/v1/models":
                self.send_json(200, {"object": "list", "data": [self.model(name) for name in LISTED]})
            elif self.path.removeprefix("/v1/models/") in LISTED:
                self.send_json(200, self.model(self.path.removeprefix("/v1/models/")))
            else:
                self.refuse(404, {}, {"message": "Not here", "type": "invalid_request_error", "param": None, "code": "not_found"})

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self.admitted(raw):
            return
        body = json.loads(raw)
        answer = {"/v1/chat/completions": self.chat, "/v1/completions": self.completion, "/v1/embeddings": self.embeddings}.get(self.path)
        if body["model"] in REFUSALS:
            self.refuse(*REFUSALS[body["model"]])
        elif answer is None:
            self.refuse(404, {}, {"message": "Not here", "type": "invalid_request_error", "param": None, "code": "not_found"})
        else:
            answer(body)

    def admitted(self, raw):
        """Keeps the request, and refuses any key but the provider's own: the client's credential must never arrive here."""
        self.upstream.received.append({
            "method": self.command,
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": raw.decode(),
        })
        if self.headers.get("Authorization") == f"Bearer {KEY}":
            return True
        self.refuse(401, {}, {"message": "Unknown key", "type": "invalid_request_error", "param": None, "code": "invalid_api_key"})
        return False

    def chat(self, body):
        message, finish = reply_to(body)
        if not body.get("stream"):
            self.send_json(200, {
                **self.head(body, "chat.completion"),
                "choices": [{"index": 0, "message": {"refusal": None, **message}, "finish_reason": finish, "logprobs": None}],
                "usage": USAGE,
            })
            return
        self.open_stream()
        for count, delta in enumerate(deltas_of(message)):
            self.event(self.chunk(body, delta, None))
            if count == 1 and body["model"] == ERROR_EVENT:
                self.event({"error": {"message": "The model fell over", "type": "server_error", "param": None, "code": "model_failure"}})
                self.piece(b"")
                return
            if count == 1 and body["model"] == CUT:
                self.reset()
                return
        self.event(self.chunk(body, {}, finish))
        if (body.get("stream_options") or {}).get("include_usage"):
            self.event({**self.head(body, "chat.completion.chunk"), "choices": [], "usage": USAGE})
        self.piece(b"data: [DONE]\n\n")
        self.piece(b"")

    def completion(self, body):
        choice = {"index": 0, "text": f"After that: {body['prompt']}", "finish_reason": "stop", "logprobs": None}
        self.send_json(200, {**self.head(body, "text_completion"), "choices": [choice], "usage": USAGE})

    def embeddings(self, body):
        packed = base64.b64encode(struct.pack(f"<{len(VECTOR)}f", *VECTOR)).decode()
        vector = packed if body.get("encoding_format") == "base64" else VECTOR
        inputs = body["input"] if isinstance(body["input"], list) else [body["input"]]
        self.send_json(200, {
            "object": "list",
            "model": body["model"],
            "data": [{"object": "embedding", "index": index, "embedding": vector} for index in range(len(inputs))],
            "usage": {"prompt_tokens": 3, "total_tokens": 3},
        })

    def model(self, name):
        return {"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "harlow-labs"}

    def head(self, body, kind):
        return {"id": f"scripted-{len(self.upstream.received)}", "object": kind, "created": 1_700_000_000, "model": body["model"]}

    def chunk(self, body, delta, finish):
        return {**self.head(body, "chat.completion.chunk"), "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]}

    def refuse(self, status, headers, error):
        self.send_json(status, {"error": error}, headers)

    def send_json(self, status, value, headers=None):
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def open_stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def event(self, value):
        self.piece(b"data: " + json.dumps(value).encode() + b"\n\n")

    def piece(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def reset(self):
        """Ends the connection in the middle of the answer."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
