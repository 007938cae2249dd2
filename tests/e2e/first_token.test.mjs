// What a first token may be: the last, a stop, an end, with log probabilities, after an echo, of
// several choices, streamed or not. On every placement, as on one server.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { golden, Server } from './server.mjs';
import { startSubject } from './subject.mjs';

let subject, reference;
before(async () => {
  [subject, reference] = await Promise.all([startSubject(), Server.start()]);
});
after(() => Promise.all([subject?.stop(), reference?.stop()]));

const kEnd = 2047;  // The model's end token.
const first = golden.greedy.ids[0];
const story = { model: 'tiny-qwen3', prompt: golden.ids, max_tokens: 5, temperature: 0 };
// The text of the first two tokens, for stop strings that lie in the first or across both.
const opening = golden.greedy.text.slice(0, 12);

// name: [fields beside `story`, what each choice has, tokens of output in all]
const cases = {
  'one output token': [{ max_tokens: 1 }, { finish_reason: 'length' }, 1],
  'one output token, drawn': [
    { max_tokens: 1, temperature: 1, seed: 3 }, { finish_reason: 'length' }, 1],
  'one output token with log probabilities': [
    { max_tokens: 1, logprobs: 5 }, { finish_reason: 'length' }, 1],
  'a stop string that the first token begins': [
    { stop: [opening.slice(0, 2)] }, { finish_reason: 'stop', text: '' }, 1],
  'a stop string across the first two tokens': [{ stop: [opening] }, { finish_reason: 'stop', text: '' }],
  'a stop token first': [{ stop_token_ids: [first] }, { finish_reason: 'stop' }, 1],
  'a stop token first, with log probabilities': [
    { stop_token_ids: [first], logprobs: 2 }, { finish_reason: 'stop' }, 1],
  'the end first': [
    { logit_bias: { [kEnd]: 100 } }, { finish_reason: 'stop', text: '' }, 1],
  'the end first, ignored': [
    { logit_bias: { [kEnd]: 100 }, ignore_eos: true }, { finish_reason: 'length' }, 5],
  'log probabilities': [{ logprobs: 3, ignore_eos: true }, { finish_reason: 'length' }, 5],
  'an echo': [{ echo: true, ignore_eos: true }, { finish_reason: 'length' }, 5],
  'an echo with log probabilities': [
    { echo: true, logprobs: 2, ignore_eos: true }, { finish_reason: 'length' }, 5],
  'an echo with log probabilities of one token': [
    { echo: true, logprobs: 2, max_tokens: 1 }, { finish_reason: 'length' }, 1],
  'an echo of the end first': [
    { echo: true, logprobs: 1, logit_bias: { [kEnd]: 100 } }, { finish_reason: 'stop' }, 1],
  'two choices': [
    { n: 2, temperature: 1, seed: 11, ignore_eos: true }, { finish_reason: 'length' }, 10],
  'two choices of one token': [
    { n: 2, temperature: 1, seed: 11, max_tokens: 1, logprobs: 1 }, { finish_reason: 'length' }, 2],
  'two choices, the end first': [
    { n: 2, temperature: 1, seed: 4, logit_bias: { [kEnd]: 100 } },
    { finish_reason: 'stop', text: '' }, 2],
  'two choices with an echo and log probabilities': [
    { n: 2, temperature: 1, seed: 12, echo: true, logprobs: 1, ignore_eos: true },
    { finish_reason: 'length' }, 10],
  'a prompt of one token': [{ prompt: [300], ignore_eos: true }, { finish_reason: 'length' }, 5],
  'a prompt of one page': [
    { prompt: Array.from({ length: 16 }, (_, i) => 300 + i), logprobs: 1, ignore_eos: true },
    { finish_reason: 'length' }, 5],
  'a prompt of one page and a token': [
    { prompt: Array.from({ length: 17 }, (_, i) => 300 + i), max_tokens: 1, echo: true,
      logprobs: 1 },
    { finish_reason: 'length' }, 1],
  'two prompts': [
    { prompt: [golden.ids, [300, 301, 302]], max_tokens: 1, logprobs: 1 },
    { finish_reason: 'length' }, 2],
};

// What an answer says, without its id and time.
const said = ({ choices, usage }) => ({
  choices: choices.map(({ index, text, finish_reason, logprobs }) =>
    ({ index, text, finish_reason, logprobs })),
  usage,
});

// A stream's pieces as one answer.
async function joined(stream) {
  const choices = [];
  let usage = null;
  for await (const chunk of stream) {
    usage = chunk.usage ?? usage;
    for (const piece of chunk.choices) {
      const whole = (choices[piece.index] ??=
        { index: piece.index, text: '', finish_reason: null, logprobs: null });
      assert.equal(whole.finish_reason, null, 'text after the finish reason');
      whole.text += piece.text;
      whole.finish_reason = piece.finish_reason;
      if (!piece.logprobs) continue;
      whole.logprobs ??= {};
      for (const [key, values] of Object.entries(piece.logprobs)) {
        whole.logprobs[key] = [...(whole.logprobs[key] ?? []), ...values];
      }
    }
  }
  return said({ choices, usage });
}

async function ask(of, fields, stream) {
  const request = { ...story, ...fields };
  if (!stream) return said(await of.client().completions.create(request));
  return joined(await of.client().completions.create(
    { ...request, stream: true, stream_options: { include_usage: true } }));
}

for (const stream of [false, true]) {
  describe(stream ? 'streamed' : 'whole', () => {
    for (const [name, [fields, every, tokens]] of Object.entries(cases)) {
      test(name, async () => {
        const got = await ask(subject, fields, stream);
        for (const choice of got.choices) {
          for (const [key, value] of Object.entries(every)) assert.equal(choice[key], value);
        }
        if (tokens) assert.equal(got.usage.completion_tokens, tokens);
        assert.deepEqual(got, await ask(reference, fields, stream));
      });
    }
  });
}

test('chat: the end first, and one token with log probabilities', async () => {
  const request = { model: 'tiny-qwen3', messages: [{ role: 'user', content: 'Hello' }],
    temperature: 0, logprobs: true, top_logprobs: 2 };
  for (const fields of [{ logit_bias: { [kEnd]: 100 } }, { max_completion_tokens: 1 }]) {
    const [got, expected] = await Promise.all([subject, reference].map((of) =>
      of.client().chat.completions.create({ ...request, ...fields })));
    assert.equal(got.usage.completion_tokens, 1);
    assert.deepEqual(got.choices, expected.choices);
    assert.deepEqual(got.usage, expected.usage);
  }
});

if (process.env.DIVISI_PLACEMENT) {
  test('with one output token nothing is handed over', async () => {
    const total = (status) => status.workers.reduce((sum, w) => sum + w.handovers, 0);
    const before = total(await subject.settled());
    for (let i = 0; i < 5; ++i) await ask(subject, { max_tokens: 1, prompt: [400 + i] }, false);
    assert.equal(total(await subject.settled()), before);
  });
}
