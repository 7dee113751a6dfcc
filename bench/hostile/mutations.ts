/**
 * Mutated bodies of one kind, one after the other over a few connections. Half of the envelopes are derived from a grammar
 * (grammar.ts). A worker passes when it lives, its memory stays flat, every answer is one of the documented ones, and sound or derived
 * bodies get the answer that they must get. What else came is kept with the mutation that brought it.
 */
import { pick, type Random, seededRandom } from '../random.ts';
import { total } from '../scrape.ts';
import type { Target } from '../workload.ts';
import { Asking, type Reply, Tally } from './asking.ts';
import { derivedEnvelope } from './grammar.ts';
import { type BodyKind, corpus, cuts, type Mutant, mutant } from './mutate.ts';
import { type HostileWorker, MemoryWatch, pathOf } from './worker.ts';

export type MutationOptions = {
  targets: readonly Target[];
  count: number;
  seed: number;
  connections: number;
};
export type MutationResult = {
  answers: Record<string, number>;
  /** At most ten wrong answers, each with the number of the request and what was done to it. */
  surprises: string[];
  restarts: number;
  seconds: number;
  /** Bytes; the slope in bytes per second over the second half. */
  memory: { before: number; peak: number; after: number; slope: number };
};

export const SURPRISES_KEPT = 10;
/** Share that leaves in the middle of its body. */
const LEAVING = 0.002;
/** Share of the envelopes that is derived from the grammar, so that its answer is known. */
const DERIVED = 0.5;
/** A request that has no answer by then hangs. Wide enough for a machine that stalls. */
const ANSWER_MS_MAX = 60_000;
/** Answers that a sound and a broken body may get alike. */
const BUSY = /^(429|503)/;
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
const documented = ({ status, body }: Reply): string | undefined =>
  DOCUMENTED.find(([, wanted, shape]) => status === wanted && shape.test(body))?.[0];

/** The answer that a body must get; undefined where that is not known. */
function dueAnswer({ isSound, door }: Mutant): string | undefined {
  if (isSound === undefined) return undefined;
  return `${isSound ? 200 : 400}${door ? ' OTLP' : ''}`;
}

async function answered(asking: Asking, bytes: Buffer): Promise<Reply> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<Reply>((resolve) => {
    timer = setTimeout(() => resolve({ status: 0, body: `no answer in ${ANSWER_MS_MAX} ms` }), ANSWER_MS_MAX);
  });
  const reply = await Promise.race([asking.ask(bytes), late]);
  clearTimeout(timer);
  if (reply.status === 0) asking.leave();
  return reply;
}

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

/**
 * Numbers for one request. They depend on the seed and the request's number alone, so that a request that brought a surprise can be made
 * again.
 */
export const randomOf = (seed: number, request: number): Random =>
  seededRandom(Math.imul(seed, 0x85ebca6b) + request);

/** @param client attacks until `next`, which numbers the attacks of all clients from 1, returns undefined */
export async function attackWith(
  worker: HostileWorker,
  { count, connections }: MutationOptions,
  client: (next: () => number | undefined, note: Note) => Promise<void>,
): Promise<MutationResult> {
  const tally = new Tally();
  const surprises: string[] = [];
  let begun = 0;
  const next = (): number | undefined => (begun < count ? ++begun : undefined);
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

function hostileEnvelope(sound: Parameters<typeof mutant>[0], random: Random): Mutant {
  if (random() >= DERIVED) return mutant(sound, random);
  const { body, encoding, stored, how } = derivedEnvelope(random);
  return { body, encoding, chunks: cuts(body.length, random), isSound: stored !== undefined, how };
}

export function runMutations(
  worker: HostileWorker,
  options: MutationOptions,
  kind: BodyKind,
): Promise<MutationResult> {
  const { seed, targets } = options;
  const sound = corpus(seededRandom(seed))[kind];
  const paths = targets.map(pathOf);
  return attackWith(worker, options, async (next, note) => {
    const asking = new Asking(worker.port);
    for (let request = next(); request; request = next()) {
      const random = randomOf(seed, request);
      const made = kind === 'envelopes' ? hostileEnvelope(sound, random) : mutant(sound, random);
      const bytes = requestOf(pick(random, paths), made);
      if (random() < LEAVING) {
        void asking.ask(bytes.subarray(0, bytes.length - 1));
        await new Promise((resolve) => setTimeout(resolve, 5));
        asking.leave();
        note('left');
        continue;
      }
      const reply = await answered(asking, bytes);
      const [answer, due] = [documented(reply), dueAnswer(made)];
      const isExpected = answer !== undefined && (due === undefined || answer === due || BUSY.test(answer));
      const said = `${reply.status} ${reply.body.slice(0, 200)}`;
      if (isExpected) note(answer);
      else note(said.slice(0, 60), `${request}: ${made.how}: ${said}${due ? `, expected ${due}` : ''}`);
    }
    asking.leave();
  });
}
