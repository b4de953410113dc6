"""Runs conformance suites against a model server directly and through the proxy, and compares them probe by probe.

A small local server fails some probes by itself; what counts is that the proxy makes none of them worse. The table shows both
verdicts; the exit status is 1 when a probe is worse through the proxy or missing from one side.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass

from ibex_process import Ibex
from local_model import API_KEY, MODEL, LocalModel

RANK = {"failed": 0, "warning": 1, "skipped": 2, "passed": 3}
SPELLINGS = {"pass": "passed", "fail": "failed", "warn": "warning", "skip": "skipped"}

# Required by the published schema, but left out by many servers, this one too: without this every probe would fail on both sides.
TOLERATED = "logprobs,refusal,annotations"


@dataclass(frozen=True)
class Target:
    """One side of the comparison."""

    base_url: str
    key: str
    headers: dict


def run(command):
    """A suite's JSON report. A failed probe is a non-zero status too, so only a missing report is an error."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=900)
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise SystemExit(f"{command[0]} gave no report (status {done.returncode}):\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}") from None


def compatcanary(program, target):
    """Probe -> (verdict, why not passed)."""
    extra = [part for name, value in target.headers.items() for part in ("--header", f"{name}: {value}")]
    report = run([program, "scan", "--base-url", target.base_url, "--api-key", target.key, "--model", MODEL, "--profile", "modern",
                  "--format", "json", "--fail-on", "never", "--timeout", "120", *extra])
    return {
        f"compatcanary {probe['id']}": (SPELLINGS.get(probe["status"], probe["status"]), (probe.get("error") or {}).get("message", ""))
        for probe in report["results"]
    }


def llm_comply(program, target):
    """Probe -> (verdict, why not passed)."""
    extra = [part for name, value in target.headers.items() for part in ("-H", f"{name}:{value}")]
    report = run([program, "--format", "openai-chat", "-u", target.base_url, "-k", target.key, "-m", MODEL, "--json",
                  "--timeout", "120", "--ignore", TOLERATED, *extra])
    return {f"llm-comply {probe['id']}": (probe["status"], "; ".join(probe.get("errors", []))) for probe in report["results"]}


def judge(direct, through):
    """`same`, `better` or `WORSE`."""
    if direct is None or through is None:
        return "WORSE"
    difference = RANK[through[0]] - RANK[direct[0]]
    return "same" if difference == 0 else "better" if difference > 0 else "WORSE"


def compare(direct, through):
    """Prints the table and returns how many probes were compared and how many are worse."""
    counts = {"same": 0, "better": 0, "WORSE": 0}
    print(f"{'probe':44} {'direct':9} {'through':9} result")
    for probe in dict.fromkeys([*direct, *through]):
        left, right = direct.get(probe), through.get(probe)
        result = judge(left, right)
        counts[result] += 1
        print(f"{probe:44} {left[0] if left else 'absent':9} {right[0] if right else 'absent':9} {result}")
        if result == "WORSE":
            print(f"    direct:  {left[1] if left else ''}\n    through: {right[1] if right else ''}")
    print(f"{counts['same']} same, {counts['better']} better, {counts['WORSE']} worse")
    return counts["same"] + counts["better"] + counts["WORSE"], counts["WORSE"]


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("binary")
    for name in ("--model-python", "--compatcanary", "--llm-comply"):
        flags.add_argument(name, required=True)
    given = flags.parse_args()

    def verdicts(target):
        return {**compatcanary(given.compatcanary, target), **llm_comply(given.llm_comply, target)}

    with tempfile.TemporaryDirectory(prefix="ibex-conformance-") as scratch:
        folder = pathlib.Path(scratch)
        with LocalModel(given.model_python, folder) as model, Ibex(given.binary, folder / "ibex", model.base_url, API_KEY) as proxy:
            direct = verdicts(Target(model.base_url, API_KEY, {}))
            through = verdicts(Target(proxy.base_url, proxy.token, {"X-IBEX-Agent-ID": proxy.agent}))
    compared, worse = compare(direct, through)
    print(f"{compared - worse} passed, {worse} failed")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
