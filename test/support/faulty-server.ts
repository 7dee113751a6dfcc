/**
 * A server whose faults are set, seeded, and counted by itself: what the load tester says of it is held against these counts. It
 * takes envelopes as ingest does, and stores them in a folder as the ndjson sink does.
 */
import { appendFileSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { seededRandom } from '../../bench/random.ts';
import { temporaryFolder } from './servers.ts';

/** Shares are from 0 to 1 of all requests. */
export type Faults = {
  seed?: number;
  /** It takes so many requests a second, evenly; the others wait in line. */
  cap?: number;
  /** Every answer waits for a time between these two. */
  delayMs?: readonly [least: number, most: number];
  /** From one moment after the first request to another it answers nothing; then all at once. */
  stallMs?: readonly [from: number, to: number];
  /** Share that is never answered. */
  silence?: number;
  /** Share that is answered 503. */
  refusal?: number;
  /** Share that is told 200 with usage headers, and not stored. */
  loss?: number;
  /** Share that is stored twice. */
  double?: number;
  /** Share that is told 200 without usage headers, and not stored. */
  bare?: number;
  /** As a server that is not sluice: no usage headers, and of these types nothing is stored. */
  other?: { ignores: readonly string[] };
};
/** One request as the server saw it; times in Unix milliseconds. */
export type Logged = {
  number: number;
  receivedAt: number;
  answeredAt: number | undefined;
  drawn: Drawn;
  type: string;
};
export type Drawn = 'silence' | 'refusal' | 'loss' | 'double' | 'bare' | 'stored';
const DRAWN = ['silence', 'refusal', 'loss', 'double', 'bare'] as const;
const TICK_MS = 1;
const FLUSH_MS = 20;
/** The header of an envelope and the type of its first item are within these. */
const HEAD_BYTES = 1_000;
/** Hexadecimal digits at the end of an id that number the requests of a run. */
const NUMBER_DIGITS = 8;

const unixMs = (): number => performance.timeOrigin + performance.now();

export class FaultyServer {
  readonly sinkDir = temporaryFolder('faulty');
  readonly #faults: Faults;
  readonly #random;
  readonly #server: Server;
  #line: (readonly [at: number, answer: () => void])[] = [];
  readonly #timers: NodeJS.Timeout[];
  #unwritten = '';
  #tallied = 0;
  #firstAt: number | undefined;
  #slotAt = 0;
  /** How many requests met each fault, or none. */
  readonly counts: Record<Drawn, number> = { silence: 0, refusal: 0, loss: 0, double: 0, bare: 0, stored: 0 };
  readonly log: Logged[] = [];
  /** When each 200 was given, in Unix milliseconds. */
  readonly answeredAt: number[] = [];
  /** By how much a turn of its loop was late at most: so late its notes may be. */
  lagMs = 0;
  #tickAt = 0;
  /** How many of them had the usage headers. */
  #usage = 0;

  private constructor(faults: Faults) {
    this.#faults = faults;
    this.#random = seededRandom(faults.seed ?? 1);
    mkdirSync(join(this.sinkDir, 'SLUICE_EVENTS', 'journal'), { recursive: true });
    this.#server = createServer((request, response) => {
      if (request.method === 'GET') return this.#tell(request.url ?? '', response);
      let head = '';
      request.on('data', (data: Buffer) => {
        if (head.length < HEAD_BYTES) head += data.toString('latin1', 0, HEAD_BYTES);
      });
      request.once('end', () => this.#take(response, head));
    });
    this.#timers = [setInterval(() => this.#tick(), TICK_MS), setInterval(() => this.#flush(), FLUSH_MS)];
  }

  static async start(faults: Faults = {}): Promise<FaultyServer> {
    const server = new FaultyServer(faults);
    await new Promise<void>((resolve) => server.#server.listen(0, '127.0.0.1', resolve));
    return server;
  }

  get #host(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get dsn(): string {
    return `http://key@${this.#host}/1`;
  }

  /** Where the usage and the metrics are told, as on an admin port. */
  get admin(): string {
    return `http://${this.#host}`;
  }

  /** 200s from one moment to another, in Unix milliseconds. */
  answered(from: number, to: number): number {
    return this.answeredAt.filter((at) => at >= from && at < to).length;
  }

  async stop(): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
    rmSync(this.sinkDir, { recursive: true });
  }

  #draw(): Drawn {
    for (const fault of DRAWN) if (this.#random() < (this.#faults[fault] ?? 0)) return fault;
    return 'stored';
  }

  #tell(path: string, response: ServerResponse): void {
    const outcome = 'sluice_requests_total{endpoint="ingest",outcome="accepted"}';
    response.end(
      path === '/metrics'
        ? `${outcome} ${this.#usage}\n`
        : JSON.stringify({ projects: [{ id: '1', usage: { position: this.#usage } }] }),
    );
  }

  #take(response: ServerResponse, head: string): void {
    const id = /"event_id":"([0-9a-f]{32})"/.exec(head)?.[1];
    const type = /\n\{"type":"([a-z_]+)"/.exec(head)?.[1] ?? 'none';
    const drawn = this.#draw();
    this.counts[drawn]++;
    const number = Number.parseInt(id?.slice(-NUMBER_DIGITS) ?? '', 16);
    const logged: Logged = { number, receivedAt: unixMs(), answeredAt: undefined, drawn, type };
    this.log.push(logged);
    if (drawn === 'silence') return;
    this.#line.push([this.#answerAt(performance.now()), () => this.#answer(logged, response, id)]);
    this.#tick();
  }

  #answerAt(now: number): number {
    const { cap, delayMs: [least, most] = [0, 0], stallMs } = this.#faults;
    const delay = least + (most - least) * this.#random();
    this.#firstAt ??= now;
    // Slots are planned, so that a late tick takes none away.
    this.#slotAt = cap === undefined ? now : Math.max(now, this.#slotAt + 1000 / cap);
    const since = this.#slotAt + delay - this.#firstAt;
    const isStill = stallMs !== undefined && since >= stallMs[0] && since < stallMs[1];
    return this.#firstAt + (isStill ? stallMs[1] : since);
  }

  #tick(): void {
    const now = performance.now();
    if (this.#firstAt !== undefined) this.lagMs = Math.max(this.lagMs, now - this.#tickAt - TICK_MS);
    this.#tickAt = now;
    const due = this.#line.filter(([at]) => at <= now);
    if (due.length === 0) return;
    this.#line = this.#line.filter(([at]) => at > now);
    for (const [, answer] of due) answer();
  }

  #answer(logged: Logged, response: ServerResponse, id: string | undefined): void {
    const { drawn, type } = logged;
    const { other } = this.#faults;
    logged.answeredAt = unixMs();
    if (drawn === 'refusal') {
      response.writeHead(503, { 'Retry-After': '5' }).end('{"error":"Service overloaded"}');
      return;
    }
    const record = `{"project_id":"1","event_id":"${id}","item_index":0,"type":"event","payload":{}}\n`;
    if ((drawn === 'stored' || drawn === 'double') && !other?.ignores.includes(type)) {
      this.#unwritten += drawn === 'double' ? record + record : record;
      this.#tallied++;
    }
    this.answeredAt.push(logged.answeredAt);
    const usage = drawn === 'bare' || other ? {} : { 'X-Service-Usage': `${++this.#usage}/unlimited` };
    response.writeHead(200, usage).end(`{"id":"${id}"}`);
  }

  #flush(): void {
    if (this.#unwritten === '') return;
    const folder = join(this.sinkDir, 'SLUICE_EVENTS');
    appendFileSync(join(folder, '1.ndjson'), this.#unwritten);
    this.#unwritten = '';
    const month = new Date().toISOString().slice(0, 'YYYY-MM'.length);
    const counts = { 1: { [month]: [this.#tallied, this.#tallied] } };
    const tally = join(folder, 'journal', 'tally.json');
    writeFileSync(`${tally}.tmp`, JSON.stringify({ v: 1, upTo: 0, counts }));
    renameSync(`${tally}.tmp`, tally);
  }
}
