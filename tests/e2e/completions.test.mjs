// The official OpenAI client against a server or a cluster: what completions give.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { golden } from './server.mjs';
import { startSubject } from './subject.mjs';

let server, openai;
before(async () => {
  server = await startSubject();
  openai = server.client();
});
after(() => server?.stop());

// Greedy text is compared as whole; the golden file says that no step is a near tie.
const greedy = { temperature: 0, ignore_eos: true };
const story = { model: 'tiny-qwen3', prompt: golden.text, max_tokens: 64, ...greedy };

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

test('models.list names the model and its context', async () => {
  const page = await openai.models.list();
  assert.deepEqual(page.data.map((model) => model.id), ['tiny-qwen3']);
  assert.equal(page.data[0].object, 'model');
  assert.equal(page.data[0].max_model_len, 2048);
  assert.equal((await openai.models.retrieve('tiny-qwen3')).id, 'tiny-qwen3');
});

test('a greedy completion is the golden text', async () => {
  assert.equal(golden.greedy.first_near_tie, null);
  const completion = await openai.completions.create(story);
  assert.equal(completion.object, 'text_completion');
  assert.match(completion.id, /^cmpl-/);
  assert.equal(completion.model, 'tiny-qwen3');
  assert.equal(completion.choices.length, 1);
  assert.equal(completion.choices[0].text, golden.greedy.text);
  assert.equal(completion.choices[0].finish_reason, 'length');
  assert.equal(completion.choices[0].logprobs, null);
  assert.equal(completion.usage.prompt_tokens, golden.n_tokens);
  assert.equal(completion.usage.completion_tokens, 64);
  assert.equal(completion.usage.total_tokens, golden.n_tokens + 64);
});

test('a stream gives the same text in many pieces', async () => {
  const chunks = await collect(await openai.completions.create({ ...story, stream: true }));
  assert.ok(chunks.length >= 32, `${chunks.length} chunks`);
  assert.equal(chunks.map((chunk) => chunk.choices[0].text).join(''), golden.greedy.text);
  assert.equal(chunks.at(-1).choices[0].finish_reason, 'length');
  assert.ok(chunks.slice(0, -1).every((chunk) => chunk.choices[0].finish_reason === null));
  assert.equal(new Set(chunks.map((chunk) => chunk.id)).size, 1);
});

test('include_usage adds one last chunk without choices', async () => {
  const chunks = await collect(
    await openai.completions.create({
      ...story,
      stream: true,
      stream_options: { include_usage: true },
    }),
  );
  const last = chunks.pop();
  assert.deepEqual(last.choices, []);
  assert.equal(last.usage.completion_tokens, 64);
  assert.equal(last.usage.prompt_tokens, golden.n_tokens);
  assert.ok(chunks.every((chunk) => chunk.usage === null));
});

test('a prompt of token ids is the prompt of text', async () => {
  for (const prompt of [golden.ids, [golden.ids]]) {
    const completion = await openai.completions.create({ ...story, prompt });
    assert.equal(completion.choices[0].text, golden.greedy.text);
  }
});

test('many prompts in one request are answered in order', async () => {
  const prompts = ['The king', golden.text, 'A fox'];
  const together = await openai.completions.create({ ...story, prompt: prompts, max_tokens: 12 });
  assert.deepEqual(together.choices.map((choice) => choice.index), [0, 1, 2]);
  for (const [index, prompt] of prompts.entries()) {
    const alone = await openai.completions.create({ ...story, prompt, max_tokens: 12 });
    assert.equal(together.choices[index].text, alone.choices[0].text);
  }
});

test('echo repeats the prompt before the text', async () => {
  const completion = await openai.completions.create({ ...story, echo: true });
  assert.equal(completion.choices[0].text, golden.text + golden.greedy.text);
});

test('logprobs of a completion agree with the golden logits', async () => {
  const completion = await openai.completions.create({ ...story, max_tokens: 3, logprobs: 5 });
  const logprobs = completion.choices[0].logprobs;
  assert.equal(logprobs.tokens.join(''), completion.choices[0].text);
  assert.equal(logprobs.token_logprobs.length, 3);
  assert.deepEqual(logprobs.text_offset.length, 3);
  const expected = golden.top20[0][1] - golden.logsumexp;
  // The server computes in BF16; the golden in F32. One BF16 step at such logits is 2^-4.
  assert.ok(Math.abs(logprobs.token_logprobs[0] - expected) < 0.1, `${logprobs.token_logprobs[0]}`);
  for (const [i, top] of logprobs.top_logprobs.entries()) {
    assert.ok(Object.keys(top).length >= 5);
    assert.equal(Math.max(...Object.values(top)), logprobs.token_logprobs[i]);
  }
});

test('echo with logprobs scores the prompt', async () => {
  const completion = await openai.completions.create({
    ...story,
    max_tokens: 1,
    echo: true,
    logprobs: 1,
  });
  const logprobs = completion.choices[0].logprobs;
  assert.equal(logprobs.tokens.length, golden.n_tokens + 1);
  assert.equal(logprobs.token_logprobs[0], null);
  assert.ok(logprobs.token_logprobs.slice(1).every((value) => value <= 0));
});

test('chat: plain, with usage', async () => {
  const chat = await openai.chat.completions.create({
    model: 'tiny-qwen3',
    messages: [{ role: 'user', content: 'Tell me a story about a king.' }],
    max_completion_tokens: 20,
    ...greedy,
  });
  assert.equal(chat.object, 'chat.completion');
  assert.equal(chat.choices[0].message.role, 'assistant');
  assert.ok(chat.choices[0].message.content.length > 20);
  assert.equal(chat.choices[0].finish_reason, 'length');
  assert.equal(chat.usage.completion_tokens, 20);
});

test('chat: a stream opens with the role and gives the same text', async () => {
  const request = {
    model: 'tiny-qwen3',
    messages: [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: [{ type: 'text', text: 'Tell me a story about a fox.' }] },
    ],
    max_completion_tokens: 24,
    ...greedy,
  };
  const whole = await openai.chat.completions.create(request);
  const chunks = await collect(await openai.chat.completions.create({ ...request, stream: true }));
  assert.equal(chunks[0].choices[0].delta.role, 'assistant');
  const text = chunks.map((chunk) => chunk.choices[0].delta.content ?? '').join('');
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(chunks.at(-1).choices[0].finish_reason, 'length');
});

test('chat: the stream helper of the client', async () => {
  const stream = openai.chat.completions.stream({
    model: 'tiny-qwen3',
    messages: [{ role: 'user', content: 'Hello' }],
    max_completion_tokens: 8,
    ...greedy,
  });
  let pieces = '';
  stream.on('content', (delta) => (pieces += delta));
  assert.equal(await stream.finalContent(), pieces);
});

test('chat: the rendered template is the prompt', async () => {
  const messages = [{ role: 'user', content: 'Hello' }];
  const chat = await openai.chat.completions.create({
    model: 'tiny-qwen3', messages, max_completion_tokens: 10, ...greedy,
  });
  const prompt = '<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n';
  const plain = await openai.completions.create({ ...story, prompt, max_tokens: 10 });
  assert.equal(chat.choices[0].message.content, plain.choices[0].text);
  assert.equal(chat.usage.prompt_tokens, plain.usage.prompt_tokens);
});

test('chat: logprobs and top_logprobs', async () => {
  const chat = await openai.chat.completions.create({
    model: 'tiny-qwen3',
    messages: [{ role: 'user', content: 'Hello' }],
    max_completion_tokens: 4,
    logprobs: true,
    top_logprobs: 3,
    ...greedy,
  });
  const content = chat.choices[0].logprobs.content;
  assert.equal(content.length, 4);
  for (const token of content) {
    assert.equal(token.top_logprobs.length, 3);
    assert.equal(token.logprob, token.top_logprobs[0].logprob);
    assert.ok(token.bytes.every((byte) => byte >= 0 && byte < 256));
  }
  const bytes = Buffer.from(content.flatMap((token) => token.bytes));
  assert.equal(bytes.toString('utf8'), chat.choices[0].message.content);
});

test('n gives different choices, the first as with n = 1', async () => {
  const request = { ...story, temperature: 1, seed: 7, max_tokens: 24 };
  const two = await openai.completions.create({ ...request, n: 2 });
  assert.deepEqual(two.choices.map((choice) => choice.index), [0, 1]);
  assert.notEqual(two.choices[0].text, two.choices[1].text);
  assert.equal(two.usage.completion_tokens, 48);
  const one = await openai.completions.create(request);
  assert.equal(two.choices[0].text, one.choices[0].text);
  const chunks = await collect(await openai.completions.create({ ...request, n: 2, stream: true }));
  for (const index of [0, 1]) {
    const text = chunks
      .filter((chunk) => chunk.choices[0].index === index)
      .map((chunk) => chunk.choices[0].text)
      .join('');
    assert.equal(text, two.choices[index].text);
  }
});

test('one seed gives one text, also among other requests; another seed another', async () => {
  const request = { ...story, temperature: 1, top_k: 0, top_p: 1, max_tokens: 32 };
  const texts = await Promise.all(
    [5, 5, 6, 5].map(async (seed) => {
      const completion = await openai.completions.create({ ...request, seed });
      return completion.choices[0].text;
    }),
  );
  assert.equal(texts[0], texts[1]);
  assert.equal(texts[0], texts[3]);
  assert.notEqual(texts[0], texts[2]);
});

test('without a seed, texts differ', async () => {
  const request = { ...story, temperature: 1, max_tokens: 32 };
  const texts = await Promise.all(
    [1, 2].map(async () => (await openai.completions.create(request)).choices[0].text),
  );
  assert.notEqual(texts[0], texts[1]);
});

test('stop strings end the text before themselves, streamed or not', async () => {
  const stop = [' a daughter', 'never there'];
  const expected = golden.greedy.text.split(stop[0])[0];
  const whole = await openai.completions.create({ ...story, stop });
  assert.equal(whole.choices[0].text, expected);
  assert.equal(whole.choices[0].finish_reason, 'stop');
  const chunks = await collect(await openai.completions.create({ ...story, stop, stream: true }));
  assert.equal(chunks.map((chunk) => chunk.choices[0].text).join(''), expected);
  assert.equal(chunks.at(-1).choices[0].finish_reason, 'stop');
});

test('stop token ids end the text', async () => {
  const ids = golden.greedy.ids;
  const at = 7;
  assert.ok(!ids.slice(0, at).includes(ids[at]));
  const completion = await openai.completions.create({ ...story, stop_token_ids: [ids[at]] });
  assert.equal(completion.choices[0].finish_reason, 'stop');
  assert.ok(golden.greedy.text.startsWith(completion.choices[0].text));
  assert.equal(completion.usage.completion_tokens, at + 1);
});

test('an end token ends the text unless it is ignored', async () => {
  // Bias makes the end token the best from the first step on.
  const request = { ...story, max_tokens: 5, logit_bias: { 2047: 100 } };
  const ended = await openai.completions.create({ ...request, ignore_eos: false });
  assert.equal(ended.choices[0].finish_reason, 'stop');
  assert.equal(ended.choices[0].text, '');
  const ignored = await openai.completions.create(request);
  assert.equal(ignored.choices[0].finish_reason, 'length');
  assert.equal(ignored.usage.completion_tokens, 5);
});

test('penalties change the text and min_p, top_k, top_p are taken', async () => {
  const plain = await openai.completions.create(story);
  const penalised = await openai.completions.create({ ...story, repetition_penalty: 1.5 });
  assert.notEqual(plain.choices[0].text, penalised.choices[0].text);
  const presence = await openai.completions.create({ ...story, presence_penalty: 2 });
  assert.notEqual(plain.choices[0].text, presence.choices[0].text);
  const narrow = await openai.completions.create({
    ...story, temperature: 1, top_k: 1, top_p: 0.5, min_p: 0.1,
  });
  assert.equal(narrow.choices[0].text, plain.choices[0].text);
});

test('a stream of text outside ASCII holds whole characters', async () => {
  const chunks = await collect(
    await openai.completions.create({
      ...story,
      prompt: 'é漢😀 é漢😀 é漢😀',
      temperature: 1.5,
      seed: 3,
      max_tokens: 64,
      top_k: 0,
      top_p: 1,
      logit_bias: Object.fromEntries([...Array(128).keys()].map((i) => [i + 128, 8])),
      stream: true,
    }),
  );
  const whole = chunks.map((chunk) => chunk.choices[0].text).join('');
  for (const chunk of chunks) {
    assert.ok(!/[\ud800-\udbff]$/.test(chunk.choices[0].text));
  }
  assert.ok(whole.length > 0);
});

test('tokenize and detokenize are inverse', async () => {
  const text = 'Once upon a time, é漢😀 <|im_end|>\n  "end"';
  const tokens = await (await server.post('/tokenize', { model: 'tiny-qwen3', prompt: text })).json();
  assert.equal(tokens.count, tokens.tokens.length);
  assert.equal(tokens.max_model_len, 2048);
  const back = await (
    await server.post('/detokenize', { model: 'tiny-qwen3', tokens: tokens.tokens })
  ).json();
  assert.equal(back.prompt, text);
  const short = await (await server.post('/tokenize', { prompt: golden.text })).json();
  assert.deepEqual(short.tokens, golden.ids);
});
