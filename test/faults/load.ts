/** Many clients, each with its own connection, over both ports: what SDKs send, at a pace that a shared machine bears. */
import { setTimeout as pause } from 'node:timers/promises';
import { OTLP_PATHS, OTLP_TYPES, otlpBody, otlpEventId } from '../../bench/otlp.ts';
import { ID_PLACEHOLDER } from '../../bench/payloads.ts';
import { integer, pick, type Random, seededRandom } from '../../bench/random.ts';
import { eventId } from '../support/envelopes.ts';
import { Client, type Shot } from './client.ts';
import type { ProjectName, Told } from './ledger.ts';

/** Where a project's requests go: path and query. */
export type Targets = Readonly<Record<ProjectName | 'unjudged' | 'scrubbed', string>>;

export type LoadOptions = {
  random: Random;
  ports: readonly number[];
  targets: Targets;
  clients?: number;
  /** Mean pause of a client between two requests. */
  thinkMs?: number;
  /** Bytes of every payload; by default few, and one in LARGE_ONE_IN goes through the spool and the chunks stream. */
  payloadBytes?: number;
  /** Whether OTLP is among the requests; by default it is. */
  otlp?: boolean;
  /** Of other requests than these. */
  shot?(port: number): Shot;
};

export const CLIENTS = 16;
const SHARES: readonly (readonly [ProjectName, number])[] = [
  ['open', 0.55],
  ['limited', 0.7],
  ['leased', 0.9],
  ['capped', 1],
];
const LARGE_ONE_IN = 150;
const LARGE_BYTES = [150_000, 400_000] as const;
const SMALL_BYTES = [10, 600] as const;
const GOOD_IN_A_ROW = 5;
/** A port that has served for so long serves for good: what was killed may go on for a second before it is missed. */
const STEADY_MS = 2_500;
/** A client that waits longer than this is not served. */
const WAITS_MS_MAX = 2_500;
const LOOK_MS = 50;

/** Of requests that are no large envelopes. */
const OTLP_SHARE = 0.2;

/** Carried by the payload of an envelope with this id. */
export const markOf = (id: string): string => `mark-${id}`;
/** Finds what `markOf` and {@link otlpShot} make, in a payload as it is stored. */
export const MARK = 'mark-[0-9a-f]{27,32}';

const OTLP_REQUESTS = (['otlp-traces', 'otlp-logs'] as const).flatMap((kind) =>
  (['json', 'protobuf'] as const).map((encoding) => ({
    kind,
    type: OTLP_TYPES[encoding],
    body: otlpBody(kind, encoding, seededRandom(1), 1),
  })),
);

/** A request of one span or one log. Its mark stands in its resource, in the place of the id, which is of the same length. */
function otlpShot(random: Random, target: string): Pick<Shot['told'], 'id' | 'mark'> & { request: Buffer } {
  const { kind, type, body: base } = pick(random, OTLP_REQUESTS);
  const mark = `mark-${eventId()}`.slice(0, ID_PLACEHOLDER.length);
  const body = Buffer.from(base);
  body.write(mark, base.indexOf(ID_PLACEHOLDER), 'latin1');
  const path = target.replace('/envelope/', OTLP_PATHS[kind]);
  const head = `POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: ${type}\r\nContent-Length: ${body.length}\r\n\r\n`;
  const projectId = target.split('/')[2] ?? '';
  return { id: otlpEventId(kind, projectId, body), mark, request: Buffer.concat([Buffer.from(head), body]) };
}

const payloadOf = (id: string, padding: number): Record<string, unknown> => ({
  timestamp: 1_790_000_000,
  message: markOf(id),
  padding: 'x'.repeat(padding),
});

export class Load {
  readonly told: Told[] = [];
  /** Attempts to connect that failed, by port: when they began. */
  readonly unreachable: { port: number; at: number }[] = [];
  readonly #options: LoadOptions;
  readonly #clients: Client[] = [];
  #running: Promise<unknown> = Promise.resolve();

  constructor(options: LoadOptions) {
    this.#options = options;
  }

  start(): void {
    const { random, ports, clients = CLIENTS, thinkMs = 40, shot } = this.#options;
    for (let n = 0; n < clients; n++)
      this.#clients.push(
        new Client({
          port: ports[n % ports.length] as number,
          next: shot ?? ((port) => this.#shot(port)),
          record: (told) => this.told.push(told),
          unreachable: (port, at) => this.unreachable.push({ port, at }),
          thinkMs: () => random() * 2 * thinkMs,
        }),
      );
    this.#running = Promise.all(this.#clients.map((client) => client.run()));
  }

  /** Resolves when every client has heard its last answer. */
  async stop(): Promise<void> {
    for (const client of this.#clients) client.stop();
    await this.#running;
  }

  /**
   * Waits until every port serves: its last requests to the project without limits were all answered 200.
   * @returns seconds from `since` until the first request of those, per port the latest; undefined when that did not come in time
   */
  async servesSince(since: number, msMax: number): Promise<number | undefined> {
    for (const until = performance.now() + msMax; performance.now() < until; await pause(LOOK_MS)) {
      const times = this.#options.ports.map((port) => this.#goodSince(port, since));
      if (times.every((time) => time !== undefined))
        return Math.max(0, ...times.map((time) => time - since)) / 1000;
    }
    return undefined;
  }

  /** From when on all was good at this port; undefined while that cannot be said. */
  #goodSince(port: number, since: number): number | undefined {
    const now = performance.now();
    if (this.#clients.some((client) => client.port === port && client.waits(now) > WAITS_MS_MAX))
      return undefined;
    const mine = this.told.filter(
      (one) => one.port === port && one.project === 'open' && one.answeredAt >= since,
    );
    // Who was told something can try again with a request of its own; who was told nothing, only when the connection broke.
    const bad = mine.filter(({ status }) => status !== 200);
    const times = bad.map(({ status, sentAt, answeredAt }) => (status === 0 ? answeredAt : sentAt));
    const refused = this.unreachable
      .filter((one) => one.port === port && one.at >= since)
      .map(({ at }) => at);
    const from = Math.max(since, ...times, ...refused);
    const good = mine.filter(({ sentAt, status }) => sentAt > from && status === 200);
    return now - from >= STEADY_MS && good.length >= GOOD_IN_A_ROW ? from : undefined;
  }

  #shot(port: number): Shot {
    const { random, targets, payloadBytes, otlp = true } = this.#options;
    const id = eventId(); // not of the seed: two scenarios on one stand share a sink
    const draw = random();
    const project = SHARES.find(([, share]) => draw < share)?.[0] ?? 'open';
    // Those without limits show whether a port serves; the chunks stream, which is swept after minutes, may fill.
    const large = project !== 'open' && random() * LARGE_ONE_IN < 1;
    if (otlp && !large && payloadBytes === undefined && random() < OTLP_SHARE) {
      const { request, ...told } = otlpShot(random, targets[project]);
      return { told: { ...told, project, port, payloadBytes: undefined, isOtlp: true }, request };
    }
    const [least, most] = large ? LARGE_BYTES : SMALL_BYTES;
    const payload = JSON.stringify(payloadOf(id, payloadBytes ?? integer(random, least, most)));
    const type = random() < 0.7 ? 'event' : 'transaction';
    const body = `${JSON.stringify({ event_id: id })}\n${JSON.stringify({ type })}\n${payload}`;
    const head = `POST ${targets[project]} HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n`;
    const told = { id, mark: markOf(id), project, port, payloadBytes: payload.length };
    return { told, request: Buffer.from(head + body) };
  }
}
