/**
 * The project that is not attacking: small events at an even rate and an upload of a megabyte now and then, which is a recording every other time. It remembers every event
 * that was accepted, so that somebody can look for it in the sink.
 */
import { Asking, Tally } from '../hostile/asking.ts';
import { headOf } from '../hostile/uploads.ts';
import { hex } from '../random.ts';

export type WitnessOptions = {
  port: number;
  path: string;
  ms: number;
  eventsPerSecond: number;
  uploadsPerSecond: number;
  uploadBytes: number;
};
export type Testimony = {
  /** Ms from the moment at which an event was meant to be sent to its answer. */
  p50: number;
  p99: number;
  events: Record<string, number>;
  uploads: Record<string, number>;
  /** The longest of an upload, ms. */
  uploadMsMax: number;
  /** Those answered with 200; `at`: when, wall-clock ms. */
  accepted: { id: string; at: number }[];
};

type Sent = { id: string; kind: string; ms: number; at: number };

/** Asks over connections that are kept; another one is opened while all are busy. */
class Client {
  readonly #free: Asking[] = [];
  readonly #port: number;
  readonly #path: string;

  constructor(port: number, path: string) {
    this.#port = port;
    this.#path = path;
  }

  /** @param due `performance.now()` */
  async send(payload: Buffer, due: number, type = 'event'): Promise<Sent> {
    const id = hex(Math.random, 32);
    const heads = `{"event_id":"${id}"}\n{"type":"${type}","length":${payload.length}}\n`;
    const body = Buffer.concat([Buffer.from(heads), payload]);
    const asking = this.#free.pop() ?? new Asking(this.#port);
    const { status, body: said } = await asking.ask(Buffer.concat([headOf(this.#path, body.length), body]));
    this.#free.push(asking);
    return {
      id,
      kind: status === 0 ? `0 ${said}` : `${status}`,
      ms: performance.now() - due,
      at: Date.now(),
    };
  }

  leave(): void {
    for (const asking of this.#free) asking.leave();
  }
}

async function atRate(perSecond: number, ms: number, send: (due: number) => Promise<Sent>): Promise<Sent[]> {
  const startedAt = performance.now();
  const sent: Promise<Sent>[] = [];
  for (let count = 0; count < (ms / 1000) * perSecond; count++) {
    const due = startedAt + (count * 1000) / perSecond;
    const early = due - performance.now();
    if (early > 0) await new Promise((resolve) => setTimeout(resolve, early));
    sent.push(send(due));
  }
  return Promise.all(sent);
}

const countsOf = (sent: readonly Sent[]): Record<string, number> => {
  const tally = new Tally();
  for (const { kind } of sent) tally.add(kind);
  return Object.fromEntries(tally.counts);
};

const quantile = (sorted: readonly number[], share: number): number =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;

export async function runWitness(options: WitnessOptions): Promise<Testimony> {
  const { port, path, ms } = options;
  const client = new Client(port, path);
  const small = Buffer.from(JSON.stringify({ message: 'x'.repeat(1_500) }));
  const large = Buffer.from(JSON.stringify({ message: 'y'.repeat(options.uploadBytes) }));
  const recording = Buffer.concat([Buffer.from('{"segment_id":0}\n['), large, Buffer.from(']')]);
  let count = 0;
  const [events, uploads] = await Promise.all([
    atRate(options.eventsPerSecond, ms, (due) => client.send(small, due)),
    atRate(options.uploadsPerSecond, ms, (due) =>
      count++ % 2 === 0 ? client.send(large, due) : client.send(recording, due, 'replay_recording'),
    ),
  ]);
  client.leave();
  const times = events.map((one) => one.ms).sort((a, b) => a - b);
  return {
    p50: quantile(times, 0.5),
    p99: quantile(times, 0.99),
    events: countsOf(events),
    uploads: countsOf(uploads),
    uploadMsMax: Math.max(0, ...uploads.map((one) => one.ms)),
    accepted: [...events, ...uploads].filter(({ kind }) => kind === '200').map(({ id, at }) => ({ id, at })),
  };
}
