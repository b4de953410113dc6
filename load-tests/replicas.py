"""Three replicas have to behave like one: a load test of what is promised about sessions, rates, revocation and forgetting.

    load-tests/replicas.py --ibex target/release/ibex

Sessions: conversations go on at replicas taken at random. One session and epoch has one prefix, and what the provider gets for a turn begins
with the bytes that it got for the turn before. Rates: one limited token is used at all replicas at once. Revocation and forgetting: while
traffic runs everywhere, a token is revoked, memories are forgotten; then both again without announcements over Redis.
Exit status 1 if anything was not as promised. README.md says how to read what is printed.
"""

import argparse
import asyncio
import collections
import itertools
import json
import random
import time
from dataclasses import dataclass

import fleet
import talk
from upstream import Provider
from wire import Broken, Hung, NotSent

# Whatever a request may take here; nothing is out of order in this test.
LIMIT_S = 15

# The limited token: requests a minute, which is also what it may use at once.
LIMITED_RPM = 600
HAMMER_S = 10
HAMMERS = 6

REVOCATIONS = 5
# A revoked token is refused by every replica after this time.
REVOKED_WITHIN_S = 1.0

# Beside a session of one turn after the other at each replica, so many longer ones go on while a memory is forgotten.
LONG_SESSIONS = 3
LONG_TURNS = 12

# A new memory is recalled everywhere after this time.
RECALL_LIMIT_S = 10

# How long traffic goes on after a memory was forgotten.
AFTER_FORGET_S = 0.25


class Report:
    """What was measured, and what was not as promised."""

    def __init__(self):
        self.violations = []
        self.rows = []

    def violation(self, text):
        """Prints it, and fails the run."""
        print(f"VIOLATION {text}", flush=True)
        self.violations.append(text)

    def row(self, part, measured, promise):
        """A line of the table at the end."""
        print(f"{part}: {measured}", flush=True)
        self.rows.append((part, measured, promise))

    def print(self):
        """The table."""
        print("\n| Part | Measured | Promise |\n|---|---|---|")
        for row in self.rows:
            print(f"| {' | '.join(row)} |")
        print(f"\n{len(self.violations)} violations")


class Heard:
    """What the provider was sent, by trace id."""

    def __init__(self):
        self.bodies = {}
        self.at = {}

    def __call__(self, sent):
        self.bodies[sent.trace] = sent.body
        self.at[sent.trace] = sent.at

    def clear(self):
        """Forgets all of it, between two parts."""
        self.bodies.clear()
        self.at.clear()


# ---------------------------------------------------------------- Sessions

SAID = ("session-id", "epoch", "prefix-sha256", "context-status", "context-degradation", "context-reason", "memories-injected", "memories-new")


@dataclass(slots=True)
class Turn:
    """A turn that was answered: which, where, what the provider got, and what the headers said."""
    number: int
    replica: str
    body: bytes
    said: dict


class Sessions:
    """Conversations over all replicas, each turn compared with what the provider got before."""

    def __init__(self, options, replicas, heard, token, facts, report):
        self.options, self.replicas, self.heard, self.token, self.report = options, replicas, heard, token, report
        self.random = random.Random(options.seed)
        self.questions = [question for _, question in facts]
        self.counts, self.reasons = collections.Counter(), collections.Counter()
        self.prefixes = collections.defaultdict(set)

    async def run(self):
        """All rounds of as many sessions at once."""
        for number in range(self.options.rounds):
            names = (f"load-{number}-{session}" for session in range(self.options.sessions))
            await asyncio.gather(*(self._converse(name, session) for session, name in enumerate(names)))
        for (session, epoch), hashes in self.prefixes.items():
            if len(hashes) != 1:
                self.report.violation(f"session {session} has {len(hashes)} prefixes in epoch {epoch}: {sorted(hashes)}")
        self._tell()

    async def _converse(self, name, session):
        chat = talk.Conversation(name, talk.MODELS[session % 2], stream=session % 5 == 0, named=session % 4 != 3)
        last = None
        for turn in range(self.options.turns):
            # Nobody else begins like this, so an unnamed session is not taken for another one.
            chat.ask(self.random.choice(self.questions) if turn else f"This is {name}. {self.random.choice(self.questions)}")
            turn, trace = await self._turn(chat)
            if turn and last and not talk.extends(last.body, turn.body):
                self._differs("the next turn", chat, last, turn)
            if self.random.random() < self.options.retries:
                # The client did not see the answer and asks again, elsewhere.
                again, trace = await self._turn(chat)
                self.counts["repeated"] += 1
                if again and turn and again.body != turn.body:
                    self._differs("a repeated turn", chat, turn, again)
                turn = again or turn
            chat.hear(trace)
            last = turn or last
            await asyncio.sleep(self.options.pause)

    async def _turn(self, chat):
        """One request -> (what came of it, its trace id). Nothing comes of one that was refused, or that went out without what is frozen (L3)."""
        replica, trace = self.random.choice(self.replicas), talk.new_trace()
        self.counts["requests"] += 1
        try:
            answer = await replica.client.call("POST", "/v1/chat/completions", chat.headers(self.token, trace), chat.body(), LIMIT_S)
        except (NotSent, Broken, Hung) as error:
            self.report.violation(f"{chat.name} turn {chat.turn}: {type(error).__name__} at {replica.name}")
            return None, trace
        if answer.status != 200:
            self.report.violation(f"{chat.name} turn {chat.turn}: {answer.status} {answer.code()} at {replica.name}")
            return None, trace
        said = {name: answer.headers.get(f"x-ibex-{name}") for name in SAID}
        level = said["context-degradation"]
        self.counts[level] += 1
        self.counts["with memories"] += said["memories-injected"] != "0"
        self.counts["recalled"] += said["memories-new"] != "0"
        if level != "L0":
            self.reasons[f"{level} {said['context-reason']} ({said['context-status']})"] += 1
        if level == "L3":
            return None, trace
        self.prefixes[said["session-id"], said["epoch"]].add(said["prefix-sha256"])
        return Turn(chat.turn, replica.name, self.heard.bodies[trace], said), trace

    def _differs(self, what, chat, last, now):
        """Bytes that had been sent were sent differently: a new epoch says so, and everything else is a defect."""
        where = (f"{what} of {chat.name} ({chat.model}): turn {last.number} at {last.replica} {last.said}, then turn {now.number} at {now.replica} "
                 f"{now.said}; {talk.difference(last.body, now.body)}")
        if last.said["epoch"] == now.said["epoch"]:
            self.report.violation(where)
        else:
            self.counts["new epochs"] += 1
            print(f"  new epoch: {where}")

    def _tell(self):
        counts = self.counts
        levels = ", ".join(f"{level} {counts[level]}" for level in ("L0", "L1", "L2", "L3") if counts[level])
        self.report.row(
            "sessions",
            f"{counts['requests']} requests in {self.options.rounds * self.options.sessions} sessions, {counts['repeated']} of them repeated turns; "
            f"{levels}; {counts['with memories']} with memories, {counts['recalled']} with new ones; {len(self.prefixes)} pairs of session and epoch, {counts['new epochs']} new epochs; "
            f"degraded: {dict(self.reasons) or 'none'}",
            "one prefix an epoch; each turn extends the one before")


# ---------------------------------------------------------------- Rates

async def rates(replicas, token, report):
    """All replicas are asked at once with one limited token. What it may use at once and what it earns meanwhile is the most they may admit."""
    statuses = collections.Counter()
    began = time.monotonic()

    async def hammer(replica):
        while time.monotonic() < began + HAMMER_S:
            answer = await replica.client.call("GET", "/v1/memories/hot", talk.headers(token), limit_s=LIMIT_S)
            statuses[answer.status] += 1
    await asyncio.gather(*(hammer(replica) for replica in replicas for _ in range(HAMMERS)))
    took = time.monotonic() - began
    most = LIMITED_RPM + LIMITED_RPM / 60 * took + 1
    report.row("global limit", f"{sum(statuses.values())} requests in {took:.1f} s, {statuses[200]} admitted, at most {most:.0f} allowed; {dict(statuses)}",
               f"{LIMITED_RPM} at once and {LIMITED_RPM // 60} a second, over all replicas")
    if statuses[200] > most:
        report.violation(f"{statuses[200]} requests were admitted, {most:.0f} are allowed")
    if statuses[200] < 0.95 * most or set(statuses) - {200, 429}:
        report.violation(f"the limit is not used up, or something else was answered: {dict(statuses)}")


# ---------------------------------------------------------------- Revocation

async def revocation(fleet_, heard, questions, report, how):
    """Tokens are revoked by the command line while they are in use at all replicas."""
    latest = []
    for number in range(REVOCATIONS):
        token = await fleet_.new_token(f"revoked-{how}-{number}")
        used, stop = collections.defaultdict(list), asyncio.Event()

        async def use(replica):
            while not stop.is_set():
                chat, trace = talk.Conversation(f"revoked-{talk.new_trace()[:8]}", talk.MODELS[0]), talk.new_trace()
                chat.ask(next(questions))
                answer = await replica.client.call("POST", "/v1/chat/completions", chat.headers(token["token"], trace), chat.body(), LIMIT_S)
                used[replica.name].append((answer.began, answer.status, trace in heard.bodies))
                await asyncio.sleep(0.004)
        async with asyncio.TaskGroup() as users:
            for replica in fleet_.replicas * 2:
                users.create_task(use(replica))
            await asyncio.sleep(0.7)
            await fleet_.revoke(token)
            revoked = time.monotonic()
            await asyncio.sleep(REVOKED_WITHIN_S + 1)
            stop.set()
        for replica, answers in used.items():
            if not any(status == 200 for _, status, _ in answers):
                report.violation(f"{replica} never answered the token before it was revoked")
            after = [(began - revoked, status, called) for began, status, called in answers if began > revoked]
            served = [at for at, status, called in after if status != 401 or called]
            latest.append(max(served, default=0.0))
            if latest[-1] > REVOKED_WITHIN_S:
                report.violation(f"{replica} served a revoked token {latest[-1]:.3f} s later")
    milliseconds = sorted(round(1000 * at) for at in latest)
    report.row(f"revocation, {how}", f"the last request that was served began {milliseconds[-1]} ms after the revocation; "
               f"at {len(fleet_.replicas)} replicas {REVOCATIONS} times: {milliseconds}", f"refused everywhere within {REVOKED_WITHIN_S:.0f} s")


# ---------------------------------------------------------------- Forgetting

class Forgetting:
    """Memories are forgotten at one replica while all of them recall them, in new sessions and in one that has them in its frozen text."""

    def __init__(self, fleet_, heard, random_, report, how):
        self.fleet, self.heard, self.random, self.report, self.how = fleet_, heard, random_, report, how
        self.counts = collections.Counter()
        self.deletes = []

    async def run(self, times):
        """As many memories, one after the other."""
        for name in talk.words(self.random, times):
            await self._one(name)
        counts = self.counts
        slow = sorted(self.deletes)
        self.report.row(
            f"forgetting, {self.how}",
            f"{times} memories, {counts['with it before']} requests with the memory before, {counts['after']} began after DELETE returned, {counts['long']} of them in "
            f"sessions that went on: {counts['carried']} carried it; L3 {counts['L3']} after; DELETE took {1000 * slow[len(slow) // 2]:.0f} ms (median), {1000 * slow[-1]:.0f} ms (most)",
            "none carries it")

    async def _one(self, name):
        secret = f"{talk.word(self.random)} {talk.word(self.random)}".lower()
        [memory] = await self.fleet.remember([f"The {name} vault opens with the phrase {secret}."])
        question, secret = f"With which phrase does the {name} vault open?", secret.encode()
        asked, stop = [], asyncio.Event()

        async def ask(replica, turns):
            """Sessions of so many turns, one after the other; those of several turns at replicas taken at random, with the memory frozen by the first turn."""
            while not stop.is_set():
                chat = talk.Conversation(f"vault-{talk.new_trace()[:8]}", self.random.choice(talk.MODELS))
                while chat.turn < turns and not stop.is_set():
                    chat.ask("And what else do you know about it?" if chat.turn else question)
                    trace, at = talk.new_trace(), replica or self.random.choice(self.fleet.replicas)
                    answer = await at.client.call("POST", "/v1/chat/completions", chat.headers(self.fleet.token, trace), chat.body(), LIMIT_S)
                    chat.hear(trace)
                    asked.append((trace, answer, at.name, chat.turn > 1))
                    await asyncio.sleep(0.004)
        everywhere = {(replica.name, False) for replica in self.fleet.replicas}

        async def recalled():
            found = {(at, kept) for trace, _, at, kept in asked if secret in self.heard.bodies.get(trace, b"")}
            return everywhere <= found and any(kept for _, kept in found)
        at = self.random.choice(self.fleet.replicas)
        async with asyncio.TaskGroup() as users:
            for replica in self.fleet.replicas:
                users.create_task(ask(replica, 1))
            for _ in range(LONG_SESSIONS):
                users.create_task(ask(None, LONG_TURNS))
            try:
                await fleet.until(f"the memory of {name} is recalled by every replica", recalled, RECALL_LIMIT_S)
            except SystemExit as late:
                said = collections.Counter((at, answer.status, answer.headers.get("x-ibex-context-reason")) for _, answer, at, _ in asked)
                self.report.violation(f"{late}; the replicas answered {dict(said)}")
            began = time.monotonic()
            answer = await at.client.call("DELETE", f"/v1/memories/{memory}", talk.headers(self.fleet.token))
            gone = time.monotonic()
            self.deletes.append(gone - began)
            await asyncio.sleep(AFTER_FORGET_S)
            stop.set()
        if answer.status != 204:
            self.report.violation(f"DELETE answered {answer.status} {answer.body!r}")
        self._judge(name, at.name, gone, asked, secret)

    def _judge(self, name, deleted_at, gone, asked, secret):
        for trace, answer, replica, kept in asked:
            carried = secret in self.heard.bodies.get(trace, b"")
            if answer.began <= gone:
                self.counts["with it before"] += carried
                continue
            self.counts["after"] += 1
            self.counts["long"] += kept
            self.counts["carried"] += carried
            self.counts["L3"] += answer.headers.get("x-ibex-context-degradation") == "L3"
            if answer.status != 200:
                self.report.violation(f"{replica} answered {answer.status} {answer.code()} while {name} was forgotten")
            if carried:
                said = {header: value for header, value in answer.headers.items() if header.startswith("x-ibex-")}
                self.report.violation(f"{name}, forgotten at {deleted_at}, was sent by {replica} in a {'frozen' if kept else 'new'} session by a request that "
                                      f"began {1000 * (answer.began - gone):.1f} ms after: {said}")
        self.heard.clear()


# ---------------------------------------------------------------- The run

async def main(options, folder):
    """All parts, in order."""
    report, heard = Report(), Heard()
    chance = random.Random(options.seed)
    facts = talk.facts(chance, 60)
    async with Provider(heard) as provider, fleet.Fleet(options.ibex, folder, provider.url) as fleet_:
        await fleet_.direct(talk.DIRECTIVE)
        # The command line makes the token that is limited, because the limit has to name it.
        limited = json.loads(await fleet_.ibex("token", "create", "--json", "--name", "limited", "--agent", fleet_.agent, "--permission", "chat"))
        with fleet_.config.open("a") as config:
            config.write(f"\n[rate_limit.ids.{limited['id']}]\nrpm = {LIMITED_RPM}\n")
        for how, settings in (("announced", {}), ("without announcements", {"IBEX_REDIS__PUBSUB": "false"})):
            await fleet_.start(options.replicas, {"IBEX_LOG__LEVEL": options.log, **settings})
            if not settings:
                await fleet_.remember([memory for memory, _ in facts])
            await warm_up(fleet_, facts)
            if not settings:
                await Sessions(options, fleet_.replicas, heard, fleet_.token, facts, report).run()
                await rates(fleet_.replicas, limited["token"], report)
            heard.clear()
            questions = itertools.cycle([question for _, question in facts])
            await revocation(fleet_, heard, questions, report, how)
            await Forgetting(fleet_, heard, chance, report, how).run(options.forget)
            await tell_metrics(fleet_, report)
            await fleet_.stop_replicas()
        if provider.strange_keys:
            report.violation(f"{provider.strange_keys} of {provider.calls} calls of the provider did not bear its key")
    report.print()
    return 1 if report.violations else 0


async def warm_up(fleet_, facts):
    """The first questions after a start find the memories not loaded yet, by design. Asks each replica until one question was answered in full."""
    for replica in fleet_.replicas:
        async def full():
            chat, trace = talk.Conversation(f"warm-{talk.new_trace()[:8]}", talk.MODELS[0]), talk.new_trace()
            chat.ask(facts[0][1])
            answer = await replica.client.call("POST", "/v1/chat/completions", chat.headers(fleet_.token, trace), chat.body(), LIMIT_S)
            return answer.headers.get("x-ibex-memories-injected", "0") != "0"
        await fleet.until(f"{replica.name} recalls", full)


async def tell_metrics(fleet_, report):
    """What the replicas themselves say about it."""
    for replica in fleet_.replicas:
        seen = await replica.metrics(*fleet.TELLING)
        print(f"  {replica.name}: {seen}")
        if broken := [name for name in seen if name.startswith("ibex_session_prefix_broken")]:
            report.violation(f"{replica.name} itself counts broken prefixes: {broken}")


def options():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    fleet.add_arguments(parser)
    parser.add_argument("--sessions", type=int, default=20, metavar="N", help="at once [default: 20]")
    parser.add_argument("--rounds", type=int, default=4, metavar="N", help="of as many sessions, one after the other [default: 4]")
    parser.add_argument("--turns", type=int, default=20, metavar="N", help="in each session [default: 20]")
    parser.add_argument("--retries", type=float, default=0.25, metavar="SHARE", help="of the turns that are sent twice [default: 0.25]")
    parser.add_argument("--pause", type=float, default=0.05, metavar="S", help="between two turns of a session; 0 asks for all that the machine can do [default: 0.05]")
    parser.add_argument("--forget", type=int, default=50, metavar="N", help="memories to forget, with and without announcements [default: 50]")
    return parser.parse_args()


if __name__ == "__main__":
    fleet.run(main, options())
