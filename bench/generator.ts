/** `npm run bench -- generator`: what a request costs the load generator, on a bare server. */
import { parseArgs } from 'node:util';
import { loadOfBare } from './load-of-bare.ts';

const RATES = [200, 2_000, 20_000];

/** @returns the exit status: 1 when a request failed */
export async function generatorCommand(args: string[]): Promise<number> {
  const { values } = parseArgs({ args, options: { seconds: { type: 'string', default: '12' } } });
  let all = true;
  for (const rate of [undefined, ...RATES]) {
    const {
      failed,
      ratePerSec,
      generator: g,
    } = await loadOfBare([
      ...['--warmup', '3s', '--duration', values.seconds],
      ...(rate === undefined ? [] : ['--rate', `${rate}`]),
    ]);
    all &&= failed === 0;
    const name = rate === undefined ? 'closed loop' : `open loop, ${rate}/s`;
    const caution = g.bottleneck.map((why) => `; ${why}`).join('');
    process.stdout.write(
      `${name}: ${g.cpuUsPerRequest.toFixed(1)} µs CPU per request (${ratePerSec.toFixed(0)}/s answered, ${failed} failed, ${(100 * g.busy).toFixed(0)} % of a core${caution})\n`,
    );
  }
  return all ? 0 : 1;
}
