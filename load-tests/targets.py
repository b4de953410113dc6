"""What a load goes through: the provider itself, an nginx in front of it, and `ibex serve` over an embedded store, each on the target's core.

The store is prepared once, with an agent, a token and memories, and copied for each `ibex` that is started, so that none inherits what another did.
"""

import asyncio
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import uuid

import fleet
import measure
import talk
from upstream import KEY
from wire import Broken, Client, Hung, NotSent

START_LIMIT_S = 60
STOP_LIMIT_S = 35

# A developer's own settings would otherwise decide what is measured.
OURS = ("IBEX_", "OPENAI_", "POSTGRES_", "REDIS_")

# The models of provider.py, with the exact tokenizer and the window that a catalogued model has.
CONFIG = """
[[models]]
pattern = "load-*"
context_window = 128000
max_output_tokens = 16384
tokenizer = "o200k_base"
system_role = "multi"
"""

# Started by root, nginx gives its workers to an account that cannot reach a folder of root's.
NGINX_ACCOUNT = "user root;" if os.getuid() == 0 else ""

NGINX = """
{account}
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log warn;
events {{ worker_connections 16384; }}
http {{
  access_log off;
  client_body_temp_path {folder}/nginx-body;
  proxy_temp_path {folder}/nginx-proxy;
  fastcgi_temp_path {folder}/nginx-fastcgi;
  uwsgi_temp_path {folder}/nginx-uwsgi;
  scgi_temp_path {folder}/nginx-scgi;
  client_max_body_size 32m;
  client_body_buffer_size 1m;
  keepalive_requests 100000000;
  tcp_nodelay on;
  upstream provider {{ server 127.0.0.1:{provider}; keepalive 1024; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=8192;
    location / {{
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Authorization "Bearer {key}";
      proxy_buffering off;
      proxy_read_timeout 900s;
      proxy_pass http://provider;
    }}
  }}
}}
"""


def clean_environment():
    """This process's variables without those that ibex would read."""
    return {name: value for name, value in os.environ.items() if not name.startswith(OURS)}


class Direct:
    """No hop: what the provider and the client need by themselves."""
    process_id = None

    def __init__(self, name, provider):
        self.name, self.port, self.headers = name, provider.port, {}

    async def stop(self):
        """Nothing was started."""


class Started:
    """A process on the target's core that listens on a port of loopback."""

    def __init__(self, name, folder, cores, headers):
        self.name, self.cores, self.headers = name, cores, headers
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / "log"
        self.port = fleet.free_port()
        self.client = Client(self.port)
        self.process = None

    @property
    def process_id(self):
        """For measuring."""
        return self.process.pid

    async def _run(self, command, env, path, wanted=200):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.cores.command(self.cores.target, ["setpriv", "--pdeathsig", "KILL", *command]), env=env, cwd=self.folder,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        async def ready():
            if self.process.poll() is not None:
                raise SystemExit(f"{self.name} ended with status {self.process.returncode}:\n{fleet.tail(self.log)}")
            try:
                return (await self.client.call("GET", path, {}, limit_s=10)).status == wanted
            except (NotSent, Broken, Hung):
                return False
        await fleet.until(f"{self.name} starts", ready, START_LIMIT_S)
        return self

    async def stop(self):
        """Lets it end in order; kills it when it does not."""
        self.client.close()
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                await fleet.until(self.name, lambda: asyncio.sleep(0, self.process.poll() is not None), STOP_LIMIT_S)
            except SystemExit:
                print(f"{self.name} does not stop within {STOP_LIMIT_S} s and is killed")
                self.process.kill()
                self.process.wait()

    def runs(self):
        """Whether it has not ended by itself."""
        return self.process.poll() is None


class Nginx(Started):
    """A plain hop that many have: one worker, pooled connections, answers passed as they come."""

    async def start(self, provider):
        """It passes requests on when this returns."""
        config = self.folder / "nginx.conf"
        config.write_text(NGINX.format(account=NGINX_ACCOUNT, folder=self.folder, port=self.port, provider=provider.port, key=KEY))
        return await self._run(["nginx", "-p", str(self.folder), "-c", str(config)], clean_environment(), "/stats")


class Ibex(Started):
    """`ibex serve` over a copy of a prepared store."""

    async def start(self, store, provider, settings):
        """It is ready when this returns."""
        if not (self.folder / "store").exists():
            shutil.copytree(store.folder, self.folder / "store")
        env = {**store.env, "IBEX_STORE__PATH": str(self.folder / "store/ibex.db"), "IBEX_SERVER__LISTEN": f"127.0.0.1:{self.port}",
               "OPENAI_BASE_URL": provider.url, **settings}
        return await self._run([store.binary, "serve"], env, "/ready")

    async def metrics(self, *names):
        """-> {sample: value}"""
        answer = await self.client.call("GET", "/metrics", {}, limit_s=10)
        return measure.samples(answer.body.decode(), *names)

    async def at_rest(self, limit_s=10.0):
        """Waits until nothing is open any more -> what still is, which should be nothing."""
        loop = asyncio.get_running_loop()
        end = loop.time() + limit_s
        while True:
            still = {name: value for name, value in (await self.metrics("ibex_answers_open", "ibex_request_bytes_in_flight")).items() if value}
            if not still or loop.time() > end:
                return still
            await asyncio.sleep(0.1)


class Store:
    """An embedded store: one organisation, an agent with a directive and memories, and a token. More agents are put in beside it."""

    def __init__(self, binary, folder, provider):
        self.binary = str(pathlib.Path(binary).resolve())
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "ibex.toml"
        config.write_text(CONFIG)
        self.env = {**clean_environment(), "IBEX_ENV": "development", "IBEX_CONFIG": str(config), "IBEX_STORE__PATH": str(self.folder / "ibex.db"),
                    "OPENAI_BASE_URL": provider.url, "OPENAI_API_KEY": KEY, "IBEX_LOG__LEVEL": "warn",
                    # What one token may do is a matter of other tests.
                    "IBEX_RATE_LIMIT__DEFAULT_RPM": "100000000", "IBEX_RATE_LIMIT__DEFAULT_STREAMS": "100000"}
        self.agents = []

    def ibex(self, *arguments):
        """One command of the command line -> what it printed."""
        told = subprocess.run([self.binary, *arguments], env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=START_LIMIT_S)
        if told.returncode:
            raise SystemExit(f"ibex {' '.join(arguments[:2])} failed: {told.stderr}")
        return told.stdout

    def make(self, memories):
        """Creates all of it."""
        made = json.loads(self.ibex("init", "--json"))
        self.token, self.agent = made["token"], made["agent_id"]
        directive = self.folder / "directive.txt"
        directive.write_text(talk.DIRECTIVE)
        self.ibex("directive", "add", str(directive), "--promote")
        file = self.folder / "memories.jsonl"
        file.write_text("".join(json.dumps({"content": memory, "category": "factual"}) + "\n" for memory in memories))
        self.ibex("memory", "import", str(file))
        self.ibex("check-config")
        return self

    def add_agents(self, count):
        """Further agents of the organisation, like the first one, and a token that may work for any of them.

        They are put into the file, because a command for each of thousands takes longer than the test.
        """
        self.any_token = json.loads(self.ibex("token", "create", "--json", "--name", "any agent", "--permission", "all"))["token"]
        with sqlite3.connect(self.folder / "ibex.db") as store:
            store.row_factory = sqlite3.Row
            first = dict(store.execute("SELECT * FROM agents").fetchone())
            names = ", ".join(first)
            for number in range(count):
                agent = uuid.uuid4()
                row = {**first, "id": agent.bytes, "name": f"agent-{number}"}
                store.execute(f"INSERT INTO agents ({names}) VALUES ({', '.join('?' * len(row))})", list(row.values()))
                self.agents.append(str(agent))
        store.close()

    def headers(self):
        """Those of a request as the first agent."""
        return {"authorization": f"Bearer {self.token}"}


async def start(name, folder, cores, store, provider, settings):
    """A target by its name: direct, nginx, ibex (memory on) or ibex-skip (the same with memory skipped)."""
    if name == "direct":
        return Direct(name, provider)
    if name == "nginx":
        return await Nginx(name, folder, cores, {}).start(provider)
    headers = store.headers() | ({"x-ibex-skip-memory": "1"} if name == "ibex-skip" else {})
    return await Ibex(name, folder, cores, headers).start(store, provider, settings)
