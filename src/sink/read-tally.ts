import type { SinkSetting } from '../config.ts';
import type { TallyOfMonth } from './tally.ts';

/** Reads the tally of a sink. `month` is `YYYY-MM`. */
export type TallyReader = {
  /**
   * Returns a project's tally.
   * @throws UnavailableError, or the file system's error, when the tally cannot be read
   */
  ofProject(projectId: string, month: string): Promise<TallyOfMonth>;
  /**
   * Returns the number of accepted envelopes by project.
   * @throws as `ofProject`
   */
  ofMonth(month: string): Promise<Map<string, number>>;
};

/** Returns a reader for the first of the sinks that keeps a tally; undefined when none does. */
export function tallyReader(sinks: readonly SinkSetting[]): TallyReader | undefined {
  for (const sink of sinks) {
    if (sink.kind === 'ndjson') return ofFolder(sink.dir);
    if (sink.kind === 'postgres') return ofPostgres(sink.url);
    if (sink.kind === 'clickhouse') return ofClickHouse(sink.url);
  }
  return undefined;
}

function ofFolder(dir: string): TallyReader {
  const load = () => import('./ndjson/tally.ts');
  return {
    ofProject: async (projectId, month) => (await load()).readTally(dir, projectId, month),
    ofMonth: async (month) => (await load()).readTallies(dir, month),
  };
}

function ofPostgres(url: string): TallyReader {
  const load = () => import('./postgres/tally.ts');
  return {
    ofProject: async (projectId, month) => (await load()).readPostgresTally(url, { projectId, month }),
    ofMonth: async (month) => (await load()).readPostgresTallies(url, month),
  };
}

function ofClickHouse(url: string): TallyReader {
  const load = () => import('./clickhouse/tally.ts');
  return {
    ofProject: async (projectId, month) => (await load()).readClickHouseTally(url, { projectId, month }),
    ofMonth: async (month) => (await load()).readClickHouseTallies(url, month),
  };
}
