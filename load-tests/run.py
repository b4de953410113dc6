"""Loads ibex, an nginx and nothing at all with the same requests, and writes what came of it: JSON lines and one page.

    load-tests/run.py --ibex target/release/ibex                      # everything; a quarter of an hour
    load-tests/run.py --ibex target/release/ibex --scenario chat-1k   # one of them
    load-tests/run.py --ibex target/debug/ibex --quick                # whether the program itself works; measures nothing

An open loop: every request is due at a moment that is fixed beforehand, and its latency counts from then. The target has a core of its own. Steps in
which the client was the bottleneck are refused. Exit status 1 if something did not hold that has to. README.md says how to read the page.
"""

import argparse
import json
import pathlib
import resource
import shutil
import time
import types

import fleet
import measure
import openloop
import provider as scripted
import report
import scenarios
import targets

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Of so many questions about notes at least this share has to recall one: otherwise the load would not measure recall.
PROBES, RECALLED = 40, 0.9

# What faults.py plays here, by scenario: its name there, and the title.
OUTAGES = {"redis-refuse": ("redis-stopped", "Redis stops, and what cannot be counted is refused"), "redis-local": ("redis-stopped-local", "Redis stops, and each replica counts by itself")}

# A quick run asks whether the program works, also with a debug build on a busy machine: no answer there depends on a deadline.
QUICK = {"IBEX_CONTEXT__DEADLINE_MS": "5000", "IBEX_CONTEXT__HOT_TIMEOUT_MS": "5000", "IBEX_CONTEXT__DIRECTIVE_TIMEOUT_MS": "5000"}


class Log:
    """JSON lines, one for whatever was measured, as soon as it was."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.lines = []
        self.path.write_text("")

    def add(self, kind, **what):
        """One line."""
        line = {"kind": kind, **what}
        self.lines.append(line)
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return line


class Run:
    """Everything that the scenarios share."""

    def __init__(self, options, folder, log):
        self.options, self.folder, self.log = options, folder, log
        self.cores = measure.Cores(options.target_core, options.driver_core, options.provider_core)
        self.faults = 0

    async def prepare(self):
        """The provider, and the store that every ibex gets a copy of."""
        self.provider = scripted.Process(self.cores).start()
        self.store = targets.Store(self.options.ibex, self.folder / "store", self.provider).make(scenarios.memories())
        self.cores.take()
        self.log.add("machine", at=time.strftime("%Y-%m-%d %H:%M", time.gmtime()) + " UTC", **measure.machine(self.cores), ibex=measure.binary(self.options.ibex),
                     memories=scenarios.MEMORIES, quick=self.options.quick, rounds=self.options.rounds, lenient=self.options.lenient)

    async def scenario(self, scenario):
        """All steps of one, at all its targets, which are started for it and take turns at each step."""
        print(f"\n### {scenario.name}: {scenario.title}", flush=True)
        folder, began, store = self.folder / scenario.name, time.monotonic(), self.store
        if scenario.agents:
            store = await self._store_of_agents(scenario, folder)
        them = []
        self.log.add("scenario", name=scenario.name, title=scenario.title, tells=scenario.tells, unit=scenario.unit, rates=scenario.rates, seconds=scenario.seconds,
                     streams=scenario.unit == "streams/s", burst=scenario.burst, provider_ms=scenario.provider_ms)
        try:
            for name in self._targets(scenario):
                them.append(await targets.start(name, folder / name, self.cores, store, self.provider, scenario.settings | (QUICK if self.options.quick else {})))
                if name == "ibex" and not scenario.agents:
                    await self._recalls(them[-1])
            await self._steps(scenario, them, store)
        finally:
            for target in them:
                await target.stop()
        print(f"  {time.monotonic() - began:.0f} s", flush=True)

    def _targets(self, scenario):
        names = [name for name in scenario.targets if name in (self.options.target or scenarios.ALL)]
        if "nginx" in names and not shutil.which("nginx"):
            print("  nginx is not installed and is left out")
            names.remove("nginx")
        return names

    async def _steps(self, scenario, them, store):
        if scenario.warm_up:
            for target in them:
                await self._step(scenario, target, scenario.rates[0], scenario.warm_up, seed=0)
        done = {target.name: [] for target in them}
        ended = set()
        for round_ in range(self.options.rounds if scenario.check is None else 1):
            for number, rate in enumerate(scenario.rates):
                # In another order at each step, so that a drift of the machine meets all of them.
                for target in them[number % len(them):] + them[:number % len(them)]:
                    target.agents, target.any_token = store.agents, getattr(store, "any_token", "")
                    if (round_, target.name) in ended:
                        continue
                    figures = await self._step(scenario, target, rate, scenario.seconds, seed=1 + number + 100 * round_)
                    done[target.name].append(figures)
                    self.log.add("step", scenario=scenario.name, target=target.name, step=number, round=round_, **figures)
                    tell(target.name, rate, figures)
                    if figures["saturated"]:
                        ended.add((round_, target.name))
        if scenario.check:
            for target in them:
                faults = await scenario.check(target, done[target.name])
                self.log.add("check", scenario=scenario.name, target=target.name, faults=faults)
                self._say(target.name, faults)

    async def _step(self, scenario, target, rate, seconds, seed):
        shots = scenario.make(scenario, target, rate, seconds, seed)
        before = await self._provider()
        step = await openloop.drive(target, self.provider, self.cores, shots, rate, seconds, patience_s=scenario.patience_s,
                                    connections=0 if scenario.burst else 32)
        figures = openloop.judge(step, self.cores, scenario.burst)
        after = await self._provider()
        return figures | {"provider_calls": after["calls"] - before["calls"], "provider_left": after["left"] - before["left"], "provider_after": {"open": after["open"]}}

    async def _provider(self):
        client = targets.Client(self.provider.port)
        answer = await client.call("GET", "/stats", {})
        client.close()
        return answer.json()

    async def _recalls(self, target):
        """Fails when memory is on and nothing is recalled."""
        # The first questions find the memories not loaded yet, by design.
        for _ in range(3):
            step = await openloop.Load(target.port, scenarios.simple("load-chat", 1000, 3)(None, target, PROBES, 1.0, 0), PROBES, 1).run()
            if step.recalled >= RECALLED * len(step.seen):
                return
        raise SystemExit(f"only {step.recalled} of {len(step.seen)} questions recalled a memory: {dict(step.levels)}; see {target.log}")

    async def _store_of_agents(self, scenario, folder):
        """A store with many agents; whoever wrote their memories is gone before anybody asks."""
        store = targets.Store(self.options.ibex, folder / "store", self.provider).make(scenarios.memories(10))
        store.add_agents(scenario.agents)
        writer = await targets.start("ibex", folder / "writer", self.cores, store, self.provider, {})
        try:
            await scenarios.give_memories(writer, store.agents, store.any_token)
        finally:
            await writer.stop()
        shutil.rmtree(store.folder)
        shutil.copytree(folder / "writer/store", store.folder)
        return store

    async def outage(self, name):
        """Redis stops under a fleet: played by faults.py, told here by the second."""
        import faults
        import random
        import talk
        print(f"\n### {name}", flush=True)
        quick = self.options.quick
        options = types.SimpleNamespace(ibex=self.options.ibex, replicas=2, seed=1, rate=50 if quick else 150, writes=2, seconds=9 if quick else 40,
                                        fault=2 if quick else 10, heal=5 if quick else 20, log="warn")
        [played] = [each for each in faults.scenarios(options.replicas) if each.name == OUTAGES[name][0]]
        # Engines and replicas share all cores with the driver here: a fleet does not fit on one.
        self.cores.leave()
        try:
            outcome = await faults.play(played, options, self.folder / name, talk.facts(random.Random(1), 60))
        finally:
            self.cores.take()
        chats = [seen for seen in outcome.load.seen if seen.kind == "chat"]
        seconds = []
        for second in range(int(options.seconds)):
            those = [seen for seen in chats if second <= seen.due < second + 1]
            statuses = {str(status): sum(str(seen.status) == status for seen in those) for status in sorted({str(seen.status) for seen in those})}
            levels = {level: sum(seen.level == level for seen in those) for level in sorted({seen.level for seen in those if seen.level})}
            seconds.append({"second": second, "statuses": statuses, "levels": levels, "latency_ms": measure.curve([seen.latency for seen in those])})
        broken = outcome.broken_rules()
        self.log.add("outage", scenario=name, title=OUTAGES[name][1], hurt=round(outcome.hurt, 2), healed=round(outcome.healed, 2),
                     recovery_s=faults.recovery(outcome.load.seen, outcome.healed, options.seconds), rate=options.rate, replicas=options.replicas,
                     late_ms=round(1000 * outcome.load.lag, 1), seconds=seconds, faults=broken)
        self.log.add("check", scenario=name, target="ibex", faults=broken)
        self._say("ibex", broken)

    def _say(self, target, faults):
        self.faults += len(faults)
        for fault in faults:
            print(f"  FAULT {target}: {fault}", flush=True)
        if not faults:
            print(f"  {target:9} holds", flush=True)

    def close(self):
        """Ends the provider."""
        self.provider.stop()


def tell(target, rate, figures):
    """One line about a step."""
    latency = figures.get("ttfb_ms") or figures["latency_ms"]
    at = " / ".join(f"{latency[share]:.2f}" if share in latency else "-" for share in ("0.5", "0.99", "max"))
    outcomes = ", ".join(f"{name}: {count}" for name, count in figures["outcomes"].items())
    verdict = f"REFUSED: {figures['refused']}" if figures["refused"] else "saturated" if figures["saturated"] else ""
    print(f"  {target:9} {rate:5g} wanted {figures['achieved']:8.1f} ok/s  {at} ms (p50/p99/max)  {figures['cpu_us']:6.0f} us/request  "
          f"{figures['resident_peak_kb'] / 1024:5.0f} MiB  late p99 {openloop.tail(figures['late_ms']):.2f} ms  {outcomes}  {verdict}", flush=True)


async def main(options, folder):
    """The chosen scenarios, one after the other, and the page."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    every = scenarios.scenarios(options.quick)
    names = [scenario.name for scenario in every] + list(OUTAGES)
    chosen = options.scenario or names
    if set(chosen) - set(names):
        raise SystemExit(f"the scenarios are {', '.join(names)}")
    log = Log(pathlib.Path(options.out) / "load.jsonl")
    run = Run(options, folder, log)
    try:
        await run.prepare()
        for scenario in every:
            if scenario.name in chosen and set(scenario.targets) & set(options.target or scenarios.ALL):
                await run.scenario(scenario)
        for name in OUTAGES:
            if name in chosen:
                await run.outage(name)
    finally:
        run.close()
        page = log.path.with_suffix(".html")
        page.write_text(report.page(log.lines))
    refused = sum(bool(line["refused"]) for line in log.lines if line["kind"] == "step")
    steps = sum(line["kind"] == "step" for line in log.lines)
    print(f"\n{steps} steps, {refused} of them refused because the client was the bottleneck; {run.faults} faults\n{log.path}\n{page}")
    return 1 if run.faults else 0


def options():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ibex", default=str(ROOT / "target/release/ibex"), metavar="FILE", help="the binary [default: the release build]")
    parser.add_argument("--scenario", nargs="+", metavar="NAME", help=f"these [default: all]: {', '.join(each.name for each in scenarios.scenarios())}, {', '.join(OUTAGES)}")
    parser.add_argument("--target", nargs="+", choices=scenarios.ALL, metavar="NAME", help=f"these [default: all that a scenario has]: {', '.join(scenarios.ALL)}")
    parser.add_argument("--quick", action="store_true", help="short steps and small loads: tries the program, measures nothing")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="of the scenarios without a verdict; the page shows medians [default: 1]")
    parser.add_argument("--out", default=str(ROOT / "target/load"), metavar="FOLDER", help="for load.jsonl and load.html [default: target/load]")
    parser.add_argument("--target-core", type=int, metavar="N", help="[default: the first one]")
    parser.add_argument("--driver-core", type=int, metavar="N", help="[default: the second one]")
    parser.add_argument("--provider-core", type=int, metavar="N", help="[default: the third one, or the driver's]")
    parser.add_argument("--lenient", action="store_true", help="draws refused steps too, marked as such: to try the program on a machine that is busy")
    parser.add_argument("--keep", metavar="FOLDER", help="keeps the logs and stores there")
    return parser.parse_args()


if __name__ == "__main__":
    fleet.run(main, options())
