/** `npm run bench -- knee [CAP …]`: the search for the knee against a bare server that takes a known number of requests a second. */
import { loadOfBare } from './load-of-bare.ts';

const CAPS = [300, 3_000, 20_000];
const BOUND = 0.05;
/** The first rate, as a share of the cap: the search goes up from it, past the cap, and back. */
const START = 0.72;

/** @returns the exit status: 1 when a knee is further off than the bound */
export async function kneeCommand(args: string[]): Promise<number> {
  const caps = args.length > 0 ? args.map(Number) : CAPS;
  let all = true;
  for (const cap of caps) {
    const { knee, generator } = await loadOfBare(
      ['--find-knee', '--rate', `${Math.round(START * cap)}`, '--step', '3s'],
      cap,
    );
    const found = knee?.lastGoodRate ?? 0;
    const holds = Math.abs(found / cap - 1) <= BOUND;
    all &&= holds;
    const steps = knee?.steps.map(({ rate, good }) => `${rate}${good ? '' : ' bad'}`).join(', ');
    process.stdout.write(
      `cap ${cap}/s: knee ${found}/s, ${(100 * (found / cap - 1)).toFixed(1)} % off: ${holds ? 'holds' : 'MISSED'} (${steps}; ${generator.cpuUsPerRequest.toFixed(1)} µs CPU per request of the generator)\n`,
    );
  }
  return all ? 0 : 1;
}
