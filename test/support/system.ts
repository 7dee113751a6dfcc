/** The whole system for a test: real Redis, nats-server, ingest (primary and workers) and processor, as a user would run them. */
import { type ChildProcess, fork } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createLog } from '../../src/lib/log.ts';
import { HeartbeatStore } from '../../src/projects/heartbeat-store.ts';
import type { Project } from '../../src/projects/project.ts';
import { type NewProject, ProjectStore } from '../../src/projects/project-store.ts';
import { CheckpointBucket } from '../../src/projects/usage/checkpoint-bucket.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import { setupTopology } from '../../src/stream/setup/setup.ts';
import { registryDelivered } from './registry.ts';
import { lastingPort, natsServer, redisServer, type TestServer } from './servers.ts';

/** The record of a project, as `createProject` stores it. */
export type { NewProject, Project };

/** The build under test, with a slash at its end. */
export const DIST = new URL('../../dist/', import.meta.url).pathname;
export const MIB = 1024 * 1024;
/** Every worker has seen a change of the registry after this (contract part 4). */
export const REGISTRY_MS_MAX = 1_000;

export type StoredRecord = {
  project_id: string;
  event_id: string;
  item_index: number;
  type: string;
  received_at: string;
  sent_at?: string;
  sdk?: string;
  item_header: Record<string, unknown>;
  payload: Record<string, unknown>;
};

export type SystemOptions = {
  workers?: number;
  /** Settings on top of the defaults of this harness. */
  env?: Record<string, string>;
  /** Without it nothing is taken out of the streams. */
  processor?: boolean;
};

/** A command of ours as a child process, and what it wrote to standard error. */
export class Command {
  readonly child: ChildProcess;
  #errors = '';
  readonly exited: Promise<number | null>;

  constructor(args: string[], env: Record<string, string>, dist = DIST) {
    this.child = fork(`${dist}cli.js`, args, {
      env: { ...process.env, ...env },
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    });
    this.child.stderr?.on('data', (data: Buffer) => {
      this.#errors += data.toString();
    });
    this.exited = new Promise((resolve) => this.child.once('exit', (code) => resolve(code)));
  }

  /** Everything logged so far, one JSON object a line. */
  get log(): string {
    return this.#errors;
  }

  /** Log lines of level error and above. */
  get errors(): string[] {
    return this.#errors.split('\n').filter((line) => /"level":(50|60)/.test(line) || /Error/.test(line));
  }

  /** Resolves when this text is in its log. What it logs may reach us after its answer, or after its exit. */
  logged(text: string): Promise<void> {
    return until(() => this.#errors.includes(text));
  }

  get hasEnded(): boolean {
    return this.child.exitCode !== null || this.child.signalCode !== null;
  }

  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<number | null> {
    if (!this.hasEnded) this.child.kill(signal);
    return this.exited;
  }
}

export class System {
  redis: TestServer;
  nats: TestServer;
  readonly link: NatsLink;
  readonly dir: string;
  readonly port: number;
  readonly adminPort: number;
  readonly processorPort: number;
  readonly env: Record<string, string>;
  ingest: Command;
  processor: Command | undefined;

  private constructor(parts: {
    redis: TestServer;
    nats: TestServer;
    link: NatsLink;
    dir: string;
    ports: number[];
    options: SystemOptions;
  }) {
    const { redis, nats, link, dir, ports, options } = parts;
    this.redis = redis;
    this.nats = nats;
    this.link = link;
    this.dir = dir;
    [this.port = 0, this.adminPort = 0, this.processorPort = 0] = ports;
    this.env = {
      SLUICE_ENV: 'production',
      SLUICE_PORT: `${this.port}`,
      SLUICE_WORKERS: `${options.workers ?? 1}`,
      SLUICE_REDIS_URL: redis.url,
      SLUICE_NATS_URL: nats.url,
      SLUICE_SINK: `ndjson:${this.sinkDir}`,
      SLUICE_SPOOL_DIR: join(dir, 'spool'),
      SLUICE_STREAM_MAX_BYTES: `${256 * MIB}`,
      SLUICE_LOG_LEVEL: 'warn',
      ...options.env,
    };
    this.ingest = this.startIngest();
    if (options.processor !== false) this.processor = this.startProcessor();
  }

  static async start(options: SystemOptions = {}): Promise<System> {
    const [redis, nats] = await Promise.all([redisServer(), natsServer()]);
    const link = await NatsLink.connect({
      urls: [nats.url],
      name: 'test',
      log: createLog('silent'),
      waitForServer: true,
    });
    await setupTopology(link, {
      replicas: 1,
      shards: Number(options.env?.SLUICE_STREAM_SHARDS ?? 1),
      maxBytes: 256 * MIB,
    });
    const dir = mkdtempSync(join(tmpdir(), 'sluice-system-'));
    mkdirSync(join(dir, 'spool'));
    const ports = [await lastingPort(), await lastingPort(), await lastingPort()];
    const system = new System({ redis, nats, link, dir, ports, options });
    await system.ready();
    return system;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }
  get adminUrl(): string {
    return `http://127.0.0.1:${this.adminPort}`;
  }
  get sinkDir(): string {
    return join(this.dir, 'sink');
  }

  /** After `nats.stop()`: again on the same port and folder. */
  async restartNats(): Promise<void> {
    this.nats = await natsServer({ port: this.nats.port, dir: this.nats.dir });
  }

  /** After `redis.stop()`: again on the same port, with what it had written. */
  async restartRedis(): Promise<void> {
    this.redis = await redisServer({ port: this.redis.port, dir: this.redis.dir });
  }

  startIngest(): Command {
    return new Command(['ingest'], { ...this.env, SLUICE_ADMIN_PORT: `${this.adminPort}` });
  }
  startProcessor(): Command {
    return new Command(['processor'], { ...this.env, SLUICE_ADMIN_PORT: `${this.processorPort}` });
  }

  /** Resolves when every part says it is ready; a part that died meanwhile fails it with its log. */
  async ready(): Promise<void> {
    const urls = [`${this.adminUrl}/readyz`, `${this.url}/readyz`];
    if (this.processor) urls.push(`http://127.0.0.1:${this.processorPort}/readyz`);
    await until(async () => {
      for (const part of [this.ingest, this.processor])
        if (part && part.child.exitCode !== null) throw new Error(`ended at start: ${part.log}`);
      const states = await Promise.all(
        urls.map((url) =>
          fetch(url).then(
            (res) => res.ok,
            () => false,
          ),
        ),
      );
      return states.every(Boolean);
    });
  }

  async createProject(wanted: Partial<NewProject> = {}): Promise<Project> {
    await until(() => this.link.connected);
    const store = await ProjectStore.open(this.link);
    const project = await store.create({
      plan: 'Platform',
      overage: false,
      filters: [],
      allowedOrigins: [],
      ...wanted,
    });
    await this.registryKnown();
    return project;
  }

  /** Changes the record of a project; the workers are told of it. */
  async changeProject({ id }: Project, change: (record: Project) => Project): Promise<void> {
    await (await ProjectStore.open(this.link)).set(id, change);
  }

  /** Notes usage of this month, as a worker notes it within ten seconds. Redis has no such count. */
  async noteUsage(id: string, count: number): Promise<void> {
    const bucket = new CheckpointBucket({ link: this.link, log: createLog('silent') });
    const month = new Date().toISOString().slice(0, 'YYYY-MM'.length);
    await bucket.write(bucket.groupOf(id), month, new Map([[id, count]]));
  }

  async createHeartbeat(): Promise<string> {
    await until(() => this.link.connected);
    const store = await HeartbeatStore.open(this.link);
    const { token } = await store.create(new Date());
    await this.registryKnown();
    return token;
  }

  /** Resolves when every worker knows what the registry holds. */
  async registryKnown(): Promise<void> {
    if (this.ingest.hasEnded) return;
    const workers = Number(this.env.SLUICE_WORKERS);
    await until(() => registryDelivered(this.link, workers).catch(() => false));
    await this.metrics(); // asks each worker, so the turn in which the change came has passed
  }

  /** As `sluice project create` prints it. */
  dsn(project: Project): string {
    return `http://${project.key}@127.0.0.1:${this.port}/${project.alias ?? project.id}`;
  }

  endpoint(project: Project): string {
    return `${this.url}/api/${project.alias ?? project.id}/envelope/?compat_key=${project.key}`;
  }

  send(project: Project, body: string | Uint8Array, headers: Record<string, string> = {}): Promise<Response> {
    return fetch(this.endpoint(project), { method: 'POST', body, headers });
  }

  /** Every record of the sink, in no particular order. */
  stored(): StoredRecord[] {
    const files = readdirSync(this.sinkDir, { recursive: true, encoding: 'utf8' });
    return files
      .filter((file) => file.endsWith('.ndjson'))
      .flatMap((file) => readFileSync(join(this.sinkDir, file), 'utf8').trimEnd().split('\n'))
      .map((line) => JSON.parse(line) as StoredRecord);
  }

  /** The records of one event, once there are `count` of them. */
  async storedOf(eventId: string, count = 1): Promise<StoredRecord[]> {
    let found: StoredRecord[] = [];
    await until(async () => {
      found = this.stored().filter((record) => record.event_id === eventId);
      return found.length >= count;
    });
    return found;
  }

  async metrics(): Promise<string> {
    return (await fetch(`${this.adminUrl}/metrics`)).text();
  }

  /** Value of one sample, 0 when it does not stand there. `labels` as in the text format, in order. */
  async metric(name: string, labels = ''): Promise<number> {
    const line = (await this.metrics()).split('\n').find((text) => text.startsWith(`${name}${labels} `));
    return line ? Number(line.slice(line.lastIndexOf(' ') + 1)) : 0;
  }

  async stop(): Promise<void> {
    closeIdleConnections();
    await Promise.all([this.ingest.stop(), this.processor?.stop()]);
    await this.link.close();
    await Promise.all([this.redis.close(), this.nats.close()]);
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** Keeper of the connections of Node's `fetch`. */
type Agent = { close(): Promise<void>; constructor: new () => Agent };
const FETCH_AGENT = Symbol.for('undici.globalDispatcher.1');

/** Closes the connections that `fetch` keeps: a stopping worker waits two seconds for them, as for any client's. */
function closeIdleConnections(): void {
  const agents = globalThis as unknown as Record<symbol, Agent | undefined>;
  const used = agents[FETCH_AGENT];
  if (!used) return;
  agents[FETCH_AGENT] = new used.constructor();
  void used.close();
}

/** Polls until `condition` holds; fails after a minute. */
export async function until(condition: () => Promise<boolean> | boolean, ms = 60_000): Promise<void> {
  for (const end = Date.now() + ms; Date.now() < end; await new Promise((resolve) => setTimeout(resolve, 30)))
    if (await condition()) return;
  throw new Error(`not so within ${ms} ms: ${condition}`);
}
