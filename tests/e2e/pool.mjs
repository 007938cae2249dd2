// What keeps pages for workers: nodes of `divisi store`, and a Redis server.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import net from 'node:net';
import { divisi, freePort, Process, sleep } from './process.mjs';
import { parseMetrics } from './server.mjs';

// Nodes at ports that stay theirs, so that one can be killed and started again.
export class Pool {
  static async start(nodes = 1, { memory = '256MiB' } = {}) {
    const pool = new Pool();
    pool.memory = memory;
    pool.ports = [];
    for (let i = 0; i < nodes; i++) pool.ports.push(await freePort());
    pool.nodes = [];
    for (let i = 0; i < nodes; i++) await pool.startNode(i);
    return pool;
  }

  async startNode(index) {
    const node = new Process(['store', '--listen', `127.0.0.1:${this.ports[index]}`,
      '--data-listen', '127.0.0.1:0', '--memory', this.memory]);
    this.nodes[index] = node;
    await node.said(/store is ready/);
    return node;
  }

  get args() {
    return ['--kv-pool', this.ports.map((port) => `127.0.0.1:${port}`).join()];
  }

  // A node's counters.
  async status(index = 0) {
    return parseMetrics(await divisi('store', '--status', `127.0.0.1:${this.ports[index]}`));
  }

  // Until the nodes together hold that many objects.
  async holds(objects, limitMs = 20_000) {
    let held;
    for (const begun = Date.now(); Date.now() - begun < limitMs; await sleep(50)) {
      held = 0;
      for (let i = 0; i < this.nodes.length; i++) {
        if (this.nodes[i].running) held += (await this.status(i)).divisi_store_objects;
      }
      if (held >= objects) return held;
    }
    throw new Error(`the pool holds ${held} objects, not ${objects}`);
  }

  async kill(index) {
    this.nodes[index].signal('SIGKILL');
    await this.nodes[index].ended;
  }

  async stop() {
    await Promise.all(this.nodes.map((node) => node.stop()));
  }
}

export class RedisServer {
  // null where there is none on this machine.
  static async start(args = []) {
    const server = new RedisServer();
    server.port = await freePort();
    server.child = spawn('redis-server', ['--port', `${server.port}`, '--bind', '127.0.0.1',
      '--save', '', '--appendonly', 'no', ...args], { stdio: 'ignore' });
    const failed = once(server.child, 'error').then(() => true);
    process.on('exit', () => server.child.kill('SIGKILL'));
    for (let i = 0; i < 200; i++) {
      const first = await Promise.race([failed, server.#answers()]);
      if (first === true) return null;
      if (first === 'PONG') return server;
      await sleep(20);
    }
    throw new Error('redis-server does not answer');
  }

  #answers() {
    return this.command('PING').catch(() => sleep(20));
  }

  // What a command without spaces in its words answers: a status or a number.
  command(...words) {
    return new Promise((resolve, reject) => {
      const socket = net.connect(this.port, '127.0.0.1', () => socket.write(`${words.join(' ')}\r\n`));
      socket.once('data', (bytes) => {
        socket.destroy();
        resolve(bytes.toString().trim().slice(1));
      });
      socket.once('error', reject);
    });
  }

  get args() {
    return ['--kv-pool', `redis://127.0.0.1:${this.port}/0`];
  }

  async holds(objects, limitMs = 20_000) {
    let held;
    for (const begun = Date.now(); Date.now() - begun < limitMs; await sleep(50)) {
      held = Number(await this.command('DBSIZE'));
      if (held >= objects) return held;
    }
    throw new Error(`Redis holds ${held} objects, not ${objects}`);
  }

  async stop() {
    this.child.kill('SIGTERM');
    if (this.child.exitCode === null && this.child.signalCode === null) await once(this.child, 'exit');
  }
}
