/**
 * `npm run bench -- power-cut [--servers N] [--sync-always] [--cut N] [--seconds N] [--rate N]`: what a power cut costs. Each nats-server
 * has a disk of its own, an ext4 file system in a file. Clients send events, then the power of all servers is cut, or of the first
 * `--cut`, they start again, and a processor stores what the streams have. Fails when the stream of events gets no leader, and when an
 * event that was answered 200 is missing though it should have been synced, or though a server kept its power.
 *
 * Power cut: the servers stand still, each file system is shut down without writing anything more, and the servers are killed. What the
 * kernel had not written to the disk is lost then, as when a machine loses its power; the disk itself loses nothing. Needs root on Linux, and
 * python3.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { ensureServers } from '../src/commands/dev/install.ts';
import { hostEnvironment } from '../src/config.ts';
import { createLog } from '../src/lib/log.ts';
import { NatsLink } from '../src/stream/nats.ts';
import { streamName } from '../src/stream/topology.ts';
import { brokerVersion } from './broker.ts';
import { Harness, OWN_DIST, STREAM_BYTES_SMOKE } from './harness.ts';
import type { Target } from './workload.ts';

const DISK_BYTES = 4 * 1024 ** 3;
const CONNECTIONS = 32;
const PAYLOAD = 'x'.repeat(1_000);
const TICK_MS = 20;
const DRAIN_MS_MAX = 60_000;

/** EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH, as the kernel's own tests of file systems use it. */
const SHUT_DOWN = `import fcntl, os, struct, sys
for folder in sys.argv[1:]:
    fcntl.ioctl(os.open(folder, os.O_RDONLY), 0x8004587d, struct.pack('I', 2))`;

class Disk {
  readonly dir = mkdtempSync(join(tmpdir(), 'sluice-bench-disk-'));
  readonly #file = `${this.dir}.ext4`;

  constructor() {
    writeFileSync(this.#file, '');
    truncateSync(this.#file, DISK_BYTES);
    execFileSync('mkfs.ext4', ['-q', this.#file]);
    this.mount();
  }

  mount(): void {
    execFileSync('mount', ['-o', 'loop', this.#file, this.dir]);
  }

  unmount(): void {
    execFileSync('umount', [this.dir]);
  }

  close(): void {
    this.unmount();
    rmSync(this.dir, { recursive: true });
    rmSync(this.#file);
  }
}

/** Sends events at a rate, and keeps the ids of those that were answered 200. */
class Clients {
  readonly accepted = new Set<string>();
  readonly #agent = new Agent({ keepAlive: true, maxSockets: CONNECTIONS });
  readonly #url: string;
  readonly #target: Target;
  #sent = 0;
  #open = 0;

  constructor(url: string, target: Target) {
    this.#url = url;
    this.#target = target;
  }

  async send(perSec: number, ms: number): Promise<void> {
    const since = performance.now();
    const before = this.#sent;
    for (let passed = 0; passed < ms; passed = performance.now() - since) {
      while (this.#open < CONNECTIONS && this.#sent - before < (passed * perSec) / 1000) this.#sendOne();
      await pause(TICK_MS / 10);
    }
  }

  async answered(): Promise<void> {
    while (this.#open > 0) await pause(TICK_MS);
    this.#agent.destroy();
  }

  #sendOne(): void {
    const id = (++this.#sent).toString(16).padStart(32, '0');
    this.#open++;
    const { id: project, key } = this.#target;
    const sending = request(`${this.#url}/api/${project}/envelope/?sentry_key=${key}`, {
      method: 'POST',
      agent: this.#agent,
    });
    sending.on('response', (response) => {
      if (response.statusCode === 200) this.accepted.add(id);
      response.resume().on('end', () => this.#open--);
    });
    sending.on('error', () => this.#open--);
    sending.end(`{"event_id":"${id}"}\n{"type":"event"}\n{"message":"${PAYLOAD}"}`);
  }
}

function cutPower(pids: readonly number[], disks: readonly Disk[]): void {
  for (const pid of pids) process.kill(pid, 'SIGSTOP');
  execFileSync('python3', ['-c', SHUT_DOWN, ...disks.map(({ dir }) => dir)]);
  for (const pid of pids) process.kill(pid, 'SIGKILL');
}

/** Messages in the stream of events, once it has a leader; undefined when it gets none. */
async function framesIn(url: string): Promise<number | undefined> {
  const link = await NatsLink.connect({ urls: url.split(','), name: 'bench', log: createLog('silent') });
  try {
    for (const end = performance.now() + DRAIN_MS_MAX; ; await pause(200)) {
      const manager = await link.manager().catch(() => undefined);
      const info = await manager?.streams.info(streamName('events', 0, 1)).catch(() => undefined);
      // A server that is alone says nothing of a cluster.
      if (info && (!info.cluster?.replicas || info.cluster.leader)) return info.state.messages;
      if (performance.now() > end) return undefined;
    }
  } finally {
    await link.close();
  }
}

function storedIds(folder: string): Set<string> {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true });
  const texts = files
    .filter((file) => file.isFile() && file.name.endsWith('.ndjson'))
    .map(({ parentPath, name }) => readFileSync(join(parentPath, name), 'utf8'));
  return new Set(texts.flatMap((text) => text.match(/(?<="event_id":")[0-9a-f]{32}/g) ?? []));
}

function whole(name: string, text: string): number {
  if (!/^[1-9]\d*$/.test(text)) throw new Error(`${name}: a whole number from 1`);
  return Number(text);
}

/** @returns exit status */
export async function powerCutCommand(args: string[]): Promise<number> {
  const { values } = parseArgs({
    args,
    options: {
      servers: { type: 'string', default: '1' },
      'sync-always': { type: 'boolean', default: false },
      cut: { type: 'string' },
      seconds: { type: 'string', default: '45' },
      rate: { type: 'string', default: '1000' },
    },
  });
  const servers = whole('--servers', values.servers);
  const cut = whole('--cut', values.cut ?? values.servers);
  const syncAlways = values['sync-always'];
  const bins = ensureServers(hostEnvironment(), (line) => void process.stderr.write(`${line}\n`));
  const disks = Array.from({ length: servers }, () => new Disk());
  const sink = mkdtempSync(join(tmpdir(), 'sluice-bench-sink-'));
  let harness: Harness | undefined;
  try {
    harness = await Harness.start({
      dist: OWN_DIST,
      bins,
      streamMaxBytes: 2 * STREAM_BYTES_SMOKE,
      sink: `ndjson:${sink}`,
      broker: { servers, syncAlways, folders: disks.map(({ dir }) => dir) },
    });
    const [target] = await harness.createProjects([
      { plan: 'Pro', quota: 1e9, overage: false, filters: [], allowedOrigins: [] },
    ]);
    // The streams are old, and only the events are new.
    for (const { dir } of disks) execFileSync('sync', ['-f', dir]);
    const clients = new Clients(harness.url, target as Target);
    const ms = 1000 * whole('--seconds', values.seconds);
    const sending = clients.send(whole('--rate', values.rate), ms + 1000);
    await pause(ms);
    cutPower(harness.pids().broker.slice(0, cut), disks.slice(0, cut));
    await Promise.all([sending, clients.answered()]);
    for (const disk of disks.slice(0, cut)) {
      disk.unmount();
      disk.mount();
    }
    await harness.startBrokers(cut);
    const mode = syncAlways ? 'sync_interval always' : 'default';
    const what = `power cut at ${cut} of ${servers} nats-server ${brokerVersion(bins.nats)}, ${mode}, after ${values.seconds} s at ${values.rate}/s`;
    const frames = await framesIn(harness.natsUrl);
    if (frames === undefined) {
      process.stdout.write(`${what}: the stream of events has no leader after ${DRAIN_MS_MAX / 1000} s\n`);
      return 1;
    }
    await harness.startProcessor();
    const isDrained = await harness.drained(DRAIN_MS_MAX);
    const stored = storedIds(sink);
    const missing = [...clients.accepted].filter((id) => !stored.has(id)).length;
    process.stdout.write(
      `${what}: ${clients.accepted.size} answered 200, ${missing} of them missing, ${stored.size} stored; ` +
        `${frames} frames were in the stream${isDrained ? '' : ', which was not emptied'}\n`,
    );
    return missing > 0 && (syncAlways || cut < servers) ? 1 : 0;
  } finally {
    await harness?.stop();
    for (const disk of disks) disk.close();
    rmSync(sink, { recursive: true });
  }
}
