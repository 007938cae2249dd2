// Clients that hold a cluster to its word: a stream ends in exactly one way, a finish reason and
// [DONE], or one error event; else an HTTP error comes, with a message.
import assert from 'node:assert/strict';
import http from 'node:http';

// How a stream ended: kind is 'finished', 'error' (an event), 'http' (a status), 'left' (the client
// did) or 'cut' (the connection ended before either: right only where the gateway itself died).
export class Stream {
  // body: of /v1/completions.
  constructor(surface, body) {
    this.body = body;
    this.text = '';
    this.pieces = 0;
    this.begun = Date.now();
    const { hostname, port } = new URL(surface.url);
    this.request = http.request({ hostname, port, path: '/v1/completions', method: 'POST',
      agent: false, headers: { 'content-type': 'application/json' } });
    this.outcome = new Promise((resolve) => this.#follow(resolve));
    this.request.end(JSON.stringify({ model: 'tiny-qwen3', ...body, stream: true }));
  }

  leave() {
    this.left = true;
    this.request.destroy();
  }

  // Every promise of `outcome` resolves; a broken promise of the server is an outcome 'wrong'.
  #follow(resolve) {
    const end = (kind, more = {}) => {
      if (this.over) return;
      this.over = true;
      this.endedAt = Date.now();
      resolve({ kind, pieces: this.pieces, text: this.text, endedAt: this.endedAt, ...more });
    };
    this.request.on('error', () => end(this.left ? 'left' : 'cut'));
    this.request.on('response', (response) => {
      let pending = '';
      response.setEncoding('utf8');
      response.on('error', () => {});
      response.on('data', (data) => {
        pending += data;
        if (response.statusCode !== 200) return;
        const events = pending.split('\n\n');
        pending = events.pop();
        for (const event of events) this.#take(event);
      });
      response.on('close', () => {
        if (this.left) return end('left');
        if (response.statusCode !== 200) {
          return end('http', { status: response.statusCode, error: pending,
            retryAfter: response.headers['retry-after'] });
        }
        if (this.wrong) return end('wrong', { why: this.wrong });
        if (this.error) return end('error', { error: this.error });
        if (this.finish && this.done) return end('finished', { finish: this.finish });
        end('cut');
      });
    });
  }

  #take(event) {
    const data = event.replace(/^data: /, '');
    if (this.done || this.error) return this.#fault(`after its end: ${event}`);
    if (data === '[DONE]') {
      if (!this.finish) this.#fault('[DONE] without a finish reason');
      this.done = true;
      return;
    }
    const chunk = JSON.parse(data);
    if (chunk.error) {
      if (this.finish) this.#fault('an error after a finish reason');
      if (!chunk.error.message) this.#fault('an error without a message');
      this.error = chunk.error;
      return;
    }
    const choice = chunk.choices[0];
    if (this.finish) return this.#fault(`after the finish reason: ${data}`);
    this.text += choice.text;
    ++this.pieces;
    this.firstAt ??= Date.now();
    this.finish = choice.finish_reason;
  }

  #fault(why) {
    this.wrong ??= why;
  }
}

// Prompts of their own, a few pages in common; greedy and seeded.
export function longRequests(count, { tokens = 1500, maxTokens = 100, salt = 0 } = {}) {
  return Array.from({ length: count }, (_, i) => ({
    prompt: Array.from({ length: tokens },
      (_, k) => 300 + ((k * 7 + (k > 40 ? (i + 1) * 13 + salt * 101 : 0)) % 1500)),
    max_tokens: maxTokens,
    ignore_eos: true,
    ...(i % 2 === 0 ? { temperature: 0 } : { temperature: 1, seed: i }),
  }));
}

// All outcomes, within limitMs.
export async function outcomes(streams, limitMs) {
  let timer;
  const late = new Promise((resolve) => {
    timer = setTimeout(() => resolve('late'), limitMs);
  });
  const all = await Promise.race([Promise.all(streams.map((s) => s.outcome)), late]);
  clearTimeout(timer);
  if (all !== 'late') return all;
  const open = streams.filter((s) => !s.over);
  for (const stream of open) stream.leave();
  assert.fail(`${open.length} of ${streams.length} requests have not ended after ${limitMs} ms; ` +
    `pieces ${open.map((s) => s.pieces)}`);
}

// {kind: how many}
export function counted(all) {
  const counts = {};
  for (const { kind, status } of all) {
    const key = kind === 'http' ? `http ${status}` : kind;
    counts[key] = (counts[key] ?? 0) + 1;
  }
  return counts;
}
