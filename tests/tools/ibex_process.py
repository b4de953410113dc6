"""Starts and stops the `ibex` binary for a test: a fresh embedded store, a token from `ibex init`, a loopback port."""

import json
import os
import pathlib
import socket
import subprocess
import time
import urllib.error
import urllib.request

START_LIMIT_S = 60
STOP_LIMIT_S = 15


def free_port():
    """A loopback port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_ready(url, process, log, limit_s=START_LIMIT_S):
    """Asks `url` until it answers 200; a process that ends before that is an error with the tail of its log."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{url}: the process ended with status {process.returncode}\n{tail(log)}")
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass
        time.sleep(0.05)
    raise RuntimeError(f"{url}: not ready within {limit_s} s\n{tail(log)}")


def stop(process):
    """SIGTERM, and SIGKILL to a process that does not obey."""
    process.terminate()
    try:
        process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def tail(log, lines=30):
    """The end of a log file."""
    return "\n".join(pathlib.Path(log).read_text(errors="replace").splitlines()[-lines:])


class Ibex:
    """A running proxy in front of `provider_url`; a context manager. `settings` are further environment variables."""

    def __init__(self, binary, folder, provider_url, provider_key, settings=None):
        self.binary = str(pathlib.Path(binary).resolve())
        self.folder = pathlib.Path(folder)
        self.log = self.folder / "serve.log"
        self.url = f"http://127.0.0.1:{free_port()}"
        # A developer's own settings would otherwise decide what the tests see.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("IBEX_", "OPENAI_"))}
        self.env = {
            **inherited,
            "IBEX_ENV": "development",
            "IBEX_SERVER__LISTEN": self.url.removeprefix("http://"),
            "IBEX_STORE__PATH": str(self.folder / "ibex.db"),
            "OPENAI_BASE_URL": provider_url,
            "OPENAI_API_KEY": provider_key,
            **(settings or {}),
        }

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        made = subprocess.run([self.binary, "init", "--json"], env=self.env, cwd=self.folder, check=True, stdout=subprocess.PIPE)
        ids = json.loads(made.stdout)
        self.org, self.agent, self.token = ids["org_id"], ids["agent_id"], ids["token"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([self.binary, "serve"], env=self.env, cwd=self.folder, stdout=log, stderr=log)
        try:
            wait_until_ready(self.url + "/ready", self.process, self.log)
        except BaseException:
            stop(self.process)
            raise
        return self

    def __exit__(self, *_):
        stop(self.process)

    @property
    def base_url(self):
        """What an OpenAI client takes as its base URL."""
        return self.url + "/v1"

    def call(self, method, path, body=None, headers=None):
        """One request of the service's own API -> (status, parsed JSON or None). An error status is returned, not raised."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method, headers={
            "Authorization": f"Bearer {self.token}",
            "X-IBEX-Agent-ID": self.agent,
            "Content-Type": "application/json",
            **(headers or {}),
        })
        try:
            answer = urllib.request.urlopen(request, timeout=30)
        except urllib.error.HTTPError as refusal:
            answer = refusal
        with answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None

    def remember(self, content, **fields):
        """Stores one memory and returns its identifier."""
        status, answer = self.call("POST", "/v1/memories", {"content": content, **fields})
        if status != 201:
            raise RuntimeError(f"POST /v1/memories answered {status}: {answer}")
        return answer["id"]

    def direct(self, text):
        """Adds a version of the agent's directive and makes it the active one."""
        status, answer = self.call("POST", "/v1/directives", {"content": text})
        if status != 201:
            raise RuntimeError(f"POST /v1/directives answered {status}: {answer}")
        version = answer["version"]
        status, answer = self.call("POST", f"/v1/directives/{version}/promote", {})
        if status != 200:
            raise RuntimeError(f"promoting directive {version} answered {status}: {answer}")
