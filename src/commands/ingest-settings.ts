import { statfsSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import type { SoundSettings } from '../config.ts';
import { ADMIN_PORT } from '../ingest/primary.ts';
import { allowedCpus } from '../lib/files/allowed-cpus.ts';
import { SPOOL_BYTES_MAX } from '../limits.ts';
import { bytesText } from '../stream/setup/config-diff.ts';

/**
 * Checks settings that only ingest needs: its ports, its number of workers and its spool. Other
 * programs read the same environment, but start without these settings.
 */
export function ingestProblems(settings: SoundSettings): string[] {
  const { SLUICE_PORT: port, SLUICE_SPOOL_DIR: dir = tmpdir(), SLUICE_SPOOL_MAX_BYTES: bound } = settings;
  const { SLUICE_MAX_DECOMPRESSED_BYTES: bytes = 0, SLUICE_WORKERS: workers = allowedCpus() } = settings;
  const least = 2 * bytes * workers;
  const problems: string[] = [];
  if (settings.SLUICE_ADMIN_PORT === undefined && port === ADMIN_PORT)
    problems.push(`SLUICE_ADMIN_PORT (${ADMIN_PORT} unless it is set) must differ from SLUICE_PORT`);
  if ((bound ?? SPOOL_BYTES_MAX * workers) < least)
    problems.push(
      `SLUICE_SPOOL_MAX_BYTES must be at least ${least}: twice SLUICE_MAX_DECOMPRESSED_BYTES for each of ${workers} workers`,
    );
  const volume = volumeOf(dir);
  if (!volume) problems.push(`SLUICE_SPOOL_DIR must be a folder that is there and can be looked at: ${dir}`);
  else if (bound && volume.size < bound)
    problems.push(
      `SLUICE_SPOOL_MAX_BYTES is ${bytesText(bound)}, and the volume of ${dir} has ${bytesText(volume.size)}`,
    );
  return problems;
}

export function volumeOf(dir: string): { size: number; free: number } | undefined {
  try {
    const { blocks, bavail, bsize } = statfsSync(dir);
    return statSync(dir).isDirectory() ? { size: blocks * bsize, free: bavail * bsize } : undefined;
  } catch {
    return undefined;
  }
}
