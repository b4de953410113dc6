// The official OpenAI SDK for Node: what it sends arrives, what comes back it can read.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';
import { ask, busTool, facts, makeClient, watch } from './shared.mjs';

const client = makeClient();
const text = (chunks) => chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join('');

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

// The error of the wanted class, with what every typed error of the SDK carries.
async function refusal(call, type, status, code, kind) {
  const error = await call().then(() => assert.fail('no error'), (caught) => caught);
  assert.ok(error instanceof type, String(error));
  assert.equal(error.status, status);
  assert.equal(error.code, code);
  assert.equal(error.type, kind);
  assert.ok(error.requestID);
  assert.equal(error.requestID, error.headers.get('x-request-id'));
  return error;
}

test('chat answers with content and usage', async () => {
  const answer = await client.chat.completions.create({ model: 'scripted-chat', messages: ask('Good morning') });
  assert.equal(answer.choices[0].message.content, 'You said: Good morning');
  assert.equal(answer.usage.total_tokens, 18);
  assert.ok(answer._request_id);
});

test('stored memory and directive reach the provider, under the key of the provider alone', async () => {
  const { requests, bodies } = await watch(() => client.chat.completions.create({ model: 'scripted-chat', messages: ask(facts.question) }));
  const sent = bodies[0].messages;
  assert.ok(sent.at(-1).content.includes(facts.question));
  const injected = JSON.stringify(sent.slice(0, -1));
  assert.ok(injected.includes(facts.memory));
  assert.ok(injected.includes(facts.directive));
  assert.equal(requests[0].headers.authorization, `Bearer ${facts.upstreamKey}`);
  assert.ok(!JSON.stringify(requests).includes(facts.token));
});

test('headers tell of request, context and rate', async () => {
  const { response } = await client.chat.completions.create({ model: 'scripted-chat', messages: ask(facts.question) }).withResponse();
  assert.ok(response.headers.get('x-request-id'));
  assert.equal(response.headers.get('x-ibex-context-status'), 'full');
  assert.equal(response.headers.get('x-ibex-memories-injected'), '1');
  assert.ok(Number(response.headers.get('x-ratelimit-remaining')) < Number(response.headers.get('x-ratelimit-limit')));
});

test('skip-memory header keeps the memory out', async () => {
  const skipping = makeClient({ headers: { 'X-IBEX-Skip-Memory': '1' } });
  const { result, bodies } = await watch(() => skipping.chat.completions.create({ model: 'scripted-chat', messages: ask(facts.question) }).withResponse());
  assert.equal(result.response.headers.get('x-ibex-context-status'), 'skipped');
  assert.ok(!JSON.stringify(bodies[0].messages).includes(facts.memory));
});

test('stream arrives in pieces and ends with the usage asked for', async () => {
  const chunks = await collect(await client.chat.completions.create({
    model: 'scripted-chat', messages: ask('one two three'), stream: true, stream_options: { include_usage: true },
  }));
  assert.equal(text(chunks).trim(), 'You said: one two three');
  assert.ok(chunks.length > 5);
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.equal(chunks.at(-1).usage.total_tokens, 18);
});

test('stream shows no usage event that nobody asked for', async () => {
  const chunks = await collect(await client.chat.completions.create({ model: 'scripted-chat', messages: ask('one two three'), stream: true }));
  assert.ok(chunks.every((chunk) => chunk.choices.length === 1 && !chunk.usage));
});

test('the tool loop of the SDK runs to its end', async () => {
  const tool = { type: 'function', function: { ...busTool.function, parse: JSON.parse, function: ({ stop }) => `${stop} at 14:05` } };
  const { result, bodies } = await watch(() =>
    client.chat.completions.runTools({ model: 'scripted-tools', messages: ask('Next bus?'), tools: [tool] }).finalContent(),
  );
  assert.equal(result, 'The tool says: Harlow Mill at 14:05');
  assert.deepEqual(bodies[1].messages.slice(-3).map((message) => message.role), ['user', 'assistant', 'tool']);
});

test('image parts arrive as they were sent', async () => {
  const content = [
    { type: 'text', text: 'What is this?' },
    { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=', detail: 'low' } },
  ];
  const { bodies } = await watch(() => client.chat.completions.create({ model: 'scripted-chat', messages: [{ role: 'user', content }] }));
  assert.deepEqual(bodies[0].messages.at(-1), { role: 'user', content });
});

test('wrong key is an authentication error', async () => {
  const wrong = makeClient({ token: 'ibex_pat_0192f0c1-2d3e-7a4b-8c5d-6e7f8091a2b3_wrong' });
  const call = () => wrong.chat.completions.create({ model: 'scripted-chat', messages: ask('hi') });
  await refusal(call, OpenAI.AuthenticationError, 401, 'INVALID_TOKEN', 'authentication_error');
});

test('foreign agent is a permission error', async () => {
  const foreign = makeClient({ agent: '0192f0c1-2d3e-7a4b-8c5d-6e7f8091a2b3' });
  const call = () => foreign.chat.completions.create({ model: 'scripted-chat', messages: ask('hi') });
  await refusal(call, OpenAI.PermissionDeniedError, 403, 'AGENT_NOT_AUTHORIZED', 'permission_error');
});

test('invalid field is a bad request that names it', async () => {
  const call = () => client.chat.completions.create({ model: 'scripted-chat', messages: [] });
  const error = await refusal(call, OpenAI.BadRequestError, 400, 'VALIDATION_ERROR', 'invalid_request_error');
  assert.equal(error.param, 'messages');
});

test('rate limit is its own error with whole seconds to wait', async () => {
  const limited = makeClient({
    token: process.env.SDK_LIMITED_TOKEN, agent: process.env.SDK_LIMITED_AGENT, baseURL: process.env.SDK_LIMITED_BASE_URL,
  });
  const create = () => limited.chat.completions.create({ model: 'scripted-chat', messages: ask('hi') });
  await create();
  await create();
  const error = await refusal(create, OpenAI.RateLimitError, 429, 'RATE_LIMITED', 'rate_limit_exceeded');
  assert.match(error.headers.get('retry-after'), /^[1-9][0-9]*$/);
});

test('unknown model of the provider is not found', async () => {
  const call = () => client.chat.completions.create({ model: 'scripted-missing', messages: ask('hi') });
  await refusal(call, OpenAI.NotFoundError, 404, 'model_not_found', 'invalid_request_error');
});

for (const model of ['scripted-error-event', 'scripted-cut']) {
  test(`failure inside a stream raises after what came before (${model})`, async () => {
    const chunks = [];
    const read = async () => {
      for await (const chunk of await client.chat.completions.create({ model, messages: ask('one two three'), stream: true })) chunks.push(chunk);
    };
    const error = await read().then(() => assert.fail('no error'), (caught) => caught);
    assert.ok(error instanceof OpenAI.APIError, String(error));
    assert.ok(error.code);
    assert.equal(text(chunks), 'You ');
  });
}

test('models are listed and retrieved', async () => {
  const names = [];
  for await (const model of client.models.list()) names.push(model.id);
  assert.ok(names.includes('scripted-chat'));
  assert.equal((await client.models.retrieve('scripted-chat')).owned_by, 'harlow-labs');
});

test('embeddings come back as numbers', async () => {
  const { result, bodies } = await watch(() => client.embeddings.create({ model: 'scripted-embedding', input: 'one' }));
  assert.deepEqual([...result.data[0].embedding], [0.5, -0.25, 1.0]);
  assert.equal(bodies[0].encoding_format, 'base64');
});

test('plain completions pass through', async () => {
  const answer = await client.completions.create({ model: 'scripted-chat', prompt: 'Once' });
  assert.equal(answer.choices[0].text, 'After that: Once');
});
