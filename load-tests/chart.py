"""Charts as SVG: lines over linear or logarithmic axes, and bars. No script; colours follow the reader's light or dark mode."""

import html
import math

# The same colour and mark everywhere: a reader who knows one chart knows all.
SERIES = {"direct": 0, "nginx": 1, "ibex": 2, "ibex-skip": 3}

STYLE = """
  svg { --ink: #1b1f24; --faint: #6a737d; --rule: #d9dee3; --ground: #ffffff; --shade: #f6d5d0; --calm: #eef1f4; --c0: #6a737d; --c1: #00857a; --c2: #1f5fd0; --c3: #c25700; --c4: #b3202a; --c5: #7b3fb5;
        font: 12px system-ui, sans-serif; background: var(--ground); max-width: 100%; height: auto; }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #e8ecf0; --faint: #9aa4ae; --rule: #363d45; --ground: #15191e; --shade: #4a2725; --calm: #20262d; --c0: #9aa4ae; --c1: #3cc4b4; --c2: #7aa8ff; --c3: #ff9d4d; --c4: #ff7b7b; --c5: #c79bff; }
  }
  svg text { fill: var(--ink); } svg text.faint { fill: var(--faint); } svg .rule { stroke: var(--rule); fill: none; } svg .shade { fill: var(--shade); } svg .calm { fill: var(--calm); }
  svg .line { fill: none; stroke-width: 2; } svg .dashed { stroke-dasharray: 5 4; } svg .title { font-weight: 600; font-size: 13px; }
""" + "".join(f"  svg .s{n} {{ stroke: var(--c{n}); }} svg .f{n} {{ fill: var(--c{n}); stroke: none; }}\n" for n in range(6))

WIDTH, HEIGHT = 470, 310
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 54, 44


def number(value):
    """Short, for people."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


class Axis:
    """From values to pixels. `ticks` are (value, text)."""

    def __init__(self, low, high, start, end, log=False, ticks=None):
        self.log = log
        if log:
            low, high = max(low, 1e-4), max(high, 2e-4)
            low, high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high) + 1e-9)
        elif high <= low:
            high = low + 1
        self.low, self.high, self.start, self.end = low, high, start, end
        self.ticks = ticks or (self._decades() if log else self._even())

    def _decades(self):
        first, last = round(math.log10(self.low)), round(math.log10(self.high))
        steps = (1,) if last - first > 3 else (1, 2, 5)
        return [(step * 10.0 ** power, number(step * 10.0 ** power)) for power in range(first, last + 1) for step in steps if step * 10.0 ** power <= self.high * 1.0001]

    def _even(self):
        rough = (self.high - self.low) / 5
        power = 10 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
        first = math.ceil(self.low / step)
        return [(at * step, number(at * step)) for at in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def __call__(self, value):
        if self.log:
            share = (math.log10(max(value, self.low)) - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + min(max(share, 0), 1) * (self.end - self.start)


def mark(shape, x, y, tells):
    """A point; what it stands for shows when it is pointed at."""
    title = f"<title>{html.escape(tells)}</title>"
    if shape % 4 == 0:
        return f'<circle class="f{shape}" cx="{x:.1f}" cy="{y:.1f}" r="3.5">{title}</circle>'
    points = {1: [(-3.2, -3.2), (3.2, -3.2), (3.2, 3.2), (-3.2, 3.2)], 2: [(0, -4.2), (4, 3.2), (-4, 3.2)], 3: [(0, -4.5), (4.5, 0), (0, 4.5), (-4.5, 0)]}[shape % 4]
    return f'<polygon class="f{shape}" points="{" ".join(f"{x + a:.1f},{y + b:.1f}" for a, b in points)}">{title}</polygon>'


class Chart:
    """A frame with axes; lines and bars are put into it."""

    def __init__(self, title, x, y, x_name, y_name, width=WIDTH, height=HEIGHT):
        self.title, self.x_name, self.y_name, self.width, self.height = title, x_name, y_name, width, height
        self.x, self.y = x, y
        self.parts, self.legend = [], []

    def shade(self, begin, end, text, kind="shade"):
        """A stretch of the x axis in which something was the case; `calm` when it is no trouble."""
        left, right = self.x(begin), self.x(end)
        self.parts.insert(0, f'<rect class="{kind}" x="{left:.1f}" y="{self.y.end:.1f}" width="{right - left:.1f}" height="{self.y.start - self.y.end:.1f}"/>'
                             f'<text class="faint" x="{left + 4:.1f}" y="{self.y.end + 13:.1f}">{html.escape(text)}</text>')

    def line(self, name, series, points, dashed=False, marks=True, unit="", legend=True):
        """Points are (x, y); those that are drawn with a mark tell their values."""
        if not points:
            return
        at = [(self.x(a), self.y(b)) for a, b in points]
        path = "M" + " L".join(f"{a:.1f},{b:.1f}" for a, b in at)
        self.parts.append(f'<path class="line s{series}{" dashed" if dashed else ""}" d="{path}"/>')
        if marks:
            self.parts += [mark(series, *where, f"{name}: {number(a)} {self.x_name}, {number(b)} {unit}".strip()) for where, (a, b) in zip(at, points)]
        if legend:
            self.legend.append((name, series, dashed))

    def bar(self, center, width, low, high, series, tells):
        """From one value to another."""
        top, bottom = self.y(high), self.y(low)
        self.parts.append(f'<rect class="f{series}" x="{center - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" height="{max(bottom - top, 0):.1f}"><title>{html.escape(tells)}</title></rect>')

    def text(self, x, y, words, anchor="middle"):
        """Words at a place."""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>')

    def key(self, name, series, dashed=False):
        """A line of the legend without a line in the chart."""
        self.legend.append((name, series, dashed))

    def svg(self, standalone=False):
        """The chart; one that stands alone brings its colours."""
        out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}" role="img" aria-label="{html.escape(self.title)}">']
        if standalone:
            out.append(f"<style>{STYLE}</style>" f'<rect width="{self.width}" height="{self.height}" fill="var(--ground)"/>')
        out.append(f'<text class="title" x="{LEFT}" y="17">{html.escape(self.title)}</text>')
        at = LEFT
        for name, series, dashed in self.legend:
            out.append(f'<path class="line s{series}{" dashed" if dashed else ""}" d="M{at},34 h18"/>' + (mark(series, at + 9, 34, name) if not dashed else "")
                       + f'<text x="{at + 23}" y="38">{html.escape(name)}</text>')
            at += 34 + 7 * len(name)
        bottom, right = self.y.start, self.x.end
        for value, text in self.y.ticks:
            out.append(f'<path class="rule" d="M{self.x.start},{self.y(value):.1f} H{right}"/><text class="faint" x="{self.x.start - 6}" y="{self.y(value) + 4:.1f}" text-anchor="end">{text}</text>')
        for value, text in self.x.ticks:
            out.append(f'<path class="rule" d="M{self.x(value):.1f},{bottom} v4"/><text class="faint" x="{self.x(value):.1f}" y="{bottom + 17}" text-anchor="middle">{text}</text>')
        out.append(f'<text class="faint" x="{right}" y="{self.height - 8}" text-anchor="end">{html.escape(self.x_name)}</text>'
                   f'<text class="faint" x="8" y="17">{html.escape(self.y_name)}</text>')
        return "".join([*out, *self.parts, "</svg>"])


def frame(title, xs, ys, x_name, y_name, x_log=False, y_log=False, x_ticks=None, x_range=None, width=WIDTH, height=HEIGHT):
    """A chart whose axes hold these values."""
    low, high = x_range or ((min(xs) if x_log else 0), max(xs, default=1))
    x = Axis(low, high, LEFT, width - RIGHT, x_log, x_ticks)
    ys = [value for value in ys if value > 0 or not y_log] or [1]
    y = Axis(min(ys) if y_log else 0, max(ys) * (1 if y_log else 1.08), height - BOTTOM, TOP, y_log)
    return Chart(title, x, y, x_name, y_name, width, height)
