// Memories of the agent: a list, a search, and one memory with what it replaced.

import { call } from "./api.js";
import { meter } from "./chart.js";
import { badge, choice, count, counted, empty, facts, failure, h, heading, icon, identifier, loading, panel, show, time } from "./dom.js";

const CATEGORIES = ["procedural", "factual", "preference", "behavioral", "episodic"];
const PAGE = 25;
const STATUS = { active: "ok", superseded: "neutral", quarantined: "warn", forgotten: "bad" };

const useful = ({ useful: yes, not_useful: no }) => (yes || no ? `${count(yes)} useful, ${count(no)} not` : "no votes");

function row(memory) {
  return h("li", {}, h("a", { class: "row memory-row", href: `#/memories/${memory.id}` },
    h("span", { class: "memory-text" }, memory.content ?? "Not yours to read."),
    h("span", { class: "row-badges" }, badge(memory.status, STATUS[memory.status]), badge(memory.category, "info"),
      memory.user_id ? badge(`user ${memory.user_id}`) : badge("shared"), memory.pinned ? badge("pinned", "warn") : null),
    h("span", { class: "row-figures" },
      memory.score === undefined ? null : h("span", {}, h("small", {}, "Score"), memory.score.toFixed(3)),
      h("span", {}, h("small", {}, "Revision"), count(memory.revision)), h("span", {}, h("small", {}, "Retrieved"), count(memory.retrieval_count)),
      h("span", {}, h("small", {}, "Votes"), `+${count(memory.feedback.useful)} −${count(memory.feedback.not_useful)}`),
      memory.supersedes?.length ? h("span", {}, h("small", {}, "Replaces"), count(memory.supersedes.length)) : null)));
}

/** The list with its search. */
export function memories(root, viewer) {
  const may = (name) => viewer.permissions.includes(name);
  const asked = { query: "", category: "", status: "active", pinned: "" };
  const query = h("input", { type: "search", placeholder: "Search by meaning and words", "aria-label": "Search memories" });
  const body = h("div", { "aria-live": "polite" });
  const statuses = [["active", "Current"], ...(may("MemoryWrite") ? [["history", "With history"], ["superseded", "Superseded"]] : [])];
  const filter = (name) => (value) => {
    asked[name] = value;
    load();
  };
  const labelled = (label, control) => (control.setAttribute("aria-label", label), control);

  function submit(event) {
    event.preventDefault();
    asked.query = query.value.trim();
    load();
  }
  query.addEventListener("search", () => {
    if (!query.value && asked.query) submit(new Event("submit"));
  });

  const search = () => call("v1/memories/search", { body: {
    query: asked.query, limit: 50, ...(asked.category ? { labels: [asked.category] } : {}), ...(asked.pinned ? { pinned: asked.pinned === "yes" } : {}),
  } }).then(({ results }) => ({ found: results, more: false }));

  const list = (after) => {
    const params = new URLSearchParams({ limit: PAGE });
    if (asked.category) params.set("category", asked.category);
    if (asked.pinned) params.set("pinned", asked.pinned === "yes");
    if (asked.status === "history") params.set("history", "true");
    if (asked.status === "superseded") params.set("status", "superseded");
    if (after) params.set("after", after);
    return call(`v1/memories?${params}`).then(({ memories: found, has_more: more }) => ({ found, more }));
  };

  let turn = 0;
  async function load() {
    const mine = ++turn;
    show(body, loading());
    try {
      const { found, more } = await (asked.query ? search() : list());
      if (mine !== turn) return;
      if (!found.length) {
        show(body, asked.query || asked.category || asked.pinned || asked.status !== "active"
          ? empty("Nothing matches", "Try other words, or fewer filters.")
          : empty("No memories yet", viewer.user ? "This agent remembers nothing of this user, and shares nothing with everybody." : "This agent shares no memories. Those of a user are shown when you act for that user."));
        return;
      }
      const rows = h("ul", { class: "rows" }, found.map(row));
      show(body, asked.query ? h("p", { class: "fine" }, `${counted(found.length, "result")}, best first. A search sees what is current.`) : null, rows, more ? further(rows, found.at(-1).id) : null);
    } catch (fault) {
      if (mine === turn) show(body, failure(fault, load));
    }
  }

  function further(rows, after) {
    const button = h("button", { class: "button more", type: "button", onclick: async () => {
      button.disabled = true;
      try {
        const { found, more } = await list(after);
        const first = found.map(row);
        rows.append(...first);
        button.replaceWith(...(more ? [further(rows, found.at(-1).id)] : []));
        first[0]?.firstChild.focus();
      } catch (fault) {
        button.replaceWith(failure(fault, () => load()));
      }
    } }, "Show more");
    return button;
  }

  show(root, heading("Memories", viewer.user ? `What the agent knows of ${viewer.user}, and what it shares with everybody.` : "What the agent shares with everybody. Act for a user to see theirs too."),
    h("form", { class: "toolbar", role: "search", onsubmit: submit },
      h("div", { class: "search" }, icon("search"), query), h("button", { class: "button primary", type: "submit" }, "Search"),
      labelled("Status", choice(statuses, asked.status, filter("status"))),
      labelled("Category", choice([["", "All categories"], ...CATEGORIES.map((c) => [c, c])], "", filter("category"))),
      labelled("Pinned", choice([["", "Pinned or not"], ["yes", "Pinned"], ["no", "Not pinned"]], "", filter("pinned")))), body);
  load();
}

const back = () => h("a", { class: "back", href: "#/memories" }, icon("back"), "Memories");

const RELATIONS = { supersedes: "replaces", contradiction: "contradicts", overlap: "overlaps", specializes: "specializes" };

function chain(memory, others) {
  const relations = memory.relations ?? [];
  if (!relations.length) return panel("What it is to others", h("p", { class: "calm" }, "It replaces nothing, and nothing replaces it."));
  return panel("What it is to others", h("ol", { class: "timeline" }, relations.map((relation) => {
    const forwards = relation.source === memory.id;
    const other = forwards ? relation.target : relation.source;
    const verb = RELATIONS[relation.relation] ?? relation.relation;
    const text = others.get(other);
    return h("li", {}, h("p", {}, badge(forwards ? `this ${verb}` : `${verb} this`, forwards ? "info" : "warn"), " ", identifier(other), " ", h("span", { class: "fine" }, "decided by ", relation.decided_by, ", ", time(relation.at, true))),
      text ? h("p", { class: "memory-text" }, h("a", { href: `#/memories/${other}` }, text.content)) : h("p", { class: "memory-text gone" }, "Not there any more, or not yours to read."));
  })));
}

function details(memory) {
  return panel("What it says", h("p", { class: "memory-whole" }, memory.content),
    h("div", { class: "row-badges" }, badge(memory.status, STATUS[memory.status]), memory.labels.map((l) => badge(l.label, "info")), memory.pinned ? badge("pinned", "warn") : null),
    facts([
      ["Belongs to", memory.user_id ? h("code", {}, memory.user_id) : "every user"], ["Confidence", [memory.confidence.toFixed(2), " ", meter(memory.confidence, `confidence ${memory.confidence.toFixed(2)}`)]],
      ["Retrieved", counted(memory.retrieval_count, "time")], ["Votes", useful(memory.feedback)], ["Revision", count(memory.revision)],
      ["Valid from", time(memory.valid_from, true)], ["Valid until", memory.valid_until ? time(memory.valid_until, true) : "open"],
      ["Observed", memory.observed_at ? time(memory.observed_at, true) : null], ["Written", time(memory.created_at, true)], ["Changed", time(memory.updated_at, true)],
      ["Source", memory.source.session ? [memory.source.kind, " · ", h("a", { href: `#/sessions/${encodeURIComponent(memory.source.session)}` }, memory.source.session)] : memory.source.kind], ["Identifier", h("code", { class: "wrap" }, memory.id)],
    ]),
    memory.metadata ? h("details", {}, h("summary", {}, "Metadata"), h("pre", { tabindex: "0", "aria-label": "Metadata" }, JSON.stringify(memory.metadata, null, 2))) : null);
}

/** One memory. */
export function memory(root, viewer, id) {
  const body = h("div", {}, loading(5));
  show(root, back(), heading("Memory", null, identifier(id)), body);
  const read = (one) => call(`v1/memories/${encodeURIComponent(one)}${viewer.permissions.includes("MemoryWrite") ? "?history=true" : ""}`);
  async function load() {
    try {
      const found = await read(id);
      const ids = [...new Set((found.relations ?? []).flatMap((r) => [r.source, r.target]))].filter((one) => one !== id).slice(0, 30);
      const others = await Promise.all(ids.map((one) => read(one).catch(() => null)));
      show(body, details(found), chain(found, new Map(others.filter(Boolean).map((m) => [m.id, m]))));
    } catch (fault) {
      if (fault.status === 404) show(body, empty("Not found", "It was forgotten, is held for review, or belongs to another agent or user."));
      else show(body, failure(fault, load));
    }
  }
  load();
}
