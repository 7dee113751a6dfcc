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
  /** Every answer waits so long. */
  delayMs?: number;
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
};
type Drawn = 'silence' | 'refusal' | 'loss' | 'double' | 'bare' | 'stored';
const DRAWN = ['silence', 'refusal', 'loss', 'double', 'bare'] as const;
const TICK_MS = 2;
const FLUSH_MS = 20;

export class FaultyServer {
  readonly sinkDir = temporaryFolder('faulty');
  readonly #faults: Faults;
  readonly #random;
  readonly #server: Server;
  readonly #line: (readonly [at: number, answer: () => void])[] = [];
  readonly #timers: NodeJS.Timeout[];
  #unwritten = '';
  #tallied = 0;
  #firstAt: number | undefined;
  #slotAt = 0;
  /** How many requests met each fault, or none. */
  readonly counts: Record<Drawn, number> = { silence: 0, refusal: 0, loss: 0, double: 0, bare: 0, stored: 0 };
  /** When each 200 was given, in Unix milliseconds. */
  readonly answeredAt: number[] = [];

  private constructor(faults: Faults) {
    this.#faults = faults;
    this.#random = seededRandom(faults.seed ?? 1);
    mkdirSync(join(this.sinkDir, 'SLUICE_EVENTS', 'journal'), { recursive: true });
    this.#server = createServer((request, response) => {
      let head = '';
      request.on('data', (data: Buffer) => {
        if (head.length < 100) head += data.toString('latin1', 0, 100);
      });
      request.once('end', () => this.#take(response, /"event_id":"([0-9a-f]{32})"/.exec(head)?.[1]));
    });
    this.#timers = [setInterval(() => this.#tick(), TICK_MS), setInterval(() => this.#flush(), FLUSH_MS)];
  }

  static async start(faults: Faults = {}): Promise<FaultyServer> {
    const server = new FaultyServer(faults);
    await new Promise<void>((resolve) => server.#server.listen(0, '127.0.0.1', resolve));
    return server;
  }

  get dsn(): string {
    return `http://key@127.0.0.1:${(this.#server.address() as AddressInfo).port}/1`;
  }

  get received(): number {
    return Object.values(this.counts).reduce((sum, count) => sum + count, 0);
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

  #take(response: ServerResponse, id: string | undefined): void {
    const drawn = this.#draw();
    this.counts[drawn]++;
    if (drawn === 'silence') return;
    this.#line.push([this.#answerAt(performance.now()), () => this.#answer(drawn, response, id)]);
    this.#tick();
  }

  /** Never before what is in line already: each of the faults keeps the order. */
  #answerAt(now: number): number {
    const { cap, delayMs = 0, stallMs } = this.#faults;
    this.#firstAt ??= now;
    const since = now - this.#firstAt;
    const free = stallMs && since >= stallMs[0] && since < stallMs[1] ? this.#firstAt + stallMs[1] : now;
    if (cap === undefined) return free + delayMs;
    // Slots are planned, so that a late tick takes none away.
    this.#slotAt = Math.max(free, this.#slotAt + 1000 / cap);
    return this.#slotAt + delayMs;
  }

  #tick(): void {
    const now = performance.now();
    let due = 0;
    for (; due < this.#line.length && (this.#line[due]?.[0] as number) <= now; due++) this.#line[due]?.[1]();
    if (due > 0) this.#line.splice(0, due);
  }

  #answer(drawn: Drawn, response: ServerResponse, id: string | undefined): void {
    if (drawn === 'refusal') {
      response.writeHead(503, { 'Retry-After': '5' }).end('{"error":"Service overloaded"}');
      return;
    }
    const record = `{"project_id":"1","event_id":"${id}","item_index":0,"type":"event","payload":{}}\n`;
    if (drawn === 'stored' || drawn === 'double') {
      this.#unwritten += drawn === 'double' ? record + record : record;
      this.#tallied++;
    }
    this.answeredAt.push(performance.timeOrigin + performance.now());
    const usage = drawn === 'bare' ? {} : { 'X-Service-Usage': `${this.answeredAt.length}/unlimited` };
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
