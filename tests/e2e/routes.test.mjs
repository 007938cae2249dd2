// Which worker gets a request, and what is said of it: divisi explain-route and the log line.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, describe, test } from 'node:test';
import { PartCluster } from './cluster.mjs';
import { binary, root, sleep } from './process.mjs';

const kLimit = ['--max-model-len', '2048'];
const prompt = (first, length) =>
  Array.from({ length }, (_, i) => 5 + ((first * 131 + i * 7) % 1900));

// A command to its end: its status, and what it said.
function ran(...args) {
  return new Promise((resolve) => {
    execFile(binary, args, { cwd: root, timeout: 60_000 }, (error, stdout, stderr) =>
      resolve({ code: error ? error.code : 0, stdout, stderr }));
  });
}

const explain = (cluster, ...words) =>
  ran('explain-route', '--gateway', `127.0.0.1:${cluster.control}`, ...words);

async function choices(cluster, ...words) {
  const { code, stdout, stderr } = await explain(cluster, ...words, '--json');
  assert.equal(code, 0, stderr);
  return JSON.parse(stdout).routes;
}

async function complete(cluster, tokens, id, more = {}) {
  const response = await cluster.post('/v1/completions',
    { model: 'tiny-qwen3', prompt: tokens, max_tokens: 2, temperature: 0, ignore_eos: true, ...more },
    { 'X-Request-Id': id });
  const answer = await response.json();
  assert.equal(response.status, 200, JSON.stringify(answer));
  return { text: answer.choices[0].text,
    cached: answer.usage.prompt_tokens_details.cached_tokens };
}

describe('explain-route', () => {
  let cluster;
  before(async () => {
    cluster = await PartCluster.start(['replica', 'replica'],
      { args: kLimit, gatewayArgs: [...kLimit, '--log-json'] });
  });
  after(() => cluster.stop());

  test('says why the last choices and a request went where they did', async () => {
    assert.equal((await explain(cluster)).stdout, 'no choices yet\n');
    await complete(cluster, prompt(1, 300), 'first-one');
    await complete(cluster, prompt(2, 200), 'second-one');
    const [last] = await choices(cluster);
    assert.equal(last.request, 'second-one');
    assert.equal(last.prompt_tokens, 200);
    assert.equal(last.candidates.length, 2);
    for (const c of last.candidates) {
      const t = Math.max(c.queue_seconds, c.ready_seconds) + c.compute_seconds;
      assert.ok(Math.abs(c.ttft_seconds - t) < 1e-9);
      assert.ok(c.compute_seconds > 0);
    }
    assert.deepEqual(last.candidates.map((c) => c.chosen), [true, false]);
    const [first] = await choices(cluster, '--request', 'first-one');
    assert.equal(first.prompt_tokens, 300);
    const { stdout } = await explain(cluster, '--last', '2');
    assert.match(stdout, /^request second-one, attempt 1, .* 200 tokens; policy expected-ttft/);
    assert.match(stdout, /\nrequest first-one.*\n.*queue Q.*\n\* replica-\d .*computed\n  replica-/);
  });

  test('what can not be is refused, with the remedy', async () => {
    for (const [words, fault] of [
      [['--request', 'nobody'], /'nobody' is not among the last 256 choices/],
      [['--prompt-tokens', '900', '--held', 'ram=5@replica-1'], /tiers are device, host, disk/],
      [['--prompt-tokens', '900', '--held', 'host=5@replica-9'], /replica-9/],
      [['--held', 'host=5@replica-1'], /--prompt-tokens/],
      [['--last', '0'], /--last/],
    ]) {
      const { code, stderr } = await explain(cluster, ...words);
      assert.notEqual(code, 0, words.join(' '));
      assert.match(stderr, fault);
    }
  });

  test('says where a prompt would go', async () => {
    const [route] = await choices(cluster, '--prompt-tokens', '1000', '--held',
      'device=960@replica-2');
    assert.equal(route.candidates[0].worker, 'replica-2');
    assert.equal(route.candidates[0].device_tokens, 960);
    assert.equal(route.candidates[1].cached_tokens, 0);
  });

  test('the line that logs a request says how it was chosen', async () => {
    await complete(cluster, prompt(3, 100), 'logged-one');
    const line = (await cluster.get('gateway').said(/^.*logged-one.*$/m))[0];
    assert.match(JSON.parse(line).route,
      /^whole replica-\d ttft [\d.]+ ms \(queue [\d.]+, ready [\d.]+, compute [\d.]+\)$/);
  });
});

describe('prefixes', () => {
  const kLength = 900;
  const kShared = 896;  // Of its tokens, in whole pages
  let cluster;
  before(async () => {
    cluster = await PartCluster.start(['replica', 'replica'],
      { args: kLimit, gatewayArgs: [...kLimit, '--log-json', '--log-level', 'debug'] });
  });
  after(() => cluster.stop());

  // Until the gateway knows of so many pages.
  async function known(pages) {
    for (let i = 0; i < 400; i++) {
      const { workers } = await cluster.status();
      if (workers.reduce((sum, w) => sum + (w.kv?.pages.device ?? 0), 0) >= pages) return;
      await sleep(50);
    }
    assert.fail(`${pages} pages are not known:\n${cluster.log}`);
  }
  const prefilled = async () => (await cluster.prompts()).computed;

  // Prompts of one prefix at once, which differ from those of other rounds; each one's candidates.
  async function many(round) {
    await Promise.all(Array.from({ length: 8 }, (_, i) =>
      complete(cluster, [...prompt(0, kLength), ...prompt(50 + 8 * round + i, 800)],
        `many-${round}-${i}`)));
    return (await choices(cluster, '--last', '8')).map((route) => route.candidates);
  }

  test('the next turn goes to its prefix, unless the worker there is busy', async () => {
    await complete(cluster, prompt(0, kLength), 'turn-1');
    await known(kShared / 16);
    const [first] = await choices(cluster, '--request', 'turn-1');
    const { worker } = first.candidates[0];
    const again = await complete(cluster, [...prompt(0, kLength), ...prompt(90, 100)], 'turn-2');
    assert.equal(again.cached, kShared);
    const [second] = await choices(cluster, '--request', 'turn-2');
    assert.equal(second.candidates[0].worker, worker);
    assert.equal(second.candidates[0].device_tokens, kShared);
    assert.equal(second.candidates[1].cached_tokens, 0);
    const line = (await cluster.get('gateway').said(/^.*turn-2.*"route".*$/m))[0];
    assert.match(JSON.parse(line).route, new RegExp(`^whole ${worker} ttft [^;]*; ${kShared} ` +
      `tokens cached: ${kShared} device(; odds [^;)]*)?\\); whole replica-\\d ttft [^;]*\\)$`));
    // So many at once that waiting for their turn takes longer than computing all of a prompt; if
    // they come at once, for which a busy machine takes some rounds.
    const workers = new Set();
    for (let round = 0; workers.size < 2; round++) {
      assert.ok(round < 5, `all went to ${[...workers]}`);
      workers.clear();
      const all = await many(round);
      for (const [chosen, other] of all) {
        assert.ok(chosen.cost_seconds <= other.cost_seconds * 1.1, JSON.stringify(all));
        workers.add(chosen.worker);
      }
    }
  });

  test('equal prompts at once are computed once where they go', async () => {
    const before = await prefilled();
    const answers = await Promise.all(Array.from({ length: 8 }, (_, i) =>
      complete(cluster, prompt(7, kLength), `equal-${i}`)));
    assert.equal(new Set(answers.map(({ text }) => text)).size, 1);
    const went = new Set((await choices(cluster, '--last', '8')).map((r) => r.candidates[0].worker));
    const most = went.size * kLength + 8 * (kLength - kShared);
    const computed = await prefilled() - before;
    assert.ok(computed <= most, `${computed} tokens were computed on ${[...went]}`);
  });
});
