"""Starts the service with something to look at, then runs a command with its address and tokens in the environment.

    harness.py BINARY COMMAND [ARGUMENT...]

The people and places are invented. One memory is hostile: it tries to be markup.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "sdk"))

import upstream  # noqa: E402
from ibex_process import Ibex, tail  # noqa: E402

HOSTILE = "<img src=x onerror=\"window.hit=1\"><script>window.hit=1</script> is what the label of the lighthouse lamp says."
SHARED = [
    ("factual", "The harbour office at Orrin Point opens at seven and closes at four."),
    ("procedural", "To reserve a berth, send length, draught and arrival to the harbour office the day before."),
    ("behavioral", "Captain Ilsa Verhoeven usually arrives on the evening tide and leaves before noon."),
    ("episodic", "The pontoon C was closed for two weeks in March after the storm broke its chain."),
    ("preference", "Tobias Rank wants every berth confirmation as a text message, never as a letter."),
    ("factual", "The fuel dock sells diesel only; petrol has to be ordered from the village."),
    ("procedural", "Shore power at berths 12 to 20 is switched on by the key that hangs behind the office door."),
    ("factual", "The crane lifts nine tonnes at most, and not when the wind is above six Beaufort."),
    ("episodic", "The ketch Marigold left on the second of May without paying for its last night."),
]
OWN = "Maren Aalto sails the sloop Kittiwake and prefers a berth near the showers."


def chat(ibex, text, session, *, user=None, model="gpt-4o-mini", stream=False, history=(), headers=None):
    """One turn; returns the status."""
    messages = [*history, {"role": "user", "content": text}]
    more = {"X-IBEX-Session-ID": session, **({"X-IBEX-User-ID": user} if user else {}), **(headers or {})}
    body = {"model": model, "messages": messages, "stream": stream}
    if stream:
        body["stream_options"] = {"include_usage": True}
    try:
        return ibex.call("POST", "/v1/chat/completions", body, more)[0]
    except json.JSONDecodeError:
        return 200  # a stream is no JSON


def turns(ibex, session, wanted):
    """Waits until the session's record has this many turns."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        status, found = ibex.call("GET", f"/v1/sessions/{session}")
        if status == 200 and found["turns"] >= wanted and found["latest"][0].get("ms") is not None:
            return
        time.sleep(0.05)
    raise RuntimeError(f"{session} has no {wanted} turns")


def seed(ibex):
    """Memories, a directive, sessions with an epoch that ended, and a few requests that went wrong."""
    ibex.direct("You are the front desk of the harbour at Orrin Point. Answer in one sentence, and name the berth if you know it.")
    for category, content in SHARED:
        ibex.remember(content, category=category)
    ibex.remember(HOSTILE, category="factual")
    ibex.call("POST", "/v1/memories", {"content": "Nils lives in Porto.", "category": "factual", "valid_from": "2026-01-05T00:00:00Z"})
    newer = ibex.remember("Nils lives in Lisbon.", category="factual", valid_from="2026-03-09T00:00:00Z")
    pinned = ibex.remember("Call the lifeboat at once when a mayday is heard, then the harbour master.", category="procedural", pinned=True)
    ibex.call("POST", f"/v1/memories/{pinned}/feedback", {"vote": "useful"})
    ibex.call("POST", "/v1/memories", {"content": OWN, "category": "preference"}, {"X-IBEX-User-ID": "maren-04"})
    gone = ibex.remember("The spare key of the harbour office lies under the blue buoy.", category="factual")

    first = "When does the harbour office open, and where is its spare key?"
    chat(ibex, first, "harbour-desk-7")
    turns(ibex, "harbour-desk-7", 1)
    ibex.call("DELETE", f"/v1/memories/{gone}")
    said = [{"role": "user", "content": first}, {"role": "assistant", "content": "You said: " + first}]
    chat(ibex, "How do I reserve a berth for the Kittiwake?", "harbour-desk-7", history=said, stream=True)
    turns(ibex, "harbour-desk-7", 2)
    chat(ibex, "What does the label of the lighthouse lamp say?", "lamp-2")
    chat(ibex, "Where would I like to lie tonight?", "maren-weekend", user="maren-04")
    chat(ibex, "How much can the crane lift?", "crane-1", model="gpt-4o", headers={"X-IBEX-Skip-Memory": "1"})
    chat(ibex, "Hello?", "desk-9", model=upstream.LIMITED)
    chat(ibex, "Hello?", "desk-9", model=upstream.KEY_REFUSED)
    ibex.call("POST", "/v1/chat/completions", {"model": "gpt-4o-mini", "messages": []})
    ibex.call("GET", "/v1/memories/0192f0c4-77aa-7c10-9b1e-0d5e4c3b2a19")
    return newer


class Traffic(threading.Thread):
    """Chat requests of another agent for as long as the tests run, so that the figures of the process are of something."""

    def __init__(self, ibex):
        super().__init__(daemon=True)
        self.ibex, self.over = ibex, threading.Event()
        run = [ibex.binary, "agent", "create", "traffic", "--json"]
        made = subprocess.run(run, env=ibex.env, cwd=ibex.folder, check=True, stdout=subprocess.PIPE)
        agent = json.loads(made.stdout)["id"]
        self.headers = {"X-IBEX-Agent-ID": agent, "Authorization": f"Bearer {token(ibex, 'chat', bound=False)}"}

    def run(self):
        turn = 0
        while not self.over.wait(0.2 + 0.15 * (turn % 5)):
            turn += 1
            model = upstream.LIMITED if turn % 17 == 0 else upstream.KEY_REFUSED if turn % 29 == 0 else "gpt-4o-mini"
            chat(self.ibex, f"Is berth {turn} free?", f"traffic-{turn % 4}", model=model, stream=turn % 3 == 0, headers=self.headers)


def token(ibex, *permissions, bound=True):
    """A token that may do just this, and is bound to the agent or not."""
    names = [word for name in permissions for word in ("--permission", name)]
    made = subprocess.run([ibex.binary, "token", "create", "--name", "-".join(permissions), *(["--agent", ibex.agent] if bound else []), *names, "--json"],
                          env=ibex.env, cwd=ibex.folder, check=True, stdout=subprocess.PIPE)
    return json.loads(made.stdout)["token"]


def main(binary, command):
    with tempfile.TemporaryDirectory(prefix="ibex-console-") as scratch, upstream.Upstream() as provider:
        folder = pathlib.Path(scratch)
        # A busy machine shall not cut the assembly off.
        patient = {f"IBEX_CONTEXT__{name}_MS": "5000" for name in ("DEADLINE", "DIRECTIVE_TIMEOUT", "HOT_TIMEOUT", "COLD_TIMEOUT")}
        patient["IBEX_CONTEXT__TIMEOUT_MS"] = "6000"
        # Room for some of the memories in the snapshot, so that the others are recalled.
        patient["IBEX_CONTEXT__SNAPSHOT_ITEMS"] = "3"
        with Ibex(binary, folder / "main", provider.base_url, upstream.KEY, patient) as ibex, \
                Ibex(binary, folder / "bare", provider.base_url, upstream.KEY) as bare:
            newer = seed(ibex)
            traffic = Traffic(ibex)
            traffic.start()
            status = subprocess.run(command, check=False, env={
                **os.environ,
                "CONSOLE_URL": ibex.url, "CONSOLE_TOKEN": ibex.token, "CONSOLE_AGENT": ibex.agent, "CONSOLE_ORG": ibex.org,
                "CONSOLE_PLAIN_TOKEN": token(ibex, "chat", "MemoryWrite"), "CONSOLE_BLIND_TOKEN": token(ibex, "ConsoleRead"),
                "CONSOLE_UNBOUND_TOKEN": token(ibex, "ConsoleRead", bound=False),
                "CONSOLE_NEWER": newer, "CONSOLE_HOSTILE": HOSTILE,
                "CONSOLE_BARE_URL": bare.url, "CONSOLE_BARE_TOKEN": bare.token, "CONSOLE_BARE_AGENT": bare.agent,
                "CONSOLE_PROVIDER": provider.url,
            }).returncode
            traffic.over.set()
            traffic.join()
        if status != 0:
            print(f"--- end of the service's log ---\n{tail(ibex.log)}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
