/**
 * Mutated bodies, one after the other over a few connections. A worker passes when it lives, its memory stays flat and every answer is
 * one of the documented ones; what else came is kept with the mutation that brought it.
 */
import { pick, type Random, seededRandom } from '../random.ts';
import { total } from '../scrape.ts';
import type { Target } from '../workload.ts';
import { Asking, type Reply, Tally } from './asking.ts';
import { derivedEnvelope } from './grammar.ts';
import { corpus, cuts, type Mutant, mutant } from './mutate.ts';
import { type HostileWorker, MemoryWatch, pathOf } from './worker.ts';

export type MutationOptions = {
  targets: readonly Target[];
  count: number;
  seed: number;
  connections: number;
};
export type MutationResult = {
  answers: Record<string, number>;
  /** At most ten answers that no page documents, each with what was done to the envelope. */
  surprises: string[];
  restarts: number;
  seconds: number;
  /** Bytes; the slope in bytes per second over the second half. */
  memory: { before: number; peak: number; after: number; slope: number };
};

const SURPRISES_KEPT = 10;
/** Share that leaves in the middle of its body. */
const LEAVING = 0.002;
/** Share that is derived from the grammar, so that its answer is known. */
const DERIVED = 0.5;
/** What a sound and a broken envelope may get alike. */
const BUSY: readonly (string | undefined)[] = ['429', '503'];
/** A google.rpc.Status in either encoding. */
const statusOf = (code: number, message: string): RegExp =>
  new RegExp(`^(\\{"code":${code},"message":"(${message})"\\}|.{4}(${message}))$`, 's');

/** As docs/protocol.md has them, section 5. */
const DOCUMENTED: readonly (readonly [kind: string, status: number, body: RegExp])[] = [
  ['200', 200, /^\{"id":"[0-9a-f]{32}"\}$/],
  ['400', 400, /^\{"error":"Invalid envelope format"\}$/],
  ['413', 413, /^\{"error":"Payload too large"\}$/],
  ['429', 429, /^\{"error":"(Rate limit exceeded|quota_exceeded)"\}$/],
  ['503', 503, /^\{"error":"Service overloaded"\}$/],
  ['200 OTLP', 200, /^(\{\})?$/],
  ['400 OTLP', 400, statusOf(3, 'Invalid envelope format')],
  ['413 OTLP', 413, statusOf(3, 'Payload too large')],
  ['429 OTLP', 429, statusOf(8, 'Rate limit exceeded|quota_exceeded')],
  ['503 OTLP', 503, statusOf(14, 'Service overloaded')],
];
const kindOf = ({ status, body }: Reply): string | undefined =>
  DOCUMENTED.find(([, wanted, shape]) => status === wanted && shape.test(body))?.[0];

export function requestOf(path: string, { body, encoding, chunks, door, contentType }: Mutant): Buffer {
  const head = [
    `POST ${door ? path.replace('/envelope/', door) : path} HTTP/1.1`,
    'Host: sluice',
    ...(contentType ? [`Content-Type: ${contentType}`] : []),
    ...(encoding ? [`Content-Encoding: ${encoding}`] : []),
  ];
  if (chunks.length === 0)
    return Buffer.concat([
      Buffer.from(`${[...head, `Content-Length: ${body.length}`].join('\r\n')}\r\n\r\n`),
      body,
    ]);
  const parts: Buffer[] = [Buffer.from(`${[...head, 'Transfer-Encoding: chunked'].join('\r\n')}\r\n\r\n`)];
  let at = 0;
  for (const size of chunks) {
    parts.push(Buffer.from(`${size.toString(16)}\r\n`), body.subarray(at, at + size), Buffer.from('\r\n'));
    at += size;
  }
  return Buffer.concat([...parts, Buffer.from('0\r\n\r\n')]);
}

/** Tells how one attack was answered, and what was wrong with that. */
type Note = (answer: string, surprise?: string) => void;

/** @param client attacks as long as `next` says so; all of them together `count` times */
export async function attackWith(
  worker: HostileWorker,
  { count, connections }: MutationOptions,
  client: (next: () => boolean, note: Note) => Promise<void>,
): Promise<MutationResult> {
  const tally = new Tally();
  const surprises: string[] = [];
  let left = count;
  const next = (): boolean => left-- > 0;
  const note: Note = (answer, surprise) => {
    tally.add(answer);
    if (surprise !== undefined && surprises.length < SURPRISES_KEPT) surprises.push(surprise);
  };
  const before = total(await worker.metrics(), 'sluice_worker_restarts_total');
  const memory = new MemoryWatch(worker);
  const startedAt = performance.now();
  await Promise.all(Array.from({ length: connections }, () => client(next, note)));
  const seconds = (performance.now() - startedAt) / 1000;
  const restarts = total(await worker.metrics(), 'sluice_worker_restarts_total') - before;
  return { answers: Object.fromEntries(tally.counts), surprises, restarts, seconds, memory: memory.stop() };
}

/** @returns a body, and the answer that it must get where that is known */
function hostileBody(sound: ReturnType<typeof corpus>, random: Random): { made: Mutant; answer?: string } {
  if (random() >= DERIVED) return { made: mutant(sound, random) };
  const { stored, ...derived } = derivedEnvelope(random);
  return { made: { ...derived, chunks: cuts(derived.body.length, random) }, answer: stored ? '200' : '400' };
}

export function runMutations(worker: HostileWorker, options: MutationOptions): Promise<MutationResult> {
  const random = seededRandom(options.seed);
  const sound = corpus(random);
  const paths = options.targets.map(pathOf);
  return attackWith(worker, options, async (next, note) => {
    const asking = new Asking(worker.port);
    while (next()) {
      const { made, answer } = hostileBody(sound, random);
      const bytes = requestOf(pick(random, paths), made);
      if (random() < LEAVING) {
        void asking.ask(bytes.subarray(0, bytes.length - 1));
        await new Promise((resolve) => setTimeout(resolve, 5));
        asking.leave();
        note('left');
        continue;
      }
      const reply = await asking.ask(bytes);
      const kind = kindOf(reply);
      const { status, body } = reply;
      const isWrong = answer !== undefined && kind !== answer && !BUSY.includes(kind);
      if (kind === undefined || isWrong)
        note(
          `${status} ${body.slice(0, 60)}`,
          `${made.how}: ${status} ${body.slice(0, 200)}, expected ${answer ?? 'another'}`,
        );
      else note(kind);
    }
    asking.leave();
  });
}
