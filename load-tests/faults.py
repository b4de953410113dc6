"""What clients see while Redis, PostgreSQL or a replica fails: an open loop of requests against replicas in turn, one fault a scenario.

    load-tests/faults.py --ibex target/release/ibex

Chat turns are sent at a fixed rate, whether earlier ones were answered or not, and their latency counts from the moment they were due. Beside
them run memory writes with an `Idempotency-Key`, whose acknowledgements are remembered, and chat requests with a revoked or an invented token.
Each scenario has engines, database and replicas of its own. Exit status 1 if a hard rule was broken: a call of the provider for a request
without authority, an acknowledged memory that a replica does not know at the end, or a request without an end. README.md says how to read it.
"""

import argparse
import asyncio
import collections
import json
import random
import resource
import time
from dataclasses import dataclass, field
from typing import Callable

import fleet
import talk
from upstream import Provider
from wire import Broken, Hung, NotSent

# Nothing may take longer, whatever has failed.
HUNG_S = 10
LIMIT_S = 12

# A replica that refuses a connection is left out for so long, as balancers do.
DOWN_S = 1.0

# Not measured: connections are opened and memories loaded.
WARM_UP_S = 5

# A session has at most so many turns; most chat requests continue one.
TURNS = 4
MOST_SESSIONS = 400
NEW_SESSIONS = 0.4
STREAMS = 0.1

WITHOUT_AUTHORITY = 0.02
# Stands in the body of a request that must never reach the provider.
MARK = "sent without authority"

# Pauses before a write that was not acknowledged is repeated under its key.
WRITE_PAUSES_S = (0.5, 1, 2, 4, 8, 8)

# How long a provider takes, so that a fault meets requests under way.
PROVIDER_S = 0.02


# ---------------------------------------------------------------- Scenarios

@dataclass
class Scenario:
    """One fault. Without `heal` it is over as soon as `hurt` returns."""
    name: str
    hurt: Callable
    heal: Callable = None
    settings: dict = field(default_factory=dict)
    # The replica that `hurt` takes away for good.
    loses: int = None


async def nothing(_):
    """No fault."""


async def stop_redis(at):
    await at.redis.stop()


async def start_redis(at):
    await at.redis.start()


async def pause_redis(at):
    at.redis.pause()


async def resume_redis(at):
    at.redis.resume()


async def empty_redis(at):
    await at.redis.stop()
    await at.redis.start()


async def fill_redis(at):
    at.redis.limit_memory(1)


async def make_space(at):
    at.redis.limit_memory(0)


async def stop_postgres(at):
    await at.postgres.stop()


async def start_postgres(at):
    await at.postgres.start()


async def pause_postgres(at):
    at.postgres.pause()


async def resume_postgres(at):
    at.postgres.resume()


async def restart_postgres(at):
    await at.postgres.stop()
    await at.postgres.start()


async def kill_replica(at):
    at.replicas[-1].kill()


def scenarios(replicas):
    """All of them, in the order in which they run."""
    local = {"IBEX_RATE_LIMIT__REDIS_OUTAGE": "local", "IBEX_RATE_LIMIT__REPLICAS": str(replicas)}
    return [
        Scenario("none", nothing),
        Scenario("redis-stopped", stop_redis, start_redis),
        Scenario("redis-stopped-local", stop_redis, start_redis, local),
        Scenario("redis-paused", pause_redis, resume_redis),
        Scenario("redis-paused-local", pause_redis, resume_redis, local),
        Scenario("redis-emptied", empty_redis),
        Scenario("redis-full", fill_redis, make_space),
        Scenario("postgres-stopped", stop_postgres, start_postgres),
        Scenario("postgres-paused", pause_postgres, resume_postgres),
        Scenario("postgres-restarted", restart_postgres),
        Scenario("replica-killed", kill_replica, loses=replicas - 1),
    ]


# ---------------------------------------------------------------- Load

class Balancer:
    """Asks replicas in turn. One that refuses connections is left out for a moment; what was sent is never sent again."""

    def __init__(self, replicas):
        self.replicas = replicas
        self.down_until = [0.0] * len(replicas)
        self.next = 0

    async def call(self, *request):
        """One request -> Answer, at the first replica that takes the connection."""
        for _ in self.replicas:
            now = time.monotonic()
            turns = [(self.next + step) % len(self.replicas) for step in range(len(self.replicas))]
            number = next((number for number in turns if self.down_until[number] <= now), turns[0])
            self.next = number + 1
            try:
                return await self.replicas[number].client.call(*request, LIMIT_S)
            except NotSent:
                self.down_until[number] = now + DOWN_S
        raise NotSent


@dataclass(slots=True)
class Seen:
    """One request as its client saw it. `due` is in seconds since the measured time began."""
    kind: str
    due: float
    latency: float
    took: float
    # The HTTP status, or refused, broken, hung.
    status: object
    code: str
    level: str
    reason: str
    local: bool

    def well(self):
        """Whether it is as without any fault."""
        return self.status == {"chat": 200, "write": 201, "bad": 401}[self.kind] and self.level in ("L0", "")


class Load:
    """Everything that is sent in one scenario, and what came of it."""

    def __init__(self, options, seconds, tokens, balancer, facts):
        self.options, self.seconds, self.balancer = options, seconds, balancer
        self.token, self.bad_tokens = tokens
        self.random = random.Random(options.seed)
        self.questions = [question for _, question in facts]
        self.idle = collections.deque()
        self.seen = []
        self.acknowledged = {}
        self.repeated, self.wrong_repeats = 0, []
        # By trace id: the conversation that a call of the provider belongs to.
        self.under_way = {}
        self.unauthorised = 0
        self.prefixes = collections.Counter()
        self.breaks = []
        self.lag = 0.0

    def hear(self, sent):
        """What the provider is sent."""
        if MARK.encode() in sent.body:
            self.unauthorised += 1
        if sent.trace in self.under_way:
            self.under_way[sent.trace].append(sent.body)

    async def run(self):
        """Sends all of it on time, and waits for the last answer."""
        self.began = asyncio.get_running_loop().time() + WARM_UP_S
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._every(tasks, self.options.rate, self._chat_or_bad))
            tasks.create_task(self._every(tasks, self.options.writes, self._write))

    async def _every(self, tasks, rate, send):
        number = -int(WARM_UP_S * rate)
        while (due := number / rate) < self.seconds:
            now = asyncio.get_running_loop().time() - self.began
            if now < due:
                await asyncio.sleep(due - now)
            elif due >= 0:
                self.lag = max(self.lag, now - due)
            tasks.create_task(send(due))
            number += 1

    async def _call(self, kind, due, path, headers, body):
        """One request -> (Answer or None). It is remembered unless it belongs to the warm-up."""
        loop = asyncio.get_running_loop()
        began, answer = loop.time(), None
        try:
            answer = await self.balancer.call("POST", path, headers, body)
            status = answer.status
        except (NotSent, Broken, Hung) as error:
            status = {NotSent: "refused", Broken: "broken", Hung: "hung"}[type(error)]
        said = answer.headers if answer else {}
        now = loop.time()
        if due >= 0:
            self.seen.append(Seen(kind, due, now - self.began - due, now - began, status, answer.code() if answer else "", said.get("x-ibex-context-degradation", ""),
                                  said.get("x-ibex-context-reason", ""), said.get("x-ibex-rate-limit-source") == "local"))
        return answer

    async def _chat_or_bad(self, due):
        if self.random.random() < WITHOUT_AUTHORITY:
            await self._bad(due)
        else:
            await self._chat(due)

    async def _bad(self, due):
        chat = talk.Conversation(f"bad-{talk.new_trace()[:8]}", talk.MODELS[0])
        chat.ask(f"{MARK}: {self.random.choice(self.questions)}")
        token = self.random.choice(self.bad_tokens)
        await self._call("bad", due, "/v1/chat/completions", chat.headers(token, talk.new_trace()), chat.body())

    async def _chat(self, due):
        new = not self.idle or (self.random.random() < NEW_SESSIONS and len(self.idle) < MOST_SESSIONS)
        chat, before = (self._new(), None) if new else self.idle.popleft()
        chat.ask(self.random.choice(self.questions))
        trace = talk.new_trace()
        self.under_way[trace] = got = []
        answer = await self._call("chat", due, "/v1/chat/completions", chat.headers(self.token, trace), chat.body())
        del self.under_way[trace]
        if answer is None or answer.status != 200 or not got:
            chat.take_back()
            self.idle.append((chat, before))
            return
        # Only turns that were not degraded to the directive alone have to send again what was sent before.
        if answer.headers.get("x-ibex-context-degradation") == "L3":
            now = before
        else:
            now = (answer.headers.get("x-ibex-epoch"), got[-1], answer.headers.get("x-ibex-prefix-sha256"))
            self._compare(chat, before, now)
        chat.hear(trace)
        if chat.turn < TURNS:
            self.idle.append((chat, now))

    def _new(self):
        return talk.Conversation(f"load-{talk.new_trace()[:12]}", self.random.choice(talk.MODELS), stream=self.random.random() < STREAMS)

    def _compare(self, chat, before, now):
        if before is None:
            return
        if talk.extends(before[1], now[1]) and before[2] == now[2]:
            self.prefixes["kept"] += 1
        elif before[0] != now[0]:
            self.prefixes["new epoch"] += 1
        else:
            self.prefixes["broken"] += 1
            self.breaks.append(f"{chat.name} ({chat.model}) turn {chat.turn}, epoch {now[0]}: {talk.difference(before[1], now[1])}")

    async def _write(self, due):
        """A memory, repeated under its key until it is acknowledged or the pauses are used up."""
        key = talk.new_trace()
        content = f"The {talk.word(self.random)} {talk.word(self.random)} warehouse stores {self.random.choice(talk.GOODS)} in hall {self.random.randrange(1000)}."
        headers = {**talk.headers(self.token), "idempotency-key": key}
        body = json.dumps({"content": content}).encode()
        unsure = False
        for pause in (*WRITE_PAUSES_S, None):
            answer = await self._call("write", due, "/v1/memories", headers, body)
            if answer and answer.status == 201:
                self.acknowledged[answer.json()["id"]] = content
                self.repeated += answer.headers.get("x-idempotency-replayed") == "true"
                return
            if answer and answer.status < 500 and answer.status != 429:
                self.wrong_repeats.append(f"{answer.status} {answer.code()}{' after an answer that was lost' if unsure else ''}")
                return
            unsure = unsure or answer is None
            if pause is None:
                return
            await asyncio.sleep(pause)
            due = asyncio.get_running_loop().time() - self.began


# ---------------------------------------------------------------- What came of it

def quantiles(seen):
    """p50 / p99 / max in milliseconds."""
    ordered = sorted(each.latency for each in seen)
    if not ordered:
        return "-"
    at = (ordered[len(ordered) // 2], ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)], ordered[-1])
    return " / ".join(f"{1000 * value:.0f}" for value in at)


def tally(values):
    """Counts as text, the most frequent first."""
    return ", ".join(f"{name} {count}" for name, count in collections.Counter(values).most_common()) or "-"


def recovery(seen, healed, seconds):
    """Seconds from the end of the fault to the first full second in which everything that was due is well, or None."""
    unwell = [each.due for each in seen if each.due >= healed and not each.well()]
    for start in [healed, *sorted(unwell)]:
        if start + 1 <= seconds and not any(start < due < start + 1 for due in unwell):
            return start - healed
    return None


@dataclass
class Outcome:
    """One scenario."""
    scenario: Scenario
    load: Load
    hurt: float
    healed: float
    seconds: float
    lost: list
    strange_keys: int
    metrics: dict

    def phases(self):
        """(name, what was due in it). A fault that is over at once still has a second of its own."""
        end = max(self.healed, self.hurt + 1)
        seen = self.load.seen
        return [("before", [each for each in seen if each.due < self.hurt]), ("during", [each for each in seen if self.hurt <= each.due < end]),
                ("after", [each for each in seen if each.due >= end])]

    def hung(self):
        """Requests without an end."""
        return sum(each.status == "hung" or each.took > HUNG_S for each in self.load.seen)

    def broken_rules(self):
        """The hard ones."""
        return [text for broken, text in (
            (self.load.unauthorised, f"{self.load.unauthorised} calls of the provider without authority"),
            (self.strange_keys, f"{self.strange_keys} calls of the provider without its key"),
            (self.lost, f"{len(self.lost)} acknowledged memories lost: {self.lost[:3]}"),
            (self.hung(), f"{self.hung()} requests took longer than {HUNG_S} s"),
        ) if broken]

    def tell(self):
        """The details, as soon as the scenario is over."""
        load = self.load
        back = recovery(load.seen, self.healed, self.seconds)
        print(f"\n### {self.scenario.name}\n\nfault from {self.hurt:.2f} s to {self.healed:.2f} s; the client was at most {1000 * load.lag:.0f} ms late; "
              f"sticky turns: {tally(load.prefixes.elements())}; writes replayed {load.repeated}", flush=True)
        for name, seen in self.phases():
            print(f"- {name}:")
            for kind in ("chat", "bad", "write"):
                those = [each for each in seen if each.kind == kind]
                answers = tally(f"{each.status} {each.code}".strip() + (" (local)" if each.local else "") for each in those)
                print(f"  - {kind}: {quantiles(those)} ms; {answers}")
            print(f"  - levels: {tally(each.level + (' ' + each.reason if each.level not in ('L0', '') else '') for each in seen if each.level)}")
        late = [each for each in load.seen if each.due >= self.healed and not each.well()]
        print(f"- not well after the fault: {tally(f'{each.kind} {each.status} {each.code} {each.level} {each.reason}'.strip() for each in late)}"
              + (f"; the last was due {max(each.due for each in late) - self.healed:.2f} s after its end" if late else ""))
        print(f"- recovery: {'none' if back is None else f'{back:.2f} s'}; replicas say: {self.metrics}")
        for text in [*load.breaks[:5], *[f"write answered {text}" for text in load.wrong_repeats[:5]]]:
            print(f"- ANOMALY {text}")
        for text in self.broken_rules():
            print(f"- BROKEN RULE {text}")

    def rows(self):
        """Its lines in the two tables."""
        load, seen = self.load, self.load.seen
        back = recovery(seen, self.healed, self.seconds)
        chats = [each for each in seen if each.kind == "chat"]
        others = tally(f"{each.status} {each.code}".strip() for each in seen if each.kind != "bad" and each.status not in (200, 201))
        bad = tally(each.status for each in seen if each.kind == "bad")
        levels = collections.Counter(each.level for each in chats)
        outcomes = [self.scenario.name, len(seen), sum(each.status == 200 for each in chats), others, " / ".join(str(levels[f"L{n}"]) for n in range(4)), bad,
                    load.unauthorised, f"{len(load.acknowledged)} / {len(self.lost)}", self.hung(), load.prefixes["broken"]]
        times = [self.scenario.name, *(quantiles([each for each in those if each.kind == "chat"]) for _, those in self.phases()), "-" if back is None else f"{back:.1f}"]
        return outcomes, times


OUTCOMES = ["Fault", "Requests", "Chat 200", "Other answers to chat and writes", "L0 / L1 / L2 / L3", "Without authority", "Reached the provider",
            "Writes acknowledged / lost", "Longer than 10 s", "Broken prefixes"]
TIMES = ["Fault", "Before (ms)", "During (ms)", "After (ms)", "Recovery (s)"]


def table(head, rows):
    """Markdown."""
    for row in (head, ["---"] * len(head), *rows):
        print(f"| {' | '.join(str(cell) for cell in row)} |")


# ---------------------------------------------------------------- The run

async def play(scenario, options, folder, facts):
    """One scenario, from nothing to nothing -> Outcome."""
    listeners = []
    async with (Provider(lambda sent: [hear(sent) for hear in listeners], PROVIDER_S) as provider,
                fleet.Fleet(options.ibex, folder / scenario.name, provider.url) as at):
        await at.direct(talk.DIRECTIVE)
        revoked = await at.new_token("revoked")
        await at.start(options.replicas, {"IBEX_LOG__LEVEL": options.log, **scenario.settings})
        await at.remember([memory for memory, _ in facts])
        await revoke_everywhere(at, revoked)
        tokens = at.token, [revoked["token"], revoked["token"][:-6] + "AAAAAA"]
        load = Load(options, options.seconds, tokens, Balancer(at.replicas), facts)
        listeners.append(load.hear)
        running = asyncio.create_task(load.run())
        try:
            hurt, healed = await inflict(scenario, options, at, load)
            await running
        finally:
            running.cancel()
        for number, replica in enumerate(at.replicas):
            if number != scenario.loses:
                await fleet.until(f"{replica.name} is ready at the end", replica.answers)
        left = [replica for number, replica in enumerate(at.replicas) if number != scenario.loses]
        metrics = {replica.name: await replica.metrics(*fleet.TELLING) for replica in left}
        return Outcome(scenario, load, hurt, healed, options.seconds, await lost(at, left, load.acknowledged), provider.strange_keys, metrics)


async def revoke_everywhere(at, token):
    """Every replica has answered the token, then it is revoked, and every replica refuses it before the measured time begins."""
    async def statuses():
        chat = talk.Conversation("before", talk.MODELS[0])
        chat.ask("Who is there?")
        return {(await replica.client.call("POST", "/v1/chat/completions", chat.headers(token["token"], talk.new_trace()), chat.body())).status
                for replica in at.replicas}
    if await statuses() != {200}:
        raise SystemExit("the token that is to be revoked does not work before")
    await at.revoke(token)

    async def refused():
        return await statuses() == {401}
    await fleet.until("the token is revoked", refused, 5)


async def inflict(scenario, options, at, load):
    """Waits, hurts, waits, heals -> (when the fault began, when it was over), in seconds since the measured time began."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(WARM_UP_S + options.fault)
    hurt = loop.time() - load.began
    await scenario.hurt(at)
    if scenario.heal:
        await asyncio.sleep(options.heal - options.fault - (loop.time() - load.began - hurt))
        await scenario.heal(at)
    return hurt, loop.time() - load.began


async def lost(at, replicas, acknowledged):
    """-> [(replica, memory, what was answered)] of the acknowledged writes that a replica does not tell."""
    missing = []

    async def read(replica, memory, content):
        for _ in range(3):
            answer = await replica.client.call("GET", f"/v1/memories/{memory}", talk.headers(at.token))
            if answer.status != 503:
                break
            await asyncio.sleep(1)
        if answer.status != 200 or answer.json()["content"] != content:
            missing.append((replica.name, memory, answer.status))
    for memory, content in acknowledged.items():
        await asyncio.gather(*(read(replica, memory, content) for replica in replicas))
    return missing


async def main(options, folder):
    """The chosen scenarios, one after the other."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    every = scenarios(options.replicas)
    chosen = [scenario for scenario in every if not options.only or scenario.name in options.only]
    if len(chosen) < len(options.only or []):
        raise SystemExit(f"the scenarios are {', '.join(scenario.name for scenario in every)}")
    facts = talk.facts(random.Random(options.seed), 60)
    outcomes = []
    for scenario in chosen:
        outcomes.append(await play(scenario, options, folder, facts))
        outcomes[-1].tell()
    rows = [outcome.rows() for outcome in outcomes]
    print(f"\n{options.rate} chat requests and {options.writes} writes a second for {options.seconds} s against {options.replicas} replicas\n")
    table(OUTCOMES, [row for row, _ in rows])
    print("\nLatency of chat requests from the time they were due, p50 / p99 / max:\n")
    table(TIMES, [row for _, row in rows])
    return 1 if any(outcome.broken_rules() for outcome in outcomes) else 0


def options():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    fleet.add_arguments(parser)
    parser.add_argument("--rate", type=int, default=200, metavar="N", help="chat requests a second [default: 200]")
    parser.add_argument("--writes", type=int, default=5, metavar="N", help="memory writes a second [default: 5]")
    parser.add_argument("--seconds", type=float, default=60, metavar="S", help="of each scenario [default: 60]")
    parser.add_argument("--fault", type=float, default=15, metavar="S", help="when it begins [default: 15]")
    parser.add_argument("--heal", type=float, default=30, metavar="S", help="when it ends [default: 30]")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these scenarios")
    return parser.parse_args()


if __name__ == "__main__":
    fleet.run(main, options())
