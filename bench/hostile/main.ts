/**
 * Hostile traffic at size, against the system as it runs in production with one worker: `npm run bench -- hostile SHOW`. A show fails
 * when what it shows does not hold.
 */
import { parseArgs } from 'node:util';
import { ensureServers } from '../../src/commands/dev/install.ts';
import { hostEnvironment } from '../../src/config.ts';
import type { NewProject } from '../../src/projects/project-store.ts';
import { Harness, OWN_DIST } from '../harness.ts';
import { UsageError } from '../load/command/values.ts';
import { allowChunks } from './chunks.ts';
import { connections, refusals } from './refusals.ts';
import type { Show } from './scene.ts';
import { aborts, mutations, uploads } from './shows.ts';
import { HostileWorker } from './worker.ts';

const STREAM_MAX_BYTES = 2 * 1024 ** 3;
/** 400 payloads of 19 MiB stand in the chunks stream until it is swept. */
const CHUNKS_MAX_BYTES = 9 * 1024 ** 3;

/** So many that each has its share of the spool, whatever 400 uploads take of it. */
const CROWD = 40;

const SHOWS: Readonly<Record<string, Show>> = {
  mutations,
  'uploads-plain': uploads({
    payloadBytes: 5_000_000,
    gzip: false,
    bytesPerSecond: 250_000,
    expect: 'stored',
  }),
  'uploads-gzip-19': uploads({
    payloadBytes: 19 * 1024 * 1024,
    gzip: true,
    bytesPerSecond: 250_000,
    expect: 'stored',
  }),
  'uploads-gzip-21': uploads({
    payloadBytes: 21 * 1024 * 1024,
    gzip: true,
    bytesPerSecond: 250_000,
    expect: 'refused',
  }),
  aborts,
  refusals,
  connections,
};

/** @returns exit status: 1 when something does not hold */
export async function hostileCommand(args: string[]): Promise<number> {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      count: { type: 'string' },
      seed: { type: 'string', default: '1' },
      only: { type: 'string', default: '' },
    },
  });
  const show = SHOWS[positionals[0] ?? ''];
  if (!show) throw new UsageError(`hostile: one of ${Object.keys(SHOWS).join(', ')}`);
  const bins = ensureServers(hostEnvironment(), (line) => console.error(line));
  const harness = await Harness.start({
    dist: OWN_DIST,
    bins,
    streamMaxBytes: STREAM_MAX_BYTES,
  });
  try {
    const project = (filters: NewProject['filters']): NewProject => ({
      plan: 'Platform',
      overage: false,
      allowedOrigins: [],
      filters,
    });
    const all = ['browser-extension', 'localhost', 'crawler'] as const;
    const targets = await harness.createProjects([project([]), project([...all])]);
    const crowd = await harness.createProjects(Array.from({ length: CROWD }, () => project([])));
    const count = values.count === undefined ? undefined : Number(values.count);
    const worker = new HostileWorker();
    await allowChunks(worker, CHUNKS_MAX_BYTES);
    const { lines, holds } = await show({
      harness,
      worker,
      targets,
      crowd,
      count,
      seed: Number(values.seed),
      only: values.only,
    });
    console.log([...lines, holds ? 'holds' : 'DOES NOT HOLD'].join('\n'));
    return holds ? 0 : 1;
  } finally {
    await harness.stop();
  }
}
