"""The client of the load tests: an open loop. Every request has a moment at which it is due, fixed before the first one is sent.

It is sent then whether earlier ones were answered or not, and its latency counts from that moment, so a stall shows in every request that it
held up. What the client itself was late is recorded as well: a step in which the client or its core was at its end says nothing about the target.
"""

import asyncio
import collections
import gc
import os
import random
import re
import socket
import time
from dataclasses import dataclass, field

import measure

HEAD_END = b"\r\n\r\n"
LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.I)
CHUNKED = re.compile(rb"\r\ntransfer-encoding:\s*chunked", re.I)
CLOSES = re.compile(rb"\r\nconnection:\s*close", re.I)
LEVEL = re.compile(rb"\r\nx-ibex-context-degradation:\s*(L\d)", re.I)
RECALLED = re.compile(rb"\r\nx-ibex-memories-injected:\s*[1-9]", re.I)
CODE = re.compile(rb'"code"\s*:\s*"([A-Za-z_]+)"')
STAMP = re.compile(rb"@(\d{19})@")

# What a large body is handed to the socket in.
PIECE = 1 << 18
# Beyond so many requests under way the target is past its end; further ones are not sent, and the step says so.
MOST_OPEN = 6000
# After the last request was due: how long the rest may take.
PATIENCE_S = 10.0

# The client was the limit when it sent less than this share of what was due by the end of the step,
ON_TIME = 0.99
# or its core was busy for more than this share of the time,
BUSY = 0.9
# or one request in a hundred was sent later than this and than a quarter of the latency at the same percentile.
LATE_MS = 2.0


@dataclass(slots=True)
class Shot:
    """One request. `leave` makes the client go away: "body" when half of the body is sent, "wait" after `leave_s`, "stream" after `leave_chunks`."""
    data: bytes
    name: str = "chat"
    stream: bool = False
    leave: str = ""
    leave_s: float = 0.0
    leave_chunks: int = 0
    due: float = 0.0


@dataclass(slots=True)
class Seen:
    """What came of one, in seconds from the moment when it was due. `outcome` is the HTTP status, or what happened in its place."""
    name: str
    due: float
    late: float
    first: float
    took: float
    outcome: object
    code: str


class Link(asyncio.Protocol):
    """One connection, and the request that is under way on it."""

    __slots__ = ("load", "transport", "shot", "buffer", "status", "left", "chunked", "first", "sent_at", "rest", "paused", "chunks", "closes", "code", "tail", "timer", "ended", "final")

    def __init__(self, load):
        self.load = load
        self.transport = self.shot = self.timer = None
        self.paused = False
        self.rest = None

    def connection_made(self, transport):
        """Small requests leave at once."""
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(high=PIECE)

    def send(self, shot):
        """Begins a request."""
        self.shot, self.buffer, self.status, self.left, self.chunked = shot, b"", 0, 0, False
        self.first, self.chunks, self.code, self.tail, self.ended, self.final = 0.0, 0, "", b"", False, False
        self.sent_at = time.monotonic()
        data = shot.data
        if shot.leave == "body":
            data = data[:data.index(HEAD_END) + 4 + (len(data) - data.index(HEAD_END)) // 2]
        if shot.leave in ("body", "wait"):
            self.timer = self.load.loop.call_later(shot.leave_s, self._leave)
        if len(data) <= PIECE:
            self.transport.write(data)
        else:
            self.rest = memoryview(data)
            self._more()

    def _more(self):
        while self.rest and not self.paused and not self.transport.is_closing():
            piece, self.rest = self.rest[:PIECE], self.rest[PIECE:]
            self.transport.write(piece)

    def pause_writing(self):
        """The socket is full."""
        self.paused = True

    def resume_writing(self):
        """It takes more."""
        self.paused = False
        self._more()

    def data_received(self, data):
        """Reads the answer."""
        if self.shot is None:
            return
        if not self.status:
            self.buffer += data
            end = self.buffer.find(HEAD_END)
            if end < 0:
                return
            data = self._head(self.buffer[:end + 2], self.buffer[end + 4:])
        if not self.first and data:
            self.first = time.monotonic()
        if self.status >= 400 and not self.code and (code := CODE.search(data)):
            self.code = code[1].decode()
        if self.chunked:
            self._chunks(data)
        else:
            self.left -= len(data)
            if self.left <= 0:
                self._finish(self.status)

    def _head(self, head, rest):
        self.status = int(head[9:12])
        self.buffer = b""
        self.closes = bool(CLOSES.search(head))
        length = LENGTH.search(head)
        self.chunked = length is None and bool(CHUNKED.search(head))
        self.left = int(length[1]) if length else 0
        if level := LEVEL.search(head):
            self.load.levels[level[1].decode()] += 1
            self.load.recalled += bool(RECALLED.search(head))
        return rest

    def _chunks(self, data):
        """Follows the chunks of a body; `left` is what the current one still has, with its line end."""
        if self.shot.stream and self._events(data):
            return
        while data:
            if self.left > 0:
                taken = min(self.left, len(data))
                self.left -= taken
                data = data[taken:]
                if self.final and not self.left:
                    self._finish("cut" if self.shot.stream and self.status == 200 and not self.ended else self.status)
                    return
                continue
            # A line with a size is short; it may come in two pieces.
            self.buffer += data[:20]
            line = self.buffer.find(b"\r\n")
            if line < 0:
                data = data[20:]
                continue
            size = int(self.buffer[:line].split(b";")[0], 16)
            data = (self.buffer + data[20:])[line + 2:]
            self.buffer = b""
            self.left, self.final = size + 2, size == 0

    def _events(self, data):
        """Reads when each event was written -> whether the client has left on that."""
        now, text, end = time.monotonic_ns(), self.tail + data, 0
        for stamp in STAMP.finditer(text):
            self.load.ages.append((now - int(stamp[1])) / 1e9)
            self.chunks += 1
            end = stamp.end()
        # A stamp, or the end, that is cut in two is found with the next piece; one that was whole is not found again.
        self.ended = self.ended or b"[DONE]" in text
        self.tail = text[max(end, len(text) - 20):]
        if self.shot.leave == "stream" and self.chunks >= self.shot.leave_chunks:
            self._leave()
            return True
        return False

    def _leave(self):
        if self.shot is not None:
            self._finish("left")
            self.transport.abort()

    def connection_lost(self, _):
        """An answer that was under way is broken, unless all of it has arrived."""
        self.load.lost(self)
        if self.shot is not None and self.rest:
            self._read_rest()
        if self.shot is not None:
            self._finish("broken")

    def _read_rest(self):
        """A server may answer before it has all of a body, and close. Sending fails then, although the answer has arrived."""
        try:
            while self.shot is not None and (data := os.read(self.transport.get_extra_info("socket").fileno(), PIECE)):
                self.data_received(data)
        except OSError:
            pass

    def _finish(self, outcome):
        shot, self.shot = self.shot, None
        if self.timer:
            self.timer.cancel()
            self.timer = None
        self.paused = self.paused and bool(self.rest)
        unsent, self.rest = bool(self.rest), None
        self.load.finished(self, shot, outcome, keep=not (unsent or self.closes_after(outcome)))

    def closes_after(self, outcome):
        """Whether the connection cannot be used again."""
        return outcome != self.status or self.closes


@dataclass
class Step:
    """All that was seen of one rate at one target."""
    wanted: float
    seconds: float
    began: float = 0.0
    ended: float = 0.0
    seen: list = field(default_factory=list)
    ages: list = field(default_factory=list)
    levels: collections.Counter = field(default_factory=collections.Counter)
    recalled: int = 0
    not_sent: int = 0
    due: int = 0
    driver_cpu: float = 0.0
    provider_cpu: float = 0.0
    target_cpu: float = 0.0
    driver_core: float = 0.0
    target_core: float = 0.0
    resident_before: int = 0
    resident_peak: int = 0


class Load:
    """Sends shots to one port of loopback, each at its moment."""

    def __init__(self, port, shots, wanted, seconds):
        self.loop = asyncio.get_running_loop()
        self.port, self.shots = port, shots
        self.step = Step(wanted, seconds, due=len(shots))
        self.levels, self.ages, self.seen = self.step.levels, self.step.ages, self.step.seen
        self.recalled = 0
        self.idle, self.links = [], set()
        self.open = self.next = 0
        self.done = asyncio.Event()
        self.tasks = set()

    async def run(self, connections=32, patience_s=PATIENCE_S):
        """-> Step, after the last answer, or when patience is at its end: what is open then is counted as hung."""
        for _ in range(min(connections, len(self.shots))):
            self.idle.append(await self._connect())
        timer = measure.Timer(self.loop, self._due)
        try:
            self.timer = timer
            self.began = self.step.began = time.monotonic() + 0.05
            timer.at(self.began + self.shots[0].due)
            last = self.began + self.shots[-1].due
            try:
                await asyncio.wait_for(self.done.wait(), last - time.monotonic() + patience_s)
            except TimeoutError:
                pass
            self._hung()
        finally:
            timer.close()
            for link in list(self.links):
                link.transport.abort()
        self.step.ended = time.monotonic()
        self.step.recalled = self.recalled
        return self.step

    async def _connect(self):
        _, link = await self.loop.create_connection(lambda: Link(self), "127.0.0.1", self.port)
        self.links.add(link)
        return link

    def _due(self):
        """Sends everything that is due, and sets the timer for what comes next."""
        while self.next < len(self.shots):
            shot = self.shots[self.next]
            if self.began + shot.due > time.monotonic():
                self.timer.at(self.began + shot.due)
                return
            self.next += 1
            self._send(shot)

    def _send(self, shot):
        if self.open >= MOST_OPEN:
            self.step.not_sent += 1
            self._maybe_done()
            return
        self.open += 1
        while self.idle:
            link = self.idle.pop()
            if not link.transport.is_closing():
                link.send(shot)
                return
        task = self.loop.create_task(self._send_new(shot))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _send_new(self, shot):
        try:
            link = await self._connect()
        except OSError:
            self._record(shot, "refused", 0.0, 0.0, "")
            return
        link.send(shot)

    def finished(self, link, shot, outcome, keep):
        """Called by a connection when its request is over."""
        self._record(shot, outcome, link.sent_at, link.first, link.code)
        if keep and not link.transport.is_closing():
            self.idle.append(link)
        else:
            link.transport.close()

    def lost(self, link):
        """Called by a connection that has ended."""
        self.links.discard(link)

    def _record(self, shot, outcome, sent_at, first, code):
        self.open -= 1
        now, due = time.monotonic(), self.began + shot.due
        self.seen.append(Seen(shot.name, shot.due, (sent_at or now) - due, first - due if first else 0.0, now - due, outcome, code))
        self._maybe_done()

    def _maybe_done(self):
        if self.next >= len(self.shots) and not self.open:
            self.done.set()

    def _hung(self):
        for link in list(self.links):
            if link.shot is not None:
                shot, link.shot = link.shot, None
                self._record(shot, "hung", link.sent_at, link.first, "")


# ---------------------------------------------------------------- One step

def arrivals(rate, seconds, seed):
    """Moments of independent clients: exponential gaps, the same for every target."""
    chance, at, moments = random.Random(seed), 0.0, []
    while (at := at + chance.expovariate(rate)) < seconds:
        moments.append(at)
    return moments or [0.0]


async def drive(target, provider, cores, shots, wanted, seconds, **how):
    """One step: the load, with what it cost the target, the driver and the provider."""
    process, own = target.process_id, os.getpid()
    provider_id = provider.process.pid
    before = measure.resident_kb(process) if process else 0
    if process:
        measure.forget_peak(process)
    used = [measure.tree_cpu_s(process) if process else 0.0, measure.cpu_s(own), measure.cpu_s(provider_id)]
    core = [measure.core_busy_s(cores.target), measure.core_busy_s(cores.driver)]
    # A collection would be a pause of the client in everybody's latency.
    gc.collect()
    gc.disable()
    try:
        step = await Load(target.port, shots, wanted, seconds).run(**how)
    finally:
        gc.enable()
    step.target_core, step.driver_core = measure.core_busy_s(cores.target) - core[0], measure.core_busy_s(cores.driver) - core[1]
    step.target_cpu = measure.tree_cpu_s(process) - used[0] if process else 0.0
    step.driver_cpu, step.provider_cpu = measure.cpu_s(own) - used[1], measure.cpu_s(provider_id) - used[2]
    step.resident_before, step.resident_peak = before, measure.peak_kb(process) if process else 0
    return step


def judge(step, cores, burst=False):
    """-> the figures of a step, as they are written down. `refused` says why they are no figures of the target, `notes` what to keep in mind."""
    wall = step.ended - step.began
    good = [seen for seen in step.seen if seen.outcome == 200]
    answered = [seen.took for seen in step.seen if seen.outcome not in ("left", "refused")]
    latency = measure.curve(answered)
    late = measure.curve([seen.late for seen in step.seen])
    # Until the last answer, without the time that an answer takes anyway.
    last = max((seen.due + seen.took for seen in good), default=step.seconds) - min((seen.took for seen in good), default=0.0)
    last_due = max((seen.due for seen in step.seen), default=step.seconds)
    sent = sum(seen.due + seen.late <= last_due + 0.1 for seen in step.seen)
    measuring = step.driver_cpu + (step.provider_cpu if cores.shared else 0.0)
    figures = {
        "wanted": step.wanted, "seconds": step.seconds, "requests": step.due, "ok": len(good), "achieved": round(len(good) / max(last, step.seconds), 2),
        "outcomes": dict(collections.Counter(f"{seen.outcome} {seen.code}".strip() for seen in step.seen)),
        "latency_ms": latency, "late_ms": late, "levels": dict(step.levels), "recalled": step.recalled,
        "driver_busy": round(measuring / wall, 3), "driver_core_busy": round(step.driver_core / wall, 3),
        "target_busy": round(step.target_cpu / wall, 3), "target_core_others": round(max(step.target_core - step.target_cpu, 0.0) / wall, 3),
        "cpu_us": round(1e6 * step.target_cpu / max(len(step.seen), 1), 1), "provider_cpu_us": round(1e6 * step.provider_cpu / max(len(step.seen), 1), 1),
        "resident_before_kb": step.resident_before, "resident_peak_kb": step.resident_peak, "not_sent": step.not_sent,
    }
    if any(seen.name == "stream" for seen in step.seen):
        figures["ttfb_ms"] = measure.curve([seen.first for seen in step.seen if seen.first])
        figures["age_ms"] = measure.curve(step.ages)
        figures["chunks"] = len(step.ages)
    figures["by_name"] = dict(collections.Counter(f"{seen.name} {seen.outcome}" for seen in step.seen))
    figures["saturated"] = figures["achieved"] < 0.9 * step.due / step.seconds and len(good) >= 0.9 * len(step.seen) or step.not_sent > 0
    # What is due all at once is late by design; there the figures are about memory and refusals.
    figures["saturated"] = figures["saturated"] and not burst
    figures["refused"] = "" if burst else refusal(figures, sent / max(step.due - step.not_sent, 1))
    degraded = 1 - step.levels["L0"] / sum(step.levels.values()) if step.levels else 0.0
    figures["notes"] = [text for said, text in (
        (cores.pinned and figures["target_core_others"] > 0.15, f"others used the target's core for {100 * figures['target_core_others']:.0f} % of the time"),
        (degraded > 0.005, f"{100 * degraded:.1f} % of the answers had less than full context")) if said]
    return figures


def tail(curve):
    """The 99th percentile, or the highest below it that the number of values bears."""
    told = [float(share) for share in curve if share != "max" and float(share) <= 0.99]
    return curve[str(max(told))] if told and max(told) > 0 else 0.0


def refusal(figures, on_time):
    """Why the client was the bottleneck, or nothing."""
    late, latency = tail(figures["late_ms"]), tail(figures["latency_ms"])
    others = figures["driver_core_busy"] - figures["driver_busy"]
    if on_time < ON_TIME:
        return f"the client sent {100 * on_time:.1f} % of what was due"
    if figures["driver_busy"] > BUSY:
        return f"the measuring core was busy with driver and provider for {100 * figures['driver_busy']:.0f} % of the time"
    if late > LATE_MS and late > latency / 4:
        return f"one request in a hundred left the client {late:.1f} ms late or later" + (
            f"; others used its core for {100 * others:.0f} % of the time" if others > 0.2 else "")
    return ""
