// Live: what this process does now, and did in the last minutes.

import { call } from "./api.js";
import { meter, sparkline, stacked } from "./chart.js";
import { badge, count, counted, duration, durationText, empty, failure, h, heading, icon, loading, panel, show, time } from "./dom.js";

const EVERY_MS = 2000;

const ENDS = {
  complete: ["Whole", "p-ok"], client_gone: ["Client left", "p-quiet"], stopped: ["Cut by a stop", "p-bad"], upstream_error: ["Provider broke off", "p-bad"],
  error_event: ["Error inside the stream", "p-bad"], idle_timeout: ["Provider fell silent", "p-warn"], total_timeout: ["Took too long", "p-warn"],
};

const LEVELS = {
  L0: ["L0", "everything worked", "p-ok"], L1: ["L1", "one source missing", "p-warn"],
  L2: ["L2", "no memory source", "p-orange"], L3: ["L3", "context given up", "p-bad"],
};

const CHECKS = { store: "Store", redis: "Redis", provider: "Provider", embeddings: "Embeddings", configuration: "Configuration" };
const TONES = { ok: "ok", catching_up: "warn", not_configured: "warn", degraded: "warn", draining: "warn", last_good: "warn", restart_needed: "warn" };
const words = (text) => text.replaceAll("_", " ");

function tile(name, [figure, unit], note, line) {
  return h("section", { class: "tile" }, h("h2", {}, name),
    h("p", { class: "figure" }, figure, unit ? h("span", { class: "unit" }, unit) : null), h("p", { class: "fine" }, note), line);
}

const rate = (n) => (n === 0 ? "0" : n < 10 ? n.toFixed(2) : n < 100 ? n.toFixed(1) : count(n));
const rest = (q) => (q ? `p50 ${durationText(q.p50)} · p99 ${durationText(q.p99)}` : "no answer in the last minute");

function tiles(live) {
  const { counted: sums, lines, window_s: seconds, steps: points } = live;
  const open = live.open_waiting + live.open_relayed;
  const per = (n) => (seconds ? n / seconds : 0);
  const errors = sums.refused + sums.failed;
  const line = (values, label, say) => sparkline(values, { label, say, points });
  return [
    tile("Requests", [rate(per(sums.requests)), "per second"], `${count(sums.requests)} in the last minute`, line(lines.requests, "Requests a second", rate)),
    tile("Whole answer, p95", duration(live.whole_ms?.p95), rest(live.whole_ms), line(lines.whole_ms, "Time of whole answers", durationText)),
    tile("First byte, p95", duration(live.first_byte_ms?.p95), rest(live.first_byte_ms), line(lines.first_byte_ms, "Time to first byte", durationText)),
    tile("Provider, p95", duration(live.provider_ms?.p95),
      sums.provider_failed ? `${count(sums.provider_failed)} of ${counted(sums.provider_calls, "call")} failed` : `${counted(sums.provider_calls, "call")}, none failed`,
      line(lines.provider_ms, "Time to the provider's first byte", durationText)),
    tile("Under way", [count(open), open === 1 ? "request" : "requests"], `${count(live.open_relayed)} being relayed · ${bytes(live.request_bytes)} of bodies`, line(lines.open, "Requests under way", count)),
    tile("Errors", [rate(per(errors)), "per second"], `${count(sums.refused)} refused · ${count(sums.failed)} failed`, line(lines.errors, "Errors a second", rate)),
  ];
}

function bytes(n) {
  for (const [size, name] of [[1 << 30, "GiB"], [1 << 20, "MiB"], [1 << 10, "KiB"]]) {
    if (n >= size) return `${(n / size).toFixed(1)} ${name}`;
  }
  return `${n} B`;
}

function dependencies({ status, checks }) {
  const rows = Object.entries(checks).map(([name, check]) => h("li", {},
    h("span", {}, CHECKS[name] ?? name),
    h("span", { class: "fine" }, check.latency_ms === undefined ? "" : durationText(check.latency_ms)),
    badge(words(check.status), TONES[check.status] ?? "bad")));
  return panel("Dependencies", h("p", { class: "panel-note" }, "The service is ", badge(words(status), TONES[status] ?? "bad")), h("ul", { class: "checks" }, rows));
}

function errors(found) {
  const rows = Object.entries(found).sort((a, b) => b[1] - a[1]);
  if (!rows.length) return panel("Errors by code", h("p", { class: "calm" }, "No error in the last minute."));
  const most = rows[0][1];
  return panel("Errors by code", h("ul", { class: "bars" }, rows.map(([code, n]) => h("li", {},
    h("code", {}, code), meter(n / most, `${code}: ${n}`, "bad"), h("span", { class: "legend-value" }, count(n))))));
}

function bars(title, found, names, none) {
  const total = Object.values(found).reduce((sum, n) => sum + n, 0);
  if (!total) return panel(title, h("p", { class: "calm" }, none));
  const parts = Object.entries(names).map(([key, [name, note, tone]]) => ({ name, note, tone, value: found[key] ?? 0 }));
  return panel(title, stacked(parts, { label: title }));
}

function tokens(sums) {
  const fresh = Math.max(0, sums.prompt_tokens - sums.cached_tokens);
  if (!sums.prompt_tokens && !sums.completion_tokens) return panel("Tokens", h("p", { class: "calm" }, "No provider has reported tokens in the last minute."));
  return panel("Tokens", stacked([
    { name: "Prompt, read from cache", value: sums.cached_tokens, tone: "p-ok" },
    { name: "Prompt, read anew", value: fresh, tone: "p-blue" },
    { name: "Answers", value: sums.completion_tokens, tone: "p-amber" },
  ], { label: "Tokens" }));
}

const ends = Object.fromEntries(Object.entries(ENDS).map(([key, [name, tone]]) => [key, [name, null, tone]]));

/** The view; what it returns ends its polling. */
export function live(root) {
  let [paused, timer, running] = [false, 0, true];
  const stamp = h("span", { class: "stamp" });
  const body = h("div", {}, loading(6));
  const button = h("button", { class: "button quiet", type: "button", onclick: toggle }, icon("pause"), h("span", {}, "Pause"));
  show(root, heading("Live", "This process and all of its tenants: the last minute in figures, five minutes in lines.", stamp, button), body);

  function toggle() {
    paused = !paused;
    show(button, icon(paused ? "play" : "pause"), h("span", {}, paused ? "Go on" : "Pause"));
    if (!paused) poll();
  }

  async function poll() {
    clearTimeout(timer);
    try {
      const seen = await call("console/api/live");
      if (!running || paused) return;
      show(stamp, time(seen.at));
      show(body, seen.window_s ? null : empty("Just started", "The first figures appear in a second."),
        h("div", { class: "tiles" }, tiles(seen)),
        h("div", { class: "grid" }, bars("Context, by degradation", seen.levels, LEVELS, "No context was assembled in the last minute."),
          dependencies(seen.ready), errors(seen.errors), bars("How answers ended", seen.ends, ends, "No answer has ended in the last minute."), tokens(seen.counted)),
        h("p", { class: "fine foot" }, `Up for ${durationLong(seen.uptime_s)}.`));
    } catch (fault) {
      if (!running) return;
      show(body, failure(fault, poll));
      // What the token may not see now it may not see in two seconds.
      if (fault.status === 403 || fault.status === 401) return;
    }
    if (running && !paused && !document.hidden) timer = setTimeout(poll, EVERY_MS);
  }

  // A page that nobody looks at asks for nothing.
  const seen = () => (document.hidden ? clearTimeout(timer) : !paused && poll());
  document.addEventListener("visibilitychange", seen);
  poll();
  return () => {
    running = false;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", seen);
  };
}

function durationLong(seconds) {
  const [days, hours, minutes] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (days) return `${counted(days, "day")} ${counted(hours, "hour")}`;
  if (hours) return `${counted(hours, "hour")} ${counted(minutes, "minute")}`;
  return minutes ? counted(minutes, "minute") : counted(seconds, "second");
}
