"""The page of a load test: one HTML file with charts and tables, nothing to load and no script. Made from the JSON lines of `run.py`.

    load-tests/report.py target/load/load.jsonl > page.html
"""

import collections
import html
import json
import math
import statistics
import sys

import chart

STYLE = """
  :root { color-scheme: light dark; --ink: #1b1f24; --faint: #5b646e; --rule: #d9dee3; --ground: #ffffff; --card: #f6f8fa; --bad: #b3202a; }
  @media (prefers-color-scheme: dark) { :root { --ink: #e8ecf0; --faint: #9aa4ae; --rule: #363d45; --ground: #15191e; --card: #1c2228; --bad: #ff7b7b; } }
  body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); max-width: 980px; margin: 2rem auto; padding: 0 1rem; }
  h1 { font-size: 1.6rem; } h2 { margin-top: 2.6rem; border-top: 1px solid var(--rule); padding-top: 1rem; font-size: 1.25rem; }
  p.faint, td.faint, .faint { color: var(--faint); } .bad { color: var(--bad); }
  .charts { display: flex; flex-wrap: wrap; gap: 12px; } .charts svg { border: 1px solid var(--rule); border-radius: 6px; }
  .wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; margin: .6rem 0; font-variant-numeric: tabular-nums; }
  th, td { padding: 3px 9px; border-bottom: 1px solid var(--rule); text-align: right; white-space: nowrap; } th { color: var(--faint); font-weight: 600; }
  th:first-child, td:first-child, td.text { text-align: left; } td.text { white-space: normal; min-width: 24rem; }
  summary { cursor: pointer; color: var(--faint); margin-top: .6rem; } dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; background: var(--card); padding: 12px 16px; border-radius: 6px; }
  dt { color: var(--faint); } dd { margin: 0; }
"""

# Where a percentile stands on its axis: each further nine takes the same room.
TICKS = [(0.0, "0"), (-math.log10(0.5), "50"), (1.0, "90"), (2.0, "99"), (3.0, "99.9"), (4.0, "99.99")]
TARGETS = "direct is the provider itself, nginx a plain hop, ibex has memory on, ibex-skip has it skipped by the request."


def escaped(value):
    """For HTML."""
    return html.escape(str(value))


def ms(value):
    """Milliseconds for people."""
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def table(head, rows):
    """Rows of cells; a cell that begins with `<` is HTML already."""
    def cells(row):
        return "".join(cell if str(cell).startswith("<td") else f"<td>{escaped(cell)}</td>" for cell in row)
    return f'<div class="wide"><table><tr>{"".join(f"<th>{escaped(name)}</th>" for name in head)}</tr>{"".join(f"<tr>{cells(row)}</tr>" for row in rows)}</table></div>'


# ---------------------------------------------------------------- Rounds

def middle(values):
    """The median of what rounds measured: of numbers, of percentiles, and of counts each by itself."""
    values = [value for value in values if value is not None]
    if not values:
        return None
    if isinstance(values[0], dict):
        # A percentile that one round has too few requests for is none of all.
        keys = [key for key in values[0] if all(key in value for value in values) or all(isinstance(number, int) for number in values[0].values())]
        keys += [key for value in values[1:] for key in value if key not in keys and isinstance(value[key], int)]
        return {key: middle([value.get(key, 0) for value in values]) for key in dict.fromkeys(keys)}
    if isinstance(values[0], (int, float)) and not isinstance(values[0], bool):
        return statistics.median(values)
    return values[0]


class Step:
    """One rate at one target over all rounds. Refused rounds are left out; if all are, so is the step."""

    def __init__(self, lines, lenient):
        good = [line for line in lines if lenient or not line["refused"]]
        self.refused = "; ".join(sorted({line["refused"] for line in lines if line["refused"]}))
        self.drawn = bool(good)
        self.figures = {key: middle([line.get(key) for line in good or lines]) for key in lines[0]}
        self.saturated = any(line["saturated"] for line in good or lines)
        self.notes = sorted({note for line in good or lines for note in line["notes"]})
        self.spread = {share: [line["shown_ms"][share] for line in good if share in line["shown_ms"]] for share in ("0.5", "0.99")}

    def __getitem__(self, key):
        return self.figures.get(key)

    def at(self, share):
        """A percentile of what the scenario shows, in milliseconds, or None."""
        return (self["shown_ms"] or {}).get(share)


class Scenario:
    """All lines about one."""

    def __init__(self, head, lines, lenient):
        self.head = head
        self.name = head["name"]
        # Of streams the whole duration is the provider's; what a hop adds is in the first byte and in the age of chunks.
        waits = head["provider_ms"]
        self.shows = "time to first byte" if head["streams"] else f"latency beyond the provider's {waits} ms" if waits else "latency"
        grouped = collections.defaultdict(list)
        for line in lines:
            line["shown_ms"] = {share: value - waits for share, value in (line.get("ttfb_ms") or line["latency_ms"]).items()}
            grouped[line["target"], line["step"]].append(line)
        self.steps = {key: Step(those, lenient) for key, those in grouped.items()}
        self.targets = list(dict.fromkeys(target for target, _ in self.steps))
        self.compared = self._compared()

    def _compared(self):
        """The highest step that all targets have and none was past its end at; else the first one."""
        numbers = sorted({number for _, number in self.steps}, reverse=True)
        for number in numbers:
            them = [self.steps.get((target, number)) for target in self.targets]
            if all(step and step.drawn and not step.saturated for step in them):
                return number
        return numbers[-1] if numbers else 0

    def of(self, target):
        """The steps of a target that are drawn, in order."""
        return [step for (name, _), step in sorted(self.steps.items(), key=lambda item: item[0][1]) if name == target and step.drawn]

    def at_compared(self):
        """(target, step) of those that are compared."""
        return [(target, self.steps[target, self.compared]) for target in self.targets if (target, self.compared) in self.steps and self.steps[target, self.compared].drawn]


# ---------------------------------------------------------------- Charts

def percentiles(title, curves, y_name="ms"):
    """Percentile curves: {target: {share: ms}}."""
    lines = {target: [(-math.log10(1 - float(share)), value) for share, value in curve.items() if share != "max" and float(share) < 1] for target, curve in curves.items() if curve}
    if not any(lines.values()):
        return ""
    last = max(x for points in lines.values() for x, _ in points)
    drawn = chart.frame(title, [last], [y for points in lines.values() for _, y in points], "percentile", y_name, y_log=True, x_range=(0, max(last, 1)),
                        x_ticks=[tick for tick in TICKS if tick[0] <= max(last, 1) + 0.01])
    for target, points in lines.items():
        drawn.line(target, chart.SERIES[target], points, unit="ms")
    return drawn.svg()


def against_throughput(scenario):
    """p50 and p99 over what was answered."""
    lines = {target: [(step["achieved"], step.at("0.5"), step.at("0.99")) for step in scenario.of(target) if step.at("0.5")] for target in scenario.targets}
    points = [point for those in lines.values() for point in those]
    if len({x for x, _, _ in points}) < 2:
        return ""
    drawn = chart.frame(f"{scenario.shows.capitalize()} by throughput: p50, dashed p99", [x for x, _, _ in points], [y for point in points for y in point[1:] if y],
                        f"answered, {scenario.head['unit']}", "ms", y_log=True)
    for target, those in lines.items():
        drawn.line(target, chart.SERIES[target], [(x, p50) for x, p50, _ in those], unit="ms")
        drawn.line(f"{target} p99", chart.SERIES[target], [(x, p99) for x, _, p99 in those if p99], dashed=True, unit="ms", legend=False)
    return drawn.svg()


def cpu(scenario):
    """Processor time for each request, over the rate."""
    lines = {target: [(step["achieved"], step["cpu_us"]) for step in scenario.of(target)] for target in scenario.targets if target != "direct"}
    points = [point for those in lines.values() for point in those]
    if not points:
        return ""
    per = "stream" if scenario.head["streams"] else "request"
    drawn = chart.frame(f"Processor time of the target, each {per}", [x for x, _ in points], [y for _, y in points], f"answered, {scenario.head['unit']}", "µs")
    for target, those in lines.items():
        drawn.line(target, chart.SERIES[target], those, unit="us")
    return drawn.svg()


def resident(scenario):
    """Before the step, and the most within it."""
    steps = [(target, step) for target, step in scenario.at_compared() if target != "direct"]
    if not steps:
        return ""
    drawn = chart.frame("Resident memory before the step, and at most", [1], [step["resident_peak_kb"] / 1024 for _, step in steps], "", "MiB", x_ticks=[(-1, "")])
    room = (drawn.x.end - drawn.x.start) / len(steps)
    for number, (target, step) in enumerate(steps):
        center, series = drawn.x.start + room * (number + 0.5), chart.SERIES[target]
        for offset, key in ((-22, "resident_before_kb"), (22, "resident_peak_kb")):
            value = step[key] / 1024
            drawn.bar(center + offset, 36, 0, value, series, f"{target}: {value:.0f} MiB")
            drawn.text(center + offset, drawn.y(value) - 4, f"{value:.0f}")
        drawn.text(center, drawn.y.start + 17, target)
    return drawn.svg()


def outage(line):
    """Answers by second, and how long they took."""
    seconds = line["seconds"]
    rate = max((sum(second["statuses"].values()) for second in seconds), default=1)
    drawn = chart.frame("Chat answers in each second, by when they were due", [len(seconds)], [rate], "seconds", "", width=952)
    drawn.shade(line["hurt"], max(line["healed"], line["hurt"] + 0.2), "Redis is away")
    kinds = {"200, with memory": 2, "200, degraded": 3, "503": 4, "other": 5}
    width = (drawn.x.end - drawn.x.start) / max(len(seconds), 1) - 2
    for second in seconds:
        whole = min(second["levels"].get("L0", 0), second["statuses"].get("200", 0))
        counts = {"200, with memory": whole, "200, degraded": second["statuses"].get("200", 0) - whole, "503": second["statuses"].get("503", 0)}
        counts["other"] = sum(second["statuses"].values()) - sum(counts.values())
        low = 0
        for kind, count in counts.items():
            if count:
                drawn.bar(drawn.x(second["second"] + 0.5), width, low, low + count, kinds[kind], f"second {second['second']}: {kind} {count}")
                low += count
    for kind, series in kinds.items():
        drawn.key(kind, series)
    times = [(second["second"] + 0.5, second["latency_ms"]) for second in seconds if second["latency_ms"]]
    slow = chart.frame("Latency of these", [len(seconds)], [latency["max"] for _, latency in times] + [latency["0.5"] for _, latency in times], "seconds", "ms", y_log=True, width=952)
    slow.shade(line["hurt"], max(line["healed"], line["hurt"] + 0.2), "Redis is away")
    slow.line("p50", 2, [(at, latency["0.5"]) for at, latency in times], unit="ms")
    slow.line("greatest", 3, [(at, latency["max"]) for at, latency in times], dashed=True, marks=False)
    return drawn.svg() + slow.svg()


# ---------------------------------------------------------------- Text

def spread(values):
    """A median with its range over rounds."""
    if not values:
        return "-"
    own = ms(statistics.median(values))
    return own if len(values) == 1 else f"{own} [{ms(min(values))}-{ms(max(values))}]"


def steps_table(scenario):
    """Every step, the refused ones with the reason."""
    head = ["Target", "Wanted", "Answered", "p50 ms", "p90", "p99", "p99.9", "max", "CPU us", "Peak MiB", "Core busy", "Late p99 ms", "Client busy", "Remarks"]
    if scenario.head["streams"]:
        head[8:8] = ["Chunk age p50 ms", "p99"]
    rows = []
    for (target, _), step in sorted(scenario.steps.items(), key=lambda item: (item[0][1], scenario.targets.index(item[0][0]))):
        remarks = [*([f"refused: {step.refused}"] if step.refused else []), *(["past its end: not all that was due was answered in time"] if step.saturated else []), *step.notes]
        text = f'<td class="text{" bad" if step.refused else ""}">{escaped("; ".join(remarks))}</td>'
        if not step.drawn:
            rows.append([target, step["wanted"], *["-"] * (len(head) - 3), text])
            continue
        late = step["late_ms"] or {}
        row = [target, step["wanted"], f"{step['achieved']:,.1f}", spread(step.spread["0.5"]), ms(step.at("0.9")), spread(step.spread["0.99"]), ms(step.at("0.999")), ms(step.at("max")),
               f"{step['cpu_us']:,.0f}" if target != "direct" else "-", f"{step['resident_peak_kb'] / 1024:,.0f}" if target != "direct" else "-",
               f"{100 * step['target_busy']:.0f} %", ms(late.get("0.99", late.get("max"))), f"{100 * step['driver_busy']:.0f} %", text]
        if scenario.head["streams"]:
            age = step["age_ms"] or {}
            row[8:8] = [ms(age.get("0.5")), ms(age.get("0.99"))]
        rows.append(row)
    return table(head, rows)


def outcomes_table(scenario):
    """What was answered, by code; where there are several kinds of requests, by kind."""
    lines = collections.defaultdict(collections.Counter)
    for (target, _), step in scenario.steps.items():
        for name, count in (step["outcomes"] or {}).items():
            lines[target][name] += round(count)
    columns = sorted({name for counts in lines.values() for name in counts})
    levels = {target: collections.Counter() for target in lines}
    for (target, _), step in scenario.steps.items():
        levels[target].update({level: round(count) for level, count in (step["levels"] or {}).items()})
    rows = [[target, *(counts[name] or "" for name in columns), ", ".join(f"{level} {count}" for level, count in sorted(levels[target].items()))] for target, counts in lines.items()]
    return table(["Answers", *columns, "Context"], rows)


def section(scenario, checks):
    """One scenario."""
    head = scenario.head
    compared = scenario.at_compared()
    wanted = compared[0][1]["wanted"] if compared else 0
    at = f"{wanted:g} {head['unit']}"
    pieces = [f'<h2 id="{scenario.name}">{escaped(head["title"])}</h2><p>{escaped(head["tells"])}</p>']
    if not compared:
        pieces.append('<p class="bad">No step can be compared: the client was the bottleneck in all of them.</p>')
    charts = [percentiles(f"{scenario.shows.capitalize()} at {at}", {target: step["shown_ms"] for target, step in compared}), against_throughput(scenario)]
    if head["streams"]:
        charts.append(percentiles(f"Age of chunks at {at}", {target: step["age_ms"] for target, step in compared}))
    if scenario.name == "agents":
        charts = [percentiles("Latency, every partition cold", {"ibex": (scenario.steps.get(("ibex", 0)) or {"shown_ms": {}})["shown_ms"]}),
                  percentiles("Latency, the same agents again", {"ibex": (scenario.steps.get(("ibex", 1)) or {"shown_ms": {}})["shown_ms"]})]
    elif head["burst"]:
        charts = charts[:1]
    else:
        charts.append(cpu(scenario))
    charts.append(resident(scenario))
    pieces.append(f'<div class="charts">{"".join(charts)}</div>')
    if checks:
        said = [f"{check['target']}: " + (f'<span class="bad">{escaped("; ".join(check["faults"]))}</span>' if check["faults"] else "holds") for check in checks]
        pieces.append(f"<p>What has to hold. {'. '.join(said)}.</p>")
    pieces.append(outcomes_table(scenario))
    pieces.append(f"<details><summary>All steps</summary>{steps_table(scenario)}</details>")
    return "".join(pieces)


def outage_section(line):
    """Redis away."""
    back = "Within the test not everything was well again." if line["recovery_s"] is None else f"Everything was well again {line['recovery_s']:.1f} s after Redis was back."
    faults = f'<p class="bad">{escaped("; ".join(line["faults"]))}</p>' if line["faults"] else "<p>No request without authority reached the provider, no acknowledged write was lost, none was without an end.</p>"
    return (f'<h2 id="{line["scenario"]}">{escaped(line["title"])}</h2><p>{line["rate"]} chat requests a second at {line["replicas"]} replicas over PostgreSQL and Redis. '
            f'{back} The client was at most {line["late_ms"]} ms late; its timer is exact to a millisecond here, and fleet and client share all cores.</p>'
            f'<div class="charts">{outage(line)}</div>{faults}')


def overview(found):
    """The step at which targets are compared, of each scenario."""
    rows = []
    for scenario in found:
        for target, step in scenario.at_compared():
            rows.append([scenario.head["title"], target, f"{step['wanted']:g} {scenario.head['unit']}", ms(step.at("0.5")), ms(step.at("0.99")), ms(step.at("0.999")),
                         f"{step['cpu_us']:,.0f}" if target != "direct" else "-", f"{step['resident_peak_kb'] / 1024:,.0f}" if target != "direct" else "-"])
    return table(["Scenario", "Target", "At", "p50 ms", "p99 ms", "p99.9 ms", "CPU us", "Peak MiB"], rows)


METHOD = """<p>An open loop: every request has a moment at which it is due, with exponential gaps as independent clients have them and the same moments for every target. It is sent then, whether
earlier ones were answered or not, and its latency counts from that moment. A percentile is told when at least two requests lie beyond it. Processor time is of the whole process, from its own
clock; resident memory is the kernel's peak within the step. A step is refused, and not drawn, when the client sent less than 99 % in time, when the core that it shares with the provider was busy
for more than 90 %, or when one request in a hundred left it late by more than 2 ms and more than a quarter of the latency there. Figures compare within this page only.</p>"""


def page(lines):
    """The HTML of a run."""
    machine = next((line for line in lines if line["kind"] == "machine"), None)
    if machine is None:
        return "<!doctype html><title>IBEX under load</title><p>Nothing was measured.</p>"
    steps, checks = collections.defaultdict(list), collections.defaultdict(list)
    for line in lines:
        if line["kind"] == "step":
            steps[line["scenario"]].append(dict(line))
        elif line["kind"] == "check":
            checks[line["scenario"]].append(line)
    found = [Scenario(line, steps[line["name"]], machine["lenient"]) for line in lines if line["kind"] == "scenario" and steps[line["name"]]]
    outages = [line for line in lines if line["kind"] == "outage"]
    refused = sum(bool(line["refused"]) for those in steps.values() for line in those)
    faults = sum(len(check["faults"]) for those in checks.values() for check in those)
    ibex = machine["ibex"]
    facts = {"Measured": machine["at"], "Binary": f"{ibex['version']}, built {ibex['built']}, sha256 {ibex['sha256']}..." + (f", tree at {ibex['commit_of_its_tree']}" if ibex["commit_of_its_tree"] else ""),
             "Processor": f"{machine['processor']}, {machine['cores']} cores, {machine['memory_mib']:,} MiB", "Placement": machine["placement"],
             "System": f"Linux {machine['kernel']}, {machine['libc']}", "Versions": f"Python {machine['python']}, {machine['nginx']}", "Load before": f"{machine['load_average']:.2f}",
             "Memories": f"{machine['memories']:,} of the agent", "Rounds": machine["rounds"],
             "Steps": f"{sum(map(len, steps.values()))}, {refused} of them refused because the client was the bottleneck", "Faults": faults}
    warnings = [text for said, text in ((machine["quick"], "A quick run tries the program; its figures mean nothing."),
                                        (machine["lenient"], "Refused steps are drawn as well: figures of the client, not of the target.")) if said]
    body = [f"<h1>IBEX under load</h1>{''.join(f'<p class=bad>{text}</p>' for text in warnings)}<dl>{''.join(f'<dt>{name}</dt><dd>{escaped(value)}</dd>' for name, value in facts.items())}</dl>",
            METHOD, f"<p>{TARGETS}</p>", overview(found), *(section(scenario, checks[scenario.name]) for scenario in found), *map(outage_section, outages)]
    return (f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>IBEX under load</title>'
            f"<style>{STYLE}{chart.STYLE}</style></head><body>{''.join(body)}</body></html>")


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print(page([json.loads(line) for line in file]))
