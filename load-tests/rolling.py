"""A rolling restart behind a balancer: two replicas are stopped by SIGTERM and started again, one after the other, and no client may notice.

    load-tests/rolling.py --ibex target/release/ibex --drain-delay 3000
    load-tests/rolling.py --ibex target/release/ibex --drain-delay 3000 --balancer probed

PostgreSQL, Redis and two replicas, an nginx in front of them, fifty streams open at any time and chat requests in an open loop. The verdict is the
clients': no stream cut, no answer of 5xx, nothing refused. What nginx did for it, sending a request again to the other replica because one took no
connection, is counted apart. Exit status 1 if a client noticed. README.md says what is whose part.
"""

import argparse
import asyncio
import collections
import pathlib
import random
import re
import resource
import signal
import subprocess
import time

import fleet
import measure
import provider as scripted
import scenarios
import talk
from openloop import Load, Shot
from targets import NGINX_ACCOUNT, clean_environment
from wire import Broken, Hung, NotSent

# A stream that began before SIGTERM must have ended when the drain does, else it is cut by design.
MARGIN_S = 5
# How long traffic goes on before the first restart, after each, and how often a probe asks.
SETTLE_S = 4.0
PROBE_S = 0.25

NGINX = """
{account}
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx-errors.log warn;
events {{ worker_connections 4096; }}
http {{
  log_format attempts '$msec|$status|$upstream_addr|$upstream_status|$upstream_http_connection|$request_time';
  access_log {folder}/nginx-access.log attempts;
  client_body_temp_path {folder}/nginx-body;
  proxy_temp_path {folder}/nginx-proxy;
  fastcgi_temp_path {folder}/nginx-fastcgi;
  uwsgi_temp_path {folder}/nginx-uwsgi;
  scgi_temp_path {folder}/nginx-scgi;
  upstream replicas {{
    least_conn;
{servers}
    keepalive 64;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://replicas;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 900s;
      # A connection that was not taken carries no request, so the other replica gets it. A chat that was sent is never sent again: `non_idempotent` is left out.
      proxy_next_upstream error;
      proxy_connect_timeout 2s;
    }}
  }}
}}
"""


class Balancer:
    """An nginx over the replicas. It finds out by itself, from connections that are refused; `set_aside` tells it beforehand, as a probe would."""

    def __init__(self, folder, replicas):
        self.folder, self.port = folder, fleet.free_port()
        self.ports = [replica.port for replica in replicas]
        self.aside = set()
        self.reloads = 0
        self.config = folder / "nginx.conf"
        self._write()
        with (folder / "nginx.log").open("ab") as log:
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", "nginx", "-p", str(folder), "-c", str(self.config)], cwd=folder, env=clean_environment(),
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _write(self):
        servers = "\n".join(f"    server 127.0.0.1:{port} max_fails=1 fail_timeout=1s{' down' if port in self.aside else ''};" for port in self.ports)
        self.config.write_text(NGINX.format(account=NGINX_ACCOUNT, folder=self.folder, port=self.port, servers=servers))

    def set_aside(self, ports):
        """No new requests for these. What is under way goes on in the worker that has it."""
        if ports != self.aside and len(ports) < len(self.ports):
            self.aside = set(ports)
            self._write()
            self.process.send_signal(signal.SIGHUP)
            self.reloads += 1

    def attempts(self):
        """-> [(status, addresses that were tried, whether the replica's answer closed its connection)] of all requests so far."""
        log = self.folder / "nginx-access.log"
        lines = [line.split("|") for line in log.read_text().splitlines()] if log.exists() else []
        return [(line[1], line[2].split(", "), "close" in line[4].lower()) for line in lines if len(line) == 6]

    def errors(self):
        """Its complaints, by kind."""
        log = self.folder / "nginx-errors.log"
        text = log.read_text(errors="replace") if log.exists() else ""
        return collections.Counter(re.sub(r"^.*?\*\d+ ", "", line).split(" while ")[0].split(", client")[0] for line in text.splitlines() if "[error]" in line or "[warn]" in line)

    def stop(self):
        """Ends it."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()


class Clients:
    """Streams that are always so many, and chat requests at a rate; each has an outcome."""

    def __init__(self, options, port, token):
        self.options, self.port = options, port
        self.headers = {"authorization": f"Bearer {token}"}
        self.stop = asyncio.Event()
        self.outcomes = {"stream": collections.Counter(), "chat": collections.Counter()}
        self.open = 0
        self.faults = []
        self.late = 0.0
        chunks = int(options.stream_seconds * 10)
        self.makers = [scenarios.Maker(scenarios.body(*shape)) for shape in ((f"load-stream-{chunks}-100", 1000, 3, 0, True), ("load-chat", 1000, 3), ("load-slow-300", 1000, 3))]

    async def run(self):
        """Until it is told to stop and the last request has ended."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(self.options.streams):
                tasks.create_task(self._streams(self.options.stream_seconds * number / self.options.streams))
            tasks.create_task(self._chats(tasks))

    async def _streams(self, after):
        """One stream after the other. The first ones begin apart, so that their ends are apart as well."""
        await asyncio.sleep(after)
        while not self.stop.is_set():
            self.open += 1
            await self._one("stream", self.makers[0])
            self.open -= 1

    async def _chats(self, tasks):
        chance, loop = random.Random(self.options.seed), asyncio.get_running_loop()
        due = loop.time()
        while not self.stop.is_set():
            await asyncio.sleep(max(due - loop.time(), 0))
            self.late = max(self.late, loop.time() - due)
            tasks.create_task(self._one("chat", self.makers[chance.randrange(1, 3)]))
            due += chance.expovariate(self.options.rate)

    async def _one(self, kind, maker):
        load = Load(self.port, [Shot(maker.data(self), kind, kind == "stream")], 1, 1)
        [seen] = (await load.run(connections=0, patience_s=self.options.stream_seconds + 30)).seen
        self.outcomes[kind][f"{seen.outcome} {seen.code}".strip()] += 1
        if seen.outcome != 200:
            self.faults.append((time.monotonic(), kind, seen.outcome, seen.code))


class Rollout:
    """Restarts replicas in turn, and what was seen of each."""

    def __init__(self, options, at, settings, balancer):
        self.options, self.at, self.settings, self.balancer = options, at, settings, balancer
        self.events = []

    async def restart(self, number):
        """SIGTERM, until the process has ended; then it is started on its port again."""
        replica, loop = self.at.replicas[number], asyncio.get_running_loop()
        began = loop.time()
        seen = {"replica": replica.name, "not_ready_ms": None, "refused_ms": None}
        replica.process.terminate()
        limit = began + (self.options.drain_delay + self.options.drain_timeout) / 1000 + 10
        while replica.process.poll() is None:
            if loop.time() > limit:
                seen["killed"] = True
                replica.kill()
                break
            now = round(1000 * (loop.time() - began))
            try:
                answer = await replica.client.call("GET", "/ready", {}, limit_s=2)
                if answer.status == 503 and seen["not_ready_ms"] is None:
                    seen["not_ready_ms"], seen["closes"] = now, answer.headers.get("connection", "").lower() == "close"
            except NotSent:
                seen["refused_ms"] = seen["refused_ms"] if seen["refused_ms"] is not None else now
            except (Broken, Hung):
                pass
            await asyncio.sleep(0.02)
        seen["ended_s"], seen["status"] = round(loop.time() - began, 2), replica.process.returncode
        replica.client.close()
        self.at.replicas[number] = again = fleet.Replica(replica.name, self.at, self.settings, replica.port)
        await fleet.until(f"{again.name} is ready again", again.answers)
        seen["ready_s"] = round(loop.time() - began, 2)
        self.events.append(seen)
        print(f"  {seen}", flush=True)

    async def probe(self):
        """What an orchestrator does: asks /ready, and takes a replica that says no out of the balancer. Two answers that agree change it."""
        before = set()
        while True:
            answers = await asyncio.gather(*(self._ready(replica) for replica in self.at.replicas))
            aside = {replica.port for replica, ready in zip(self.at.replicas, answers) if not ready}
            if aside == before:
                self.balancer.set_aside(aside)
            before = aside
            await asyncio.sleep(PROBE_S)

    async def _ready(self, replica):
        client = fleet.Client(replica.port)
        try:
            return (await client.call("GET", "/ready", {}, limit_s=1)).status == 200
        except (NotSent, Broken, Hung):
            return False
        finally:
            client.close()


async def main(options, folder):
    """The fleet, the traffic, two restarts, and the verdict."""
    if options.stream_seconds + MARGIN_S > options.drain_timeout / 1000:
        raise SystemExit("streams last longer than a drain: they would be cut by design; see --stream-seconds and --drain-timeout")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    cores = measure.Cores()
    # A fleet does not fit on one core: nothing is pinned here, and no latency is told.
    cores.pinned = False
    provider = scripted.Process(cores).start()
    # A machine with few cores stalls for longer than a Redis may take. What that is answered with is a matter of faults.py.
    settings = {"IBEX_LOG__LEVEL": options.log, "IBEX_SERVER__DRAIN_TIMEOUT_MS": str(options.drain_timeout), "IBEX_RATE_LIMIT__DEFAULT_STREAMS": "10000",
                "IBEX_REDIS__TIMEOUT_MS": "1000", "IBEX_RATE_LIMIT__REDIS_OUTAGE": "local", "IBEX_RATE_LIMIT__REPLICAS": "2"}
    if options.drain_delay:
        settings["IBEX_SERVER__DRAIN_DELAY_MS"] = str(options.drain_delay)
    try:
        async with fleet.Fleet(options.ibex, folder, provider.url) as at:
            await at.direct(talk.DIRECTIVE)
            await at.start(2, settings)
            await at.remember(scenarios.memories(40))
            balancer = Balancer(folder, at.replicas)
            try:
                return await roll(options, at, settings, balancer)
            finally:
                balancer.stop()
    finally:
        provider.stop()


async def roll(options, at, settings, balancer):
    """Traffic, and both restarts within it -> exit status."""
    clients, rollout = Clients(options, balancer.port, at.token), Rollout(options, at, settings, balancer)

    async def answers():
        try:
            client = fleet.Client(balancer.port)
            return (await client.call("GET", "/ready", {}, limit_s=2)).status == 200
        except (NotSent, Broken, Hung):
            return False
    await fleet.until("nginx answers", answers)
    traffic = asyncio.create_task(clients.run())
    probing = asyncio.create_task(rollout.probe()) if options.balancer == "probed" else None
    # Each of the streams has begun, and the oldest of them are near their end.
    await asyncio.sleep(options.stream_seconds + SETTLE_S)
    began, before = time.monotonic(), clients.open
    print(f"{before} streams open; restarting", flush=True)
    for number in range(2):
        await rollout.restart(number)
        await asyncio.sleep(SETTLE_S)
    clients.stop.set()
    await traffic
    if probing:
        probing.cancel()
    return tell(options, clients, rollout, balancer, before, began)


def tell(options, clients, rollout, balancer, open_before, began):
    """Prints what came of it -> exit status."""
    attempts = balancer.attempts()
    again = sum(len(addresses) > 1 for _, addresses, _ in attempts)
    closed = sum(closes for _, _, closes in attempts)
    rows = [("streams open when the first restart began", str(open_before), f"{options.streams}", open_before == options.streams)]
    for kind, outcomes in clients.outcomes.items():
        rows.append((f"{kind}, outcomes at the clients", ", ".join(f"{name}: {count}" for name, count in outcomes.most_common()), "200 only", set(outcomes) == {"200"}))
    for seen in rollout.events:
        orderly = seen["status"] == 0 and not seen.get("killed")
        rows.append((f"{seen['replica']}, end", f"status {seen['status']} after {seen['ended_s']} s, ready again after {seen['ready_s']} s", "status 0, by itself", orderly))
        if options.drain_delay:
            announced = seen["not_ready_ms"] is not None and (seen["refused_ms"] or 1e9) >= options.drain_delay * 0.9
            rows.append((f"{seen['replica']}, announcement", f"/ready said 503 after {seen['not_ready_ms']} ms, Connection: close {seen.get('closes', False)}; refused after {seen['refused_ms']} ms",
                         f"503 at once, connections taken for {options.drain_delay} ms", announced))
    print("\n| What | Measured | Allowed | |\n|---|---|---|---|")
    for what, measured, allowed, holds in rows:
        print(f"| {what} | {measured} | {allowed} | {'holds' if holds else 'DOES NOT HOLD'} |")
    print(f"\nThe balancer's part ({options.balancer}): {again} of {len(attempts)} requests were sent to the other replica because one took no connection or ended it unanswered; "
          f"{balancer.reloads} changes of its list. The replicas' part: {closed} answers closed their connection.\nnginx complained: {dict(balancer.errors()) or 'not at all'}")
    for at, kind, outcome, code in clients.faults[:20]:
        print(f"- {kind} {outcome} {code}, {at - began:.2f} s after the first SIGTERM")
    return 0 if all(holds for *_, holds in rows) else 1


def options():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ibex", default=str(fleet.ROOT / "target/release/ibex"), metavar="FILE", help="the binary [default: the release build]")
    parser.add_argument("--drain-delay", type=int, default=0, metavar="MS", help="server.drain_delay_ms of the replicas; 0 leaves the key out [default: 0]")
    parser.add_argument("--drain-timeout", type=int, default=30_000, metavar="MS", help="server.drain_timeout_ms of the replicas [default: 30000]")
    parser.add_argument("--balancer", choices=("plain", "probed"), default="plain",
                        help="plain: nginx finds out from refused connections; probed: a probe of /ready takes a replica out of its list [default: plain]")
    parser.add_argument("--streams", type=int, default=50, metavar="N", help="open at any time [default: 50]")
    parser.add_argument("--stream-seconds", type=float, default=12, metavar="S", help="how long each lasts [default: 12]")
    parser.add_argument("--rate", type=float, default=50, metavar="N", help="chat requests a second [default: 50]")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="[default: 1]")
    parser.add_argument("--log", default="info", metavar="LEVEL", help="log level of the replicas [default: info]")
    parser.add_argument("--keep", metavar="FOLDER", help="keeps the logs there")
    return parser.parse_args()


if __name__ == "__main__":
    fleet.run(main, options())
