// Who looks, and the calls made for them.
//
// The token is in sessionStorage and nowhere else. It is gone with the tab, other tabs and other sites do not see it, and no request
// carries it unless this file puts it there, as a cookie would be carried. Keeping it in a variable alone would ask for it again at every
// reload, and would gain nothing: a script that could read one could read the other, and the page's policy lets no foreign script run.

const KEY = "ibex-console";

const read = () => {
  try {
    return JSON.parse(sessionStorage.getItem(KEY)) ?? null;
  } catch {
    return null;
  }
};

let held = read();
let onSignedOut = () => {};

/** The credential in use: `{ token, agent, user }`, or null. */
export const credential = () => held;

/** Takes a credential into use; null signs out. */
export function use(next) {
  held = next;
  try {
    if (next) sessionStorage.setItem(KEY, JSON.stringify(next));
    else sessionStorage.removeItem(KEY);
  } catch {
    // Storage may be forbidden; then the credential lasts until the next reload.
  }
}

/** Says whom to tell when a credential is not taken any more. */
export function whenSignedOut(tell) {
  onSignedOut = tell;
}

/** What a call failed with. `status` is 0 when there was no answer. */
export class Fault extends Error {
  constructor(status, error = {}) {
    super(error.message ?? "The service cannot be reached.");
    this.status = status;
    this.code = error.code ?? null;
    this.requestId = error.request_id ?? null;
    this.title = TITLES[this.code] ?? (status === 0 ? "No connection" : status >= 500 ? "The service has a problem" : "That did not work");
  }
}

const TITLES = {
  INSUFFICIENT_PERMISSIONS: "The token may not see this",
  NOT_FOUND: "Not found",
  RATE_LIMITED: "Too many requests",
  SERVICE_DEGRADED: "Part of the service is down",
  VALIDATION_ERROR: "The request was not understood",
};

const headers = (given, user, body, more) => ({
  Authorization: `Bearer ${given.token}`,
  ...(given.agent ? { "X-IBEX-Agent-ID": given.agent } : {}),
  ...(user || given.user ? { "X-IBEX-User-ID": user || given.user } : {}),
  ...(body === undefined ? {} : { "Content-Type": "application/json" }),
  ...more,
});

async function ask(given, path, { body, user, more, signal } = {}) {
  let answer;
  try {
    answer = await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      headers: headers(given, user, body, more),
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
      referrerPolicy: "no-referrer",
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Fault(0);
  }
  const json = await answer.json().catch(() => null);
  if (!answer.ok) throw new Fault(answer.status, json?.error);
  return json;
}

/** Who a credential is; nothing is kept of it. */
export const whoIs = (given) => ask(given, "console/api/viewer");

/** A call for the viewer. A credential that has ended signs out. `user` acts for a user of the agent. */
export async function call(path, options) {
  if (!held) throw new Fault(401, { message: "You are signed out." });
  try {
    return await ask(held, path, options);
  } catch (fault) {
    if (fault.status === 401) onSignedOut(fault);
    throw fault;
  }
}
