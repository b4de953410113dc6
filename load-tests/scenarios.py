"""What `run.py` sends: for each scenario its requests, its steps, the targets that it makes sense for, and what has to hold at the end."""

import asyncio
import json
import random
from dataclasses import dataclass, field
from typing import Callable

import openloop
import talk
from openloop import Shot

MEMORIES = 1000
WORDS = ("the of and to in is that for on with as this be are by an at from or which you can was has it not memory context agent request token model stream vector "
         "budget policy tenant project session deploy release customer invoice latency schema \"quoted\" café naïve 東京").split()
THINGS = "warehouse carrier invoice delivery customer project deadline meeting harbour window garden bicycle recipe doctor teacher river".split()

# Stand in a template; every request gets numbers of its own, so that no session, question or kept answer serves two.
SERIAL, NOTE = "@SERIAL@", "@NOTE@"

ALL = ("direct", "nginx", "ibex", "ibex-skip")
THROUGH = ("nginx", "ibex", "ibex-skip")
MIB = 1 << 20


def memories(count=MEMORIES):
    """Notes, each about something of its own."""
    return [f"Note {number:04d}: the {THINGS[number % 16]} of {THINGS[number // 16 % 16]} {number} is kept at shelf {number * 7 % 997} near the {THINGS[number // 256 % 16]}."
            for number in range(count)]


# ---------------------------------------------------------------- Requests

def text(chance, size):
    """Words, so many characters of them."""
    told = ""
    while len(told) < size:
        told += chance.choice(WORDS) + " "
    return told[:size]


def tool(chance, number):
    """A function with six parameters."""
    fields = {f"field_{n}": {"type": chance.choice(["string", "number", "boolean"]), "description": text(chance, 60)} for n in range(6)}
    return {"type": "function", "function": {"name": f"tool_{number}", "description": text(chance, 160),
                                             "parameters": {"type": "object", "properties": fields, "required": ["field_0"]}}}


def body(model, size, messages, tools=0, stream=False):
    """A chat request of about so many bytes: a system message, turns, and a question about one of the notes at the end."""
    chance = random.Random(7)
    request = {"model": model, "temperature": 0.2, "max_tokens": 256, **({"stream": True} if stream else {})}
    if tools:
        request["tools"] = [tool(chance, number) for number in range(tools)]
    each = max(8, (size - len(json.dumps(request)) - 40 * messages) // messages)
    roles = ["system", *("assistant" if number % 2 else "user" for number in range(messages - 1))]
    said = [{"role": role, "content": text(chance, each)} for role in roles]
    said[-1]["role"] = "user"
    for first in {1, messages - 1}:
        question = f"Request {SERIAL}: where is note {NOTE} kept, and near which window? "
        said[first]["content"] = question + said[first]["content"][len(question):]
    return json.dumps(request | {"messages": said}, separators=(",", ":"), ensure_ascii=False)


class Maker:
    """Makes requests from a template, each with numbers of its own."""

    def __init__(self, template):
        self.template = template
        self.serial = 0

    def data(self, target, more=None):
        """The bytes of the next one for this target."""
        self.serial += 1
        sent = self.template.replace(SERIAL, f"{self.serial:08d}").replace(NOTE, f"{self.serial * 37 % MEMORIES:04d}").encode()
        lines = ["POST /v1/chat/completions HTTP/1.1", f"host: 127.0.0.1:{target.port}", "content-type: application/json", f"content-length: {len(sent)}"]
        lines += [f"{name}: {value}" for name, value in (target.headers | (more or {})).items()]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + sent


@dataclass
class Scenario:
    """`make(scenario, target, rate, seconds, seed)` gives the shots of a step; `check(target, steps)` what did not hold at the end, in words."""
    name: str
    title: str
    tells: str
    make: Callable
    rates: tuple
    seconds: float
    targets: tuple = ALL
    settings: dict = field(default_factory=dict)
    # What a rate is of. Of streams the time to the first byte is shown.
    unit: str = "requests/s"
    patience_s: float = openloop.PATIENCE_S
    check: Callable = None
    # What a step is before the first measured one; None when a cold start is what is measured.
    warm_up: float = 1.0
    # Not of a rate at all: everything is due at once.
    burst: bool = False
    agents: int = 0
    # What the provider takes by itself, in milliseconds; the page shows what comes on top of it.
    provider_ms: int = 0


# ---------------------------------------------------------------- Chat and streams

def simple(model, size, messages, tools=0, stream=False):
    """The same request over and over."""
    maker = Maker(body(model, size, messages, tools, stream))

    def make(_, target, rate, seconds, seed):
        name = "stream" if stream else "chat"
        return [Shot(maker.data(target), name, stream, due=due) for due in openloop.arrivals(rate, seconds, seed)]
    return make


# ---------------------------------------------------------------- Big bodies

def big(count, size):
    """So many bodies of that size at once; most of each is an image."""
    def make(_, target, rate, seconds, seed):
        image = "data:image/png;base64," + "iVBORw0K" * (size // 8)
        content = [{"type": "text", "text": f"Request {SERIAL}: what is on this picture of note {NOTE}?"}, {"type": "image_url", "image_url": {"url": image}}]
        maker = Maker(json.dumps({"model": "load-slow-100", "messages": [{"role": "user", "content": content}]}, separators=(",", ":")))
        # One buffer serves all of them: the driver's own memory must not be what is at its end.
        return [Shot(data, "big", due=0.001 * number) for data in [maker.data(target)] for number in range(count)]
    return make


def check_big(cap):
    """503 is an answer, an end is not; afterwards everything is as before. `cap` is what ibex may hold of bodies, in bytes."""
    async def check(target, steps):
        faults = []
        for step in steps:
            other = {name: count for name, count in step["outcomes"].items() if not name.startswith(("200", "503"))}
            if other:
                faults.append(f"answers other than 200 and 503: {other}")
            if not step["outcomes"].get("200"):
                faults.append("no body was served")
            if target.name.startswith("ibex"):
                before, peak = step["resident_before_kb"] >> 10, step["resident_peak_kb"] >> 10
                if peak > before + BIG_RESIDENT * (cap >> 20):
                    faults.append(f"resident memory rose from {before} to {peak} MiB; the cap for bodies is {cap >> 20} MiB")
                if not any(name.startswith("503") for name in step["outcomes"]):
                    faults.append("more than the cap was offered, and nothing was refused")
        return faults + await check_rest(target, steps)
    return check


BIG_CAP = 128 * MIB
# A body that is edited and sent on may be there twice for a moment.
BIG_RESIDENT = 2


# ---------------------------------------------------------------- Streams that say little

def idle(count, chunks, every_ms):
    """So many streams that are open at the same time and wait for their provider nearly all of it."""
    def make(_, target, rate, seconds, seed):
        maker = Maker(body(f"load-stream-{chunks}-{every_ms}", 1000, 3, stream=True))
        return [Shot(maker.data(target), "stream", True, due=number / IDLE_RATE) for number in range(count)]
    return make


# Streams opened in a second.
IDLE_RATE = 500
# What all of them together may take of memory, in MiB.
IDLE_MOST = 400


async def check_idle(target, steps):
    """All are served, in little memory."""
    faults = []
    for step in steps:
        if set(step["outcomes"]) - {"200"}:
            faults.append(f"not every stream was served: {step['outcomes']}")
        if step["resident_peak_kb"] >> 10 > IDLE_MOST:
            faults.append(f"resident memory rose to {step['resident_peak_kb'] >> 10} MiB; {IDLE_MOST} are allowed")
    return faults + await check_rest(target, steps)


# ---------------------------------------------------------------- Faults of the provider and of clients

async def check_rest(target, _):
    """It still runs, and nothing is open any more."""
    if not target.name.startswith("ibex"):
        return []
    if not target.runs():
        return ["it has ended"]
    still = await target.at_rest()
    return [f"still open when everything was over: {still}"] if still else []


async def check_hung(target, steps):
    """The same, and no request was without an end."""
    hung = sum(step["outcomes"].get("hung", 0) for step in steps)
    return ([f"{hung} requests without an end"] if hung else []) + await check_rest(target, steps)


def errors(_, target, rate, seconds, seed):
    """A quarter each: served, 500, 429, and a stream that the provider cuts."""
    makers = {"served": Maker(body("load-chat", 1000, 3)), "500": Maker(body("load-fail-500", 1000, 3)), "429": Maker(body("load-fail-429", 1000, 3)),
              "stream": Maker(body("load-cut-10", 1000, 3, stream=True))}
    chance = random.Random(seed)
    shots = []
    for due in openloop.arrivals(rate, seconds, seed):
        name = chance.choice(list(makers))
        shots.append(Shot(makers[name].data(target), name, name == "stream", due=due))
    return shots


async def check_errors(target, steps):
    """A cut stream must not look whole."""
    whole = sum(step["by_name"].get("stream 200", 0) for step in steps)
    unserved = sum(count for step in steps for name, count in step["by_name"].items() if name.startswith("served ") and name != "served 200")
    return ([f"{whole} streams that the provider cut ended as if they were whole"] if whole else []) + (
        [f"{unserved} requests without a fault were not served"] if unserved else []) + await check_hung(target, steps)


def leavers(_, target, rate, seconds, seed):
    """A quarter each: served, and clients that leave within the body, before the answer, and within a stream."""
    makers = {"served": Maker(body("load-chat", 1000, 3)), "body": Maker(body("load-chat", 30_000, 20, 8)), "wait": Maker(body("load-slow-3000", 1000, 3)),
              "stream": Maker(body("load-stream-100-20", 1000, 3, stream=True))}
    chance = random.Random(seed)
    shots = []
    for due in openloop.arrivals(rate, seconds, seed):
        name = chance.choice(list(makers))
        leave = "" if name == "served" else name
        shots.append(Shot(makers[name].data(target), name, name == "stream", leave, leave_s=chance.uniform(0.02, 0.5), leave_chunks=chance.randrange(1, 30), due=due))
    return shots


async def check_leavers(target, steps):
    """Who stays is served; who leaves holds nothing, neither here nor at the provider."""
    unserved = sum(count for step in steps for name, count in step["by_name"].items() if name.startswith("served ") and name != "served 200")
    faults = [f"{unserved} clients that stayed were not served"] if unserved else []
    stats = steps[-1].get("provider_after", {}) if steps else {}
    if stats.get("open"):
        faults.append(f"the provider still answers {stats['open']} requests whose clients have left")
    return faults + await check_hung(target, steps)


# ---------------------------------------------------------------- Many agents

def agents(scenario, target, rate, seconds, seed):
    """Each agent once; the first time finds its partition cold."""
    maker = Maker(body("load-chat", 1000, 3))
    them = target.agents
    return [Shot(maker.data(target, {"x-ibex-agent-id": them[number % len(them)], "authorization": f"Bearer {target.any_token}"}), due=due)
            for number, due in enumerate(openloop.arrivals(rate, 2 * seconds + 5, seed)[:len(them)])]


async def give_memories(target, agents_, token, count=10):
    """Stores memories for each agent, so many at once."""
    notes, gate = memories(), asyncio.Semaphore(8)

    async def give(number, agent):
        said = [{"content": notes[(number * count + at) % len(notes)]} for at in range(count)]
        async with gate:
            answer = await target.client.call("POST", "/v1/memories/batch", {**talk.headers(token), "x-ibex-agent-id": agent}, json.dumps({"memories": said}).encode(), 60)
        if answer.status != 207:
            raise SystemExit(f"memories of an agent were not stored: {answer.status} {answer.body[:300]!r}")
    await asyncio.gather(*(give(number, agent) for number, agent in enumerate(agents_)))


# ---------------------------------------------------------------- The list

def scenarios(quick=False):
    """All of them, in the order in which they run. Quick ones try the program, and measure nothing."""
    def rates(*full):
        return full[:2] if quick else full
    seconds = 1.0 if quick else 6.0
    count, size = (12, 4 * MIB) if quick else (200, 20 * MIB)
    cap = 32 * MIB if quick else BIG_CAP
    open_streams, every = (100, 200) if quick else (5000, 8000)
    many, rate = (60, 60) if quick else (2000, 200)
    wait, faulty = (300, 40) if quick else (2000, 200)
    found = [
        Scenario("chat-1k", "Chat, 1 kB", "Short requests, answered at once by the provider: what the hop itself costs.",
                 simple("load-chat", 1000, 3), rates(100, 250, 500, 1000, 1500, 2000, 3000), seconds),
        Scenario("chat-30k", "Chat, 30 kB", "20 messages and 8 tools, as an agent sends them.",
                 simple("load-chat", 30_000, 20, 8), rates(50, 100, 250, 500, 750, 1000), seconds),
        Scenario("streams", "Streams", "100 chunks 10 ms apart. Latency here is the time to the first byte; the age of a chunk is from the provider's write to the client's read.",
                 simple(f"load-stream-{30 if quick else 100}-10", 1000, 3, stream=True), rates(5, 10, 25, 50), seconds, unit="streams/s"),
        Scenario("big", "Big bodies", f"{count} bodies of {size >> 20} MiB at once; ibex may hold {cap >> 20} MiB of bodies and refuses the rest with 503.",
                 big(count, size), (count,), 1.0, settings={"IBEX_SERVER__MAX_BYTES_IN_FLIGHT": str(cap), "IBEX_SERVER__ORG_SHARE": "1.0"}, unit="at once",
                 patience_s=60, check=check_big(cap), warm_up=0, burst=True),
        Scenario("agents", "Many agents", f"{many} agents with ten memories each; the first step finds every partition cold, the second one warm.",
                 agents, (rate, rate), many / rate, targets=("ibex",), check=check_hung, warm_up=0, agents=many),
        Scenario("slow", "Slow provider", f"The provider takes {wait} ms. What waits costs memory, and little else.",
                 simple(f"load-slow-{wait}", 1000, 3), rates(50, 250, 500), seconds, patience_s=20, check=check_hung, provider_ms=wait),
        Scenario("idle-streams", "Idle streams", f"{open_streams} streams that are open at the same time, with a chunk every {every / 1000:g} s.",
                 idle(open_streams, 4, every), (open_streams,), 1.0, targets=("nginx", "ibex"), unit="open",
                 patience_s=120, check=check_idle, warm_up=0, burst=True),
        Scenario("errors", "Errors of the provider", "A quarter each: served, 500, 429, and a stream that breaks off.", errors, (faulty,), seconds,
                 targets=THROUGH, check=check_errors),
        Scenario("leavers", "Clients that leave", "A quarter each: served, gone within the body, before the answer, within the stream.", leavers, (faulty,), seconds,
                 targets=THROUGH, check=check_leavers),
    ]
    if quick:
        for scenario in found:
            scenario.warm_up = min(scenario.warm_up, 0.2)
    return found
