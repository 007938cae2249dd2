// What clients do wrong, and what operators see: errors, cancellation, overload, metrics.
import assert from 'node:assert/strict';
import net from 'node:net';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { sleep } from './process.mjs';
import { bench, golden, parseMetrics } from './server.mjs';
import { startSubject } from './subject.mjs';

let server, openai;
before(async () => {
  server = await startSubject();
  openai = server.client();
});
after(() => server?.stop());

const story = { model: 'tiny-qwen3', prompt: golden.text, temperature: 0, ignore_eos: true };

async function refused(request, kind, status, pattern) {
  await assert.rejects(request, (error) => {
    assert.ok(error instanceof kind, `${error.constructor.name}: ${error.message}`);
    assert.equal(error.status, status);
    assert.match(error.message, pattern);
    assert.ok(error.type);
    return true;
  });
}

test('errors have the classes of the OpenAI client', async () => {
  const ask = (fields) => openai.completions.create({ ...story, max_tokens: 4, ...fields });
  await refused(ask({ model: 'gpt-4' }), OpenAI.NotFoundError, 404, /gpt-4/);
  await refused(ask({ prompt: Array(3000).fill(300) }), OpenAI.BadRequestError, 400, /2048/);
  await refused(ask({ max_tokens: 5000 }), OpenAI.BadRequestError, 400, /2048/);
  await refused(ask({ max_tokens: -1 }), OpenAI.BadRequestError, 400, /max_tokens/);
  await refused(ask({ temperature: -0.5 }), OpenAI.BadRequestError, 400, /temperature/);
  await refused(ask({ temperature: 'hot' }), OpenAI.BadRequestError, 400, /temperature/);
  await refused(ask({ top_p: 1.5 }), OpenAI.BadRequestError, 400, /top_p/);
  await refused(ask({ n: 0 }), OpenAI.BadRequestError, 400, /'n'/);
  await refused(ask({ n: 100_000 }), OpenAI.BadRequestError, 400, /'n'/);
  await refused(ask({ presence_penalty: 3 }), OpenAI.BadRequestError, 400, /presence_penalty/);
  await refused(ask({ logprobs: 1000 }), OpenAI.BadRequestError, 400, /logprobs/);
  await refused(ask({ prompt: [] }), OpenAI.BadRequestError, 400, /prompt/);
  await refused(ask({ prompt: '' }), OpenAI.BadRequestError, 400, /prompt/);
  await refused(ask({ prompt: [999_999] }), OpenAI.BadRequestError, 400, /999999/);
  await refused(ask({ stop: [''] }), OpenAI.BadRequestError, 400, /stop/);
  await refused(
    openai.chat.completions.create({ model: 'tiny-qwen3', messages: 'hello' }),
    OpenAI.BadRequestError, 400, /messages/,
  );
  await refused(
    openai.completions.create({ ...story, prompt: 3, stream: true }),
    OpenAI.BadRequestError, 400, /prompt/,
  );
});

test('what is no request at all is refused in the same shape', async () => {
  for (const body of ['{"prompt": "Once', '[]', '', 'null', '{"prompt": "\\ud800"}']) {
    const response = await server.post('/v1/completions', body);
    if (response.status === 200) assert.fail(`accepted ${body}`);
    assert.equal(response.status, 400, body);
    const { error } = await response.json();
    assert.equal(error.type, 'invalid_request_error');
    assert.ok(error.message.length > 0);
  }
  assert.equal((await fetch(`${server.url}/v1/nothing`)).status, 404);
  assert.equal((await fetch(`${server.url}/v1/completions`)).status, 405);
  assert.equal((await fetch(`${server.url}/health`)).status, 200);
});

test('a body over the limit gets 413 before it is read', async () => {
  // By hand: the announced gigabytes are never sent.
  const answer = await raw(
    'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{',
  );
  assert.match(answer, /^HTTP\/1\.1 413 /);
  assert.match(answer, /"error"/);
});

test('broken HTTP gets an answer or an end', async () => {
  for (const text of [
    '\x16\x03\x01\x02\x00garbage\r\n\r\n',
    'GET /health HTTP/9.9\r\n\r\n',
    'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n{}',
    `GET /health HTTP/1.1\r\nHost: x\r\nX-Long: ${'x'.repeat(200_000)}\r\n\r\n`,
  ]) {
    const answer = await raw(text);
    assert.ok(answer === '' || /^HTTP\/1\.1 [45]\d\d /.test(answer), answer.slice(0, 80));
  }
  assert.equal((await fetch(`${server.url}/health`)).status, 200);
});

// Everything that the server sends until it closes, or until two seconds of silence.
function raw(text) {
  const { port, hostname } = new URL(server.url);
  return new Promise((resolve) => {
    let answer = '';
    const socket = net.connect(Number(port), hostname, () => socket.write(text, 'latin1'));
    socket.setTimeout(2000, () => socket.destroy());
    socket.on('data', (data) => (answer += data));
    socket.on('error', () => {});
    socket.on('close', () => resolve(answer));
  });
}

test('a client that goes away frees its pages at once', async () => {
  const before = await server.idle();
  const controllers = [];
  const streams = Array.from({ length: 8 }, async () => {
    const controller = new AbortController();
    controllers.push(controller);
    const stream = await openai.completions.create(
      { ...story, max_tokens: 2000, stream: true },
      { signal: controller.signal },
    );
    let chunks = 0;
    for await (const _ of stream) {
      if (++chunks === 5) controller.abort();
    }
    return chunks;
  });
  const counts = await Promise.all(streams);
  const gone = Date.now();
  const now = await server.idle();
  // A step of the tiny model takes about a millisecond, and a cluster is asked for its reports of a
  // second; the bound leaves room for a busy machine.
  assert.ok(Date.now() - gone < 5000, `${Date.now() - gone} ms until idle`);
  assert.ok(counts.every((count) => count < 1500), `${counts}`);
  assert.ok(now['divisi:generation_tokens_total'] > 0);
  // By workers, or by a server: nobody goes on to the end of what nobody reads.
  const made = (metrics) =>
    metrics['divisi:role_decode_tokens_total'] ?? metrics['divisi:generation_tokens_total'];
  assert.ok(made(now) - made(before) < 8 * 1500, `${made(now) - made(before)} tokens`);
});

test('a client that goes away before its answer frees its pages too', async () => {
  await server.idle();
  const controller = new AbortController();
  const pending = openai.completions.create(
    { ...story, max_tokens: 2000 },
    { signal: controller.signal },
  );
  await sleep(50);
  controller.abort();
  await assert.rejects(pending, OpenAI.APIUserAbortError);
  await server.idle(5000);
});

test('metrics count requests and tokens', async () => {
  const before = await server.idle();
  await openai.completions.create({ ...story, max_tokens: 10 });
  const stream = await openai.completions.create({ ...story, max_tokens: 10, stream: true });
  for await (const _ of stream);
  const now = await server.idle();
  const grown = (name) => now[name] - (before[name] ?? 0);
  assert.equal(grown('divisi:generation_tokens_total'), 20);
  assert.equal(grown('divisi:prompt_tokens_total'), 2 * golden.n_tokens);
  assert.equal(grown('divisi:request_success_total'), 2);
  assert.equal(grown('divisi:time_to_first_token_seconds_count'), 2);
  assert.equal(grown('divisi:e2e_request_latency_seconds_count'), 2);
  assert.ok(grown('divisi:e2e_request_latency_seconds_sum') > 0);
});

test('metrics are the text format of Prometheus', async () => {
  const response = await fetch(`${server.url}/metrics`);
  assert.match(response.headers.get('content-type'), /^text\/plain; version=0\.0\.4/);
  const text = await response.text();
  parseMetrics(text);
  const types = [...text.matchAll(/^# TYPE (\S+) (counter|gauge|histogram)$/gm)];
  assert.ok(types.length >= 15);
  assert.equal(new Set(types.map((type) => type[1])).size, types.length);
});

test('a wrong key is an AuthenticationError', async () => {
  const locked = await startSubject(['--api-key', 'secret']);
  try {
    const ask = (apiKey) =>
      locked.client({ apiKey }).completions.create({ ...story, max_tokens: 2 });
    await refused(ask('wrong'), OpenAI.AuthenticationError, 401, /key/);
    assert.equal((await locked.post('/v1/completions', {})).status, 401);
    assert.ok((await ask('secret')).choices[0].text);
    assert.equal((await fetch(`${locked.url}/health`)).status, 200);
  } finally {
    await locked.stop();
  }
});

test('overload is refused with 429 and Retry-After, and passes', async () => {
  const small = await startSubject(['--max-num-seqs', '2', '--max-waiting', '3']);
  try {
    const request = { ...story, max_tokens: 400 };
    const responses = await Promise.all(
      Array.from({ length: 30 }, () => small.post('/v1/completions', request)),
    );
    const byStatus = {};
    for (const response of responses) (byStatus[response.status] ??= []).push(response);
    assert.deepEqual(Object.keys(byStatus).sort(), ['200', '429']);
    assert.ok(byStatus[200].length >= 3, `${byStatus[200].length} accepted`);
    for (const response of byStatus[429]) {
      assert.ok(Number(response.headers.get('retry-after')) >= 1);
      const { error } = await response.json();
      assert.equal(error.type, 'rate_limit_error');
    }
    for (const response of byStatus[200]) {
      assert.equal((await response.json()).usage.completion_tokens, 400);
    }
    await small.idle();
    // The client's own retries get through, by the server's Retry-After.
    const patient = small.client({ maxRetries: 8 });
    const texts = await Promise.all(
      Array.from({ length: 10 }, () =>
        patient.completions.create({ ...story, max_tokens: 64 }).then((c) => c.choices[0].text),
      ),
    );
    assert.ok(texts.every((text) => text === golden.greedy.text));
  } finally {
    await small.stop();
  }
});

test('SIGTERM lets running requests end, and the status is 0', async () => {
  const ending = await startSubject();
  const stream = await ending.client().completions.create({
    ...story, max_tokens: 1000, stream: true, stream_options: { include_usage: true },
  });
  let stopped, last;
  for await (const chunk of stream) {
    stopped ??= ending.stop();  // It runs.
    last = chunk;
  }
  assert.equal(last.usage.completion_tokens, 1000);
  assert.equal(await stopped, 0);
});

test('SIGTERM while large bodies of gone clients are at work, and the status is 0', async () => {
  // With freed memory overwritten, a thread that outlives what it uses does not get by.
  const stopped = await startSubject([], { env: { MALLOC_PERTURB_: '165' } });
  const { port } = new URL(stopped.url);
  const body = JSON.stringify({ prompt: 'Once upon a time '.repeat(120_000) });
  const head = `POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Length: ${body.length}\r\n\r\n`;
  for (let i = 0; i < 20; ++i) {
    const socket = net.connect(port, '127.0.0.1');
    socket.on('error', () => {});  // The server may end first.
    socket.write(head + body, () => socket.destroy());
  }
  await sleep(300);
  assert.equal(await stopped.stop(), 0);
});

test('bench serve measures the server', async () => {
  const report = await bench(server, [
    '--num-prompts', '20', '--max-concurrency', '4', '--input-len', '40', '--prefix-len', '24',
    '--output-len', '16', '--range-ratio', '0.5', '--goodput', 'ttft:60000', '--warmup', '2',
  ]);
  assert.equal(report.completed, 20);
  assert.equal(report.failed, 0);
  assert.equal(report.model_id, 'tiny-qwen3');
  assert.ok(report.total_output_tokens >= 20 * 8 && report.total_output_tokens <= 20 * 24);
  assert.ok(report.total_input_tokens >= 20 * 44 && report.total_input_tokens <= 20 * 84);
  assert.ok(report.mean_ttft_ms > 0 && report.mean_e2el_ms > report.mean_ttft_ms);
  assert.ok(report.max_concurrent_requests <= 4);
  assert.equal(report.request_goodput, report.request_throughput);
  const chat = await bench(server, ['--endpoint', 'chat', '--num-prompts', '5', '--output-len', '8']);
  assert.equal(chat.completed, 5);
  assert.equal(chat.total_output_tokens, 40);
});
