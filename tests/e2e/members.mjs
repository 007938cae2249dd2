// Clusters of several gateways, with etcd and certificates, for the tests.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { divisi, freePort, kStartMs, Process, sleep } from './process.mjs';
import { Surface } from './server.mjs';

const kModel = 'models/tiny-qwen3';
// Debian's package has it there; it is no command for every user.
const kEtcd = ['/usr/bin/etcd', '/usr/local/bin/etcd', '/usr/sbin/etcd'].find(existsSync);
export const noEtcd = kEtcd ? false : 'etcd is not installed: scripts/setup.sh test';

const folders = [];
const etcds = new Set();
process.on('exit', () => {
  for (const child of etcds) child.kill('SIGKILL');
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

export function scratch() {
  folders.push(mkdtempSync(path.join(tmpdir(), 'divisi-members-')));
  return folders.at(-1);
}

// One etcd of its own, which may be stopped, killed and started again with what it had.
export class Etcd {
  static async start() {
    const etcd = new Etcd();
    etcd.folder = scratch();
    [etcd.port, etcd.peerPort] = [await freePort(), await freePort()];
    etcd.url = `http://127.0.0.1:${etcd.port}`;
    await etcd.run();
    return etcd;
  }

  async run() {
    const peer = `http://127.0.0.1:${this.peerPort}`;
    this.child = spawn(kEtcd, ['--data-dir', this.folder, '--listen-client-urls', this.url,
      '--advertise-client-urls', this.url, '--listen-peer-urls', peer,
      '--initial-advertise-peer-urls', peer, '--initial-cluster', `default=${peer}`],
    { stdio: 'ignore' });
    etcds.add(this.child);
    for (const begun = Date.now(); Date.now() - begun < kStartMs; await sleep(50)) {
      try {
        if ((await this.keys()) !== undefined) return;
      } catch {
        // Not there yet.
      }
    }
    throw new Error('etcd did not start');
  }

  // All keys of a cluster, without its prefix.
  async keys(cluster = 'default') {
    const prefix = `/divisi/${cluster}/`;
    const base64 = (text) => Buffer.from(text).toString('base64');
    const answer = await fetch(`${this.url}/v3/kv/range`, { method: 'POST',
      body: JSON.stringify({ key: base64(prefix), range_end: base64(`/divisi/${cluster}0`) }),
      signal: AbortSignal.timeout(2000) });
    return ((await answer.json()).kvs ?? []).map(
      (kv) => Buffer.from(kv.key, 'base64').toString().slice(prefix.length));
  }

  signal(name) {
    this.child.kill(name);
  }

  async end() {
    const ended = once(this.child, 'close');
    this.child.kill('SIGKILL');
    await ended;
    etcds.delete(this.child);
  }
}

export class Gateway extends Surface {
  static async start(args, controlPort = 0) {
    const gateway = new Gateway();
    gateway.process = new Process(['gateway', '--model', kModel, '--port', '0', '--control-port',
      `${controlPort}`, '--disaggregate-from', '0', '--drain-seconds', '5', ...args]);
    gateway.control = Number((await gateway.process.said(/control on \S+:(\d+)/))[1]);
    gateway.url = (await gateway.process.said(/listening on (http:\/\/\S+)/))[1];
    return gateway;
  }

  get log() {
    return this.process.log;
  }

  async status(args = []) {
    return JSON.parse(await divisi('cluster', 'status', '--format', 'json', '--gateway',
      `127.0.0.1:${this.control}`, ...args));
  }

  // Until `wanted` says so of the status.
  async until(wanted, { limitMs = 30_000, args = [] } = {}) {
    let last;
    for (const begun = Date.now(); Date.now() - begun < limitMs; await sleep(50)) {
      try {
        last = await this.status(args);
        if (wanted(last)) return last;
      } catch (error) {
        last = String(error);
      }
    }
    throw new Error(`it never came: ${JSON.stringify(last)}\n${this.log}`);
  }

  ready(count, options = {}) {
    return this.until((s) => s.workers.filter((w) => w.connected).length >= count, options);
  }

  stop() {
    return this.process.stop(20_000);
  }
}

// Connections to `port` by way of another one, which may be cut and mended.
export class Detour {
  static async start(port) {
    const detour = new Detour();
    detour.cut = false;
    detour.sockets = new Set();
    detour.server = net.createServer((from) => {
      if (detour.cut) return from.destroy();
      const to = net.connect(port, '127.0.0.1');
      for (const [a, b] of [[from, to], [to, from]]) {
        detour.sockets.add(a);
        a.pipe(b);
        a.on('error', () => b.destroy());
        a.on('close', () => b.destroy());
      }
    });
    await new Promise((resolve) => detour.server.listen(0, '127.0.0.1', resolve));
    detour.port = detour.server.address().port;
    return detour;
  }

  set(cut) {
    this.cut = cut;
    if (!cut) return;
    for (const socket of this.sockets) socket.destroy();
    this.sockets.clear();
  }

  stop() {
    this.set(true);
    this.server.close();
  }
}

export function startWorker(role, name, args) {
  return new Process(['worker', '--model', kModel, '--role', role, '--name', name, '--threads', '1',
    '--kv-memory', '64MiB', ...args]);
}

// How often a log says something.
export const count = (log, text) => log.split(text).length - 1;

// An authority and a member's certificate of it: the arguments of a member.
export function certificates(name) {
  const folder = scratch();
  const at = (file) => path.join(folder, `${name}${file}`);
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
  const openssl = (...args) => execFileSync('openssl', args, { stdio: 'ignore' });
  openssl('req', '-x509', ...key, '-days', '2', '-subj', `/CN=${name}`, '-keyout', at('-ca.key'),
    '-out', at('-ca.pem'));
  openssl('req', ...key, '-subj', `/CN=${name}-member`, '-keyout', at('.key'), '-out', at('.csr'));
  openssl('x509', '-req', '-in', at('.csr'), '-CA', at('-ca.pem'), '-CAkey', at('-ca.key'),
    '-CAcreateserial', '-days', '2', '-out', at('.pem'));
  return ['--control-cert', at('.pem'), '--control-key', at('.key'), '--control-ca', at('-ca.pem')];
}
