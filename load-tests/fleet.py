"""Starts what a load test needs and ends it again: a PostgreSQL with pgvector, a Redis, and replicas of `ibex serve` over both.

The two engines are of the test's own (`tests/tools/services.sh fresh` and `run`), so it may kill, pause, fill and restart them. Everything
listens on loopback, and only processes that were started here are ended, each by its id. If the test itself is killed, they end with it.
"""

import asyncio
import base64
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import urllib.parse

from talk import headers
from upstream import KEY
from wire import Broken, Client, Hung, NotSent

ROOT = pathlib.Path(__file__).resolve().parent.parent
SERVICES = ROOT / "tests/tools/services.sh"
CONFIG = ROOT / "config/replicas.toml"

# The metrics that say whether something went wrong.
TELLING = ("ibex_session_prefix_broken", "ibex_session_epochs_rotated", "ibex_session_events", "ibex_session_records_lost", "ibex_redis_calls", "ibex_redis_listening")

# The first call of all installs PostgreSQL.
FRESH_LIMIT_S = 600
START_LIMIT_S = 60
STOP_LIMIT_S = 35


def free_port():
    """A loopback port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def tail(log, lines=20):
    """The end of a log file."""
    return "\n".join(pathlib.Path(log).read_text(errors="replace").splitlines()[-lines:])


async def until(what, holds, limit_s=START_LIMIT_S, every_s=0.02):
    """Waits until `holds()` does, and fails in the name of `what` when it takes too long."""
    loop = asyncio.get_running_loop()
    end = loop.time() + limit_s
    while not await holds():
        if loop.time() > end:
            raise SystemExit(f"{what}: not within {limit_s} s")
        await asyncio.sleep(every_s)


class Engine:
    """A PostgreSQL or a Redis on a port that stays the same over restarts. Redis keeps nothing over one."""

    def __init__(self, kind, folder):
        told = subprocess.run([SERVICES, "fresh", kind], check=True, stdout=subprocess.PIPE, text=True, timeout=FRESH_LIMIT_S)
        self.folder, port, self.url = told.stdout.split()
        self.kind = kind
        self.port = int(port)
        self.log = folder / f"{kind}.log"
        self.process = None

    async def start(self):
        """It takes connections when this returns."""
        self.log.touch()
        seen = self.log.stat().st_size
        with self.log.open("ab") as log:
            # It ends with the thread that starts it, so that has to be the one that lives as long as the test.
            self.process = subprocess.Popen([SERVICES, "run", self.kind, self.folder], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        async def ready():
            if self.process.poll() is not None:
                raise SystemExit(f"{self.kind} does not start:\n{tail(self.log)}")
            with self.log.open("rb") as log:
                log.seek(seen)
                return b"ready to accept connections" in log.read().lower()
        await until(f"{self.kind} starts", ready)

    async def stop(self):
        """Ends it at once, as a crash would: connections break, and new ones are refused."""
        process, self.process = self.process, None
        if process is None:
            return
        paused = family(process.pid)
        process.send_signal(signal.SIGQUIT if self.kind == "postgres" else signal.SIGKILL)
        send(signal.SIGCONT, paused)

        async def ended():
            return process.poll() is not None
        await until(f"{self.kind} ends", ended)

    def pause(self):
        """Stops it without ending it: connections stay, and new ones are even taken, but nothing is answered."""
        # The first one first, so that no process is added meanwhile.
        send(signal.SIGSTOP, [self.process.pid])
        send(signal.SIGSTOP, family(self.process.pid))

    def resume(self):
        """Lets it go on from where it was paused."""
        send(signal.SIGCONT, family(self.process.pid))

    def limit_memory(self, limit):
        """Redis only: with a limit of one byte it answers reads and refuses what would add to it; 0 takes the limit away."""
        password = urllib.parse.urlsplit(self.url).password
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as redis:
            redis.sendall(f"AUTH {password}\r\nCONFIG SET maxmemory {limit}\r\nQUIT\r\n".encode())
            answers = b""
            while more := redis.recv(4096):
                answers += more
        if answers.count(b"+OK") != 3:
            raise SystemExit(f"redis did not take the limit: {answers!r}")

    async def close(self):
        """Ends it and removes what it stored."""
        await self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def send(number, processes):
    """A signal to processes of ours. One that has ended meanwhile needs none."""
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            pass


def family(parent):
    """A process and its children."""
    found = [parent]
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                # The name of a program stands in parentheses and may hold anything, even more of them.
                after_name = pathlib.Path(f"/proc/{entry}/stat").read_text().rpartition(") ")[2]
            except OSError:
                continue
            if int(after_name.split()[1]) == parent:
                found.append(int(entry))
    return found


class Replica:
    """One `ibex serve`, with connections of the test to it."""

    def __init__(self, name, fleet, settings, port=None):
        self.name = name
        self.port = port or free_port()
        self.client = Client(self.port)
        self.log = fleet.folder / f"{name}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", fleet.binary, "serve"], cwd=fleet.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**fleet.env, "IBEX_SERVER__LISTEN": f"127.0.0.1:{self.port}", **settings})

    async def answers(self, path="/ready"):
        """Whether a probe is answered with 200."""
        if self.process.poll() is not None:
            raise SystemExit(f"{self.name} ended with status {self.process.returncode}:\n{tail(self.log)}")
        try:
            return (await self.client.call("GET", path, {}, limit_s=10)).status == 200
        except (NotSent, Broken, Hung):
            return False

    def kill(self):
        """Ends it at once, with whatever it was doing."""
        self.process.kill()
        self.process.wait()

    async def metrics(self, *names):
        """-> {sample: value} of the metrics whose names begin with one of these, without those that are 0 or count what went well."""
        text = (await self.client.call("GET", "/metrics", {})).body.decode()
        samples = (line.rpartition(" ") for line in text.splitlines() if line.startswith(names))
        return {name: float(value) for name, _, value in samples if float(value) and 'outcome="ok"' not in name}


class Fleet:
    """Both engines, a database that is ready for the replicas, an organisation with an agent, and the replicas."""

    def __init__(self, binary, folder, provider_url):
        self.binary = str(pathlib.Path(binary).resolve())
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.engines, self.replicas = [], []
        self.provider_url = provider_url

    async def __aenter__(self):
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise
        return self

    async def _open(self):
        for kind in ("postgres", "redis"):
            self.engines.append(Engine(kind, self.folder))
            await self.engines[-1].start()
        self.postgres, self.redis = self.engines
        self.config = self.folder / "replicas.toml"
        shutil.copy(CONFIG, self.config)
        # A developer's own settings would otherwise decide what the tests see.
        ours = ("IBEX_", "OPENAI_", "POSTGRES_", "REDIS_")
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(ours)},
            "IBEX_CONFIG": str(self.config),
            "IBEX_KEYS__TOKEN_DIGEST": base64.b64encode(os.urandom(32)).decode(),
            "IBEX_POSTGRES__URL": self.postgres.url,
            "IBEX_REDIS__URLS": self.redis.url,
            "OPENAI_BASE_URL": self.provider_url,
            "OPENAI_API_KEY": KEY,
            # Rates are a matter of one part of the tests, which limits one token of its own.
            "IBEX_RATE_LIMIT__DEFAULT_RPM": "10000000",
        }
        await self.ibex("migrate")
        made = json.loads(await self.ibex("init", "--json"))
        self.token, self.agent = made["token"], made["agent_id"]

    async def ibex(self, *arguments):
        """One command of the command line -> what it printed."""
        process = await asyncio.create_subprocess_exec(
            self.binary, *arguments, cwd=self.folder, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        told, errors = await asyncio.wait_for(process.communicate(), START_LIMIT_S)
        if process.returncode:
            raise SystemExit(f"ibex {' '.join(arguments[:2])} failed: {errors.decode()}")
        return told.decode()

    async def new_token(self, name):
        """A further token that may chat as the agent -> its row, with the secret as `token`."""
        return json.loads(await self.ibex("token", "create", "--json", "--name", name, "--agent", self.agent))

    async def revoke(self, token):
        """Makes it invalid. The revocation is committed when this returns."""
        await self.ibex("token", "revoke", token["id"])

    async def direct(self, text):
        """Puts a directive in use."""
        file = self.folder / "directive.txt"
        file.write_text(text)
        await self.ibex("directive", "add", str(file), "--promote")

    async def start(self, count, settings):
        """As many replicas; all are ready when this returns. `settings` are environment variables of theirs."""
        self.replicas = [Replica(f"replica-{number}", self, settings) for number in range(count)]
        for replica in self.replicas:
            await until(f"{replica.name} is ready", replica.answers)

    async def stop_replicas(self):
        """Lets them drain, as an orchestrator would; one that does not end in time is killed."""
        for replica in self.replicas:
            replica.client.close()
            if replica.process.poll() is None:
                replica.process.terminate()
        for replica in self.replicas:
            try:
                await until(replica.name, lambda: asyncio.sleep(0, replica.process.poll() is not None), STOP_LIMIT_S)
            except SystemExit:
                print(f"{replica.name} does not stop within {STOP_LIMIT_S} s and is killed")
                replica.kill()
        self.replicas = []

    async def remember(self, contents):
        """Stores memories, a call for each, at the replicas in turn -> their identifiers."""
        stored = []
        for number, content in enumerate(contents):
            replica = self.replicas[number % len(self.replicas)]
            answer = await replica.client.call("POST", "/v1/memories", headers(self.token), json.dumps({"content": content}).encode())
            if answer.status != 201:
                raise SystemExit(f"a memory was not stored: {answer.status} {answer.body!r}")
            stored.append(answer.json()["id"])
        return stored

    async def __aexit__(self, *_):
        await self.close()

    async def close(self):
        """Ends everything that was started."""
        await self.stop_replicas()
        for engine in reversed(self.engines):
            await engine.close()


def run(main, arguments):
    """Runs `main(arguments, folder)` with a folder for logs, and exits with what it returns. SIGTERM ends it in order, like Ctrl-C."""
    async def whole():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
        return await main(arguments, folder)

    folder = pathlib.Path(arguments.keep or tempfile.mkdtemp(prefix="ibex-load-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        status = asyncio.run(whole())
    except (asyncio.CancelledError, KeyboardInterrupt):
        status = 130
    except BaseExceptionGroup as several:
        # Of what ran at once, the first failure says why.
        raise several.exceptions[0] from None
    finally:
        if arguments.keep:
            print(f"the logs are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    raise SystemExit(status)


def add_arguments(parser):
    """What both programs take."""
    parser.add_argument("--ibex", default=str(ROOT / "target/release/ibex"), metavar="FILE", help="the binary [default: the release build]")
    parser.add_argument("--replicas", type=int, default=3, metavar="N", help="how many [default: 3]")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of everything random [default: 1]")
    parser.add_argument("--keep", metavar="FOLDER", help="keeps the logs of replicas and engines there")
    parser.add_argument("--log", default="info", metavar="LEVEL", help="log level of the replicas [default: info]")
