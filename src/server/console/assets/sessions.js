// Sessions: those of the newest requests, and one with its lanes, epochs and turns.

import { call } from "./api.js";
import { meter } from "./chart.js";
import { ago, badge, count, counted, durationText, empty, facts, failure, field, h, heading, icon, identifier, loading, panel, show, time } from "./dom.js";

const STATUS = { active: "ok", completed: "neutral", abandoned: "warn" };
const TURNS = 100;

/** Sessions of the newest requests, newest first, with whose they are. */
async function recent() {
  const { requests } = await call("console/api/requests");
  const found = new Map();
  for (const request of requests) {
    const key = JSON.stringify([request.user, request.session]);
    const known = found.get(key) ?? { id: request.session, user: request.user, at: request.at, requests: 0, lanes: new Set(), epoch: request.epoch };
    known.requests += 1;
    known.lanes.add(request.lane);
    found.set(key, known);
  }
  return [...found.values()];
}

function row(session) {
  return h("li", {}, h("a", { class: "row", href: `#/sessions/${encodeURIComponent(session.id)}` },
    h("span", { class: "row-when" }, time(session.at), h("span", { class: "fine" }, ago(session.at))),
    h("span", { class: "row-what" }, h("span", { class: "row-title" }, session.id), h("span", { class: "fine" }, [...session.lanes].join(", "), session.user ? [" · user ", h("code", {}, session.user)] : null)),
    h("span", { class: "row-figures" }, h("span", {}, h("small", {}, "Requests"), count(session.requests)), h("span", {}, h("small", {}, "Epoch"), session.epoch ?? "–"))));
}

/** The list. */
export function sessions(root) {
  const name = h("input", { type: "text", required: true, maxlength: 64, spellcheck: "false", autocapitalize: "none" });
  const body = h("div", {}, loading());
  const open = (event) => {
    event.preventDefault();
    location.hash = `#/sessions/${encodeURIComponent(name.value.trim())}`;
  };
  show(root, heading("Sessions", "Conversations: what was frozen for them, turn by turn, and why an epoch ended."),
    h("form", { class: "toolbar", onsubmit: open }, field("Session", name, "The name from X-IBEX-Session-ID."), h("button", { class: "button", type: "submit" }, "Open")),
    h("h2", { class: "between" }, "In the newest requests"), body);
  async function load() {
    try {
      const found = await recent();
      show(body, found.length ? h("ul", { class: "rows" }, found.map(row)) : empty("No session yet", "Sessions of this agent appear here when this process has answered a request of theirs. Any stored one can be opened by its name."));
    } catch (fault) {
      show(body, failure(fault, load));
    }
  }
  load();
}

const memoryLinks = (ids) => (ids.length ? ids.map((id) => h("a", { class: "chip", href: `#/memories/${id}`, title: id }, h("code", {}, `…${id.slice(-8)}`))) : h("span", { class: "fine" }, "none"));

function lane(found) {
  const epochs = [...found.epochs].reverse();
  return panel(found.lane,
    facts([["Epoch", count(found.epoch)], ["Directive", found.directive_version ? `version ${found.directive_version}` : "none"], ["Snapshot", memoryLinks(found.snapshot)],
      ["Prefix SHA-256", h("code", { class: "hash", title: found.prefix_sha256 }, found.prefix_sha256.slice(0, 16))]]),
    h("h3", {}, "Epochs"),
    h("ol", { class: "timeline" }, epochs.map((epoch, i) => h("li", { class: i ? "" : "now" },
      h("p", {}, h("strong", {}, `Epoch ${epoch.epoch}`), " ", i ? null : badge("in force", "ok"), " ", badge(epoch.reason ? epoch.reason.replaceAll("_", " ") : "opened", epoch.reason ? "warn" : "neutral")),
      h("p", { class: "fine" }, time(epoch.at, true), " · ", h("code", { title: epoch.prefix_sha256 }, epoch.prefix_sha256.slice(0, 12)))))));
}

function cache(turn) {
  if (turn.prompt_tokens === undefined) return "–";
  const share = turn.prompt_tokens ? turn.cached_tokens / turn.prompt_tokens : 0;
  return [`${count(turn.prompt_tokens)} in, ${count(turn.completion_tokens)} out`, meter(share, `${(share * 100).toFixed(0)} % of the prompt from cache`), h("span", { class: "fine" }, `${(share * 100).toFixed(0)} % cached`)];
}

function turns(session) {
  if (!session.latest.length) return panel("Turns", h("p", { class: "calm" }, "No turn was settled."));
  const more = session.turns > session.latest.length ? ` The newest ${session.latest.length} of ${count(session.turns)}.` : "";
  return panel("Turns", more ? h("p", { class: "panel-note" }, more) : null, h("ol", { class: "turns" }, session.latest.map((turn) => h("li", {},
    h("div", { class: "turn-head" }, h("strong", {}, `Turn ${turn.index + 1}`), h("span", { class: "fine" }, time(turn.at)),
      turn.complete === undefined ? badge("no answer yet") : turn.complete ? badge("answered", "ok") : badge("cut", "warn"), turn.stream ? badge("stream") : null,
      h("span", { class: "fine push" }, counted(turn.calls, "call"), turn.ms === undefined ? "" : ` · ${durationText(turn.ms)}`)),
    facts([["New memories", memoryLinks(turn.memories)], ["Tokens", cache(turn)], ["Messages' hash", h("code", {}, turn.messages_hash.slice(0, 16))]])))));
}

const back = () => h("a", { class: "back", href: "#/sessions" }, icon("back"), "Sessions");

/** One session. */
export function session(root, viewer, id) {
  const body = h("div", {}, loading(6));
  show(root, back(), heading("Session", null, h("code", { class: "wrap" }, id)), body);
  const read = (user) => call(`v1/sessions/${encodeURIComponent(id)}?turns=${TURNS}`, { user });
  // A viewer who acts for nobody finds the sessions of users by way of the newest requests.
  const ofUser = async (fault) => {
    const known = viewer.user ? [] : await recent().catch(() => []);
    const user = known.find((one) => one.id === id && one.user)?.user;
    if (!user) throw fault;
    return read(user);
  };
  async function load() {
    try {
      const found = await read().catch((fault) => (fault.status === 404 ? ofUser(fault) : Promise.reject(fault)));
      show(body, panel("Overview", facts([["Status", badge(found.status, STATUS[found.status])], ["User", found.user ? h("code", {}, found.user) : "none"], ["Opened", time(found.created_at, true)],
        ["Last used", [time(found.used_at, true), " ", h("span", { class: "fine" }, ago(found.used_at))]], ["Ended", found.terminated_at ? time(found.terminated_at, true) : null], ["Turns", count(found.turns)]])),
        h("div", { class: "grid" }, found.lanes.map(lane)), turns(found));
    } catch (fault) {
      if (fault.status === 404) show(body, empty("No such session", "It has left no record yet, or it is of another agent or user. A user's session is found when you act for that user."));
      else show(body, failure(fault, load));
    }
  }
  load();
}
