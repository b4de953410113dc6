// A context plan: how it came out, what goes where, what was asked, and every memory that was considered.

import { meter, stacked } from "./chart.js";
import { badge, count, counted, durationText, facts, h, identifier, panel } from "./dom.js";

const STATUS = {
  full: ["Full", "ok"], partial: ["Partial", "warn"], "directive-only": ["Directive only", "warn"], "history-only": ["History only", "bad"],
  skipped: ["Skipped", "neutral"], disabled: ["Disabled", "neutral"],
};

const LEVEL = { L0: "ok", L1: "warn", L2: "orange", L3: "bad" };

const REASONS = {
  none_relevant: "nothing that is stored is relevant", none_stored: "nothing is stored", already_in_context: "what is relevant is in the conversation already", no_question: "there is no question to search for",
  turn_settled: "the turn was settled before", over_budget: "the request is larger than the model's window", deadline: "the deadline was hit",
  internal: "a fault of the service",
};

const EXCLUSIONS = {
  floor: "Below the relevance floor", gate: "The gate does not believe that it answers", budget: "No room", duplicate: "Another says the same",
  already_in_context: "Already in the conversation", filter: "Filtered out",
};

const PLACES = { recall: "recalled for this turn", snapshot: "in the session's snapshot" };
const BRANCHES = { directive: "Directive", snapshot: "Snapshot", embedding: "Question's vector", hot: "Hot set", cold: "Search" };
const OUTCOMES = { ok: "ok", timeout: "warn", error: "bad", skipped: "neutral" };
const COMPONENTS = ["relevance", "recency", "usefulness", "confidence", "frequency"];

export const statusBadge = (status) => badge(...(STATUS[status] ?? [status]));
export const levelBadge = (level) => badge(level, LEVEL[level] ?? "neutral");

/** A reason in words, as far as there are any. */
export const reasonText = (reason) => (reason ? REASONS[reason] ?? reason : null);

function outcome(plan) {
  const events = (plan.events ?? []).map((event) => badge(event.replaceAll("_", " "), "info"));
  const reason = reasonText(plan.reason);
  return h("div", { class: "outcome" }, statusBadge(plan.status), levelBadge(plan.degradation), badge(`${plan.layout} layout`), events,
    reason ? h("span", { class: "outcome-reason" }, reason) : null);
}

/** What goes out to the model, part by part. What is frozen counts among the wrappers in the account, and is shown apart. */
function parts({ tokens, budget, degradation }) {
  const frozen = Math.min(budget.frozen, tokens.formatter);
  return [
    { name: "Directive", value: tokens.directive, tone: "p-blue" },
    { name: "Frozen", note: "snapshot and earlier blocks", value: frozen, tone: "p-slate" },
    { name: "Memories", note: degradation === "L3" ? null : "new in this request", value: tokens.memories, tone: "p-ok" },
    { name: "Wrappers", note: "envelopes, joins, the safety sentence", value: tokens.formatter - frozen, tone: "p-quiet" },
    { name: "Client's messages", value: budget.messages, tone: "p-amber" },
    { name: "Client's tools", value: budget.tool_schemas, tone: "p-violet" },
  ];
}

function tokensPanel(plan) {
  const { budget } = plan;
  return panel("What goes out, in tokens", stacked(parts(plan), { label: "Tokens by part" }),
    h("p", { class: "sum" }, `Of a window of ${count(budget.context_window)}: ${count(budget.response_reserve)} are kept for the answer and ${count(budget.safety_buffer)} for counting errors, `,
      h("strong", {}, `${count(budget.usable)} were open to memories`), ".",
      budget.constrained ? [" ", badge("tight", "warn")] : null, budget.over_budget ? [" ", badge("over budget", "bad")] : null));
}

function branches(plan) {
  const order = Object.keys(BRANCHES);
  const found = Object.entries(plan.branches).sort(([a], [b]) => order.indexOf(a) - order.indexOf(b));
  if (!found.length) return panel("Where it looked", h("p", { class: "calm" }, "Nothing was asked."));
  const longest = Math.max(...found.map(([, branch]) => branch.ms), 0.001);
  const total = plan.timings_ms.total;
  return panel("Where it looked", h("ul", { class: "branches" }, found.map(([name, branch]) => h("li", {},
    h("span", {}, BRANCHES[name] ?? name), badge(branch.outcome, OUTCOMES[branch.outcome] ?? "neutral"),
    meter(branch.ms / longest, `${durationText(branch.ms)} of ${durationText(longest)}`),
    h("span", { class: "legend-value" }, durationText(branch.ms)), h("span", { class: "fine" }, name === "embedding" ? "" : counted(branch.hits, "hit"))))),
    total === undefined ? null : h("p", { class: "sum" }, `The whole assembly took ${durationText(total)}.`));
}

function session(plan) {
  if (plan.epoch === undefined) return null;
  return panel("What is frozen", facts([
    ["Epoch", count(plan.epoch)], ["Memories sent", count(plan.memories_sent)], ["Of them new", count(plan.memories_new)],
    ["Prefix SHA-256", h("code", { class: "hash", title: plan.prefix_sha256 }, plan.prefix_sha256.slice(0, 16) || "–")],
  ]));
}

function candidate(planned, known) {
  const packed = planned.decision === "packed";
  const memory = known.get(planned.id);
  const scores = COMPONENTS.map((name) => {
    const value = planned.components[name];
    return h("li", {}, h("span", {}, name), meter(value, `${name} ${value.toFixed(2)}`), h("span", { class: "legend-value" }, value.toFixed(2)));
  });
  return h("li", { class: `candidate ${packed ? "in" : "out"}` },
    h("div", { class: "candidate-head" },
      packed ? badge("Packed", "ok") : badge(EXCLUSIONS[planned.reason] ?? "Excluded", "neutral"),
      h("span", { class: "fine" }, PLACES[planned.region] ?? planned.region), h("span", { class: "fine push" }, counted(planned.tokens, "token"))),
    memory ? h("p", { class: "memory-text" }, memory.content) : h("p", { class: "memory-text gone" }, "Not there any more, or not yours to read."),
    h("details", {}, h("summary", {}, h("span", {}, "Score "), h("strong", {}, planned.score.toFixed(3)), memory ? h("span", { class: "fine" }, memory.category) : null, identifier(planned.id)),
      h("ul", { class: "bars scores" }, scores), memory ? h("p", { class: "fine" }, h("a", { href: `#/memories/${planned.id}` }, "Open this memory")) : null));
}

function group(title, planned, known, none) {
  return panel(`${title} (${count(planned.length)})`,
    planned.length ? h("ul", { class: "candidates" }, planned.map((one) => candidate(one, known))) : h("p", { class: "calm" }, none));
}

/** A plan with the memories that may be shown beside it. */
export function planView(plan, memories) {
  const known = new Map(memories.map((memory) => [memory.id, memory]));
  const by = (decision) => plan.memories.filter((m) => m.decision === decision).sort((a, b) => b.score - a.score);
  return [outcome(plan), h("div", { class: "grid" }, tokensPanel(plan), branches(plan), session(plan)),
    group("Packed", by("packed"), known, "No memory went into this request."), group("Left out", by("excluded"), known, "Every candidate was packed.")];
}
