// Drawings: lines of the last minutes, and bars of parts. Each says in words what it shows.

import { count, h, svg } from "./dom.js";

const WIDTH = 240;
const HEIGHT = 44;
const TOP = 3;

/** A line of numbers, oldest first; null leaves a gap. `say` puts one number into words. `points` is how many there would be in full. */
export function sparkline(values, { label, say, points }) {
  const known = values.filter((v) => v !== null);
  const most = Math.max(...known, 0);
  const named = known.length ? `${label}, last five minutes: now ${say(known.at(-1))}, at most ${say(most)}` : `${label}: nothing in the last five minutes`;
  const across = WIDTH / Math.max(1, points - 1);
  const x = (i) => WIDTH - (values.length - 1 - i) * across;
  const y = (v) => HEIGHT - 1.5 - (most ? (v / most) * (HEIGHT - TOP - 1.5) : 0);
  const runs = [];
  values.forEach((v, i) => {
    if (v === null) return;
    if (i === 0 || values[i - 1] === null) runs.push([]);
    runs.at(-1).push([x(i), y(v)]);
  });
  const step = ([px, py]) => `${px.toFixed(1)} ${py.toFixed(1)}`;
  // A single point is drawn as a short dash, which a line of no length would not be.
  const line = runs.map((run) => `M${run.map(step).join("L")}${run.length === 1 ? "h1.5" : ""}`).join("");
  const area = runs.map((run) => `M${run[0][0].toFixed(1)} ${HEIGHT}L${run.map(step).join("L")}L${run.at(-1)[0].toFixed(1)} ${HEIGHT}Z`).join("");
  return svg("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": named },
    svg("path", { class: "spark-base", d: `M0 ${HEIGHT - 0.5}H${WIDTH}` }),
    svg("path", { class: "spark-area", d: area }), svg("path", { class: "spark-line", d: line }));
}

/** Parts of a whole: `parts` are { name, value, tone, note }. Parts of nothing are listed and not drawn. */
export function stacked(parts, { label, unit = "" }) {
  const total = parts.reduce((sum, part) => sum + part.value, 0);
  const share = (value) => (total ? (value / total) * 100 : 0);
  const percent = (value) => (!total || !value ? "0 %" : share(value) < 1 ? "< 1 %" : `${share(value).toFixed(0)} %`);
  const drawn = parts.filter((part) => part.value > 0);
  const bar = svg("svg", { class: "stack", viewBox: "0 0 1000 14", preserveAspectRatio: "none", role: "img", "aria-label": `${label}: ${drawn.map((p) => `${p.name} ${count(p.value)}${unit}`).join(", ") || "nothing"}` });
  bar.append(svg("rect", { class: "stack-ground", width: 1000, height: 14 }));
  let at = 0;
  const room = 1000 - (drawn.length - 1) * 3;
  for (const part of drawn) {
    const width = Math.max(4, (part.value / total) * room);
    bar.append(svg("rect", { class: `part ${part.tone}`, x: at.toFixed(1), width: width.toFixed(1), height: 14 }));
    at += width + 3;
  }
  const rows = parts.map((part) => h("li", { class: part.value ? "" : "none" },
    h("span", { class: `key ${part.tone}`, "aria-hidden": "true" }),
    h("span", { class: "legend-name" }, part.name, part.note ? h("small", {}, part.note) : null),
    h("span", { class: "legend-value" }, count(part.value)), h("span", { class: "legend-share" }, percent(part.value))));
  return h("div", { class: "parts" }, bar, h("ul", { class: "legend" }, rows));
}

/** A share of a whole as a short bar. */
export function meter(share, label, tone = "") {
  const width = Math.max(0, Math.min(1, share)) * 100;
  return svg("svg", { class: `meter ${tone}`, viewBox: "0 0 100 6", preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("rect", { class: "meter-ground", width: 100, height: 6 }), svg("rect", { class: "meter-fill", width: width.toFixed(1), height: 6 }));
}
