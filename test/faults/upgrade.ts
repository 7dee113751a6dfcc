/** One build takes the place of another under load, process by process, and the other way round. */
import { setTimeout as pause } from 'node:timers/promises';
import { until } from '../support/system.ts';
import { type Fault, nothing } from './fault.ts';
import type { Stand } from './stand.ts';
import type { Supervised } from './supervised.ts';

/** Both builds serve side by side for so long after each step. */
const MIXED_MS = 1_500;

type Named = { name: string; dist: string };

async function replace(stand: Stand, parts: readonly Supervised[], dist: string): Promise<void> {
  for (const part of parts) {
    part.dist = dist;
    const { starts } = part;
    const status = await part.endOnce();
    if (status !== 0) throw new Error(`ended with ${status} on SIGTERM`);
    await until(() => part.starts > starts);
    await stand.ready();
    await pause(MIXED_MS);
  }
}

/** As docs/operations.md tells it: the newer build's setup, then the processors, then ingest. */
export const upgradeTo = ({ name, dist }: Named): Fault => ({
  name: `rolling upgrade to ${name}`,
  holdMs: 0,
  strike: async ({ stand }) => {
    await stand.command(dist, 'setup');
    await replace(stand, [...stand.processors, ...stand.ingest], dist);
    return nothing;
  },
});

/** Ingest first, so that no older processor meets what only a newer worker writes. Streams and buckets stay as they are. */
export const backTo = ({ name, dist }: Named): Fault => ({
  name: `the way back to ${name}`,
  holdMs: 0,
  strike: async ({ stand }) => {
    await replace(stand, [...stand.ingest, ...stand.processors], dist);
    return nothing;
  },
});
