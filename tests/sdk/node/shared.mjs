// What the tests of the Node clients share. The harness sets the environment.
import OpenAI from 'openai';

export const facts = {
  baseURL: process.env.SDK_BASE_URL,
  token: process.env.SDK_TOKEN,
  agent: process.env.SDK_AGENT,
  directive: process.env.SDK_DIRECTIVE,
  memory: process.env.SDK_MEMORY,
  question: process.env.SDK_QUESTION,
  upstreamKey: process.env.SDK_UPSTREAM_KEY,
};

export const ask = (text) => [{ role: 'user', content: text }];

export const busTool = {
  type: 'function',
  function: {
    name: 'next_bus',
    description: 'When the next bus leaves a stop',
    parameters: { type: 'object', properties: { stop: { type: 'string' } }, required: ['stop'] },
  },
};

// A client that never retries, so that one call is one request.
export function makeClient({ token = facts.token, agent = facts.agent, baseURL = facts.baseURL, headers = {} } = {}) {
  return new OpenAI({ baseURL, apiKey: token, maxRetries: 0, timeout: 30_000, defaultHeaders: { 'X-IBEX-Agent-ID': agent, ...headers } });
}

// Runs `call` and returns its result with the requests that the provider received meanwhile.
export async function watch(call) {
  const everything = async () => (await fetch(`${process.env.SDK_UPSTREAM_URL}/received`)).json();
  const before = (await everything()).length;
  const result = await call();
  const requests = (await everything()).slice(before);
  return { result, requests, bodies: requests.map((request) => request.body && JSON.parse(request.body)) };
}
