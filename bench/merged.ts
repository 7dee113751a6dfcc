/**
 * `npm run bench -- merged`: two generators that are merged find what one of twice the rate finds.
 *
 * The server answers after a delay that is drawn from a known distribution, so that its own latency does not change between the
 * runs; what is left is the error of merging and of the generators. Each round: one generator at twice the rate, then two side by
 * side, each in a process of its own.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { runFresh } from './fresh.ts';
import { mergeParallel } from './load/merge.ts';
import type { LoadOptions } from './load/options.ts';
import type { LoadResult } from './load/result.ts';
import { number } from './load/show/figures.ts';
import { seededRandom } from './random.ts';
import { CANONICAL_MIX } from './workload.ts';

const RATE = 250;
const SECONDS = 12;
const ROUNDS = 3;
const BOUND = 0.02;
const DELAY_MS = { least: 20, more: 180 };

/** Answers after 20 to 200 ms, most of them early. */
function serve(): Promise<{ url: string; close(): void }> {
  const random = seededRandom(1);
  const server = createServer((req, res) => {
    req.resume();
    req.once('end', () => {
      const delay = DELAY_MS.least + DELAY_MS.more * random() ** 2;
      setTimeout(() => res.end('{"id":"00000000000000000000000000000000"}'), delay);
    });
  });
  return new Promise((resolve) =>
    server.listen(0, '127.0.0.1', () =>
      resolve({
        url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
        close: () => server.closeAllConnections(),
      }),
    ),
  );
}

const optionsOf = (url: string, rate: number, seed: number): LoadOptions => ({
  url,
  targets: [{ id: '1', key: 'k' }],
  mix: CANONICAL_MIX,
  encoding: 'sdk',
  rate,
  connections: 256,
  warmupMs: 2_000,
  durationMs: SECONDS * 1000,
  seed,
});

/** @returns the exit status: 1 when the merged p99 is further off than the bound */
export async function mergedCommand(): Promise<number> {
  const server = await serve();
  const load = (rate: number, seed: number): Promise<LoadResult> =>
    runFresh('loadWithHistograms', optionsOf(server.url, rate, seed));
  let worst = 0;
  for (let round = 1; round <= ROUNDS; round++) {
    const one = await load(2 * RATE, round);
    const two = mergeParallel(await Promise.all([load(RATE, 10 + round), load(RATE, 20 + round)]));
    const off = two.latencyMs.p99 / one.latencyMs.p99 - 1;
    worst = Math.max(worst, Math.abs(off));
    process.stdout.write(
      `round ${round}: one at ${2 * RATE}/s p99 ${number(one.latencyMs.p99)} ms, two at ${RATE}/s merged p99 ${number(two.latencyMs.p99)} ms: ${(off * 100).toFixed(2)} % apart (requests ${one.requests}, ${two.requests}; failed ${one.failed + two.failed})\n`,
    );
  }
  server.close();
  const holds = worst <= BOUND;
  process.stdout.write(
    `${holds ? 'holds' : 'MISSED'}: at most ${(worst * 100).toFixed(2)} % apart, bound 2 %\n`,
  );
  return holds ? 0 : 1;
}
