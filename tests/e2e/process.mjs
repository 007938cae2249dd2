// Processes of Divisi as the tests start and stop them. Every wait has an end, and no process
// outlives the test that started it.
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
export const binary = process.env.DIVISI ?? path.join(root, 'build/release/divisi/cli/divisi');
export const soak = process.env.DIVISI_SOAK === '1';
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Loading the tiny model takes well under a second; a loaded machine may take many times that.
export const kStartMs = 60_000;
const kStopMs = 15_000;
const kLogChars = 400_000;

// Those alive, ended with this process however it ends.
const alive = new Set();
process.on('exit', () => {
  for (const child of alive) child.kill('SIGKILL');
});

export class Process {
  // args: of divisi. prefix: a command that runs it, such as ['ip', 'netns', 'exec', NAME].
  constructor(args, { env = {}, prefix = [] } = {}) {
    this.args = args;
    this.log = '';
    this.stopping = false;
    const [command, ...rest] = [...prefix, binary, ...args];
    this.child = spawn(command, rest, {
      cwd: root,
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    alive.add(this.child);
    const keep = (text) => {
      this.log = (this.log + text).slice(-kLogChars);
    };
    this.child.stderr.on('data', keep);
    this.child.stdout.on('data', keep);
    this.ended = once(this.child, 'close').then(([code, signal]) => {
      alive.delete(this.child);
      // One ends when it is told to; otherwise the log says why.
      if (!this.stopping) console.error(`${this} ended (${code ?? signal}):\n${this.log}`);
      return { code, signal };
    });
  }

  toString() {
    return `divisi ${this.args.join(' ')}`;
  }

  get pid() {
    return this.child.pid;
  }

  get running() {
    return this.child.exitCode === null && this.child.signalCode === null;
  }

  // The match once the log has one.
  async said(pattern, limitMs = kStartMs) {
    for (const begun = Date.now(); ; await sleep(20)) {
      const found = this.log.match(pattern);
      if (found) return found;
      if (this.running && Date.now() - begun < limitMs) continue;
      this.stopping = true;
      this.child.kill('SIGKILL');
      throw new Error(`${this} never said ${pattern} (status ${this.child.exitCode}):\n${this.log}`);
    }
  }

  // Any signal; SIGKILL and SIGTERM are expected to end it.
  signal(name) {
    this.stopping ||= name === 'SIGKILL' || name === 'SIGTERM';
    this.child.kill(name);
  }

  // The exit status after SIGTERM.
  async stop(limitMs = kStopMs) {
    if (!this.running) return this.child.exitCode;
    this.signal('SIGTERM');
    const timer = setTimeout(() => this.child.kill('SIGKILL'), limitMs);
    const { code, signal } = await this.ended;
    clearTimeout(timer);
    if (signal === 'SIGKILL') throw new Error(`${this} did not stop:\n${this.log}`);
    if (signal !== null) throw new Error(`${this} ended by ${signal}:\n${this.log}`);
    return code;
  }

  residentBytes() {
    return residentBytes(this.pid);
  }
}

// Of any process.
export function residentBytes(pid) {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return Number(status.match(/^VmRSS:\s+(\d+) kB$/m)[1]) * 1024;
}

// User and system time that a process has used.
export function cpuSeconds(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const kTicksPerSecond = 100;  // USER_HZ, the same on every Linux.
  return (Number(fields[11]) + Number(fields[12])) / kTicksPerSecond;
}

// What a divisi command prints; it throws, with what it said, when it fails.
export async function divisi(...args) {
  try {
    const { stdout } = await promisify(execFile)(
      binary, args, { cwd: root, timeout: kStartMs, maxBuffer: 1 << 26 });
    return stdout;
  } catch (error) {
    throw new Error(`divisi ${args.join(' ')}: ${error.stderr ?? error}${error.stdout ?? ''}`);
  }
}

// Whether nobody has the port just now.
async function isFree(port) {
  const server = net.createServer();
  const free = await new Promise((resolve) => {
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => resolve(true));
  });
  if (free) await new Promise((resolve) => server.close(resolve));
  return free;
}

// A port that nobody has just now; the first of `count` such ones in a row.
// Below the range that systems give to connections (from 32768 on): a worker that looks for its
// gateway before that listens could otherwise be given the very port, and meet itself.
export async function freePort(count = 1) {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 20_000);
    let free = 0;
    while (free < count && await isFree(port + free)) free++;
    if (free === count) return port;
  }
}
