// Requests: the newest chat requests of the agent, and the context plan of one.

import { call } from "./api.js";
import { badge, ago, count, counted, duration, durationText, empty, facts, failure, h, heading, icon, identifier, loading, panel, show, time } from "./dom.js";
import { levelBadge, planView, reasonText, statusBadge } from "./plan.js";

const OUTCOMES = {
  complete: ["answered", "ok"], client_gone: ["client left", "neutral"], stopped: ["cut by a stop", "bad"], upstream_error: ["broke off", "bad"], error_event: ["error in stream", "bad"],
  idle_timeout: ["fell silent", "warn"], total_timeout: ["too long", "warn"],
};

/** How a request ended: an error first, then how its answer did. */
export function endBadge(request) {
  if (request.code) return badge(request.code, "bad");
  if (request.status >= 400) return badge(`HTTP ${request.status}`, "bad");
  return request.outcome ? badge(...OUTCOMES[request.outcome]) : badge("unfinished", "neutral");
}

const figures = (request) => [
  ["Packed", count(request.packed)], ["Left out", count(request.excluded)], ["Injected", request.tokens ? `${count(request.tokens.injected)} tok` : "–"],
  ["First byte", durationText(request.first_byte_ms)], ["Whole", durationText(request.whole_ms)],
];

function row(request) {
  return h("li", {}, h("a", { class: "row request-row", href: `#/requests/${request.id}` },
    h("span", { class: "row-when" }, time(request.at), h("span", { class: "fine" }, ago(request.at))),
    h("span", { class: "row-what" }, h("span", { class: "row-title" }, request.lane), h("span", { class: "fine" }, "session ", h("code", {}, request.session), request.user ? [" · user ", h("code", {}, request.user)] : null)),
    h("span", { class: "row-badges" }, endBadge(request), statusBadge(request.context), request.level ? levelBadge(request.level) : null),
    h("span", { class: "row-figures" }, figures(request).map(([name, value]) => h("span", {}, h("small", {}, name), value)))));
}

/** The list. */
export function requests(root, viewer) {
  const body = h("div", {}, loading());
  const again = h("button", { class: "button quiet", type: "button", onclick: load }, "Refresh");
  show(root, heading("Requests", "What was considered for each chat request, what went in and what it cost. No text is kept here: memories are read when you look.", again), body);
  async function load() {
    if (!viewer.recent_requests) {
      show(body, empty("Plans are not kept", "console.recent_requests is 0 in this process."));
      return;
    }
    try {
      const { requests: found, room } = await call("console/api/requests");
      show(body, found.length
        ? [h("ul", { class: "rows" }, found.map(row)), h("p", { class: "fine foot" }, `${counted(found.length, "request")} of this agent. The process keeps the last ${count(room)} of all agents; other replicas keep their own.`)]
        : empty("No request yet", "Chat requests of this agent appear here as soon as they are answered by this process.", h("a", { class: "button", href: "#/preview" }, "Preview one")));
    } catch (fault) {
      show(body, failure(fault, load));
    }
  }
  load();
}

function summary(request) {
  const [first, unit] = duration(request.first_byte_ms);
  return panel("Overview", facts([
    ["When", time(request.at, true)], ["Model", h("code", {}, request.lane)],
    ["Session", h("a", { href: `#/sessions/${encodeURIComponent(request.session)}` }, request.session)], ["User", request.user ? h("code", {}, request.user) : "none"],
    ["Ended", [endBadge(request), request.stream ? badge("stream") : null]], ["HTTP status", request.status ?? "–"],
    ["First byte", `${first} ${unit}`], ["Whole answer", durationText(request.whole_ms)],
    ["Prompt", request.prompt_tokens ? `${count(request.prompt_tokens)} tokens, ${count(request.cached_tokens)} from cache` : "not reported"],
    ["Answer", request.completion_tokens ? `${count(request.completion_tokens)} tokens` : "not reported"],
    ["Request", h("code", { class: "wrap" }, request.request_id)], ["Trace", h("code", { class: "wrap" }, request.trace_id)],
  ]));
}

const back = () => h("a", { class: "back", href: "#/requests" }, icon("back"), "Requests");

/** One request with its plan. */
export function request(root, viewer, id) {
  const body = h("div", {}, loading(6));
  show(root, back(), heading("Context plan", null, identifier(id)), body);
  const path = `console/api/requests/${encodeURIComponent(id)}`;
  async function load() {
    try {
      let found = await call(path);
      // The memories of a user are read in their name.
      if (found.user && !viewer.user) found = await call(path, { user: found.user });
      const none = found.crowded
        ? empty("Plan not kept", "More requests were under way at that moment than this process keeps plans for.")
        : empty("No plan", `${reasonText(found.reason) ?? "Memory was skipped or switched off for this request"}, so nothing was assembled.`);
      show(body, summary(found), found.plan ? planView(found.plan, found.memories) : none);
    } catch (fault) {
      if (fault.status === 404) show(body, empty("Not kept any more", "Newer requests have taken its place, or it is of another agent or user."));
      else show(body, failure(fault, load));
    }
  }
  load();
}
