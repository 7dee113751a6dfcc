/**
 * What each sink costs the processor, beside ndjson: `npm run bench -- sinks [NAME or SLUICE_SINK …] [--envelopes N] [--rounds N]`.
 * Without a name all whose store can be had here; `npm run test:sinks` installs the stores.
 */
import { appendFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { ensureServers } from '../../src/commands/dev/install.ts';
import { hostEnvironment } from '../../src/config.ts';
import { describeEnvironment } from '../environment.ts';
import { OWN_DIST } from '../harness.ts';
import { type RunOptions, runSink, type SinkRun } from './run.ts';
import { STORES, startStore } from './stores.ts';

const say = (line: string): void => {
  process.stderr.write(`${line}\n`);
};

const median = (values: readonly number[]): number =>
  [...values].sort((a, b) => a - b)[Math.floor((values.length - 1) / 2)] ?? Number.NaN;
const mib = (bytes: number | undefined): string =>
  bytes === undefined ? '' : (bytes / 1024 / 1024).toFixed(0);

/** `name`: without credentials. */
type Row = { name: string; runs: SinkRun[] };

function line({ name, runs }: Row, base: number): string {
  const of = (figure: (run: SinkRun) => number | undefined): number =>
    median(runs.map((run) => figure(run) ?? Number.NaN));
  const cpu = of(({ processorUsPerItem }) => processorUsPerItem);
  const store = of(({ storeUsPerItem }) => storeUsPerItem);
  const cells = [
    name.padEnd(12),
    of(({ itemsPerSec }) => itemsPerSec).toFixed(0),
    (1e6 / cpu).toFixed(0),
    cpu.toFixed(1),
    (cpu / base).toFixed(2),
    mib(of(({ processorRssBytes }) => processorRssBytes)),
    Number.isNaN(store) ? '' : store.toFixed(1),
    mib(runs[0]?.storeBytes),
    runs.map(({ processorUsPerItem }) => processorUsPerItem.toFixed(1)).join(' '),
  ];
  return cells.map((cell, at) => (at === 0 || at === cells.length - 1 ? cell : cell.padStart(10))).join(' ');
}

const HEAD = [
  'sink        ',
  ...['items/s', 'per core', 'CPU µs', '÷ ndjson', 'RSS MiB', 'store µs', 'store MiB'].map((word) =>
    word.padStart(10),
  ),
  'CPU µs of each round',
].join(' ');

async function measure(names: readonly string[], rounds: number, options: RunOptions): Promise<Row[]> {
  const rows = new Map<string, Row>();
  for (let round = 0; round < rounds; round++) {
    for (const name of round % 2 === 0 ? names : names.toReversed()) {
      const store = await startStore(name);
      if (!store) {
        say(`${name}: no store here; npm run test:sinks installs it`);
        continue;
      }
      say(`round ${round + 1}: ${name.replace(/\/\/[^@]*@/, '//')}`);
      try {
        const row = rows.get(name) ?? { name: name.replace(/:.*/, ''), runs: [] };
        rows.set(name, row);
        row.runs.push(await runSink(store, { ...options, seed: options.seed + round }));
      } finally {
        await store.stop();
      }
    }
  }
  return names.flatMap((name) => rows.get(name) ?? []);
}

/** @returns exit status */
export async function sinksCommand(args: string[]): Promise<number> {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      envelopes: { type: 'string' },
      rounds: { type: 'string' },
      seed: { type: 'string', default: '1' },
      smoke: { type: 'boolean', default: false },
      out: { type: 'string' },
    },
  });
  const bins = ensureServers(hostEnvironment(), say);
  const { smoke } = values;
  const envelopes = Number(values.envelopes ?? (smoke ? 500 : 60_000));
  const rounds = Number(values.rounds ?? (smoke ? 1 : 3));
  const options = { dist: OWN_DIST, natsBin: bins.nats, seed: Number(values.seed), envelopes, smoke };
  const rows = await measure(positionals.length > 0 ? positionals : Object.keys(STORES), rounds, options);
  const base = median(
    rows.flatMap(({ name, runs }) =>
      name === 'ndjson' ? runs.map(({ processorUsPerItem }) => processorUsPerItem) : [],
    ),
  );
  const { cpu, cores, commit } = describeEnvironment(bins);
  const [first] = rows.flatMap(({ runs }) => runs);
  const text = [
    `sinks (${cpu}, ${cores} cores, Node ${process.version}, ${commit}; ${first?.items ?? 0} items, ${mib(first?.payloadBytes)} MiB of payloads, everything on this machine)`,
    HEAD,
    ...rows.map((row) => line(row, base)),
    '',
  ].join('\n');
  process.stdout.write(text);
  if (values.out !== undefined) appendFileSync(values.out, text);
  return rows.length > 0 ? 0 : 1;
}
