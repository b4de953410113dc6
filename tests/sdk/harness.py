"""Starts what the client tests need, then runs a command with the addresses in its environment and exits with its status.

    harness.py BINARY COMMAND [ARGUMENT...]

Two proxies stand before one scripted provider: an ordinary one, whose agent has a directive and a memory, and one with a rate of
two requests a minute. The tests in Python and in Node read the same variables.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import upstream
from ibex_process import Ibex, tail

DIRECTIVE = "You are the front desk of the Harlow office. Answer in one sentence."
MEMORY = "The parking garage code of the Harlow office is 7421."
QUESTION = "What is the parking garage code of the Harlow office?"


def main(binary, command):
    with tempfile.TemporaryDirectory(prefix="ibex-sdk-") as scratch, upstream.Upstream() as provider:
        folder = pathlib.Path(scratch)
        plain = Ibex(binary, folder / "plain", provider.base_url, upstream.KEY)
        limited = Ibex(binary, folder / "limited", provider.base_url, upstream.KEY, {"IBEX_RATE_LIMIT__DEFAULT_RPM": "2"})
        with plain, limited:
            plain.direct(DIRECTIVE)
            plain.remember(MEMORY, category="factual")
            # Settings of the machine's own account with a provider must not reach the clients under test.
            clean = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
            status = subprocess.run(command, check=False, env={
                **clean,
                "SDK_BASE_URL": plain.base_url, "SDK_TOKEN": plain.token, "SDK_AGENT": plain.agent,
                "SDK_LIMITED_BASE_URL": limited.base_url, "SDK_LIMITED_TOKEN": limited.token, "SDK_LIMITED_AGENT": limited.agent,
                "SDK_UPSTREAM_URL": provider.url, "SDK_UPSTREAM_KEY": upstream.KEY,
                "SDK_DIRECTIVE": DIRECTIVE, "SDK_MEMORY": MEMORY, "SDK_QUESTION": QUESTION,
            }).returncode
        if status != 0:
            print(f"--- end of the proxy's log ---\n{tail(plain.log)}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
