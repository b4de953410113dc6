// The Vercel AI SDK with its provider for OpenAI-compatible services.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, streamText } from 'ai';
import { facts, watch } from './shared.mjs';

const provider = createOpenAICompatible({
  name: 'ibex', baseURL: facts.baseURL, apiKey: facts.token, includeUsage: true, headers: { 'X-IBEX-Agent-ID': facts.agent },
});
const call = (prompt) => ({ model: provider('scripted-chat'), prompt, maxRetries: 0 });

test('generateText answers and carries the memory', async () => {
  const { result, bodies } = await watch(() => generateText(call(facts.question)));
  assert.equal(result.text, `You said: ${facts.question}`);
  assert.equal(result.usage.totalTokens, 18);
  assert.ok(JSON.stringify(bodies[0].messages.slice(0, -1)).includes(facts.memory));
});

test('streamText answers in pieces with usage', async () => {
  const result = streamText(call('one two three'));
  const pieces = [];
  for await (const piece of result.textStream) pieces.push(piece);
  assert.equal(pieces.join('').trim(), 'You said: one two three');
  assert.ok(pieces.length > 3);
  assert.equal((await result.usage).totalTokens, 18);
});
