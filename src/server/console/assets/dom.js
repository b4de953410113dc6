// Building blocks of the page. Text goes in as text nodes and nothing else: what a memory says is somebody's input and stays text.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false && child !== ""));
  return element;
}

/** An element: `h("p", { class: "note" }, "text", other)`. Props are attributes, or listeners when they begin with `on`. */
export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);

/** An element of a drawing. */
export const svg = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

/** Puts `children` in place of what `element` holds. */
export function show(element, ...children) {
  element.replaceChildren(...children.flat(3).filter(Boolean));
  return element;
}

const ICONS = {
  live: "M3 12h4l3-8 4 16 3-8h4",
  requests: "M4 6h16M4 12h16M4 18h10",
  preview: "M2.500 12S6 5.500 12 5.500 21.500 12 21.500 12 18 18.500 12 18.500 2.500 12 2.500 12ZM12 9.200a2.800 2.800 0 1 1 0 5.600 2.800 2.800 0 0 1 0-5.600Z",
  memories: "M12 3 3 7.500l9 4.500 9-4.500L12 3ZM3 12l9 4.500 9-4.500M3 16.500 12 21l9-4.500",
  sessions: "M4 5h16v11H9l-5 4V5Z",
  search: "M10.500 4a6.500 6.500 0 1 1 0 13 6.500 6.500 0 0 1 0-13ZM15.500 15.500 20 20",
  pin: "M9 3h6l-1 6 4 4H6l4-4-1-6ZM12 13v8",
  back: "M15 5l-7 7 7 7",
  theme: "M12 3.500a8.500 8.500 0 1 1 0 17 8.500 8.500 0 0 1 0-17ZM12 3.500v17M15 5v14M18 7.500v9",
  pause: "M8 5v14M16 5v14",
  play: "M7 4.500 19 12 7 19.500v-15Z",
  warning: "M12 3.500 2.500 20h19L12 3.500ZM12 10v4.500M12 17.200v.3",
  empty: "M4 13l2.500-8h11L20 13v6H4v-6ZM4 13h5l1 2.500h4L15 13h5",
};

/** A small drawing that says nothing a text beside it does not say. */
export function icon(name, cls = "icon") {
  return svg("svg", { class: cls, viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" }, svg("path", { d: ICONS[name] }));
}

/** A short word on a coloured ground; the colour only repeats what the word says. */
export const badge = (text, tone = "neutral") => h("span", { class: `badge ${tone}` }, text);

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const moment = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** 12,345 */
export const count = (n) => whole.format(n);

/** 1 memory, 2 memories */
export const counted = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** A duration of `ms` milliseconds as [figure, unit]. */
export function duration(ms) {
  if (ms === null || ms === undefined) return ["–", ""];
  if (ms < 0.01) return ["< 0.01", "ms"];
  if (ms < 1) return [ms.toFixed(2), "ms"];
  if (ms < 10) return [ms.toFixed(1), "ms"];
  if (ms < 1000) return [ms.toFixed(0), "ms"];
  if (ms < 60000) return [(ms / 1000).toFixed(ms < 10000 ? 2 : 1), "s"];
  return [(ms / 60000).toFixed(1), "min"];
}

export const durationText = (ms) => duration(ms).join(" ").trim();

/** A time of day with the whole moment behind it. */
export function time(at, full = false) {
  const date = new Date(at);
  return h("time", { datetime: at, title: moment.format(date) }, (full ? moment : clock).format(date));
}

/** How long ago, in the largest unit that fits. */
export function ago(at) {
  const seconds = Math.max(0, (Date.now() - new Date(at).getTime()) / 1000);
  for (const [size, name] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${name} ago`;
  }
  return `${Math.floor(seconds)} s ago`;
}

/** The end of a UUID: its beginning is a time that neighbours share. */
export const tail = (id) => (id.length > 13 ? `…${id.slice(-8)}` : id);

/** An identifier in full on a pointer, and its end to read. */
export const identifier = (id) => h("code", { class: "id", title: id }, tail(id));

/** Names beside values. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, shown.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** A titled part of a view. */
export function panel(title, ...children) {
  return h("section", { class: "panel" }, h("h2", {}, title), children);
}

/** Nothing to show, and what to do about it. */
export function empty(title, text, ...more) {
  return h("div", { class: "state" }, icon("empty"), h("p", { class: "state-title" }, title), h("p", {}, text), more);
}

/** A request that failed: what the service said, and its identifier for whoever looks into the logs. */
export function failure(fault, retry) {
  return h("div", { class: "state bad", role: "alert" }, icon("warning"),
    h("p", { class: "state-title" }, fault.title ?? "That did not work"),
    h("p", {}, fault.message),
    fault.code ? h("p", { class: "fine" }, h("code", {}, fault.code), fault.requestId ? ["  request ", h("code", {}, fault.requestId)] : "") : null,
    retry ? h("button", { class: "button", type: "button", onclick: retry }, "Try again") : null);
}

/** Grey shapes where something will be. */
export function loading(rows = 4) {
  return h("div", { class: "loading", role: "status" }, h("span", { class: "hidden" }, "Loading"),
    Array.from({ length: rows }, () => h("div", { class: "shimmer", "aria-hidden": "true" })));
}

/** A labelled field around `control`. */
export function field(label, control, hint) {
  const id = control.id || `f-${label.toLowerCase().replaceAll(/[^a-z]+/g, "-")}`;
  control.id = id;
  if (hint) control.setAttribute("aria-describedby", `${id}-hint`);
  return h("div", { class: "field" }, h("label", { for: id }, label), control, hint ? h("p", { class: "hint", id: `${id}-hint` }, hint) : null);
}

/** A choice; `options` are [value, text]. */
export function choice(options, chosen, onchange) {
  return h("select", { onchange: (event) => onchange?.(event.target.value) },
    options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
}

/** The head of a view: its title, what it is, and what can be done. */
export function heading(title, text, ...actions) {
  return h("header", { class: "heading" },
    h("div", {}, h("h1", { tabindex: "-1" }, title), text ? h("p", { class: "lead" }, text) : null),
    actions.length ? h("div", { class: "actions" }, actions) : null);
}
