// Preview: what a turn would be sent with, and why. No provider is called and nothing is frozen.

import { call } from "./api.js";
import { counted, empty, failure, field, h, heading, loading, panel, show } from "./dom.js";
import { planView } from "./plan.js";

const MODEL = "gpt-4o-mini";

/** A message's content as text; parts that are none are named. */
const textOf = (content) => {
  if (typeof content === "string") return content;
  return (content ?? []).map((part) => part.text ?? `[${part.type}]`).join("\n");
};

function messages(found) {
  return panel(`As it would be sent (${counted(found.length, "message")})`, h("ol", { class: "messages" }, found.map((message) => h("li", {},
    h("span", { class: "role" }, message.role), h("pre", { tabindex: "0", "aria-label": `${message.role} message` }, textOf(message.content))))));
}

/** The memories of a plan, each read under the viewer's rights. */
async function texts(plan) {
  const read = (id) => call(`v1/memories/${id}`).catch(() => null);
  const found = await Promise.all(plan.memories.slice(0, 60).map(({ id }) => read(id)));
  return found.filter(Boolean);
}

/** The view. */
export function preview(root, viewer) {
  const text = h("textarea", { rows: 3, required: true, placeholder: "What the user would say" });
  const system = h("textarea", { rows: 2, placeholder: "Optional" });
  const model = h("input", { type: "text", value: MODEL, required: true, spellcheck: "false", autocapitalize: "none" });
  const session = h("input", { type: "text", placeholder: "A new one", pattern: "[!-~]{1,64}", spellcheck: "false", autocapitalize: "none" });
  const result = h("div", { "aria-live": "polite" }, empty("Nothing previewed yet", "Type a turn to see which memories it would bring, and where they would go."));
  const button = h("button", { class: "button primary", type: "submit" }, "Preview");

  async function run(event) {
    event.preventDefault();
    button.disabled = true;
    show(result, loading(6));
    const said = [...(system.value.trim() ? [{ role: "system", content: system.value }] : []), { role: "user", content: text.value }];
    const more = session.value ? { "X-IBEX-Session-ID": session.value } : {};
    try {
      const { plan, messages: sent } = await call("v1/context/preview", { body: { model: model.value, messages: said }, more });
      show(result, planView(plan, await texts(plan)), messages(sent));
    } catch (fault) {
      show(result, failure(fault));
    } finally {
      button.disabled = false;
    }
  }

  // Return sends, as in a chat; with Shift it makes a line.
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      event.target.form.requestSubmit();
    }
  });
  show(root, heading("Preview", `What a turn would be sent with${viewer.user ? ` for ${viewer.user}` : ""}. No provider is called, and nothing is frozen.`),
    h("form", { class: "panel form", onsubmit: run }, field("User message", text), field("System message", system),
      h("div", { class: "pair" }, field("Model", model), field("Session", session)), h("div", { class: "form-end" }, button)), result);
}
