/** A broker whose projects bucket holds very many projects. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type RunningServer, startNats } from '../../src/commands/dev/servers.ts';
import { createLog } from '../../src/lib/log.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import { setupTopology } from '../../src/stream/setup/setup.ts';
import { PROJECTS_BUCKET } from '../../src/stream/topology.ts';
import { STREAM_BYTES_SMOKE } from '../harness.ts';
import { hex, type Random, seededRandom } from '../random.ts';
import { markerId, SAID_SUBJECT } from './replica.ts';

const STREAM = `KV_${PROJECTS_BUCKET}`;
const SEEDED_AT_ONCE = 2_000;
const FIRST_ID = 100_000_000;
const LOOK_MS = 10;
const STORED_MS_MAX = 120_000;
const CONNECTED_MS_MAX = 120_000;
const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** As `project create` makes it. */
function record(id: string, random: Random): string {
  const filters = ['browser-extension', 'localhost', 'crawler'];
  return JSON.stringify({
    id,
    key: hex(random, 32),
    plan: 'Pro',
    overage: false,
    filters,
    allowedOrigins: [],
  });
}

/** Waits until `holds`. @throws after `withinMs` */
export async function until(what: string, withinMs: number, holds: () => boolean | Promise<boolean>) {
  for (const end = performance.now() + withinMs; !(await holds()); await sleep(LOOK_MS))
    if (performance.now() > end) throw new Error(`${what}: not within ${withinMs / 1000} s`);
}

export class Stage {
  readonly #dir = mkdtempSync(join(tmpdir(), 'sluice-projects-'));
  readonly #bin: string;
  readonly #random: Random;
  #server: RunningServer | undefined;
  #link: NatsLink | undefined;
  /** How many replicas have said so, by step. */
  readonly #said = new Map<string, number>();

  private constructor(bin: string, seed: number) {
    this.#bin = bin;
    this.#random = seededRandom(seed);
  }

  static async start(bin: string, seed: number): Promise<Stage> {
    const stage = new Stage(bin, seed);
    stage.#server = await startNats(bin, stage.#natsDir);
    const log = createLog('silent');
    stage.#link = await NatsLink.connect({ urls: [stage.natsUrl], name: 'bench', log, waitForServer: true });
    stage.#link.subscribe(SAID_SUBJECT, (msg) => {
      stage.#said.set(msg.string(), stage.said(msg.string()) + 1);
    });
    await setupTopology(stage.#link, { replicas: 1, shards: 1, maxBytes: STREAM_BYTES_SMOKE });
    return stage;
  }

  get #natsDir(): string {
    return join(this.#dir, 'nats');
  }
  get dir(): string {
    return this.#dir;
  }
  get natsUrl(): string {
    return this.#server?.url ?? '';
  }
  get link(): NatsLink {
    if (!this.#link) throw new Error('no link');
    return this.#link;
  }
  said(step: string): number {
    return this.#said.get(step) ?? 0;
  }

  /** Straight into the stream, without waiting for each. */
  async seed(count: number): Promise<void> {
    for (let n = 0; n < count; n++) {
      this.#publish(`${FIRST_ID + n}`);
      if (n % SEEDED_AT_ONCE === 0) await this.link.connection.flush();
    }
    const manager = await this.link.manager();
    const stored = async (): Promise<boolean> => (await manager.streams.info(STREAM)).state.messages >= count;
    await until('the projects are stored', STORED_MS_MAX, stored);
  }

  /** Restarts the broker, and makes a project when it is back. @returns how long the broker was away, in ms */
  async restart(n: number): Promise<number> {
    const began = performance.now();
    const port = this.#server?.port;
    await this.#server?.stop();
    this.#server = await startNats(this.#bin, this.#natsDir, port);
    await until('connected', CONNECTED_MS_MAX, () => this.link.connected);
    const awayMs = performance.now() - began;
    this.#publish(markerId(n));
    return awayMs;
  }

  async consumers(): Promise<number> {
    const { state } = await (await this.link.manager()).streams.info(STREAM);
    return state.consumer_count;
  }

  async stop(): Promise<void> {
    await this.#link?.close();
    await this.#server?.stop();
    rmSync(this.#dir, { recursive: true, force: true });
  }

  #publish(id: string): void {
    this.link.connection.publish(`$KV.${PROJECTS_BUCKET}.${id}`, record(id, this.#random));
  }
}
