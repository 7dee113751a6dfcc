/**
 * The limiter in real processes: `npm run bench -- limits COMMAND [--smoke] [--limit N]… [--out FILE]`, with a COMMAND of windows,
 * flood, refusals, calls. Fails when what it shows does not hold.
 */
import { appendFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { ensureServers } from '../../src/commands/dev/install.ts';
import { hostEnvironment } from '../../src/config.ts';
import { describeEnvironment } from '../environment.ts';
import { OWN_DIST, STREAM_BYTES_SMOKE } from '../harness.ts';
import { calls, flood, refusals, type Show, windows } from './shows.ts';

const SHOWS: Readonly<Record<string, Show>> = { windows, flood, refusals, calls };

/** @returns exit status: 1 when something does not hold */
export async function limitsCommand(args: string[]): Promise<number> {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      smoke: { type: 'boolean', default: false },
      limit: { type: 'string', multiple: true, default: [] },
      seed: { type: 'string', default: '1' },
      out: { type: 'string' },
    },
  });
  const names = positionals.length > 0 ? positionals : Object.keys(SHOWS);
  const bins = ensureServers(hostEnvironment(), (line) => process.stderr.write(`${line}\n`));
  const { cpu, cores, commit } = describeEnvironment(bins);
  let all = true;
  for (const name of names) {
    const show = SHOWS[name];
    if (!show) throw new Error(`commands: ${Object.keys(SHOWS).join(', ')}`);
    const { lines, holds } = await show({
      dist: OWN_DIST,
      bins,
      seed: Number(values.seed),
      smoke: values.smoke,
      limits: values.limit.map(Number),
      ...(values.smoke && { streamMaxBytes: STREAM_BYTES_SMOKE }),
    });
    all &&= holds;
    const head = `${name} (${cpu}, ${cores} cores, ${commit}, seed ${values.seed}, everything on this machine)`;
    const text = `${[head, ...lines, holds ? 'holds' : 'DOES NOT HOLD'].join('\n')}\n\n`;
    process.stdout.write(text);
    if (values.out !== undefined) appendFileSync(values.out, text);
  }
  return all ? 0 : 1;
}
