// The console: signing in, the frame around the views, and which view an address means.
//
// An address names a view and an identifier, never a token, a user or a text.

import { credential, Fault, use, whenSignedOut, whoIs } from "./api.js";
import { badge, failure, field, h, icon, loading, show, tail } from "./dom.js";
import { live } from "./live.js";
import { memories, memory } from "./memories.js";
import { preview } from "./preview.js";
import { request, requests } from "./requests.js";
import { session, sessions } from "./sessions.js";

const VIEWS = [
  { name: "live", text: "Live", list: live },
  { name: "requests", text: "Requests", list: requests, one: request },
  { name: "preview", text: "Preview", list: preview },
  { name: "memories", text: "Memories", list: memories, one: memory },
  { name: "sessions", text: "Sessions", list: sessions, one: session },
];

const app = document.getElementById("app");
const main = h("main", { id: "main" });
let viewer = null;
let leave = null;

const mark = () => h("span", { class: "brand" }, h("img", { src: "console/icon.svg", alt: "", width: 28, height: 28 }), h("span", {}, "IBEX"), h("span", { class: "brand-sub" }, "console"));

// ---- theme: the system's, unless somebody chose in this tab

const THEMES = ["system", "light", "dark"];

function theme() {
  const names = { system: "System theme", light: "Light theme", dark: "Dark theme" };
  let chosen = document.documentElement.dataset.theme ?? "system";
  const button = h("button", { class: "button quiet small", type: "button" });
  const told = () => show(button, icon("theme"), h("span", {}, names[chosen]));
  button.addEventListener("click", () => {
    chosen = THEMES[(THEMES.indexOf(chosen) + 1) % THEMES.length];
    if (chosen === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    told();
  });
  told();
  return button;
}

// ---- signing in

const EXPLAINED = {
  INVALID_TOKEN: "The token is not known, or it has expired or been revoked.",
  MISSING_TOKEN: "The token is not known, or it has expired or been revoked.",
  INSUFFICIENT_PERMISSIONS: "The token lacks the permission ConsoleRead, or ActForUser if you name a user.",
  MISSING_AGENT_ID: "The token is not bound to an agent: say which agent you want to see.",
  AGENT_NOT_AUTHORIZED: "The token may not act for that agent, or there is none with that identifier.",
  USER_NOT_AUTHORIZED: "The token is bound to another user.",
  AGENT_SUSPENDED: "The agent is not active.",
  ORG_SUSPENDED: "The organisation is suspended.",
  RATE_LIMITED: "Too many requests: wait a moment.",
  VALIDATION_ERROR: "The agent or the user is not a well-formed identifier.",
};

const explained = (fault) => EXPLAINED[fault.code] ?? fault.message;

/** Fields for whose data is shown. */
function scopeFields(given) {
  const agent = h("input", { type: "text", id: "agent", value: given?.agent ?? "", autocomplete: "off", spellcheck: "false", autocapitalize: "none", maxlength: 64 });
  const user = h("input", { type: "text", id: "user", value: given?.user ?? "", autocomplete: "off", spellcheck: "false", autocapitalize: "none", maxlength: 128 });
  const fields = [field("Agent", agent, "Its identifier. Only for a token that is bound to no agent."), field("Act for user", user, "Optional. Needs ActForUser.")];
  return { agent, user, fields };
}

/** Takes a credential if the service does, and says why it does not. */
async function take(given, told) {
  try {
    viewer = await whoIs(given);
    use(given);
    return true;
  } catch (fault) {
    told.textContent = fault instanceof Fault ? explained(fault) : "That did not work.";
    told.hidden = false;
    return false;
  }
}

function signIn(note) {
  leave?.();
  leave = viewer = null;
  document.title = "Sign in · IBEX console";
  // No name and no completion: a browser that offered to keep it would keep it longer than the tab.
  const token = h("input", { type: "password", id: "token", required: true, autocomplete: "off", spellcheck: "false" });
  const scope = scopeFields(null);
  const told = h("p", { class: "alert", role: "alert", hidden: !note }, note ?? "");
  const button = h("button", { class: "button primary wide", type: "submit" }, "Sign in");
  async function submit(event) {
    event.preventDefault();
    button.disabled = true;
    button.textContent = "Signing in…";
    told.hidden = true;
    const given = { token: token.value.trim(), agent: scope.agent.value.trim(), user: scope.user.value.trim() };
    if (await take(given, told)) return start();
    button.disabled = false;
    button.textContent = "Sign in";
    token.focus();
  }
  show(app, h("main", { class: "sign-in", id: "main" }, h("div", { class: "sign-in-card" }, mark(),
    h("h1", {}, "Sign in"), h("p", { class: "lead" }, "With a token that has the permission ", h("code", {}, "ConsoleRead"), ". It stays in this tab and is gone when you close it."),
    h("form", { onsubmit: submit }, told, field("Token", token), scope.fields, button))));
  token.focus();
}

// ---- the frame

function scopeDialog() {
  const given = credential();
  const scope = scopeFields(given);
  const told = h("p", { class: "alert", role: "alert", hidden: true });
  const dialog = h("dialog", { class: "dialog", "aria-labelledby": "scope-title", onclose: () => dialog.remove() },
    h("form", { onsubmit: async (event) => {
      event.preventDefault();
      told.hidden = true;
      if (await take({ token: given.token, agent: scope.agent.value.trim(), user: scope.user.value.trim() }, told)) {
        dialog.close();
        start();
      }
    } }, h("h2", { id: "scope-title" }, "Whose data"), told, scope.fields,
    h("div", { class: "form-end" }, h("button", { class: "button quiet", type: "button", onclick: () => dialog.close() }, "Cancel"), h("button", { class: "button primary", type: "submit" }, "Show"))));
  app.append(dialog);
  dialog.showModal();
}

function frame() {
  const links = VIEWS.map(({ name, text }) => h("a", { href: `#/${name}`, "data-view": name }, icon(name), h("span", {}, text)));
  const skip = h("a", { class: "skip", href: "#main", onclick: (event) => {
    event.preventDefault();
    main.querySelector("h1")?.focus();
  } }, "Skip to content");
  return h("div", { class: "frame" }, skip,
    h("div", { class: "side" }, mark(), h("nav", { "aria-label": "Views" }, links),
      h("div", { class: "who" },
        h("p", { class: "who-line" }, h("small", {}, "Agent"), h("code", { title: viewer.agent }, tail(viewer.agent))),
        h("p", { class: "who-line" }, h("small", {}, "User"), viewer.user ? h("code", { title: viewer.user }, viewer.user) : h("span", {}, "none")),
        h("p", { class: "who-line environment" }, badge(viewer.environment, viewer.environment === "production" ? "warn" : "neutral")),
        h("div", { class: "who-actions" }, h("button", { class: "button small", type: "button", onclick: scopeDialog }, "Change"),
          h("button", { class: "button quiet small", type: "button", onclick: () => {
            use(null);
            signIn();
          } }, "Sign out"), theme()))),
    main);
}

/** Shows what the address means; an unknown one means the first view. */
function route(moved) {
  if (!viewer) return;
  const [, name, id] = location.hash.split("/");
  const view = VIEWS.find((one) => one.name === name) ?? VIEWS[0];
  leave?.();
  const root = h("div", { class: "view" });
  show(main, root);
  let known = null;
  try {
    known = id ? decodeURIComponent(id) : null;
  } catch {
    // Not an identifier: the list is shown.
  }
  leave = (known && view.one ? view.one(root, viewer, known) : view.list(root, viewer)) ?? null;
  document.title = `${view.text} · IBEX console`;
  for (const link of app.querySelectorAll("[data-view]")) {
    if (link.dataset.view === view.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  // Whoever moves by keyboard or screen reader begins at the new view's title.
  if (moved) {
    root.querySelector("h1")?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

function start() {
  show(app, frame());
  route(false);
  main.querySelector("h1")?.focus({ preventScroll: true });
}

whenSignedOut(() => {
  use(null);
  signIn("You were signed out: the token is not taken any more.");
});

addEventListener("hashchange", () => route(true));

if (credential()) {
  show(app, h("main", { class: "sign-in" }, loading(3)));
  try {
    viewer = await whoIs(credential());
    start();
  } catch (fault) {
    if (fault.status === 0 || fault.status >= 500) show(app, h("main", { class: "sign-in" }, failure(fault, () => location.reload())));
    else {
      use(null);
      signIn(explained(fault));
    }
  }
} else {
  signIn();
}
