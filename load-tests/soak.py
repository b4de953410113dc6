"""Half an hour of mixed traffic at one `ibex serve`: whether memory, descriptors, threads and slots stay where they are.

    load-tests/soak.py --ibex target/release/ibex                 # thirty minutes
    load-tests/soak.py --ibex target/release/ibex --minutes 3     # tries it; three minutes say nothing about a slope

Chat, streams, sessions of several turns, memories written and forgotten, bad tokens, clients that leave within a body or a stream, and a provider
that is killed and started again. What comes in also goes: as many memories are forgotten as written, and sessions end after a minute without a
request. So whatever grows is a leak. Exit status 1 if something grew, stayed open, or had no end. README.md says how to read it.
"""

import argparse
import asyncio
import collections
import json
import pathlib
import random
import resource
import time
from dataclasses import dataclass, field

import chart
import fleet
import measure
import provider as scripted
import scenarios
import talk
import targets
from openloop import Load, Shot
from wire import Broken, Hung, NotSent

# No request may take longer.
LIMIT_S = 30.0
# The share of the time that is not judged: caches fill, the allocator takes what it will keep.
WARM_UP = 0.3
# Resident memory may rise by so large a share of itself in ten minutes.
RISE = 0.01
# So many more descriptors without a living peer may there be in the last quarter than in the first, and so many more threads at rest.
MORE_FILES, MORE_THREADS = 8, 2
# Before the traffic: requests, and distinct messages in each. So many counted texts are remembered at most; at the rates here it would take 23 minutes
# until they are, and their memory would look like a leak all that time.
FILLING, MESSAGES = 120, 900
# How long everything has to come to rest after the last request.
REST_S = 40.0
# A worker thread without work ends after ten seconds.
THREADS_REST_S = 15.0
# How long the provider is away when it is restarted.
AWAY_S = 2.0

# Streams that one token may have open; far more are opened, and each that kept its slot would be missing at the end.
SLOTS = 200

SETTINGS = {
    "IBEX_RATE_LIMIT__DEFAULT_STREAMS": str(SLOTS),
    # A session that nobody continues goes after a minute, so that a run of half an hour sees as many go as come.
    "IBEX_SESSION__IDLE_S": "60",
    "IBEX_UPSTREAM__FIRST_BYTE_TIMEOUT_MS": "10000",
}
# Where the allocator asks for huge pages, the kernel makes them in the background, some minutes after the memory was taken: it fills the gaps of two
# megabytes, and what is resident rises although the process took nothing. Without them it is what the process holds.
SMALL_PAGES = {"MIMALLOC_ALLOW_THP": "0"}

# Sampled from /metrics: what is open, what waits, what is kept.
OPEN = ("ibex_requests_in_flight", "ibex_answers_open", "ibex_request_bytes_in_flight", "ibex_stream_slots", "ibex_session_flights_waiting", "ibex_queue_depth",
        "ibex_memories_to_embed")
KEPT = ("ibex_session_lanes", "ibex_session_lane_bytes", "ibex_index_bytes", "ibex_index_partitions")


@dataclass
class Sample:
    """What the process was at one moment, in seconds since the traffic began."""
    at: float
    resident_mib: float
    files: int
    without_peer: int
    threads: int
    metrics: dict
    done: int

    def row(self):
        """For the table."""
        return [f"{self.at / 60:.1f}", f"{self.resident_mib:.1f}", self.files, self.without_peer, self.threads, self.metrics.get("ibex_answers_open", "-"),
                self.metrics.get("ibex_session_lanes", "-"), f"{self.metrics.get('ibex_session_lane_bytes', 0) / (1 << 20):.1f}", self.done]


@dataclass
class Traffic:
    """Everything that is sent. Each kind has a rate of its own, and every request has an end or is counted as hung."""
    target: object
    provider: object
    token: str
    options: object
    outcomes: dict = field(default_factory=lambda: collections.defaultdict(collections.Counter))
    hung: int = 0
    done: int = 0
    restarts: int = 0
    late: float = 0.0

    def __post_init__(self):
        self.random = random.Random(self.options.seed)
        self.written = collections.deque()
        self.chats = collections.deque()
        self.makers = {name: scenarios.Maker(scenarios.body(*shape)) for name, shape in {
            "chat": ("load-chat", 1000, 3), "big chat": ("load-chat", 30_000, 20, 8), "stream": ("load-stream-50-20", 1000, 3, 0, True),
            "slow": ("load-slow-1500", 1000, 3), "fail": ("load-fail-500", 1000, 3), "cut": ("load-cut-10", 1000, 3, 0, True)}.items()}

    async def run(self, seconds):
        """Until the time is over and the last request has ended."""
        self.until = asyncio.get_running_loop().time() + seconds
        kinds = [(20, self._one("chat")), (3, self._one("big chat")), (5, self._one("stream")), (2, self._one("slow")), (1, self._one("fail")), (1, self._one("cut")),
                 (2, self._one("big chat", "body")), (2, self._one("stream", "stream")), (2, self._one("slow", "wait")), (4, self._session), (2, self._write), (2, self._bad)]
        async with asyncio.TaskGroup() as tasks:
            for rate, send in kinds:
                tasks.create_task(self._every(tasks, rate * self.options.load, send))
            tasks.create_task(self._restart())

    async def _every(self, tasks, rate, send):
        loop = asyncio.get_running_loop()
        due = loop.time()
        while due < self.until:
            await asyncio.sleep(max(due - loop.time(), 0))
            self.late = max(self.late, loop.time() - due)
            tasks.create_task(send())
            due += self.random.expovariate(rate)

    def _one(self, name, leave=""):
        """A request by the driver, which can leave at any point."""
        async def send():
            shot = Shot(self.makers[name].data(self.target), name, name in ("stream", "cut"), leave, self.random.uniform(0.01, 1.0), self.random.randrange(1, 40))
            load = Load(self.target.port, [shot], 1, 1)
            step = await load.run(connections=0, patience_s=LIMIT_S)
            self._saw(f"{name}, leaving" if leave else name, step.seen[0].outcome)
        return send

    async def _call(self, kind, method, path, headers, body=b""):
        try:
            answer = await self.target.client.call(method, path, headers, body, LIMIT_S)
        except (NotSent, Broken, Hung) as error:
            self._saw(kind, {NotSent: "refused", Broken: "broken", Hung: "hung"}[type(error)])
            return None
        self._saw(kind, answer.status)
        return answer

    def _saw(self, kind, outcome):
        self.outcomes[kind][str(outcome)] += 1
        self.done += 1
        self.hung += outcome == "hung"

    async def _session(self):
        """The next turn of a conversation, or the first of a new one."""
        chat = self.chats.popleft() if len(self.chats) > 20 else talk.Conversation(f"soak-{talk.new_trace()[:12]}", "load-chat", stream=False)
        chat.ask(f"Where is note {self.random.randrange(scenarios.MEMORIES):04d} kept?")
        trace = talk.new_trace()
        answer = await self._call("session", "POST", "/v1/chat/completions", chat.headers(self.token, trace), chat.body())
        if answer is None or answer.status != 200:
            chat.take_back()
        else:
            chat.hear(trace)
        if chat.turn < 8:
            self.chats.append(chat)

    async def _write(self):
        """Remembers something, and forgets what was remembered a while ago."""
        text = f"The {talk.word(self.random)} {talk.word(self.random)} store keeps {self.random.choice(talk.GOODS)} in hall {self.random.randrange(10_000)}."
        answer = await self._call("write", "POST", "/v1/memories", talk.headers(self.token), json.dumps({"content": text}).encode())
        if answer and answer.status == 201:
            self.written.append(answer.json()["id"])
        if len(self.written) > 50:
            await self._call("forget", "DELETE", f"/v1/memories/{self.written.popleft()}", talk.headers(self.token))

    async def _bad(self):
        token = self.token[:-8] + "".join(self.random.choice("ABCDEFGH") for _ in range(8))
        chat = talk.Conversation("bad", "load-chat")
        chat.ask("Who is there?")
        await self._call("bad token", "POST", "/v1/chat/completions", chat.headers(token, talk.new_trace()), chat.body())

    async def _restart(self):
        """The provider is killed and comes back, several times."""
        loop = asyncio.get_running_loop()
        while loop.time() + self.options.restart < self.until - AWAY_S - 2:
            await asyncio.sleep(self.options.restart)
            self.provider.stop()
            await asyncio.sleep(AWAY_S)
            await self.provider.start_again()
            self.restarts += 1
        await asyncio.sleep(max(self.until - loop.time(), 0))


async def watch(target, traffic, began, every, samples):
    """Samples until it is cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(every)
        try:
            seen = await target.metrics(*OPEN, *KEPT)
        except (NotSent, Broken, Hung):
            seen = {}
        process = target.process_id
        samples.append(Sample(loop.time() - began, measure.resident_kb(process) / 1024, *measure.descriptors(process), measure.status(process, "Threads"), seen, traffic.done))
        if len(samples) % 12 == 1:
            print("  " + " | ".join(str(cell) for cell in samples[-1].row()), flush=True)


@dataclass
class Verdict:
    """What was measured against what is allowed."""
    rows: list = field(default_factory=list)

    def add(self, what, measured, allowed, holds):
        """A line of the table."""
        self.rows.append((what, measured, allowed, "holds" if holds else "DOES NOT HOLD"))

    def print(self):
        """The table -> how many lines do not hold."""
        print("\n| What | Measured | Allowed | |\n|---|---|---|---|")
        for row in self.rows:
            print(f"| {' | '.join(row)} |")
        return sum(row[3] != "holds" for row in self.rows)


@dataclass
class Rest:
    """What the process holds while nobody asks anything."""
    files: int
    threads: int
    without_peer: int

    @classmethod
    def of(cls, process):
        """Right now."""
        files, without_peer = measure.descriptors(process)
        return cls(files, measure.status(process, "Threads"), without_peer)


async def free_slots(target, maker):
    """How many streams may be open at once: as many are opened as there are slots."""
    load = Load(target.port, [Shot(maker.data(target), "stream", True) for _ in range(SLOTS)], SLOTS, 1)
    step = await load.run(connections=0, patience_s=LIMIT_S)
    return sum(seen.outcome == 200 for seen in step.seen)


def judge(samples, seconds, traffic, rest, still, free, runs, stats):
    """-> Verdict. `rest` is the process at rest before and after, `still` what it says is open, `free` the stream slots, `stats` what the provider says."""
    before, after = rest
    verdict = Verdict()
    judged = [sample for sample in samples if sample.at >= WARM_UP * seconds]
    quarter = max(len(judged) // 4, 1)
    rise = measure.slope([(sample.at, sample.resident_mib) for sample in judged]) * 600
    usual = measure.median([sample.resident_mib for sample in judged]) or 1
    verdict.add("resident memory", f"{rise:+.2f} MiB in ten minutes of {usual:.1f} MiB ({100 * rise / usual:+.2f} %)", f"less than +{100 * RISE:g} %", rise / usual < RISE)
    first, last = (measure.median([sample.without_peer for sample in those]) for those in (judged[:quarter], judged[-quarter:]))
    verdict.add("descriptors without a living peer", f"{first} in the first quarter, {last} in the last", f"at most {MORE_FILES} more", last <= first + MORE_FILES)
    verdict.add("descriptors at rest", f"{before.files} before the traffic, {after.files} after it, of them {stats['connections']} connections that are kept for the provider",
                f"at most {MORE_FILES} more besides these", after.files <= before.files + MORE_FILES + stats["connections"])
    verdict.add("threads at rest", f"{before.threads} before the traffic, {after.threads} after it, at most {max(sample.threads for sample in samples)} within",
                f"at most {MORE_THREADS} more", after.threads <= before.threads + MORE_THREADS)
    verdict.add("open at the end", str(still or "nothing"), "nothing", not still)
    verdict.add("stream slots", f"{free} of {SLOTS} free", f"{SLOTS}", free == SLOTS)
    verdict.add("open at the provider", str(stats["open"]), "0", not stats["open"])
    verdict.add("requests without an end", f"{traffic.hung}; the client itself was at most {traffic.late:.1f} s late", "0", not traffic.hung)
    verdict.add("the process", "runs" if runs else "has ended", "runs", runs)
    bad = traffic.outcomes["bad token"]
    verdict.add("bad tokens", ", ".join(f"{name}: {count}" for name, count in bad.items()) or "none", "401, or 503 when it could not be checked", set(bad) <= {"401", "503"})
    return verdict


def drawing(samples, seconds, title):
    """Memory, descriptors and threads over the time, as one SVG."""
    minutes = [sample.at / 60 for sample in samples]
    charts = []
    for what, key, unit, series in (("Resident memory", "resident_mib", "MiB", 2), ("Descriptors", "files", "open", 1), ("Threads", "threads", "", 3)):
        values = [getattr(sample, key) for sample in samples]
        drawn = chart.frame(f"{what}. {title}" if not charts else what, minutes, values, "minutes", unit, width=952, height=260)
        drawn.shade(0, WARM_UP * seconds / 60, "warm-up, not judged", "calm")
        drawn.line(what, series, list(zip(minutes, values)), marks=False, legend=False)
        charts.append(drawn)
    inner = "".join(f'<g transform="translate(0 {260 * number})">{drawn.svg()}</g>' for number, drawn in enumerate(charts))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 952 {260 * len(charts)}" width="952" height="{260 * len(charts)}"><style>{chart.STYLE}</style>'
            f'<rect width="952" height="{260 * len(charts)}" fill="var(--ground)"/>{inner}</svg>')


async def main(options, folder):
    """The whole run."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    seconds = options.minutes * 60
    cores = measure.Cores()
    provider = scripted.Process(cores).start()
    samples = []
    try:
        store = targets.Store(options.ibex, folder / "store", provider).make(scenarios.memories())
        cores.take()
        target = await targets.start("ibex", folder / "ibex", cores, store, provider, SETTINGS | ({} if options.huge_pages else SMALL_PAGES))
        try:
            traffic = Traffic(target, provider, store.token, options)
            before = Rest.of(target.process_id)
            await fill(target, store.token)
            print(f"ibex {measure.binary(options.ibex)}; {measure.machine(cores)}\n\n  minute | resident MiB | descriptors | without peer | threads | answers open | lanes | lanes MiB | requests", flush=True)
            loop = asyncio.get_running_loop()
            watching = asyncio.create_task(watch(target, traffic, loop.time(), options.every, samples))
            try:
                await traffic.run(seconds)
            finally:
                watching.cancel()
            target.client.close()
            runs = target.runs()
            still = await target.at_rest(REST_S) if runs else {}
            free = await free_slots(target, traffic.makers["stream"]) if runs else 0
            target.client.close()
            await asyncio.sleep(THREADS_REST_S)
            stats, after = await provider_stats(provider), Rest.of(target.process_id)
        finally:
            await target.stop()
    finally:
        provider.stop()
    return tell(options, seconds, samples, traffic, judge(samples, seconds, traffic, (before, after), still, free, runs, stats))


async def fill(target, token):
    """Has the process remember as many counted texts as it ever will."""
    for number in range(FILLING):
        said = [{"role": ("user", "assistant")[at % 2], "content": f"Message {number}-{at} fills what is remembered of counted texts, and says nothing besides that at all."}
                for at in range(MESSAGES)]
        body = json.dumps({"model": "load-chat", "messages": said + [{"role": "user", "content": "Well?"}]}).encode()
        answer = await target.client.call("POST", "/v1/chat/completions", talk.headers(token), body, LIMIT_S)
        if answer.status != 200:
            raise SystemExit(f"a request before the traffic was answered with {answer.status}: {answer.body[:300]!r}")


async def provider_stats(provider):
    """What the provider has open."""
    client = targets.Client(provider.port)
    try:
        return (await client.call("GET", "/stats", {})).json()
    finally:
        client.close()


def tell(options, seconds, samples, traffic, verdict):
    """Prints what came of it, and writes it down -> exit status."""
    print(f"\n{traffic.done} requests, {traffic.restarts} restarts of the provider\n\n| Kind | Outcomes |\n|---|---|")
    for kind, outcomes in traffic.outcomes.items():
        print(f"| {kind} | {', '.join(f'{name}: {count}' for name, count in outcomes.most_common())} |")
    failed = verdict.print()
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "soak.svg").write_text(drawing(samples, seconds, f"{options.minutes:g} minutes, {traffic.done} requests, {time.strftime('%Y-%m-%d', time.gmtime())}"))
    with (out / "soak.jsonl").open("w") as file:
        for sample in samples:
            file.write(json.dumps(vars(sample)) + "\n")
        file.write(json.dumps({"outcomes": traffic.outcomes, "verdict": verdict.rows}) + "\n")
    print(f"\n{out / 'soak.svg'}\n{out / 'soak.jsonl'}")
    return 1 if failed else 0


def options():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ibex", default=str(fleet.ROOT / "target/release/ibex"), metavar="FILE", help="the binary [default: the release build]")
    parser.add_argument("--minutes", type=float, default=30, metavar="N", help="of traffic [default: 30]")
    parser.add_argument("--every", type=float, default=5, metavar="S", help="between two samples [default: 5]")
    parser.add_argument("--restart", type=float, default=120, metavar="S", help="between two restarts of the provider [default: 120]")
    parser.add_argument("--load", type=float, default=1, metavar="FACTOR", help="of all rates; 1 is some 45 requests a second [default: 1]")
    parser.add_argument("--huge-pages", action="store_true", help="as in production, where the kernel may fill the gaps of huge pages at any time")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="[default: 1]")
    parser.add_argument("--out", default=str(fleet.ROOT / "target/load"), metavar="FOLDER", help="for soak.svg and soak.jsonl [default: target/load]")
    parser.add_argument("--keep", metavar="FOLDER", help="keeps the logs and the store there")
    return parser.parse_args()


if __name__ == "__main__":
    fleet.run(main, options())
